/* checkops.c - the whole-tensor operations against plain loops, with 1 to 4 threads. */
/* SPDX-License-Identifier: MIT */
#include "check.h"
#include "kernels/kernels.h"
#include "ops/bands.h"
#include "ops/cache.h"
#include "ops/ops.h"

#include <stdlib.h>
#include <string.h>

struct world {
    struct arena arena;
    struct kernels kernels;
    struct dk_error err;
    struct ops ops;
    uint64_t state;
};

static uint64_t next(struct world *w)
{
    w->state = w->state * 6364136223846793005u + 1442695040888963407u;
    return w->state >> 33;
}

static int64_t pick(struct world *w, int64_t low, int64_t high)
{
    return low + (int64_t)next(w) % (high - low + 1);
}

/* About normal: the sum of four uniform deviates. */
static float deviate(struct world *w)
{
    double s = 0;
    for (int i = 0; i < 4; i++) s += (double)next(w) / 2147483648.0 - 0.5;
    return (float)(s * 1.7);
}

static struct tensor random_tensor(struct world *w, int rank, const int64_t *dim)
{
    struct tensor t = tensor_new(&w->arena, rank, dim, &w->err);
    for (int64_t i = 0; i < tensor_count(t); i++) t.data[i] = deviate(w);
    return t;
}

/* A weight in f32 or f16, at an odd address, with its values in f32 beside it. */
static struct weight random_weight(struct world *w, int rank, const int64_t *dim, float spread,
                                   float **values)
{
    struct weight weight = {
        .dtype = next(w) % 2 ? DTYPE_F16 : DTYPE_F32, .rank = rank, .name = "test.weight"};
    int64_t n = 1;
    for (int i = 0; i < rank; i++) weight.dim[i] = dim[i], n *= dim[i];
    char *data = arena_alloc(&w->arena, (size_t)n * 4 + 1, &w->err);
    *values = arena_alloc(&w->arena, (size_t)n * 4, &w->err);
    for (int64_t i = 0; i < n; i++) {
        float v = deviate(w) * spread;
        uint32_t bits;
        memcpy(&bits, &v, 4);
        /* A normal f16 from the upper bits of the f32 (truncated; small values become zero). */
        int exponent = (int)(bits >> 23 & 255) - 112;
        uint16_t half = (uint16_t)(bits >> 16 & 0x8000u);
        if (exponent > 0) half = (uint16_t)(half | exponent << 10 | (int)(bits >> 13 & 1023));
        if (weight.dtype == DTYPE_F16)
            memcpy(data + 1 + 2 * i, &half, 2);
        else
            memcpy(data + 1 + 4 * i, &v, 4);
    }
    weight.data = data + 1;
    dtype_unpack(weight.dtype, *values, weight.data, (size_t)n);
    return weight;
}

static double act_of(double x, enum act act)
{
    switch (act) {
    case ACT_SILU:
        return x / (1 + exp(-x));
    case ACT_GELU:
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    case ACT_QUICK_GELU:
        return x / (1 + exp(-1.702 * x));
    default:
        return x;
    }
}

/* y[n][rows][c] = norm of x, in double. */
static void plain_norm(double *y, const float *x, size_t n, size_t rows, size_t c,
                       const struct norm *norm, const float *weight, const float *bias)
{
    bool layer = norm->n_groups == 0;
    size_t width = layer ? c : c / (size_t)norm->n_groups, tall = layer ? 1 : rows;
    size_t n_blocks = layer ? n * rows : n;
    for (size_t i = 0; i < n_blocks; i++) {
        for (size_t g = 0; g < c; g += width) {
            double mean = 0, variance = 0, count = (double)(tall * width);
            for (size_t r = 0; r < tall; r++)
                for (size_t j = g; j < g + width; j++)
                    mean += (double)x[(i * tall + r) * c + j] / count;
            for (size_t r = 0; r < tall; r++)
                for (size_t j = g; j < g + width; j++)
                    variance += pow((double)x[(i * tall + r) * c + j] - mean, 2) / count;
            for (size_t r = 0; r < tall; r++)
                for (size_t j = g; j < g + width; j++)
                    y[(i * tall + r) * c + j] = ((double)x[(i * tall + r) * c + j] - mean) /
                                                    sqrt(variance + (double)norm->eps) *
                                                    (double)weight[j] +
                                                (double)bias[j];
        }
    }
}

/* Runs an operation with 1 to 4 threads and each sample alone: the bytes must be the same. */
typedef struct tensor operation(struct world *w, const void *args, int64_t first, int64_t n);

static struct tensor same_bytes(struct world *w, operation *op, const void *args, int64_t n,
                                const char *what)
{
    pack_cache_clear(w->ops.cache); /* addresses are used again with other weights */
    w->ops.n_threads = 1;
    struct tensor y = op(w, args, 0, n);
    CHECK(y.rank > 0, "%s: %s", what, w->err.message);
    if (y.rank == 0) return y;
    size_t bytes = (size_t)tensor_count(y) * sizeof(float);
    for (int threads = 2; threads <= 4; threads++) {
        size_t mark = arena_mark(&w->arena);
        w->ops.n_threads = threads;
        struct tensor again = op(w, args, 0, n);
        CHECK(again.rank > 0 && memcmp(y.data, again.data, bytes) == 0, "%s: %d threads differ",
              what, threads);
        arena_reset(&w->arena, mark);
    }
    for (int64_t i = 0; n > 1 && i < n; i++) {
        size_t mark = arena_mark(&w->arena), each = bytes / (size_t)n;
        w->ops.n_threads = 1 + (int)(i % 3);
        struct tensor alone = op(w, args, i, 1);
        CHECK(alone.rank > 0 && memcmp((char *)y.data + (size_t)i * each, alone.data, each) == 0,
              "%s: sample %d alone differs", what, (int)i);
        arena_reset(&w->arena, mark);
    }
    return y;
}

static void close_to(struct tensor y, const double *want, double tolerance, const char *what)
{
    double worst = 0;
    for (int64_t i = 0; i < tensor_count(y); i++) {
        double d = fabs((double)y.data[i] - want[i]) / (1 + fabs(want[i]));
        if (!(d <= worst)) worst = isnan(d) ? INFINITY : d;
    }
    CHECK(worst <= tolerance, "%s: off by %g, allowed %g", what, worst, tolerance);
}

/* Samples first .. first + n - 1. */
static struct tensor part(struct tensor t, int64_t first, int64_t n)
{
    if (t.rank == 0) return t;
    t.data += tensor_count(t) / t.dim[0] * first;
    t.dim[0] = n;
    return t;
}

/* ---- linear ---- */

static struct tensor copy_of(struct world *w, struct tensor t)
{
    struct tensor copy = tensor_new(&w->arena, t.rank, t.dim, &w->err);
    if (copy.rank) memcpy(copy.data, t.data, (size_t)tensor_count(t) * sizeof(float));
    return copy;
}

static bool same_values(struct tensor a, struct tensor b)
{
    return tensor_count(a) == tensor_count(b) &&
           memcmp(a.data, b.data, (size_t)tensor_count(a) * sizeof(float)) == 0;
}

struct linear_case {
    struct linear linear;
    struct norm norm;
    struct linear_args args;
    struct tensor x, residual;
};

static struct tensor run_linear(struct world *w, const void *args, int64_t first, int64_t n)
{
    const struct linear_case *c = args;
    struct linear_args a = c->args;
    struct tensor residual = part(c->residual, first, n);
    if (a.residual) a.residual = &residual;
    return op_linear(&w->ops, part(c->x, first, n), &a);
}

static void check_linear(struct world *w, int64_t n, int64_t tokens, int64_t k, int64_t out,
                         enum act act, bool geglu, bool with_norm, bool with_residual,
                         bool with_bias)
{
    char what[128];
    snprintf(what, sizeof what, "linear %dx%d %d->%d act %d%s%s%s", (int)n, (int)tokens, (int)k,
             (int)out, (int)act, geglu ? " geglu" : "", with_norm ? " norm" : "",
             with_residual ? " residual" : "");
    size_t mark = arena_mark(&w->arena);
    int64_t out_y = geglu ? out / 2 : out;
    float *weight, *bias, *nw, *nb;
    struct linear_case c = {.norm = {.eps = 1e-5f}};
    c.linear.weight = random_weight(w, 2, (int64_t[]){out, k}, 1 / sqrtf((float)k), &weight);
    c.linear.bias = random_weight(w, 1, &out, 1, &bias);
    c.norm.weight = random_weight(w, 1, &k, 1, &nw);
    c.norm.bias = random_weight(w, 1, &k, 1, &nb);
    if (!with_bias) c.linear.bias.data = NULL;
    c.x = random_tensor(w, 3, (int64_t[]){n, tokens, k});
    c.residual = random_tensor(w, 3, (int64_t[]){n, tokens, out_y});
    c.args = (struct linear_args){&c.linear, with_norm ? &c.norm : NULL,
                                  act,       with_residual ? &c.residual : NULL,
                                  NULL,      geglu};
    struct tensor y = same_bytes(w, run_linear, &c, n, what);
    if (with_residual && y.rank) {
        struct tensor place = copy_of(w, c.residual);
        c.args.residual = c.args.into = &place;
        struct tensor again = op_linear(&w->ops, c.x, &c.args);
        CHECK(again.data == place.data && same_values(again, y),
              "%s: differs when it replaces its residual", what);
    }
    size_t rows = (size_t)(n * tokens), uk = (size_t)k, uout = (size_t)out, uy = (size_t)out_y;
    double *x = malloc(rows * uk * sizeof *x), *z = malloc(rows * uout * sizeof *z),
           *want = malloc(rows * uy * sizeof *z);
    for (size_t i = 0; i < rows * uk; i++) x[i] = (double)c.x.data[i];
    if (with_norm) plain_norm(x, c.x.data, 1, rows, uk, &c.norm, nw, nb);
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < uout; j++) {
            double s = with_bias ? (double)bias[j] : 0;
            for (size_t p = 0; p < uk; p++) s += x[i * uk + p] * (double)weight[j * uk + p];
            z[i * uout + j] = s;
        }
        for (size_t j = 0; j < uy; j++) {
            double v = geglu ? z[i * uout + j] * act_of(z[i * uout + uy + j], ACT_GELU)
                             : act_of(z[i * uout + j], act);
            want[i * uy + j] = v + (with_residual ? (double)c.residual.data[i * uy + j] : 0);
        }
    }
    if (y.rank) close_to(y, want, 1e-5, what);
    free(x), free(z), free(want);
    arena_reset(&w->arena, mark);
}

/* ---- convolution ---- */

struct conv_case {
    struct conv conv;
    struct norm norm;
    struct conv_args args;
    struct tensor x, per_channel, residual;
};

static struct tensor run_conv(struct world *w, const void *args, int64_t first, int64_t n)
{
    const struct conv_case *c = args;
    struct conv_args a = c->args;
    struct tensor residual = part(c->residual, first, n),
                  per_channel = part(c->per_channel, first, n);
    if (a.residual) a.residual = &residual;
    if (a.per_channel) a.per_channel = &per_channel;
    return op_conv(&w->ops, part(c->x, first, n), &a);
}

struct conv_shape {
    int64_t n, h, w, in, out, side, up_h, up_w;
    int stride, groups;
    bool pad_end_only, per_channel, residual, bias;
    enum act act;
};

/* Rows from .. to - 1 of every sample. */
static struct tensor rows_of(struct world *w, struct tensor t, int64_t from, int64_t to)
{
    struct tensor part = tensor_new4(&w->arena, t.dim[0], to - from, t.dim[2], t.dim[3], &w->err);
    int64_t row = t.dim[2] * t.dim[3];
    for (int64_t i = 0; part.rank && i < t.dim[0]; i++)
        memcpy(part.data + i * (to - from) * row, t.data + (i * t.dim[1] + from) * row,
               (size_t)((to - from) * row) * sizeof(float));
    return part;
}

/*
 * The same convolution in bands of several rows, each from no more of the input than it needs, with
 * the norm's statistics gathered in pieces: the bytes of the whole.
 */
static void check_bands(struct world *w, struct tensor x, const struct conv_args *args,
                        struct tensor want, const char *what)
{
    size_t mark = arena_mark(&w->arena);
    int64_t h = x.dim[1], up_h = args->up_h ? args->up_h : h, pad = args->conv->weight.dim[2] / 2;
    struct norm_sums sums;
    struct affine affine = {NULL, NULL};
    struct conv_args banded = *args;
    w->ops.n_threads = (int)pick(w, 1, 4);
    if (args->norm) {
        op_sums_new(&w->ops, (size_t)x.dim[0], (size_t)x.dim[3], &sums);
        for (int64_t at = 0, to; at < h; at = to) {
            to = pick(w, at + 1, h);
            op_sums_add(&w->ops, &sums, rows_of(w, x, at, to));
        }
        affine = op_sums_affine(&w->ops, &sums, args->norm);
        banded.norm = NULL;
        banded.affine = &affine;
    }
    for (int64_t at = 0, to; at < want.dim[1]; at = to) {
        to = at + CONV_ROW_UNIT * pick(w, 1, 3);
        if (to > want.dim[1]) to = want.dim[1];
        int64_t top = at > pad ? at - pad : 0, bottom = to + pad < up_h ? to + pad : up_h;
        struct conv_rows rows = {h, top * h / up_h, at, to - at};
        struct tensor held = rows_of(w, x, rows.first, (bottom - 1) * h / up_h + 1), residual;
        banded.rows = &rows;
        banded.into = NULL;
        if (args->residual) {
            residual = rows_of(w, *args->residual, at, to);
            banded.residual = &residual;
        }
        struct tensor y = op_conv(&w->ops, held, &banded);
        CHECK(y.rank == 4 && same_values(y, rows_of(w, want, at, to)), "%s: rows %d to %d: %s",
              what, (int)at, (int)to, w->err.message);
        if (to == want.dim[1]) continue;
        held.dim[1]--; /* a row too few is noticed */
        struct dk_error err = {.code = DK_OK};
        struct ops o = w->ops;
        o.err = &err;
        CHECK(op_conv(&o, held, &banded).rank == 0 && err.code == DK_ERROR_ARGUMENT,
              "%s: rows %d to %d from too few", what, (int)at, (int)to);
    }
    arena_reset(&w->arena, mark);
}

static void check_conv(struct world *w, const struct conv_shape *s)
{
    char what[160];
    snprintf(what, sizeof what, "conv %dx%dx%d %d->%d side %d stride %d up %dx%d groups %d%s",
             (int)s->n, (int)s->h, (int)s->w, (int)s->in, (int)s->out, (int)s->side, s->stride,
             (int)s->up_h, (int)s->up_w, s->groups, s->pad_end_only ? " pad at the end" : "");
    size_t mark = arena_mark(&w->arena);
    float *weight, *bias, *nw, *nb;
    struct conv_case c = {.norm = {.eps = 1e-6f, .n_groups = s->groups}};
    float spread = 1 / sqrtf((float)(s->in * s->side * s->side));
    c.conv.weight =
        random_weight(w, 4, (int64_t[]){s->out, s->in, s->side, s->side}, spread, &weight);
    c.conv.bias = random_weight(w, 1, &s->out, 1, &bias);
    if (!s->bias) c.conv.bias.data = NULL;
    c.norm.weight = random_weight(w, 1, &s->in, 1, &nw);
    c.norm.bias = random_weight(w, 1, &s->in, 1, &nb);
    int64_t ih = s->up_h ? s->up_h : s->h, iw = s->up_w ? s->up_w : s->w,
            stride = s->stride ? s->stride : 1;
    int64_t before = s->side == 3 && !s->pad_end_only, after = s->side == 3;
    int64_t oh = (ih + before + after - s->side) / stride + 1,
            ow = (iw + before + after - s->side) / stride + 1;
    c.x = random_tensor(w, 4, (int64_t[]){s->n, s->h, s->w, s->in});
    c.per_channel = random_tensor(w, 2, (int64_t[]){s->n, s->out});
    c.residual = random_tensor(w, 4, (int64_t[]){s->n, oh, ow, s->out});
    c.args = (struct conv_args){.conv = &c.conv,
                                .norm = s->groups ? &c.norm : NULL,
                                .act = s->act,
                                .stride = s->stride,
                                .pad_end_only = s->pad_end_only,
                                .up_h = s->up_h,
                                .up_w = s->up_w,
                                .per_channel = s->per_channel ? &c.per_channel : NULL,
                                .residual = s->residual ? &c.residual : NULL};
    struct tensor y = same_bytes(w, run_conv, &c, s->n, what);
    if (stride == 1 && y.rank) check_bands(w, c.x, &c.args, y, what);
    c.args.relu = true;
    struct tensor cut = op_conv(&w->ops, c.x, &c.args);
    bool is_cut = cut.rank && tensor_count(cut) == tensor_count(y);
    for (int64_t i = 0; is_cut && i < tensor_count(y); i++)
        is_cut = cut.data[i] == fmaxf(y.data[i], 0);
    CHECK(is_cut, "%s: relu is not max(y, 0)", what);
    c.args.relu = false;
    if (s->residual && y.rank) {
        struct tensor place = copy_of(w, c.residual);
        c.args.residual = c.args.into = &place;
        struct tensor again = op_conv(&w->ops, c.x, &c.args);
        CHECK(again.data == place.data && same_values(again, y),
              "%s: differs when it replaces its residual", what);
    }
    size_t n_x = (size_t)tensor_count(c.x);
    double *x = malloc(n_x * sizeof *x),
           *want = malloc((size_t)(s->n * oh * ow * s->out) * sizeof *want);
    for (size_t i = 0; i < n_x; i++) x[i] = (double)c.x.data[i];
    if (s->groups)
        plain_norm(x, c.x.data, (size_t)s->n, (size_t)(s->h * s->w), (size_t)s->in, &c.norm, nw,
                   nb);
    for (size_t i = 0; i < n_x; i++) x[i] = act_of(x[i], s->act);
    for (int64_t i = 0; i < s->n * oh * ow * s->out; i++) {
        int64_t o = i % s->out, px = i / s->out % ow, py = i / s->out / ow % oh,
                sample = i / s->out / ow / oh;
        double sum = s->bias ? (double)bias[o] : 0;
        for (int64_t t = 0; t < s->side * s->side; t++) {
            int64_t y_in = py * stride + t / s->side - before,
                    x_in = px * stride + t % s->side - before;
            if (y_in < 0 || y_in >= ih || x_in < 0 || x_in >= iw) continue;
            const double *p =
                x + ((sample * s->h + y_in * s->h / ih) * s->w + x_in * s->w / iw) * s->in;
            for (int64_t j = 0; j < s->in; j++)
                sum += p[j] * (double)weight[(o * s->in + j) * s->side * s->side + t];
        }
        if (s->per_channel) sum += (double)c.per_channel.data[sample * s->out + o];
        if (s->residual) sum += (double)c.residual.data[i];
        want[i] = sum;
    }
    if (y.rank) {
        CHECK(y.dim[0] == s->n && y.dim[1] == oh && y.dim[2] == ow && y.dim[3] == s->out,
              "%s: shape", what);
        close_to(y, want, 3e-5, what);
    }
    free(x), free(want);
    arena_reset(&w->arena, mark);
}

/* ---- attention ---- */

struct attention_case {
    struct tensor q, k, v;
    int n_heads;
    bool causal;
};

static struct tensor run_attention(struct world *w, const void *args, int64_t first, int64_t n)
{
    const struct attention_case *c = args;
    return op_attention(&w->ops, part(c->q, first, n), part(c->k, first, n), part(c->v, first, n),
                        c->n_heads, c->causal);
}

static void check_attention(struct world *w, int64_t n, int64_t tq, int64_t tk, int n_heads,
                            int64_t d, bool causal, float spread)
{
    char what[96];
    snprintf(what, sizeof what, "attention %d x %d x %d, %d heads of %d%s", (int)n, (int)tq,
             (int)tk, n_heads, (int)d, causal ? ", causal" : "");
    size_t mark = arena_mark(&w->arena);
    int64_t c = d * n_heads;
    struct attention_case a = {.n_heads = n_heads, .causal = causal};
    a.q = random_tensor(w, 3, (int64_t[]){n, tq, c});
    a.k = random_tensor(w, 3, (int64_t[]){n, tk, c});
    a.v = random_tensor(w, 3, (int64_t[]){n, tk, c});
    for (int64_t i = 0; i < tensor_count(a.q); i++) a.q.data[i] *= spread;
    struct tensor y = same_bytes(w, run_attention, &a, n, what);
    double *want = calloc((size_t)(n * tq * c), sizeof *want), *s = malloc((size_t)tk * sizeof *s);
    for (int64_t i = 0; i < n * tq * n_heads; i++) {
        int64_t head = i % n_heads, row = i / n_heads, sample = row / tq,
                keys = causal ? row % tq + 1 : tk;
        const float *q = a.q.data + row * c + head * d;
        double top = -INFINITY, sum = 0;
        for (int64_t j = 0; j < keys; j++) {
            const float *k = a.k.data + (sample * tk + j) * c + head * d;
            s[j] = 0;
            for (int64_t p = 0; p < d; p++) s[j] += (double)q[p] * (double)k[p] / sqrt((double)d);
            top = fmax(top, s[j]);
        }
        for (int64_t j = 0; j < keys; j++) sum += s[j] = exp(s[j] - top);
        for (int64_t j = 0; j < keys; j++)
            for (int64_t p = 0; p < d; p++)
                want[row * c + head * d + p] +=
                    s[j] / sum * (double)a.v.data[(sample * tk + j) * c + head * d + p];
    }
    if (y.rank) close_to(y, want, 2e-5, what);
    free(want), free(s);
    arena_reset(&w->arena, mark);
}

/* ---- types of weights ---- */

/* Where a block of 256 has its f16 scales; the second is 0 for types with one. */
static const size_t scales_at[N_DTYPES][2] = {
    [DTYPE_Q2_K] = {80, 82}, [DTYPE_Q3_K] = {108, 0}, [DTYPE_Q4_K] = {0, 2}, [DTYPE_Q5_K] = {0, 2},
    [DTYPE_Q6_K] = {208, 0}, [DTYPE_Q4_1] = {0, 2},   [DTYPE_Q5_1] = {0, 2}};

/* n values of a type with small finite scales, and the same values in f32. fp8 has a scale for all
 * beside. */
static struct weight typed_weight(struct world *w, enum dtype dtype, int rank, const int64_t *dim,
                                  float **values)
{
    struct weight weight = {.dtype = dtype, .rank = rank, .name = "typed"};
    size_t n = 1;
    for (int i = 0; i < rank; i++) weight.dim[i] = dim[i], n *= (size_t)dim[i];
    const struct dtype_info *info = dtype_info(dtype);
    size_t size = dtype_row_bytes(dtype, n);
    uint8_t *data = arena_alloc(&w->arena, size + 1, &w->err);
    *values = arena_alloc(&w->arena, n * sizeof(float), &w->err);
    weight.data = ++data;
    for (size_t i = 0; i < size; i++) data[i] = (uint8_t)next(w);
    for (size_t i = 0; i < n / info->block_values; i++) {
        uint8_t *block = data + i * info->block_bytes;
        double d = (double)deviate(w) * 0.1;
        float f = (float)d;
        if (dtype == DTYPE_F32)
            memcpy(block, &f, 4);
        else if (dtype == DTYPE_F64)
            memcpy(block, &d, 8);
        else if (dtype == DTYPE_F16 || dtype == DTYPE_BF16)
            block[1] = (uint8_t)((block[1] & 0x83) | 0x28);
        else if (info->block_values == 1)
            block[0] &= 0xa7;
        else
            memcpy(block + scales_at[dtype][0], "\x00\x1c", 2);
        if (scales_at[dtype][1]) memcpy(block + scales_at[dtype][1], "\x00\x1c", 2);
    }
    dtype_unpack(dtype, *values, data, n);
    if (dtype != DTYPE_F8_E4M3 && dtype != DTYPE_F8_E5M2) return weight;
    weight.scale = 0.3f;
    for (size_t i = 0; i < n; i++) (*values)[i] *= weight.scale;
    return weight;
}

/* Whatever the type, the result is that of the values in f32 (to rounding where blocks forbid the
 * usual cuts of k). */
static void check_types(struct world *w)
{
    static const enum dtype types[] = {DTYPE_F32,     DTYPE_F16,     DTYPE_BF16, DTYPE_F64,
                                       DTYPE_F8_E4M3, DTYPE_F8_E5M2, DTYPE_Q8_0, DTYPE_Q4_0,
                                       DTYPE_Q4_1,    DTYPE_Q5_0,    DTYPE_Q5_1, DTYPE_Q2_K,
                                       DTYPE_Q3_K,    DTYPE_Q4_K,    DTYPE_Q5_K, DTYPE_Q6_K};
    w->ops.n_threads = 2;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        size_t mark = arena_mark(&w->arena);
        const char *name = dtype_info(types[i])->name;
        pack_cache_clear(w->ops.cache);
        float *values;
        int64_t in = dtype_info(types[i])->block_values == 256 ? 512 : 352;
        struct linear linear = {.weight =
                                    typed_weight(w, types[i], 2, (int64_t[]){40, in}, &values)};
        struct tensor x = random_tensor(w, 3, (int64_t[]){1, 30, in});
        struct tensor y = op_linear(&w->ops, x, &(struct linear_args){.linear = &linear});
        linear.weight.data = values, linear.weight.dtype = DTYPE_F32, linear.weight.scale = 0;
        struct tensor want = op_linear(&w->ops, x, &(struct linear_args){.linear = &linear});
        CHECK(y.rank == 3 && memcmp(y.data, want.data, 30 * 40 * 4) == 0, "linear with %s", name);
        struct tensor image = random_tensor(w, 4, (int64_t[]){1, 7, 9, in});
        for (int stride = 1; stride <= 2; stride++) { /* Winograd and direct */
            struct conv conv = {
                .weight = typed_weight(w, types[i], 4, (int64_t[]){24, in, 3, 3}, &values)};
            y = op_conv(&w->ops, image, &(struct conv_args){.conv = &conv, .stride = stride});
            conv.weight.data = values, conv.weight.dtype = DTYPE_F32, conv.weight.scale = 0;
            want = op_conv(&w->ops, image, &(struct conv_args){.conv = &conv, .stride = stride});
            double largest = 0;
            for (int64_t j = 0; j < tensor_count(want); j++)
                largest = fmax(largest, fabs((double)want.data[j]));
            CHECK(y.rank == 4 && isfinite(largest) && largest > 0 &&
                      check_distance(y.data, want.data, (size_t)tensor_count(want)) <=
                          1e-5 * largest,
                  "conv with %s, stride %d", name, stride);
        }
        arena_reset(&w->arena, mark);
    }
}

/* ---- the small ones ---- */

static void check_norm(struct world *w, int64_t n, int64_t rows, int64_t c, int groups,
                       enum act act, float mean)
{
    char what[96];
    snprintf(what, sizeof what, "norm %dx%dx%d in %d groups, act %d", (int)n, (int)rows, (int)c,
             groups, (int)act);
    size_t mark = arena_mark(&w->arena);
    float *weight, *bias;
    struct norm norm = {.n_groups = groups, .eps = 1e-5f};
    norm.weight = random_weight(w, 1, &c, 1, &weight);
    norm.bias = random_weight(w, 1, &c, 1, &bias);
    struct tensor x = random_tensor(w, 3, (int64_t[]){n, rows, c});
    for (int64_t i = 0; i < tensor_count(x); i++) x.data[i] += mean;
    double *want = malloc((size_t)tensor_count(x) * sizeof *want);
    plain_norm(want, x.data, (size_t)n, (size_t)rows, (size_t)c, &norm, weight, bias);
    for (int64_t i = 0; i < tensor_count(x); i++) want[i] = act_of(want[i], act);
    struct tensor first = {0};
    for (int threads = 1; threads <= 4; threads++) {
        w->ops.n_threads = threads;
        struct tensor y = op_norm(&w->ops, x, &norm, act);
        CHECK(y.rank == 3, "%s: %s", what, w->err.message);
        close_to(y, want, 1e-5 * (1 + fabs((double)mean)), what);
        if (threads == 1) first = y;
        CHECK(memcmp(y.data, first.data, (size_t)tensor_count(x) * 4) == 0, "%s: threads differ",
              what);
    }
    free(want);
    arena_reset(&w->arena, mark);
}

static void check_small(struct world *w)
{
    size_t mark = arena_mark(&w->arena);
    float *table, *positions;
    struct weight t = random_weight(w, 2, (int64_t[]){11, 7}, 1, &table);
    struct weight p = random_weight(w, 2, (int64_t[]){6, 7}, 1, &positions);
    int32_t ids[] = {3, 10, 0, 5, 5, 1};
    struct tensor e = op_embed(&w->ops, &t, &p, ids, 2, 3);
    CHECK(e.rank == 3 && e.dim[0] == 2 && e.dim[1] == 3 && e.dim[2] == 7, "embed: %s",
          w->err.message);
    for (int i = 0; e.rank && i < 42; i++)
        CHECK(e.data[i] == table[ids[i / 7] * 7 + i % 7] + positions[i / 7 % 3 * 7 + i % 7],
              "embed: value %d", i);

    struct tensor a = random_tensor(w, 3, (int64_t[]){2, 3, 5}),
                  b = random_tensor(w, 3, (int64_t[]){2, 3, 2});
    struct tensor c = op_concat(&w->ops, a, b), s = op_add(&w->ops, a, a),
                  g = op_act(&w->ops, a, ACT_GELU);
    for (int i = 0; c.rank && i < 42; i++)
        CHECK(c.data[i] == (i % 7 < 5 ? a.data[i / 7 * 5 + i % 7] : b.data[i / 7 * 2 + i % 7 - 5]),
              "concat: %d", i);
    for (int i = 0; i < 30; i++) {
        CHECK(s.data[i] == 2 * a.data[i], "add: value %d", i);
        CHECK(fabs((double)g.data[i] - act_of((double)a.data[i], ACT_GELU)) < 1e-6,
              "gelu: value %d", i);
    }
    struct tensor r = op_reshape(&w->ops, a, 2, (int64_t[]){6, 5});
    CHECK(r.rank == 2 && r.data == a.data && r.dim[0] == 6, "reshape");

    float values[] = {999, 0.5f};
    struct tensor sin_first = op_sinusoids(&w->ops, values, 2, 8, false, 0);
    struct tensor cos_first = op_sinusoids(&w->ops, values, 2, 8, true, 1);
    for (int i = 0; i < 8; i++) {
        double f0 = exp(-log(10000) * (i % 4) / 4), f1 = exp(-log(10000) * (i % 4) / 3),
               v = (double)values[i / 4];
        double angle0 = v * f0, angle1 = v * f1;
        const float *s0 = sin_first.data + i / 4 * 8 + i % 4,
                    *s1 = cos_first.data + i / 4 * 8 + i % 4;
        CHECK(fabs((double)s0[0] - sin(angle0)) < 1e-4 && fabs((double)s0[4] - cos(angle0)) < 1e-4,
              "sinusoid %d", i);
        CHECK(fabs((double)s1[0] - cos(angle1)) < 1e-4 && fabs((double)s1[4] - sin(angle1)) < 1e-4,
              "sinusoid %d", i);
    }

    CHECK(op_all_finite(&w->ops, a) && op_weight_finite(&w->ops, &t), "finite values");
    a.data[29] = INFINITY;
    CHECK(!op_all_finite(&w->ops, a), "an infinity goes unseen");
    a.data[29] = NAN;
    CHECK(!op_all_finite(&w->ops, a), "a NaN goes unseen");
    uint16_t halves[3] = {0x3c00, 0x7c00, 0}; /* 1, infinity, 0 */
    struct weight infinite = {.data = halves, .dtype = DTYPE_F16, .rank = 1, .dim = {3}};
    CHECK(!op_weight_finite(&w->ops, &infinite), "an infinite weight goes unseen");
    arena_reset(&w->arena, mark);
}

/* An operation that must be refused with a code and a word in its sentence; the next ones do
 * nothing. */
static void refused(struct world *w, struct tensor y, enum dk_code code, const char *word)
{
    CHECK(y.rank == 0 && w->err.code == code && strstr(w->err.message, word), "\"%s\", expected %s",
          w->err.message, word);
    struct tensor x = {
        .data = w->arena.base ? (float *)(void *)w->arena.base : NULL, .rank = 1, .dim = {1}};
    CHECK(op_act(&w->ops, x, ACT_SILU).rank == 0, "an operation ran after a failure");
    w->err = (struct dk_error){0};
}

static void check_refusals(struct world *w)
{
    size_t mark = arena_mark(&w->arena);
    float *values;
    struct tensor x = random_tensor(w, 3, (int64_t[]){1, 4, 8}),
                  image = random_tensor(w, 4, (int64_t[]){1, 4, 4, 8});
    struct linear linear = {.weight = random_weight(w, 2, (int64_t[]){6, 9}, 1, &values)};
    refused(w, op_linear(&w->ops, x, &(struct linear_args){.linear = &linear}), DK_ERROR_MODEL,
            "[6, 9]");
    linear.weight = random_weight(w, 2, (int64_t[]){7, 8}, 1, &values);
    refused(w, op_linear(&w->ops, x, &(struct linear_args){.linear = &linear, .geglu = true}),
            DK_ERROR_MODEL, "even");
    refused(w, op_linear(&w->ops, x, &(struct linear_args){.linear = &linear, .residual = &x}),
            DK_ERROR_MODEL, "residual");
    struct weight q = {
        .data = values, .dtype = DTYPE_Q8_0, .rank = 2, .dim = {2, 8}, .name = "blocks"};
    linear.weight = q;
    refused(w, op_linear(&w->ops, x, &(struct linear_args){.linear = &linear}), DK_ERROR_MODEL,
            "q8_0");
    struct conv conv = {.weight = random_weight(w, 4, (int64_t[]){4, 7, 3, 3}, 1, &values)};
    refused(w, op_conv(&w->ops, image, &(struct conv_args){.conv = &conv}), DK_ERROR_MODEL,
            "[4, 7, 3, 3]");
    conv.weight = random_weight(w, 4, (int64_t[]){4, 8, 3, 3}, 1, &values);
    struct norm norm = {.n_groups = 3, .eps = 1e-5f};
    refused(w, op_conv(&w->ops, image, &(struct conv_args){.conv = &conv, .norm = &norm}),
            DK_ERROR_MODEL, "3 groups");
    refused(w, op_attention(&w->ops, x, x, x, 3, false), DK_ERROR_MODEL, "3 heads");
    refused(w, op_add(&w->ops, x, image), DK_ERROR_MODEL, "differ");
    int32_t ids[2] = {0, 8};
    struct weight table = random_weight(w, 2, (int64_t[]){8, 8}, 1, &values);
    refused(w, op_embed(&w->ops, &table, NULL, ids, 1, 2), DK_ERROR_ARGUMENT, "token id 8");
    ids[1] = -1;
    refused(w, op_embed(&w->ops, &table, NULL, ids, 1, 2), DK_ERROR_ARGUMENT, "token id -1");
    volatile int cancel = 1;
    w->ops.cancel = &cancel;
    refused(w, op_act(&w->ops, x, ACT_SILU), DK_ERROR_CANCELLED, "stopped");
    w->ops.cancel = NULL;
    size_t limit = w->arena.limit_bytes;
    w->arena.limit_bytes = w->arena.used_bytes + 1024;
    conv.weight.dim[0] = 4;
    refused(w, op_conv(&w->ops, image, &(struct conv_args){.conv = &conv}), DK_ERROR_MEMORY,
            "limit");
    w->arena.limit_bytes = limit;
    arena_reset(&w->arena, mark);
}

static void check_all(struct world *w)
{
    check_linear(w, 1, 1, 1, 1, ACT_NONE, false, false, false, false);
    check_linear(w, 2, 77, 768, 100, ACT_QUICK_GELU, false, true, false, true);
    check_linear(w, 3, 7, 1000, 33, ACT_NONE, false, false, true, true);
    check_linear(w, 2, 30, 64, 2 * 41, ACT_NONE, true, true, true, true);
    check_linear(w, 1, 500, 40, 700, ACT_SILU, false, false, false, true);
    for (int i = 0; i < 12; i++)
        check_linear(w, pick(w, 1, 3), pick(w, 1, 50), pick(w, 1, 500), 2 * pick(w, 1, 40),
                     (enum act)pick(w, 0, 3), i % 3 == 0, i % 2, i % 4 < 2, i % 5 > 0);
    const struct conv_shape shapes[] = {
        {1, 1, 1, 1, 1, 3, 0, 0, 1, 0, false, false, false, false, ACT_NONE},
        {2, 8, 8, 4, 32, 3, 0, 0, 1, 0, false, false, false, true, ACT_NONE},
        {2, 16, 16, 64, 64, 3, 0, 0, 1, 16, false, true, true, true, ACT_SILU},
        {1, 9, 7, 32, 3, 3, 0, 0, 1, 8, false, false, false, true, ACT_SILU},
        {2, 17, 13, 24, 40, 3, 0, 0, 1, 4, false, true, true, true, ACT_SILU},
        {1, 32, 32, 48, 72, 3, 0, 0, 1, 0, false, false, true, true, ACT_NONE},
        {1, 7, 9, 32, 32, 3, 13, 18, 1, 0, false, false, false, true, ACT_NONE},
        {2, 8, 8, 64, 48, 3, 16, 16, 1, 0, false, false, false, true, ACT_NONE},
        {2, 16, 16, 32, 32, 3, 0, 0, 2, 0, false, false, false, true, ACT_NONE},
        {1, 15, 18, 32, 32, 3, 0, 0, 2, 0, false, false, false, true, ACT_NONE},
        {1, 16, 16, 16, 24, 3, 0, 0, 2, 0, true, false, false, true, ACT_NONE},
        {1, 13, 11, 16, 24, 3, 0, 0, 2, 0, true, false, false, true, ACT_NONE},
        {2, 10, 6, 96, 40, 1, 0, 0, 1, 0, false, false, true, true, ACT_NONE},
        {1, 10, 6, 33, 17, 1, 0, 0, 1, 11, false, true, false, false, ACT_SILU},
        {1, 12, 20, 200, 16, 3, 0, 0, 1, 0, false, false, false, true, ACT_NONE},
        {1, 40, 36, 16, 16, 3, 0, 0, 1, 1, false, false, false, true, ACT_SILU},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) check_conv(w, &shapes[i]);
    for (int i = 0; i < 16; i++) {
        struct conv_shape s = {.n = pick(w, 1, 3),
                               .h = pick(w, 3, 20),
                               .w = pick(w, 3, 20),
                               .in = 8 * pick(w, 1, 9),
                               .out = pick(w, 1, 5) * (i % 2 ? 8 : 5),
                               .side = 3,
                               .stride = 1 + i % 4 / 3,
                               .per_channel = i % 2,
                               .residual = i % 3 == 0,
                               .bias = i % 5 > 0,
                               .groups = i % 4 ? 0 : 4,
                               .act = i % 4 ? ACT_NONE : ACT_SILU};
        check_conv(w, &s);
    }
    check_attention(w, 1, 1, 1, 1, 4, false, 1);
    check_attention(w, 2, 77, 77, 4, 8, true, 1);
    check_attention(w, 1, 700, 700, 1, 40, true, 2);
    check_attention(w, 2, 100, 77, 3, 40, false, 1);
    check_attention(w, 1, 64, 1100, 2, 64, false, 3);
    check_attention(w, 1, 50, 600, 1, 160, false, 1);
    check_attention(w, 2, 33, 33, 5, 13, false, 30);
    check_norm(w, 2, 64, 32, 32, ACT_SILU, 0);
    check_norm(w, 2, 300, 48, 4, ACT_NONE, 3);
    check_norm(w, 1, 1000, 16, 1, ACT_SILU, -2);
    check_norm(w, 3, 17, 77, 0, ACT_NONE, 5);
    check_norm(w, 1, 5, 320, 0, ACT_GELU, 0);
    check_types(w);
    check_small(w);
    check_refusals(w);
}

int main(void)
{
    static const char *const levels[] = {"scalar", "avx2", "avx512", "neon"};
    struct world w = {.state = 1};
    if (!arena_open(&w.arena, (size_t)4 << 30, &w.err)) return 1;
    w.ops = (struct ops){.kernels = &w.kernels, .arena = &w.arena, .err = &w.err, .n_threads = 1};
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        if (!kernels_init_level(&w.kernels, levels[i])) continue;
        int before = check_failed;
        check_all(&w);
        w.ops.cache = pack_cache_open((size_t)8 << 20, &w.err);
        check_all(&w);
        pack_cache_close(w.ops.cache);
        w.ops.cache = NULL;
        if (check_failed > before) printf("(level %s)\n", levels[i]);
    }
    arena_close(&w.arena);
    return check_end("checkops");
}
