/* tensor.h - activations (f32) and weights (as the file has them). */
/* SPDX-License-Identifier: MIT */
#ifndef BASE_TENSOR_H
#define BASE_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TENSOR_MAX_RANK 4

/* Element types of weights. Block types hold a row of k values in k / block elements; see
 * kernels/dtype.h. */
enum dtype {
    DTYPE_F32,
    DTYPE_F16,
    DTYPE_BF16,
    DTYPE_F64,
    DTYPE_F8_E4M3,
    DTYPE_F8_E5M2,
    DTYPE_I64,
    DTYPE_I32,
    DTYPE_U8,
    DTYPE_Q8_0,
    DTYPE_Q4_0,
    DTYPE_Q4_1,
    DTYPE_Q5_0,
    DTYPE_Q5_1,
    DTYPE_Q2_K,
    DTYPE_Q3_K,
    DTYPE_Q4_K,
    DTYPE_Q5_K,
    DTYPE_Q6_K,
    N_DTYPES
};

/*
 * An activation: dense f32, row-major, at most 4 dimensions; images are [n, h, w, c], sequences [n,
 * tokens, c]. It is a small value and never owns its data: an arena does. Rank 0 is the answer of
 * an operation that could not proceed; operations given one return one.
 */
struct tensor {
    float *data;
    int rank;
    int64_t dim[TENSOR_MAX_RANK];
};

/*
 * A weight: read-only memory in the file's own type, dimensions as in PyTorch ([out, in], [out, in,
 * kh, kw], [c]). data need not be aligned to the element size. name is for messages.
 */
struct weight {
    const void *data; /* NULL: there is none (a layer without bias) */
    enum dtype dtype;
    int rank;
    int64_t dim[TENSOR_MAX_RANK];
    const char *name;
    float scale; /* not 0: every value is to be multiplied by it (fp8 files have one a tensor) */
    bool mapped; /* lies in a mapped file: its pages may be given back, touching it reads them again
                  */
};

static inline int64_t tensor_count(struct tensor t)
{
    int64_t n = t.rank > 0 ? 1 : 0;
    for (int i = 0; i < t.rank; i++) n *= t.dim[i];
    return n;
}

static inline bool weight_exists(const struct weight *w)
{
    return w->data != NULL;
}

#endif
