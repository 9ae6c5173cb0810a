/* vision.h - CLIP's vision transformer (arXiv:2103.00020; arXiv:2010.11929). */
/* SPDX-License-Identifier: MIT */
#ifndef NETS_VISION_H
#define NETS_VISION_H

#include "files/weights.h"
#include "ops/ops.h"

struct vision_config {
    int n_heads;
    enum act act; /* quick_gelu or exact gelu */
    float norm_eps;
    int n_layers; /* layers to use; 0: as many as the weights hold */
    int image_px; /* side of the square picture; 0: what the position table allows */
};

struct vision;

/* Names as in transformers (vision_model.encoder.layers.0 ..., visual_projection).
 * The weights must outlive the network. */
struct vision *vision_load(const struct vision_config *config, struct weights *weights,
                           struct dk_error *err);
void vision_free(struct vision *vision);

int vision_image_px(const struct vision *vision);
int64_t vision_projection(const struct vision *vision);

/*
 * pixels [1, image_px, image_px, 3], normalised as the network was trained: the embedding of the
 * picture [1, projection], not of unit length.
 */
struct tensor vision_forward(const struct vision *vision, struct ops *o, struct tensor pixels);

#endif
