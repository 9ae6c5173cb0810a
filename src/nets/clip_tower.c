/* clip_tower.c - the transformer that CLIP's text and vision networks have in common. */
/* SPDX-License-Identifier: MIT */
#include "nets/clip_tower.h"

#include <stdlib.h>

#define MAX_LAYERS 128

struct clip_layer {
    struct norm norm1, norm2;
    struct linear q, k, v, out; /* [c, c] with biases */
    struct linear fc1, fc2;     /* [inner, c], [c, inner] */
};

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

void clip_tower_read(struct clip_tower *tower, const struct clip_tower_config *config,
                     struct weights_reader *r, int64_t c)
{
    *tower = (struct clip_tower){.n_heads = config->n_heads, .act = config->act};
    if (layers_ok(r) && (config->n_heads < 1 || c % config->n_heads != 0))
        layers_fail(r,
                    "width %lld does not divide into %d heads; is num_attention_heads in "
                    "config.json right?",
                    (long long)c, config->n_heads);
    int found = layers_ok(r) ? layers_count(r, MAX_LAYERS, "encoder.layers.") : 0;
    int n = config->n_layers ? config->n_layers : found;
    if (layers_ok(r) && (n < 1 || n > found))
        layers_fail(r,
                    "%d %s layers, expected %d: the file is incomplete or its config.json is "
                    "wrong",
                    found, config->what, n < 1 ? 1 : n);
    if (!layers_ok(r)) return;
    tower->layers = calloc((size_t)n, sizeof *tower->layers);
    if (!tower->layers) {
        dk_fail(r->err, DK_ERROR_MEMORY, "out of memory while reading the %s", config->what);
        return;
    }
    tower->n_layers = n;
    for (int i = 0; i < n && layers_ok(r); i++)
        tower->layers[i] = read_layer(r, i, c, config->norm_eps);
}

void clip_tower_free(struct clip_tower *tower)
{
    free(tower->layers);
    *tower = (struct clip_tower){0};
}

/* x += W_out attention(norm1 x); x += mlp(norm2 x), where x lies. x [n, tokens, c]. */
static struct tensor layer_forward(const struct clip_tower *tower, const struct clip_layer *l,
                                   struct ops *o, bool causal, struct tensor x)
{
    size_t mark = arena_mark(o->arena);
    struct tensor h = op_norm(o, x, &l->norm1, ACT_NONE);
    struct tensor q = op_linear(o, h, &(struct linear_args){.linear = &l->q});
    struct tensor k = op_linear(o, h, &(struct linear_args){.linear = &l->k});
    struct tensor v = op_linear(o, h, &(struct linear_args){.linear = &l->v});
    h = op_attention(o, q, k, v, tower->n_heads, causal);
    x = op_linear(o, h, &(struct linear_args){.linear = &l->out, .residual = &x, .into = &x});
    arena_reset(o->arena, mark);
    h = op_linear(o, x,
                  &(struct linear_args){.linear = &l->fc1, .norm = &l->norm2, .act = tower->act});
    x = op_linear(o, h, &(struct linear_args){.linear = &l->fc2, .residual = &x, .into = &x});
    arena_reset(o->arena, mark);
    return x;
}

struct tensor clip_tower_forward(const struct clip_tower *tower, struct ops *o, int from, int end,
                                 bool causal, struct tensor x)
{
    for (int i = from; i < end; i++) x = layer_forward(tower, &tower->layers[i], o, causal, x);
    return x;
}
