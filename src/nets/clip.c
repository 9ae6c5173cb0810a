/* clip.c - the CLIP text transformer (Radford et al. 2021, arXiv:2103.00020, section 2.4). */
/* SPDX-License-Identifier: MIT */
#include "nets/clip.h"

#include "nets/clip_tower.h"

#include <stdlib.h>
#include <string.h>

struct clip {
    struct weight tokens;      /* [vocabulary, c] */
    struct weight positions;   /* [context length, c] */
    struct clip_tower tower;
    struct norm norm;
    struct linear projection; /* [projection, c]; may not exist */
    int32_t eos_id;
};

/* ---- loading --------------------------------------------------------------------------------- */

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
    const struct clip_tower_config tower = {"text encoder", config->n_heads, config->act,
                                            config->norm_eps, config->n_layers};
    clip_tower_read(&clip->tower, &tower, r, c);
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
    clip->eos_id = config->eos_id;
    read_clip(clip, config, &r);
    if (layers_ok(&r)) return clip;
    clip_free(clip);
    return NULL;
}

void clip_free(struct clip *clip)
{
    if (!clip) return;
    clip_tower_free(&clip->tower);
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
    return clip->tower.n_layers;
}
int64_t clip_projection(const struct clip *clip)
{
    return weight_exists(&clip->projection.weight) ? linear_out(&clip->projection) : 0;
}

/* ---- forward --------------------------------------------------------------------------------- */

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
    if (skip < 0 || skip > clip->tower.n_layers)
        return dk_fail(o->err, DK_ERROR_ARGUMENT,
                       "clip skip %d: the text encoder has %d layers; choose 0 to %d", skip,
                       clip->tower.n_layers, clip->tower.n_layers);
    int shown = clip->tower.n_layers - skip;
    size_t mark = arena_mark(o->arena);
    struct tensor x = op_embed(o, &clip->tokens, &clip->positions, ids, n, tokens);
    x = clip_tower_forward(&clip->tower, o, 0, shown, true, x); /* [n, tokens, c] */
    output->hidden = normed ? op_norm(o, x, &clip->norm, ACT_NONE) : copy(o, x);
    if (want_pooled && ops_ok(o)) {
        size_t end = arena_mark(o->arena);
        x = clip_tower_forward(&clip->tower, o, shown, clip->tower.n_layers, true, x);
        output->pooled = tensor_keep(o->arena, end, pool(clip, o, x, ids));
    }
    if (!want_pooled) output->hidden = tensor_keep(o->arena, mark, output->hidden);
    return ops_ok(o);
}
