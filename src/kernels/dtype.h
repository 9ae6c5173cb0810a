/* dtype.h - element types of weights: names, sizes, rows. */
/* SPDX-License-Identifier: MIT */
#ifndef KERNELS_DTYPE_H
#define KERNELS_DTYPE_H

#include "base/tensor.h"

/* A row of k values is k / block_values blocks of block_bytes each; plain types have blocks of one
 * value. */
struct dtype_info {
    const char *name; /* "f16", "q4_k" */
    size_t block_values, block_bytes;
};

const struct dtype_info *dtype_info(enum dtype dtype);

/* Bytes of a row of k values; 0 if k does not fill whole blocks or the type is unknown. */
size_t dtype_row_bytes(enum dtype dtype, size_t k);

/* out[k] = the row's values. k must fill whole blocks; row need not be aligned. The scalar
 * reference. */
void dtype_unpack(enum dtype dtype, float *out, const void *row, size_t k);

#endif
