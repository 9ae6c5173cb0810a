/* checkbands.c - the decoder in bands: the bytes of the plain decode, within the limit of memory.
 */
/* SPDX-License-Identifier: MIT */
#include "check.h"
#include "kernels/kernels.h"
#include "nets/vae_chain.h"
#include "ops/bands.h"
#include "pipeline/config.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MODELS "tests/golden/models"

struct world {
    struct dk_error err;
    struct arena arena;
    struct kernels kernels;
    struct ops ops;
    struct weights *weights;
    struct vae *vae;
    uint64_t state;
};

static uint64_t next(struct world *w)
{
    w->state = w->state * 6364136223846793005u + 1442695040888963407u;
    return w->state >> 33;
}

static int pick(struct world *w, int low, int high)
{
    return low + (int)(next(w) % (uint64_t)(high - low + 1));
}

static bool world_open(struct world *w, const char *model, unsigned kernel_flags)
{
    char path[256];
    struct config_vae config;
    *w = (struct world){.err = {.code = DK_OK}, .state = 1};
    kernels_init(&w->kernels, kernel_flags);
    w->ops =
        (struct ops){.kernels = &w->kernels, .arena = &w->arena, .err = &w->err, .n_threads = 2};
    snprintf(path, sizeof path, MODELS "/%s/vae/config.json", model);
    bool ok =
        arena_open(&w->arena, (size_t)1 << 30, &w->err) && config_read_vae(path, &config, &w->err);
    snprintf(path, sizeof path, MODELS "/%s/vae", model);
    if (ok) w->weights = weights_open(path, &w->err);
    if (w->weights) w->vae = vae_load(&config.net, w->weights, &w->err);
    CHECK(w->vae, "%s: %s", model, w->err.message);
    return w->vae != NULL;
}

static void world_close(struct world *w)
{
    vae_free(w->vae);
    weights_close(w->weights);
    arena_close(&w->arena);
}

static struct tensor noise(struct world *w, int64_t n, int64_t height, int64_t width, int64_t c)
{
    struct tensor t = tensor_new4(&w->arena, n, height, width, c, &w->err);
    for (int64_t i = 0; i < tensor_count(t); i++) t.data[i] = (float)pick(w, -2000, 2000) / 700.0f;
    return t;
}

static bool same_values(struct tensor a, struct tensor b)
{
    return a.rank > 0 && a.rank == b.rank && tensor_count(a) == tensor_count(b) &&
           memcmp(a.data, b.data, (size_t)tensor_count(a) * sizeof *a.data) == 0;
}

/* Makes all above the mark unreachable, or reachable again: whoever touches it then ends the test. */
static void fence(struct world *w, int protection)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t start = (arena_mark(&w->arena) + page - 1) / page * page;
    CHECK(mprotect(w->arena.base + start, w->arena.capacity_bytes - start, protection) == 0,
          "mprotect");
}

/* What a decode within the limit needs, itself or laid out in the dry, which touches no memory. */
static size_t decode_bytes(struct world *w, struct tensor z, size_t limit_bytes, bool dry,
                           struct tensor *y)
{
    w->arena.dry = dry;
    w->arena.peak_bytes = arena_mark(&w->arena);
    *y = vae_decode_within(w->vae, &w->ops, z, limit_bytes);
    w->arena.dry = false;
    CHECK(y->rank == 4, "limit %zu, dry %d: %s", limit_bytes, dry, w->err.message);
    return w->arena.peak_bytes;
}

/*
 * Ever smaller limits, until the decode says that it cannot do with less: each is kept, told
 * exactly by a dry run, and gives the plain decode's bytes.
 */
static void check_limits(struct world *w, const char *model, int64_t height, int64_t width)
{
    size_t mark = arena_mark(&w->arena), step = 0;
    struct tensor z = noise(w, height == 9 ? 2 : 1, height, width, 4);
    struct tensor plain = vae_decode(w->vae, &w->ops, z), y;
    size_t start = arena_mark(&w->arena), peak = decode_bytes(w, z, SIZE_MAX, false, &y);
    CHECK(same_values(plain, y), "%s: two plain decodes differ", model);
    for (size_t limit = peak;; limit = peak - (peak - start) / 12) {
        arena_reset(&w->arena, start);
        w->ops.n_threads = 1 + (int)(step++ % 4);
        fence(w, PROT_NONE);
        size_t told = decode_bytes(w, z, limit, true, &y);
        arena_reset(&w->arena, start);
        fence(w, PROT_READ | PROT_WRITE);
        peak = decode_bytes(w, z, limit, false, &y);
        CHECK(told == peak, "%s %dx%d: %zu bytes told, %zu used", model, (int)height, (int)width,
              told, peak);
        CHECK(same_values(plain, y), "%s %dx%d: limit %zu changes the picture", model, (int)height,
              (int)width, limit);
        if (told > limit) break;
    }
    CHECK(step >= (height == 40 ? 4 : 2), "%s %dx%d: only %zu limits", model, (int)height,
          (int)width, step);
    w->ops.n_threads = 2;
    arena_reset(&w->arena, mark);
}

/* Map 0 of a latent. */
static struct tensor begin(struct world *w, struct tensor z)
{
    size_t mark = arena_mark(&w->arena);
    struct tensor x = op_conv(&w->ops, z, &(struct conv_args){.conv = &w->vae->post_quant});
    x = op_conv(&w->ops, x, &(struct conv_args){.conv = &w->vae->decoder.in});
    x = tensor_keep(&w->arena, mark, x);
    return vae_mid_forward(w->vae, &w->vae->decoder.mid, &w->ops, mark, x);
}

/* Any steps with any bands, whether a plan would choose them or not. */
static void check_steps(struct world *w, const char *model, bool scalar)
{
    for (int round = 0; round < (scalar ? 2 : 8); round++) {
        static struct vae_chain chain;
        size_t mark = arena_mark(&w->arena);
        struct tensor z = noise(w, 1, pick(w, 1, 9), pick(w, 1, 6), 4);
        struct tensor want = vae_decode(w->vae, &w->ops, z);
        struct tensor y = tensor_new4(&w->arena, 1, want.dim[1], want.dim[2], 3, &w->err);
        w->ops.n_threads = pick(w, 1, 4);
        size_t start = arena_mark(&w->arena);
        struct tensor x = begin(w, z);
        vae_chain_lay(&chain, w->vae, z.dim[1], z.dim[2]);
        for (int from = 0, to; from < chain.n; from = to) {
            int longest = chain.n - from < VAE_MAX_RUN ? chain.n - from : VAE_MAX_RUN;
            do to = from + pick(w, 1, longest);
            while (!vae_chain_holds(&chain, to));
            struct vae_step step = {from, to, CONV_ROW_UNIT * pick(w, 1, 6)};
            x = vae_step_run(&chain, &w->ops, &step, start, x, to == chain.n ? &y : NULL);
            CHECK(x.rank == 4 && x.dim[1] == chain.links[to].h, "%s: maps %d to %d: %s", model,
                  from, to, w->err.message);
            if (x.rank == 0) return;
        }
        CHECK(same_values(y, want), "%s: %dx%d in bands differs", model, (int)z.dim[1],
              (int)z.dim[2]);
        w->ops.n_threads = 2;
        arena_reset(&w->arena, mark);
    }
}

/* What the real decoder, with 512 channels, does at a limit: told without weights being read. */
static void check_plan(struct world *w)
{
    static struct vae_chain chain;
    static struct vae_plan plan;
    w->arena.dry = true;
    vae_chain_lay(&chain, w->vae, 64, 64);
    double plain = 0, before = 0;
    for (int i = 1; i <= chain.n; i++) plain += vae_chain_work(&chain, i);
    for (size_t limit = (size_t)64 << 20; limit > 0; limit /= 2) {
        vae_plan_find(&plan, &chain, &w->ops, limit);
        int at = 0;
        double work = 0;
        for (int i = 0; i < plan.n; i++) {
            CHECK(plan.steps[i].from == at && plan.steps[i].to > at, "step %d of the plan", i);
            for (int k = at + 1; k <= plan.steps[i].to; k++) {
                work += vae_chain_work(&chain, k);
                for (int j = at + 1; plan.steps[i].band && k > at + 1 && j < k; j++)
                    if (chain.links[k].norm) work += vae_chain_work(&chain, j);
            }
            at = plan.steps[i].to;
        }
        CHECK(at == chain.n, "the plan ends at map %d of %d", at, chain.n);
        CHECK(work >= before * 0.85 && work >= plain, "limit %zu: less work than with more", limit);
        before = work;
    }
    CHECK(before > 2 * plain, "no memory takes %g of the work", before / plain);
    w->arena.dry = false;
}

int main(void)
{
    static const char *const models[] = {"tiny-sd1", "tiny-sd2", "tiny-sdxl"};
    static const int64_t sizes[][2] = {{40, 3}, {9, 7}, {23, 5}};
    for (int scalar = 0; scalar < 2; scalar++)
        for (size_t i = 0; i < 3; i++) {
            struct world w;
            if (!world_open(&w, models[i], scalar ? KERNELS_SCALAR : 0)) continue;
            for (size_t s = 0; s < 3; s++)
                if (!scalar || s == 1) check_limits(&w, models[i], sizes[s][0], sizes[s][1]);
            check_steps(&w, models[i], scalar);
            if (i == 0) check_plan(&w);
            world_close(&w);
        }
    return check_end("checkbands");
}
