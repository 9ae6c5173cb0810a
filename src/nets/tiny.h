/* tiny.h - a small decoder of latents: TAESD and what is trained after it. */
/* SPDX-License-Identifier: MIT */
#ifndef NETS_TINY_H
#define NETS_TINY_H

/*
 * For latents as the U-Net has them, scaled, without a division by 0.18215 or the like. No norms
 * and no attention: 3x3 convolutions and ReLU, each level twice as large as the one before.
 *
 *     z -> 3 tanh(z / 3) -> conv, relu -> { blocks -> enlarge by 2, conv } ... -> blocks -> conv
 *     block: x -> relu(conv(relu(conv(relu(conv(x))))) + skip(x))
 *
 * Layout and names are those of AutoencoderTiny (diffusers, models/autoencoders/vae.py,
 * DecoderTiny); madebyollin/taesd, taesd.py, has the same network, whose picture is in 0 to 1 where
 * diffusers then makes it 2 y - 1. files/names.c translates its names.
 */

#include "files/weights.h"
#include "ops/ops.h"

#define TINY_MAX_LEVELS 8
#define TINY_MAX_BLOCKS 16 /* a level */

/* Numbers of blocks, widths and channels are read from the weights; a config must agree. */
struct tiny_config {
    int n_levels; /* 0: as the weights have it */
    int n_blocks[TINY_MAX_LEVELS];
};

struct tiny;

/* The weights must outlive the network. NULL on failure. */
struct tiny *tiny_load(const struct tiny_config *config, struct weights *weights,
                       struct dk_error *err);
void tiny_free(struct tiny *tiny);

int tiny_factor(const struct tiny *tiny); /* pixels a latent cell, each side: 2^(levels - 1) */
int64_t tiny_latent_channels(const struct tiny *tiny);

/* z [n, h, w, latent]; answer [n, h * f, w * f, 3], about -1 to 1. */
struct tensor tiny_decode(const struct tiny *tiny, struct ops *o, struct tensor z);

/*
 * The same with levels from first on (at least 1) in bands of so many rows of pixels, each with as
 * many rows around it as reach into it: the same values up to rounding (Winograd's tiles lie
 * otherwise) with less memory, and some of them computed twice. tiny_decode chooses both by the
 * sizes alone.
 */
struct tensor tiny_decode_bands(const struct tiny *tiny, struct ops *o, struct tensor z, int first,
                                int64_t n_rows);

#endif
