/* vae.h - the autoencoder between pixels and latents (arXiv:2112.10752, app. G). */
/* SPDX-License-Identifier: MIT */
#ifndef NETS_VAE_H
#define NETS_VAE_H

#include "files/weights.h"
#include "ops/ops.h"

#define VAE_MAX_LEVELS 8
#define VAE_MAX_LAYERS 16 /* ResNets a level */

/* Levels, layers, widths and the spelling of the mid attention are read from the weights; a config
 * must agree. */
struct vae_config {
    int n_levels;         /* as many as block_out_channels; 0: as the weights have it */
    int layers_per_block; /* of the encoder; the decoder has one more; 0: as the weights have it */
    int n_groups;         /* norm_num_groups */
};

struct vae;

/*
 * Weights of the encoder may be absent; then vae_has_encoder is false and vae_encode fails with a
 * sentence. The weights must outlive the network. NULL on failure.
 */
struct vae *vae_load(const struct vae_config *config, struct weights *weights,
                     struct dk_error *err);
void vae_free(struct vae *vae);

int vae_factor(const struct vae *vae); /* pixels a latent cell, each side: 2^(levels - 1) */
int64_t vae_latent_channels(const struct vae *vae);
bool vae_has_encoder(const struct vae *vae);

/* z [n, h, w, latent], already divided by the scaling factor; answer [n, h * f, w * f, 3], about -1
 * to 1. */
struct tensor vae_decode(const struct vae *vae, struct ops *o, struct tensor z);

/*
 * The same bits with the arena filled no further than limit_bytes, what lies in it now included: as
 * far as needed, large maps are computed in bands, which takes more arithmetic (vae_chain.h). Where
 * nothing fits, with as little memory as possible.
 */
struct tensor vae_decode_within(const struct vae *vae, struct ops *o, struct tensor z,
                                size_t limit_bytes);

/*
 * The same in tiles of tile x tile latent cells, of which neighbours share at least overlap cells
 * and fade into each other. The work memory is that of one tile, whatever the picture's size; but
 * each tile is normalised by its own statistics, so this is an approximation. What fits into one
 * tile is decoded exactly.
 */
#define VAE_TILE_PX    512
#define VAE_OVERLAP_PX 128 /* what is left of a tile's own statistics shows as tone, not as seams */
struct tensor vae_decode_tiled(const struct vae *vae, struct ops *o, struct tensor z, int64_t tile,
                               int64_t overlap);

/* x [n, h, w, 3] in -1 to 1; answer: moments [n, h / f, w / f, 2 * latent], mean first, then log
 * variance. */
struct tensor vae_encode(const struct vae *vae, struct ops *o, struct tensor x);

/* For tests: called with names and values of intermediate results (conv_in, mid, up.0, down.3 ...).
 * NULL: none. */
typedef void vae_probe(void *user, const char *name, struct tensor value);
void vae_set_probe(struct vae *vae, vae_probe *probe, void *user);

#endif
