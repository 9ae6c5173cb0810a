/* checkfuzz.c - replays the fuzzers' corpus, whole and cut, and lets the readers starve. */
/* SPDX-License-Identifier: MIT */
#include "check.h"
#include "fuzz/config.c"
#include "fuzz/gguf.c"
#include "fuzz/pickle.c"
#include "fuzz/png.c"
#include "fuzz/prompt.c"
#include "fuzz/record.c"
#include "fuzz/safetensors.c"
#include "fuzz/tokenizer.c"

#include <dirent.h>

/* ---- memory that runs out -------------------------------------------------------------------- */

/*
 * The Makefile links this program with --wrap, so that malloc, calloc and realloc of the library
 * come here (those inside libpng and the C library do not; jansson's do, see main).
 */
void *__real_malloc(size_t size_bytes);
void *__real_calloc(size_t n, size_t size_bytes);
void *__real_realloc(void *old, size_t size_bytes);
void *__wrap_malloc(size_t size_bytes);
void *__wrap_calloc(size_t n, size_t size_bytes);
void *__wrap_realloc(void *old, size_t size_bytes);

static long n_requests, failing_request; /* 0: none fails */

static bool is_refused(void)
{
    return ++n_requests == failing_request;
}

void *__wrap_malloc(size_t size_bytes)
{
    return is_refused() ? NULL : __real_malloc(size_bytes);
}

void *__wrap_calloc(size_t n, size_t size_bytes)
{
    return is_refused() ? NULL : __real_calloc(n, size_bytes);
}

void *__wrap_realloc(void *old, size_t size_bytes)
{
    return is_refused() ? NULL : __real_realloc(old, size_bytes);
}

/* ---- one input for one part of the library --------------------------------------------------- */

typedef void target_function(const uint8_t *data, size_t size_bytes);

static const struct target {
    const char *name;
    target_function *run;
} targets[] = {
    {"safetensors", fuzz_safetensors}, {"gguf", fuzz_gguf},
    {"pickle", fuzz_pickle},           {"png", fuzz_png},
    {"config", fuzz_config},           {"tokenizer", fuzz_tokenizer},
    {"prompt", fuzz_prompt},           {"record", fuzz_record},
};

static unsigned char *get(const char *path, size_t *size_bytes)
{
    FILE *f = fopen(path, "rb");
    unsigned char *data = f ? __real_malloc(1 << 20) : NULL;
    *size_bytes = data ? fread(data, 1, 1 << 20, f) : 0;
    if (f) fclose(f);
    return data;
}

/* What each target checks it checks with abort(), so that coming back is the proof. */
static void replay(const struct target *target, const char *path)
{
    size_t n;
    unsigned char *data = get(path, &n);
    CHECK(data, "cannot read %s", path);
    if (!data) return;
    printf("%s\n", path); /* the last one printed is the one that failed */
    fflush(stdout);
    target->run(data, n);
    for (int part = 1; part < 16; part++) target->run(data, n * (size_t)part / 16);
    CHECK(true, "%s", path);
    free(data);
}

/* ---- the readers when memory runs out -------------------------------------------------------- */

/* Opens a model; the targets' own helpers are of no use here, since they stop when they get no
 * memory. */
static bool read_weights(const char *path, struct dk_error *err)
{
    struct weights *w = weights_open(path, err);
    weights_close(w);
    return w != NULL;
}

static bool read_png(const char *path, struct dk_error *err)
{
    struct dk_image image;
    struct dk_texts texts;
    bool ok = dk_png_read(path, &image, &texts, err);
    dk_image_free(&image);
    dk_texts_free(&texts);
    return ok;
}

static bool read_json(const char *path, struct dk_error *err)
{
    json_t *json = json_object_read(path, 1 << 20, 64, err);
    json_decref(json);
    return json != NULL;
}

static bool write_png(const char *path, struct dk_error *err)
{
    uint8_t rgb[12] = {1, 2, 3};
    char keyword[] = "k", text[] = "\xe6\x97\xa5";
    struct dk_image image = {.width_px = 2, .height_px = 2, .rgb = rgb};
    return dk_png_write(path, &image, &(struct dk_text){keyword, text}, 1, true, err);
}

static bool convert(const char *path, struct dk_error *err)
{
    char out[1024];
    snprintf(out, sizeof out, "%s/tests/fuzz.gguf", getenv("BUILD") ? getenv("BUILD") : "build");
    struct dk_convert_options options = {.dtype = "q8_0", .overwrite = true};
    bool ok = dk_convert(path, out, &options, err);
    remove(out);
    return ok;
}

/* Makes the first, second, third ... request fail until none is left to fail; each must end in a
 * sentence. */
static void starve(const char *what, bool (*read)(const char *path, struct dk_error *err),
                   const char *path)
{
    long request = 0, wrong = 0;
    bool ok = false;
    while (!ok && wrong < 3 && request < 100000) {
        struct dk_error err = {0};
        failing_request = ++request;
        n_requests = 0;
        ok = read(path, &err);
        bool reached = n_requests >= failing_request;
        failing_request = 0;
        /* jansson takes a value it got no memory for as a mistake in the text, and leaves a letter
         * out of a name that it could not make longer. */
        bool told = err.code == DK_ERROR_MEMORY || strstr(err.message, "JSON is damaged") ||
                    strstr(err.message, "which is not there");
        if (!ok && !told) {
            wrong++;
            printf("%s, request %ld: %d %s\n", what, request, (int)err.code, err.message);
        }
        if (reached) ok = false; /* did without it: fine, but there may be more to come */
    }
    CHECK(ok && request > 1, "%s of %s: %ld requests and no success", what, path, request);
    CHECK(wrong == 0, "%s of %s: %ld refusals that are not for memory", what, path, wrong);
}

static void check_starved(void)
{
#define CORPUS "tests/fuzz/corpus/"
    starve("weights_open", read_weights, CORPUS "safetensors/checkpoint");
    starve("weights_open", read_weights, CORPUS "safetensors/openclip");
    starve("weights_open", read_weights, CORPUS "safetensors/fp8_scaled");
    starve("weights_open", read_weights, CORPUS "gguf/keys");
    starve("weights_open", read_weights, CORPUS "gguf/types");
    starve("weights_open", read_weights, CORPUS "pickle/trainer");
    starve("dk_png_read", read_png, CORPUS "png/rgb_texts");
    starve("json_object_read", read_json, "models/emoji/unet/config.json");
    starve("dk_convert", convert, CORPUS "safetensors/openclip");
    char out[1024];
    snprintf(out, sizeof out, "%s/tests/fuzz.png", getenv("BUILD") ? getenv("BUILD") : "build");
    starve("dk_png_write", write_png, out);
    remove(out);
}

int main(void)
{
    json_set_alloc_funcs(__wrap_malloc, free);
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        char folder[256];
        snprintf(folder, sizeof folder, "tests/fuzz/corpus/%s", targets[i].name);
        DIR *dir = opendir(folder);
        CHECK(dir, "no %s", folder);
        for (const struct dirent *entry; dir && (entry = readdir(dir));) {
            if (entry->d_name[0] == '.') continue;
            char path[1024];
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            replay(&targets[i], path);
        }
        if (dir) closedir(dir);
    }
    check_starved();
    return check_end("fuzz");
}
