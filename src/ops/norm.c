/* norm.c - GroupNorm (arXiv:1803.08494) and LayerNorm (arXiv:1607.06450). */
/* SPDX-License-Identifier: MIT */
#include "ops/bands.h"
#include "ops/internal.h"
#include "ops/meter.h"

#include <math.h>
#include <string.h>

/*
 * Pixels summed in one piece. The pieces of a map are added in order, so that the sums depend
 * neither on the number of threads nor on how many pixels come at a time.
 */
#define PIECE_PIXELS 128
/* Pieces held at one time. */
#define BATCH_PIECES 256

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

bool op_sums_new(struct ops *o, size_t n, size_t c, struct norm_sums *sums)
{
    *sums = (struct norm_sums){.n = n, .c = c};
    if (!ops_ok(o)) return false;
    double *memory = (void *)ops_floats(o, n, 8 * c); /* 4 * c doubles */
    if (!memory) return false;
    sums->total = memory;
    sums->piece = memory + n * 2 * c;
    if (!ops_dry(o)) memset(memory, 0, n * 4 * c * sizeof(double));
    return true;
}

/* Sums of some pieces of all samples, numbered sample by sample, while they are made. */
struct batch {
    size_t first_piece, n_pieces; /* that the new pixels reach into, of each sample */
    size_t seen, pixels;          /* before; new ones */
};

static void sum_piece(const struct ops *o, const struct norm_sums *sums, const struct batch *b,
                      const float *x, size_t i, double *s)
{
    size_t sample = i / b->n_pieces, piece = b->first_piece + i % b->n_pieces, c = sums->c;
    size_t from = max_size(piece * PIECE_PIXELS, b->seen) - b->seen;
    size_t to = min_size((piece + 1) * PIECE_PIXELS - b->seen, b->pixels);
    if (piece == b->first_piece)
        memcpy(s, sums->piece + sample * 2 * c, 2 * c * sizeof *s);
    else
        memset(s, 0, 2 * c * sizeof *s);
    o->kernels->moments(s, s + c, x + (sample * b->pixels + from) * c, to - from, c);
}

/* A whole piece joins the total; what is not yet whole waits for more pixels. */
static void add_piece(const struct norm_sums *sums, const struct batch *b, size_t i,
                      const double *s)
{
    size_t sample = i / b->n_pieces, piece = b->first_piece + i % b->n_pieces, size = 2 * sums->c;
    double *total = sums->total + sample * size, *rest = sums->piece + sample * size;
    bool whole = (piece + 1) * PIECE_PIXELS <= b->seen + b->pixels;
    for (size_t j = 0; j < size; j++) {
        if (whole) total[j] += s[j];
        rest[j] = whole ? 0 : s[j];
    }
}

void op_sums_add(struct ops *o, struct norm_sums *sums, struct tensor x)
{
    if (!ops_ok(o) || x.rank == 0) return;
    size_t mark = arena_mark(o->arena), size = 2 * sums->c;
    struct batch b = {.seen = sums->n_pixels, .first_piece = sums->n_pixels / PIECE_PIXELS};
    b.pixels = (size_t)tensor_count(x) / sums->n / sums->c;
    b.n_pieces = ceil_div(b.seen + b.pixels, PIECE_PIXELS) - b.first_piece;
    size_t all = sums->n * b.n_pieces, step = min_size(all, BATCH_PIECES);
    double *own = (void *)ops_floats(o, step, 2 * size);
    sums->n_pixels += b.pixels;
    if (!own || ops_dry(o)) all = 0;
    int n_threads = ops_threads(o, (double)sums->n * (double)(b.pixels * sums->c));
    for (size_t at = 0; at < all; at += step) {
        size_t count = min_size(step, all - at);
#pragma omp parallel for num_threads(n_threads) schedule(static)
        for (size_t i = 0; i < count; i++) sum_piece(o, sums, &b, x.data, at + i, own + i * size);
        for (size_t i = 0; i < count; i++) add_piece(sums, &b, at + i, own + i * size);
    }
    arena_reset(o->arena, mark);
}

/* scale [n][c], then shift [n][c], from the sums over whole maps. */
static struct affine finish(struct ops *o, const struct norm_sums *sums, const struct norm *norm,
                            float *scale)
{
    struct affine none = {NULL, NULL};
    size_t mark = arena_mark(o->arena), n = sums->n, c = sums->c, size = 2 * c;
    const float *weight = ops_vector(o, &norm->weight, c, "norm"),
                *bias = ops_vector(o, &norm->bias, c, "norm");
    if (!scale || !ops_ok(o)) return none;
    for (size_t sample = 0; sample < n && !ops_dry(o); sample++) {
        double *total = sums->total + sample * size, *rest = sums->piece + sample * size;
        for (size_t j = 0; j < size; j++) {
            total[j] += rest[j];
            rest[j] = 0;
        }
        finish_groups(norm, sums->n_pixels, c, total, total + c, weight, bias, scale + sample * c,
                      scale + (n + sample) * c);
    }
    arena_reset(o->arena, mark);
    return (struct affine){scale, scale + n * c};
}

struct affine op_sums_affine(struct ops *o, const struct norm_sums *sums, const struct norm *norm)
{
    return finish(o, sums, norm, ops_floats(o, 2 * sums->n, sums->c));
}

struct affine op_norm_affine(struct ops *o, struct tensor x, const struct norm *norm)
{
    struct affine affine = {NULL, NULL};
    struct norm_sums sums;
    if (!ops_ok(o) || x.rank == 0 || !fits(o, x, norm, "norm")) return affine;
    size_t n = (size_t)x.dim[0], c = (size_t)x.dim[x.rank - 1];
    float *scale = ops_floats(o, 2 * n, c);
    size_t mark = arena_mark(o->arena);
    if (!scale || !op_sums_new(o, n, c, &sums)) return affine;
    op_sums_add(o, &sums, x);
    affine = finish(o, &sums, norm, scale);
    arena_reset(o->arena, mark);
    return affine;
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
    struct affine affine = op_norm_affine(o, x, norm);
    if (!affine.scale) return (struct tensor){0};
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (size_t i = 0; i < rows; i++) {
        size_t sample = i / rows_each;
        o->kernels->affine_act(y.data + i * c, x.data + i * c, affine.scale + sample * c,
                               affine.shift + sample * c, c, act);
    }
    arena_reset(o->arena, mark);
    meter_stop(o, METER_NORM, start_s, 8.0 * (double)(rows * c), 8.0 * (double)(rows * c));
    return y;
}
