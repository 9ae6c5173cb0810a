/* checknets.c - the networks against the reference implementation's numbers. */
/* SPDX-License-Identifier: MIT */

/*
 * tests/golden/models holds small random models and what diffusers computes with them. Everything
 * is compared at the tolerances of a correct f32 implementation; each kernel set runs all of it.
 */

#include "check.h"
#include "netbench.h"
#include "nets/clip.h"
#include "nets/unet.h"
#include "nets/vae.h"
#include "pipeline/config.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define MODELS "tests/golden/models"

static const double TEXT_TOLERANCE = 2e-5, UNET_TOLERANCE = 2e-5, VAE_TOLERANCE = 5e-5;

/* ---- golden tensors by name ---------------------------------------------------------------- */

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

static double largest(struct tensor t)
{
    double most = 0;
    for (int64_t i = 0; i < tensor_count(t); i++) most = fmax(most, fabs((double)t.data[i]));
    return most;
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
    CHECK(d <= tolerance, "%s: off by %g, allowed %g; largest %g", what, d, tolerance,
          largest(want));
}

/* ---- text encoders ------------------------------------------------------------------------- */

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

/* ---- U-Net --------------------------------------------------------------------------------- */

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
    /* The tolerance is meant for values of about 2; inside, the stream grows to 8. */
    compare(b, value, want, UNET_TOLERANCE * fmax(1, largest(want) / 2), name);
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
    struct unet_case shared = two;
    shared.x = sample(two.x, 1);
    memcpy(two.x.data, shared.x.data, (size_t)tensor_count(shared.x) * sizeof *two.x.data);
    both = run_case(b, unet, &two, 1.0f);
    struct tensor answer = run_case(b, unet, &shared, 1.0f);
    CHECK(tensor_count(answer) == tensor_count(both) && tensor_count(both) > 0 &&
              memcmp(answer.data, both.data, (size_t)tensor_count(both) * sizeof(float)) == 0,
          "%s: one latent for both samples differs from two equal ones", model);
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

/* A dry arena tells exactly what a run will need, without a run. */
static void check_dry(struct bench *b)
{
    struct weights *weights = open_weights(MODELS "/tiny-sdxl/unet");
    struct weights *vae_weights = open_weights(MODELS "/tiny-sd1/vae");
    struct unet *unet = open_unet(b, "tiny-sdxl", weights);
    struct config_vae config;
    config_read_vae(MODELS "/tiny-sd1/vae/config.json", &config, &b->err);
    struct vae *vae = vae_load(&config.net, vae_weights, &b->err);
    if (!unet || !vae) return;
    b->ops.cache = NULL;
    size_t mark = arena_mark(&b->arena), peaks[2][2];
    static const float ids[12];
    for (int dry = 0; dry < 2; dry++) {
        b->arena.dry = dry == 1;
        b->arena.peak_bytes = 0;
        struct tensor x = tensor_new4(&b->arena, 1, 11, 16, 4, &b->err);
        struct tensor context = tensor_new3(&b->arena, 2, 77, unet_context_width(unet), &b->err);
        struct tensor pooled =
            tensor_new(&b->arena, 2, (int64_t[]){2, unet_pooled_width(unet)}, &b->err);
        if (!dry) {
            memset(x.data, 0, (size_t)tensor_count(x) * sizeof *x.data);
            memset(context.data, 0, (size_t)tensor_count(context) * sizeof *x.data);
            memset(pooled.data, 0, (size_t)tensor_count(pooled) * sizeof *x.data);
        }
        struct unet_conditioning *c = unet_condition(unet, &b->ops, context, pooled, ids, 1.0f);
        struct tensor y = unet_forward(unet, &b->ops, x, 1.0f, c);
        CHECK(y.rank == 4 && y.dim[0] == 2 && y.dim[1] == 11, "dry %d: %s", dry, b->err.message);
        peaks[dry][0] = b->arena.peak_bytes;
        b->arena.peak_bytes = 0;
        y = vae_decode(vae, &b->ops, x);
        CHECK(y.rank == 4 && y.dim[2] == 128, "dry %d: %s", dry, b->err.message);
        peaks[dry][1] = b->arena.peak_bytes;
        arena_reset(&b->arena, mark);
    }
    b->arena.dry = false;
    for (int i = 0; i < 2; i++)
        CHECK(peaks[0][i] == peaks[1][i], "%d: needed %zu bytes, told %zu", i, peaks[0][i],
              peaks[1][i]);
    b->ops.cache = b->cache;
    unet_free(unet);
    vae_free(vae);
    weights_close(vae_weights);
    close_weights(b, weights);
}

/* ---- VAE ----------------------------------------------------------------------------------- */

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
    struct tensor want = take(p->bench, w);
    compare(p->bench, value, want, VAE_TOLERANCE * fmax(1, largest(want) / 4), name);
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

/* ---- single files -------------------------------------------------------------------------- */

/* The same networks from an LDM file with its numbers beside it. */
static void check_single_file(struct bench *b, const char *model)
{
    char path[256];
    snprintf(path, sizeof path, MODELS "/%s.ldm.safetensors", model);
    json_t *beside = NULL;
    struct weights *all = open_weights("%s", path);
    struct weights *text = open_weights(MODELS "/%s/golden_text.safetensors", model);
    struct weights *golden = open_weights(MODELS "/%s/golden_unet.safetensors", model);
    struct weights *golden_vae = open_weights(MODELS "/%s/golden_vae.safetensors", model);
    CHECK(config_read_beside(path, &beside, &b->err) && beside, "%s: %s", path, b->err.message);
    struct config_unet unet_config;
    struct config_vae vae_config;
    struct config_clip clip_config;
    bool ok =
        config_parse_unet(config_beside_part(beside, "unet"), path, &unet_config, &b->err) &&
        config_parse_vae(config_beside_part(beside, "vae"), path, &vae_config, &b->err) &&
        config_parse_clip(config_beside_part(beside, "text_encoder"), path, &clip_config, &b->err);
    CHECK(ok && all && text && golden && golden_vae, "%s: %s", path, b->err.message);
    if (!ok || !all) return;
    struct unet *unet = unet_load(&unet_config.net, weights_part(all, "unet"), &b->err);
    struct vae *vae = vae_load(&vae_config.net, weights_part(all, "vae"), &b->err);
    struct clip *clip = clip_load(&clip_config.net, weights_part(all, "text_encoder"), &b->err);
    CHECK(unet && vae && clip, "%s: %s", path, b->err.message);
    size_t mark = arena_mark(&b->arena);
    struct unet_case c;
    if (unet && take_case(b, golden, "d16x24", 0, &c))
        compare(b, run_case(b, unet, &c, 1.0f), c.want, UNET_TOLERANCE, path);
    if (vae)
        compare(b, vae_decode(vae, &b->ops, take(b, find(golden_vae, "dec.b6x10.z"))),
                take(b, find(golden_vae, "dec.b6x10.out")), VAE_TOLERANCE, path);
    struct clip_output out;
    int32_t ids[3 * 77];
    memcpy(ids, find(text, "te1.input_ids")->data, sizeof ids);
    if (clip && clip_forward(clip, &b->ops, ids, 3, 77, 0, true, false, &out))
        compare(b, out.hidden, take(b, find(text, "te1.last_hidden_state")), TEXT_TOLERANCE, path);
    arena_reset(&b->arena, mark);
    unet_free(unet);
    vae_free(vae);
    clip_free(clip);
    json_decref(beside);
    weights_close(text);
    weights_close(golden);
    weights_close(golden_vae);
    close_weights(b, all);
}

/* SD 1's heads and groups can be told from the tensors. */
static void check_guess(struct bench *b)
{
    struct weights *weights = open_weights(MODELS "/tiny-sd1/unet");
    struct weights *golden = open_weights(MODELS "/tiny-sd1/golden_unet.safetensors");
    struct config_unet config;
    if (!weights || !golden) return;
    CHECK(config_guess_unet(weights, 0, &config, &b->err), "%s", b->err.message);
    struct unet *unet = unet_load(&config.net, weights, &b->err);
    CHECK(unet, "%s", b->err.message);
    size_t mark = arena_mark(&b->arena);
    struct unet_case c;
    if (unet && take_case(b, golden, "c16x16", 0, &c))
        compare(b, run_case(b, unet, &c, 1.0f), c.want, UNET_TOLERANCE, "guessed U-Net");
    arena_reset(&b->arena, mark);
    config.net.n_heads[0] = 7;
    CHECK(!unet_load(&config.net, weights, &b->err) &&
              strstr(b->err.message, "guessed for want of a config"),
          "%s", b->err.message);
    b->err = (struct dk_error){.code = DK_OK};
    CHECK(!config_guess_unet(golden, 0, &config, &b->err) && b->err.code == DK_ERROR_MODEL,
          "a U-Net guessed from something else");
    b->err = (struct dk_error){.code = DK_OK};
    unet_free(unet);
    close_weights(b, weights);
    weights_close(golden);
}

/* ---- models made of others: distilled, spelled otherwise, damaged -------------------------- */

#define MAX_TENSORS 1024

/* Tensors on their way into a new file: names may be changed, data stays where it is. */
struct edited {
    struct weight items[MAX_TENSORS];
    char names[MAX_TENSORS][128];
    int n;
};

static void edited_add(struct edited *e, const struct weight *w)
{
    if (e->n == MAX_TENSORS) return;
    e->items[e->n] = *w;
    snprintf(e->names[e->n++], sizeof e->names[0], "%s", w->name);
}

static void edited_take(struct edited *e, const struct weights *from)
{
    e->n = 0;
    for (size_t i = 0; i < weights_count(from); i++) edited_add(e, weights_at(from, i));
}

static void edited_remove(struct edited *e, int i)
{
    e->items[i] = e->items[--e->n];
    memcpy(e->names[i], e->names[e->n], sizeof e->names[0]);
}

/* Removes all whose name contains piece. */
static void edited_drop(struct edited *e, const char *piece)
{
    for (int i = e->n - 1; i >= 0; i--)
        if (strstr(e->names[i], piece)) edited_remove(e, i);
}

static void edited_rename(struct edited *e, const char *from, const char *to)
{
    for (int i = 0; i < e->n; i++) {
        char *at = strstr(e->names[i], from), tail[128];
        if (!at) continue;
        snprintf(tail, sizeof tail, "%s", at + strlen(from));
        snprintf(at, sizeof e->names[0] - (size_t)(at - e->names[i]), "%s%s", to, tail);
    }
}

static struct weight *edited_find(struct edited *e, const char *name)
{
    for (int i = 0; i < e->n; i++)
        if (strcmp(e->names[i], name) == 0) return &e->items[i];
    return NULL;
}

static const char *scratch(const char *name)
{
    static char path[256];
    const char *build = getenv("BUILD");
    snprintf(path, sizeof path, "%s/tests/%s", build ? build : "build", name);
    return path;
}

/* As a safetensors file; the header's text is left in *header for who wants to damage it. */
static void edited_write(const struct edited *e, const char *path, char **header)
{
    size_t room = (size_t)e->n * 256 + 16, used = 1, offset = 0;
    char *text = malloc(room);
    text[0] = '{';
    for (int i = 0; i < e->n; i++) {
        const struct weight *w = &e->items[i];
        size_t bytes = weights_byte_count(w);
        used += (size_t)snprintf(text + used, room - used, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[",
                                 i ? "," : "", e->names[i],
                                 w->dtype == DTYPE_F16   ? "F16"
                                 : w->dtype == DTYPE_F32 ? "F32"
                                                         : "I64");
        for (int d = 0; d < w->rank; d++)
            used += (size_t)snprintf(text + used, room - used, "%s%lld", d ? "," : "",
                                     (long long)w->dim[d]);
        used += (size_t)snprintf(text + used, room - used, "],\"data_offsets\":[%zu,%zu]}", offset,
                                 offset + bytes);
        offset += bytes;
    }
    text[used++] = '}';
    FILE *f = fopen(path, "wb");
    uint64_t length = used;
    fwrite(&length, sizeof length, 1, f);
    fwrite(text, 1, used, f);
    for (int i = 0; i < e->n; i++) fwrite(e->items[i].data, 1, weights_byte_count(&e->items[i]), f);
    fclose(f);
    text[used - 1] = '\0';
    if (header)
        *header = text;
    else
        free(text);
}

/* The LCM guidance embedding on tiny-sd1. */
static void check_lcm(struct bench *b)
{
    static struct edited e;
    static const float guidance[] = {1.0f, 7.5f, 8.5f};
    struct weights *plain = open_weights(MODELS "/tiny-sd1/unet");
    struct weights *golden = open_weights(MODELS "/tiny-sd1/golden_unet.safetensors");
    struct weights *lcm = open_weights("tests/golden/lora/lcm_cond.safetensors");
    if (!plain || !golden || !lcm) return;
    edited_take(&e, plain);
    edited_add(&e, weights_find(lcm, "time_embedding.cond_proj.weight"));
    edited_write(&e, scratch("lcm.safetensors"), NULL);
    struct weights *weights = open_weights("%s", scratch("lcm.safetensors"));
    struct unet *unet = open_unet(b, "tiny-sd1", weights);
    size_t mark = arena_mark(&b->arena);
    struct unet_case c;
    for (int i = 0; unet && i < 3 && take_case(b, golden, "a16x8", 0, &c); i++) {
        char what[64];
        snprintf(what, sizeof what, "w%.1f.unet_out", (double)guidance[i]);
        compare(b, run_case(b, unet, &c, guidance[i]), take(b, find(lcm, "%s", what)),
                UNET_TOLERANCE, what);
        arena_reset(&b->arena, mark);
    }
    CHECK(unet && unet_guidance_width(unet) == 256, "guidance width");
    unet_free(unet);
    close_weights(b, weights);
    weights_close(lcm);
    weights_close(golden);
    weights_close(plain);
}

/* Asked the same again, what was kept gives the same bytes, whatever the network has and lacks. */
static void check_reuse(struct bench *b, const struct unet *unet, struct tensor x,
                        const struct unet_conditioning *c, struct tensor want, const char *what)
{
    size_t bytes = (size_t)tensor_count(want) * sizeof *want.data;
    for (int branch = 0; branch < unet_skips(unet); branch++) {
        struct unet_saving saving = {.deep = true, .cross = true, .branch = branch};
        struct unet_reuse *reuse =
            unet_reuse_new(unet, &b->ops, &saving, x.dim[0], x.dim[1], x.dim[2]);
        for (int taken = 0; reuse && taken < 2; taken++) {
            struct tensor y =
                unet_forward_reusing(unet, &b->ops, x, 321.5f, c, reuse, taken, taken);
            CHECK(tensor_count(y) == tensor_count(want) && memcmp(y.data, want.data, bytes) == 0,
                  "%s, branch %d: other bytes when asked again: %s", what, branch, b->err.message);
        }
    }
    struct unet_saving merging = {.merge = 0.5};
    struct unet_reuse *reuse =
        unet_reuse_new(unet, &b->ops, &merging, x.dim[0], x.dim[1], x.dim[2]);
    struct tensor y = unet_forward_reusing(unet, &b->ops, x, 321.5f, c, reuse, false, false);
    CHECK(tensor_count(y) == tensor_count(want) && op_all_finite(&b->ops, y),
          "%s: merging tokens: %s", what, b->err.message);
}

/*
 * A U-Net of other proportions: loads with this config, runs at an odd size and gives finite
 * values.
 */
static void check_variant(struct bench *b, const struct edited *e, const struct unet_config *config,
                          bool wanted, const char *what)
{
    edited_write(e, scratch("variant.safetensors"), NULL);
    struct weights *weights = open_weights("%s", scratch("variant.safetensors"));
    struct unet *unet = weights ? unet_load(config, weights, &b->err) : NULL;
    CHECK((unet != NULL) == wanted, "%s: %s", what, unet ? "was accepted" : b->err.message);
    b->err.code = DK_OK;
    size_t mark = arena_mark(&b->arena);
    if (unet) {
        float ids[6] = {64, 64, 0, 0, 64, 64};
        struct tensor x = tensor_new4(&b->arena, 1, 10, 7, unet_in_channels(unet), &b->err);
        struct tensor context = tensor_new3(&b->arena, 1, 5, unet_context_width(unet), &b->err);
        int64_t pooled_width[] = {1, unet_pooled_width(unet)};
        struct tensor pooled = {0};
        if (pooled_width[1]) pooled = tensor_new(&b->arena, 2, pooled_width, &b->err);
        for (int64_t i = 0; i < tensor_count(x); i++) x.data[i] = sinf((float)i);
        for (int64_t i = 0; i < tensor_count(context); i++) context.data[i] = cosf((float)i);
        for (int64_t i = 0; i < tensor_count(pooled); i++) pooled.data[i] = sinf(0.5f * (float)i);
        struct unet_conditioning *c = unet_condition(unet, &b->ops, context, pooled, ids, 1.0f);
        struct tensor y = unet_forward(unet, &b->ops, x, 321.5f, c);
        CHECK(tensor_count(y) == 10 * 7 * unet_out_channels(unet) && op_all_finite(&b->ops, y),
              "%s: %s", what, b->err.message);
        check_reuse(b, unet, x, c, y, what);
    }
    arena_reset(&b->arena, mark);
    unet_free(unet);
    close_weights(b, weights);
}

static void check_distilled(struct bench *b)
{
    static struct edited e;
    struct config_unet c;
    struct weights *sd1 = open_weights(MODELS "/tiny-sd1/unet");
    struct weights *xl = open_weights(MODELS "/tiny-sdxl/unet");
    if (!sd1 || !xl) return;
    config_read_unet(MODELS "/tiny-sd1/unet/config.json", &c, &b->err);
    struct unet_config config = c.net, guess = c.net;
    guess.n_levels = 0;

    edited_take(&e, sd1); /* BK-SDM-Tiny: no mid block */
    edited_drop(&e, "mid_block.");
    check_variant(b, &e, &config, false, "no mid block, but in the config");
    config.mid_block = false;
    check_variant(b, &e, &config, true, "no mid block");
    config.mid_block = true;

    edited_take(&e, sd1); /* SSD-1B: a mid block of one ResNet */
    edited_drop(&e, "mid_block.resnets.1");
    edited_drop(&e, "mid_block.attentions");
    check_variant(b, &e, &config, true, "mid block without attention");

    edited_take(&e, sd1); /* BK-SDM-Small: one layer down, two up */
    for (int i = 0; i < 3; i++) {
        static const char *const parts[] = {"resnets", "attentions"};
        for (int k = 0; k < 2; k++) {
            char from[64], to[64];
            snprintf(from, sizeof from, "down_blocks.%d.%s.1.", i, parts[k]);
            edited_drop(&e, from);
            snprintf(to, sizeof to, "up_blocks.%d.%s.1.", i, parts[k]);
            edited_drop(&e, to);
            snprintf(from, sizeof from, "up_blocks.%d.%s.2.", i, parts[k]);
            edited_rename(&e, from, to);
        }
    }
    check_variant(b, &e, &config, false, "one layer a block, but two in the config");
    for (int i = 0; i < 3; i++) config.layers[i] = 1;
    check_variant(b, &e, &config, true, "one layer a block");
    check_variant(b, &e, &guess, true, "one layer a block, unknown config");

    edited_take(&e, sd1); /* attention missing at one level */
    edited_drop(&e, "down_blocks.0.attentions");
    check_variant(b, &e, &c.net, false, "a level without attention, but in the config");
    check_variant(b, &e, &guess, true, "a level without attention");

    edited_take(&e, sd1); /* inpainting: 9 channels in */
    static float nine[32 * 9 * 9];
    for (size_t i = 0; i < sizeof nine / sizeof *nine; i++) nine[i] = 0.01f * (float)(i % 7);
    struct weight *conv_in = edited_find(&e, "conv_in.weight");
    *conv_in = (struct weight){.data = nine,
                               .dtype = DTYPE_F32,
                               .rank = 4,
                               .dim = {32, 9, 3, 3},
                               .name = "conv_in.weight"};
    check_variant(b, &e, &c.net, true, "nine channels in");

    edited_take(&e, sd1);
    static const int64_t integers[32] = {1};
    *edited_find(&e, "conv_norm_out.weight") = (struct weight){.data = integers,
                                                               .dtype = DTYPE_I64,
                                                               .rank = 1,
                                                               .dim = {32},
                                                               .name = "conv_norm_out.weight"};
    check_variant(b, &e, &c.net, false, "a gain of integers");

    edited_take(&e, sd1);
    edited_drop(&e, "up_blocks.1.resnets.2");
    edited_drop(&e, "up_blocks.1.attentions.2");
    check_variant(b, &e, &guess, false, "an up block too short");

    edited_take(&e, xl); /* SSD-1B, Vega: depths that differ within a block */
    config_read_unet(MODELS "/tiny-sdxl/unet/config.json", &c, &b->err);
    guess = c.net;
    guess.n_levels = 0;
    edited_drop(&e, "up_blocks.0.attentions.1.transformer_blocks.1");
    check_variant(b, &e, &c.net, false, "uneven depths, but even ones in the config");
    check_variant(b, &e, &guess, true, "uneven depths");
    weights_close(sd1);
    weights_close(xl);
}

/* Other spellings of the VAE's attention, and parts left out. */
static void check_vae_variants(struct bench *b)
{
    static struct edited e;
    static const char *const spelled[][4] = {{"query", "key", "value", "proj_attn"},
                                             {"q", "k", "v", "proj_out"}};
    static const char *const plain[] = {".to_q.", ".to_k.", ".to_v.", ".to_out.0."};
    struct weights *from = open_weights(MODELS "/tiny-sd2/vae");
    struct weights *golden = open_weights(MODELS "/tiny-sd2/golden_vae.safetensors");
    if (!from || !golden) return;
    struct config_vae config;
    config_read_vae(MODELS "/tiny-sd2/vae/config.json", &config, &b->err);
    for (int i = 0; i < 3; i++) {
        edited_take(&e, from);
        for (int k = 0; i < 2 && k < 4; k++) {
            char to[32];
            snprintf(to, sizeof to, ".%s.", spelled[i][k]);
            edited_rename(&e, plain[k], to);
        }
        for (int k = 0; k < e.n; k++) /* as 1x1 convolutions */
            if (i < 2 && strstr(e.names[k], "attentions.0.") && e.items[k].rank == 2)
                e.items[k].rank = 4, e.items[k].dim[2] = e.items[k].dim[3] = 1;
        if (i == 1) edited_rename(&e, ".group_norm.", ".norm.");
        if (i == 2) { /* only what decoding needs */
            edited_drop(&e, "encoder.");
            for (int k = e.n - 1; k >= 0; k--)
                if (strncmp(e.names[k], "quant_conv.", 11) == 0) edited_remove(&e, k);
        }
        edited_write(&e, scratch("variant.safetensors"), NULL);
        struct weights *weights = open_weights("%s", scratch("variant.safetensors"));
        struct vae *vae = weights ? vae_load(&config.net, weights, &b->err) : NULL;
        CHECK(vae, "spelling %d: %s", i, b->err.message);
        size_t mark = arena_mark(&b->arena);
        if (vae) {
            compare(b, vae_decode(vae, &b->ops, take(b, find(golden, "dec.a8x8.z"))),
                    take(b, find(golden, "dec.a8x8.out")), VAE_TOLERANCE, "decode, respelled");
            struct tensor x = take(b, find(golden, "enc.a8x8.x"));
            struct tensor y = vae_encode(vae, &b->ops, x);
            CHECK((y.rank != 0) == (i != 2), "spelling %d: encoded: %d", i, y.rank);
            CHECK(i != 2 || b->err.code == DK_ERROR_MODEL, "encoding without an encoder");
            b->err.code = DK_OK;
        }
        arena_reset(&b->arena, mark);
        vae_free(vae);
        close_weights(b, weights);
    }
    weights_close(golden);
    weights_close(from);
}

/*
 * Tiles cover the picture with weights that add up to one: a decoder that answers its last bias
 * everywhere does so through tiles too. What fits into one tile is not touched by them.
 */
static void check_tiles(struct bench *b)
{
    static struct edited e;
    static const float zeros[3 * 32 * 9];
    struct weights *from = open_weights(MODELS "/tiny-sd2/vae");
    if (!from) return;
    struct config_vae config;
    config_read_vae(MODELS "/tiny-sd2/vae/config.json", &config, &b->err);
    edited_take(&e, from);
    *edited_find(&e, "decoder.conv_out.weight") =
        (struct weight){.data = zeros,
                        .dtype = DTYPE_F32,
                        .rank = 4,
                        .dim = {3, 32, 3, 3},
                        .name = "decoder.conv_out.weight"};
    *edited_find(&e, "decoder.conv_out.bias") =
        (struct weight){.data = (const float[]){0.25f, -0.5f, 0.75f},
                        .dtype = DTYPE_F32,
                        .rank = 1,
                        .dim = {3},
                        .name = "decoder.conv_out.bias"};
    edited_write(&e, scratch("tiles.safetensors"), NULL);
    struct weights *flat = open_weights("%s", scratch("tiles.safetensors"));
    struct vae *plain = vae_load(&config.net, from, &b->err);
    struct vae *vae = flat ? vae_load(&config.net, flat, &b->err) : NULL;
    CHECK(plain && vae, "%s", b->err.message);
    size_t mark = arena_mark(&b->arena);
    static const int64_t shapes[][4] = {{7, 9, 4, 1}, {12, 5, 4, 0}, {5, 13, 5, 2}, {9, 9, 1, 3}};
    for (size_t i = 0; vae && i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t *s = shapes[i];
        struct tensor z = tensor_new4(&b->arena, 2, s[0], s[1], 4, &b->err);
        for (int64_t k = 0; k < tensor_count(z); k++) z.data[k] = sinf((float)k);
        struct tensor y = vae_decode_tiled(vae, &b->ops, z, s[2], s[3]);
        double worst = y.rank == 4 && y.dim[1] == 8 * s[0] && y.dim[2] == 8 * s[1] ? 0 : 1;
        for (int64_t k = 0; k < tensor_count(y); k++) {
            double want = k % 3 == 0 ? 0.25 : k % 3 == 1 ? -0.5 : 0.75;
            worst = fmax(worst, fabs((double)y.data[k] - want));
        }
        CHECK(worst < 1e-6, "tiles of %d: off by %g: %s", (int)s[2], worst, b->err.message);
        struct tensor whole = vae_decode(plain, &b->ops, z);
        struct tensor tile = vae_decode_tiled(plain, &b->ops, z, 13, 2);
        CHECK(tensor_count(tile) == tensor_count(whole) &&
                  memcmp(tile.data, whole.data, (size_t)tensor_count(whole) * sizeof(float)) == 0,
              "one tile differs from the whole");
        arena_reset(&b->arena, mark);
    }
    vae_free(plain);
    vae_free(vae);
    weights_close(flat);
    close_weights(b, from);
}

/* What a file is read as: the first that is not NULL. */
struct nets {
    const struct unet_config *unet;
    const struct vae_config *vae;
    const struct clip_config *clip;
};

/* Writes text over the header at at, loads, puts back what was there.
 * The error names the tensor. */
static void check_damage(struct bench *b, FILE *f, const char *header, const char *at,
                         const char *text, const struct nets *nets, const char *name)
{
    long place = at - header + 8;
    fseek(f, place, SEEK_SET);
    fwrite(text, 1, strlen(text), f);
    fflush(f);
    struct weights *weights = open_weights("%s", scratch("missing.safetensors"));
    struct unet *unet = NULL;
    struct vae *vae = NULL;
    struct clip *clip = NULL;
    if (nets->unet)
        unet = unet_load(nets->unet, weights, &b->err);
    else if (nets->vae)
        vae = vae_load(nets->vae, weights, &b->err);
    else
        clip = clip_load(nets->clip, weights, &b->err);
    bool refused = !unet && !vae && !clip;
    CHECK(refused && b->err.code == DK_ERROR_MODEL && strstr(b->err.message, name),
          "%s with %s: %s", name, text, refused ? b->err.message : "was accepted");
    unet_free(unet);
    vae_free(vae);
    clip_free(clip);
    b->err = (struct dk_error){.code = DK_OK};
    weights_close(weights);
    fseek(f, place, SEEK_SET);
    fwrite(at, 1, strlen(text), f);
}

/*
 * Any tensor missing is an error that names it; one of a turned shape an error that names it or
 * what no longer fits.
 */
static void check_missing(struct bench *b, const char *model, const char *part)
{
    static struct edited e;
    struct weights *from = open_weights(MODELS "/%s/%s", model, part);
    if (!from) return;
    char path[256], *header;
    struct config_unet unet;
    struct config_vae vae;
    struct config_clip clip;
    snprintf(path, sizeof path, MODELS "/%s/%s/config.json", model, part);
    bool is_unet = strcmp(part, "unet") == 0, is_vae = strcmp(part, "vae") == 0;
    CHECK(is_unet  ? config_read_unet(path, &unet, &b->err)
          : is_vae ? config_read_vae(path, &vae, &b->err)
                   : config_read_clip(path, &clip, &b->err),
          "%s", b->err.message);
    edited_take(&e, from);
    edited_drop(&e, "position_ids");
    edited_write(&e, scratch("missing.safetensors"), &header);
    FILE *f = fopen(scratch("missing.safetensors"), "r+b");
    const struct nets nets = {is_unet ? &unet.net : NULL, is_vae ? &vae.net : NULL, &clip.net};
    int n_swapped = 0;
    for (int i = 0; i < e.n; i++) {
        char quoted[140], text[64];
        snprintf(quoted, sizeof quoted, "\"%s\"", e.names[i]);
        char *at = strstr(header, quoted);
        snprintf(text, sizeof text, "X\""); /* .weight becomes .weighX */
        check_damage(b, f, header, at + strlen(quoted) - 2, text, &nets, e.names[i]);
        const int64_t *dim = e.items[i].dim;
        if (e.items[i].rank < 2 || dim[0] == dim[1]) continue;
        /* [64,32 becomes [32,64, which has as many bytes */
        int length =
            snprintf(text, sizeof text, "[%lld,%lld", (long long)dim[1], (long long)dim[0]);
        char *shape = strchr(at, '[');
        if (strcspn(shape + 1, ",]") + 1 + (size_t)snprintf(NULL, 0, "%lld", (long long)dim[1]) +
                1 !=
            (size_t)length)
            continue;
        check_damage(b, f, header, shape, text, &nets, "tensor ");
        n_swapped++;
    }
    CHECK(n_swapped > 4, "%s: only %d shapes could be turned", part, n_swapped);
    fclose(f);
    free(header);
    weights_close(from);
}

int main(void)
{
    static const unsigned kernel_sets[] = {KERNELS_SCALAR, 0};
    for (size_t i = 0; i < 2; i++) {
        struct bench bench;
        if (!bench_open(&bench, kernel_sets[i], (size_t)64 << 20)) break;
        check_text(&bench);
        check_unets(&bench);
        check_vae_model(&bench, "tiny-sd1");
        check_vae_model(&bench, "tiny-sd2");
        check_vae_model(&bench, "tiny-sdxl");
        check_lcm(&bench);
        if (kernel_sets[i] == 0) {
            check_dry(&bench);
            check_single_file(&bench, "tiny-sd1");
            check_single_file(&bench, "tiny-sd2");
            check_single_file(&bench, "tiny-sdxl");
            check_guess(&bench);
            check_distilled(&bench);
            check_vae_variants(&bench);
            check_tiles(&bench);
            check_missing(&bench, "tiny-sdxl", "unet");
            check_missing(&bench, "tiny-sd1", "vae");
            check_missing(&bench, "tiny-sdxl", "text_encoder_2");
        }
        bench_close(&bench);
    }
    return check_end("checknets");
}
