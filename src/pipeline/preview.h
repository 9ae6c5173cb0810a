/* preview.h - a rough picture of a latent, for watching a run. */
/* SPDX-License-Identifier: MIT */
#ifndef PIPELINE_PREVIEW_H
#define PIPELINE_PREVIEW_H

#include "pipeline/model.h"

/*
 * With a tiny decoder, what it makes of the latent. Without one, or without the memory for it, one
 * pixel a latent cell: colour = latent * M + b, where M and b are fitted once a model by least
 * squares of its own decoder's answer to a fixed random latent, so that any VAE gets its own
 * colours. latent [h, w, c], as the sampler holds it. The image is freed by the caller. A failure
 * leaves ops->err alone.
 */
bool preview_make(struct dk_model *model, const struct ops *ops, const float *latent, int64_t h,
                  int64_t w, struct dk_image *image);

#endif
