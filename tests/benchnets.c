/* benchnets.c - seconds and memory of the networks: benchnets [MODEL] [WxH] [options]. */
/* SPDX-License-Identifier: MIT */

/*
 * MODEL is a folder or a single file (default: models/emoji), W and H are latent cells. A pass is
 * timed with the weights warm, as a step of a run is; the first one, which also packs weights, is
 * told apart.
 *
 *   --gmac U,D,T multiply-accumulates of one U-Net sample, one decode and one by the tiny decoder
 *                (10^9), for rates
 *   --taesd FILE a tiny decoder, measured behind the VAE
 *   --batch N    samples of a U-Net pass (2: both halves of a guided step)
 *   --only LIST  of unet and vae
 *   --cache MB   limit for packed weights
 *   --limit MB   memory that the decode may take: bands where it is too little for whole maps
 *   --cpu        one thread and its own clock, for a machine that is busy with other things
 */

#include "kernels/kernels.h"
#include "ops/cache.h"
#include "pipeline/config.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

struct bench {
    struct dk_error err;
    struct arena arena;
    struct kernels kernels;
    struct ops ops;
    double unet_gmac, decode_gmac, tiny_gmac;
    size_t limit_bytes; /* of the decode */
    double peak; /* operations a second this machine can do, measured */
    clockid_t clock;
};

static double now(const struct bench *b)
{
    struct timespec t;
    clock_gettime(b->clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double resident_mb(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
}

static void measure_peak(struct bench *b, int n_threads)
{
    double flops = 0, start = now(b);
#pragma omp parallel num_threads(n_threads) reduction(+ : flops)
    flops += b->kernels.burn ? b->kernels.burn((size_t)50000000) : 0;
    b->peak = flops / (now(b) - start);
}

static struct tensor noise(struct bench *b, int rank, const int64_t *dim)
{
    struct tensor t = tensor_new(&b->arena, rank, dim, &b->err);
    uint32_t state = 1;
    for (int64_t i = 0; i < tensor_count(t); i++) {
        state = state * 1664525u + 1013904223u;
        t.data[i] = (float)(state >> 8) / 4194304.0f - 2.0f;
    }
    return t;
}

static void report(struct bench *b, const char *what, double first, double second, double gmac)
{
    printf("%-24s first %7.3f s  then %7.3f s", what, first, second);
    if (gmac > 0)
        printf("  %6.1f GFLOP/s, %.2f of peak", 2 * gmac / second, 2e9 * gmac / second / b->peak);
    printf("  work memory %7.1f MB  resident peak %7.1f MB\n",
           (double)b->arena.peak_bytes / 1048576, resident_mb());
    fflush(stdout);
}

/* One part of a model: a folder's, or a checkpoint's. */
static struct weights *part(const char *model, struct weights *checkpoint, const char *name,
                            struct dk_error *err)
{
    char path[1024];
    if (checkpoint) return weights_part(checkpoint, name);
    snprintf(path, sizeof path, "%s/%s", model, name);
    return weights_open(path, err);
}

static void bench_unet(struct bench *b, struct weights *weights, const char *config_path, int64_t n,
                       int64_t h, int64_t w)
{
    struct config_unet config;
    bool ok = config_path[0] ? config_read_unet(config_path, &config, &b->err)
                             : config_guess_unet(weights, 1280, &config, &b->err);
    double t0 = now(b);
    struct unet *unet = ok ? unet_load(&config.net, weights, &b->err) : NULL;
    if (!unet) {
        printf("%s\n", b->err.message);
        return;
    }
    printf("U-Net read in %.1f ms, %zu tensors unused\n", 1e3 * (now(b) - t0),
           weights_unused(weights, NULL, NULL));
    float ids[12] = {512, 512, 0, 0, 512, 512, 512, 512, 0, 0, 512, 512};
    struct tensor pooled = {0};
    if (unet_pooled_width(unet)) pooled = noise(b, 2, (int64_t[]){n, unet_pooled_width(unet)});
    struct tensor context = noise(b, 3, (int64_t[]){n, 77, unet_context_width(unet)});
    struct tensor x = noise(b, 4, (int64_t[]){1, h, w, unet_in_channels(unet)});
    t0 = now(b);
    struct unet_conditioning *c = unet_condition(unet, &b->ops, context, pooled, ids, 1.0f);
    printf("conditioning %.3f s\n", now(b) - t0);
    b->arena.peak_bytes = 0;
    double seconds[2];
    size_t mark = arena_mark(&b->arena);
    for (int i = 0; i < 2; i++) {
        arena_reset(&b->arena, mark);
        t0 = now(b);
        struct tensor y = unet_forward(unet, &b->ops, x, 500.0f, c);
        seconds[i] = now(b) - t0;
        if (b->err.code || !op_all_finite(&b->ops, y)) printf("not finite: %s\n", b->err.message);
    }
    char what[64];
    snprintf(what, sizeof what, "U-Net %dx%dx%d", (int)n, (int)h, (int)w);
    report(b, what, seconds[0], seconds[1], b->unet_gmac * (double)n);
    unet_free(unet);
}

static void bench_vae(struct bench *b, struct weights *weights, const char *config_path, int64_t h,
                      int64_t w)
{
    struct config_vae config;
    bool ok = config_path[0] ? config_read_vae(config_path, &config, &b->err)
                             : config_guess_vae(weights, false, &config, &b->err);
    struct vae *vae = ok ? vae_load(&config.net, weights, &b->err) : NULL;
    if (!vae) {
        printf("%s\n", b->err.message);
        return;
    }
    struct tensor z = noise(b, 4, (int64_t[]){1, h, w, vae_latent_channels(vae)});
    b->arena.peak_bytes = 0;
    double seconds[2];
    size_t mark = arena_mark(&b->arena);
    for (int i = 0; i < 2; i++) {
        arena_reset(&b->arena, mark);
        double t0 = now(b);
        struct tensor y = vae_decode_within(vae, &b->ops, z, b->limit_bytes);
        seconds[i] = now(b) - t0;
        if (b->err.code || !op_all_finite(&b->ops, y)) printf("not finite: %s\n", b->err.message);
    }
    char what[64];
    snprintf(what, sizeof what, "decode %dx%d", (int)h, (int)w);
    report(b, what, seconds[0], seconds[1], b->decode_gmac);
    vae_free(vae);
}

static void bench_tiny(struct bench *b, struct weights *weights, int64_t h, int64_t w)
{
    const struct tiny_config any = {0};
    struct weights *decoder = weights ? weights_part(weights, "vae_tiny") : NULL;
    struct tiny *tiny = decoder ? tiny_load(&any, decoder, &b->err) : NULL;
    if (!tiny) {
        printf("no tiny decoder: %s\n", b->err.message);
        return;
    }
    double seconds[2];
    arena_reset(&b->arena, 0);
    b->arena.peak_bytes = 0;
    for (int i = 0; i < 2; i++) {
        arena_reset(&b->arena, 0);
        struct tensor z = noise(b, 4, (int64_t[]){1, h, w, tiny_latent_channels(tiny)});
        double t0 = now(b);
        struct tensor y = tiny_decode(tiny, &b->ops, z);
        seconds[i] = now(b) - t0;
        if (b->err.code || !op_all_finite(&b->ops, y)) printf("not finite: %s\n", b->err.message);
    }
    char what[64];
    snprintf(what, sizeof what, "tiny decode %dx%d", (int)h, (int)w);
    report(b, what, seconds[0], seconds[1], b->tiny_gmac);
    tiny_free(tiny);
}

int main(int argc, char **argv)
{
    const char *model = "models/emoji", *only = "unet,vae", *taesd = NULL;
    long width = 16, height = 16, n = 2, cache_mb = 2048;
    struct bench b = {.err = {.code = DK_OK}, .clock = CLOCK_MONOTONIC, .limit_bytes = SIZE_MAX};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--gmac") == 0 && i + 1 < argc) {
            if (sscanf(argv[++i], "%lf,%lf,%lf", &b.unet_gmac, &b.decode_gmac, &b.tiny_gmac) < 1)
                return 2;
        } else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            only = argv[++i];
        } else if (strcmp(argv[i], "--taesd") == 0 && i + 1 < argc) {
            taesd = argv[++i];
        } else if (strcmp(argv[i], "--batch") == 0 && i + 1 < argc) {
            n = strtol(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--cache") == 0 && i + 1 < argc) {
            cache_mb = strtol(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--limit") == 0 && i + 1 < argc) {
            b.limit_bytes = (size_t)strtoul(argv[++i], NULL, 10) << 20;
        } else if (strcmp(argv[i], "--cpu") == 0) {
            b.clock = CLOCK_THREAD_CPUTIME_ID;
        } else if (sscanf(argv[i], "%ldx%ld", &width, &height) != 2) {
            model = argv[i];
        }
    }
    if (n < 1 || n > 2 || cache_mb < 0) return 2;
    kernels_init(&b.kernels, 0);
    int n_threads = b.clock == CLOCK_MONOTONIC ? omp_get_num_procs() : 1;
    measure_peak(&b, n_threads);
    struct pack_cache *cache = pack_cache_open((size_t)cache_mb << 20, &b.err);
    b.ops = (struct ops){.kernels = &b.kernels,
                         .arena = &b.arena,
                         .err = &b.err,
                         .cache = cache,
                         .n_threads = n_threads};
    if (!cache || !arena_open(&b.arena, 0, &b.err)) return 1;
    struct dk_error ignored = {.code = DK_OK};
    char path[1024] = "";
    snprintf(path, sizeof path, "%s/unet/config.json", model);
    FILE *folder = fopen(path, "r");
    struct weights *checkpoint = folder ? NULL : weights_open(model, &b.err);
    if (folder) fclose(folder);
    struct weights *unet = part(model, checkpoint, "unet", &ignored);
    struct weights *vae = part(model, checkpoint, "vae", &ignored);
    printf("%s, %s, %d threads, peak %.1f GFLOP/s\n", model, b.kernels.level, b.ops.n_threads,
           b.peak / 1e9);
    if (unet && strstr(only, "unet"))
        bench_unet(&b, unet, checkpoint ? "" : path, n, height, width);
    snprintf(path, sizeof path, "%s/vae/config.json", model);
    if (vae && strstr(only, "vae")) bench_vae(&b, vae, checkpoint ? "" : path, height, width);
    struct weights *tiny = taesd ? weights_open(taesd, &b.err) : NULL;
    if (taesd) bench_tiny(&b, tiny, height, width);
    weights_close(tiny);
    if (b.err.code) printf("%s\n", b.err.message);
    if (checkpoint) {
        weights_close(checkpoint);
    } else {
        weights_close(unet);
        weights_close(vae);
    }
    arena_close(&b.arena);
    pack_cache_close(cache);
    return b.err.code != DK_OK;
}
