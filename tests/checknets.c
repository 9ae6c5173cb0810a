/* checknets.c - the networks against the reference implementation's numbers. */
/* SPDX-License-Identifier: MIT */

/*
 * tests/golden/models holds small random models and what diffusers computes with them. Everything
 * is compared at the tolerances of a correct f32 implementation; each kernel set runs all of it.
 */

#include "check.h"
#include "kernels/kernels.h"
#include "nets/clip.h"
#include "nets/unet.h"
#include "nets/vae.h"
#include "ops/cache.h"
#include "pipeline/config.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define MODELS "tests/golden/models"

static const double TEXT_TOLERANCE = 2e-5, UNET_TOLERANCE = 2e-5, VAE_TOLERANCE = 5e-5;

/* ---- the bench: operations with an arena, and golden tensors by name
 * ----------------------------- */

struct bench {
    struct dk_error err;
    struct arena arena;
    struct kernels kernels;
    struct pack_cache *cache;
    struct ops ops;
};

static bool bench_open(struct bench *b, unsigned kernel_flags)
{
    *b = (struct bench){.err = {.code = DK_OK}};
    kernels_init(&b->kernels, kernel_flags);
    b->cache = pack_cache_open((size_t)64 << 20, &b->err);
    bool ok = b->cache && arena_open(&b->arena, (size_t)1 << 30, &b->err);
    b->ops = (struct ops){.kernels = &b->kernels,
                          .arena = &b->arena,
                          .err = &b->err,
                          .cache = b->cache,
                          .n_threads = 2};
    CHECK(ok, "%s", b->err.message);
    return ok;
}

static void bench_close(struct bench *b)
{
    arena_close(&b->arena);
    pack_cache_close(b->cache);
}

static struct weights *open_weights(const char *format, ...) __attribute__((format(printf, 1, 2)));
static struct weights *open_weights(const char *format, ...)
{
    char path[256];
    va_list list;
    va_start(list, format);
    vsnprintf(path, sizeof path, format, list);
    va_end(list);
    struct dk_error err = {.code = DK_OK};
    struct weights *weights = weights_open(path, &err);
    CHECK(weights, "%s", err.message);
    return weights;
}

/* The cache knows weights by their address, which the next file may be mapped at. */
static void close_weights(struct bench *b, struct weights *weights)
{
    pack_cache_clear(b->cache);
    weights_close(weights);
}

static const struct weight *find(struct weights *golden, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static const struct weight *find(struct weights *golden, const char *format, ...)
{
    char name[128];
    va_list list;
    va_start(list, format);
    vsnprintf(name, sizeof name, format, list);
    va_end(list);
    return weights_find(golden, name);
}

static float value_at(const struct weight *w, int64_t i)
{
    float v;
    memcpy(&v, (const char *)w->data + (size_t)i * sizeof v, sizeof v); /* may be unaligned */
    return v;
}

/* A golden tensor as the networks want it: [n, c, h, w] becomes [n, h, w, c], others stay. */
static struct tensor take(struct bench *b, const struct weight *w)
{
    if (!w) return (struct tensor){0};
    if (w->rank != 4) {
        struct tensor t = tensor_new(&b->arena, w->rank, w->dim, &b->err);
        for (int64_t i = 0; i < tensor_count(t); i++) t.data[i] = value_at(w, i);
        return t;
    }
    int64_t c = w->dim[1], pixels = w->dim[2] * w->dim[3];
    struct tensor t = tensor_new4(&b->arena, w->dim[0], w->dim[2], w->dim[3], c, &b->err);
    for (int64_t i = 0; i < tensor_count(t); i++) {
        int64_t n = i / (pixels * c), p = i / c % pixels;
        t.data[i] = value_at(w, (n * c + i % c) * pixels + p);
    }
    return t;
}

/* Sample i of a batch, as a view. */
static struct tensor sample(struct tensor t, int64_t i)
{
    int64_t each = tensor_count(t) / t.dim[0];
    t.data += i * each;
    t.dim[0] = 1;
    return t;
}

static void compare(struct bench *b, struct tensor got, struct tensor want, double tolerance,
                    const char *what)
{
    CHECK(b->err.code == DK_OK, "%s: %s", what, b->err.message);
    CHECK(tensor_count(want) > 0, "%s: no golden value", what);
    CHECK(tensor_count(got) == tensor_count(want), "%s: %lld values, expected %lld", what,
          (long long)tensor_count(got), (long long)tensor_count(want));
    if (tensor_count(got) != tensor_count(want) || tensor_count(want) == 0) return;
    double d = check_distance(got.data, want.data, (size_t)tensor_count(want));
    CHECK(d <= tolerance, "%s: off by %g, allowed %g", what, d, tolerance);
}

/* ---- text encoders -----------------------------------------------------------------------------
 */

struct text_case {
    const char *model, *folder, *tag;
};

static void check_text_case(struct bench *b, const struct text_case *t)
{
    char path[256], what[128];
    struct weights *golden = open_weights(MODELS "/%s/golden_text.safetensors", t->model);
    struct weights *weights = open_weights(MODELS "/%s/%s", t->model, t->folder);
    struct config_clip config;
    snprintf(path, sizeof path, MODELS "/%s/%s/config.json", t->model, t->folder);
    CHECK(config_read_clip(path, &config, &b->err), "%s", b->err.message);
    struct clip *clip = weights ? clip_load(&config.net, weights, &b->err) : NULL;
    CHECK(clip, "%s", b->err.message);
    if (clip && golden) {
        size_t mark = arena_mark(&b->arena);
        const struct weight *w = find(golden, "%s.input_ids", t->tag);
        int32_t ids[3 * 77];
        memcpy(ids, w->data, sizeof ids);
        int n = clip_layers(clip);
        struct clip_output out;
#define TEXT_CHECK(count, skip, normed, name)                                                      \
    clip_forward(clip, &b->ops, ids, count, 77, skip, normed, false, &out);                        \
    snprintf(what, sizeof what, "%s.%s", t->tag, name);                                            \
    compare(b, out.hidden, take(b, find(golden, "%s", what)), TEXT_TOLERANCE, what);               \
    arena_reset(&b->arena, mark)
        TEXT_CHECK(3, 0, true, "last_hidden_state");
        TEXT_CHECK(3, 1, false, "penultimate");
        TEXT_CHECK(3, 1, true, "penultimate_ln");
        for (int i = 0; i <= n; i++) {
            char name[64];
            snprintf(name, sizeof name, "hidden_states.%d.first", i);
            TEXT_CHECK(1, n - i, false, name);
        }
        bool projected = clip_projection(clip) > 0;
        CHECK(clip_forward(clip, &b->ops, ids, 3, 77, 1, false, true, &out), "%s", b->err.message);
        snprintf(what, sizeof what, "%s.%s", t->tag, projected ? "text_embeds" : "pooler_output");
        compare(b, out.pooled, take(b, find(golden, "%s", what)), TEXT_TOLERANCE, what);
        snprintf(what, sizeof what, "%s.penultimate", t->tag);
        compare(b, out.hidden, take(b, find(golden, "%s", what)), TEXT_TOLERANCE, what);
        arena_reset(&b->arena, mark);
        CHECK(!clip_forward(clip, &b->ops, ids, 1, 77, n + 1, false, false, &out),
              "clip skip beyond the layers was accepted");
        b->err.code = DK_OK;
    }
    clip_free(clip);
    close_weights(b, weights);
    weights_close(golden);
}

static void check_text(struct bench *b)
{
    static const struct text_case cases[] = {{"tiny-sd1", "text_encoder", "te1"},
                                             {"tiny-sd2", "text_encoder", "te1"},
                                             {"tiny-sdxl", "text_encoder", "te1"},
                                             {"tiny-sdxl", "text_encoder_2", "te2"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_text_case(b, &cases[i]);
}

/* ---- U-Net -------------------------------------------------------------------------------------
 */

static struct unet *open_unet(struct bench *b, const char *model, struct weights *weights)
{
    char path[256];
    struct config_unet config;
    snprintf(path, sizeof path, MODELS "/%s/unet/config.json", model);
    CHECK(config_read_unet(path, &config, &b->err), "%s", b->err.message);
    struct unet *unet = weights ? unet_load(&config.net, weights, &b->err) : NULL;
    CHECK(unet, "%s", b->err.message);
    return unet;
}

/* Intermediate results of case a16x8. Sums with residuals are compared as sums. */
struct probing {
    struct bench *bench;
    struct weights *golden;
    struct tensor sum;   /* within the first transformer: the reference's stream so far */
    struct tensor added; /* SDXL: the embedding of text and sizes, which the reference adds later */
    int n_seen;
};

static void probe_unet(void *user, const char *name, struct tensor value)
{
    struct probing *p = user;
    struct bench *b = p->bench;
    static const char *const residuals[] = {"tf0.b0.attn1", "tf0.b0.attn2", "tf0.b0.ff"};
    const struct weight *w = find(p->golden, "a16x8.mid.%s", name);
    if (strcmp(name, "mid.0") == 0) w = find(p->golden, "a16x8.mid.mid.attn");
    if (strcmp(name, "mid.1") == 0) w = find(p->golden, "a16x8.mid.mid");
    if (!w || value.rank == 0) return;
    p->n_seen++;
    struct tensor want = take(b, w);
    for (int i = 0; i < 3; i++)
        if (strcmp(name, residuals[i]) == 0) {
            for (int64_t j = 0; j < tensor_count(want); j++) want.data[j] += p->sum.data[j];
            p->sum = want;
        }
    if (strcmp(name, "tf0.proj_in") == 0) p->sum = want;
    if (strcmp(name, "add_embedding") == 0) p->added = want;
    if (strcmp(name, "time_embedding") == 0 && p->added.rank)
        for (int64_t j = 0; j < tensor_count(want); j++) want.data[j] += p->added.data[j];
    compare(b, value, want, UNET_TOLERANCE, name);
}

/* What a case's sample i is conditioned with; false when the case does not exist. */
struct unet_case {
    struct tensor x, context, pooled, ids, want;
    float timestep;
};

static bool take_case(struct bench *b, struct weights *golden, const char *tag, int64_t i,
                      struct unet_case *c)
{
    const struct weight *t = find(golden, "%s.timestep", tag);
    if (!t || i >= t->dim[0]) return false;
    *c = (struct unet_case){.timestep = value_at(t, i)};
    c->x = sample(take(b, find(golden, "%s.sample", tag)), i);
    c->context = sample(take(b, find(golden, "%s.context", tag)), i);
    c->want = sample(take(b, find(golden, "%s.out", tag)), i);
    if (!find(golden, "%s.text_embeds", tag)) return true;
    c->pooled = sample(take(b, find(golden, "%s.text_embeds", tag)), i);
    c->ids = sample(take(b, find(golden, "%s.time_ids", tag)), i);
    return true;
}

static struct tensor run_case(struct bench *b, const struct unet *unet, const struct unet_case *c,
                              float guidance)
{
    struct unet_conditioning *conditioning =
        unet_condition(unet, &b->ops, c->context, c->pooled, c->ids.data, guidance);
    size_t mark = arena_mark(&b->arena);
    struct tensor y = unet_forward(unet, &b->ops, c->x, c->timestep, conditioning);
    size_t bytes = (size_t)tensor_count(y) * sizeof *y.data;
    CHECK(arena_mark(&b->arena) - mark <= bytes + 64, "a forward pass left %zu bytes behind",
          arena_mark(&b->arena) - mark - bytes);
    return y;
}

/* Intermediates that lie below the arena's mark would be overwritten: the probe only reads. */
static void check_unet_model(struct bench *b, const char *model)
{
    static const char *const tags[] = {"a16x8", "b16x8", "c16x16", "d16x24", "e18x14"};
    struct weights *golden = open_weights(MODELS "/%s/golden_unet.safetensors", model);
    struct weights *weights = open_weights(MODELS "/%s/unet", model);
    struct unet *unet = open_unet(b, model, weights);
    if (!unet || !golden) return;
    CHECK(weights_unused(weights, NULL, NULL) == 0, "%s: %zu tensors unused", model,
          weights_unused(weights, NULL, NULL));
    size_t mark = arena_mark(&b->arena);
    int n_cases = 0;
    for (size_t t = 0; t < sizeof tags / sizeof *tags; t++)
        for (int64_t i = 0; i < 2; i++) {
            struct unet_case c;
            if (!take_case(b, golden, tags[t], i, &c)) continue;
            char what[64];
            snprintf(what, sizeof what, "%s unet %s[%d]", model, tags[t], (int)i);
            compare(b, run_case(b, unet, &c, 1.0f), c.want, UNET_TOLERANCE, what);
            arena_reset(&b->arena, mark);
            n_cases++;
        }
    CHECK(n_cases == 6, "%s: %d cases, expected 6", model, n_cases);
    struct unet_case c;
    struct probing probing = {.bench = b, .golden = golden};
    if (take_case(b, golden, "a16x8", 0, &c)) {
        unet_set_probe(unet, probe_unet, &probing);
        struct unet_conditioning *conditioning =
            unet_condition(unet, &b->ops, c.context, c.pooled, c.ids.data, 1.0f);
        unet_forward(unet, &b->ops, c.x, c.timestep, conditioning);
        CHECK(probing.n_seen >= 20, "%s: %d intermediates seen", model, probing.n_seen);
    }
    arena_reset(&b->arena, mark);
    unet_free(unet);
    close_weights(b, weights);
    weights_close(golden);
}

/* A batch gives each sample the bytes it gets alone, with any number of threads. */
static void check_batch(struct bench *b, const char *model)
{
    struct weights *golden = open_weights(MODELS "/%s/golden_unet.safetensors", model);
    struct weights *weights = open_weights(MODELS "/%s/unet", model);
    struct unet *unet = open_unet(b, model, weights);
    if (!unet || !golden) return;
    size_t mark = arena_mark(&b->arena);
    struct unet_case one, two = {.timestep = 500.25f};
    two.x = take(b, find(golden, "b16x8.sample"));
    two.context = take(b, find(golden, "b16x8.context"));
    two.pooled = take(b, find(golden, "b16x8.text_embeds"));
    two.ids = take(b, find(golden, "b16x8.time_ids"));
    b->ops.n_threads = 1;
    struct tensor both = run_case(b, unet, &two, 1.0f);
    b->ops.n_threads = 3;
    for (int64_t i = 0; i < 2 && take_case(b, golden, "b16x8", i, &one); i++) {
        one.timestep = two.timestep;
        struct tensor alone = run_case(b, unet, &one, 1.0f);
        size_t bytes = (size_t)tensor_count(alone) * sizeof *alone.data;
        CHECK(bytes > 0 && memcmp(alone.data, sample(both, i).data, bytes) == 0,
              "%s: sample %d differs between batch and alone", model, (int)i);
    }
    b->ops.n_threads = 2;
    arena_reset(&b->arena, mark);
    unet_free(unet);
    close_weights(b, weights);
    weights_close(golden);
}

static void check_unets(struct bench *b)
{
    static const char *const models[] = {"tiny-sd1", "tiny-sd2", "tiny-sdxl"};
    for (size_t i = 0; i < 3; i++) {
        check_unet_model(b, models[i]);
        check_batch(b, models[i]);
    }
}

/* ---- VAE ---------------------------------------------------------------------------------------
 */

struct vae_probing {
    struct bench *bench;
    struct weights *golden;
    const char *half;
    int n_seen;
};

static void probe_vae(void *user, const char *name, struct tensor value)
{
    struct vae_probing *p = user;
    const struct weight *w = find(p->golden, "%s.a8x8.mid.%s", p->half, name);
    if (!w) return;
    p->n_seen++;
    compare(p->bench, value, take(p->bench, w), VAE_TOLERANCE, name);
}

static struct vae *open_vae(struct bench *b, const char *model, struct weights *weights)
{
    char path[256];
    struct config_vae config;
    snprintf(path, sizeof path, MODELS "/%s/vae/config.json", model);
    CHECK(config_read_vae(path, &config, &b->err), "%s", b->err.message);
    struct vae *vae = weights ? vae_load(&config.net, weights, &b->err) : NULL;
    CHECK(vae, "%s", b->err.message);
    return vae;
}

static void check_vae_model(struct bench *b, const char *model)
{
    static const char *const tags[] = {"a8x8", "b6x10"};
    struct weights *golden = open_weights(MODELS "/%s/golden_vae.safetensors", model);
    struct weights *weights = open_weights(MODELS "/%s/vae", model);
    struct vae *vae = open_vae(b, model, weights);
    if (!vae || !golden) return;
    CHECK(vae_factor(vae) == 8 && vae_latent_channels(vae) == 4 && vae_has_encoder(vae),
          "%s: factor %d, %lld channels", model, vae_factor(vae),
          (long long)vae_latent_channels(vae));
    CHECK(weights_unused(weights, NULL, NULL) == 0, "%s: tensors unused", model);
    size_t mark = arena_mark(&b->arena);
    char what[64];
    for (int t = 0; t < 2; t++) {
        struct tensor z = take(b, find(golden, "dec.%s.z", tags[t]));
        snprintf(what, sizeof what, "%s decode %s", model, tags[t]);
        compare(b, vae_decode(vae, &b->ops, z), take(b, find(golden, "dec.%s.out", tags[t])),
                VAE_TOLERANCE, what);
        arena_reset(&b->arena, mark);
        struct tensor x = take(b, find(golden, "enc.%s.x", tags[t]));
        snprintf(what, sizeof what, "%s encode %s", model, tags[t]);
        compare(b, vae_encode(vae, &b->ops, x), take(b, find(golden, "enc.%s.moments", tags[t])),
                VAE_TOLERANCE, what);
        arena_reset(&b->arena, mark);
    }
    struct vae_probing probing = {.bench = b, .golden = golden, .half = "dec"};
    vae_set_probe(vae, probe_vae, &probing);
    vae_decode(vae, &b->ops, take(b, find(golden, "dec.a8x8.z")));
    CHECK(probing.n_seen == 6, "%s: %d intermediates of the decoder seen", model, probing.n_seen);
    probing.half = "enc", probing.n_seen = 0;
    vae_encode(vae, &b->ops, take(b, find(golden, "enc.a8x8.x")));
    CHECK(probing.n_seen == 2, "%s: %d intermediates of the encoder seen", model, probing.n_seen);
    arena_reset(&b->arena, mark);
    vae_free(vae);
    close_weights(b, weights);
    weights_close(golden);
}

int main(void)
{
    static const unsigned kernel_sets[] = {KERNELS_SCALAR, 0};
    for (size_t i = 0; i < 2; i++) {
        struct bench bench;
        if (!bench_open(&bench, kernel_sets[i])) break;
        check_text(&bench);
        check_unets(&bench);
        check_vae_model(&bench, "tiny-sd1");
        check_vae_model(&bench, "tiny-sd2");
        check_vae_model(&bench, "tiny-sdxl");
        bench_close(&bench);
    }
    return check_end("checknets");
}
