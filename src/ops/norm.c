/* norm.c - GroupNorm (arXiv:1803.08494) and LayerNorm (arXiv:1607.06450). */
/* SPDX-License-Identifier: MIT */
#include "ops/internal.h"
#include "ops/meter.h"

#include <math.h>
#include <string.h>

/* Rows summed in one piece; pieces are added in order, so that the sums do not depend on the number
 * of threads. */
#define ROWS_PER_PIECE 128

static bool fits(struct ops *o, struct tensor x, const struct norm *norm, const char *op)
{
    int64_t c = x.dim[x.rank - 1];
    if (norm->n_groups < 0 || (norm->n_groups > 0 && (x.rank < 2 || c % norm->n_groups != 0)))
        return dk_fail(o->err, DK_ERROR_MODEL, "%s: %lld channels in %d groups", op, (long long)c,
                       norm->n_groups);
    return true;
}

/* From sums per channel to the factor and shift of every channel of one sample. */
static void finish_groups(const struct norm *norm, size_t rows, size_t c, const double *sum,
                          const double *sum_sq, const float *weight, const float *bias,
                          float *scale, float *shift)
{
    size_t width = c / (size_t)norm->n_groups;
    for (size_t g = 0; g < c; g += width) {
        double s = 0, q = 0, n = (double)rows * (double)width;
        for (size_t j = g; j < g + width; j++) {
            s += sum[j];
            q += sum_sq[j];
        }
        double mean = s / n, variance = q / n - mean * mean;
        if (variance < 0) variance = 0;
        double inverse = 1.0 / sqrt(variance + (double)norm->eps);
        for (size_t j = g; j < g + width; j++) {
            double factor = inverse * (weight ? (double)weight[j] : 1.0);
            scale[j] = (float)factor;
            shift[j] = (float)((bias ? (double)bias[j] : 0.0) - mean * factor);
        }
    }
}

bool group_norm_affine(struct ops *o, struct tensor x, const struct norm *norm, float *scale,
                       float *shift)
{
    if (!fits(o, x, norm, "norm")) return false;
    size_t mark = arena_mark(o->arena);
    size_t n = (size_t)x.dim[0], c = (size_t)x.dim[x.rank - 1],
           rows = (size_t)tensor_count(x) / n / c;
    size_t n_pieces = ceil_div(rows, ROWS_PER_PIECE);
    const float *weight = ops_vector(o, &norm->weight, c, "norm"),
                *bias = ops_vector(o, &norm->bias, c, "norm");
    double *sums = (void *)ops_floats(o, n * n_pieces, 4 * c); /* [n][n_pieces][2][c] doubles */
    if (!sums || !ops_ok(o)) return false;
    size_t size = 2 * c;
    if (ops_dry(o)) {
        arena_reset(o->arena, mark);
        return true;
    }
#pragma omp parallel for num_threads(ops_threads(o, (double)n *(double)(rows * c))) schedule(static)
    for (size_t i = 0; i < n * n_pieces; i++) {
        size_t sample = i / n_pieces, first = i % n_pieces * ROWS_PER_PIECE;
        double *s = sums + i * size;
        memset(s, 0, size * sizeof(double));
        o->kernels->moments(s, s + c, x.data + (sample * rows + first) * c,
                            min_size(ROWS_PER_PIECE, rows - first), c);
    }
    for (size_t sample = 0; sample < n; sample++) {
        double *total = sums + sample * n_pieces * size;
        for (size_t i = 1; i < n_pieces; i++) {
            for (size_t j = 0; j < size; j++) total[j] += total[i * size + j];
        }
        finish_groups(norm, rows, c, total, total + c, weight, bias, scale + sample * c,
                      shift + sample * c);
    }
    arena_reset(o->arena, mark);
    return true;
}

bool layer_norm_rows(struct ops *o, struct tensor x, const struct norm *norm, float *y)
{
    size_t mark = arena_mark(o->arena);
    size_t c = (size_t)x.dim[x.rank - 1], rows = (size_t)tensor_count(x) / c;
    float *weight = ops_floats(o, 2, c);
    if (!weight) return false;
    if (ops_dry(o)) {
        arena_reset(o->arena, mark);
        return true;
    }
    float *bias = weight + c;
    for (size_t j = 0; j < c; j++) weight[j] = 1, bias[j] = 0;
    if (weight_exists(&norm->weight) && !ops_unpack(o, &norm->weight, c, "norm", weight))
        return false;
    if (weight_exists(&norm->bias) && !ops_unpack(o, &norm->bias, c, "norm", bias)) return false;
#pragma omp parallel for num_threads(ops_threads(o, 2.0 * (double)rows * (double)c))               \
    schedule(static)
    for (size_t i = 0; i < rows; i++)
        o->kernels->layer_norm(y + i * c, x.data + i * c, c, norm->eps, weight, bias);
    arena_reset(o->arena, mark);
    return true;
}

struct tensor op_norm(struct ops *o, struct tensor x, const struct norm *norm, enum act act)
{
    double start_s = meter_start(o);
    if (!ops_ok(o) || x.rank == 0 || !fits(o, x, norm, "norm")) return (struct tensor){0};
    struct tensor y = tensor_new(o->arena, x.rank, x.dim, o->err);
    if (y.rank == 0) return y;
    size_t mark = arena_mark(o->arena);
    size_t c = (size_t)x.dim[x.rank - 1], rows = ops_dry(o) ? 0 : (size_t)tensor_count(x) / c;
    int n_threads = ops_threads(o, 4.0 * (double)rows * (double)c);
    if (norm->n_groups == 0) {
        if (!layer_norm_rows(o, x, norm, y.data)) return (struct tensor){0};
        if (act != ACT_NONE) {
#pragma omp parallel for num_threads(n_threads) schedule(static)
            for (size_t i = 0; i < rows; i++)
                o->kernels->act(y.data + i * c, y.data + i * c, c, act);
        }
        meter_stop(o, METER_NORM, start_s, 8.0 * (double)(rows * c), 8.0 * (double)(rows * c));
        return y;
    }
    size_t n = (size_t)x.dim[0], rows_each = rows / n;
    float *scale = ops_floats(o, 2 * n, c);
    if (!scale || !group_norm_affine(o, x, norm, scale, scale + n * c)) return (struct tensor){0};
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (size_t i = 0; i < rows; i++) {
        const float *s = scale + i / rows_each * c;
        o->kernels->affine_act(y.data + i * c, x.data + i * c, s, s + n * c, c, act);
    }
    arena_reset(o->arena, mark);
    meter_stop(o, METER_NORM, start_s, 8.0 * (double)(rows * c), 8.0 * (double)(rows * c));
    return y;
}
