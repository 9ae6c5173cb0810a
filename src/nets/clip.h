/* clip.h - the CLIP text transformer (Radford et al. 2021, arXiv:2103.00020, section 2.4). */
/* SPDX-License-Identifier: MIT */
#ifndef NETS_CLIP_H
#define NETS_CLIP_H

#include "files/weights.h"
#include "ops/ops.h"

struct clip_config {
    int n_heads;
    enum act act; /* quick_gelu or exact gelu */
    float norm_eps;
    int n_layers;   /* layers to use; 0: as many as the weights hold */
    int32_t eos_id; /* pooling takes the first position with this id; -1: the first maximum */
    bool projected; /* text_projection must exist (it is used where it exists) */
};

struct clip;

/* Names as in transformers (text_model.encoder.layers.0 ...).
 * The weights must outlive the network. */
struct clip *clip_load(const struct clip_config *config, struct weights *weights,
                       struct dk_error *err);
void clip_free(struct clip *clip);

int64_t clip_width(const struct clip *clip);
int64_t clip_tokens(const struct clip *clip); /* the context length the position table allows */
int64_t clip_vocabulary(const struct clip *clip);
int clip_layers(const struct clip *clip);
/* Width of pooled after text_projection; 0: there is none. */
int64_t clip_projection(const struct clip *clip);

struct clip_output {
    struct tensor hidden; /* [n, tokens, width] */
    struct tensor pooled; /* [n, width], or [n, projection] where there is a text_projection */
};

/*
 * ids [n, tokens]. hidden is the state after n_layers - skip layers (skip 0: all, 1: penultimate),
 * through the final norm if normed. pooled is always the full depth, final norm, end-of-text row,
 * projected where the model projects; computed only if want_pooled.
 */
bool clip_forward(const struct clip *clip, struct ops *o, const int32_t *ids, int64_t n,
                  int64_t tokens, int skip, bool normed, bool want_pooled,
                  struct clip_output *output);

#endif
