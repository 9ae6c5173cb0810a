/* model.c - opening a model: parts are found, configured, built, and fitted to each other. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/model.h"

#include "base/system.h"
#include "files/json.h"
#include "files/map.h"
#include "kernels/kernels.h"
#include "ops/cache.h"
#include "pipeline/config.h"
#include "pipeline/memory.h"
#include "pipeline/decoder.h"
#include "pipeline/find.h"
#include "pipeline/prediction.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS 1024

#define CLIP_VOCABULARY 49408
#define CLIP_SMALLEST   514 /* bytes, in a word and at its end, and the two special tokens */

/* One network on its way from disk: its tensors, and its config.json if there is one. */
struct source {
    struct weights *weights;
    char *config; /* a config.json; NULL: there is none */
    const json_t
        *numbers; /* the same from beside a single file; NULL: to be guessed from tensors */
    char *folder; /* the model's folder of this part, for messages */
};

static void source_free(struct source *s)
{
    free(s->config);
    free(s->folder);
}

static void warn(const struct dk_model *model, const char *sentence)
{
    if (model->warn) model->warn(model->warn_user, sentence);
}

const char *model_own_string(struct dk_model *model, const char *text, struct dk_error *err)
{
    for (size_t i = 0; i < model->n_strings; i++)
        if (strcmp(model->strings[i], text) == 0) return model->strings[i];
    char *copy = strdup(text);
    char **more = copy ? realloc(model->strings, (model->n_strings + 1) * sizeof *more) : NULL;
    if (!more) {
        free(copy);
        dk_fail(err, DK_ERROR_MEMORY, "out of memory");
        return NULL;
    }
    model->strings = more;
    return model->strings[model->n_strings++] = copy;
}

bool model_add_part(struct dk_model *model, const char *name, struct weights *weights)
{
    if (model->n_parts == DK_MAX_PARTS) return false;
    model->part_names[model->n_parts] = name;
    model->parts[model->n_parts++] = weights;
    return true;
}

/*
 * Finds one part: what the caller gave in its place, else the folder's, else the checkpoint's. An
 * absent optional part leaves weights NULL and is no error.
 */
static bool find_part(struct dk_model *model, const char *name, const char *replacement,
                      bool optional, struct source *source, struct dk_error *err)
{
    source->folder = path_join(model->path, name);
    if (!source->folder) return dk_fail(err, DK_ERROR_MEMORY, "%s: out of memory", model->path);
    bool in_folder = !model->checkpoint && path_is_folder(source->folder);
    if (in_folder) source->config = find_config(source->folder);
    if (replacement || in_folder) {
        const char *path = replacement ? replacement : source->folder;
        struct weights *all = weights_open(path, err);
        if (!all) return false;
        model_add_part(model, name, all);
        source->weights = weights_part(all, name);
        char *beside = replacement ? find_config(replacement) : NULL;
        if (beside) {
            free(source->config);
            source->config = beside;
        }
        if (!source->weights)
            return dk_fail(err, DK_ERROR_MODEL, "%s: holds %s and no %s; give a file that does",
                           path, weights_kind_name(weights_kind(all)), name);
    } else if (model->checkpoint) {
        source->weights = weights_part(model->checkpoint, name);
        source->numbers = config_beside_part(model->beside, name);
        if (source->weights) model_add_part(model, name, source->weights);
    }
    if (source->weights || optional) return true;
    /* check_parts saw it */
    return dk_fail(err, DK_ERROR_MODEL,
                   "%s: %s was there and is gone; let the model alone while it is opened",
                   model->path, name);
}

/* A tokenizer's file as dk_convert put it into a single file; text NULL: there is none. */
static struct tokenizer_file tokenizer_in_file(const struct weights *weights, const char *tokenizer,
                                               const char *file)
{
    char key[64];
    snprintf(key, sizeof key, "%s/%s", tokenizer, file);
    const char *text = weights ? weights_metadata(weights, key) : NULL;
    return (struct tokenizer_file){text, text ? strlen(text) : 0};
}

/* What happens to a vocabulary that is not CLIP's, and what to do if that is not right. */
static void warn_of_vocabulary(const struct dk_model *model, int64_t n, bool first)
{
    char sentence[400];
    const char *remedy = first ? "give it with --tokenizer DIR"
                               : "give the model as a folder with it in tokenizer_2";
    if (n < CLIP_VOCABULARY)
        snprintf(sentence, sizeof sentence,
                 "the model brings no tokenizer: its %lld tokens are taken for CLIP's bytes and "
                 "first %lld merges; if it was trained with another, %s",
                 (long long)n, (long long)n - CLIP_SMALLEST, remedy);
    else
        snprintf(sentence, sizeof sentence,
                 "the model brings no tokenizer: of its %lld tokens CLIP's %d are used, the others "
                 "have no words; if it was trained with another, %s",
                 (long long)n, CLIP_VOCABULARY, remedy);
    warn(model, sentence);
}

/* CLIP's own tokenizer, for a text encoder of n tokens that came without one. */
static struct tokenizer *open_built_in(const struct dk_model *model,
                                       const struct dk_model_options *options, int64_t n,
                                       bool first, struct dk_error *err)
{
    struct tokenizer *tokenizer = NULL;
    char *table = find_clip_table(options->data_dir);
    if (n < CLIP_SMALLEST)
        dk_fail(err, DK_ERROR_MODEL,
                "%s: the model brings no tokenizer and has %lld tokens, fewer than the %d any "
                "beginning of CLIP's has; give its own with --tokenizer DIR",
                model->path, (long long)n, CLIP_SMALLEST);
    else if (!table)
        dk_fail(err, DK_ERROR_MODEL,
                "%s: the model brings no tokenizer and the built-in table " CLIP_TABLE
                " is not found; give --tokenizer or set DARKROOM_MODELS",
                model->path);
    else
        tokenizer = tokenizer_open_table(table, n < CLIP_VOCABULARY ? n : CLIP_VOCABULARY, err);
    free(table);
    if (tokenizer && n != CLIP_VOCABULARY) warn_of_vocabulary(model, n, first);
    return tokenizer;
}

/* Both text encoders' configs are needed before the U-Net's: a single file's U-Net is guessed from
 * the pooled width. */
static bool open_text_encoder(struct dk_model *model, const char *name, const char *tokenizer_name,
                              const struct dk_model_options *options, bool optional,
                              struct dk_error *err)
{
    struct source source = {0};
    struct config_clip config = {0};
    struct text_encoder *e = &model->text.items[model->text.n_items];
    bool first = model->text.n_items == 0;
    bool good =
        find_part(model, name, first ? options->text_encoder : NULL, optional, &source, err);
    if (good && source.weights) {
        good = source.config    ? config_read_clip(source.config, &config, err)
               : source.numbers ? config_parse_clip(source.numbers, model->path, &config, err)
                                : config_guess_clip(source.weights, &config, err);
        e->clip = good ? clip_load(&config.net, source.weights, err) : NULL;
        good = e->clip != NULL;
        if (good) model->text.n_items++;
        char *folder = path_join(model->path, tokenizer_name);
        if (good && ((first && options->tokenizer) || (folder && path_exists(folder)))) {
            e->tokenizer = tokenizer_open_folder(
                first && options->tokenizer ? options->tokenizer : folder, err);
        } else if (good &&
                   tokenizer_in_file(model->checkpoint, tokenizer_name, "vocab.json").text) {
            const struct weights *file = model->checkpoint;
            e->tokenizer = tokenizer_open_memory(
                model->path, tokenizer_in_file(file, tokenizer_name, "vocab.json"),
                tokenizer_in_file(file, tokenizer_name, "merges.txt"),
                tokenizer_in_file(file, tokenizer_name, "tokenizer_config.json"),
                tokenizer_in_file(file, tokenizer_name, "special_tokens_map.json"), err);
        } else if (good) {
            e->tokenizer = open_built_in(model, options, clip_vocabulary(e->clip), first, err);
        }
        free(folder);
        good = good && e->tokenizer;
        /* OpenCLIP (exact gelu) was trained with padding 0, OpenAI's CLIP with the end token */
        if (good) e->pad_id = tokenizer_pad(e->tokenizer);
        if (good && e->pad_id < 0)
            e->pad_id = config.net.act == ACT_GELU ? 0 : tokenizer_end(e->tokenizer);
        if (good && tokenizer_vocabulary(e->tokenizer) > clip_vocabulary(e->clip))
            good =
                dk_fail(err, DK_ERROR_MODEL,
                        "%s: the tokenizer has %lld tokens, the text encoder knows %lld; they do "
                        "not belong together",
                        source.folder, (long long)tokenizer_vocabulary(e->tokenizer),
                        (long long)clip_vocabulary(e->clip));
    }
    source_free(&source);
    return good;
}

static bool open_unet(struct dk_model *model, const struct dk_model_options *options,
                      struct config_unet *config, struct dk_error *err)
{
    struct source source = {0};
    bool good = find_part(model, "unet", options->unet, false, &source, err);
    if (good)
        good = source.config    ? config_read_unet(source.config, config, err)
               : source.numbers ? config_parse_unet(source.numbers, model->path, config, err)
                                : config_guess_unet(source.weights, text_pooled_width(&model->text),
                                                    config, err);
    if (good) model->unet = unet_load(&config->net, source.weights, err);
    source_free(&source);
    return good && model->unet;
}

static bool open_vae(struct dk_model *model, const struct dk_model_options *options,
                     struct config_vae *config, struct dk_error *err)
{
    struct source source = {0};
    bool good = find_part(model, "vae", options->vae, false, &source, err);
    if (good)
        good = source.config ? config_read_vae(source.config, config, err)
               : source.numbers
                   ? config_parse_vae(source.numbers, model->path, config, err)
                   : config_guess_vae(source.weights, model->text.n_items > 1, config, err);
    if (good) model->vae = vae_load(&config->net, source.weights, err);
    source_free(&source);
    return good && model->vae;
}

/* The weights of a U-Net given beside the model. */
static const struct weights *unet_given(const struct dk_model *model,
                                        const struct dk_model_options *options)
{
    for (size_t i = 0; options->unet && i < model->n_parts; i++)
        if (strcmp(model->part_names[i], "unet") == 0) return model->parts[i];
    return NULL;
}

static bool open_scheduler(struct dk_model *model, const struct dk_model_options *options,
                           struct dk_error *err)
{
    scheduler_config_default(&model->scheduler);
    char *folder = path_join(model->path, "scheduler");
    char *config = folder ? path_join(folder, "scheduler_config.json") : NULL;
    bool good = true, there = config && path_exists(config);
    if (there) good = scheduler_config_read(config, &model->scheduler, err);
    free(folder);
    free(config);
    const json_t *numbers = config_beside_part(model->beside, "scheduler");
    char *text = numbers ? json_dumps(numbers, JSON_COMPACT) : NULL;
    if (good && text)
        good = scheduler_config_parse(model->path, text, strlen(text), &model->scheduler, err);
    free(text);
    return good && prediction_find(model, options->prediction, there || numbers,
                                   unet_given(model, options), err);
}

/* Widths that two parts must agree on. */
static bool check_fit(const struct dk_model *model, struct dk_error *err)
{
    int64_t context = unet_context_width(model->unet), text = text_width(&model->text);
    if (context != text)
        return dk_fail(err, DK_ERROR_MODEL,
                       "%s: the U-Net wants a context of width %lld, the text encoders give %lld; "
                       "these parts do not belong together",
                       model->path, (long long)context, (long long)text);
    int64_t pooled = unet_pooled_width(model->unet);
    if (pooled > 0 && pooled != text_pooled_width(&model->text))
        return dk_fail(err, DK_ERROR_MODEL,
                       "%s: the U-Net wants pooled text of width %lld, the text encoders give "
                       "%lld; these parts do not belong together",
                       model->path, (long long)pooled, (long long)text_pooled_width(&model->text));
    int64_t latent = vae_latent_channels(model->vae);
    if (unet_out_channels(model->unet) != latent || unet_in_channels(model->unet) < latent)
        return dk_fail(err, DK_ERROR_MODEL,
                       "%s: the U-Net goes from %lld to %lld channels, the VAE has %lld; these "
                       "parts do not belong together",
                       model->path, (long long)unet_in_channels(model->unet),
                       (long long)unet_out_channels(model->unet), (long long)latent);
    if (model->text.n_items > 1 &&
        clip_tokens(model->text.items[1].clip) != text_tokens(&model->text))
        return dk_fail(err, DK_ERROR_MODEL,
                       "%s: the two text encoders have contexts of %lld and %lld tokens; these "
                       "parts do not belong together",
                       model->path, (long long)text_tokens(&model->text),
                       (long long)clip_tokens(model->text.items[1].clip));
    return true;
}

/* A number of an object if it is there; false (with an error) if it is something else or out of
 * range. */
static bool read_number(const json_t *object, const char *path, const char *key, double low,
                        double high, double *value, struct dk_error *err)
{
    const json_t *v = json_object_get(object, key);
    if (!v) return true;
    double x = json_number_value(v);
    if (!json_is_number(v) || !(x >= low && x <= high))
        return dk_fail(err, DK_ERROR_FORMAT, "%s: \"%s\" must be a number from %g to %g", path, key,
                       low, high);
    *value = x;
    return true;
}

/* A file of the folder, or what dk_convert kept of it in a single file. NULL: there is none. */
static json_t *read_own(const struct dk_model *model, const char *path, const char *name,
                        bool *good, struct dk_error *err)
{
    const char *text = model->checkpoint ? weights_metadata(model->checkpoint, name) : NULL;
    if (!*good || (model->checkpoint ? !text : !path_exists(path))) return NULL;
    json_t *object = text ? json_object_parse(text, strlen(text), 16, name, err)
                          : json_object_read(path, 1 << 20, 16, err);
    *good = object != NULL;
    return object;
}

/*
 * Two files of a folder say how it likes to be used: model_index.json (diffusers), and
 * darkroom.json, ours, with "steps", "guidance" and "scheduler" to start from.
 */
static bool read_preferences(struct dk_model *model, struct dk_error *err)
{
    char *index = path_join(model->path, "model_index.json"),
         *ours = path_join(model->path, "darkroom.json");
    bool good = index && ours;
    json_t *object = read_own(model, index, "model_index.json", &good, err);
    if (object && json_is_boolean(json_object_get(object, "force_zeros_for_empty_prompt")))
        model->zero_negative =
            json_is_true(json_object_get(object, "force_zeros_for_empty_prompt"));
    json_decref(object);
    object = read_own(model, ours, "darkroom.json", &good, err);
    double steps = model->n_steps;
    good = good && read_number(object, ours, "steps", 1, 1000, &steps, err) &&
           read_number(object, ours, "guidance", 0, 100, &model->guidance, err);
    model->n_steps = (int)steps;
    const char *scheduler = json_string_value(json_object_get(object, "scheduler"));
    if (good && scheduler) {
        model->default_scheduler = model_own_string(model, scheduler, err);
        good = model->default_scheduler != NULL;
    }
    json_decref(object);
    free(index);
    free(ours);
    return good;
}

/* The Turbo models' scheduler. Models trained for zero terminal SNR have that spacing too, but
 * predict v. */
static bool is_few_step(const struct scheduler_config *c)
{
    return strncmp(c->class_name, "Euler", 5) == 0 && c->spacing == DK_TRAILING &&
           c->prediction == DK_PREDICTS_EPS && !c->zero_terminal_snr;
}

static void set_numbers(struct dk_model *model, const struct config_unet *unet,
                        const struct config_vae *vae)
{
    struct family_traits traits = {
        .context_width = unet_context_width(model->unet),
        .pooled_width = unet_pooled_width(model->unet),
        .guidance_width = unet_guidance_width(model->unet),
        .vocabulary = clip_vocabulary(model->text.items[0].clip),
        .one_step = is_few_step(&model->scheduler),
    };
    model->family = family_find(&traits);
    model->latent_channels = vae_latent_channels(model->vae);
    model->scaling_factor = vae->scaling_factor;
    model->shift = vae->shift_factor;
    int f = vae_factor(model->vae);
    int side = model->family->native_px / f * f;
    model->native_width_px = unet->sample_width > 0 ? unet->sample_width * f : side;
    model->native_height_px = unet->sample_height > 0 ? unet->sample_height * f : side;
    model->n_steps = model->family->n_steps;
    model->guidance = model->family->guidance;
    /* the SDXL pipeline's default, also for networks of its kind that no row of the table knows */
    model->zero_negative = model->family->zero_negative || unet_pooled_width(model->unet) > 0;
}

bool model_choose_device(const struct dk_model_options *options, struct kernels **kernels,
                         int *n_threads, struct dk_error *err)
{
    if (options->n_threads < 0 || options->n_threads > MAX_THREADS)
        return dk_fail(err, DK_ERROR_ARGUMENT, "threads: %d is not possible; give 1 to %d",
                       options->n_threads, MAX_THREADS);
    *n_threads = options->n_threads > 0 ? options->n_threads : system_cores();
    *kernels = malloc(sizeof **kernels);
    if (!*kernels) return dk_fail(err, DK_ERROR_MEMORY, "kernels: out of memory");
    kernels_init(*kernels, options->scalar_kernels ? KERNELS_SCALAR : 0);
    return true;
}

static bool open_device(struct dk_model *model, const struct dk_model_options *options,
                        struct dk_error *err)
{
    if (!model_choose_device(options, &model->kernels, &model->n_threads, err)) return false;
    size_t limit = options->max_memory_bytes, cache = MEMORY_CACHE_BYTES;
    if (limit && limit / MEMORY_CACHE_SHARE < cache) cache = limit / MEMORY_CACHE_SHARE;
    model->limit_bytes = limit;
    model->max_memory_bytes = limit ? limit - cache : 0;
    model->cache = pack_cache_open(cache, err);
    return model->cache && arena_open(&model->arena, model->max_memory_bytes, err);
}

/* Whether a part was given, or is in the folder or the file. */
static bool has_part(const struct dk_model *model, const char *name, const char *given)
{
    if (given) return true;
    if (model->checkpoint) return weights_part(model->checkpoint, name) != NULL;
    char *path = path_join(model->path, name);
    bool there = !path || path_is_folder(path);
    free(path);
    return there;
}

/* A folder that is a link to nothing would else pass for one that is not there. */
static bool check_links(const struct dk_model *model, const struct dk_model_options *options,
                        struct dk_error *err)
{
    const struct {
        const char *name, *given;
    } folders[] = {{"unet", options->unet},
                   {"vae", options->vae},
                   {"text_encoder", options->text_encoder},
                   {"tokenizer", options->tokenizer},
                   {"text_encoder_2", NULL},
                   {"tokenizer_2", NULL},
                   {"scheduler", NULL}};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char *path = folders[i].given ? NULL : path_join(model->path, folders[i].name);
        bool ok = !path || map_check_link(path, err);
        free(path);
        if (!ok) return false;
    }
    return true;
}

/* All that a model lacks, in one sentence. */
static bool check_parts(const struct dk_model *model, const struct dk_model_options *options,
                        struct dk_error *err)
{
    const struct {
        const char *name, *option, *given;
    } parts[] = {{"text_encoder", "--text-encoder", options->text_encoder},
                 {"unet", "--unet", options->unet},
                 {"vae", "--vae", options->vae}};
    char lacking[64] = "", remedy[64] = "";
    size_t n = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (has_part(model, parts[i].name, parts[i].given)) continue;
        const char *comma = n++ ? ", " : "", *no = n > 1 ? "no " : "";
        size_t a = strlen(lacking), b = strlen(remedy);
        snprintf(lacking + a, sizeof lacking - a, "%s%s%s", comma, no, parts[i].name);
        snprintf(remedy + b, sizeof remedy - b, "%s%s", comma, parts[i].option);
    }
    if (n == 0) return true;
    return dk_fail(err, DK_ERROR_MODEL, "%s: the model has no %s; add %s, or give %s with %s",
                   model->path, lacking, n > 1 ? "them" : "it", n > 1 ? "them" : "one", remedy);
}

static bool open_parts(struct dk_model *model, const struct dk_model_options *options,
                       struct dk_error *err)
{
    struct config_unet unet = {0};
    struct config_vae vae = {0};
    if (!check_parts(model, options, err)) return false;
    char *second = path_join(model->path, "text_encoder_2");
    bool two = model->checkpoint ? weights_part(model->checkpoint, "text_encoder_2") != NULL
                                 : second && path_is_folder(second);
    free(second);
    if (!open_text_encoder(model, "text_encoder", "tokenizer", options, false, err)) return false;
    if (two && !open_text_encoder(model, "text_encoder_2", "tokenizer_2", options, true, err))
        return false;
    if (!open_unet(model, options, &unet, err) || !open_vae(model, options, &vae, err) ||
        !open_scheduler(model, options, err) || !check_fit(model, err))
        return false;
    set_numbers(model, &unet, &vae);
    if (!decoder_open(model, options, err)) return false;
    return read_preferences(model, err);
}

/* Files that hold weights, but no network of ours. */
static bool check_kind(const struct dk_model *model, struct dk_error *err)
{
    enum weights_kind kind = weights_kind(model->checkpoint);
    if (kind == WEIGHTS_CHECKPOINT || kind == WEIGHTS_UNET || kind == WEIGHTS_VAE ||
        kind == WEIGHTS_TEXT_ENCODER)
        return true;
    return dk_fail(err, DK_ERROR_MODEL, "%s: holds %s, expected a Stable Diffusion checkpoint",
                   model->path, weights_kind_name(kind));
}

struct dk_model *dk_model_open(const char *path, const struct dk_model_options *options,
                               struct dk_error *err)
{
    static const struct dk_model_options defaults;
    if (!options) options = &defaults;
    struct dk_model *model = calloc(1, sizeof *model);
    if (model) model->path = strdup(path);
    bool good = model && model->path;
    if (!good) dk_fail(err, DK_ERROR_MEMORY, "%s: out of memory", path);
    good = good && check_links(model, options, err);
    if (good) {
        model->warn = options->warn;
        model->warn_user = options->user;
        char *unet = path_join(path, "unet");
        bool folder = unet && path_is_folder(unet);
        free(unet);
        if (!folder && !(path_is_folder(path) && options->unet))
            model->checkpoint = weights_open(path, err);
        good = folder || (path_is_folder(path) && options->unet) || model->checkpoint;
        if (model->checkpoint)
            good = check_kind(model, err) && config_read_beside(path, &model->beside, err);
        if (good && model->checkpoint && !model->beside)
            good = config_read_metadata(model->checkpoint, &model->beside, err);
    }
    good = good && open_device(model, options, err) && open_parts(model, options, err);
    if (good) return model;
    if (model) dk_model_close(model);
    return NULL;
}

void dk_model_close(struct dk_model *model)
{
    if (!model) return;
    text_encoders_close(&model->text);
    unet_free(model->unet);
    vae_free(model->vae);
    tiny_free(model->tiny);
    for (size_t i = 0; i < model->n_parts; i++)
        if (!model->checkpoint ||
            model->parts[i] != weights_part(model->checkpoint, model->part_names[i]))
            weights_close(model->parts[i]);
    weights_close(model->checkpoint);
    json_decref(model->beside);
    pack_cache_close(model->cache);
    arena_close(&model->arena);
    free(model->kernels);
    free(model->preview_map);
    for (size_t i = 0; i < model->n_strings; i++) free(model->strings[i]);
    free(model->strings);
    free(model->path);
    free(model);
}

struct ops model_ops(struct dk_model *model, const volatile int *cancel, struct dk_error *err)
{
    return (struct ops){.kernels = model->kernels,
                        .arena = &model->arena,
                        .err = err,
                        .cancel = cancel,
                        .cache = model->cache,
                        .n_threads = model->n_threads,
                        .stream = model->stream_weights};
}

bool model_check_weights(struct dk_model *model, struct dk_error *err)
{
    if (model->weights_checked) return true;
    struct ops o = model_ops(model, NULL, err);
    for (size_t part = 0; part < model->n_parts; part++)
        for (size_t i = 0; i < weights_count(model->parts[part]); i++) {
            const struct weight *w = weights_at(model->parts[part], i);
            if (!op_weight_finite(&o, w))
                return dk_fail(err, DK_ERROR_NUMERIC,
                               "%s: tensor %s holds NaN or infinity; the file is damaged or was "
                               "saved from a broken model",
                               weights_path_of(model->parts[part], w), w->name);
        }
    model_release(model, "text_encoder");
    model_release(model, "unet");
    model_release(model, "vae");
    model->weights_checked = true;
    return true;
}

#define RELEASE_BYTES                                                                              \
    ((size_t)64 << 20) /* below this, reading the pages again costs more than it saves */

void model_release(const struct dk_model *model, const char *part)
{
    for (size_t i = 0; i < model->n_parts; i++) {
        if (strncmp(model->part_names[i], part, strlen(part)) != 0) continue;
        if (weights_total_bytes(model->parts[i]) >= RELEASE_BYTES) weights_release(model->parts[i]);
    }
}

bool dk_tokenize(struct dk_model *model, const char *text, size_t text_bytes, int32_t **ids,
                 size_t *n_ids, struct dk_error *err)
{
    const struct tokenizer *tokenizer = model->text.items[0].tokenizer;
    int32_t *inner = NULL;
    size_t n = 0, n_replaced = 0;
    *ids = NULL;
    if (!tokenizer_encode(tokenizer, text, text_bytes, &inner, &n, &n_replaced, err)) return false;
    if (n_replaced > 0)
        warn(model, "the text is not valid UTF-8; each bad sequence was read as U+FFFD");
    int32_t *all = malloc((n + 2) * sizeof *all);
    if (!all) {
        free(inner);
        return dk_fail(err, DK_ERROR_MEMORY, "text: out of memory for %zu tokens", n);
    }
    all[0] = tokenizer_start(tokenizer);
    if (n > 0) memcpy(all + 1, inner, n * sizeof *all);
    all[n + 1] = tokenizer_end(tokenizer);
    free(inner);
    *ids = all;
    *n_ids = n + 2;
    return true;
}

void dk_free(void *pointer)
{
    free(pointer);
}
