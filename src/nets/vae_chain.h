/* vae_chain.h - the decoder behind its mid block, as maps that follow from each other. */
/* SPDX-License-Identifier: MIT */
#ifndef NETS_VAE_CHAIN_H
#define NETS_VAE_CHAIN_H

/*
 *   map 0 --link 1--> map 1 --link 2--> map 2 ... map n (the picture)
 *
 * Each link is a 3x3 convolution with what is fused into it: norm and SiLU before, enlarging, and
 * for the second half of a ResNet its input (the map before last) added, through a 1x1 shortcut
 * where there is one. Maps between the halves of a ResNet are never held: the next link needs two.
 *
 * The maps of the last levels are the largest thing of a whole run: 1 KB a pixel where a level has
 * 256 channels. So from one held map to the next there are two ways:
 *
 * whole   All rows at once; the two maps lie in memory together, in a ResNet the one between its
 *         halves too.
 * banded  Bands of rows go through all links between, of whose maps only the rows still needed are
 *         kept, and the result replaces the first map row by row. A GroupNorm needs the statistics
 *         of its whole input first: for each norm on the way the bands go as far as that input and
 *         are only summed. More arithmetic, less memory, the same bits (ops/bands.h).
 */

#include "nets/vae_parts.h"

#define VAE_MAX_LINKS (VAE_MAX_LEVELS * (2 * VAE_MAX_LAYERS + 1) + 1)
/* Links of one banded step: the whole last level. With two levels at once the decode would take 7
 * times the arithmetic. */
#define VAE_MAX_RUN 8

struct vae_link {
    const struct conv *conv;
    const struct norm *norm;    /* with SiLU before conv, or NULL */
    const struct resnet *block; /* of which this link is the second half, or NULL */
    bool enlarges;
    int level;       /* which it ends, or -1 */
    int64_t h, w, c; /* of the map it makes */
};

struct vae_chain {
    int n;
    struct vae_link links[VAE_MAX_LINKS + 1]; /* the first has only sizes */
};

/* From map 0 of h x w cells. */
void vae_chain_lay(struct vae_chain *chain, const struct vae *vae, int64_t h, int64_t w);
/* Whether map i may be the end of a step. */
bool vae_chain_holds(const struct vae_chain *chain, int i);
/* The convolution of a link with what is fused into it, but for its norm and what is added. */
struct conv_args vae_link_args(const struct vae_link *link);
/* Multiply-accumulates of link i. */
double vae_chain_work(const struct vae_chain *chain, int i);

/* From one held map to another. */
struct vae_step {
    int from, to;
    int64_t band; /* rows of the last map a band, a multiple of CONV_ROW_UNIT; 0: whole */
};

/*
 * x is map from, the arena's last allocation, made at mark; the answer, map to, takes its place, or
 * is written to *into.
 */
struct tensor vae_step_run(const struct vae_chain *chain, struct ops *o,
                           const struct vae_step *step, size_t mark, struct tensor x,
                           const struct tensor *into);
struct tensor vae_bands_run(const struct vae_chain *chain, struct ops *o,
                            const struct vae_step *step, size_t mark, struct tensor x,
                            const struct tensor *into);

/* How a decode goes: the cheapest steps that fit. */
struct vae_plan {
    int n;
    struct vae_step steps[VAE_MAX_LINKS];
};

/*
 * Steps of the least arithmetic within limit_bytes, counted from below map 0 and beside the
 * picture; if there are none, those of the least memory. Sizes are found by laying the steps out in
 * a dry copy of the arena.
 */
void vae_plan_find(struct vae_plan *plan, const struct vae_chain *chain, const struct ops *o,
                   size_t limit_bytes);

#endif
