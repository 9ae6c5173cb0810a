/* vae_parts.h - what an autoencoder is made of, shared by its loader and its forward passes. */
/* SPDX-License-Identifier: MIT */
#ifndef NETS_VAE_PARTS_H
#define NETS_VAE_PARTS_H

/*
 *   encoder: picture -> in -> levels (widest first, each halved but the last) -> mid -> out
 *   decoder: latent -> in -> mid -> levels (each enlarged but the last) -> out
 */

#include "nets/layers.h"
#include "nets/vae.h"

/* One head as wide as the map, over all its cells. */
struct vae_attention {
    struct norm norm;
    struct linear q, k, v, out;
};

struct vae_mid {
    struct resnet first, second;
    struct vae_attention attention;
    bool has_attention;
};

struct vae_level {
    struct resnet resnets[VAE_MAX_LAYERS];
    int n_resnets;
    struct conv resize; /* of all levels but the last */
};

/* Encoder or decoder: the same parts, in the other order. */
struct vae_half {
    struct conv in, out;
    struct norm norm_out;
    struct vae_mid mid;
    struct vae_level levels[VAE_MAX_LEVELS];
    int n_levels; /* 0: this half is not in the file */
};

struct vae {
    struct vae_half encoder, decoder;
    struct conv quant, post_quant; /* 1x1 on the moments and the latent; may not exist */
    vae_probe *probe;
    void *probe_user;
};

/* Tells the probe of value, as name or name.i (i not below 0). */
void vae_show(const struct vae *vae, struct tensor value, const char *name, int i);

/* What was made at the mark is replaced by the mid block's answer. */
struct tensor vae_mid_forward(const struct vae *vae, const struct vae_mid *mid, struct ops *o,
                              size_t mark, struct tensor x);

#endif
