/* clip_score.c - how well a picture fits a text, by a CLIP with both towers. */
/* SPDX-License-Identifier: MIT */
#include "files/image.h"
#include "files/json.h"
#include "nets/vision.h"
#include "pipeline/config.h"
#include "pipeline/fields.h"
#include "pipeline/find.h"
#include "pipeline/model.h"
#include "pipeline/prompt.h"
#include "pipeline/resize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/*
 * picture -> shorter side to image_px, bicubic -> middle square -> (x / 255 - mean) / std
 *         -> vision tower -> class token, normed, projected ─┐
 * text    -> ids -> text tower -> end token, normed, projected ─┴> 100 max(cosine, 0)
 */

#define MAX_JSON     (1u << 20)
#define MAX_DEPTH    16
#define CACHED_TEXTS 64
#define RESAMPLE_PIL 3 /* what Pillow numbers bicubic */
#define MAX_SIDE_PX  4096

/* What OpenAI's CLIP was trained with (preprocessor_config.json of every released one). */
static const double usual_mean[3] = {0.48145466, 0.4578275, 0.40821073};
static const double usual_std[3] = {0.26862954, 0.26130258, 0.27577711};

struct known_text {
    char *text; /* NULL: a free place */
    bool syntax;
    float *features; /* [projection], of unit length */
};

struct dk_clip {
    struct weights *weights;
    struct clip *text;
    struct vision *vision;
    struct tokenizer *tokenizer;
    double mean[3], std[3];
    struct kernels *kernels;
    struct arena arena;
    int n_threads;
    struct known_text known[CACHED_TEXTS]; /* in a ring */
    size_t next;
};

/* ---- what the files say -------------------------------------------------------------------- */

/* FOLDER/NAME of a model's folder, or of the folder that a model's file lies in. Free it. */
static char *beside(const char *path, const char *name)
{
    if (path_is_folder(path)) return path_join(path, name);
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + (slash == path)) : strdup(".");
    char *full = folder ? path_join(folder, name) : NULL;
    free(folder);
    return full;
}

static bool read_vision_config(const json_t *object, const char *subject, struct vision_config *out,
                               struct dk_error *err)
{
    struct fields f = {.subject = subject, .object = object, .err = err};
    double eps = 1e-5;
    fields_only(&f, "hidden_act", "\"quick_gelu\"|\"gelu\"");
    const char *act = fields_word(&f, "hidden_act", 0);
    /* transformers' defaults: ViT-B/32 */
    *out = (struct vision_config){.n_heads = 12, .n_layers = 12, .image_px = 224};
    out->act = act && strcmp(act, "gelu") == 0 ? ACT_GELU : ACT_QUICK_GELU;
    fields_int(&f, "num_attention_heads", 1, 1024, &out->n_heads);
    fields_int(&f, "num_hidden_layers", 1, 1024, &out->n_layers);
    fields_int(&f, "image_size", 1, MAX_SIDE_PX, &out->image_px);
    fields_number(&f, "layer_norm_eps", 1e-12, 1.0, &eps);
    out->norm_eps = (float)eps;
    return fields_ok(&f);
}

/*
 * A file without config.json: heads of 64 channels up to ViT-L (width 1024), 16 heads beyond (1280,
 * 1408 and 1664 of OpenCLIP's H, g and bigG), as in the released ones.
 */
static void guess_vision(const struct weights *weights, enum act act, struct vision_config *out)
{
    const struct weight *w =
        weights_find(weights, "vision_model.embeddings.patch_embedding.weight");
    int64_t width = w && w->rank == 4 ? w->dim[0] : 0;
    int n_heads = width > 1024 && width % 16 == 0 ? 16
                  : width > 0 && width % 64 == 0  ? (int)(width / 64)
                                                  : 1;
    *out = (struct vision_config){.n_heads = n_heads, .act = act, .norm_eps = 1e-5f};
}

/* config.json of a whole CLIP; NULL and no error where there is none, or one of another network. */
static json_t *read_config(const char *path, char **name, struct dk_error *err)
{
    *name = beside(path, "config.json");
    if (!*name || !path_exists(*name)) return NULL;
    json_t *object = json_object_read(*name, MAX_JSON, MAX_DEPTH, err);
    if (!object || json_is_object(json_object_get(object, "vision_config"))) return object;
    json_decref(object);
    return NULL;
}

/* A list of three numbers. */
static bool read_three(const struct fields *f, const char *key, double low, double out[3])
{
    const json_t *list = fields_value(f, key);
    if (!list) return true;
    bool ok = json_is_array(list) && json_array_size(list) == 3;
    for (size_t i = 0; ok && i < 3; i++) {
        const json_t *item = json_array_get(list, i);
        out[i] = json_number_value(item);
        ok = json_is_number(item) && out[i] >= low && out[i] <= 10;
    }
    return ok || fields_fail(f, key, "three numbers");
}

/* "size" and "crop_size": a number, {"shortest_edge": n} or {"height": n, "width": n}. */
static bool check_side(const struct fields *f, const char *key, int side)
{
    static const char *const keys[] = {"shortest_edge", "height", "width"};
    const json_t *value = fields_value(f, key);
    bool same = !value || (json_is_integer(value) && json_integer_value(value) == side);
    if (json_is_object(value)) {
        size_t n_known = 0;
        same = true;
        for (size_t i = 0; i < 3; i++) {
            const json_t *item = json_object_get(value, keys[i]);
            if (!item) continue;
            n_known++;
            same = same && json_is_integer(item) && json_integer_value(item) == side;
        }
        same = same && n_known > 0;
    }
    return same ||
           dk_fail(f->err, DK_ERROR_UNSUPPORTED,
                   "%s: \"%s\" is not the vision tower's %d pixels: pictures are prepared in "
                   "no other way here",
                   f->subject, key, side);
}

static bool read_preprocessor(struct dk_clip *clip, const char *path, struct dk_error *err)
{
    char *name = beside(path, "preprocessor_config.json");
    memcpy(clip->mean, usual_mean, sizeof usual_mean);
    memcpy(clip->std, usual_std, sizeof usual_std);
    bool ok = true;
    if (name && path_exists(name)) {
        json_t *object = json_object_read(name, MAX_JSON, MAX_DEPTH, err);
        struct fields f = {.subject = name, .object = object, .err = err};
        int side = vision_image_px(clip->vision), resample = RESAMPLE_PIL;
        ok = object != NULL && read_three(&f, "image_mean", -10, clip->mean) &&
             read_three(&f, "image_std", 1e-6, clip->std) && check_side(&f, "size", side) &&
             check_side(&f, "crop_size", side);
        if (ok) fields_int(&f, "resample", RESAMPLE_PIL, RESAMPLE_PIL, &resample);
        ok = ok && fields_ok(&f);
        json_decref(object);
    }
    free(name);
    return ok;
}

/* ---- opening ------------------------------------------------------------------------------- */

static bool open_networks(struct dk_clip *clip, const char *path, struct dk_error *err)
{
    struct config_clip text;
    struct vision_config vision;
    char *name = NULL;
    json_t *config = read_config(path, &name, err);
    bool ok = err->code == DK_OK;
    if (ok && config) {
        ok = config_parse_clip(config, name, &text, err) &&
             read_vision_config(json_object_get(config, "vision_config"), name, &vision, err);
    } else if (ok) {
        ok = config_guess_clip(clip->weights, &text, err);
        if (ok) guess_vision(clip->weights, text.net.act, &vision);
    }
    json_decref(config);
    free(name);
    if (!ok) return false;
    text.net.projected = true;
    clip->vision = vision_load(&vision, clip->weights, err);
    clip->text = clip->vision ? clip_load(&text.net, clip->weights, err) : NULL;
    if (!clip->text) return false;
    if (clip_projection(clip->text) == vision_projection(clip->vision)) return true;
    return dk_fail(
        err, DK_ERROR_MODEL,
        "%s: texts become %lld numbers, pictures %lld; the towers do not belong together", path,
        (long long)clip_projection(clip->text), (long long)vision_projection(clip->vision));
}

static bool open_tokenizer(struct dk_clip *clip, const char *path,
                           const struct dk_model_options *options, struct dk_error *err)
{
    char *vocabulary = beside(path, "vocab.json"), *folder = beside(path, ".");
    if (vocabulary && folder && path_exists(vocabulary)) {
        clip->tokenizer = tokenizer_open_folder(folder, err);
    } else {
        char *table = find_clip_table(options->data_dir);
        if (table)
            clip->tokenizer = tokenizer_open_table(table, clip_vocabulary(clip->text), err);
        else
            dk_fail(err, DK_ERROR_MODEL,
                    "%s: there is no vocab.json beside it and the built-in table " CLIP_TABLE
                    " is not found; set DARKROOM_MODELS",
                    path);
        free(table);
    }
    free(vocabulary);
    free(folder);
    if (!clip->tokenizer) return false;
    if (tokenizer_vocabulary(clip->tokenizer) <= clip_vocabulary(clip->text)) return true;
    return dk_fail(
        err, DK_ERROR_MODEL,
        "%s: the tokenizer has %lld tokens, the text tower knows %lld; they do not belong "
        "together",
        path, (long long)tokenizer_vocabulary(clip->tokenizer),
        (long long)clip_vocabulary(clip->text));
}

static bool check_kind(const struct weights *weights, const char *path, struct dk_error *err)
{
    if (weights_kind(weights) == WEIGHTS_TEXT_ENCODER) return true;
    return dk_fail(err, DK_ERROR_MODEL,
                   "%s: holds %s, expected a CLIP with a text and a vision tower, as "
                   "openai/clip-vit-large-patch14",
                   path, weights_kind_name(weights_kind(weights)));
}

struct dk_clip *dk_clip_open(const char *path, const struct dk_model_options *options,
                             struct dk_error *err)
{
    static const struct dk_model_options defaults;
    struct dk_error own = {.code = DK_OK};
    if (!err) err = &own;
    if (!options) options = &defaults;
    struct dk_clip *clip = calloc(1, sizeof *clip);
    if (!clip) {
        dk_fail(err, DK_ERROR_MEMORY, "%s: out of memory", path);
        return NULL;
    }
    clip->weights = weights_open_clip(path, err);
    if (clip->weights && check_kind(clip->weights, path, err) && open_networks(clip, path, err) &&
        read_preprocessor(clip, path, err) && open_tokenizer(clip, path, options, err) &&
        model_choose_device(options, &clip->kernels, &clip->n_threads, err) &&
        arena_open(&clip->arena, options->max_memory_bytes, err))
        return clip;
    dk_clip_close(clip);
    return NULL;
}

void dk_clip_close(struct dk_clip *clip)
{
    if (!clip) return;
    for (size_t i = 0; i < CACHED_TEXTS; i++) {
        free(clip->known[i].text);
        free(clip->known[i].features);
    }
    vision_free(clip->vision);
    clip_free(clip->text);
    tokenizer_free(clip->tokenizer);
    weights_close(clip->weights);
    if (clip->arena.base) arena_close(&clip->arena);
    free(clip->kernels);
    free(clip);
}

/* ---- features ------------------------------------------------------------------------------ */

/* Scales n values to length 1. */
static bool to_unit(const struct dk_clip *clip, float *x, int64_t n, const char *what,
                    const char *quoted, struct dk_error *err)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    double length = sqrt(sum);
    if (!(length > 0) || !isfinite(length))
        return dk_fail(err, DK_ERROR_NUMERIC,
                       "%s: the CLIP's features of %s%.80s%s have length %g, expected a positive "
                       "number; the file is damaged or of a broken model",
                       weights_path(clip->weights), what, quoted, *quoted ? "\"" : "", length);
    for (int64_t i = 0; i < n; i++) x[i] = (float)((double)x[i] / length);
    return true;
}

/*
 * start, as many tokens of the text as there is room for, end: what is beyond is cut off, as the
 * reference does it, and not moved into a second chunk. ids [tokens].
 */
static void cut_ids(const struct prompt *prompt, int64_t tokens, int32_t *ids)
{
    int64_t n = 1;
    ids[0] = prompt->start;
    for (size_t chunk = 0; chunk < prompt->n_chunks; chunk++)
        for (int64_t i = 1; i < tokens && n < tokens - 1; i++) {
            int32_t id = prompt->ids[(int64_t)chunk * tokens + i];
            if (id == prompt->end) break;
            ids[n++] = id;
        }
    /* what pads does not count: the end token sees only what is before it */
    while (n < tokens) ids[n++] = prompt->end;
}

static bool encode_text(struct dk_clip *clip, struct ops *o, const char *text, bool syntax,
                        float *features)
{
    struct prompt prompt = {0};
    struct clip_output out = {0};
    int64_t n = clip_projection(clip->text), tokens = clip_tokens(clip->text);
    int32_t *ids = malloc((size_t)tokens * sizeof *ids);
    bool ok =
        (ids || dk_fail(o->err, DK_ERROR_MEMORY, "CLIP: out of memory")) &&
        prompt_chunks(clip->tokenizer, text, strlen(text), syntax, tokens, -1, &prompt, o->err);
    if (ok) {
        cut_ids(&prompt, tokens, ids);
        ok = clip_forward(clip->text, o, ids, 1, tokens, 0, true, true, &out);
    }
    if (ok) memcpy(features, out.pooled.data, (size_t)n * sizeof *features);
    prompt_free(&prompt);
    free(ids);
    return ok && to_unit(clip, features, n, "the text \"", text, o->err);
}

/* The features of a text, kept for the next picture; NULL on failure. */
static const float *text_features(struct dk_clip *clip, struct ops *o, const char *text,
                                  bool syntax)
{
    for (size_t i = 0; i < CACHED_TEXTS; i++) {
        const struct known_text *k = &clip->known[i];
        if (k->text && k->syntax == syntax && strcmp(k->text, text) == 0) return k->features;
    }
    struct known_text *k = &clip->known[clip->next];
    free(k->text);
    free(k->features);
    *k = (struct known_text){strdup(text), syntax,
                             malloc((size_t)clip_projection(clip->text) * sizeof(float))};
    bool ok = (k->text && k->features) || dk_fail(o->err, DK_ERROR_MEMORY, "CLIP: out of memory");
    ok = ok && encode_text(clip, o, text, syntax, k->features);
    if (ok) {
        clip->next = (clip->next + 1) % CACHED_TEXTS;
        return k->features;
    }
    free(k->text);
    free(k->features);
    *k = (struct known_text){0};
    return NULL;
}

/* The middle square of the picture with its shorter side at side_px, as CLIPImageProcessor has it.
 */
static bool square(const struct dk_image *image, int side_px, struct dk_image *out,
                   struct dk_error *err)
{
    int64_t w = image->width_px, h = image->height_px;
    struct dk_image small = {0};
    if (w < 1 || h < 1) return dk_fail(err, DK_ERROR_ARGUMENT, "CLIP: the picture is empty");
    int64_t width = w <= h ? side_px : side_px * w / h, height = w <= h ? side_px * h / w : side_px;
    if (width > IMAGE_MAX_SIDE_PX || height > IMAGE_MAX_SIDE_PX)
        return dk_fail(err, DK_ERROR_ARGUMENT,
                       "CLIP: a picture of %lldx%lld pixels is too long for a square", (long long)w,
                       (long long)h);
    bool ok = resize_bicubic(image, (int)width, (int)height, &small, err) &&
              resize_crop(&small, side_px, side_px, out, err);
    dk_image_free(&small);
    return ok;
}

static bool encode_image(struct dk_clip *clip, struct ops *o, const struct dk_image *image,
                         float *features)
{
    int side = vision_image_px(clip->vision);
    struct dk_image middle = {0};
    if (!square(image, side, &middle, o->err)) return false;
    struct tensor pixels = tensor_new4(o->arena, 1, side, side, 3, o->err);
    int64_t n = vision_projection(clip->vision);
    for (int64_t i = 0; i < tensor_count(pixels); i++)
        pixels.data[i] = (float)((middle.rgb[i] / 255.0 - clip->mean[i % 3]) / clip->std[i % 3]);
    dk_image_free(&middle);
    struct tensor y = pixels.rank ? vision_forward(clip->vision, o, pixels) : (struct tensor){0};
    if (!y.rank || !ops_ok(o)) return false;
    memcpy(features, y.data, (size_t)n * sizeof *features);
    return to_unit(clip, features, n, "the picture", "", o->err);
}

bool dk_clip_score(struct dk_clip *clip, const struct dk_image *image, const char *text,
                   bool prompt_syntax, const volatile int *cancel, double *score,
                   struct dk_error *err)
{
    struct dk_error own = {.code = DK_OK};
    struct ops o = {.kernels = clip->kernels,
                    .arena = &clip->arena,
                    .err = err ? err : &own,
                    .cancel = cancel,
                    .n_threads = clip->n_threads};
    int64_t n = vision_projection(clip->vision);
    size_t mark = arena_mark(o.arena);
    float *picture = malloc((size_t)n * sizeof *picture);
    bool ok = picture || dk_fail(o.err, DK_ERROR_MEMORY, "CLIP: out of memory");
    const float *words = ok ? text_features(clip, &o, text, prompt_syntax) : NULL;
    ok = words && encode_image(clip, &o, image, picture);
    double cosine = 0;
    for (int64_t i = 0; ok && i < n; i++) cosine += (double)words[i] * (double)picture[i];
    if (ok) *score = 100 * fmax(cosine, 0);
    arena_reset(o.arena, mark);
    free(picture);
    return ok;
}
