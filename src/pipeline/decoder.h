/* decoder.h - from the latent to pixels: by the VAE, or by a tiny decoder where there is one. */
/* SPDX-License-Identifier: MIT */
#ifndef PIPELINE_DECODER_H
#define PIPELINE_DECODER_H

#include "pipeline/model.h"

/*
 * Opens options->taesd, or what the model's own folder vae_tiny/ holds, if there is either. It must
 * fit the VAE: the same latents, the same size. Called when the model's parts are there.
 */
bool decoder_open(struct dk_model *model, const struct dk_model_options *options,
                  struct dk_error *err);

/*
 * Which one makes the pictures of a job where nobody said: "tiny" or "vae" when --taesd gave one;
 * NULL, which is the VAE, otherwise. A name asked for must be known, and there.
 */
bool decoder_resolve(const struct dk_model *model, struct dk_settings *settings,
                     struct dk_error *err);
bool decoder_is_tiny(const struct dk_settings *settings);

/* How a latent becomes pixels. */
struct decoder_way {
    bool tiny, tiling;  /* tiling: of the VAE; the tiny one needs little memory anyway */
    size_t limit_bytes; /* how far the VAE may fill the arena (vae_decode_within); 0: any */
};
/* latent [h, w, c] as the sampler holds it (not read in a dry arena); answer [1, h * f, w * f, 3].
 */
struct tensor decoder_run(const struct dk_model *model, struct ops *o, const float *latent,
                          int64_t h, int64_t w, struct decoder_way way);

#endif
