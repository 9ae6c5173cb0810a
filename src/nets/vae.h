/* vae.h - the autoencoder between pixels and latents (AutoencoderKL: arXiv:2112.10752, appendix G). */
/* SPDX-License-Identifier: MIT */
#ifndef NETS_VAE_H
#define NETS_VAE_H

#include "files/weights.h"
#include "ops/ops.h"

struct vae_config {
    int n_levels;          /* block_out_channels; the side factor is 2^(n_levels - 1) */
    int layers_per_block;  /* of the encoder; the decoder has one more */
    int n_groups;
};

struct vae;

/* Encoder weights may be absent; then vae_encode fails with a sentence. Both spellings of the mid attention are read. */
struct vae *vae_load(const struct vae_config *config, struct weights *weights, struct dk_error *err);
void vae_free(struct vae *vae);

int vae_factor(const struct vae *vae);              /* pixels a latent cell, each side */
int64_t vae_latent_channels(const struct vae *vae);
bool vae_has_encoder(const struct vae *vae);

/* z [n, h, w, latent], already divided by the scaling factor; answer [n, h * f, w * f, 3], about -1 to 1. */
struct tensor vae_decode(const struct vae *vae, struct ops *o, struct tensor z);

/* x [n, h, w, 3] in -1 to 1; answer: moments [n, h / f, w / f, 2 * latent], mean first, then log variance. */
struct tensor vae_encode(const struct vae *vae, struct ops *o, struct tensor x);

#endif
