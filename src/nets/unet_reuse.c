/* unet_reuse.c - what a call of the U-Net leaves for later calls of the same run. */
/* SPDX-License-Identifier: MIT */
#include "nets/unet_parts.h"

#include <string.h>

int unet_skips(const struct unet *unet)
{
    return unet->n_skips;
}

/* ---- one value ----------------------------------------------------------------------------- */

struct tensor kept_value(const struct kept *kept)
{
    struct tensor value = kept->value;
    value.dim[0] = kept->n;
    return value;
}

void kept_fill(const struct ops *o, struct kept *kept, struct tensor x, int64_t n)
{
    if (x.rank == 0) return;
    size_t k = (size_t)x.dim[0], each = (size_t)tensor_count(x) / k;
    kept->n = n;
    for (size_t i = 0; i < (size_t)n && !ops_dry(o); i++)
        memcpy(kept->value.data + i * each, x.data + i % k * each, each * sizeof *x.data);
}

bool kept_take(const struct ops *o, struct kept *kept, int64_t n)
{
    if (kept->n == n) return true;
    if (kept->n != 2 * n) return false;
    size_t half = (size_t)tensor_count(kept->value) / (size_t)kept->value.dim[0] * (size_t)n;
    float *first = kept->value.data;
    kept->n = n;
    if (!ops_dry(o)) memcpy(first, first + half, half * sizeof *first);
    return true;
}

/* ---- room for all of them ------------------------------------------------------------------ */

/* How large maps are: of the picture, and of what the down path has stored. */
struct sizes {
    int64_t n, h[MAX_SKIPS], w[MAX_SKIPS];
    int n_skips;
};

static void push_size(struct sizes *s, int64_t h, int64_t w)
{
    s->h[s->n_skips] = h;
    s->w[s->n_skips++] = w;
}

static void new_cross(struct ops *o, struct unet_reuse *r, const struct layer *layer, int64_t n,
                      int64_t tokens)
{
    const struct transformer *t = &layer->attention;
    for (int i = 0; i < t->n_blocks && r->cross; i++) {
        const struct attention *cross = &t->blocks[i].cross;
        r->cross[cross->memory].value =
            tensor_new3(o->arena, n, tokens, linear_out(&cross->out), o->err);
    }
}

/* As the forward pass goes: down the levels, through the middle, and up against the skips. */
static void new_values(const struct unet *u, struct ops *o, struct unet_reuse *r, struct sizes *s)
{
    int64_t c = conv_out(&u->conv_in);
    for (int i = 0; i < u->n_levels; i++) {
        const struct level *level = &u->down[i];
        int64_t h = s->h[s->n_skips - 1], w = s->w[s->n_skips - 1];
        for (int j = 0; j < level->n_layers; j++) {
            new_cross(o, r, &level->layers[j], s->n, h * w);
            push_size(s, h, w);
            c = resnet_out(&level->layers[j].resnet);
        }
        if (weight_exists(&level->resize.weight)) push_size(s, (h + 1) / 2, (w + 1) / 2);
    }
    int at = s->n_skips - 1;
    for (int j = 0; j < u->mid.n_layers; j++) {
        new_cross(o, r, &u->mid.layers[j], s->n, s->h[at] * s->w[at]);
        c = resnet_out(&u->mid.layers[j].resnet);
    }
    for (int i = 0; i < u->n_levels; i++)
        for (int j = 0; j < u->up[i].n_layers; j++, at--) {
            if (at == r->branch)
                r->deep.value = tensor_new4(o->arena, s->n, s->h[at], s->w[at], c, o->err);
            new_cross(o, r, &u->up[i].layers[j], s->n, s->h[at] * s->w[at]);
            c = resnet_out(&u->up[i].layers[j].resnet);
        }
}

struct unet_reuse *unet_reuse_new(const struct unet *unet, struct ops *o,
                                  const struct unet_saving *saving, int64_t n, int64_t h, int64_t w)
{
    if (!ops_ok(o)) return NULL;
    struct unet_reuse *r = arena_alloc(o->arena, sizeof *r, o->err);
    if (!r) return NULL;
    *r = (struct unet_reuse){.n = n,
                             .h = h,
                             .w = w,
                             .merge = saving->merge,
                             .branch = saving->deep ? saving->branch : -1};
    size_t n_memories = (size_t)unet->n_memories;
    if (saving->cross && n_memories > 0) {
        r->cross = arena_alloc(o->arena, n_memories * sizeof *r->cross, o->err);
        if (!r->cross) return NULL;
        for (size_t i = 0; i < n_memories; i++) r->cross[i] = (struct kept){0};
    }
    struct sizes s = {.n = n};
    push_size(&s, h, w);
    new_values(unet, o, r, &s);
    return ops_ok(o) ? r : NULL;
}
