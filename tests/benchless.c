/* benchless.c - what a call of the U-Net costs that leaves something out: benchless [MODEL] [WxH].
 */
/* SPDX-License-Identifier: MIT */

/*
 * MODEL is a folder or a single file (default: models/emoji), W and H are latent cells. Times one
 * guided call (both halves) as it is, then the calls that --deepcache, --tgate and --tome make of
 * it, all in one run, as shares of the plain one. Latents and texts are noise.
 *
 *   --only LIST  of deep, cross and merge
 *   --branch B   the deepest of the branches measured (5)
 */

#include "base/system.h"
#include "pipeline/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bench {
    struct dk_error err;
    struct dk_model *model;
    struct ops ops;
    struct tensor x;
    struct unet_conditioning *conditioning;
    double plain_s;
};

static struct tensor noise(struct bench *b, int rank, const int64_t *dim)
{
    struct tensor t = tensor_new(b->ops.arena, rank, dim, &b->err);
    uint32_t state = 1;
    for (int64_t i = 0; i < tensor_count(t); i++) {
        state = state * 1664525u + 1013904223u;
        t.data[i] = (float)(state >> 8) / 4194304.0f - 2.0f;
    }
    return t;
}

static double call(struct bench *b, struct unet_reuse *reuse, bool deep, bool cross)
{
    size_t mark = arena_mark(b->ops.arena);
    double start_s = system_seconds();
    struct tensor y = unet_forward_reusing(b->model->unet, &b->ops, b->x, 500, b->conditioning,
                                           reuse, deep, cross);
    double seconds = system_seconds() - start_s;
    if (b->err.code || !op_all_finite(&b->ops, y)) printf("not finite: %s\n", b->err.message);
    arena_reset(b->ops.arena, mark);
    return seconds;
}

static void report(struct bench *b, const char *what, double seconds)
{
    if (b->plain_s == 0) b->plain_s = seconds;
    printf("%-44s %7.3f s  %5.3f of a plain call\n", what, seconds, seconds / b->plain_s);
    fflush(stdout);
}

static struct unet_reuse *reuse_new(struct bench *b, const struct unet_saving *saving)
{
    size_t before = arena_mark(b->ops.arena);
    struct unet_reuse *reuse =
        unet_reuse_new(b->model->unet, &b->ops, saving, 2, b->x.dim[1], b->x.dim[2]);
    if (!reuse) printf("%s\n", b->err.message);
    if (saving->deep || saving->cross)
        printf("kept for later calls: %.1f MB\n",
               (double)(arena_mark(b->ops.arena) - before) / 1e6);
    return reuse;
}

static void bench_deep(struct bench *b, int deepest)
{
    int n_skips = unet_skips(b->model->unet);
    for (int branch = 0; branch <= deepest && branch < n_skips; branch += branch < 2 ? 1 : 3) {
        struct unet_saving saving = {.deep = true, .cross = true, .branch = branch};
        size_t mark = arena_mark(b->ops.arena);
        struct unet_reuse *reuse = reuse_new(b, &saving);
        char what[64];
        if (!reuse) return;
        /* Values do not matter for the time: what would be kept by a whole call is taken as zero.
         */
        b->ops.arena->dry = true;
        call(b, reuse, false, false);
        b->ops.arena->dry = false;
        snprintf(what, sizeof what, "deep features taken, branch %d", branch);
        report(b, what, call(b, reuse, true, false));
        if (branch == 0)
            report(b, "the same, cross-attention taken too", call(b, reuse, true, true));
        arena_reset(b->ops.arena, mark);
    }
}

static void bench_cross(struct bench *b)
{
    struct unet_saving saving = {.cross = true};
    size_t mark = arena_mark(b->ops.arena);
    struct unet_reuse *reuse = reuse_new(b, &saving);
    if (!reuse) return;
    report(b, "cross-attention kept", call(b, reuse, false, false));
    report(b, "cross-attention taken", call(b, reuse, false, true));
    arena_reset(b->ops.arena, mark);
}

static void bench_merge(struct bench *b)
{
    static const double ratios[] = {0.25, 0.5, 0.75};
    for (size_t i = 0; i < sizeof ratios / sizeof *ratios; i++) {
        struct unet_saving saving = {.merge = ratios[i]};
        size_t mark = arena_mark(b->ops.arena);
        struct unet_reuse *reuse = reuse_new(b, &saving);
        char what[64];
        if (!reuse) return;
        snprintf(what, sizeof what, "%.2f of the tokens merged", ratios[i]);
        report(b, what, call(b, reuse, false, false));
        arena_reset(b->ops.arena, mark);
    }
}

int main(int argc, char **argv)
{
    const char *path = "models/emoji", *only = "deep,cross,merge";
    long width = 16, height = 16;
    int deepest = 5;
    struct bench b = {.err = {.code = DK_OK}};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
            only = argv[++i];
        else if (strcmp(argv[i], "--branch") == 0 && i + 1 < argc)
            deepest = (int)strtol(argv[++i], NULL, 10);
        else if (sscanf(argv[i], "%ldx%ld", &width, &height) != 2)
            path = argv[i];
    }
    b.model = dk_model_open(path, NULL, &b.err);
    if (!b.model) {
        printf("%s\n", b.err.message);
        return 1;
    }
    const struct unet *unet = b.model->unet;
    b.ops = model_ops(b.model, NULL, &b.err);
    float ids[12] = {512, 512, 0, 0, 512, 512, 512, 512, 0, 0, 512, 512};
    struct tensor pooled = {0};
    if (unet_pooled_width(unet)) pooled = noise(&b, 2, (int64_t[]){2, unet_pooled_width(unet)});
    struct tensor context = noise(&b, 3, (int64_t[]){2, 77, unet_context_width(unet)});
    b.x = noise(&b, 4, (int64_t[]){1, height, width, unet_in_channels(unet)});
    b.conditioning = unet_condition(unet, &b.ops, context, pooled, ids, 1.0f);
    if (b.conditioning && b.x.rank) {
        struct tensor whole = b.x; /* a small call reads and packs the weights */
        b.x.dim[1] = (height + 3) / 4, b.x.dim[2] = (width + 3) / 4;
        call(&b, NULL, false, false);
        b.x = whole;
        report(&b, "plain", call(&b, NULL, false, false));
        if (strstr(only, "deep")) bench_deep(&b, deepest);
        if (strstr(only, "cross")) bench_cross(&b);
        if (strstr(only, "merge")) bench_merge(&b);
    }
    int status = b.err.code != DK_OK;
    if (status) printf("%s\n", b.err.message);
    dk_model_close(b.model);
    return status;
}
