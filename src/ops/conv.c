/* conv.c - convolutions: what they have in common, and the direct ones. */
/* SPDX-License-Identifier: MIT */
#include "ops/bands.h"
#include "ops/internal.h"
#include "ops/meter.h"

#include <string.h>

static bool check_weights(struct ops *o, struct tensor x, const struct conv_args *args)
{
    const struct weight *w = &args->conv->weight, *bias = &args->conv->bias;
    const char *name = w->name ? w->name : "weight";
    bool square = w->rank == 4 && w->dim[2] == w->dim[3] && (w->dim[2] == 1 || w->dim[2] == 3);
    if (x.rank != 4 || !weight_exists(w) || !square || w->dim[0] < 1 || w->dim[1] != x.dim[3])
        return dk_fail(o->err, DK_ERROR_MODEL, "conv: %s has shape %s, the input %s", name,
                       shape_text(w->rank, w->dim).text, shape_text(x.rank, x.dim).text);
    if (weight_exists(bias) && (bias->rank != 1 || bias->dim[0] != w->dim[0]))
        return dk_fail(o->err, DK_ERROR_MODEL, "conv: the bias of %s has shape %s, expected [%lld]",
                       name, shape_text(bias->rank, bias->dim).text, (long long)w->dim[0]);
    return true;
}

/* The largest side any picture may have; with it no product of sides overflows. */
#define MAX_SIDE (1 << 20)

/* Of the whole result's rows only those asked for, if the input rows they need are there. */
static bool plan_rows(struct ops *o, struct conv_plan *c)
{
    const struct conv_rows *r = c->args->rows;
    int64_t end = r->out_first + r->n_out, held = (int64_t)c->rows, h = (int64_t)c->h;
    bool good = c->stride == 1 && !c->args->pad_end_only && r->out_first >= 0 && r->n_out > 0 &&
                end <= (int64_t)c->out_h && r->out_first % CONV_ROW_UNIT == 0 &&
                (end == (int64_t)c->out_h || end % CONV_ROW_UNIT == 0);
    if (good) {
        int64_t pad = (int64_t)c->pad, up_h = (int64_t)c->up_h;
        int64_t top = r->out_first > pad ? r->out_first - pad : 0;
        int64_t bottom = end + pad < up_h ? end + pad : up_h;
        good = r->first >= 0 && top * h / up_h >= r->first &&
               (bottom - 1) * h / up_h < r->first + held;
    }
    if (!good)
        return dk_fail(o->err, DK_ERROR_ARGUMENT,
                       "conv: rows %lld to %lld of %zu from input rows %lld to %lld of %zu",
                       (long long)r->out_first, (long long)end, c->out_h, (long long)r->first,
                       (long long)(r->first + held), c->h);
    c->first = (size_t)r->first;
    c->out_first = (size_t)r->out_first;
    c->out_h = (size_t)r->n_out;
    return true;
}

static bool plan_sizes(struct ops *o, struct tensor x, const struct conv_args *args,
                       struct conv_plan *c)
{
    const struct weight *w = &args->conv->weight;
    int64_t h = args->rows ? args->rows->height : x.dim[1];
    if ((args->up_h != 0) != (args->up_w != 0) || args->up_h < 0 || args->up_w < 0 ||
        args->up_h > MAX_SIDE || args->up_w > MAX_SIDE || h < 1 || h > MAX_SIDE ||
        x.dim[2] > MAX_SIDE || args->stride < 0 || args->stride > 2)
        return dk_fail(o->err, DK_ERROR_ARGUMENT,
                       "conv: input %s enlarged to %lld x %lld with stride %d",
                       shape_text(x.rank, x.dim).text, (long long)args->up_h, (long long)args->up_w,
                       args->stride);
    *c = (struct conv_plan){
        .args = args,
        .n = (size_t)x.dim[0],
        .h = (size_t)h,
        .rows = (size_t)x.dim[1],
        .w = (size_t)x.dim[2],
        .in = (size_t)x.dim[3],
        .out = (size_t)w->dim[0],
        .side = (size_t)w->dim[2],
        .stride = args->stride ? (size_t)args->stride : 1,
        .x = x.data,
    };
    c->up_h = args->up_h ? (size_t)args->up_h : c->h;
    c->up_w = args->up_w ? (size_t)args->up_w : c->w;
    c->pad = c->side == 3 && !args->pad_end_only ? 1 : 0;
    size_t padding = c->side == 3 ? c->pad + 1 : 0; /* both ends together */
    if (c->up_h + padding < c->side || c->up_w + padding < c->side)
        return dk_fail(o->err, DK_ERROR_ARGUMENT, "conv: input %s is smaller than the filter",
                       shape_text(x.rank, x.dim).text);
    c->out_h = (c->up_h + padding - c->side) / c->stride + 1;
    c->out_w = (c->up_w + padding - c->side) / c->stride + 1;
    return !args->rows || plan_rows(o, c);
}

static bool check_additions(struct ops *o, const struct conv_plan *c)
{
    const struct tensor *t = c->args->per_channel, *r = c->args->residual;
    if ((t && t->rank == 0) || (r && r->rank == 0)) return false;
    if (t && (t->rank != 2 || t->dim[0] != (int64_t)c->n || t->dim[1] != (int64_t)c->out))
        return dk_fail(o->err, DK_ERROR_MODEL,
                       "conv: per channel values of shape %s, expected [%zu, %zu]",
                       shape_text(t->rank, t->dim).text, c->n, c->out);
    if (r && (r->rank != 4 || r->dim[0] != (int64_t)c->n || r->dim[1] != (int64_t)c->out_h ||
              r->dim[2] != (int64_t)c->out_w || r->dim[3] != (int64_t)c->out))
        return dk_fail(o->err, DK_ERROR_MODEL,
                       "conv: the residual has shape %s, the result [%zu, %zu, %zu, %zu]",
                       shape_text(r->rank, r->dim).text, c->n, c->out_h, c->out_w, c->out);
    return true;
}

/* Norm and per-channel additions become vectors: scale and shift before,
 * one bias a sample after. */
static bool plan_vectors(struct ops *o, struct tensor x, struct conv_plan *c)
{
    const struct conv_args *args = c->args;
    if (args->norm) {
        if (args->norm->n_groups == 0)
            return dk_fail(o->err, DK_ERROR_ARGUMENT, "conv: expects a GroupNorm before it");
        if (args->rows)
            return dk_fail(o->err, DK_ERROR_ARGUMENT, "conv: rows have no statistics of their own");
    }
    struct affine affine = {NULL, NULL};
    if (args->affine)
        affine = *args->affine;
    else if (args->norm)
        affine = op_norm_affine(o, x, args->norm);
    if ((args->norm || args->affine) && !affine.scale) return false;
    c->scale = affine.scale;
    c->shift = affine.shift;
    struct pack_job job = {&args->conv->weight, PACK_CONV, c->out, c->in, c->side * c->side};
    c->bias_stride = pack_panels(&job) * GEMM_PANEL;
    float *bias = ops_floats(o, c->n, c->bias_stride);
    if (!bias) return false;
    for (size_t i = 0; i < c->n; i++) {
        float *b = bias + i * c->bias_stride;
        if (i == 0 && !bias_in_panels(o, &args->conv->bias, &job, "conv", b)) return false;
        if (i > 0 && !ops_dry(o)) memcpy(b, bias, c->bias_stride * sizeof(float));
    }
    for (size_t i = 0; args->per_channel && i < c->n && !ops_dry(o); i++)
        o->kernels->add(bias + i * c->bias_stride, bias + i * c->bias_stride,
                        args->per_channel->data + i * c->out, c->out);
    c->bias = bias;
    return true;
}

void conv_load(const struct kernels *kernels, const struct conv_plan *c, size_t sample, ptrdiff_t y,
               ptrdiff_t x, size_t count, float *out, size_t pixel_stride)
{
    const float *scale = c->scale ? c->scale + sample * c->in : NULL;
    const float *shift = c->shift ? c->shift + sample * c->in : NULL;
    bool row_exists = y >= 0 && (size_t)y < c->up_h;
    size_t source_y = row_exists ? (size_t)y * c->h / c->up_h - c->first : 0;
    const float *row = c->x + (sample * c->rows + source_y) * c->w * c->in;
    for (size_t i = 0; i < count; i++, out += pixel_stride) {
        ptrdiff_t at = x + (ptrdiff_t)i;
        if (!row_exists || at < 0 || (size_t)at >= c->up_w) {
            memset(out, 0, c->in * sizeof(float));
            continue;
        }
        const float *pixel = row + (size_t)at * c->w / c->up_w * c->in;
        if (scale)
            kernels->affine_act(out, pixel, scale, shift, c->in, c->args->act);
        else if (c->args->act != ACT_NONE)
            kernels->act(out, pixel, c->in, c->args->act);
        else
            memcpy(out, pixel, c->in * sizeof(float));
    }
}

/* The whole input, padded and ready to be multiplied. */
static float *load_all(struct ops *o, const struct conv_plan *c, size_t rows, size_t columns)
{
    float *padded = ops_floats(o, c->n * rows, columns * row_stride(c->in));
    if (!padded || ops_dry(o)) return padded;
    size_t row_floats = columns * row_stride(c->in);
    int n_threads = ops_threads(o, (double)(c->n * rows) * (double)row_floats * 2);
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (size_t i = 0; i < c->n * rows; i++)
        conv_load(o->kernels, c, i / rows,
                  (ptrdiff_t)(c->out_first * c->stride + i % rows) - (ptrdiff_t)c->pad,
                  -(ptrdiff_t)c->pad, columns, padded + i * row_floats, row_stride(c->in));
    return padded;
}

/*
 * Direct convolution as a product without an im2col copy: an output pixel's row of A is its pixels
 * in the padded input, one run a tap.
 */
static bool conv_direct(struct ops *o, const struct conv_plan *c)
{
    size_t rows = (c->out_h - 1) * c->stride + c->side,
           columns = (c->out_w - 1) * c->stride + c->side;
    size_t runs_each = runs_cut(NULL, 0, c->in), n_runs = 0;
    bool in_place = c->side == 1 && c->stride == 1 && !c->scale && c->args->act == ACT_NONE &&
                    c->up_h == c->h && c->up_w == c->w;
    struct gemm_run *runs = (void *)ops_offsets(o, 2 * runs_each * c->side * c->side);
    ptrdiff_t *row = ops_offsets(o, c->out_h * c->out_w);
    size_t pixel = in_place ? c->in : row_stride(c->in);
    const float *a =
        in_place ? c->x + (c->out_first - c->first) * c->w * c->in : load_all(o, c, rows, columns);
    if (!runs || !row || !a) return false;
    for (size_t ky = 0; ky < c->side; ky++) {
        for (size_t kx = 0; kx < c->side; kx++)
            n_runs += runs_cut(ops_dry(o) ? NULL : runs + n_runs,
                               (ptrdiff_t)((ky * columns + kx) * pixel), c->in);
    }
    for (size_t i = 0; i < c->out_h * c->out_w && !ops_dry(o); i++)
        row[i] = (ptrdiff_t)((i / c->out_w * columns + i % c->out_w) * c->stride * pixel);
    struct product p = {
        .weights = {&c->args->conv->weight, PACK_CONV, c->out, c->in, c->side * c->side},
        .n_samples = c->n,
        .m = c->out_h * c->out_w,
        .a = a,
        .a_stride = (in_place ? c->rows : rows) * columns * pixel,
        .row = row,
        .runs = runs,
        .n_runs = n_runs,
        .bias = c->bias,
        .bias_stride = c->bias_stride,
        .residual = c->residual,
        .y = c->y,
        .n_out = c->out,
    };
    if (!product_run(o, &p, "conv")) return false;
    if (c->args->relu && !ops_dry(o)) /* few channels: little to do */
        o->kernels->act(c->y, c->y, c->n * p.m * c->out, ACT_RELU);
    return true;
}

struct tensor op_conv(struct ops *o, struct tensor x, const struct conv_args *args)
{
    struct tensor none = {0};
    struct conv_plan c;
    double start_s = meter_start(o);
    if (!ops_ok(o) || x.rank == 0 || !check_weights(o, x, args) || !plan_sizes(o, x, args, &c) ||
        !check_additions(o, &c))
        return none;
    const int64_t dim[] = {x.dim[0], (int64_t)c.out_h, (int64_t)c.out_w, (int64_t)c.out};
    struct tensor y = ops_result(o, 4, dim, args->into, "conv");
    size_t mark = arena_mark(o->arena);
    if (y.rank == 0 || !plan_vectors(o, x, &c)) return none;
    c.y = y.data;
    c.residual = args->residual ? args->residual->data : NULL;
    bool done = conv_winograd_suits(&c) ? conv_winograd(o, &c) : conv_direct(o, &c);
    if (!done) return none;
    arena_reset(o->arena, mark);
    ops_let_go(o, &args->conv->weight);
    double n_values = (double)tensor_count(y);
    meter_stop(o, c.side == 3 ? METER_CONV_3 : METER_CONV_1, start_s,
               2 * n_values * (double)c.in * (double)(c.side * c.side),
               4 * ((double)tensor_count(x) + n_values) + meter_weight_bytes(&args->conv->weight));
    return y;
}
