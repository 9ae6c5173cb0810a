/* kernels.h - the table of inner loops: scalar reference, overridden by instruction sets. */
/* SPDX-License-Identifier: MIT */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

/*
 * Kernels take raw pointers, run on one thread, do not allocate and cannot fail. kernels_init()
 * fills the table from scalar.c (the truth), then each instruction set the processor has overrides
 * what it does better. Within one set the value of an output element never depends on which other
 * elements are computed with it, so that ops may cut work into tasks as they like.
 */

#include "base/tensor.h"
#include "kernels/act.h"
#include "kernels/dtype.h"

/* Weights are multiplied from panels of this many output columns, [k][GEMM_PANEL], zero where there
 * is no column. */
#define GEMM_PANEL 16
/* Floats of scratch a product needs for each row: two panels may be multiplied side by side. */
#define GEMM_PARTIAL (2 * GEMM_PANEL)

/* A run of k values in every row of A, offset floats after the row's start. */
struct gemm_run {
    ptrdiff_t offset;
    size_t k;
};

/*
 * c[i][j] = act(sum over runs and k of a[row[i] + offset + k] * b[..][j] + bias[j]) +
 * residual[i][j] for i < m and j < n. Rows of A may lie anywhere (pixels under a tap of a
 * convolution, tokens of a sequence); runs are taken in order and b continues from one to the next.
 * Panels of b lie panel_stride floats apart. With accumulate the sum starts from c.
 *
 * geglu: a panel is 8 values and their 8 gates and gives 8 columns, c[i][j] = (v_j + bias[j]) *
 * gelu(g_j + bias[8 + j]).
 */
struct gemm {
    size_t m;
    const float *a;
    const ptrdiff_t *row; /* [m] */
    const struct gemm_run *runs;
    size_t n_runs;
    const float *b; /* [panels][sum of k][GEMM_PANEL], 32-byte aligned */
    size_t panel_stride;
    float *c;
    size_t ldc;
    size_t n;
    bool accumulate;
    const float *bias; /* [panels][GEMM_PANEL] or NULL */
    enum act act;
    bool geglu;
    const float *residual; /* laid out as c, or NULL */
    float *partial; /* [m][GEMM_PARTIAL] scratch, [m][GEMM_PANEL] for one panel; 32-byte aligned */
    const float
        *next_b; /* the panels multiplied after these; or NULL: then none is fetched ahead */
};

/* Columns that a panel gives. */
static inline size_t gemm_width(const struct gemm *g)
{
    return g->geglu ? GEMM_PANEL / 2 : GEMM_PANEL;
}

/* The panels of g from one of them on, at most so many: the product that gives their columns. */
static inline struct gemm gemm_panels(const struct gemm *g, size_t first, size_t count)
{
    struct gemm part = *g;
    size_t width = gemm_width(g), column = first * width;
    part.b += first * g->panel_stride;
    part.c += column;
    part.n -= column;
    if (part.bias) part.bias += first * GEMM_PANEL;
    if (part.residual) part.residual += column;
    if (part.n > count * width) {
        part.n = count * width;
        if (part.next_b) part.next_b = part.b + count * g->panel_stride;
    }
    return part;
}

/* Winograd F(4x4, 3x3): input tiles of 6x6 become 36 planes, so do 3x3 weights; outputs are 4x4
 * (arXiv:1509.09308). */
#define WINO_IN     6
#define WINO_OUT    4
#define WINO_PLANES 36

struct wino_output {
    const float *m; /* [WINO_PLANES] planes plane_stride apart, each [c] */
    size_t plane_stride;
    size_t c;          /* channels, a multiple of 8 */
    int rows, columns; /* of the 4x4 that exist */
    float *y;          /* pixel rows row_stride apart, pixels pixel_stride apart */
    size_t row_stride, pixel_stride;
    const float *bias;     /* [c] or NULL */
    const float *residual; /* laid out as y, or NULL */
    bool relu;             /* at last y = max(y, 0) */
};

struct kernels {
    const char *level; /* "scalar", "avx2", ... */

    /* Multiplies and adds in registers only; answers how many operations that was. For measuring
     * the machine's peak. */
    double (*burn)(size_t rounds);

    /* out[k] = values of a row of weights; k fills whole blocks. */
    void (*unpack)(enum dtype dtype, float *out, const void *row, size_t k);

    /* out[k][GEMM_PANEL] = columns from n rows of k floats, ld apart;
     * columns n and on become zero. */
    void (*pack)(float *out, const float *rows, size_t ld, size_t n, size_t k);

    void (*gemm)(const struct gemm *g);

    /* y = act(x * scale + shift), element by element; y may be x. */
    void (*affine_act)(float *y, const float *x, const float *scale, const float *shift, size_t n,
                       enum act act);
    void (*act)(float *y, const float *x, size_t n, enum act act);
    void (*add)(float *y, const float *a, const float *b, size_t n);
    bool (*all_finite)(const float *x, size_t n);

    /* sum[j] += x[i][j], sum_sq[j] += x[i][j]^2 for rows of c floats, row after row: the bits do
     * not depend on how many rows come at a time. */
    void (*moments)(double *sum, double *sum_sq, const float *x, size_t rows, size_t c);
    /* y = (x - mean) / sqrt(var + eps) * weight + bias over one row. */
    void (*layer_norm)(float *y, const float *x, size_t n, float eps, const float *weight,
                       const float *bias);

    /*
     * One row of scores s[n_all], of which the first n exist: s = exp((s - max) * scale) with the
     * maximum of this row and of all earlier ones (*max, -inf before the first), zero from n on;
     * *sum is brought up to date. The answer is what earlier results must be multiplied by. n 0
     * changes nothing but zeroes s.
     */
    float (*softmax)(float *s, size_t n, size_t n_all, float scale, float *max, float *sum);
    /* y = x * factor */
    void (*scale)(float *y, const float *x, float factor, size_t n);

    /* v[plane][c] (planes plane_stride apart) = B^T d B of the 6x6 pixels d at x; c is a multiple
     * of 8. */
    void (*wino_input)(float *v, size_t plane_stride, const float *x, size_t row_stride,
                       size_t pixel_stride, size_t c);
    /* u[plane][i] (planes plane_stride apart) = G g G^T of n filters, w[9][n]; n is a multiple
     * of 8. */
    void (*wino_weight)(float *u, size_t plane_stride, const float *w, size_t n);
    /* y = A^T m A + bias + residual, then relu. */
    void (*wino_output)(const struct wino_output *o);
};

#define KERNELS_SCALAR 1u /* flags: the reference only */
void kernels_init(struct kernels *k, unsigned flags);

/* Each overrides entries of a table; called by kernels_init when the processor can. */
void kernels_init_scalar(struct kernels *k);
void kernels_init_avx2(struct kernels *k);
void kernels_init_avx512(struct kernels *k);
void kernels_init_neon(struct kernels *k);

/* Fills the table for a level by name; false if this processor or build does not have it. For tests
 * and benchmarks. */
bool kernels_init_level(struct kernels *k, const char *level);

#endif
