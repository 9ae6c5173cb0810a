/* clip_tower.h - the transformer that CLIP's text and vision networks have in common. */
/* SPDX-License-Identifier: MIT */
#ifndef NETS_CLIP_TOWER_H
#define NETS_CLIP_TOWER_H

#include "nets/layers.h"

struct clip_layer; /* two norms, four projections of the attention, two of the mlp */

struct clip_tower {
    struct clip_layer *layers; /* [n_layers] */
    int n_layers, n_heads;
    enum act act;
};

struct clip_tower_config {
    const char *what; /* "text encoder", for messages */
    int n_heads;
    enum act act; /* quick_gelu or exact gelu */
    float norm_eps;
    int n_layers; /* layers to use; 0: as many as the weights hold */
};

/*
 * Reads "encoder.layers.0." and so on of width c. The first failure is in the reader's err;
 * clip_tower_free takes what was read either way.
 */
void clip_tower_read(struct clip_tower *tower, const struct clip_tower_config *config,
                     struct weights_reader *r, int64_t c);
void clip_tower_free(struct clip_tower *tower);

/* Layers from to end - 1 over x [n, tokens, c], where x lies. causal: a token sees itself and those
 * before it. */
struct tensor clip_tower_forward(const struct clip_tower *tower, struct ops *o, int from, int end,
                                 bool causal, struct tensor x);

#endif
