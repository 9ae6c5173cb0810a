/* checkmemory.c - the limit on work memory: told before the start, kept, without effect. */
/* SPDX-License-Identifier: MIT */
#include "check.h"
#include "pipeline/memory.h"

#include <string.h>

#define MODEL "tests/golden/models/tiny-sd1"
#define N     3

static struct dk_error err;

static struct dk_model *open_model(size_t max_memory_bytes)
{
    err = (struct dk_error){.code = DK_OK};
    struct dk_model_options options = {.max_memory_bytes = max_memory_bytes, .n_threads = 2};
    struct dk_model *model = dk_model_open(MODEL, &options, &err);
    CHECK(model, "%s", err.message);
    return model;
}

static struct dk_settings settings(int width_px, uint64_t seed)
{
    struct dk_settings s;
    dk_settings_default(&s);
    s.prompt = "a photo of a cat";
    s.width_px = width_px;
    s.height_px = 64;
    s.n_steps = 2;
    s.guidance = 5;
    s.seed = seed;
    return s;
}

static bool same_image(const struct dk_image *a, const struct dk_image *b)
{
    return a->rgb && b->rgb && a->width_px == b->width_px && a->height_px == b->height_px &&
           memcmp(a->rgb, b->rgb, (size_t)a->width_px * (size_t)a->height_px * 3) == 0;
}

static size_t needed(const struct dk_model *model, size_t n, int width_px, bool tiling)
{
    const struct memory_request r = {.n = n,
                                     .n_chunks = 1,
                                     .guided = true,
                                     .vae_tiling = tiling,
                                     .width_px = width_px,
                                     .height_px = 64};
    return memory_work_bytes(model, &r);
}

/* Three pictures together; with memory for one they are made one after the other
 * and are the same. */
static void check_groups(void)
{
    struct dk_image free_images[N] = {{0}}, tight_images[N] = {{0}};
    struct dk_settings jobs[N];
    for (int i = 0; i < N; i++) jobs[i] = settings(64, (uint64_t)i);
    struct dk_model *model = open_model(0);
    if (!model) return;
    size_t one = needed(model, 1, 64, false), three = needed(model, N, 64, false);
    CHECK(one > 100000 && three > one, "one needs %zu bytes, three %zu", one, three);
    CHECK(dk_render(model, jobs, N, free_images, NULL, NULL, &err), "%s", err.message);
    CHECK(model->arena.peak_bytes <= three, "told %zu bytes, used %zu", three,
          model->arena.peak_bytes);
    dk_model_close(model);

    model = open_model(one / 7 * 8 + 8); /* an eighth is for transformed weights */
    if (!model) return;
    CHECK(dk_render(model, jobs, N, tight_images, NULL, NULL, &err), "%s", err.message);
    CHECK(model->arena.peak_bytes <= one, "%zu bytes allowed, %zu used", one,
          model->arena.peak_bytes);
    dk_model_close(model);
    for (int i = 0; i < N; i++) {
        CHECK(same_image(&free_images[i], &tight_images[i]), "picture %d differs", i);
        dk_image_free(&free_images[i]);
        dk_image_free(&tight_images[i]);
    }

}

/* The limit that a refusal tells is one that can be kept, and the next lower one is not. */
static void check_told(const char *message, int width)
{
    const char *of = strstr(message, "384x64: its work memory needs a limit of ");
    size_t told = of ? strtoull(of + strlen("384x64: its work memory needs a limit of "), NULL, 10) : 0;
    CHECK(told > 1, "%s", message);
    for (size_t less = 0; told > 1 && less < 2; less++) {
        struct dk_settings s = settings(width, 3);
        struct dk_error why = {.code = DK_OK};
        struct dk_model *model = open_model((told - less) << 20);
        if (!model) return;
        CHECK(dk_resolve(model, &s, NULL, &why) == (less == 0), "a limit of %zuM: %s", told - less,
              less ? "accepted" : why.message);
        dk_model_close(model);
    }
}

/*
 * Less and less memory: the decoder takes to bands, and the picture is the same, until a run is
 * refused before it starts. The limit is kept.
 */
static void check_bands(void)
{
    struct dk_image plain = {0};
    struct dk_settings s = settings(384, 3);
    struct dk_model *model = open_model(0);
    if (!model) return;
    size_t limit = needed(model, 1, 384, false), n = 0;
    CHECK(dk_render(model, &s, 1, &plain, NULL, NULL, &err), "%s", err.message);
    dk_model_close(model);
    for (bool accepted = true; accepted && n < 100; n++, limit -= limit / 8) {
        struct dk_image banded = {0};
        model = open_model(limit / 7 * 8 + 8);
        if (!model) break;
        s = settings(384, 3);
        accepted = dk_resolve(model, &s, NULL, &err);
        if (!accepted) {
            CHECK(err.code == DK_ERROR_MEMORY, "limit %zu: %s", limit, err.message);
            check_told(err.message, 384);
        } else {
            CHECK(dk_render(model, &s, 1, &banded, NULL, NULL, &err), "%s", err.message);
            CHECK(model->arena.peak_bytes <= limit + 8, "%zu bytes allowed, %zu used", limit,
                  model->arena.peak_bytes);
            CHECK(same_image(&plain, &banded), "limit %zu: another picture", limit);
        }
        dk_image_free(&banded);
        dk_model_close(model);
    }
    CHECK(n >= 3 && n < 100, "%zu limits", n);
    dk_image_free(&plain);
}

/* Tiles need less, and are not seen where one holds the whole picture. */
static void check_tiling(void)
{
    struct dk_image plain = {0}, tiled = {0}, wide = {0};
    struct dk_model *model = open_model(0);
    if (!model) return;
    struct dk_settings s = settings(64, 1);
    CHECK(dk_render(model, &s, 1, &plain, NULL, NULL, &err), "%s", err.message);
    s.vae_tiling = true;
    CHECK(dk_render(model, &s, 1, &tiled, NULL, NULL, &err), "%s", err.message);
    CHECK(same_image(&plain, &tiled), "a single tile changed the picture");
    s = settings(1536, 1);
    s.vae_tiling = true;
    CHECK(dk_render(model, &s, 1, &wide, NULL, NULL, &err), "%s", err.message);
    CHECK(wide.width_px == 1536 && wide.height_px == 64, "size %dx%d", wide.width_px,
          wide.height_px);
    size_t whole = needed(model, 1, 1536, false), less = needed(model, 1, 1536, true);
    CHECK(less < whole, "tiles need %zu bytes, the whole %zu", less, whole);
    CHECK(model->arena.peak_bytes <= less, "told %zu bytes, used %zu", less,
          model->arena.peak_bytes);
    dk_image_free(&plain);
    dk_image_free(&tiled);
    dk_image_free(&wide);
    dk_model_close(model);
}

static void check_info(void)
{
    struct dk_model *model = open_model(0);
    if (!model) return;
    struct dk_model_info info;
    dk_model_get_info(model, &info);
    CHECK(info.work_bytes == needed(model, 1, 64, false), "info tells %zu bytes, a run needs %zu",
          info.work_bytes, needed(model, 1, 64, false));
    CHECK(needed(model, 1, 16384 * 8, false) > info.work_bytes * 100, "a huge size needs little");
    dk_model_close(model);
}

int main(void)
{
    check_groups();
    check_bands();
    check_tiling();
    check_info();
    return check_end("checkmemory");
}
