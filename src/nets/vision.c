/* vision.c - CLIP's vision transformer (arXiv:2103.00020; arXiv:2010.11929). */
/* SPDX-License-Identifier: MIT */
#include "nets/vision.h"

#include "nets/clip_tower.h"

#include <stdlib.h>
#include <string.h>

#define MAX_PATCHES 16384 /* ViT-L/14 has 256; a table beyond this is no picture's */

struct vision {
    struct linear patch;  /* [c, 3 * p * p]: a convolution of kernel and stride p, without bias */
    struct weight class;  /* [1, c] */
    struct weight places; /* [1 + side * side, c] */
    struct norm before, after;
    struct clip_tower tower;
    struct linear projection; /* [projection, c] */
    int64_t patch_px, side;   /* side in patches */
};

/* ---- loading ------------------------------------------------------------------------------- */

/* The side of the square of patches that the position table has rows for; 0: it is no square. */
static int64_t square_side(int64_t rows)
{
    int64_t side = 0;
    while (side * side < rows - 1 && side * side <= MAX_PATCHES) side++;
    return side * side == rows - 1 && side * side <= MAX_PATCHES ? side : 0;
}

static void read_embeddings(struct vision *v, const struct vision_config *config,
                            struct weights_reader *r)
{
    struct weight *w = &v->patch.weight;
    *w = weights_need(r, (const int64_t[4]){LAYERS_ANY, 3, LAYERS_ANY, LAYERS_ANY},
                      "embeddings.patch_embedding.weight");
    if (!layers_ok(r)) return;
    int64_t c = w->dim[0], p = w->dim[2];
    if (c > LAYERS_MAX_CHANNELS || p < 1 || p > 256 || w->dim[3] != p) {
        layers_fail(r, "patches of %lldx%lld pixels in %lld channels: not a CLIP vision tower",
                    (long long)w->dim[3], (long long)p, (long long)c);
        return;
    }
    v->patch_px = p;
    w->rank = 2;
    w->dim[1] = 3 * p * p;
    v->class = weights_need(r, (const int64_t[4]){c}, "embeddings.class_embedding");
    v->class.rank = 2;
    v->class.dim[1] = c;
    v->class.dim[0] = 1;
    v->places =
        weights_need(r, (const int64_t[4]){LAYERS_ANY, c}, "embeddings.position_embedding.weight");
    if (!layers_ok(r)) return;
    v->side = square_side(v->places.dim[0]);
    if (v->side == 0 || (config->image_px && config->image_px != v->side * p))
        layers_fail(r,
                    "%lld positions for patches of %lld pixels and pictures of %d: the file or its "
                    "config.json is wrong",
                    (long long)v->places.dim[0], (long long)p, config->image_px);
}

static void read_vision(struct vision *v, const struct vision_config *config,
                        struct weights_reader *root)
{
    struct branch b;
    layers_enter(&b, root, "vision_model.");
    struct weights_reader *r = &b.reader;
    read_embeddings(v, config, r);
    if (!layers_ok(r)) return;
    int64_t c = v->patch.weight.dim[0];
    const struct clip_tower_config tower = {"vision tower", config->n_heads, config->act,
                                            config->norm_eps, config->n_layers};
    v->before = layers_norm(r, "pre_layrnorm", c, 0, config->norm_eps); /* as it is spelled there */
    clip_tower_read(&v->tower, &tower, r, c);
    v->after = layers_norm(r, "post_layernorm", c, 0, config->norm_eps);
    v->projection = layers_linear(root, "visual_projection", LAYERS_ANY, c, BIAS_NONE);
}

struct vision *vision_load(const struct vision_config *config, struct weights *weights,
                           struct dk_error *err)
{
    struct dk_error own = {.code = DK_OK};
    struct weights_reader r = {.weights = weights, .prefix = "", .err = err ? err : &own};
    struct vision *v = calloc(1, sizeof *v);
    if (!v) {
        dk_fail(r.err, DK_ERROR_MEMORY, "out of memory while reading the vision tower");
        return NULL;
    }
    if (layers_any(&r, "vision_model."))
        read_vision(v, config, &r);
    else
        layers_fail(&r, "there is no vision tower in it; give a whole CLIP, with vision_model and "
                        "text_model");
    if (layers_ok(&r)) return v;
    vision_free(v);
    return NULL;
}

void vision_free(struct vision *v)
{
    if (!v) return;
    clip_tower_free(&v->tower);
    free(v);
}

int vision_image_px(const struct vision *v)
{
    return (int)(v->side * v->patch_px);
}

int64_t vision_projection(const struct vision *v)
{
    return linear_out(&v->projection);
}

/* ---- forward ------------------------------------------------------------------------------- */

/* pixels [1, h, w, 3] -> [1, side * side, 3 * p * p], a row in the order of the weight: channel, y,
 * x. */
static struct tensor cut_patches(const struct vision *v, struct ops *o, struct tensor pixels)
{
    int64_t p = v->patch_px, side = v->side, row = 3 * p * p;
    struct tensor y = tensor_new3(o->arena, 1, side * side, row, o->err);
    for (int64_t i = 0; y.rank && !ops_dry(o) && i < side * side; i++) {
        const float *corner = pixels.data + (i / side * p * side * p + i % side * p) * 3;
        for (int64_t at = 0; at < row; at++) {
            int64_t c = at / (p * p), dy = at / p % p, dx = at % p;
            y.data[i * row + at] = corner[(dy * side * p + dx) * 3 + c];
        }
    }
    return y;
}

/* The class token, then the patches, each with its place: [1, 1 + side * side, c]. */
static struct tensor embed(const struct vision *v, struct ops *o, struct tensor pixels)
{
    int64_t n = v->side * v->side, c = v->patch.weight.dim[0];
    struct tensor x = tensor_new3(o->arena, 1, n + 1, c, o->err);
    size_t mark = arena_mark(o->arena);
    int32_t *rows = arena_alloc(o->arena, ((size_t)n + 1) * sizeof *rows, o->err);
    for (int64_t i = 0; rows && !ops_dry(o) && i <= n; i++) rows[i] = (int32_t)i;
    if (!rows || !x.rank) return (struct tensor){0};
    struct tensor places = op_embed(o, &v->places, NULL, rows, 1, n + 1);
    struct tensor first = op_embed(o, &v->class, &v->places, rows, 1, 1); /* rows[0] is 0 */
    struct tensor rest = {x.data + c, 3, {1, n, c}};
    struct tensor place = {places.data ? places.data + c : NULL, places.rank, {1, n, c}};
    op_linear(o, cut_patches(v, o, pixels),
              &(struct linear_args){.linear = &v->patch, .residual = &place, .into = &rest});
    if (first.rank && !ops_dry(o)) memcpy(x.data, first.data, (size_t)c * sizeof *x.data);
    arena_reset(o->arena, mark);
    return ops_ok(o) ? x : (struct tensor){0};
}

struct tensor vision_forward(const struct vision *v, struct ops *o, struct tensor pixels)
{
    size_t mark = arena_mark(o->arena);
    int64_t px = vision_image_px(v);
    if (pixels.rank != 4 || pixels.dim[0] != 1 || pixels.dim[1] != px || pixels.dim[2] != px ||
        pixels.dim[3] != 3) {
        dk_fail(o->err, DK_ERROR_ARGUMENT, "vision tower: expected a picture of %lldx%lld pixels",
                (long long)px, (long long)px);
        return (struct tensor){0};
    }
    struct tensor x = op_norm(o, embed(v, o, pixels), &v->before, ACT_NONE);
    x = clip_tower_forward(&v->tower, o, 0, v->tower.n_layers, false, x);
    struct tensor first = {x.data, x.rank, {1, 1, v->patch.weight.dim[0]}}; /* the class token */
    first = op_norm(o, first, &v->after, ACT_NONE);
    x = op_linear(o, first, &(struct linear_args){.linear = &v->projection});
    x = op_reshape(o, x, 2, (const int64_t[]){1, vision_projection(v)});
    return tensor_keep(o->arena, mark, x);
}
