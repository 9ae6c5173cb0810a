/* unet.c - the conditional denoising U-Net (arXiv:2112.10752; SDXL arXiv:2307.01952). */
/* SPDX-License-Identifier: MIT */
#include "nets/unet.h"

#include "nets/layers.h"

#include <stdio.h>
#include <stdlib.h>

#define N_TIME_IDS      6     /* original h, w, crop top, left, target h, w (SDXL section 2.2) */
#define TRANSFORMER_EPS 1e-6f /* the GroupNorm in front of a transformer; others: norm_eps */
#define LAYER_NORM_EPS  1e-5f
#define MAX_SKIPS       (UNET_MAX_LEVELS * (UNET_MAX_LAYERS + 1) + 1)

struct attention {
    struct norm norm;
    struct linear q, k, v, out; /* no biases but out's */
    int n_heads;
    int memory; /* cross-attention: which keys and values of the conditioning */
};

struct block {
    struct attention self, cross;
    struct norm norm3;
    struct linear geglu; /* [2 * inner, c] */
    struct linear ff;    /* [c, inner] */
};

struct transformer {
    struct norm norm;
    struct conv proj_in; /* 1x1; SD 2 and SDXL store it as a matrix */
    struct linear proj_out;
    struct block *blocks; /* [n_blocks] */
    int n_blocks;         /* 0: this layer has no attention */
};

struct layer {
    struct resnet resnet;
    struct transformer attention;
};

/* One block of the paper: layers, then a convolution that changes the size (not in the mid block).
 */
struct level {
    struct layer layers[UNET_MAX_LAYERS];
    int n_layers;
    struct conv resize; /* stride 2 on the way down, after enlarging on the way up; may not exist */
};

struct unet {
    struct linear time1, time2;   /* time_embedding.linear_1, linear_2 */
    struct linear guidance;       /* time_embedding.cond_proj, LCM only */
    struct linear added1, added2; /* add_embedding.linear_1, linear_2, SDXL only */
    struct conv conv_in, conv_out;
    struct norm norm_out;
    struct level down[UNET_MAX_LEVELS], mid, up[UNET_MAX_LEVELS];
    int n_levels;
    int64_t context_width;
    int n_memories;            /* cross-attentions */
    const struct block *first; /* the block whose insides the probe shows */
    int added_time_width;
    bool flip_sin_to_cos;
    float freq_shift;
    unet_probe *probe;
    void *probe_user;
};

struct unet_conditioning {
    int64_t n;                    /* samples */
    struct tensor added;          /* [n, time width], SDXL */
    struct tensor guidance;       /* [n, width of the first level], LCM */
    struct tensor *keys, *values; /* [n_memories] of [n, tokens, c] */
};

/* ---- loading --------------------------------------------------------------------------------- */

struct loading {
    struct unet *unet;
    const struct unet_config *config;
    int64_t skips[MAX_SKIPS]; /* widths of what the down path stores, in order */
    int n_skips;
};

static int heads_at(const struct loading *l, const struct weights_reader *r, int level,
                    int64_t width)
{
    int64_t heads =
        l->config->head_width ? width / l->config->head_width : l->config->n_heads[level];
    if (!layers_ok(r)) return 1;
    if (heads >= 1 && heads <= width && width % heads == 0) return (int)heads;
    layers_fail(r,
                "%s: %lld channels do not divide into %lld heads; is attention_head_dim in "
                "config.json right?",
                r->prefix, (long long)width, (long long)heads);
    return 1;
}

static struct attention read_attention(struct weights_reader *r, int64_t c, int64_t memory_width,
                                       int n_heads)
{
    struct attention a = {.n_heads = n_heads};
    a.q = layers_linear(r, "to_q", c, c, BIAS_MAYBE);
    a.k = layers_linear(r, "to_k", c, memory_width, BIAS_MAYBE);
    a.v = layers_linear(r, "to_v", c, linear_in(&a.k), BIAS_MAYBE);
    a.out = layers_linear(r, "to_out.0", c, c, BIAS_NEEDED);
    return a;
}

static struct block read_block(struct loading *l, struct weights_reader *r, int64_t c, int n_heads)
{
    struct unet *u = l->unet;
    struct block b = {0};
    struct branch in;
    layers_enter(&in, r, "attn1.");
    b.self = read_attention(&in.reader, c, c, n_heads);
    layers_enter(&in, r, "attn2.");
    b.cross =
        read_attention(&in.reader, c, u->context_width ? u->context_width : LAYERS_ANY, n_heads);
    b.cross.memory = u->n_memories++;
    u->context_width = linear_in(&b.cross.k);
    b.self.norm = layers_norm(r, "norm1", c, 0, LAYER_NORM_EPS);
    b.cross.norm = layers_norm(r, "norm2", c, 0, LAYER_NORM_EPS);
    b.norm3 = layers_norm(r, "norm3", c, 0, LAYER_NORM_EPS);
    b.geglu = layers_linear(r, "ff.net.0.proj", LAYERS_ANY, c, BIAS_NEEDED);
    if (linear_out(&b.geglu) % 2 != 0)
        layers_fail(r, "%sff.net.0.proj: %lld rows, expected an even number", r->prefix,
                    (long long)linear_out(&b.geglu));
    b.ff = layers_linear(r, "ff.net.2", c, linear_out(&b.geglu) / 2, BIAS_NEEDED);
    return b;
}

static void read_transformer(struct loading *l, struct weights_reader *r, struct transformer *t,
                             int64_t c, int level)
{
    int n_heads = heads_at(l, r, level, c);
    t->norm = layers_norm(r, "norm", c, l->config->n_groups, TRANSFORMER_EPS);
    t->proj_in = layers_conv(r, "proj_in", c, c, 1);
    t->proj_out = layers_linear(r, "proj_out", c, c, BIAS_NEEDED);
    int n = layers_count(r, UNET_MAX_DEPTH, "transformer_blocks.");
    if (n == 0)
        layers_fail(r, "%stransformer_blocks.0: missing, expected at least one block", r->prefix);
    int wanted = l->config->n_levels ? l->config->depth[level] : 0;
    if (layers_ok(r) && wanted && wanted != n)
        layers_fail(
            r,
            "%stransformer_blocks: %d in the file, %d in config.json: one of the two is incomplete",
            r->prefix, n, wanted);
    if (!layers_ok(r)) return;
    t->blocks = calloc((size_t)n, sizeof *t->blocks);
    if (!t->blocks) {
        dk_fail(r->err, DK_ERROR_MEMORY, "out of memory while reading the U-Net");
        return;
    }
    t->n_blocks = n;
    for (int i = 0; i < n; i++) {
        struct branch in;
        layers_enter(&in, r, "transformer_blocks.%d.", i);
        t->blocks[i] = read_block(l, &in.reader, c, n_heads);
    }
    if (!l->unet->first) l->unet->first = &t->blocks[0];
}

/* One layer of a level: resnets.J and, where the names have it, attentions.J. Returns the width it
 * gives. */
static int64_t read_layer(struct loading *l, struct weights_reader *r, struct layer *layer, int j,
                          int64_t in, int level)
{
    struct branch branch;
    layers_enter(&branch, r, "resnets.%d.", j);
    const struct resnet_shape shape = {.in = in,
                                       .out = LAYERS_ANY,
                                       .time_width = linear_out(&l->unet->time2),
                                       .n_groups = l->config->n_groups,
                                       .eps = l->config->norm_eps};
    layer->resnet = layers_resnet(&branch.reader, &shape);
    int64_t out = resnet_out(&layer->resnet);
    if (!layers_any(r, "attentions.%d.", j)) return out;
    layers_enter(&branch, r, "attentions.%d.", j);
    read_transformer(l, &branch.reader, &layer->attention, out, level);
    return out;
}

/* The config says whether a block has attention; each of its layers then does. */
static void check_attention(const struct loading *l, const struct weights_reader *r,
                            const struct level *level, bool wanted)
{
    if (!l->config->n_levels || !layers_ok(r)) return;
    for (int j = 0; j < level->n_layers; j++) {
        bool found = level->layers[j].attention.n_blocks > 0;
        if (found == wanted) continue;
        layers_fail(r,
                    "%sattentions.%d: %s the file but %s the block type in config.json: one of the "
                    "two is wrong",
                    r->prefix, j, found ? "in" : "not in", wanted ? "named by" : "not named by");
        return;
    }
}

static void check_layers(const struct weights_reader *r, int found, int wanted)
{
    if (layers_ok(r) && found != wanted)
        layers_fail(r,
                    "%sresnets: %d in the file, expected %d: the file is incomplete or its "
                    "config.json is wrong",
                    r->prefix, found, wanted);
}

static int64_t read_down(struct loading *l, struct weights_reader *root, int i, int64_t width)
{
    struct level *level = &l->unet->down[i];
    struct branch in;
    layers_enter(&in, root, "down_blocks.%d.", i);
    struct weights_reader *r = &in.reader;
    level->n_layers = layers_count(r, UNET_MAX_LAYERS, "resnets.");
    if (level->n_layers == 0)
        layers_fail(r, "%sresnets.0: missing, expected at least one", r->prefix);
    if (l->config->n_levels) check_layers(r, level->n_layers, l->config->layers[i]);
    for (int j = 0; j < level->n_layers && layers_ok(r); j++)
        l->skips[l->n_skips++] = width = read_layer(l, r, &level->layers[j], j, width, i);
    check_attention(l, r, level, l->config->attention[i]);
    if (i + 1 == l->unet->n_levels) return width;
    level->resize = layers_conv(r, "downsamplers.0.conv", width, width, 3);
    if (layers_ok(r)) l->skips[l->n_skips++] = width;
    return width;
}

static int64_t read_mid(struct loading *l, struct weights_reader *root, int64_t width)
{
    struct level *mid = &l->unet->mid;
    struct branch in;
    layers_enter(&in, root, "mid_block.");
    struct weights_reader *r = &in.reader;
    mid->n_layers = layers_count(r, UNET_MAX_LAYERS, "resnets.");
    if (layers_ok(r) && l->config->n_levels && l->config->mid_block != (mid->n_layers > 0))
        layers_fail(r, "mid_block: %s the file but %s config.json: one of the two is wrong",
                    mid->n_layers ? "in" : "not in", l->config->mid_block ? "in" : "not in");
    for (int j = 0; j < mid->n_layers && layers_ok(r); j++)
        width = read_layer(l, r, &mid->layers[j], j, width, l->unet->n_levels - 1);
    return width;
}

/* Up block i belongs to level n_levels - 1 - i and consumes what that level's down block stored,
 * newest first. */
static int64_t read_up(struct loading *l, struct weights_reader *root, int i, int64_t width)
{
    int at = l->unet->n_levels - 1 - i;
    struct level *level = &l->unet->up[i];
    struct branch in;
    layers_enter(&in, root, "up_blocks.%d.", i);
    struct weights_reader *r = &in.reader;
    level->n_layers = layers_count(r, UNET_MAX_LAYERS, "resnets.");
    check_layers(r, level->n_layers, l->unet->down[at].n_layers + 1);
    for (int j = 0; j < level->n_layers && layers_ok(r); j++)
        width = read_layer(l, r, &level->layers[j], j, width + l->skips[--l->n_skips], at);
    check_attention(l, r, level, l->config->up_attention[at]);
    if (i + 1 < l->unet->n_levels)
        level->resize = layers_conv(r, "upsamplers.0.conv", width, width, 3);
    return width;
}

/* SDXL's embedding of the pooled text and the six sizes. */
static void read_added(struct loading *l, struct weights_reader *r)
{
    struct unet *u = l->unet;
    int64_t ids_width = (int64_t)N_TIME_IDS * u->added_time_width;
    u->added1 = layers_linear(r, "add_embedding.linear_1", LAYERS_ANY, LAYERS_ANY, BIAS_NEEDED);
    u->added2 = layers_linear(r, "add_embedding.linear_2", linear_out(&u->time2),
                              linear_out(&u->added1), BIAS_NEEDED);
    if (layers_ok(r) && (u->added_time_width < 2 || linear_in(&u->added1) <= ids_width))
        layers_fail(r, "add_embedding.linear_1: %lld inputs, expected more than 6 times %d, %s",
                    (long long)linear_in(&u->added1), u->added_time_width,
                    "which is addition_time_embed_dim in config.json");
}

static void read_embeddings(struct loading *l, struct weights_reader *r, int64_t width)
{
    struct unet *u = l->unet;
    u->time1 = layers_linear(r, "time_embedding.linear_1", LAYERS_ANY, width, BIAS_NEEDED);
    int64_t inner = linear_out(&u->time1);
    u->time2 = layers_linear(r, "time_embedding.linear_2", LAYERS_ANY, inner, BIAS_NEEDED);
    int guidance = l->config->guidance_width;
    if (guidance || layers_any(r, "time_embedding.cond_proj."))
        u->guidance = layers_linear(r, "time_embedding.cond_proj", width,
                                    guidance ? guidance : LAYERS_ANY, BIAS_NONE);
    if ((l->config->n_levels && u->added_time_width) || layers_any(r, "add_embedding."))
        read_added(l, r);
}

/* Branches that would change the answer and are not computed here. */
static void refuse_unknown(const struct weights_reader *r)
{
    static const char *const refused[][2] = {
        {"class_embedding.", "a class-conditional U-Net (upscaler or unCLIP)"},
        {"encoder_hid_proj.",
         "a U-Net with a projection of the encoder's states (Kandinsky, IP-Adapter)"},
        {"position_net.", "a GLIGEN U-Net"},
        {"down_blocks.0.motion_modules.", "an AnimateDiff motion U-Net"},
        {"controlnet_cond_embedding.", "a ControlNet, not a U-Net"},
        {"down_blocks.0.temp_", "a video U-Net"},
        {"transformer_in.", "a video U-Net"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (layers_any(r, "%s", refused[i][0])) {
            dk_fail(r->err, DK_ERROR_UNSUPPORTED,
                    "%s: %s, which is not supported; give a Stable Diffusion U-Net",
                    weights_path(r->weights), refused[i][1]);
            return;
        }
}

static void read_unet(struct loading *l, struct weights_reader *r)
{
    struct unet *u = l->unet;
    refuse_unknown(r);
    u->conv_in = layers_conv(r, "conv_in", LAYERS_ANY, LAYERS_ANY, 3);
    int64_t width = conv_out(&u->conv_in);
    read_embeddings(l, r, width);

    u->n_levels = layers_count(r, UNET_MAX_LEVELS, "down_blocks.");
    int wanted = l->config->n_levels ? l->config->n_levels : u->n_levels;
    int n_up = layers_count(r, UNET_MAX_LEVELS, "up_blocks.");
    if (layers_ok(r) && (u->n_levels == 0 || u->n_levels != wanted || n_up != wanted))
        layers_fail(
            r,
            "%d down blocks and %d up blocks, expected %d of each: the file is incomplete or its "
            "config.json is wrong",
            u->n_levels, n_up, wanted > 0 ? wanted : 1);

    l->skips[l->n_skips++] = width;
    for (int i = 0; i < u->n_levels && layers_ok(r); i++) width = read_down(l, r, i, width);
    if (layers_ok(r)) width = read_mid(l, r, width);
    for (int i = 0; i < u->n_levels && layers_ok(r); i++) width = read_up(l, r, i, width);
    if (layers_ok(r)) {
        u->norm_out =
            layers_norm(r, "conv_norm_out", width, l->config->n_groups, l->config->norm_eps);
        u->conv_out = layers_conv(r, "conv_out", LAYERS_ANY, width, 3);
    }
}

struct unet *unet_load(const struct unet_config *config, struct weights *weights,
                       struct dk_error *err)
{
    struct dk_error own = {.code = DK_OK};
    struct weights_reader r = {.weights = weights, .prefix = "", .err = err ? err : &own};
    struct unet *unet = calloc(1, sizeof *unet);
    if (!unet) {
        dk_fail(r.err, DK_ERROR_MEMORY, "out of memory while reading the U-Net");
        return NULL;
    }
    struct loading l = {.unet = unet, .config = config};
    unet->added_time_width = config->added_time_width;
    unet->flip_sin_to_cos = config->flip_sin_to_cos;
    unet->freq_shift = config->freq_shift;
    if (config->n_groups < 1)
        layers_fail(&r, "norm_num_groups is %d, expected at least 1", config->n_groups);
    read_unet(&l, &r);
    if (layers_ok(&r)) return unet;
    unet_free(unet);
    return NULL;
}

static void level_free(struct level *level)
{
    for (int j = 0; j < UNET_MAX_LAYERS; j++) free(level->layers[j].attention.blocks);
}

void unet_free(struct unet *unet)
{
    if (!unet) return;
    for (int i = 0; i < UNET_MAX_LEVELS; i++) {
        level_free(&unet->down[i]);
        level_free(&unet->up[i]);
    }
    level_free(&unet->mid);
    free(unet);
}

/* ---- facts ----------------------------------------------------------------------------------- */

int64_t unet_in_channels(const struct unet *unet)
{
    return conv_in(&unet->conv_in);
}
int64_t unet_out_channels(const struct unet *unet)
{
    return conv_out(&unet->conv_out);
}
int64_t unet_context_width(const struct unet *unet)
{
    return unet->context_width;
}
int64_t unet_guidance_width(const struct unet *unet)
{
    return weight_exists(&unet->guidance.weight) ? linear_in(&unet->guidance) : 0;
}
int64_t unet_pooled_width(const struct unet *unet)
{
    if (!weight_exists(&unet->added1.weight)) return 0;
    return linear_in(&unet->added1) - (int64_t)N_TIME_IDS * unet->added_time_width;
}
int unet_levels(const struct unet *unet)
{
    return unet->n_levels;
}
int unet_size_multiple(const struct unet *unet)
{
    return 1 << (unet->n_levels - 1);
}

void unet_set_probe(struct unet *unet, unet_probe *probe, void *user)
{
    unet->probe = probe;
    unet->probe_user = user;
}

__attribute__((format(printf, 3, 4))) static void show(const struct unet *unet, struct tensor value,
                                                       const char *format, ...)
{
    if (!unet->probe) return;
    char name[64];
    va_list list;
    va_start(list, format);
    vsnprintf(name, sizeof name, format, list);
    va_end(list);
    unet->probe(unet->probe_user, name, value);
}

/* ---- conditioning ---------------------------------------------------------------------------- */

static void condition_level(const struct level *level, struct ops *o, struct tensor context,
                            struct unet_conditioning *c)
{
    for (int j = 0; j < level->n_layers; j++) {
        const struct transformer *t = &level->layers[j].attention;
        for (int i = 0; i < t->n_blocks; i++) {
            const struct attention *cross = &t->blocks[i].cross;
            c->keys[cross->memory] =
                op_linear(o, context, &(struct linear_args){.linear = &cross->k});
            c->values[cross->memory] =
                op_linear(o, context, &(struct linear_args){.linear = &cross->v});
        }
    }
}

/* SDXL: linear_2(silu(linear_1([pooled | sinusoids of the six sizes]))), [n, time width]. */
static struct tensor added_embedding(const struct unet *u, struct ops *o, struct tensor pooled,
                                     const float *time_ids)
{
    int64_t n = pooled.dim[0], width = u->added_time_width;
    size_t mark = arena_mark(o->arena);
    struct tensor ids =
        op_sinusoids(o, time_ids, n * N_TIME_IDS, width, u->flip_sin_to_cos, u->freq_shift);
    ids = op_reshape(o, ids, 2, (const int64_t[]){n, N_TIME_IDS * width});
    struct tensor both = op_concat(o, pooled, ids); /* [n, pooled width + 6 * width] */
    struct tensor h =
        op_linear(o, both, &(struct linear_args){.linear = &u->added1, .act = ACT_SILU});
    return tensor_keep(o->arena, mark,
                       op_linear(o, h, &(struct linear_args){.linear = &u->added2}));
}

/* n times the same value, [n]. */
static struct tensor repeat(struct ops *o, float value, int64_t n)
{
    struct tensor t = tensor_new(o->arena, 1, &n, o->err);
    for (int64_t i = 0; i < tensor_count(t); i++) t.data[i] = value;
    return t;
}

/* LCM: cond_proj of the sinusoids of 1000 (guidance - 1), sine first (arXiv:2310.04378,
 * section 4.3), [n, width]. */
static struct tensor guidance_embedding(const struct unet *u, struct ops *o, float guidance,
                                        int64_t n)
{
    size_t mark = arena_mark(o->arena);
    struct tensor w = repeat(o, 1000.0f * (guidance - 1.0f), n);
    struct tensor h = op_sinusoids(o, w.data, tensor_count(w), unet_guidance_width(u), false, 1.0f);
    return tensor_keep(o->arena, mark,
                       op_linear(o, h, &(struct linear_args){.linear = &u->guidance}));
}

/* What the caller gives must fit the network: told once here, so that a step need not ask. */
static bool inputs_fit(const struct unet *u, struct ops *o, struct tensor context,
                       struct tensor pooled, const float *time_ids)
{
    if (!ops_ok(o)) return false;
    int64_t pooled_width = unet_pooled_width(u);
    if (u->context_width && (context.rank != 3 || context.dim[2] != u->context_width))
        return dk_fail(o->err, DK_ERROR_MODEL,
                       "the text encoder's states are %lld wide, the U-Net expects %lld: they do "
                       "not belong together",
                       (long long)(context.rank == 3 ? context.dim[2] : 0),
                       (long long)u->context_width);
    if (pooled_width && (pooled.rank != 2 || pooled.dim[1] != pooled_width ||
                         pooled.dim[0] != context.dim[0] || !time_ids))
        return dk_fail(o->err, DK_ERROR_MODEL,
                       "the U-Net expects a pooled text of width %lld and the picture's sizes, "
                       "found width %lld: "
                       "give the text encoder it was trained with",
                       (long long)pooled_width, (long long)(pooled.rank == 2 ? pooled.dim[1] : 0));
    return true;
}

struct unet_conditioning *unet_condition(const struct unet *u, struct ops *o, struct tensor context,
                                         struct tensor pooled, const float *time_ids,
                                         float guidance)
{
    if (!inputs_fit(u, o, context, pooled, time_ids)) return NULL;
    size_t n_memories = (size_t)u->n_memories;
    struct unet_conditioning *c = arena_alloc(o->arena, sizeof *c, o->err);
    struct tensor *memories = arena_alloc(o->arena, 2 * n_memories * sizeof *memories, o->err);
    if (!c || !memories) return NULL;
    *c = (struct unet_conditioning){
        .n = context.dim[0], .keys = memories, .values = memories + n_memories};
    for (int i = 0; i < u->n_levels; i++) condition_level(&u->down[i], o, context, c);
    condition_level(&u->mid, o, context, c);
    for (int i = 0; i < u->n_levels; i++) condition_level(&u->up[i], o, context, c);
    if (unet_pooled_width(u)) c->added = added_embedding(u, o, pooled, time_ids);
    if (unet_guidance_width(u)) c->guidance = guidance_embedding(u, o, guidance, c->n);
    show(u, c->added, "add_embedding");
    return ops_ok(o) ? c : NULL;
}

/* ---- one step -------------------------------------------------------------------------------- */

/* What the down path stores for the up path: a stack in the arena, so that taking one off frees its
 * memory. */
struct pass {
    const struct unet *unet;
    struct ops *ops;
    const struct unet_conditioning *conditioning;
    struct tensor time; /* [n, time width], after its activation */
    struct tensor skips[MAX_SKIPS];
    size_t marks[MAX_SKIPS]; /* the arena before each */
    int n_skips;
};

/* x += W_out softmax(q k^T) v; keys and values come from x itself or from the conditioning. */
static struct tensor attend(const struct pass *p, const struct attention *a,
                            struct tensor x /* [n, tokens, c] */, bool cross)
{
    struct ops *o = p->ops;
    size_t mark = arena_mark(o->arena);
    struct tensor h = op_norm(o, x, &a->norm, ACT_NONE), k, v;
    struct tensor q = op_linear(o, h, &(struct linear_args){.linear = &a->q});
    if (cross) {
        k = p->conditioning->keys[a->memory]; /* [n, context tokens, c] */
        v = p->conditioning->values[a->memory];
    } else {
        k = op_linear(o, h, &(struct linear_args){.linear = &a->k});
        v = op_linear(o, h, &(struct linear_args){.linear = &a->v});
    }
    h = op_attention(o, q, k, v, a->n_heads, false);
    x = op_linear(o, h, &(struct linear_args){.linear = &a->out, .residual = &x, .into = &x});
    arena_reset(o->arena, mark);
    return x;
}

/* x += W2 (u * gelu(g)), [u, g] = W1 norm3(x). */
static struct tensor feed_forward(const struct pass *p, const struct block *b, struct tensor x)
{
    struct ops *o = p->ops;
    size_t mark = arena_mark(o->arena);
    struct tensor h = op_linear(
        o, x, &(struct linear_args){.linear = &b->geglu, .norm = &b->norm3, .geglu = true});
    if (b == p->unet->first) show(p->unet, h, "tf0.b0.geglu");
    x = op_linear(o, h, &(struct linear_args){.linear = &b->ff, .residual = &x, .into = &x});
    arena_reset(o->arena, mark);
    return x;
}

/* x [n, tokens, c] is changed where it lies. */
static struct tensor block_forward(const struct pass *p, const struct block *b, struct tensor x)
{
    bool probed = b == p->unet->first;
    x = attend(p, &b->self, x, false);
    if (probed) show(p->unet, x, "tf0.b0.attn1");
    x = attend(p, &b->cross, x, true);
    if (probed) show(p->unet, x, "tf0.b0.attn2");
    x = feed_forward(p, b, x);
    if (probed) show(p->unet, x, "tf0.b0.ff");
    return x;
}

/* x [n, h, w, c] += the blocks' answer, where it lies. */
static struct tensor transformer_forward(const struct pass *p, const struct transformer *t,
                                         struct tensor x)
{
    struct ops *o = p->ops;
    int64_t n = x.dim[0], height = x.dim[1], width = x.dim[2], c = x.dim[3];
    size_t mark = arena_mark(o->arena);
    struct tensor h = op_conv(o, x, &(struct conv_args){.conv = &t->proj_in, .norm = &t->norm});
    h = op_reshape(o, h, 3, (const int64_t[]){n, height * width, c});
    if (t->blocks == p->unet->first) show(p->unet, h, "tf0.proj_in");
    for (int i = 0; i < t->n_blocks; i++) h = block_forward(p, &t->blocks[i], h);
    h = op_reshape(o, h, 4, (const int64_t[]){n, height, width, c});
    x = op_linear(o, h, &(struct linear_args){.linear = &t->proj_out, .residual = &x, .into = &x});
    arena_reset(o->arena, mark);
    if (t->blocks == p->unet->first) show(p->unet, x, "tf0");
    return x;
}

/* A ResNet and, where there is one, its transformer: [n, h, w, out], all that stays in the arena.
 */
static struct tensor layer_forward(const struct pass *p, const struct layer *layer, struct tensor x)
{
    struct tensor y = resnet_forward(&layer->resnet, p->ops, x, &p->time);
    if (layer->attention.n_blocks == 0) return y;
    if (layer->attention.blocks == p->unet->first) show(p->unet, y, "resnet0");
    return transformer_forward(p, &layer->attention, y);
}

/* [n, time width]: linear_2(silu(linear_1(sinusoids + guidance))) + added, then the silu that every
 * ResNet wants. */
static struct tensor time_embedding(const struct unet *u, struct ops *o, float timestep,
                                    const struct unet_conditioning *c)
{
    size_t mark = arena_mark(o->arena);
    struct tensor t = repeat(o, timestep, c->n);
    struct tensor h = op_sinusoids(o, t.data, tensor_count(t), linear_in(&u->time1),
                                   u->flip_sin_to_cos, u->freq_shift);
    show(u, h, "time_proj");
    if (c->guidance.rank) h = op_add(o, h, c->guidance);
    h = op_linear(o, h, &(struct linear_args){.linear = &u->time1, .act = ACT_SILU});
    h = op_linear(
        o, h,
        &(struct linear_args){.linear = &u->time2, .residual = c->added.rank ? &c->added : NULL});
    show(u, h, "time_embedding");
    return tensor_keep(o->arena, mark, op_act(o, h, ACT_SILU));
}

/* Stores y, which was made at the mark. */
static struct tensor push(struct pass *p, size_t mark, struct tensor y)
{
    p->marks[p->n_skips] = mark;
    p->skips[p->n_skips++] = y;
    return y;
}

static struct tensor down_forward(struct pass *p, int i, struct tensor x)
{
    const struct level *level = &p->unet->down[i];
    struct ops *o = p->ops;
    for (int j = 0; j < level->n_layers; j++) {
        x = push(p, arena_mark(o->arena), layer_forward(p, &level->layers[j], x));
        show(p->unet, x, "down.%d.res%d", i, j);
    }
    if (!weight_exists(&level->resize.weight)) return x;
    x = push(p, arena_mark(o->arena),
             op_conv(o, x, &(struct conv_args){.conv = &level->resize, .stride = 2}));
    show(p->unet, x, "down.%d.res%d", i, level->n_layers);
    return x;
}

static struct tensor mid_forward(const struct pass *p, struct tensor x)
{
    const struct level *mid = &p->unet->mid;
    size_t mark = arena_mark(p->ops->arena);
    for (int j = 0; j < mid->n_layers; j++) {
        x = layer_forward(p, &mid->layers[j], x);
        show(p->unet, x, "mid.%d", j);
    }
    return mid->n_layers ? tensor_keep(p->ops->arena, mark, x) : x;
}

static struct tensor up_forward(struct pass *p, int i, struct tensor x)
{
    const struct level *level = &p->unet->up[i];
    struct ops *o = p->ops;
    for (int j = 0; j < level->n_layers; j++) {
        p->n_skips--;
        struct tensor both = op_concat(o, x, p->skips[p->n_skips]); /* [n, h, w, c + skip's c] */
        x = layer_forward(p, &level->layers[j], both);
        if (j + 1 == level->n_layers && weight_exists(&level->resize.weight)) {
            struct tensor next =
                p->skips[p->n_skips - 1]; /* odd sizes: enlarge to what the skip has */
            x = op_conv(o, x,
                        &(struct conv_args){
                            .conv = &level->resize, .up_h = next.dim[1], .up_w = next.dim[2]});
        }
        x = tensor_keep(o->arena, p->marks[p->n_skips], x);
    }
    show(p->unet, x, "up.%d", i);
    return x;
}

struct tensor unet_forward(const struct unet *unet, struct ops *o, struct tensor x, float timestep,
                           const struct unet_conditioning *conditioning)
{
    if (!conditioning) return (struct tensor){0};
    size_t mark = arena_mark(o->arena);
    struct pass p = {.unet = unet, .ops = o, .conditioning = conditioning};
    p.time = time_embedding(unet, o, timestep, conditioning);
    x = push(&p, arena_mark(o->arena), op_conv(o, x, &(struct conv_args){.conv = &unet->conv_in}));
    show(unet, x, "conv_in");
    for (int i = 0; i < unet->n_levels; i++) x = down_forward(&p, i, x);
    x = mid_forward(&p, x);
    for (int i = 0; i < unet->n_levels; i++) x = up_forward(&p, i, x);
    x = op_conv(
        o, x,
        &(struct conv_args){.conv = &unet->conv_out, .norm = &unet->norm_out, .act = ACT_SILU});
    return tensor_keep(o->arena, mark, x);
}
