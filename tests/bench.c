/* bench.c - speed of the operations against what this machine's arithmetic units can do. */
/* SPDX-License-Identifier: MIT */
#include "kernels/kernels.h"
#include "ops/cache.h"
#include "ops/ops.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct world {
    struct arena arena;
    struct kernels kernels;
    struct dk_error err;
    struct ops ops;
    double peak; /* operations a second, all threads, measured */
    double seconds_each;
    clockid_t
        clock; /* the wall's, or with --cpu that of this thread, for one thread on a busy machine */
    uint32_t state;
};

static double now(const struct world *w)
{
    struct timespec t;
    clock_gettime(w->clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static float deviate(struct world *w)
{
    w->state = w->state * 1664525u + 1013904223u;
    return (float)(w->state >> 8) / 16777216.0f - 0.5f;
}

static struct tensor random_tensor(struct world *w, int rank, const int64_t *dim)
{
    struct tensor t = tensor_new(&w->arena, rank, dim, &w->err);
    for (int64_t i = 0; i < tensor_count(t); i++) t.data[i] = deviate(w);
    return t;
}

/* Weights in f16, as models have them: sign and exponent of about 1/16 with random mantissa. */
static struct weight random_weight(struct world *w, int rank, const int64_t *dim)
{
    struct weight weight = {.dtype = DTYPE_F16, .rank = rank, .name = "bench"};
    size_t n = 1;
    for (int i = 0; i < rank; i++) weight.dim[i] = dim[i], n *= (size_t)dim[i];
    uint16_t *data = arena_alloc(&w->arena, n * 2, &w->err);
    for (size_t i = 0; data && i < n; i++) {
        (void)deviate(w);
        data[i] = (uint16_t)(0x2800u | (w->state >> 16 & 0x83ffu));
    }
    weight.data = data;
    return weight;
}

static void measure_peak(struct world *w)
{
    w->peak = 0;
    for (int i = 0; i < 5; i++) {
        double total = 0, start = now(w);
#pragma omp parallel num_threads(w->ops.n_threads) reduction(+ : total)
        total += w->kernels.burn((size_t)6 << 20);
        double rate = total / (now(w) - start);
        if (rate > w->peak) w->peak = rate;
    }
    printf("%s, %d threads, peak measured: %.1f GFLOP/s\n", w->kernels.level, w->ops.n_threads,
           w->peak * 1e-9);
}

typedef struct tensor operation(struct world *w, const void *args);

/* The best of several runs: the first ones fill caches and weights. */
static double best_seconds(struct world *w, operation *op, const void *args)
{
    double best = 1e30, spent = 0;
    for (int i = 0; i < 50 && (spent < w->seconds_each || i < 3); i++) {
        size_t mark = arena_mark(&w->arena);
        double start = now(w);
        struct tensor y = op(w, args);
        double seconds = now(w) - start;
        if (y.rank == 0) {
            fprintf(stderr, "bench: %s\n", w->err.message);
            exit(1);
        }
        arena_reset(&w->arena, mark);
        spent += seconds;
        if (seconds < best) best = seconds;
    }
    return best;
}

static void row(struct world *w, const char *name, double flop, double seconds)
{
    printf("  %-34s %9.3f ms %8.1f GFLOP/s  %5.2f of peak\n", name, seconds * 1e3,
           flop / seconds * 1e-9, flop / seconds / w->peak);
    fflush(stdout);
}

struct conv_case {
    struct conv conv;
    struct conv_args args;
    struct tensor x;
};

static struct tensor run_conv(struct world *w, const void *args)
{
    const struct conv_case *c = args;
    return op_conv(&w->ops, c->x, &c->args);
}

static void bench_conv(struct world *w, int64_t n, int64_t h, int64_t w_, int64_t in, int64_t out,
                       int64_t side, int stride, int groups)
{
    size_t mark = arena_mark(&w->arena);
    struct conv_case c = {.x = random_tensor(w, 4, (int64_t[]){n, h, w_, in})};
    c.conv.weight = random_weight(w, 4, (int64_t[]){out, in, side, side});
    c.conv.bias = random_weight(w, 1, &out);
    struct norm norm = {random_weight(w, 1, &in), random_weight(w, 1, &in), groups, 1e-5f};
    c.args = (struct conv_args){.conv = &c.conv, .stride = stride};
    if (groups) c.args.norm = &norm, c.args.act = ACT_SILU;
    double flop = 2.0 * (double)(n * (h / stride) * (w_ / stride) * in * out * side * side);
    char name[64];
    snprintf(name, sizeof name, "%dx %dx%d %d->%d%s%s", (int)n, (int)h, (int)w_, (int)in, (int)out,
             stride > 1 ? " /2" : "", groups ? " norm" : "");
    row(w, name, flop, best_seconds(w, run_conv, &c));
    pack_cache_clear(w->ops.cache);
    arena_reset(&w->arena, mark);
}

struct linear_case {
    struct linear linear;
    struct linear_args args;
    struct tensor x;
};

static struct tensor run_linear(struct world *w, const void *args)
{
    const struct linear_case *c = args;
    return op_linear(&w->ops, c->x, &c->args);
}

static void bench_linear(struct world *w, int64_t m, int64_t n, int64_t k, bool geglu)
{
    size_t mark = arena_mark(&w->arena);
    struct linear_case c = {.x = random_tensor(w, 3, (int64_t[]){1, m, k})};
    c.linear.weight = random_weight(w, 2, (int64_t[]){n, k});
    c.linear.bias = random_weight(w, 1, &n);
    c.args = (struct linear_args){.linear = &c.linear, .geglu = geglu};
    char name[64];
    snprintf(name, sizeof name, "%dx%dx%d%s", (int)m, (int)n, (int)k, geglu ? " geglu" : "");
    row(w, name, 2.0 * (double)(m * n * k), best_seconds(w, run_linear, &c));
    pack_cache_clear(w->ops.cache);
    arena_reset(&w->arena, mark);
}

struct attention_case {
    struct tensor q, k, v;
    int n_heads;
};

static struct tensor run_attention(struct world *w, const void *args)
{
    const struct attention_case *c = args;
    return op_attention(&w->ops, c->q, c->k, c->v, c->n_heads, false);
}

static void bench_attention(struct world *w, int64_t n, int64_t tq, int64_t tk, int n_heads,
                            int64_t d)
{
    size_t mark = arena_mark(&w->arena);
    int64_t c = n_heads * d;
    struct attention_case a = {random_tensor(w, 3, (int64_t[]){n, tq, c}),
                               random_tensor(w, 3, (int64_t[]){n, tk, c}),
                               random_tensor(w, 3, (int64_t[]){n, tk, c}), n_heads};
    char name[64];
    snprintf(name, sizeof name, "%dx %d on %d, %d heads of %d", (int)n, (int)tq, (int)tk, n_heads,
             (int)d);
    row(w, name, 4.0 * (double)(n * tq * tk * c), best_seconds(w, run_attention, &a));
    arena_reset(&w->arena, mark);
}

struct norm_case {
    struct norm norm;
    struct tensor x;
};

static struct tensor run_norm(struct world *w, const void *args)
{
    const struct norm_case *c = args;
    return op_norm(&w->ops, c->x, &c->norm, c->norm.n_groups ? ACT_SILU : ACT_NONE);
}

static void bench_norm(struct world *w, int64_t n, int64_t rows, int64_t c, int groups)
{
    size_t mark = arena_mark(&w->arena);
    struct norm_case a = {.norm = {random_weight(w, 1, &c), random_weight(w, 1, &c), groups, 1e-5f},
                          .x = random_tensor(w, 3, (int64_t[]){n, rows, c})};
    double seconds = best_seconds(w, run_norm, &a);
    printf("  %-34s %9.3f ms %8.1f GB/s\n", groups ? "group norm + silu" : "layer norm",
           seconds * 1e3, 8.0 * (double)(n * rows * c) / seconds * 1e-9);
    arena_reset(&w->arena, mark);
}

static void usage(void)
{
    puts("bench [conv|small|linear|attention|norm ...] [--threads N] [--level NAME] [--seconds S] "
         "[--clock wall|cpu] [--cache MB]");
}

static bool wanted(int argc, char **argv, const char *section)
{
    bool any = false;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-') {
            i++;
            continue;
        }
        any = true;
        if (strcmp(argv[i], section) == 0) return true;
    }
    return !any;
}

static const char *option(int argc, char **argv, const char *name)
{
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], name) == 0) return argv[i + 1];
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        usage();
        return 0;
    }
    const char *threads = option(argc, argv, "--threads"), *level = option(argc, argv, "--level");
    const char *seconds = option(argc, argv, "--seconds");
    struct world *w = calloc(1, sizeof *w);
    if (!w || !arena_open(&w->arena, 0, &w->err)) return 1;
    w->seconds_each = seconds ? atof(seconds) : 0.4;
    w->ops = (struct ops){.kernels = &w->kernels, .arena = &w->arena, .err = &w->err};
    w->ops.n_threads = threads ? atoi(threads) : omp_get_max_threads();
    const char *cache = option(argc, argv, "--cache");
    const char *clock_name = option(argc, argv, "--clock");
    w->clock =
        clock_name && strcmp(clock_name, "cpu") == 0 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    w->ops.cache = pack_cache_open((size_t)(cache ? atoi(cache) : 64) << 20, &w->err);
    kernels_init(&w->kernels, 0);
    if (level && !kernels_init_level(&w->kernels, level)) {
        fprintf(stderr, "bench: there is no level \"%s\" here\n", level);
        return 1;
    }
    measure_peak(w);
    if (wanted(argc, argv, "conv")) {
        puts("3x3 convolution, counted as direct arithmetic");
        bench_conv(w, 1, 64, 64, 320, 320, 3, 1, 0);
        bench_conv(w, 1, 32, 32, 640, 640, 3, 1, 0);
        bench_conv(w, 1, 64, 64, 640, 320, 3, 1, 0);
        bench_conv(w, 1, 128, 128, 512, 512, 3, 1, 0);
        bench_conv(w, 1, 256, 256, 256, 256, 3, 1, 0);
        bench_conv(w, 1, 512, 512, 128, 128, 3, 1, 0);
        bench_conv(w, 2, 64, 64, 320, 320, 3, 1, 32);
        bench_conv(w, 2, 32, 32, 640, 640, 3, 1, 32);
        bench_conv(w, 2, 16, 16, 1280, 1280, 3, 1, 32);
        bench_conv(w, 2, 8, 8, 1280, 1280, 3, 1, 32);
        bench_conv(w, 2, 64, 64, 320, 320, 3, 2, 0);
        bench_conv(w, 1, 512, 512, 128, 128, 3, 1, 32);
    }
    if (wanted(argc, argv, "small")) {
        puts("3x3 convolution, shapes of small models");
        bench_conv(w, 2, 16, 16, 64, 64, 3, 1, 16);
        bench_conv(w, 2, 8, 8, 128, 128, 3, 1, 16);
        bench_conv(w, 2, 4, 4, 192, 192, 3, 1, 16);
        bench_conv(w, 2, 4, 4, 384, 192, 3, 1, 16);
        bench_conv(w, 1, 64, 64, 16, 16, 3, 1, 1);
        bench_conv(w, 1, 64, 64, 32, 32, 3, 1, 1);
        bench_conv(w, 1, 128, 128, 24, 24, 3, 1, 1);
        bench_conv(w, 1, 64, 64, 16, 3, 3, 1, 1);
        bench_conv(w, 2, 16, 16, 4, 64, 3, 1, 0);
    }
    if (wanted(argc, argv, "linear")) {
        puts("matrix product, m x n x k");
        bench_linear(w, 4096, 320, 2880, false);
        bench_linear(w, 4096, 320, 320, false);
        bench_linear(w, 4096, 2560, 320, true);
        bench_linear(w, 4096, 320, 1280, false);
        bench_linear(w, 1024, 640, 640, false);
        bench_linear(w, 1024, 5120, 640, true);
        bench_linear(w, 256, 1280, 1280, false);
        bench_linear(w, 64, 1280, 1280, false);
        bench_linear(w, 77, 768, 768, false);
        bench_linear(w, 77, 3072, 768, false);
        bench_linear(w, 154, 768, 3072, false);
        bench_linear(w, 512, 64, 64, false);
        bench_linear(w, 64, 192, 192, false);
    }
    if (wanted(argc, argv, "attention")) {
        puts("attention, both products counted");
        bench_attention(w, 1, 4096, 4096, 8, 40);
        bench_attention(w, 1, 4096, 4096, 5, 64);
        bench_attention(w, 1, 1024, 1024, 8, 80);
        bench_attention(w, 2, 256, 256, 8, 160);
        bench_attention(w, 1, 4096, 4096, 1, 512);
        bench_attention(w, 2, 4096, 77, 8, 40);
        bench_attention(w, 2, 77, 77, 12, 64);
        bench_attention(w, 2, 256, 256, 8, 8);
    }
    if (wanted(argc, argv, "norm")) {
        puts("norms, bytes read once and written once");
        bench_norm(w, 2, 4096, 320, 32);
        bench_norm(w, 1, 512 * 512, 128, 32);
        bench_norm(w, 2, 4096, 320, 0);
    }
    pack_cache_close(w->ops.cache);
    arena_close(&w->arena);
    free(w);
    return 0;
}
