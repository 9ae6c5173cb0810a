/* clip.c - the CLIP text transformer (Radford et al. 2021, arXiv:2103.00020, section 2.4). */
/* SPDX-License-Identifier: MIT */
#include "nets/clip.h"

#include "nets/layers.h"

#include <stdlib.h>
#include <string.h>

#define CLIP_MAX_LAYERS 128

struct clip_layer {
    struct norm norm1, norm2;
    struct linear q, k, v, out; /* [c, c] with biases */
    struct linear fc1, fc2;     /* [inner, c], [c, inner] */
};

struct clip {
    struct weight tokens;      /* [vocabulary, c] */
    struct weight positions;   /* [context length, c] */
    struct clip_layer *layers; /* [n_layers] */
    int n_layers;
    struct norm norm;
    struct linear projection; /* [projection, c]; may not exist */
    int n_heads;
    enum act act;
    int32_t eos_id;
};

/* ---- loading --------------------------------------------------------------------------------- */

static struct clip_layer read_layer(struct weights_reader *from, int i, int64_t c, float eps)
{
    struct branch b;
    layers_enter(&b, from, "encoder.layers.%d.", i);
    struct weights_reader *r = &b.reader;
    struct clip_layer l = {0};
    l.norm1 = layers_norm(r, "layer_norm1", c, 0, eps);
    l.q = layers_linear(r, "self_attn.q_proj", c, c, BIAS_NEEDED);
    l.k = layers_linear(r, "self_attn.k_proj", c, c, BIAS_NEEDED);
    l.v = layers_linear(r, "self_attn.v_proj", c, c, BIAS_NEEDED);
    l.out = layers_linear(r, "self_attn.out_proj", c, c, BIAS_NEEDED);
    l.norm2 = layers_norm(r, "layer_norm2", c, 0, eps);
    l.fc1 = layers_linear(r, "mlp.fc1", LAYERS_ANY, c, BIAS_NEEDED);
    l.fc2 = layers_linear(r, "mlp.fc2", c, linear_out(&l.fc1), BIAS_NEEDED);
    return l;
}

static void read_layers(struct clip *clip, const struct clip_config *config,
                        struct weights_reader *r, int64_t c)
{
    int found = layers_count(r, CLIP_MAX_LAYERS, "encoder.layers.");
    int n = config->n_layers ? config->n_layers : found;
    if (layers_ok(r) && (n < 1 || n > found))
        layers_fail(r,
                    "%d text encoder layers, expected %d: the file is incomplete or its "
                    "config.json is wrong",
                    found, n < 1 ? 1 : n);
    if (!layers_ok(r)) return;
    clip->layers = calloc((size_t)n, sizeof *clip->layers);
    if (!clip->layers) {
        dk_fail(r->err, DK_ERROR_MEMORY, "out of memory while reading the text encoder");
        return;
    }
    clip->n_layers = n;
    for (int i = 0; i < n && layers_ok(r); i++)
        clip->layers[i] = read_layer(r, i, c, config->norm_eps);
}

static void read_clip(struct clip *clip, const struct clip_config *config,
                      struct weights_reader *root)
{
    struct branch b;
    layers_enter(&b, root, "text_model.");
    struct weights_reader *r = &b.reader;
    clip->tokens = weights_need(r, (const int64_t[4]){LAYERS_ANY, LAYERS_ANY},
                                "embeddings.token_embedding.weight");
    if (!layers_ok(r)) return;
    int64_t c = clip_width(clip);
    clip->positions =
        weights_need(r, (const int64_t[4]){LAYERS_ANY, c}, "embeddings.position_embedding.weight");
    if (layers_ok(r) &&
        (clip_vocabulary(clip) > INT32_MAX || clip_vocabulary(clip) < 1 ||
         c > LAYERS_MAX_CHANNELS || clip_tokens(clip) < 3 || clip_tokens(clip) > 4096))
        layers_fail(r, "vocabulary %lld, context length %lld, width %lld: not a CLIP text encoder",
                    (long long)clip_vocabulary(clip), (long long)clip_tokens(clip), (long long)c);
    if (layers_ok(r) && (config->n_heads < 1 || c % config->n_heads != 0))
        layers_fail(r,
                    "width %lld does not divide into %d heads; is num_attention_heads in "
                    "config.json right?",
                    (long long)c, config->n_heads);
    if (!layers_ok(r)) return;
    read_layers(clip, config, r, c);
    clip->norm = layers_norm(r, "final_layer_norm", c, 0, config->norm_eps);
    if (config->projected || layers_any(root, "text_projection."))
        clip->projection = layers_linear(root, "text_projection", LAYERS_ANY, c, BIAS_NONE);
}

struct clip *clip_load(const struct clip_config *config, struct weights *weights,
                       struct dk_error *err)
{
    struct dk_error own = {.code = DK_OK};
    struct weights_reader r = {.weights = weights, .prefix = "", .err = err ? err : &own};
    struct clip *clip = calloc(1, sizeof *clip);
    if (!clip) {
        dk_fail(r.err, DK_ERROR_MEMORY, "out of memory while reading the text encoder");
        return NULL;
    }
    clip->n_heads = config->n_heads;
    clip->act = config->act;
    clip->eos_id = config->eos_id;
    read_clip(clip, config, &r);
    if (layers_ok(&r)) return clip;
    clip_free(clip);
    return NULL;
}

void clip_free(struct clip *clip)
{
    if (!clip) return;
    free(clip->layers);
    free(clip);
}

int64_t clip_width(const struct clip *clip)
{
    return clip->tokens.dim[1];
}
int64_t clip_tokens(const struct clip *clip)
{
    return clip->positions.dim[0];
}
int64_t clip_vocabulary(const struct clip *clip)
{
    return clip->tokens.dim[0];
}
int clip_layers(const struct clip *clip)
{
    return clip->n_layers;
}
int64_t clip_projection(const struct clip *clip)
{
    return weight_exists(&clip->projection.weight) ? linear_out(&clip->projection) : 0;
}

/* ---- forward --------------------------------------------------------------------------------- */

/*
 * x += W_out attention(norm1 x); x += mlp(norm2 x), where x lies. Every token sees itself and those
 * before it. x [n, tokens, c].
 */
static struct tensor layer_forward(const struct clip *clip, const struct clip_layer *l,
                                   struct ops *o, struct tensor x)
{
    size_t mark = arena_mark(o->arena);
    struct tensor h = op_norm(o, x, &l->norm1, ACT_NONE);
    struct tensor q = op_linear(o, h, &(struct linear_args){.linear = &l->q});
    struct tensor k = op_linear(o, h, &(struct linear_args){.linear = &l->k});
    struct tensor v = op_linear(o, h, &(struct linear_args){.linear = &l->v});
    h = op_attention(o, q, k, v, clip->n_heads, true);
    x = op_linear(o, h, &(struct linear_args){.linear = &l->out, .residual = &x, .into = &x});
    arena_reset(o->arena, mark);
    h = op_linear(o, x,
                  &(struct linear_args){.linear = &l->fc1, .norm = &l->norm2, .act = clip->act});
    x = op_linear(o, h, &(struct linear_args){.linear = &l->fc2, .residual = &x, .into = &x});
    arena_reset(o->arena, mark);
    return x;
}

/* Layers from to end - 1, where x lies. */
static struct tensor layers_forward(const struct clip *clip, int from, int end, struct ops *o,
                                    struct tensor x)
{
    for (int i = from; i < end; i++) x = layer_forward(clip, &clip->layers[i], o, x);
    return x;
}

/* The end of the text, where pooling reads: the first eos_id, or the first maximum.
 * ids [tokens]. */
static int64_t end_of_text(const struct clip *clip, const int32_t *ids, int64_t tokens)
{
    int64_t largest = 0;
    for (int64_t i = 0; i < tokens; i++) {
        if (clip->eos_id >= 0 && ids[i] == clip->eos_id) return i;
        if (ids[i] > ids[largest]) largest = i;
    }
    return clip->eos_id >= 0
               ? 0
               : largest; /* a text without eos_id pools its first token, as in transformers */
}

/* The end-of-text row of each sample, normed and projected: [n, projection or c]. x [n,
 * tokens, c]. */
static struct tensor pool(const struct clip *clip, struct ops *o, struct tensor x,
                          const int32_t *ids)
{
    int64_t n = x.dim[0], tokens = x.dim[1], c = x.dim[2];
    struct tensor rows = tensor_new3(o->arena, 1, n, c, o->err);
    for (int64_t i = 0; i < tensor_count(rows) / c && !ops_dry(o); i++)
        memcpy(rows.data + i * c,
               x.data + (i * tokens + end_of_text(clip, ids + i * tokens, tokens)) * c,
               (size_t)c * sizeof *x.data);
    rows = op_norm(o, rows, &clip->norm, ACT_NONE);
    if (clip_projection(clip))
        rows = op_linear(o, rows, &(struct linear_args){.linear = &clip->projection});
    return op_reshape(o, rows, 2,
                      (const int64_t[]){n, clip_projection(clip) ? clip_projection(clip) : c});
}

/* A copy in new memory. */
static struct tensor copy(struct ops *o, struct tensor x)
{
    struct tensor y = tensor_new(o->arena, x.rank, x.dim, o->err);
    if (y.rank && !ops_dry(o)) memcpy(y.data, x.data, (size_t)tensor_count(x) * sizeof *x.data);
    return y;
}

bool clip_forward(const struct clip *clip, struct ops *o, const int32_t *ids, int64_t n,
                  int64_t tokens, int skip, bool normed, bool want_pooled,
                  struct clip_output *output)
{
    *output = (struct clip_output){0};
    if (skip < 0 || skip > clip->n_layers)
        return dk_fail(o->err, DK_ERROR_ARGUMENT,
                       "clip skip %d: the text encoder has %d layers; choose 0 to %d", skip,
                       clip->n_layers, clip->n_layers);
    int shown = clip->n_layers - skip;
    size_t mark = arena_mark(o->arena);
    struct tensor x = op_embed(o, &clip->tokens, &clip->positions, ids, n, tokens);
    x = layers_forward(clip, 0, shown, o, x); /* [n, tokens, c] */
    output->hidden = normed ? op_norm(o, x, &clip->norm, ACT_NONE) : copy(o, x);
    if (want_pooled && ops_ok(o)) {
        size_t end = arena_mark(o->arena);
        x = layers_forward(clip, shown, clip->n_layers, o, x);
        output->pooled = tensor_keep(o->arena, end, pool(clip, o, x, ids));
    }
    if (!want_pooled) output->hidden = tensor_keep(o->arena, mark, output->hidden);
    return ops_ok(o);
}
