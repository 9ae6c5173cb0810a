/* ops.c - what all operations share, and the element-wise ones. */
/* SPDX-License-Identifier: MIT */
#include "ops/ops.h"

#include "base/system.h"
#include "ops/internal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool ops_ok(struct ops *o)
{
    if (o->err->code != DK_OK) return false;
    if (o->cancel && *o->cancel)
        return dk_fail(o->err, DK_ERROR_CANCELLED, "run: stopped as asked");
    return true;
}

struct tensor ops_fail(struct ops *o, enum dk_code code, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    (void)dk_fail_list(o->err, code, format, list);
    va_end(list);
    return (struct tensor){0};
}

struct shape_text shape_text(int rank, const int64_t *dim)
{
    struct shape_text s = {"["};
    size_t at = 1;
    for (int i = 0; i < rank && i < TENSOR_MAX_RANK; i++)
        at += (size_t)snprintf(s.text + at, sizeof s.text - at, "%s%lld", i ? ", " : "",
                               (long long)dim[i]);
    (void)snprintf(s.text + at, sizeof s.text - at, "]");
    return s;
}

float *ops_floats(struct ops *o, size_t count, size_t size)
{
    if (size != 0 && count > SIZE_MAX / 8 / size) {
        (void)dk_fail(o->err, DK_ERROR_MEMORY,
                      "work memory: %zu times %zu values cannot be addressed", count, size);
        return NULL;
    }
    return arena_alloc(o->arena, count * size * sizeof(float), o->err);
}

ptrdiff_t *ops_offsets(struct ops *o, size_t count)
{
    if (count > SIZE_MAX / sizeof(ptrdiff_t)) {
        (void)dk_fail(o->err, DK_ERROR_MEMORY, "work memory: %zu offsets cannot be addressed",
                      count);
        return NULL;
    }
    return arena_alloc(o->arena, count * sizeof(ptrdiff_t), o->err);
}

struct tensor ops_result(struct ops *o, int rank, const int64_t *dim, const struct tensor *into,
                         const char *op)
{
    if (!into) return tensor_new(o->arena, rank, dim, o->err);
    bool fits = into->rank == rank;
    for (int i = 0; fits && i < rank; i++) fits = into->dim[i] == dim[i];
    if (fits || into->rank == 0) return *into;
    return ops_fail(o, DK_ERROR_ARGUMENT, "%s: the result has shape %s, its place %s", op,
                    shape_text(rank, dim).text, shape_text(into->rank, into->dim).text);
}

/* Waking a thread costs a few microseconds, in which one does about this much. */
#define WORK_WORTH_A_THREAD 150e3

void ops_let_go(const struct ops *o, const struct weight *w)
{
    if (!o->stream || !w->mapped || ops_dry(o)) return;
    size_t rows = 1;
    for (int i = 0; i + 1 < w->rank; i++) rows *= (size_t)w->dim[i];
    system_release(w->data, rows * dtype_row_bytes(w->dtype, (size_t)w->dim[w->rank - 1]));
}

int ops_threads(const struct ops *o, double work)
{
    int n = o->n_threads < 1 ? 1 : o->n_threads;
    if (work < n * WORK_WORTH_A_THREAD) n = (int)(work / WORK_WORTH_A_THREAD);
    return n < 1 ? 1 : n;
}

bool ops_unpack(struct ops *o, const struct weight *w, size_t count, const char *op, float *out)
{
    size_t have = 1;
    for (int i = 0; i < w->rank; i++) {
        if (w->dim[i] <= 0 || have > SIZE_MAX / 8 / (size_t)w->dim[i])
            have = 0;
        else
            have *= (size_t)w->dim[i];
    }
    if (have != count || dtype_row_bytes(w->dtype, count) == 0)
        return dk_fail(o->err, DK_ERROR_MODEL, "%s: %s has shape %s, expected %zu values", op,
                       w->name ? w->name : "weight", shape_text(w->rank, w->dim).text, count);
    if (!ops_dry(o)) weight_row(o->kernels, w, 0, out, count);
    return true;
}

float *ops_vector(struct ops *o, const struct weight *w, size_t count, const char *op)
{
    if (!weight_exists(w)) return NULL;
    float *out = ops_floats(o, count, 1);
    return out && ops_unpack(o, w, count, op, out) ? out : NULL;
}

/* Element-wise work is cut into pieces of this many floats. */
#define PIECE 8192

/* a + b in new memory, or where a lies. */
static struct tensor sum(struct ops *o, struct tensor a, struct tensor b, bool in_place)
{
    if (!ops_ok(o) || a.rank == 0 || b.rank == 0) return (struct tensor){0};
    if (a.rank != b.rank || memcmp(a.dim, b.dim, sizeof a.dim[0] * (size_t)a.rank) != 0)
        return ops_fail(o, DK_ERROR_MODEL, "add: shapes %s and %s differ",
                        shape_text(a.rank, a.dim).text, shape_text(b.rank, b.dim).text);
    struct tensor y = in_place ? a : tensor_new(o->arena, a.rank, a.dim, o->err);
    if (y.rank == 0 || ops_dry(o)) return y;
    size_t n = (size_t)tensor_count(a);
#pragma omp parallel for num_threads(ops_threads(o, (double)n)) schedule(static)
    for (size_t i = 0; i < n; i += PIECE)
        o->kernels->add(y.data + i, a.data + i, b.data + i, min_size(PIECE, n - i));
    return y;
}

struct tensor op_add(struct ops *o, struct tensor a, struct tensor b)
{
    return sum(o, a, b, false);
}

struct tensor op_add_to(struct ops *o, struct tensor x, struct tensor y)
{
    return sum(o, x, y, true);
}

struct tensor op_act(struct ops *o, struct tensor x, enum act act)
{
    if (!ops_ok(o) || x.rank == 0) return (struct tensor){0};
    struct tensor y = tensor_new(o->arena, x.rank, x.dim, o->err);
    if (y.rank == 0 || ops_dry(o)) return y;
    size_t n = (size_t)tensor_count(x);
#pragma omp parallel for num_threads(ops_threads(o, (double)n * 4)) schedule(static)
    for (size_t i = 0; i < n; i += PIECE)
        o->kernels->act(y.data + i, x.data + i, min_size(PIECE, n - i), act);
    return y;
}

struct tensor op_concat(struct ops *o, struct tensor a, struct tensor b)
{
    if (!ops_ok(o) || a.rank == 0 || b.rank == 0) return (struct tensor){0};
    int last = a.rank - 1;
    if (a.rank != b.rank || memcmp(a.dim, b.dim, sizeof a.dim[0] * (size_t)last) != 0)
        return ops_fail(o, DK_ERROR_MODEL,
                        "concat: shapes %s and %s differ before the last dimension",
                        shape_text(a.rank, a.dim).text, shape_text(b.rank, b.dim).text);
    struct tensor y = a;
    if (a.dim[last] > INT64_MAX - b.dim[last])
        return ops_fail(o, DK_ERROR_MODEL, "concat: too many channels");
    y.dim[last] = a.dim[last] + b.dim[last];
    y = tensor_new(o->arena, a.rank, y.dim, o->err);
    if (y.rank == 0 || ops_dry(o)) return y;
    size_t ca = (size_t)a.dim[last], cb = (size_t)b.dim[last], rows = (size_t)tensor_count(a) / ca;
#pragma omp parallel for num_threads(ops_threads(o, (double)rows *(double)(ca + cb)))              \
    schedule(static)
    for (size_t i = 0; i < rows; i++) {
        memcpy(y.data + i * (ca + cb), a.data + i * ca, ca * sizeof(float));
        memcpy(y.data + i * (ca + cb) + ca, b.data + i * cb, cb * sizeof(float));
    }
    return y;
}

struct tensor op_reshape(struct ops *o, struct tensor x, int rank, const int64_t *dim)
{
    if (!ops_ok(o) || x.rank == 0) return (struct tensor){0};
    struct tensor y = {.data = x.data, .rank = rank};
    int64_t rest = tensor_count(x);
    bool fits = rank >= 1 && rank <= TENSOR_MAX_RANK;
    for (int i = 0; fits && i < rank; i++) {
        fits = dim[i] > 0 && rest % dim[i] == 0;
        if (fits) rest /= dim[i];
        y.dim[i] = dim[i];
    }
    if (!fits || rest != 1)
        return ops_fail(o, DK_ERROR_ARGUMENT, "reshape: %s does not hold as many values as %s",
                        shape_text(rank, dim).text, shape_text(x.rank, x.dim).text);
    return y;
}

struct tensor op_embed(struct ops *o, const struct weight *table, const struct weight *positions,
                       const int32_t *ids, int64_t n, int64_t tokens)
{
    if (!ops_ok(o)) return (struct tensor){0};
    if (table->rank != 2 || n < 1 || tokens < 1 || tokens > INT32_MAX || n > INT32_MAX)
        return ops_fail(o, DK_ERROR_MODEL, "embed: table of shape %s for ids [%lld, %lld]",
                        shape_text(table->rank, table->dim).text, (long long)n, (long long)tokens);
    int64_t vocabulary = table->dim[0], c = table->dim[1];
    bool has_positions = positions && weight_exists(positions);
    if (has_positions &&
        (positions->rank != 2 || positions->dim[0] < tokens || positions->dim[1] != c))
        return ops_fail(
            o, DK_ERROR_MODEL, "embed: positions of shape %s for %lld tokens of width %lld",
            shape_text(positions->rank, positions->dim).text, (long long)tokens, (long long)c);
    size_t row_bytes = c > 0 ? dtype_row_bytes(table->dtype, (size_t)c) : 0;
    size_t position_bytes = has_positions ? dtype_row_bytes(positions->dtype, (size_t)c) : 1;
    if (row_bytes == 0 || position_bytes == 0)
        return ops_fail(o, DK_ERROR_MODEL,
                        "embed: rows of %lld values do not fill the blocks of their type",
                        (long long)c);
    struct tensor y = tensor_new3(o->arena, n, tokens, c, o->err);
    size_t mark = arena_mark(o->arena);
    float *position = ops_floats(o, (size_t)c, 1);
    if (y.rank == 0 || !position) return (struct tensor){0};
    for (int64_t i = 0; i < n * tokens && !ops_dry(o); i++) {
        if (ids[i] < 0 || ids[i] >= vocabulary)
            return ops_fail(o, DK_ERROR_ARGUMENT,
                            "embed: token id %d at position %lld, the table has %lld rows",
                            (int)ids[i], (long long)i, (long long)vocabulary);
        float *row = y.data + i * c;
        weight_row(o->kernels, table, (size_t)ids[i] * row_bytes, row, (size_t)c);
        if (!has_positions) continue;
        weight_row(o->kernels, positions, (size_t)(i % tokens) * position_bytes, position,
                   (size_t)c);
        o->kernels->add(row, row, position, (size_t)c);
    }
    arena_reset(o->arena, mark);
    return y;
}

struct tensor op_sinusoids(struct ops *o, const float *values, int64_t n, int64_t width, bool flip,
                           float shift)
{
    if (!ops_ok(o)) return (struct tensor){0};
    int64_t half = width / 2;
    if (n < 1 || width < 2 || (float)half == shift)
        return ops_fail(o, DK_ERROR_MODEL, "sinusoids: width %lld with shift %g", (long long)width,
                        (double)shift);
    int64_t dim[2] = {n, width};
    struct tensor y = tensor_new(o->arena, 2, dim, o->err);
    if (y.rank == 0 || ops_dry(o)) return y;
    for (int64_t i = 0; i < n; i++) {
        float *row = y.data + i * width;
        if (width % 2) row[width - 1] = 0; /* as the reference pads odd widths */
        for (int64_t j = 0; j < half; j++) {
            /* In f32 throughout, as the reference:
             * at t = 999 the rounding of the angle is visible. */
            float frequency = expf(-logf(10000.0f) * (float)j / ((float)half - shift));
            float angle = values[i] * frequency;
            row[flip ? half + j : j] = sinf(angle);
            row[flip ? j : half + j] = cosf(angle);
        }
    }
    return y;
}

bool op_all_finite(struct ops *o, struct tensor x)
{
    size_t n = ops_dry(o) ? 0 : (size_t)tensor_count(x);
    int bad = 0;
#pragma omp parallel for num_threads(ops_threads(o, (double)n / 2)) schedule(static)               \
    reduction(|                                                                                    \
              : bad)
    for (size_t i = 0; i < n; i += PIECE)
        bad |= !o->kernels->all_finite(x.data + i, min_size(PIECE, n - i));
    return !bad;
}

bool op_weight_finite(struct ops *o, const struct weight *w)
{
    const struct dtype_info *info = dtype_info(w->dtype);
    size_t n = weight_exists(w) && info ? 1 : 0;
    for (int i = 0; i < w->rank && n; i++) n *= (size_t)w->dim[i];
    int bad = 0;
#pragma omp parallel for num_threads(ops_threads(o, (double)n)) schedule(static) reduction(| : bad)
    for (size_t i = 0; i < n; i += 2048) { /* a multiple of every block size */
        float piece[2048];
        size_t count = min_size(2048, n - i);
        weight_row(o->kernels, w, dtype_row_bytes(w->dtype, i), piece, count);
        bad |= !o->kernels->all_finite(piece, count);
    }
    ops_let_go(o, w);
    return !bad;
}
