/* bands.h - maps too large to be held: rows of a convolution, and a norm's statistics in pieces. */
/* SPDX-License-Identifier: MIT */
#ifndef OPS_BANDS_H
#define OPS_BANDS_H

/*
 * A map that is computed band by band has the very bits it would have if it were computed at once:
 * a convolution's outputs do not depend on which others are computed with them as long as bands
 * begin where Winograd's tiles begin, and sums over a map run in the same pieces and order.
 */

#include "ops/ops.h"

/* Bands of a result begin at multiples of this many rows. */
#define CONV_ROW_UNIT 4

/*
 * Which rows of the result a convolution with stride 1 computes: out_first .. out_first + n_out -
 * 1, a multiple of CONV_ROW_UNIT unless they reach the end. x holds only rows first .. of an input
 * of height rows, at least those that are needed. With up_h, that is the whole enlarged input's
 * height.
 */
struct conv_rows {
    int64_t height, first;
    int64_t out_first, n_out;
};

/* What a norm with known statistics does to a channel: x * scale + shift, both [n][c]. */
struct affine {
    const float *scale, *shift;
};

/* Sums over the pixels of a map that were seen so far, for its GroupNorm. */
struct norm_sums {
    size_t n, c, n_pixels; /* samples, channels; pixels of each sample so far */
    double *total;         /* [n][2][c], of whole pieces */
    double *piece;         /* [n][2][c], of the piece that is not yet whole */
};

/* Memory for the sums, and zeros; c channels of n samples. False on failure. */
bool op_sums_new(struct ops *o, size_t n, size_t c, struct norm_sums *sums);
/* The next pixels of every sample: x [n, ..., c]. */
void op_sums_add(struct ops *o, struct norm_sums *sums, struct tensor x);
/* The norm of a map of which all pixels have been seen; lies in the arena. NULLs on failure. */
struct affine op_sums_affine(struct ops *o, const struct norm_sums *sums, const struct norm *norm);
/* The same for a map that lies in memory. */
struct affine op_norm_affine(struct ops *o, struct tensor x, const struct norm *norm);

#endif
