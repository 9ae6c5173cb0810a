/* options.c - one table of options; everything that takes or shows one is derived from it. */
/* SPDX-License-Identifier: MIT */
#include "options.h"

#include "say.h"
#include "text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table ----------------------------------------------------------------------------- */

#define AT(field)  offsetof(struct request, field)
#define PICTURES   (COMMAND_RENDER | COMMAND_BATCH)
#define MAKING     (PICTURES | COMMAND_COMPARE)
#define WITH_PARTS (MAKING | COMMAND_BENCH | COMMAND_INFO)
#define WITH_MODEL (WITH_PARTS | COMMAND_SHOW | COMMAND_TOKENIZE)
#define SETTING    (MAKING | COMMAND_JOB)
#define PLANNED    (SETTING | COMMAND_SHOW)
#define BATCH_JOB  (COMMAND_BATCH | COMMAND_JOB)

/* clang-format off */
static const struct option table[] = {
    {"prompt", 'p', NULL, OPTION_TEXT, GROUP_PICTURE, COMMAND_RENDER | COMMAND_JOB, USE_RECORDED,
     AT(settings.prompt), 0, 0, "TEXT", NULL, "what to show; the same as the words without an option"},
    {"negative", 'n', "negative-prompt", OPTION_TEXT, GROUP_PICTURE, SETTING, USE_RECORDED,
     AT(settings.negative), 0, 0, "TEXT", NULL, "what to keep away from"},
    {"size", 0, NULL, OPTION_SIZE, GROUP_PICTURE, SETTING | COMMAND_BENCH | COMMAND_INFO, USE_RECORDED,
     AT(settings.width_px), 1, 65536, "WxH", NULL, "width and height in pixels (the model's own)"},
    {"width", 0, NULL, OPTION_INTEGER, GROUP_PICTURE, PICTURES | COMMAND_JOB, USE_NONE,
     AT(settings.width_px), 1, 65536, "N", NULL, "width alone"},
    {"height", 0, NULL, OPTION_INTEGER, GROUP_PICTURE, PICTURES | COMMAND_JOB, USE_NONE,
     AT(settings.height_px), 1, 65536, "N", NULL, "height alone"},
    {"seed", 0, NULL, OPTION_SEED, GROUP_PICTURE, SETTING, USE_RECORDED,
     AT(settings.seed), 0, 0, "N|random", NULL, "where the noise starts; random (also -1) draws one (random)"},
    {"count", 0, NULL, OPTION_INTEGER, GROUP_PICTURE, PICTURES | COMMAND_JOB, USE_NONE,
     AT(count), 1, 1000000, "N", NULL, "pictures to make; picture k has seed + k (1)"},
    {"from", 0, NULL, OPTION_PATH, GROUP_PICTURE, COMMAND_RENDER, USE_NONE,
     AT(from), 0, 0, "PNG", NULL, "take all settings from a picture; other options win over it"},

    {"seeds", 0, NULL, OPTION_TEXT, GROUP_VARIATION, BATCH_JOB | COMMAND_COMPARE, USE_NONE,
     AT(batch.seeds), 0, 0, "LIST", NULL, "a picture for each seed: 1,2,3 or 1..8"},
    {"matrix", 0, NULL, OPTION_LINES, GROUP_VARIATION, BATCH_JOB, USE_NONE,
     AT(batch.matrix), 0, 0, "OPTION=A,B", NULL, "a picture for each value; may be repeated (;  separates where values have commas)"},
    {"file", 'f', NULL, OPTION_PATH, GROUP_VARIATION, COMMAND_COMPARE, USE_NONE,
     AT(compare.file), 0, 0, "FILE", NULL, "prompts to compare with, one a line, beside those given as words"},
    {"rows", 0, NULL, OPTION_TEXT, GROUP_VARIATION, COMMAND_COMPARE, USE_NONE,
     AT(compare.rows), 0, 0, "OPTION", NULL, "what changes from row to row of a sheet (scheduler)"},
    {"columns", 0, NULL, OPTION_TEXT, GROUP_VARIATION, COMMAND_COMPARE, USE_NONE,
     AT(compare.columns), 0, 0, "OPTION", NULL, "what changes from column to column (steps)"},
    {"pages", 0, NULL, OPTION_TEXT, GROUP_VARIATION, COMMAND_COMPARE, USE_NONE,
     AT(compare.pages), 0, 0, "OPTION", NULL, "what comes first in the order of pages (all other options with several values)"},
    {"add", 0, NULL, OPTION_FLAG, GROUP_VARIATION, COMMAND_COMPARE, USE_NONE,
     AT(compare.add), 0, 0, NULL, NULL, "add these values to the comparison in the folder"},
    {"reference", 0, NULL, OPTION_TEXT, GROUP_VARIATION, COMMAND_COMPARE, USE_NONE,
     AT(compare.reference), 0, 0, "WHAT", NULL, "what to measure against: NAME-STEPS, OPTION=VALUE,..., a PNG (the converged solution)"},
    {"target", 0, NULL, OPTION_LINES, GROUP_VARIATION, COMMAND_COMPARE, USE_NONE,
     AT(compare.targets), 0, 0, "LIST", NULL, "what is good enough: psnr=30, ssim=0.95, ms-ssim=, rmse= (psnr=30,ssim=0.95)"},
    {"tolerance", 0, NULL, OPTION_NUMBER, GROUP_VARIATION, COMMAND_COMPARE, USE_NONE,
     AT(compare.tolerance), 1e-7, 1, "RMSE", NULL, "largest change of the reference's latent when its steps are doubled (0.002)"},
    {"clip", 0, NULL, OPTION_PATH, GROUP_VARIATION, COMMAND_COMPARE, USE_NONE,
     AT(compare.clip), 0, 0, "PATH", NULL, "a CLIP with text and vision tower, for the CLIP score of every picture"},
    {"iterate-seed", 0, NULL, OPTION_FLAG, GROUP_VARIATION, COMMAND_BATCH, USE_NONE,
     AT(batch.iterate_seed), 0, 0, NULL, NULL, "add 0, 1, 2, ... to the seed from line to line"},
    {"combinatorial", 0, NULL, OPTION_FLAG, GROUP_VARIATION, BATCH_JOB, USE_NONE,
     AT(batch.combinatorial), 0, 0, NULL, NULL, "every combination of {a|b} in place of one chosen by the seed"},
    {"wildcards", 0, NULL, OPTION_PATH, GROUP_VARIATION, COMMAND_BATCH, USE_NONE,
     AT(batch.wildcards), 0, 0, "DIR", NULL, "where animals.txt lies, a line of which stands for __animals__"},
    {"no-dynamic", 0, NULL, OPTION_FLAG, GROUP_VARIATION, BATCH_JOB, USE_NONE,
     AT(batch.no_dynamic), 0, 0, NULL, NULL, "take {a|b} and __animals__ as plain text"},

    {"steps", 0, "num-inference-steps", OPTION_INTEGER, GROUP_SAMPLING, PLANNED | COMMAND_BENCH, USE_RECORDED,
     AT(settings.n_steps), 1, 1000000, "N", NULL, "denoising steps (the model's own)"},
    {"scheduler", 0, "schedulers,sampler,sampler-name", OPTION_TEXT, GROUP_SAMPLING, SETTING | COMMAND_BENCH, USE_RECORDED,
     AT(settings.scheduler), 0, 0, "NAME|./FILE.so", NULL, "see darkroom schedulers (the model's own)"},
    {"spacing", 0, NULL, OPTION_CHOICE, GROUP_SAMPLING, PLANNED, USE_RECORDED,
     AT(settings.spacing), 0, 0, "KIND", "leading|linspace|trailing", "how timesteps are spread"},
    {"sigmas", 0, NULL, OPTION_TEXT, GROUP_SAMPLING, PLANNED, USE_RECORDED,
     AT(settings.sigmas), 0, 0, "NAME|LIST", NULL, "noise schedule: karras, exponential, ... or numbers with commas"},
    {"timesteps", 0, NULL, OPTION_TEXT, GROUP_SAMPLING, PLANNED, USE_RECORDED,
     AT(settings.timesteps), 0, 0, "LIST", NULL, "the timesteps themselves, from noise to picture"},
    {"guidance", 0, "cfg-scale,guidance-scale", OPTION_NUMBER, GROUP_SAMPLING, SETTING | COMMAND_BENCH, USE_RECORDED,
     AT(settings.guidance), 0, 1000, "G", NULL, "guidance scale; 1 or less makes one pass a step (the model's own)"},
    {"guidance-from", 0, NULL, OPTION_NUMBER, GROUP_SAMPLING, SETTING | COMMAND_BENCH, USE_RECORDED,
     AT(settings.guidance_from), 0, 1, "F", NULL, "guide from this fraction of the run on; one pass a step before (0)"},
    {"guidance-to", 0, NULL, OPTION_NUMBER, GROUP_SAMPLING, SETTING | COMMAND_BENCH, USE_RECORDED,
     AT(settings.guidance_to), 0, 1, "F", NULL, "guide up to this fraction of the run; one pass a step after (1)"},
    {"guidance-rescale", 0, NULL, OPTION_NUMBER, GROUP_SAMPLING, SETTING, USE_RECORDED,
     AT(settings.guidance_rescale), 0, 1, "R", NULL, "take back the contrast that guidance adds (0)"},
    {"deepcache", 0, NULL, OPTION_INTEGER, GROUP_SAMPLING, SETTING | COMMAND_BENCH, USE_RECORDED,
     AT(settings.deepcache), 1, 1000, "N", NULL, "compute deep features in every Nth call only: faster, not quite the same picture (1)"},
    {"deepcache-branch", 0, "deepcache-level", OPTION_INTEGER, GROUP_SAMPLING, SETTING | COMMAND_BENCH, USE_RECORDED,
     AT(settings.deepcache_branch), 0, 1000, "B", NULL, "the skip connection above which all is computed with --deepcache (0: the finest)"},
    {"tgate", 0, NULL, OPTION_NUMBER, GROUP_SAMPLING, SETTING | COMMAND_BENCH, USE_RECORDED,
     AT(settings.tgate), 0, 1000000, "STEP|F", NULL, "compute cross-attention in the first steps only, or below 1 in that fraction of the run (0: in all)"},
    {"tome", 0, "tome-ratio,token-merging-ratio", OPTION_NUMBER, GROUP_SAMPLING, SETTING | COMMAND_BENCH, USE_RECORDED,
     AT(settings.tome), 0, 0.75, "R", NULL, "share of tokens to merge in the self-attention of the finest level (0)"},
    {"eta", 0, NULL, OPTION_NUMBER, GROUP_SAMPLING, PLANNED, USE_RECORDED,
     AT(settings.eta), 0, 100, "E", NULL, "share of fresh noise in a step (the scheduler's own)"},
    {"clip-skip", 0, NULL, OPTION_INTEGER, GROUP_SAMPLING, SETTING, USE_RECORDED,
     AT(settings.clip_skip), 0, 1000, "N", NULL, "last layers of the text encoder to leave out (0)"},
    {"rng", 0, NULL, OPTION_CHOICE, GROUP_SAMPLING, SETTING, USE_RECORDED,
     AT(settings.rng), 0, 0, "KIND", "cpu|nv", "noise as torch makes it on the CPU or on CUDA (cpu)"},
    {"no-prompt-syntax", 0, NULL, OPTION_UNFLAG, GROUP_SAMPLING, SETTING, USE_RECORDED,
     AT(settings.prompt_syntax), 0, 0, NULL, NULL, "take (word:1.2), [word] and BREAK as plain text"},
    {"vae-tiling", 0, NULL, OPTION_FLAG, GROUP_SAMPLING, SETTING, USE_RECORDED,
     AT(settings.vae_tiling), 0, 0, NULL, NULL, "decode in blended tiles: less memory, not quite the same picture"},
    {"decoder", 0, NULL, OPTION_CHOICE, GROUP_SAMPLING, SETTING | COMMAND_BENCH | COMMAND_INFO, USE_RECORDED,
     AT(settings.decoder), 0, 0, "KIND", "vae|tiny", "what makes pixels of latents: tiny is rougher and faster (vae; tiny with --taesd)"},

    {"model", 'm', NULL, OPTION_PATH, GROUP_MODEL, WITH_MODEL, USE_RECORDED,
     AT(model), 0, 0, "NAME|PATH", NULL, "a model of darkroom models, a folder or a file"},
    {"unet", 0, NULL, OPTION_PATH, GROUP_MODEL, WITH_PARTS, USE_RECORDED,
     AT(model_options.unet), 0, 0, "PATH", NULL, "another U-Net"},
    {"vae", 0, NULL, OPTION_PATH, GROUP_MODEL, WITH_PARTS, USE_RECORDED,
     AT(model_options.vae), 0, 0, "PATH", NULL, "another VAE"},
    {"taesd", 0, "tae", OPTION_PATH, GROUP_MODEL, WITH_PARTS, USE_RECORDED,
     AT(model_options.taesd), 0, 0, "PATH", NULL, "a tiny decoder for pictures and previews (the model's vae_tiny/, for previews)"},
    {"taesd-preview-only", 0, NULL, OPTION_FLAG, GROUP_MODEL, WITH_PARTS, USE_NONE,
     AT(model_options.taesd_preview_only), 0, 0, NULL, NULL, "use the tiny decoder for previews, the VAE for pictures"},
    {"text-encoder", 0, NULL, OPTION_PATH, GROUP_MODEL, WITH_PARTS, USE_RECORDED,
     AT(model_options.text_encoder), 0, 0, "PATH", NULL, "another text encoder"},
    {"tokenizer", 0, NULL, OPTION_PATH, GROUP_MODEL, WITH_PARTS | COMMAND_TOKENIZE, USE_RECORDED,
     AT(model_options.tokenizer), 0, 0, "DIR", NULL, "a folder with vocab.json and merges.txt"},
    {"prediction", 0, NULL, OPTION_CHOICE, GROUP_MODEL, MAKING | COMMAND_SHOW | COMMAND_INFO, USE_RECORDED,
     AT(model_options.prediction), 0, 0, "KIND", "epsilon|v_prediction|sample", "what the U-Net predicts"},

    {"output", 'o', NULL, OPTION_PATH, GROUP_OUTPUT, MAKING | COMMAND_MERGE, USE_NONE,
     AT(output), 0, 0, "FILE|TEMPLATE|FOLDER", NULL, "file, folder or template as {prompt:40}-{seed}.png (darkroom-{seed}.png)"},
    {"dtype", 0, NULL, OPTION_CHOICE, GROUP_MODEL, COMMAND_CONVERT, USE_NONE,
     AT(dtype), 0, 0, "TYPE", "f32|f16|bf16|q8_0|q4_0|q4_k", "the weights' new type; q types are for GGUF (as they are)"},
    {"force", 0, NULL, OPTION_FLAG, GROUP_OUTPUT, COMMAND_RENDER | COMMAND_SHOW | COMMAND_CONVERT | COMMAND_BENCH, USE_NONE,
     AT(force), 0, 0, NULL, NULL, "replace an existing file"},
    {"name", 0, NULL, OPTION_PATH, GROUP_OUTPUT, BATCH_JOB, USE_NONE,
     AT(batch.name), 0, 0, "TEMPLATE", NULL, "name of a picture in the folder ({index:05}-{seed}-{prompt:40}.png)"},
    {"no-metadata", 0, NULL, OPTION_FLAG, GROUP_OUTPUT, PICTURES, USE_NONE,
     AT(no_metadata), 0, 0, NULL, NULL, "leave the settings out of the PNG"},
    {"no-sheet", 0, NULL, OPTION_FLAG, GROUP_OUTPUT, COMMAND_BATCH, USE_NONE,
     AT(batch.no_sheet), 0, 0, NULL, NULL, "make no contact sheet (index.html, contact.png) at the end"},
    {"preview", 0, NULL, OPTION_FLAG, GROUP_OUTPUT, COMMAND_RENDER, USE_NONE,
     AT(preview), 0, 0, NULL, NULL, "show the picture as it comes: in the terminal, else in NAME.preview.png"},
    {"plot", 0, NULL, OPTION_PATH, GROUP_OUTPUT, COMMAND_SHOW | COMMAND_BENCH, USE_NONE,
     AT(plot), 0, 0, "FILE.png|svg", NULL, "draw a chart: timesteps and sigmas, or the roofline of a bench"},

    {"format", 0, NULL, OPTION_CHOICE, GROUP_RUN, COMMAND_BATCH, USE_NONE,
     AT(batch.format), 0, 0, "KIND", "auto|text|jsonl|csv|tsv", "how the file of prompts is written (auto: seen from it)"},
    {"keep-going", 'k', NULL, OPTION_FLAG, GROUP_RUN, COMMAND_BATCH, USE_NONE,
     AT(batch.keep_going), 0, 0, NULL, NULL, "leave bad lines out, and go on after a picture that fails"},
    {"on-error", 0, NULL, OPTION_CHOICE, GROUP_RUN, COMMAND_BATCH, USE_NONE,
     AT(batch.on_error), 0, 0, "WHAT", "stop|continue", "what to do after a picture that fails (stop)"},
    {"verify", 0, NULL, OPTION_FLAG, GROUP_RUN, COMMAND_BATCH, USE_NONE,
     AT(batch.verify), 0, 0, NULL, NULL, "read every finished picture and make damaged ones again"},
    {"shard", 0, NULL, OPTION_TEXT, GROUP_RUN, COMMAND_BATCH, USE_NONE,
     AT(batch.shard), 0, 0, "I/N|none", NULL, "make only part I of N (taken from Slurm arrays and MPI)"},
    {"group", 0, NULL, OPTION_INTEGER, GROUP_RUN, COMMAND_BATCH, USE_NONE,
     AT(batch.group), 0, 4, "N", NULL, "pictures computed together; 0: where it is faster (0)"},
    {"stale-after", 0, NULL, OPTION_INTEGER, GROUP_RUN, COMMAND_BATCH | COMMAND_MERGE, USE_NONE,
     AT(batch.stale_after_s), 2, 86400, "SECONDS", NULL, "silence after which another machine counts as dead (60)"},
    {"dry-run", 0, NULL, OPTION_FLAG, GROUP_RUN, MAKING, USE_NONE,
     AT(dry_run), 0, 0, NULL, NULL, "check everything, say what would be done, and stop"},
    {"repeats", 0, NULL, OPTION_INTEGER, GROUP_RUN, COMMAND_BENCH, USE_NONE,
     AT(n_repeats), 1, 1000, "N", NULL, "pictures to take the mean of, after the first (3)"},
    {"threads", 0, NULL, OPTION_INTEGER, GROUP_RUN, WITH_MODEL, USE_REPORTED,
     AT(model_options.n_threads), 0, 1024, "N", NULL, "threads; the picture does not depend on it (0: all cores)"},
    {"max-memory", 0, NULL, OPTION_BYTES, GROUP_RUN, WITH_PARTS, USE_NONE,
     AT(model_options.max_memory_bytes), 0, 0, "SIZE", NULL, "limit of work memory, such as 800M or 1.5G; refused if it cannot be kept"},
    {"json", 0, NULL, OPTION_FLAG, GROUP_RUN, COMMAND_ALL, USE_NONE,
     AT(json), 0, 0, NULL, NULL, "machine-readable results on standard output"},
    {"quiet", 'q', NULL, OPTION_FLAG, GROUP_RUN, MAKING | COMMAND_MERGE | COMMAND_SHEET | COMMAND_CONVERT, USE_NONE,
     AT(quiet), 0, 0, NULL, NULL, "no progress and no report; warnings and errors remain"},
    {"help", 'h', NULL, OPTION_FLAG, GROUP_RUN, COMMAND_ALL, USE_NONE,
     AT(help), 0, 0, NULL, NULL, "describe the command"},
};
/* clang-format on */

#define N_OPTIONS (sizeof table / sizeof table[0])
_Static_assert(N_OPTIONS <= MAX_OPTIONS, "request.given is too short");
_Static_assert(offsetof(struct dk_settings, height_px) ==
                   offsetof(struct dk_settings, width_px) + sizeof(int),
               "OPTION_SIZE stores two neighbouring ints");

const struct option *option_at(size_t index)
{
    return index < N_OPTIONS ? &table[index] : NULL;
}

/* Underscores count as dashes, so that A1111's negative_prompt and JSON keys of other programs are
 * understood. */
static bool same_name(const char *name, const char *word, size_t word_bytes)
{
    size_t i = 0;
    for (; i < word_bytes && name[i] && name[i] != ','; i++)
        if (name[i] != (word[i] == '_' ? '-' : word[i])) return false;
    return i == word_bytes && (!name[i] || name[i] == ',');
}

const struct option *option_find(const char *name, size_t name_bytes)
{
    for (size_t i = 0; i < N_OPTIONS && name_bytes > 0; i++) {
        if (same_name(table[i].name, name, name_bytes)) return &table[i];
        const char *alias = table[i].aliases;
        while (alias) {
            if (same_name(alias, name, name_bytes)) return &table[i];
            alias = strchr(alias, ',');
            if (alias) alias++;
        }
    }
    return NULL;
}

const struct option *option_by_letter(char letter)
{
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (letter && table[i].letter == letter) return &table[i];
    return NULL;
}

const char *option_nearest(const char *name, unsigned commands)
{
    const char *names[N_OPTIONS + 1];
    size_t n = 0;
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (table[i].commands & commands) names[n++] = table[i].name;
    names[n] = NULL;
    return text_nearest(name, names);
}

bool option_takes_value(const struct option *option)
{
    return option->kind != OPTION_FLAG && option->kind != OPTION_UNFLAG;
}

/* ---- requests ------------------------------------------------------------------------------ */

struct kept {
    struct kept *next;
    char *text;
};

void request_init(struct request *request)
{
    memset(request, 0, sizeof *request);
    dk_settings_default(&request->settings);
    request->count = 1;
    request->n_repeats = 3;
    request->random_seed = true;
    request->batch.stale_after_s = 60;
    request->compare.tolerance = 0.002;
}

void request_free(struct request *request)
{
    while (request->kept) {
        struct kept *next = request->kept->next;
        free(request->kept->text);
        free(request->kept);
        request->kept = next;
    }
}

const char *request_keep(struct request *request, const char *text)
{
    struct kept *kept = text_alloc(sizeof *kept);
    *kept = (struct kept){request->kept, text_copy(text)};
    request->kept = kept;
    return kept->text;
}

bool request_given(const struct request *request, const char *name)
{
    const struct option *option = option_find(name, strlen(name));
    return option && request->given[option - table];
}

/* ---- values -------------------------------------------------------------------------------- */

static void *place(struct request *request, const struct option *option)
{
    return (char *)request + option->offset;
}

static const void *place_const(const struct request *request, const struct option *option)
{
    return (const char *)request + option->offset;
}

static bool refuse(struct dk_error *err, const struct option *option, const char *value,
                   const char *expected)
{
    return say_fail(err, DK_ERROR_ARGUMENT, "--%s: found \"%.200s\", expected %s", option->name,
                    value, expected);
}

static bool set_flag(struct request *request, const struct option *option, const char *value,
                     struct dk_error *err)
{
    bool on = !value || strcmp(value, "true") == 0;
    if (!on && strcmp(value, "false") != 0)
        return say_fail(
            err, DK_ERROR_ARGUMENT,
            "--%s: found the value \"%.200s\", but this option takes none: leave it out",
            option->name, value);
    *(bool *)place(request, option) = on == (option->kind == OPTION_FLAG);
    return true;
}

static bool set_integer(struct request *request, const struct option *option, const char *value,
                        struct dk_error *err)
{
    int64_t n;
    char expected[64];
    snprintf(expected, sizeof expected, "a whole number from %.0f to %.0f", option->low,
             option->high);
    if (!text_to_integer(value, &n) || (double)n < option->low || (double)n > option->high)
        return refuse(err, option, value, expected);
    *(int *)place(request, option) = (int)n;
    return true;
}

static bool set_number(struct request *request, const struct option *option, const char *value,
                       struct dk_error *err)
{
    double x;
    char expected[64];
    snprintf(expected, sizeof expected, "a number from %g to %g", option->low, option->high);
    if (!text_to_number(value, &x) || x < option->low || x > option->high)
        return refuse(err, option, value, expected);
    *(double *)place(request, option) = x;
    return true;
}

static bool set_seed(struct request *request, const struct option *option, const char *value,
                     struct dk_error *err)
{
    request->random_seed = strcmp(value, "random") == 0 || strcmp(value, "-1") == 0;
    if (request->random_seed || text_to_uint64(value, place(request, option))) return true;
    return refuse(err, option, value, "a whole number from 0 to 18446744073709551615, or random");
}

static bool set_choice(struct request *request, const struct option *option, const char *value,
                       struct dk_error *err)
{
    const char *names[9] = {NULL};
    char words[128];
    size_t n = 0;
    snprintf(words, sizeof words, "%s", option->choices);
    for (char *word = words; word && n < 8;) {
        char *end = strchr(word, '|');
        if (end) *end++ = '\0';
        if (strcmp(word, value) == 0) {
            *(const char **)place(request, option) = request_keep(request, value);
            return true;
        }
        names[n++] = word;
        word = end;
    }
    const char *near = text_nearest(value, names);
    return say_fail(err, DK_ERROR_ARGUMENT, "--%s: found \"%.200s\", expected one of %s%s%s%s",
                    option->name, value, option->choices, near ? "; did you mean \"" : "",
                    near ? near : "", near ? "\"?" : "");
}

static bool set_text(struct request *request, const struct option *option, const char *value)
{
    size_t n_replaced;
    char *text = text_repair(value, strlen(value), &n_replaced);
    *(const char **)place(request, option) = request_keep(request, text);
    free(text);
    request->n_replaced_bytes += n_replaced;
    return true;
}

static bool set_lines(struct request *request, const struct option *option, const char *value)
{
    const char **at = place(request, option);
    const char *before = *at && request->given[option - table] ? *at : NULL;
    if (!before) return set_text(request, option, value);
    char *both = text_format("%s\n%s", before, value);
    set_text(request, option, both);
    free(both);
    return true;
}

static bool set_path(struct request *request, const struct option *option, const char *value,
                     struct dk_error *err)
{
    if (!*value)
        return say_fail(err, DK_ERROR_ARGUMENT, "--%s: the name is empty; give one", option->name);
    *(const char **)place(request, option) = request_keep(request, value);
    return true;
}

/* "512x768"; one number alone is a square. */
static bool set_size(struct request *request, const struct option *option, const char *value,
                     struct dk_error *err)
{
    char first[16], second[16];
    const char *cross = strpbrk(value, "xX");
    size_t n = cross ? (size_t)(cross - value) : strlen(value);
    const char *rest = cross ? cross + 1 : value;
    int64_t width = 0, height = 0;
    bool ok = n < sizeof first && strlen(rest) < sizeof second;
    if (ok) {
        snprintf(first, sizeof first, "%.*s", (int)n, value);
        snprintf(second, sizeof second, "%s", rest);
        ok = text_to_integer(first, &width) && text_to_integer(second, &height);
    }
    if (!ok || width < (int64_t)option->low || height < (int64_t)option->low ||
        width > (int64_t)option->high || height > (int64_t)option->high)
        return refuse(err, option, value,
                      "WIDTHxHEIGHT in pixels, as 512x768, each from 1 to 65536");
    int *sides = place(request, option);
    sides[0] = (int)width;
    sides[1] = (int)height;
    return true;
}

static bool set_bytes(struct request *request, const struct option *option, const char *value,
                      struct dk_error *err)
{
    static const char units[] = "KMGT";
    size_t n = strcspn(value, units);
    char number[32] = "";
    const char *unit = value[n] ? strchr(units, value[n]) : NULL;
    const char *rest = unit ? value + n + 1 : "";
    double x = 0;
    if (n < sizeof number) snprintf(number, sizeof number, "%.*s", (int)n, value);
    bool ok =
        text_to_number(number, &x) && (!*rest || strcmp(rest, "B") == 0 || strcmp(rest, "iB") == 0);
    for (ptrdiff_t i = 0; unit && i <= unit - units; i++) x *= 1024;
    if (!ok || x < 1 || x > 9e15)
        return refuse(err, option, value, "a size such as 800M, 1.5G or a number of bytes");
    *(size_t *)place(request, option) = (size_t)x;
    return true;
}

static bool set_value(struct request *request, const struct option *option, const char *value,
                      struct dk_error *err)
{
    switch (option->kind) {
    case OPTION_FLAG:
    case OPTION_UNFLAG:
        return set_flag(request, option, value, err);
    case OPTION_INTEGER:
        return set_integer(request, option, value, err);
    case OPTION_SEED:
        return set_seed(request, option, value, err);
    case OPTION_NUMBER:
        return set_number(request, option, value, err);
    case OPTION_TEXT:
        return set_text(request, option, value);
    case OPTION_LINES:
        return set_lines(request, option, value);
    case OPTION_PATH:
        return set_path(request, option, value, err);
    case OPTION_CHOICE:
        return set_choice(request, option, value, err);
    case OPTION_SIZE:
        return set_size(request, option, value, err);
    case OPTION_BYTES:
        return set_bytes(request, option, value, err);
    }
    return false;
}

bool option_set(struct request *request, const struct option *option, const char *value,
                struct dk_error *err)
{
    if (!value && option_takes_value(option))
        return say_fail(err, DK_ERROR_ARGUMENT, "--%s: needs a value: --%s %s", option->name,
                        option->name, option->argument);
    if (!set_value(request, option, value, err)) return false;
    request->given[option - table] = true;
    return true;
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void set_default(struct request *request, const struct option *option)
{
    struct request fresh;
    request_init(&fresh);
    size_t size = option->kind == OPTION_SIZE                                    ? 2 * sizeof(int)
                  : option->kind == OPTION_FLAG || option->kind == OPTION_UNFLAG ? sizeof(bool)
                  : option->kind == OPTION_INTEGER                               ? sizeof(int)
                  : option->kind == OPTION_SEED                                  ? sizeof(uint64_t)
                  : option->kind == OPTION_NUMBER                                ? sizeof(double)
                  : option->kind == OPTION_BYTES                                 ? sizeof(size_t)
                                                                                 : sizeof(char *);
    memcpy(place(request, option), (char *)&fresh + option->offset, size);
    if (option->kind == OPTION_SEED) request->random_seed = true;
    request->given[option - table] = false;
}

bool option_set_json(struct request *request, const struct option *option, const json_t *value,
                     struct dk_error *err)
{
    char number[32];
    switch (json_typeof(value)) {
    case JSON_NULL:
        set_default(request, option);
        return true;
    case JSON_TRUE:
    case JSON_FALSE:
        if (option_takes_value(option)) break;
        /* The key is the option's name:
         * "no-prompt-syntax": true is the same as --no-prompt-syntax. */
        return option_set(request, option, json_is_true(value) ? "true" : "false", err);
    case JSON_INTEGER:
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        return option_set(request, option, number, err);
    case JSON_REAL:
        return option_set(request, option, text_from_number(json_real_value(value), number), err);
    case JSON_STRING:
        return option_set(request, option, json_string_value(value), err);
    default:
        break;
    }
    return say_fail(err, DK_ERROR_ARGUMENT, "--%s: found a JSON %s, expected %s", option->name,
                    json_is_array(value)    ? "array"
                    : json_is_object(value) ? "object"
                                            : "boolean",
                    option_takes_value(option) ? "a number or a string" : "true or false");
}

/* Paths may hold any byte; JSON may not. */
static json_t *json_from_bytes(const char *bytes)
{
    size_t n_replaced;
    char *text = text_repair(bytes, strlen(bytes), &n_replaced);
    json_t *value = json_string(text);
    free(text);
    return value;
}

/* JSON numbers above 2^63 - 1 are beyond jansson and most readers: those seeds become strings. */
static json_t *json_from_seed(uint64_t seed)
{
    if (seed <= INT64_MAX) return json_integer((json_int_t)seed);
    char digits[32];
    snprintf(digits, sizeof digits, "%llu", (unsigned long long)seed);
    return json_string(digits);
}

static json_t *json_from_double(double x)
{
    if (!isfinite(x)) return json_null();
    if (x == floor(x) && fabs(x) < 1e15) return json_integer((json_int_t)x);
    return json_real(x);
}

json_t *option_get(const struct request *request, const struct option *option)
{
    const void *at = place_const(request, option);
    const char *text;
    const int *sides = at;
    char size[32];
    switch (option->kind) {
    case OPTION_FLAG:
        return json_boolean(*(const bool *)at);
    case OPTION_UNFLAG:
        return json_boolean(!*(const bool *)at);
    case OPTION_INTEGER:
        return json_integer(*(const int *)at);
    case OPTION_SEED:
        return json_from_seed(*(const uint64_t *)at);
    case OPTION_NUMBER:
        return json_from_double(*(const double *)at);
    case OPTION_BYTES:
        return json_integer((json_int_t) * (const size_t *)at);
    case OPTION_SIZE:
        if (sides[0] == 0 && sides[1] == 0) return json_null();
        snprintf(size, sizeof size, "%dx%d", sides[0], sides[1]);
        return json_string(size);
    case OPTION_TEXT:
    case OPTION_LINES:
    case OPTION_PATH:
    case OPTION_CHOICE:
        text = *(const char *const *)at;
        return text ? json_from_bytes(text) : json_null();
    }
    return json_null();
}

void options_to_json(const struct request *request, enum option_use use, json_t *object)
{
    for (size_t i = 0; i < N_OPTIONS; i++)
        if ((table[i].use & use) == use)
            json_object_set_new(object, table[i].name, option_get(request, &table[i]));
}
