/* internal.h - what the operations share among themselves. */
/* SPDX-License-Identifier: MIT */
#ifndef OPS_INTERNAL_H
#define OPS_INTERNAL_H

#include "kernels/kernels.h"
#include "ops/cache.h"
#include "ops/ops.h"

/* A cache line of floats: rows of scratch are padded to it. */
#define LINE 16

static inline size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}
/*
 * Floats from row to row of scratch that products read. Rows a multiple of 2 KB apart crowd a few
 * sets of the first level cache, and look to the processor like the addresses it has just written:
 * a product ran at 70 % of its speed.
 */
static inline size_t row_stride(size_t k)
{
    return k % 512 == 0 ? k + LINE : k;
}
static inline size_t ceil_div(size_t n, size_t unit)
{
    return (n + unit - 1) / unit;
}
static inline size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}
static inline size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Records a failure and answers the rank-0 tensor. */
struct tensor ops_fail(struct ops *o, enum dk_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "[2, 64, 64, 320]" for messages. */
struct shape_text {
    char text[96];
};
struct shape_text shape_text(int rank, const int64_t *dim);

/* Scratch from the arena, count * size floats; NULL with the error recorded, also when the product
 * overflows. */
float *ops_floats(struct ops *o, size_t count, size_t size);
ptrdiff_t *ops_offsets(struct ops *o, size_t count);

/* Memory for a result: *into if that is given (and has the shape, else an error), or new. Rank 0 on
 * failure. */
struct tensor ops_result(struct ops *o, int rank, const int64_t *dim, const struct tensor *into,
                         const char *op);

/* At the end of an operation: lets go of the weight if weights are streamed. */
void ops_let_go(const struct ops *o, const struct weight *w);

/* How many threads work of so many multiply-accumulates (or their like) is worth. */
int ops_threads(const struct ops *o, double work);

/* out[n] = values of a weight from a byte of its data on. */
static inline void weight_row(const struct kernels *kernels, const struct weight *w, size_t byte,
                              float *out, size_t n)
{
    kernels->unpack(w->dtype, out, (const char *)w->data + byte, n);
    if (w->scale > 0) kernels->scale(out, out, w->scale, n);
}

/* All values of a weight as f32. The count must be what its dims say; checked. */
bool ops_unpack(struct ops *o, const struct weight *w, size_t count, const char *op, float *out);
/* The same into scratch; a missing weight gives NULL without an error, so look at ops_ok. */
float *ops_vector(struct ops *o, const struct weight *w, size_t count, const char *op);

/* LayerNorm of every row, all rows of x into y. */
bool layer_norm_rows(struct ops *o, struct tensor x, const struct norm *norm, float *y);

/*
 * A weight as panels: [n_panels][k * taps][GEMM_PANEL]. For a convolution k runs over taps, then
 * input channels; for GEGLU a panel is 8 values and their gates.
 */
struct pack_job {
    const struct weight *weight;
    enum pack_kind kind; /* PACK_PANELS, PACK_GEGLU, PACK_CONV, PACK_WINOGRAD */
    size_t n, k;         /* rows of the weight; input channels */
    size_t taps;         /* 1 or 9 */
};
size_t pack_panels(const struct pack_job *job); /* how many panels there are */
/* The weight's type, shape and blocks allow packing; else the error is recorded. */
bool pack_fits(struct ops *o, const struct pack_job *job, const char *op);
/* Floats of scratch that pack_panel needs. */
size_t pack_scratch(const struct pack_job *job);
/* Fills one panel: out [taps * k][GEMM_PANEL]. Any thread. */
void pack_panel(const struct kernels *kernels, const struct pack_job *job, size_t panel,
                float *scratch, float *out);
/*
 * Input channels first .. first + n - 1 of one panel of Winograd weights: out [WINO_PLANES] planes
 * plane_stride apart, each [n][GEMM_PANEL]. first is a multiple of RUN_UNIT, and 0 for types with
 * larger blocks.
 */
void pack_winograd(const struct kernels *kernels, const struct pack_job *job, size_t panel,
                   size_t first, size_t n, float *scratch, float *out, size_t plane_stride);

/*
 * y = act(A W^T + bias) + residual for n_samples times m rows: the engine behind linear layers and
 * direct convolutions. A's rows lie at a + sample * a_stride + row[i]; runs tell how a row
 * continues (struct gemm).
 */
struct product {
    struct pack_job weights;
    size_t n_samples, m;
    const float *a;
    size_t a_stride;
    const ptrdiff_t *row; /* [m] */
    const struct gemm_run *runs;
    size_t n_runs;
    const float *bias;  /* [n_samples or 1][n_panels * GEMM_PANEL] in panel order, or NULL */
    size_t bias_stride; /* 0: the same for all samples */
    enum act act;
    const float *residual; /* as y, or NULL */
    float *y;              /* [n_samples][m][n_out] */
    size_t n_out;
};
bool product_run(struct ops *o, const struct product *p, const char *op);

/* The longest run that engine and kernels like: a panel's share of it lies in the first-level
 * cache. */
#define RUN_MAX  256
#define RUN_UNIT 32
/* Cuts length into about equal runs of at most RUN_MAX, multiples of RUN_UNIT but for the last,
 * starting at offset; answers how many (runs may be NULL). */
size_t runs_cut(struct gemm_run *runs, ptrdiff_t offset, size_t length);
size_t runs_longest(size_t length); /* the first of them */

/* bias [n_panels * GEMM_PANEL] for the panels of a job, zero where there is none. */
bool bias_in_panels(struct ops *o, const struct weight *bias, const struct pack_job *job,
                    const char *op, float *out);

/* Everything a 3x3 convolution needs to know, checked and with its sizes worked out. */
struct conv_plan {
    const struct conv_args *args;
    size_t n, h, w;          /* the whole input */
    size_t first, rows;      /* of its rows those in memory: 0 and h unless bands are asked for */
    size_t up_h, up_w;       /* after enlarging */
    size_t out_first, out_h; /* the rows to be computed */
    size_t out_w;
    size_t in, out, side;       /* channels; 1 or 3 */
    size_t stride, pad;         /* pad before: 1 or 0 */
    const float *scale, *shift; /* [n][in]: the norm before, or NULL */
    const float *bias; /* [n][bias_stride] with the time embedding added, in panel order; or NULL */
    size_t bias_stride;
    const float *x, *residual;
    float *y;
};
/* Pixel (y, x) of the whole enlarged, normalised, activated, zero-padded input: count pixels of a
 * row into out. */
void conv_load(const struct kernels *kernels, const struct conv_plan *c, size_t sample, ptrdiff_t y,
               ptrdiff_t x, size_t count, float *out, size_t pixel_stride);
bool conv_winograd_suits(const struct conv_plan *c);
bool conv_winograd(struct ops *o, const struct conv_plan *c);

#endif
