/* unet_parts.h - what a U-Net is made of, shared by its loader and its forward pass. */
/* SPDX-License-Identifier: MIT */
#ifndef NETS_UNET_PARTS_H
#define NETS_UNET_PARTS_H

/*
 *   x -> conv_in -> down 0 .. down L-1 -> mid -> up 0 .. up L-1 -> conv_out
 *                     |                            ^
 *                     +---- skips, newest first ---+
 *
 * Each level is a row of layers (a ResNet, then a transformer where the level has attention) and a
 * convolution that changes the size. Up block i belongs to level L - 1 - i.
 */

#include "nets/layers.h"
#include "nets/unet.h"

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
    bool finest;          /* of the finest level that has any: where tokens are merged */
};

struct layer {
    struct resnet resnet;
    struct transformer attention;
};

/* A block of the paper:
 * layers, then a convolution that changes the size (none in the mid block). */
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
    int n_skips; /* what the down path stores */
    int64_t context_width;
    int n_memories;            /* cross-attentions */
    const struct block *first; /* the block whose insides the probe shows */
    int added_time_width;
    bool flip_sin_to_cos;
    float freq_shift;
    unet_probe *probe;
    void *probe_user;
};

/* What a call leaves for later ones: so many of the samples there is room for. */
struct kept {
    struct tensor value; /* [n, ...] */
    int64_t n;           /* that are filled; 0: none yet */
};

struct unet_reuse {
    int64_t n, h, w; /* what there is room for */
    double merge;
    int branch;         /* -1: deep features are not kept */
    struct kept deep;   /* [n, h, w, c] below that skip connection */
    struct kept *cross; /* [n_memories] of [n, tokens, c], or NULL */
};

/* True if n samples are kept. Of twice as many, which are both halves of guidance, the second half
 * remains. */
bool kept_take(const struct ops *o, struct kept *kept, int64_t n);
/* Keeps x, of whose k samples sample i is x[i % k]. */
void kept_fill(const struct ops *o, struct kept *kept, struct tensor x, int64_t n);
/* The part that is filled. */
struct tensor kept_value(const struct kept *kept);

#endif
