/* checkclip.c - the CLIP score, part by part, against another implementation. */
/* SPDX-License-Identifier: MIT */
#include "check.h"
#include "golden.h"
#include "kernels/kernels.h"
#include "nets/vision.h"
#include "pipeline/resize.h"
#include "scratch.h"

#define FOLDER "tests/golden/clip/tiny"
#define SINGLE "tests/golden/clip/openai.safetensors"

/* ---- the pictures of tests/golden/clip/make.py -------------------------------------------- */

static int clip(int v)
{
    return v < 0 ? 0 : v > 255 ? 255 : v;
}

static struct dk_image picture(int w, int h, int k)
{
    struct dk_image image = {w, h, malloc(3 * (size_t)w * (size_t)h)};
    if (!image.rgb) exit(1);
    uint8_t *out = image.rgb;
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            for (int c = 0; c < 3; c++) {
                uint32_t u = ((uint32_t)x * 73856093u) ^ ((uint32_t)y * 19349663u) ^
                             ((uint32_t)c * 83492791u);
                int plain = (2 * x + 3 * y + 50 * c + 64 * (((x >> 3) + (y >> 3)) & 1)) & 255;
                u = u * 1664525u + 1013904223u;
                *out++ = (uint8_t)clip(plain + (int)(u >> 24) % k - k / 2);
            }
    return image;
}

static const int pictures[3][3] = {{50, 37, 31}, {24, 70, 121}, {32, 32, 31}};
static const char *const texts[3] = {
    "a photo of a cat, highly detailed", "",
    "Two robots -- 42 -- playing chess in the caf\xC3\xA9; an extremely long sentence that keeps "
    "on "
    "going past the limit of seventy seven tokens because we repeat words, words, words, words, "
    "words, words, words, words, words, words, words, words, words, words, words, words, words, "
    "words, words, words, words"};

static void check_resize(const struct golden *g)
{
    static const int cases[][4] = {{50, 37, 43, 32},   {20, 70, 32, 112}, {64, 64, 32, 32},
                                   {301, 200, 48, 32}, {9, 9, 32, 32},    {33, 41, 1, 7}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int *c = cases[i];
        struct dk_image from = picture(c[0], c[1], 31), to;
        size_t n;
        float *want = golden_get(g, &n, "resize.%d.%d.%d.%d", c[0], c[1], c[2], c[3]);
        CHECK(want && resize_bicubic(&from, c[2], c[3], &to, NULL), "case %zu", i);
        CHECK(want && memcmp(to.rgb, want, 3 * (size_t)c[2] * (size_t)c[3]) == 0,
              "case %zu: not Pillow's bytes", i);
        free(want);
        dk_image_free(&from);
        dk_image_free(&to);
    }
}

/* ---- the vision tower alone ----------------------------------------------------------------- */

static void check_vision(const struct golden *g, const char *kind, const char *path,
                         const struct vision_config *config, unsigned flags)
{
    struct dk_error err = {0};
    struct kernels kernels;
    struct arena arena;
    kernels_init(&kernels, flags);
    struct weights *weights = weights_open_clip(path, &err);
    struct vision *vision = weights ? vision_load(config, weights, &err) : NULL;
    CHECK(vision && arena_open(&arena, 0, &err), "%s: %s", kind, err.message);
    if (!vision) return;
    CHECK(vision_image_px(vision) == 32 && vision_projection(vision) == 24, "%s: sizes", kind);
    size_t n, m;
    float *pixels = golden_get(g, &n, "%s.pixels", kind);
    float *want = golden_get(g, &m, "%s.image_embeds", kind);
    struct ops o = {.kernels = &kernels, .arena = &arena, .err = &err, .n_threads = 2};
    for (size_t i = 0; i < 3; i++) {
        struct tensor x = {pixels + i * 32 * 32 * 3, 4, {1, 32, 32, 3}};
        struct tensor y = vision_forward(vision, &o, x);
        CHECK(y.rank == 2 && y.dim[1] == 24, "%s: %s", kind, err.message);
        if (y.rank == 2)
            CHECK(check_distance(y.data, want + i * 24, 24) < 2e-5, "%s, picture %zu: %g off", kind,
                  i, check_distance(y.data, want + i * 24, 24));
    }
    CHECK(vision_forward(vision, &o, (struct tensor){pixels, 4, {1, 16, 64, 3}}).rank == 0,
          "%s: another size is taken", kind);
    free(pixels);
    free(want);
    arena_close(&arena);
    vision_free(vision);
    weights_close(weights);
}

static void check_towers(const struct golden *g)
{
    const unsigned flags[] = {0, KERNELS_SCALAR};
    for (size_t i = 0; i < 2; i++) {
        check_vision(g, "tiny", FOLDER, &(struct vision_config){3, ACT_QUICK_GELU, 1e-5f, 2, 32},
                     flags[i]);
        check_vision(g, "openai", SINGLE, &(struct vision_config){1, ACT_QUICK_GELU, 1e-5f, 0, 0},
                     flags[i]);
    }
}

/* ---- scores ---------------------------------------------------------------------------------- */

static void check_scores(const struct golden *g, const char *kind, const char *path)
{
    struct dk_error err = {0};
    struct dk_clip *model = dk_clip_open(path, NULL, &err);
    struct dk_model_options one = {.n_threads = 1};
    struct dk_clip *alone = dk_clip_open(path, &one, &err);
    CHECK(model && alone, "%s: %s", path, err.message);
    size_t n;
    float *want = golden_get(g, &n, "%s.cosines100", kind);
    for (size_t i = 0; model && alone && i < 3; i++) {
        struct dk_image image = picture(pictures[i][0], pictures[i][1], pictures[i][2]);
        for (size_t k = 0; k < 3; k++) {
            double score = -1, again = -1, expected = fmax((double)want[3 * i + k], 0);
            CHECK(dk_clip_score(model, &image, texts[k], false, NULL, &score, &err) &&
                      fabs(score - expected) < 1e-3,
                  "%s, picture %zu, text %zu: %f, expected %f: %s", kind, i, k, score, expected,
                  err.message);
            CHECK(dk_clip_score(alone, &image, texts[k], false, NULL, &again, &err) &&
                      again == score,
                  "%s: %f with one thread, %f with more", kind, again, score);
        }
        dk_image_free(&image);
    }
    free(want);
    dk_clip_close(model);
    dk_clip_close(alone);
}

static void check_prompt(void)
{
    struct dk_error err = {0};
    struct dk_clip *model = dk_clip_open(SINGLE, NULL, &err);
    struct dk_image image = picture(32, 32, 31);
    double plain = 0, weighted = 0, literal = 0;
    volatile int cancel = 0;
    CHECK(model && dk_clip_score(model, &image, "a photo of a cat", true, &cancel, &plain, &err) &&
              dk_clip_score(model, &image, "a (photo:1.5) of a cat", true, NULL, &weighted, &err) &&
              dk_clip_score(model, &image, "a (photo:1.5) of a cat", false, NULL, &literal, &err),
          "%s", err.message);
    CHECK(plain > 0 && weighted == plain && literal != plain, "%f %f %f", plain, weighted, literal);
    cancel = 1;
    CHECK(!dk_clip_score(model, &image, "a photo of a cat", true, &cancel, &plain, &err) &&
              err.code == DK_ERROR_CANCELLED,
          "not cancelled: %s", err.message);
    err = (struct dk_error){0};
    for (int i = 0; i < 200; i++) { /* more texts than are kept */
        char text[32];
        snprintf(text, sizeof text, "%d cats", i % 100);
        CHECK(dk_clip_score(model, &image, text, true, NULL, &weighted, &err), "%s", err.message);
    }
    CHECK(dk_clip_score(model, &image, "a photo of a cat", true, NULL, &weighted, &err) &&
              weighted == plain,
          "%f after other texts, %f before", weighted, plain);
    dk_image_free(&image);
    dk_clip_close(model);
}

/* ---- files that are none ----------------------------------------------------------------------
 */

static void refused(const char *path, const char *part)
{
    struct dk_error err = {0};
    struct dk_clip *model = dk_clip_open(path, NULL, &err);
    CHECK(!model && strstr(err.message, part) && !strchr(err.message, '\n'),
          "%s: \"%s\" is not in \"%s\"", path, part, err.message);
    dk_clip_close(model);
}

static const char *const files[] = {"model.safetensors", "config.json", "preprocessor_config.json"};

/* A copy of the folder in which from, in one file, became to; from NULL: without that file. */
static void copy_spoiled(const char *file, const char *from, const char *to)
{
    scratch_open("checkclip");
    for (size_t i = 0; i < 3; i++) {
        char path[512];
        size_t n, skip = i == 0 ? 8 : 0; /* the length before a header of safetensors */
        bool meant = strcmp(files[i], file) == 0;
        if (meant && !from) continue;
        snprintf(path, sizeof path, FOLDER "/%s", files[i]);
        unsigned char *bytes = golden_slurp(path, &n);
        const char *at = meant ? strstr((char *)bytes + skip, from) : NULL;
        size_t before = at ? (size_t)(at - (char *)bytes) : n;
        CHECK(at || !meant, "%s: no %s", file, from);
        FILE *out = fopen(in(files[i]).s, "wb");
        if (!out) exit(1);
        fwrite(bytes, 1, before, out);
        if (at) fputs(to, out);
        if (at) fwrite(at + strlen(from), 1, n - before - strlen(from), out);
        fclose(out);
        free(bytes);
    }
}

static void spoiled(const char *file, const char *from, const char *to, const char *part)
{
    copy_spoiled(file, from, to);
    refused(folder, part);
}

static void accepted(const char *file, const char *from, const char *to)
{
    struct dk_error err = {0};
    copy_spoiled(file, from, to);
    struct dk_clip *model = dk_clip_open(folder, NULL, &err);
    CHECK(model, "%s: %s", file, err.message);
    dk_clip_close(model);
}

/* A weight that is no number: the file opens, the score fails. */
static void check_damage(void)
{
    struct dk_error err = {0};
    struct dk_image image = picture(32, 32, 31);
    double score = 7;
    copy_spoiled("", NULL, NULL);
    FILE *file = fopen(in("model.safetensors").s, "r+b");
    if (!file || fseek(file, -2, SEEK_END) != 0) exit(1);
    fputs("\xff\x7f", file); /* NaN in f16, little-endian */
    fclose(file);
    struct dk_clip *model = dk_clip_open(folder, NULL, &err);
    CHECK(model && !dk_clip_score(model, &image, "cat", true, NULL, &score, &err) && score == 7 &&
              err.code == DK_ERROR_NUMERIC && strstr(err.message, folder) &&
              strstr(err.message, "length nan"),
          "%f: %s", score, err.message);
    dk_clip_close(model);
    dk_image_free(&image);
}

static void check_refusals(void)
{
    refused("tests/golden/models/tiny-sd2/text_encoder", "no vision tower");
    refused("tests/golden/models/tiny-sd1/unet", "holds a U-Net");
    refused("tests/golden/models/tiny-sd1.ldm.safetensors", "holds a checkpoint");
    refused("tests/golden/clip", "several .safetensors");
    refused("tests/nosuch", "tests/nosuch");
    spoiled("config.json", "\"image_size\": 32", "\"image_size\": 64", "17 positions");
    spoiled("config.json", "\"num_attention_heads\": 3", "\"num_attention_heads\": 5", "5 heads");
    spoiled("config.json", "\"num_attention_heads\": 3", "\"num_attention_heads\": -3", "-3");
    spoiled("config.json", "\"quick_gelu\"", "\"relu\"", "relu");
    spoiled("config.json", "{", "[", "config.json");
    accepted("config.json", "\"vision_config\"", "\"vision\""); /* not of a CLIP: guessed */
    accepted("config.json", NULL, NULL);
    accepted("preprocessor_config.json", NULL, NULL);
    spoiled("preprocessor_config.json", "\"shortest_edge\": 32", "\"shortest_edge\": 40",
            "\"size\"");
    spoiled("preprocessor_config.json", "\"resample\": 3", "\"resample\": 2", "resample");
    spoiled("preprocessor_config.json", "0.25", "0", "image_std");
    spoiled("preprocessor_config.json", "0.25,", "", "image_std");
    spoiled("model.safetensors", "visual_projection.weight", "visual_projectioN.weight",
            "visual_projection.weight");
    spoiled("model.safetensors", "vision_model.pre_layrnorm.bias", "vision_model.pre_layrnorN.bias",
            "pre_layrnorm.bias");
    scratch_close();
}

int main(void)
{
    struct golden g = golden_open("tests/golden/clip/golden.safetensors");
    check_resize(&g);
    check_towers(&g);
    check_scores(&g, "tiny", FOLDER);
    check_scores(&g, "openai", SINGLE);
    check_prompt();
    check_damage();
    check_refusals();
    golden_close(&g);
    return check_end("checkclip");
}
