/* checkless.c - doing less work: reuse across calls and token merging, in the U-Net and in runs. */
/* SPDX-License-Identifier: MIT */
#include "check.h"
#include "kernels/dtype.h"
#include "nets/unet_parts.h"
#include "ops/meter.h"
#include "pipeline/memory.h"
#include "pipeline/passes.h"
#include "pipeline/resolve.h"

#include <stdlib.h>
#include <string.h>

#define MODELS    "tests/golden/models/"
#define TOLERANCE 2e-5

static struct dk_error err;

/* ---- one U-Net, asked with made-up latents and texts ---------------------------------------- */

#define H 10 /* of the latent: odd halves */
#define W 12

struct net {
    struct dk_model *model;
    const struct unet *unet;
    struct ops ops;
    struct meter meter;
    size_t mark;
};

static bool net_open(struct net *net, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, MODELS "%s", name);
    struct dk_model_options options = {.n_threads = 2};
    *net = (struct net){.model = dk_model_open(path, &options, &err)};
    CHECK(net->model, "%s: %s", name, err.message);
    if (!net->model) return false;
    net->unet = net->model->unet;
    net->ops = model_ops(net->model, NULL, &err);
    net->ops.meter = &net->meter;
    net->mark = arena_mark(net->ops.arena);
    return true;
}

static void net_clear(struct net *net)
{
    arena_reset(net->ops.arena, net->mark);
    net->meter = (struct meter){0};
}

static void net_close(struct net *net)
{
    dk_model_close(net->model);
}

static struct tensor waves(struct net *net, int rank, const int64_t *dim, float phase)
{
    struct tensor t = tensor_new(net->ops.arena, rank, dim, &err);
    for (int64_t i = 0; i < tensor_count(t); i++)
        t.data[i] = 1.5f * sinf(phase + (float)(i * i % 1013));
    return t;
}

static struct tensor latents(struct net *net, int64_t n, float phase)
{
    return waves(net, 4, (int64_t[]){n, H, W, unet_in_channels(net->unet)}, phase);
}

static struct unet_conditioning *condition(struct net *net, struct tensor context)
{
    float ids[4][6] = {{64, 64, 0, 0, 64, 64}, {64, 64, 0, 0, 64, 64}};
    struct tensor pooled = {0};
    if (unet_pooled_width(net->unet))
        pooled = waves(net, 2, (int64_t[]){context.dim[0], unet_pooled_width(net->unet)}, 0.5f);
    for (int64_t i = pooled.rank ? pooled.dim[1] : 0; i < tensor_count(pooled); i++)
        pooled.data[i] = pooled.data[i % pooled.dim[1]];
    memcpy(ids[2], ids[0], 2 * sizeof ids[0]);
    return unet_condition(net->unet, &net->ops, context, pooled, &ids[0][0], 1.0f);
}

static struct unet_conditioning *texts(struct net *net, int64_t n, int64_t tokens, float phase)
{
    return condition(net,
                     waves(net, 3, (int64_t[]){n, tokens, unet_context_width(net->unet)}, phase));
}

static size_t calls(const struct net *net, enum meter_kind kind)
{
    return net->meter.entries[0][kind].n_calls;
}

static bool same(struct tensor a, struct tensor b)
{
    size_t bytes = (size_t)tensor_count(a) * sizeof *a.data;
    return a.rank == 4 && b.rank == 4 && tensor_count(a) == tensor_count(b) &&
           memcmp(a.data, b.data, bytes) == 0;
}

static double distance(struct tensor a, struct tensor b)
{
    if (a.rank == 0 || tensor_count(a) != tensor_count(b)) return INFINITY;
    return check_distance(a.data, b.data, (size_t)tensor_count(a));
}

static struct unet_reuse *reuse_new(struct net *net, double merge, bool deep, bool cross,
                                    int branch, int64_t n)
{
    struct unet_saving saving = {.merge = merge, .deep = deep, .cross = cross, .branch = branch};
    struct unet_reuse *reuse = unet_reuse_new(net->unet, &net->ops, &saving, n, H, W);
    CHECK(reuse, "%s", err.message);
    return reuse;
}

/*
 * Asked the same again, what was kept is what would be computed: the same bytes whatever is taken,
 * for every branch, one latent for both halves. And what is taken is not computed.
 */
static void check_asked_again(struct net *net, const char *name)
{
    int n_skips = unet_skips(net->unet);
    for (int branch = 0; branch < n_skips; branch++) {
        struct tensor x = latents(net, 1, 1);
        struct unet_conditioning *c = texts(net, 2, 7, 2);
        net->meter = (struct meter){0};
        struct tensor want = unet_forward(net->unet, &net->ops, x, 700, c);
        size_t plain_convs = calls(net, METER_CONV_3), plain_looks = calls(net, METER_ATTENTION);
        struct unet_reuse *reuse = reuse_new(net, 0, true, true, branch, 2);
        if (!reuse) return;
        struct tensor y =
            unet_forward_reusing(net->unet, &net->ops, x, 700, c, reuse, false, false);
        CHECK(same(y, want), "%s, branch %d: to keep something changes the answer", name, branch);
        for (int kind = 1; kind < 4; kind++) {
            net->meter = (struct meter){0};
            y = unet_forward_reusing(net->unet, &net->ops, x, 700, c, reuse, kind & 1, kind & 2);
            CHECK(same(y, want), "%s, branch %d, taking %d: off by %g", name, branch, kind,
                  distance(y, want));
            size_t convs = calls(net, METER_CONV_3), looks = calls(net, METER_ATTENTION);
            if (kind == 2)
                CHECK(convs == plain_convs && 2 * looks == plain_looks,
                      "%s: %zu convolutions and %zu attentions, plainly %zu and %zu", name, convs,
                      looks, plain_convs, plain_looks);
            if (branch == 0 && kind & 1) /* conv_in, the last ResNet's two, conv_out */
                CHECK(convs == 4, "%s: %zu convolutions above the finest skip", name, convs);
            if (kind & 1)
                CHECK(convs <= plain_convs && (convs < plain_convs || branch == n_skips - 1) &&
                          looks <= plain_looks,
                      "%s, branch %d: %zu convolutions, plainly %zu", name, branch, convs,
                      plain_convs);
        }
        net_clear(net);
    }
}

/* ---- deep features ------------------------------------------------------------------------- */

/* Takes down what comes out of an up block in one run and puts it into another. */
struct swap {
    char name[16];
    struct tensor value;
    bool put;
    int n_seen;
};

static void swap_value(void *user, const char *name, struct tensor value)
{
    struct swap *s = user;
    if (strcmp(name, s->name) != 0) return;
    size_t bytes = (size_t)tensor_count(value) * sizeof *value.data;
    s->n_seen++;
    if (s->put)
        memcpy(value.data, s->value.data, bytes);
    else
        memcpy(s->value.data, value.data, bytes);
}

/*
 * Another latent at another timestep on kept features is the whole network with these features put
 * in by hand, where a level ends.
 */
static void check_deep(struct net *net, const char *name)
{
    struct unet *unet = net->model->unet;
    int branch = -1;
    for (int up = unet->n_levels - 1; up > 0; up--) {
        struct swap swap = {0};
        branch += unet->up[up].n_layers;
        snprintf(swap.name, sizeof swap.name, "up.%d", up - 1);
        swap.value = tensor_new4(net->ops.arena, 2, 64, 64, 64, &err);
        struct unet_conditioning *c = texts(net, 2, 7, 2);
        struct tensor first = latents(net, 1, 1), second = latents(net, 1, 5);
        unet_set_probe(unet, swap_value, &swap);
        unet_forward(unet, &net->ops, first, 700, c);
        swap.put = true;
        struct tensor want = unet_forward(unet, &net->ops, second, 650, c);
        unet_set_probe(unet, NULL, NULL);
        CHECK(swap.n_seen == 2, "%s: %s was seen %d times", name, swap.name, swap.n_seen);
        struct unet_reuse *reuse = reuse_new(net, 0, true, false, branch, 2);
        if (!reuse) return;
        unet_forward_reusing(unet, &net->ops, first, 700, c, reuse, false, false);
        struct tensor y = unet_forward_reusing(unet, &net->ops, second, 650, c, reuse, true, false);
        struct tensor plain = unet_forward(unet, &net->ops, second, 650, c);
        CHECK(distance(y, want) <= TOLERANCE, "%s, branch %d: off by %g", name, branch,
              distance(y, want));
        CHECK(distance(y, plain) > 1e-4, "%s, branch %d: reuse changes nothing", name, branch);
        net_clear(net);
    }
}

/* ---- cross-attention ----------------------------------------------------------------------- */

/*
 * A text of one token leaves nothing to choose: cross-attention answers W_out W_v token whatever is
 * asked. So what is kept must be the answer for the earlier text at any latent and timestep.
 */
static void check_cross(struct net *net, const char *name)
{
    const struct unet *unet = net->unet;
    int64_t width = unet_context_width(unet);
    struct tensor both = waves(net, 3, (int64_t[]){2, 1, width}, 2);
    struct tensor second = both;
    second.data += width;
    second.dim[0] = 1;
    struct unet_conditioning *c = condition(net, both), *other = texts(net, 2, 1, 9);
    struct unet_conditioning *alone = condition(net, second), *odd = texts(net, 1, 1, 9);
    struct tensor x = latents(net, 1, 1), later = latents(net, 1, 5);
    struct unet_reuse *reuse = reuse_new(net, 0, false, true, 0, 2);
    if (!reuse) return;
    unet_forward_reusing(unet, &net->ops, x, 700, c, reuse, false, false);
    struct tensor want = unet_forward(unet, &net->ops, later, 300, c);
    struct tensor y = unet_forward_reusing(unet, &net->ops, later, 300, other, reuse, false, true);
    struct tensor plain = unet_forward(unet, &net->ops, later, 300, other);
    CHECK(distance(y, want) <= TOLERANCE, "%s: kept answers are off by %g", name,
          distance(y, want));
    CHECK(distance(y, plain) > 1e-4, "%s: the text had no effect anyway", name);
    /* the second half goes on alone, with its own answers whatever the text is now */
    y = unet_forward_reusing(unet, &net->ops, later, 300, odd, reuse, false, true);
    want = unet_forward(unet, &net->ops, later, 300, alone);
    plain = unet_forward(unet, &net->ops, later, 300, odd);
    CHECK(distance(y, want) <= TOLERANCE, "%s: the second half is off by %g", name,
          distance(y, want));
    CHECK(distance(y, plain) > 1e-4, "%s: the text had no effect anyway", name);
    /* two halves again, of which only one is left: computed anew */
    y = unet_forward_reusing(unet, &net->ops, later, 300, other, reuse, false, true);
    want = unet_forward(unet, &net->ops, later, 300, other);
    CHECK(same(y, want), "%s: a missing half was not computed", name);
    struct tensor small = waves(net, 4, (int64_t[]){1, H, W - 1, unet_in_channels(unet)}, 1);
    y = unet_forward_reusing(unet, &net->ops, small, 300, other, reuse, false, true);
    CHECK(y.rank == 0 && strstr(err.message, "room for 2 samples of 12x10"),
          "%s: another size was accepted: %s", name, err.message);
    err = (struct dk_error){.code = DK_OK};
    net_clear(net);
}

/* Features of one half: after a call with both, the second alone goes on with its own. */
static void check_half(struct net *net, const char *name)
{
    const struct unet *unet = net->unet;
    int64_t width = unet_context_width(unet);
    struct tensor both = waves(net, 3, (int64_t[]){2, 7, width}, 2), second = both;
    second.data += 7 * width;
    second.dim[0] = 1;
    struct unet_conditioning *c = condition(net, both), *alone = condition(net, second);
    struct tensor x = latents(net, 1, 1), later = latents(net, 1, 5), answers[2];
    for (int guided = 0; guided < 2; guided++) {
        struct unet_reuse *reuse = reuse_new(net, 0, true, false, 0, 2);
        if (!reuse) return;
        unet_forward_reusing(unet, &net->ops, x, 700, guided ? c : alone, reuse, false, false);
        answers[guided] =
            unet_forward_reusing(unet, &net->ops, later, 650, alone, reuse, true, false);
    }
    CHECK(same(answers[0], answers[1]), "%s: the second half alone goes on with other features",
          name);
    net_clear(net);
}

/* ---- token merging ------------------------------------------------------------------------- */

struct stage {
    struct tensor in, out; /* [tokens, c] around the first block's self-attention */
};

static void keep_stage(void *user, const char *name, struct tensor value)
{
    struct stage *s = user;
    size_t bytes = (size_t)tensor_count(value) * sizeof *value.data;
    if (strcmp(name, "tf0.proj_in") == 0) memcpy(s->in.data, value.data, bytes);
    if (strcmp(name, "tf0.b0.attn1") == 0) memcpy(s->out.data, value.data, bytes);
}

/* y [rows][out] = x [rows][in] times the weight's rows, plus its bias. */
static void plain_linear(const struct linear *l, const double *x, int64_t rows, double *y)
{
    int64_t n_out = linear_out(l), n_in = linear_in(l);
    float *weight = malloc((size_t)(n_out * n_in) * sizeof *weight);
    float *bias = calloc((size_t)n_out, sizeof *bias);
    if (!weight || !bias) abort();
    dtype_unpack(l->weight.dtype, weight, l->weight.data, (size_t)(n_out * n_in));
    if (weight_exists(&l->bias)) dtype_unpack(l->bias.dtype, bias, l->bias.data, (size_t)n_out);
    for (int64_t i = 0; i < rows * n_out; i++) {
        double sum = (double)bias[i % n_out];
        for (int64_t k = 0; k < n_in; k++)
            sum += x[i / n_out * n_in + k] * (double)weight[i % n_out * n_in + k];
        y[i] = sum;
    }
    free(weight);
    free(bias);
}

static void plain_layer_norm(const struct norm *norm, const float *x, int64_t c, double *y)
{
    double mean = 0, variance = 0;
    float gain[256], shift[256];
    dtype_unpack(norm->weight.dtype, gain, norm->weight.data, (size_t)c);
    dtype_unpack(norm->bias.dtype, shift, norm->bias.data, (size_t)c);
    for (int64_t j = 0; j < c; j++) mean += (double)x[j] / (double)c;
    for (int64_t j = 0; j < c; j++) variance += pow((double)x[j] - mean, 2) / (double)c;
    for (int64_t j = 0; j < c; j++)
        y[j] = ((double)x[j] - mean) / sqrt(variance + (double)norm->eps) * (double)gain[j] +
               (double)shift[j];
}

/* x + unmerge(W_out attention(merge(norm(x)))), as the paper has it, in double. */
static void plain_merged(const struct attention *a, struct tensor x, const struct merge *m,
                         double *y)
{
    int64_t tokens = x.dim[1], c = x.dim[2], kept = m->kept, d = c / a->n_heads;
    size_t bytes = (size_t)(tokens * c) * sizeof(double);
    double *buffers = calloc(6, bytes), *score = calloc((size_t)kept, sizeof *score);
    if (!buffers || !score) abort();
    double *h = buffers, *merged = h + tokens * c, *q = merged + tokens * c, *k = q + tokens * c,
           *v = k + tokens * c, *sum = v + tokens * c;
    for (int64_t t = 0; t < tokens; t++) plain_layer_norm(&a->norm, x.data + t * c, c, h + t * c);
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t j = 0; j < c; j++)
            merged[m->place[t] * c + j] += h[t * c + j] * (double)m->share[m->place[t]];
    plain_linear(&a->q, merged, kept, q);
    plain_linear(&a->k, merged, kept, k);
    plain_linear(&a->v, merged, kept, v);
    for (int64_t i = 0; i < kept * a->n_heads; i++) {
        const double *one = q + i / a->n_heads * c + i % a->n_heads * d;
        double total = 0;
        for (int64_t t = 0; t < kept; t++) {
            double dot = 0;
            for (int64_t j = 0; j < d; j++) dot += one[j] * k[t * c + i % a->n_heads * d + j];
            total += score[t] = exp(dot / sqrt((double)d));
        }
        for (int64_t t = 0; t < kept; t++)
            for (int64_t j = 0; j < d; j++)
                sum[i / a->n_heads * c + i % a->n_heads * d + j] +=
                    score[t] / total * v[t * c + i % a->n_heads * d + j];
    }
    plain_linear(&a->out, sum, kept, merged);
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t j = 0; j < c; j++)
            y[t * c + j] = (double)x.data[t * c + j] + merged[m->place[t] * c + j];
    free(buffers);
    free(score);
}

static void check_merge(struct net *net, const char *name, int height, size_t n_blocks)
{
    static const double ratios[] = {0.25, 0.5, 0.75};
    struct unet *unet = net->model->unet;
    const struct attention *a = &unet->first->self;
    int64_t tokens = height * (height * W / H), c = linear_out(&a->out);
    for (size_t i = 0; i < sizeof ratios / sizeof *ratios; i++) {
        struct stage stage;
        stage.in = tensor_new3(net->ops.arena, 1, tokens, c, &err);
        stage.out = tensor_new3(net->ops.arena, 1, tokens, c, &err);
        struct unet_reuse *reuse = reuse_new(net, ratios[i], false, false, 0, 1);
        if (!reuse) return;
        struct unet_conditioning *text = texts(net, 1, 7, 2);
        struct tensor x = latents(net, 1, 1);
        struct tensor plain = unet_forward(unet, &net->ops, x, 700, text);
        unet_set_probe(unet, keep_stage, &stage);
        net->meter = (struct meter){0};
        struct tensor y = unet_forward_reusing(unet, &net->ops, x, 700, text, reuse, false, false);
        unet_set_probe(unet, NULL, NULL);
        CHECK(calls(net, METER_MERGE) == 3 * n_blocks, "%s: %zu merges in %zu blocks", name,
              calls(net, METER_MERGE), n_blocks);
        CHECK(y.rank == 4 && distance(y, plain) > 1e-5, "%s: merging %g changes nothing", name,
              ratios[i]);
        struct merge m = op_merge_plan(&net->ops, stage.in, height, ratios[i]);
        int64_t fewest = (height + 1) / 2 * ((tokens / height + 1) / 2),
                kept = tokens - (int64_t)(ratios[i] * (double)tokens);
        CHECK(m.kept == (kept > fewest ? kept : fewest), "%s: %d of %d kept", name, (int)m.kept,
              (int)tokens);
        double *want = malloc((size_t)(tokens * c) * sizeof *want), worst = 0;
        if (!want) abort();
        plain_merged(a, stage.in, &m, want);
        for (int64_t j = 0; j < tokens * c; j++)
            worst = fmax(worst, fabs(want[j] - (double)stage.out.data[j]));
        CHECK(worst <= TOLERANCE, "%s: merging %g is off by %g", name, ratios[i], worst);
        free(want);
        net_clear(net);
    }
}

/* Room is told by a dry run, and a sample of a batch is what it is alone. */
static void check_room(struct net *net, const char *name)
{
    size_t peaks[2];
    for (int dry = 0; dry < 2; dry++) {
        struct unet_conditioning *c = texts(net, 2, 7, 2);
        struct tensor x = latents(net, 1, 1);
        net->ops.arena->dry = dry == 1;
        net->ops.arena->peak_bytes = 0;
        struct unet_reuse *reuse = reuse_new(net, 0.5, true, true, 1, 2);
        for (int kind = 0; reuse && kind < 4; kind++)
            unet_forward_reusing(net->unet, &net->ops, x, 700, c, reuse, kind & 1, kind & 2);
        peaks[dry] = net->ops.arena->peak_bytes;
        net->ops.arena->dry = false;
        net_clear(net);
    }
    CHECK(peaks[0] == peaks[1], "%s: needed %zu bytes, told %zu", name, peaks[0], peaks[1]);

    struct tensor answers[2] = {{0}};
    struct tensor context = waves(net, 3, (int64_t[]){2, 7, unet_context_width(net->unet)}, 2);
    struct tensor one = latents(net, 2, 1), two = latents(net, 2, 5);
    for (int alone = 0; alone < 2; alone++) {
        struct tensor x = one, later = two, text = context;
        if (alone) {
            x.data += tensor_count(x) / 2, later.data += tensor_count(later) / 2;
            text.data += tensor_count(text) / 2;
            x.dim[0] = later.dim[0] = text.dim[0] = 1;
        }
        struct unet_conditioning *c = condition(net, text);
        struct unet_reuse *reuse = reuse_new(net, 0.5, true, true, 0, x.dim[0]);
        if (!reuse) return;
        unet_forward_reusing(net->unet, &net->ops, x, 700, c, reuse, false, false);
        answers[alone] =
            unet_forward_reusing(net->unet, &net->ops, later, 650, c, reuse, true, true);
    }
    struct tensor last = answers[0];
    last.data += tensor_count(last) / 2;
    last.dim[0] = 1;
    CHECK(same(last, answers[1]), "%s: a sample depends on its batch", name);
    net_clear(net);
}

static void check_nets(void)
{
    static const struct {
        const char *name;
        int height;      /* of the finest level with attention */
        size_t n_blocks; /* transformer blocks there */
    } nets[] = {{"tiny-sd1", H, 5}, {"tiny-sd2", H, 3}, {"tiny-sdxl", H / 2, 3}};
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        struct net net;
        if (!net_open(&net, nets[i].name)) continue;
        check_asked_again(&net, nets[i].name);
        check_deep(&net, nets[i].name);
        check_cross(&net, nets[i].name);
        check_half(&net, nets[i].name);
        check_merge(&net, nets[i].name, nets[i].height, nets[i].n_blocks);
        check_room(&net, nets[i].name);
        net_close(&net);
    }
}

/* ---- which call takes what ----------------------------------------------------------------- */

/* One letter a call: g both halves, . one; then D, C, B where deep, cross or both are taken. */
static void check_plan(struct dk_model *model, const struct dk_settings *job, const char *want)
{
    char found[256] = "";
    size_t n = 0;
    struct sampler *sampler = resolve_sampler(model, job, &err);
    struct pass_plan *plan = sampler ? passes_new(job, job->guidance > 1, sampler, &err) : NULL;
    for (int i = 0; plan && i < sampler_calls(sampler) && n + 4 < sizeof found; i++) {
        static const char taken[] = "-DCB";
        found[n++] = plan[i].guided ? 'g' : '.';
        found[n++] = taken[plan[i].deep + 2 * plan[i].cross];
        found[n++] = ' ';
    }
    found[n ? n - 1 : 0] = '\0';
    CHECK(strcmp(found, want) == 0, "%s, deepcache %d, tgate %g: \"%s\", expected \"%s\" %s",
          job->scheduler, job->deepcache, job->tgate, found, want, err.message);
    free(plan);
    sampler_free(sampler);
}

static struct dk_settings settings(const char *scheduler, int n_steps)
{
    struct dk_settings s;
    dk_settings_default(&s);
    s.prompt = "a cat";
    s.width_px = s.height_px = 64;
    s.n_steps = n_steps;
    s.scheduler = scheduler;
    s.guidance = 5;
    s.seed = 7;
    return s;
}

static void check_plans(struct dk_model *model)
{
    struct dk_settings s = settings("ddim", 6);
    check_plan(model, &s, "g- g- g- g- g- g-");
    s.deepcache = 2;
    check_plan(model, &s, "g- gD g- gD g- gD");
    s.deepcache = 4;
    s.tgate = 2;
    check_plan(model, &s, "g- gD gB gB gC gB");
    s.tgate = 0.5;
    check_plan(model, &s, "g- gD gD gB gC gB");
    s.tgate = 6;
    check_plan(model, &s, "g- gD gD gD g- gD");
    s.tgate = 1;
    s.deepcache = 3;
    s.guidance_from = 0.3; /* begins in call 2: its first half has left nothing */
    s.guidance_to = 0.7;
    check_plan(model, &s, ".- .B g- gB gB .C");
    s = settings("heun",
                 4); /* two calls a step, one in the last; the second is where the next begins */
    s.deepcache = 3;
    s.tgate = 2;
    check_plan(model, &s, "g- gD gD gC gB gB gC");
    s = settings("dpm2", 4); /* the second call lies between */
    s.tgate = 2;
    check_plan(model, &s, "g- g- g- g- gC gC gC");
    s = settings("euler", 4);
    s.guidance = 1;
    s.tgate = 3;
    check_plan(model, &s, ".- .- .- .C");
}

/* Restart goes back up: there deep features and text are asked for again. */
static void check_restart(struct dk_model *model)
{
    struct dk_settings s = settings("restart", 20);
    s.deepcache = 100;
    s.tgate = 10;
    struct sampler *sampler = resolve_sampler(model, &s, &err);
    struct pass_plan *plan = sampler ? passes_new(&s, true, sampler, &err) : NULL;
    CHECK(plan, "%s", err.message);
    int n_up = 0;
    bool noisy = true, low = true;
    for (int i = 1; plan && i < sampler_calls(sampler); i++) {
        bool up = sampler_timestep(sampler, i) > sampler_timestep(sampler, i - 1);
        n_up += up;
        noisy &= plan[i].deep == !up;
        low &=
            plan[i].cross == (sampler_timestep(sampler, i) <= sampler_step_timestep(sampler, 10));
    }
    CHECK(n_up > 0, "restart never goes up");
    CHECK(noisy, "deep features are taken across a jump, or not elsewhere");
    CHECK(low, "text is not asked for by the timestep");
    free(plan);
    sampler_free(sampler);
}

static void check_refusals(struct dk_model *model)
{
    static const struct refusal {
        int deepcache, branch;
        double tgate, tome;
        const char *wanted; /* NULL: accepted */
    } refusals[] = {
        {1, 0, 0, 0, NULL},
        {1000, 8, 4, 0.75, NULL},
        {2, 0, 0.999, 0.5, NULL},
        {0, 0, 0, 0, "deepcache: every 0 calls"},
        {-3, 0, 0, 0, "deepcache: every -3 calls"},
        {1001, 0, 0, 0, "1 (off) to 1000"},
        {2, 9, 0, 0, "deepcache-branch: 9 is not possible; this model has 9 skip connections"},
        {2, -1, 0, 0, "give 0 to 8"},
        {1, 0, -1, 0, "tgate: -1 is not possible"},
        {1, 0, NAN, 0, "tgate: nan"},
        {1, 0, 2.5, 0, "tgate: 2.5 is not possible; give a step from 1 on"},
        {1, 0, 5, 0, "the gate after step 5 is beyond the run of 4"},
        {1, 0, 0, 1, "tome: merging 1 of the tokens is not possible; one of four stays"},
        {1, 0, 0, 0.76, "give 0 to 0.75"},
        {1, 0, 0, -0.1, "tome: merging -0.1"},
        {1, 0, 0, NAN, "tome: merging nan"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *r = &refusals[i];
        struct dk_settings s = settings("ddim", 4);
        s.deepcache = r->deepcache;
        s.deepcache_branch = r->branch;
        s.tgate = r->tgate;
        s.tome = r->tome;
        bool accepted = dk_resolve(model, &s, NULL, &err);
        CHECK(accepted == !r->wanted, "%zu: accepted %d: %s", i, accepted, err.message);
        if (r->wanted) CHECK(strstr(err.message, r->wanted), "%zu says \"%s\"", i, err.message);
        err = (struct dk_error){.code = DK_OK};
    }
}

/* ---- whole runs ---------------------------------------------------------------------------- */

#define N_JOBS 3

static bool same_image(const struct dk_image *a, const struct dk_image *b)
{
    return a->rgb && b->rgb && a->width_px == b->width_px && a->height_px == b->height_px &&
           memcmp(a->rgb, b->rgb, (size_t)a->width_px * (size_t)a->height_px * 3) == 0;
}

/* What an option is set to, or leaves as it is. */
static void spare(struct dk_settings *s, int deepcache, double tgate, double tome)
{
    s->deepcache = deepcache;
    s->tgate = tgate;
    s->tome = tome;
}

/* Values that spare nothing give the bytes of a plain run. */
static void check_neutral(struct dk_model *model, const char *scheduler)
{
    struct dk_image plain = {0}, same = {0}, other = {0};
    struct dk_settings s = settings(scheduler, 4);
    CHECK(dk_render(model, &s, 1, &plain, NULL, NULL, &err), "%s", err.message);
    spare(&s, 1, 4, 0);
    s.deepcache_branch = 3;
    CHECK(dk_render(model, &s, 1, &same, NULL, NULL, &err), "%s", err.message);
    CHECK(same_image(&plain, &same), "%s: nothing is spared, but the bytes differ", scheduler);
    static const struct {
        int deepcache;
        double tgate, tome;
    } spared[] = {{2, 0, 0}, {1, 2, 0}, {1, 0, 0.5}};
    for (size_t i = 0; i < 3; i++) {
        s = settings(scheduler, 4);
        spare(&s, spared[i].deepcache, spared[i].tgate, spared[i].tome);
        CHECK(dk_render(model, &s, 1, &other, NULL, NULL, &err), "%s", err.message);
        CHECK(!same_image(&plain, &other), "%s: option %zu changes nothing", scheduler, i);
        dk_image_free(&other);
    }
    dk_image_free(&plain);
    dk_image_free(&same);
}

/*
 * All three together, guidance on, off and in a part of the run: a picture is the same alone and in
 * a batch, with 1 to 4 threads, and fits into the memory told.
 */
static void check_together(const char *name, const char *scheduler, double guidance, double from,
                           double to)
{
    char path[128];
    snprintf(path, sizeof path, MODELS "%s", name);
    struct dk_image alone = {0}, batch[N_JOBS] = {{0}};
    for (int threads = 1; threads <= 4; threads++) {
        struct dk_model_options options = {.n_threads = threads};
        struct dk_model *model = dk_model_open(path, &options, &err);
        CHECK(model, "%s", err.message);
        if (!model) return;
        struct dk_settings jobs[N_JOBS];
        for (size_t i = 0; i < N_JOBS; i++) {
            jobs[i] = settings(scheduler, 5);
            jobs[i].seed = 7 + i;
            jobs[i].guidance = guidance;
            jobs[i].guidance_from = from;
            jobs[i].guidance_to = to;
            spare(&jobs[i], 2, 2, 0.5);
        }
        if (threads == 1)
            CHECK(dk_render(model, &jobs[2], 1, &alone, NULL, NULL, &err), "%s", err.message);
        CHECK(dk_render(model, jobs, N_JOBS, batch, NULL, NULL, &err), "%s", err.message);
        CHECK(same_image(&alone, &batch[2]) && !same_image(&batch[0], &batch[2]),
              "%s, %s, guidance %g: with %d threads the last of a batch is not the one made alone",
              name, scheduler, guidance, threads);
        struct memory_request request = memory_request_of(jobs, N_JOBS, 1, guidance > 1);
        size_t told = memory_work_bytes(model, &request);
        CHECK(model->arena.peak_bytes <= told, "%s: told %zu bytes, used %zu", name, told,
              model->arena.peak_bytes);
        for (size_t i = 0; i < N_JOBS; i++) dk_image_free(&batch[i]);
        dk_model_close(model);
    }
    dk_image_free(&alone);
}

/* Jobs that spare differently do not run together, and each is what it is alone. */
static void check_mixed(struct dk_model *model)
{
    struct dk_settings jobs[4];
    struct dk_image alone = {0}, batch[4] = {{0}};
    for (size_t i = 0; i < 4; i++) jobs[i] = settings("ddim", 4);
    spare(&jobs[1], 3, 0, 0);
    spare(&jobs[2], 1, 1, 0);
    spare(&jobs[3], 1, 0, 0.5);
    CHECK(dk_render(model, jobs, 4, batch, NULL, NULL, &err), "%s", err.message);
    for (size_t i = 0; i < 4; i++) {
        CHECK(dk_render(model, &jobs[i], 1, &alone, NULL, NULL, &err), "%s", err.message);
        CHECK(same_image(&alone, &batch[i]), "job %zu of a mixed batch differs", i);
        dk_image_free(&alone);
    }
    for (size_t i = 0; i < 4; i++) dk_image_free(&batch[i]);
}

struct counts {
    size_t convs, looks;
};

static void count(void *user, const struct dk_cost *cost)
{
    struct counts *c = user;
    if (cost->phase != DK_PHASE_DENOISE) return;
    if (strcmp(cost->kind, "conv 3x3") == 0) c->convs += cost->n_calls;
    if (strcmp(cost->kind, "attention") == 0) c->looks += cost->n_calls;
}

static struct counts counted(struct dk_model *model, const struct dk_settings *s, int n_passes)
{
    struct counts c = {0};
    struct dk_hooks hooks = {.cost = count, .user = &c};
    struct dk_stats stats;
    CHECK(dk_render(model, s, 1, NULL, &hooks, &stats, &err), "%s", err.message);
    CHECK(stats.unet_passes == n_passes, "%d passes, expected %d", stats.unet_passes, n_passes);
    return c;
}

/* Of tiny-sd1: 3 levels, 2 layers down and 3 up, attention in two of them and in the middle. */
static void check_counts(struct dk_model *model)
{
    enum { CONVS = 2 + 2 * (6 + 2 + 9) + 2 + 2, LOOKS = 2 * (4 + 1 + 6), CALLS = 6 };
    struct dk_settings s = settings("ddim", CALLS);
    struct counts c = counted(model, &s, 2 * CALLS);
    CHECK(c.convs == CALLS * CONVS && c.looks == CALLS * LOOKS, "%zu and %zu", c.convs, c.looks);
    s.deepcache = 3; /* two whole calls; four of conv_in, a ResNet with attention, conv_out */
    c = counted(model, &s, 2 * CALLS);
    CHECK(c.convs == 2 * CONVS + 4 * 4 && c.looks == 2 * LOOKS + 4 * 2, "%zu and %zu", c.convs,
          c.looks);
    s.tgate = 4; /* the last two calls: one whole, one not */
    s.deepcache = 2;
    c = counted(model, &s, 2 * CALLS);
    CHECK(c.convs == 3 * CONVS + 3 * 4 && c.looks == 2 * LOOKS + 2 * 2 + LOOKS / 2 + 1,
          "%zu and %zu", c.convs, c.looks);
    s = settings("ddim", CALLS);
    s.guidance_to = 0.5;
    s.tgate = 0.5;
    c = counted(model, &s, CALLS + CALLS / 2);
    CHECK(c.convs == CALLS * CONVS && c.looks == 3 * LOOKS + 3 * LOOKS / 2, "%zu and %zu", c.convs,
          c.looks);
}

/* What is kept is part of the memory told before the start: so many pictures that the U-Net needs
 * more than the decoder, which comes after and may have the room. */
static void check_told(struct dk_model *model)
{
    enum { N = 64 };
    struct dk_settings s = settings("ddim", 4);
    struct memory_request plain = memory_request_of(&s, N, 1, true);
    spare(&s, 2, 0, 0);
    struct memory_request deep = memory_request_of(&s, N, 1, true);
    spare(&s, 1, 2, 0);
    struct memory_request cross = memory_request_of(&s, N, 1, true);
    size_t without = memory_work_bytes(model, &plain), slack = 64 << 10;
    /* [2 N, 8, 8, 32] below the finest skip; 5 blocks at each of two levels and one in the middle
     */
    size_t deep_bytes = sizeof(float) * 2 * N * 64 * 32;
    size_t cross_bytes = sizeof(float) * 2 * N * (5 * 64 * 32 + 5 * 16 * 32 + 4 * 64);
    size_t with = memory_work_bytes(model, &deep);
    CHECK(with >= without + deep_bytes && with <= without + deep_bytes + slack,
          "%zu bytes with deep features, %zu without, %zu kept", with, without, deep_bytes);
    with = memory_work_bytes(model, &cross);
    CHECK(with >= without + cross_bytes && with <= without + cross_bytes + slack,
          "%zu bytes with cross-attention, %zu without, %zu kept", with, without, cross_bytes);
}

int main(void)
{
    check_nets();
    struct dk_model *model = dk_model_open(MODELS "tiny-sd1", NULL, &err);
    CHECK(model, "%s", err.message);
    if (model) {
        check_plans(model);
        check_restart(model);
        check_refusals(model);
        check_neutral(model, "ddim");
        check_neutral(model, "heun");
        check_mixed(model);
        check_counts(model);
        check_told(model);
        dk_model_close(model);
    }
    check_together("tiny-sd1", "ddim", 5, 0, 1);
    check_together("tiny-sd1", "heun", 5, 0.2, 0.6);
    check_together("tiny-sd1", "restart", 1, 0, 1);
    check_together("tiny-sdxl", "dpm2-a", 5, 0, 0.5);
    check_together("tiny-sd2", "dpmpp-2m", 5, 0.4, 1);
    return check_end("checkless");
}
