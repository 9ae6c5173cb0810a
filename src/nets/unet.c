/* unet.c - the conditional denoising U-Net (arXiv:2112.10752; SDXL arXiv:2307.01952). */
/* SPDX-License-Identifier: MIT */
#include "nets/unet.h"

#include "nets/unet_parts.h"

#include <stdio.h>
#include <string.h>

struct unet_conditioning {
    int64_t n;                    /* samples */
    struct tensor added;          /* [n, time width], SDXL */
    struct tensor guidance;       /* [n, width of the first level], LCM */
    struct tensor *keys, *values; /* [n_memories] of [n, tokens, c] */
};

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
    /* These weights are read once a run: the cache is left to those of every step. */
    struct ops once = *o;
    once.cache = NULL;
    for (int i = 0; i < u->n_levels; i++) condition_level(&u->down[i], &once, context, c);
    condition_level(&u->mid, &once, context, c);
    for (int i = 0; i < u->n_levels; i++) condition_level(&u->up[i], &once, context, c);
    if (unet_pooled_width(u)) c->added = added_embedding(u, &once, pooled, time_ids);
    if (unet_guidance_width(u)) c->guidance = guidance_embedding(u, &once, guidance, c->n);
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
    size_t marks[MAX_SKIPS];  /* the arena before each */
    int n_skips;              /* so far; on the way up those whose layers are still to come */
    int n_wanted;             /* of them: all, or those above the deep features that are taken */
    struct unet_reuse *reuse; /* NULL: nothing is kept or taken */
    bool deep, cross;         /* taken from earlier calls, not computed */
};

/* softmax(q k^T) v of normed tokens [n, tokens, c]; keys and values come from themselves or from
 * the conditioning. */
static struct tensor look_around(const struct pass *p, const struct attention *a, struct tensor h,
                                 bool cross)
{
    struct ops *o = p->ops;
    struct tensor q = op_linear(o, h, &(struct linear_args){.linear = &a->q}), k, v;
    if (cross) {
        k = p->conditioning->keys[a->memory]; /* [n, context tokens, c] */
        v = p->conditioning->values[a->memory];
    } else {
        k = op_linear(o, h, &(struct linear_args){.linear = &a->k});
        v = op_linear(o, h, &(struct linear_args){.linear = &a->v});
    }
    return op_attention(o, q, k, v, a->n_heads, false);
}

/* x += W_out softmax(q k^T) v. */
static struct tensor attend(const struct pass *p, const struct attention *a,
                            struct tensor x /* [n, tokens, c] */, bool cross)
{
    struct ops *o = p->ops;
    size_t mark = arena_mark(o->arena);
    struct tensor h = look_around(p, a, op_norm(o, x, &a->norm, ACT_NONE), cross);
    x = op_linear(o, h, &(struct linear_args){.linear = &a->out, .residual = &x, .into = &x});
    arena_reset(o->arena, mark);
    return x;
}

/* Self-attention among fewer tokens. The plan looks at x as it comes; merged is what the norm makes
 * of it, as in the reference. */
static struct tensor attend_merged(const struct pass *p, const struct attention *a, struct tensor x,
                                   int64_t height)
{
    struct ops *o = p->ops;
    size_t mark = arena_mark(o->arena);
    struct merge merge = op_merge_plan(o, x, height, p->reuse->merge);
    struct tensor h = op_merge(o, op_norm(o, x, &a->norm, ACT_NONE), &merge);
    h = op_linear(o, look_around(p, a, h, false), &(struct linear_args){.linear = &a->out});
    x = op_unmerge(o, h, &merge, x);
    arena_reset(o->arena, mark);
    return x;
}

/* Cross-attention whose answer is kept for later calls, or taken from an earlier one. */
static struct tensor attend_kept(const struct pass *p, const struct attention *a, struct tensor x)
{
    struct ops *o = p->ops;
    struct kept *kept = &p->reuse->cross[a->memory];
    if (!p->cross || !kept_take(o, kept, x.dim[0])) {
        size_t mark = arena_mark(o->arena);
        struct tensor h = look_around(p, a, op_norm(o, x, &a->norm, ACT_NONE), true);
        kept->n = x.dim[0];
        struct tensor into = kept_value(kept);
        op_linear(o, h, &(struct linear_args){.linear = &a->out, .into = &into});
        arena_reset(o->arena, mark);
    }
    return op_add_to(o, x, kept_value(kept));
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

/*
 * Both halves of guidance start from the same latent and differ only from the first cross-attention
 * on. Until then they are one: x has k samples, of which sample i of the conditioning's n is
 * x[i % k]. This makes them n.
 */
static struct tensor expand(const struct pass *p, struct tensor x)
{
    int64_t n = p->conditioning->n, k = x.dim[0];
    if (x.rank == 0 || k == n) return x;
    size_t each = (size_t)(tensor_count(x) / k);
    struct tensor y = x;
    y.dim[0] = n;
    y = tensor_new(p->ops->arena, y.rank, y.dim, p->ops->err);
    for (int64_t i = 0; y.rank && !ops_dry(p->ops) && i < n; i++)
        memcpy(y.data + (size_t)i * each, x.data + (size_t)(i % k) * each, each * sizeof *x.data);
    return y;
}

/* x [k or n, tokens, c] is changed where it lies; answer [n, tokens, c]. merge_height not 0: tokens
 * are merged, which lie in so many rows. */
static struct tensor block_forward(const struct pass *p, const struct block *b, struct tensor x,
                                   int64_t merge_height)
{
    bool probed = b == p->unet->first;
    x = merge_height ? attend_merged(p, &b->self, x, merge_height) : attend(p, &b->self, x, false);
    if (probed) show(p->unet, x, "tf0.b0.attn1");
    x = expand(p, x);
    x = p->reuse && p->reuse->cross ? attend_kept(p, &b->cross, x) : attend(p, &b->cross, x, true);
    if (probed) show(p->unet, x, "tf0.b0.attn2");
    x = feed_forward(p, b, x);
    if (probed) show(p->unet, x, "tf0.b0.ff");
    return x;
}

/* x [k or n, h, w, c] plus the blocks' answer, where x lies if it has n samples, else above it. */
static struct tensor transformer_forward(const struct pass *p, const struct transformer *t,
                                         struct tensor x)
{
    struct ops *o = p->ops;
    int64_t height = x.dim[1], width = x.dim[2], c = x.dim[3];
    struct tensor y = expand(p, x);
    size_t mark = arena_mark(o->arena);
    struct tensor h = op_conv(o, x, &(struct conv_args){.conv = &t->proj_in, .norm = &t->norm});
    h = op_reshape(o, h, 3, (const int64_t[]){x.dim[0], height * width, c});
    if (t->blocks == p->unet->first) show(p->unet, h, "tf0.proj_in");
    int64_t merge_height = t->finest && p->reuse && p->reuse->merge > 0 ? height : 0;
    for (int i = 0; i < t->n_blocks; i++) h = block_forward(p, &t->blocks[i], h, merge_height);
    h = op_reshape(o, h, 4, (const int64_t[]){y.dim[0], height, width, c});
    y = op_linear(o, h, &(struct linear_args){.linear = &t->proj_out, .residual = &y, .into = &y});
    arena_reset(o->arena, mark);
    if (t->blocks == p->unet->first) show(p->unet, y, "tf0");
    return y;
}

/* A ResNet and, where there is one, its transformer: [k or n, h, w, out], all that stays. */
static struct tensor layer_forward(const struct pass *p, const struct layer *layer, struct tensor x)
{
    size_t mark = arena_mark(p->ops->arena);
    struct tensor time = p->time;
    time.dim[0] = x.dim[0]; /* while samples are one, so are their rows */
    struct tensor y = resnet_forward(&layer->resnet, p->ops, x, &time);
    if (layer->attention.n_blocks == 0) return y;
    if (layer->attention.blocks == p->unet->first) show(p->unet, y, "resnet0");
    struct tensor z = transformer_forward(p, &layer->attention, y);
    return z.data == y.data ? z : tensor_keep(p->ops->arena, mark, z);
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
    for (int j = 0; j < level->n_layers && p->n_skips < p->n_wanted; j++) {
        size_t mark = arena_mark(o->arena);
        x = push(p, mark, layer_forward(p, &level->layers[j], x));
        show(p->unet, x, "down.%d.res%d", i, j);
    }
    if (!weight_exists(&level->resize.weight) || p->n_skips == p->n_wanted) return x;
    size_t mark = arena_mark(o->arena);
    x = op_conv(o, x, &(struct conv_args){.conv = &level->resize, .stride = 2});
    push(p, mark, x);
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

/* What comes up from below the layer of skip connection number branch: kept, or taken. */
static struct tensor meet_deep(const struct pass *p, struct tensor x)
{
    struct kept *deep = &p->reuse->deep;
    if (p->deep) return kept_value(deep);
    kept_fill(p->ops, deep, x, p->conditioning->n);
    return x;
}

static struct tensor up_forward(struct pass *p, int i, struct tensor x)
{
    const struct level *level = &p->unet->up[i];
    struct ops *o = p->ops;
    for (int j = 0; j < level->n_layers; j++) {
        int at = --p->n_skips;
        if (at >= p->n_wanted) continue;
        if (p->reuse && at == p->reuse->branch) x = meet_deep(p, x);
        struct tensor skip = p->skips[at];
        if (skip.dim[0] != x.dim[0]) skip = expand(p, skip);
        struct tensor both = op_concat(o, x, skip); /* [n, h, w, c + skip's c] */
        x = layer_forward(p, &level->layers[j], both);
        if (j + 1 == level->n_layers && weight_exists(&level->resize.weight)) {
            struct tensor next = p->skips[at - 1]; /* odd sizes: enlarge to what the skip has */
            x = op_conv(o, x,
                        &(struct conv_args){
                            .conv = &level->resize, .up_h = next.dim[1], .up_w = next.dim[2]});
        }
        x = tensor_keep(o->arena, p->marks[at], x);
    }
    show(p->unet, x, "up.%d", i);
    return x;
}

/* The latents' number must divide the conditioning's, and their channels must be the network's. */
static bool latents_fit(const struct unet *u, struct ops *o, struct tensor x,
                        const struct unet_conditioning *c)
{
    if (!ops_ok(o) || !c || x.rank == 0) return false;
    if (x.rank == 4 && x.dim[3] == unet_in_channels(u) && c->n % x.dim[0] == 0) return true;
    return dk_fail(o->err, DK_ERROR_ARGUMENT,
                   "latents: %lld of %lld channels, expected a divisor of %lld and %lld channels",
                   (long long)x.dim[0], (long long)x.dim[3], (long long)c->n,
                   (long long)unet_in_channels(u));
}

/* There must be room for what this call leaves. */
static bool reuse_fits(struct ops *o, const struct unet_reuse *r, struct tensor x, int64_t n)
{
    if (!r || (n <= r->n && x.dim[1] == r->h && x.dim[2] == r->w)) return true;
    return dk_fail(o->err, DK_ERROR_ARGUMENT,
                   "reuse: there is room for %lld samples of %lldx%lld, not for %lld of %lldx%lld",
                   (long long)r->n, (long long)r->w, (long long)r->h, (long long)n,
                   (long long)x.dim[2], (long long)x.dim[1]);
}

struct tensor unet_forward_reusing(const struct unet *unet, struct ops *o, struct tensor x,
                                   float timestep, const struct unet_conditioning *conditioning,
                                   struct unet_reuse *reuse, bool deep, bool cross)
{
    if (!latents_fit(unet, o, x, conditioning) || !reuse_fits(o, reuse, x, conditioning->n))
        return (struct tensor){0};
    size_t mark = arena_mark(o->arena);
    struct pass p = {.unet = unet, .ops = o, .conditioning = conditioning};
    p.reuse = reuse;
    p.cross = cross;
    p.deep = deep && reuse && reuse->branch >= 0 && kept_take(o, &reuse->deep, conditioning->n);
    p.n_wanted = p.deep ? reuse->branch + 1 : unet->n_skips;
    p.time = time_embedding(unet, o, timestep, conditioning);
    if (conditioning->added.rank) x = expand(&p, x); /* SDXL: the text is in the time embedding */
    size_t first = arena_mark(o->arena);
    x = push(&p, first, op_conv(o, x, &(struct conv_args){.conv = &unet->conv_in}));
    show(unet, x, "conv_in");
    for (int i = 0; i < unet->n_levels; i++) x = down_forward(&p, i, x);
    if (!p.deep) x = mid_forward(&p, x);
    p.n_skips = unet->n_skips; /* with those that were not wanted, so not stored */
    for (int i = 0; i < unet->n_levels; i++) x = up_forward(&p, i, x);
    x = op_conv(
        o, x,
        &(struct conv_args){.conv = &unet->conv_out, .norm = &unet->norm_out, .act = ACT_SILU});
    return tensor_keep(o->arena, mark, expand(&p, x));
}

struct tensor unet_forward(const struct unet *unet, struct ops *o, struct tensor x, float timestep,
                           const struct unet_conditioning *conditioning)
{
    return unet_forward_reusing(unet, o, x, timestep, conditioning, NULL, false, false);
}
