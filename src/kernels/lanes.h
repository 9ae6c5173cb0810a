/* lanes.h - inner loops that are alike for vectors of any width. */
/* SPDX-License-Identifier: MIT */
#ifndef KERNELS_LANES_H
#define KERNELS_LANES_H

/*
 * Each instruction set's file includes this after its primitives, all static inline so that no code
 * of one set can be linked into another:
 *
 *   LANES, vec               8 or 16; so many floats
 *   v_set(x), v_load(p), v_store(p, v)
 *   v_load_first(p, n)       the first n lanes; the others are 0 and not read; n may be beyond
 *   v_store_first(p, v, n)   likewise
 *   v_first(v, n, other)     lanes from n on are other's
 *   v_add v_sub v_mul v_div  (a, b)
 *   v_max(a, b), v_min(a, b) a > b ? a : b, a < b ? a : b
 *   v_fma(a, b, c)           a b + c, v_fms a b - c, v_fnma c - a b; rounded once
 *   v_abs(x), v_negate(x), v_minus_abs(x), v_nearest(x)   the last a whole number, ties to even
 *   v_if_negative(x, a, b)   a where x has its sign bit, else b
 *   v_clear_less(a, b, v)    0 where a < b, else v; v_clear_greater likewise
 *   v_times_power(v, n)      v 2^n by adding n, whole, to the exponent
 *   v_highest(v)             the largest lane
 *   v_from_f16(p), v_from_bf16(p), v_from_i8(p)   LANES values of that type
 *   f16_at(p)                one value
 *   v_fetch(p), v_fetch_next(p)   ask for the cache line of p, far ahead or for soon
 *   v_transpose(r)           rows r[LANES] become columns
 *   dvec, d_load, d_store, d_add, d_fma   LANES / 2 doubles; d_widen(p) makes them from floats
 *   vec8                     eight floats in whatever form, with
 *   e_low(v), e_high(v)      the first and last eight of 16 floats in v[16 / LANES]
 *   e_add(a, b), e_sum(a)    ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7))
 *
 * Sums over a row go through eight partial sums whatever LANES is. So every set adds in the same
 * order, and results are the same bits in all of them.
 */
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

/* Vectors in 16 floats. */
enum { IN_16 = 16 / LANES };

/* ---- functions of a vector ---- */

/*
 * Some take several vectors, a count known when compiled and at most 4, and go through their steps
 * with all of them: each step waits for the one before, and one vector's chain of steps would leave
 * the arithmetic units idle most of the time.
 */

/*
 * 2^n * 2^f with n whole and |f| <= 1/2; 2^f = 1 + f q(f), q fitted for least relative error (2e-9,
 * so the rounding of f32 dominates). Below the smallest normal the answer is 0; n must not exceed
 * 127; NaN stays NaN.
 */
static inline void scaled_power(const vec *n, vec *f, size_t count)
{
    static const float c[] = {1.33990054e-3f, 9.61843878e-3f, 5.55033199e-2f,
                              0.240226477f,   0.693147182f,   1.0f};
    vec q[4];
    for (size_t i = 0; i < count; i++) q[i] = v_set(1.53532528e-4f);
    for (size_t t = 0; t < sizeof c / sizeof c[0]; t++) {
        for (size_t i = 0; i < count; i++) q[i] = v_fma(q[i], f[i], v_set(c[t]));
    }
    for (size_t i = 0; i < count; i++)
        f[i] = v_clear_less(n[i], v_set(-126.0f), v_times_power(q[i], n[i]));
}

/* exp(x) = 2^(x / ln 2) for x <= 88, 1 / ln 2 in two parts. */
static inline vec v_exp(vec x)
{
    const vec high = v_set(1.44269502f), low = v_set(1.92596299e-8f);
    vec n = v_nearest(v_mul(x, high)), f = v_fma(x, low, v_fms(x, high, n));
    scaled_power(&n, &f, 1);
    return f;
}

/* 2^x for x <= 127. */
static inline void power_some(vec *x, size_t count)
{
    vec n[4];
    for (size_t i = 0; i < count; i++) {
        n[i] = v_nearest(x[i]);
        x[i] = v_sub(x[i], n[i]);
    }
    scaled_power(n, x, count);
}

/* x / (1 + exp(-factor x)), written with e = exp(-|factor x|), which cannot overflow. */
static inline vec v_swish(vec x, float factor)
{
    vec e = v_exp(v_minus_abs(v_mul(x, v_set(factor))));
    return v_div(v_if_negative(x, v_mul(x, e), x), v_add(e, v_set(1.0f)));
}

/*
 * gelu(x) = x (1 + erf(x / sqrt 2)) / 2. With z = |x| / sqrt 2, erfc(z) = 2^(-z p(z)); p is fitted
 * for least absolute error of erfc on 0..4.1 (2e-9), beyond which erfc is below the rounding of 1
 * and taken as 0. The half for negative x is erfc itself, so nothing cancels there.
 */
static inline void gelu_some(vec *x, size_t n)
{
    static const float c[] = {1.52774214e-4f,  -8.47539399e-4f, 2.27346155e-3f, -8.33889353e-5f,
                              -2.77253296e-2f, 0.148308188f,    0.918442845f,   1.62790728f};
    const vec end = v_set(4.1f), root = v_set(0.707106781f);
    vec z[4], p[4];
    for (size_t i = 0; i < n; i++) {
        z[i] = v_min(end, v_mul(v_abs(x[i]), root));
        p[i] = v_set(-1.15837993e-5f);
    }
    for (size_t t = 0; t < sizeof c / sizeof c[0]; t++) {
        for (size_t i = 0; i < n; i++) p[i] = v_fma(p[i], z[i], v_set(c[t]));
    }
    for (size_t i = 0; i < n; i++) p[i] = v_negate(v_mul(p[i], z[i]));
    power_some(p, n);
    for (size_t i = 0; i < n; i++) {
        vec erfc = v_clear_greater(v_mul(v_abs(x[i]), root), end, p[i]);
        vec share = v_if_negative(x[i], erfc, v_sub(v_set(2.0f), erfc));
        x[i] = v_mul(v_mul(x[i], v_set(0.5f)), share);
    }
}

static inline vec v_gelu(vec x)
{
    gelu_some(&x, 1);
    return x;
}

static inline vec v_silu(vec x)
{
    return v_swish(x, 1.0f);
}

static inline vec v_quick_gelu(vec x)
{
    return v_swish(x, 1.702f);
}

/* NaN stays NaN. */
static inline vec v_relu(vec x)
{
    return v_max(v_set(0.0f), x);
}

static inline vec v_act(vec x, enum act act)
{
    switch (act) {
    case ACT_SILU:
        return v_silu(x);
    case ACT_GELU:
        return v_gelu(x);
    case ACT_QUICK_GELU:
        return v_quick_gelu(x);
    case ACT_RELU:
        return v_relu(x);
    default:
        return x;
    }
}

/* ---- weights ---- */

static void unpack(enum dtype dtype, float *out, const void *row, size_t k)
{
    const unsigned char *p = row;
    size_t i = 0;
    switch (dtype) {
    case DTYPE_F32:
        memcpy(out, row, k * sizeof(float));
        return;
    case DTYPE_F16:
        for (; i + 32 <= k; i += 32) {
            /* The caller goes through many rows in pieces: ask for this row's next piece, which no
             * stride predicts. */
            v_fetch_next(p + 2 * (i + k));
            for (size_t j = i; j < i + 32; j += LANES) v_store(out + j, v_from_f16(p + 2 * j));
        }
        for (; i + LANES <= k; i += LANES) v_store(out + i, v_from_f16(p + 2 * i));
        break;
    case DTYPE_BF16:
        for (; i + LANES <= k; i += LANES) v_store(out + i, v_from_bf16(p + 2 * i));
        break;
    case DTYPE_Q8_0:
        for (; i < k; i += 32, p += 34) {
            vec d = v_set(f16_at(p));
            for (size_t j = 0; j < 32; j += LANES)
                v_store(out + i + j, v_mul(d, v_from_i8(p + 2 + j)));
        }
        return;
    default:
        break;
    }
    if (i < k)
        dtype_unpack(dtype, out + i,
                     p + i / dtype_info(dtype)->block_values * dtype_info(dtype)->block_bytes,
                     k - i);
}

static void pack(float *out, const float *rows, size_t ld, size_t n, size_t k)
{
    size_t i = 0;
    for (; n == GEMM_PANEL && i + LANES <= k; i += LANES) {
        for (size_t part = 0; part < GEMM_PANEL; part += LANES) {
            vec r[LANES];
            for (size_t j = 0; j < LANES; j++) r[j] = v_load(rows + (part + j) * ld + i);
            v_transpose(r);
            for (size_t j = 0; j < LANES; j++) v_store(out + (i + j) * GEMM_PANEL + part, r[j]);
        }
    }
    for (; i < k; i++) {
        for (size_t j = 0; j < GEMM_PANEL; j++)
            out[i * GEMM_PANEL + j] = j < n ? rows[j * ld + i] : 0.0f;
    }
}

/* ---- element by element ---- */

/* Whole vectors, then the rest by masks: masked stores are slow on some processors. One loop a
 * function, so that the choice is made once. */
#define AFFINE_ROW(function)                                                                       \
    do {                                                                                           \
        for (; i + LANES <= n; i += LANES) {                                                       \
            vec v = v_load(x + i);                                                                 \
            if (scale) v = v_fma(v, v_load(scale + i), v_load(shift + i));                         \
            v_store(y + i, function(v));                                                           \
        }                                                                                          \
    } while (0)
#define SAME(v) (v)

static void affine_act(float *y, const float *x, const float *scale, const float *shift, size_t n,
                       enum act act)
{
    size_t i = 0;
    switch (act) {
    case ACT_SILU:
        AFFINE_ROW(v_silu);
        break;
    case ACT_GELU:
        AFFINE_ROW(v_gelu);
        break;
    case ACT_QUICK_GELU:
        AFFINE_ROW(v_quick_gelu);
        break;
    case ACT_RELU:
        AFFINE_ROW(v_relu);
        break;
    default:
        AFFINE_ROW(SAME);
        break;
    }
    if (i == n) return;
    vec v = v_load_first(x + i, n - i);
    if (scale) v = v_fma(v, v_load_first(scale + i, n - i), v_load_first(shift + i, n - i));
    v_store_first(y + i, v_act(v, act), n - i);
}

static void act_row(float *y, const float *x, size_t n, enum act act)
{
    affine_act(y, x, NULL, NULL, n, act);
}

static void add_rows(float *y, const float *a, const float *b, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) v_store(y + i, v_add(v_load(a + i), v_load(b + i)));
    for (; i < n; i++) y[i] = a[i] + b[i];
}

static void scale_row(float *y, const float *x, float factor, size_t n)
{
    size_t i = 0;
    vec f = v_set(factor);
    for (; i + LANES <= n; i += LANES) v_store(y + i, v_mul(v_load(x + i), f));
    for (; i < n; i++) y[i] = x[i] * factor;
}

static bool all_finite(const float *x, size_t n)
{
    /* 0 times a finite value is 0, anything else makes NaN, and NaN stays. */
    vec zero = v_set(0), s[IN_16];
    for (size_t j = 0; j < IN_16; j++) s[j] = zero;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        for (size_t j = 0; j < IN_16; j++) s[j] = v_fma(v_load(x + i + j * LANES), zero, s[j]);
    }
    for (; i < n; i += LANES) s[0] = v_fma(v_load_first(x + i, n - i), zero, s[0]);
    return e_sum(e_add(e_low(s), e_high(s))) == 0.0f;
}

/* ---- norms and softmax ---- */

/* LANES channels down the rows with the sums in registers; in double, so that variance = E[x^2] -
 * E[x]^2 holds up. */
static void moments(double *sum, double *sum_sq, const float *x, size_t rows, size_t c)
{
    const size_t step = LANES / 2;
    size_t j = 0;
    for (; j + LANES <= c; j += LANES) {
        dvec s0 = d_load(sum + j), s1 = d_load(sum + j + step);
        dvec q0 = d_load(sum_sq + j), q1 = d_load(sum_sq + j + step);
        for (size_t i = 0; i < rows; i++) {
            dvec x0 = d_widen(x + i * c + j), x1 = d_widen(x + i * c + j + step);
            s0 = d_add(s0, x0), s1 = d_add(s1, x1);
            q0 = d_fma(x0, x0, q0), q1 = d_fma(x1, x1, q1);
        }
        d_store(sum + j, s0), d_store(sum + j + step, s1);
        d_store(sum_sq + j, q0), d_store(sum_sq + j + step, q1);
    }
    for (size_t i = 0; j < c && i < rows; i++) {
        for (size_t t = j; t < c; t++) {
            sum[t] += (double)x[i * c + t];
            sum_sq[t] += (double)x[i * c + t] * (double)x[i * c + t];
        }
    }
}

static inline float sum_of_32(const vec s[32 / LANES])
{
    const vec *t = s + IN_16;
    return e_sum(e_add(e_add(e_low(s), e_high(s)), e_add(e_low(t), e_high(t))));
}

/* At most eight of the values left: further ones belong to the next partial sums. */
static inline size_t eight_of(size_t left)
{
    return left < 8 ? left : 8;
}

static void layer_norm(float *y, const float *x, size_t n, float eps, const float *weight,
                       const float *bias)
{
    enum { IN_32 = 2 * IN_16 };
    const vec zero = v_set(0);
    vec s[IN_32];
    for (size_t j = 0; j < IN_32; j++) s[j] = zero;
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        for (size_t j = 0; j < IN_32; j++) s[j] = v_add(s[j], v_load(x + i + j * LANES));
    }
    for (; i < n; i += 8) s[0] = v_add(s[0], v_load_first(x + i, eight_of(n - i)));
    const vec mean = v_set(sum_of_32(s) / (float)n);
    for (size_t j = 0; j < IN_32; j++) s[j] = zero;
    for (i = 0; i + 32 <= n; i += 32) {
        for (size_t j = 0; j < IN_32; j++) {
            vec d = v_sub(v_load(x + i + j * LANES), mean);
            s[j] = v_fma(d, d, s[j]);
        }
    }
    for (; i < n; i += 8) {
        size_t part = eight_of(n - i);
        vec d = v_first(v_sub(v_load_first(x + i, part), mean), part, zero);
        s[0] = v_fma(d, d, s[0]);
    }
    double variance = (double)sum_of_32(s) / (double)n;
    const vec scale = v_set((float)(1.0 / sqrt(variance + (double)eps)));
    for (i = 0; i + LANES <= n; i += LANES) {
        vec v = v_mul(v_sub(v_load(x + i), mean), scale);
        v_store(y + i, v_fma(v, v_load(weight + i), v_load(bias + i)));
    }
    if (i < n) {
        vec v = v_mul(v_sub(v_load_first(x + i, n - i), mean), scale);
        v = v_fma(v, v_load_first(weight + i, n - i), v_load_first(bias + i, n - i));
        v_store_first(y + i, v, n - i);
    }
}

/* Of left values, less than 16, those in vector j. */
static inline size_t part_of(size_t left, size_t j)
{
    return left > j * LANES ? left - j * LANES : 0;
}

static float softmax(float *s, size_t n, size_t n_all, float scale, float *max, float *sum)
{
    const vec infinity = v_set(-INFINITY), zero = v_set(0);
    const size_t whole = n - n % 16, left = n % 16;
    float old = *max, top = old, *rest = s + whole;
    /* Where no score is, minus infinity: its power is 0. */
    vec last[IN_16], m[IN_16], e[IN_16];
    for (size_t j = 0; j < IN_16; j++) {
        size_t part = part_of(left, j);
        last[j] = infinity;
        if (part > 0) last[j] = v_first(v_load_first(rest + j * LANES, part), part, infinity);
        m[j] = v_max(v_set(old), last[j]);
    }
    for (size_t i = 0; i < whole; i += 16) {
        for (size_t j = 0; j < IN_16; j++) m[j] = v_max(m[j], v_load(s + i + j * LANES));
    }
    for (size_t j = 1; j < IN_16; j++) m[0] = v_max(m[0], m[j]);
    if (n > 0) top = v_highest(m[0]);
    /* exp((s - top) scale) as a power of 2: the rounding of the exponent weighs little as it is
     * below 0. */
    const vec factors = v_set(scale * 1.44269504f), tops = v_set(top);
    for (size_t j = 0; j < IN_16; j++) e[j] = zero;
    vec8 total = e_low(e);
    for (size_t i = 0; i < whole; i += 16) { /* several at a time: the polynomial is a long chain */
        for (size_t j = 0; j < IN_16; j++)
            e[j] = v_mul(v_sub(v_load(s + i + j * LANES), tops), factors);
        power_some(e, IN_16);
        for (size_t j = 0; j < IN_16; j++) v_store(s + i + j * LANES, e[j]);
        total = e_add(total, e_add(e_low(e), e_high(e)));
    }
    if (left > 0) {
        for (size_t j = 0; j < IN_16; j++) e[j] = v_mul(v_sub(last[j], tops), factors);
        power_some(e, IN_16);
        for (size_t j = 0; j < IN_16; j++) {
            size_t part = part_of(left, j);
            /* beyond the last score too there is NaN if top is */
            e[j] = v_first(e[j], part, zero);
            if (part > 0) v_store_first(rest + j * LANES, e[j], part);
        }
        total = e_add(e_add(total, e_low(e)), e_high(e));
    }
    for (size_t i = n; i < n_all; i++) s[i] = 0;
    if (n == 0) return 1.0f;
    float factor = old == top ? 1.0f : old == -INFINITY ? 0.0f : expf((old - top) * scale);
    *max = top;
    *sum = *sum * factor + e_sum(total);
    return factor;
}

/* ---- Winograd F(4x4, 3x3) ---- */

/* Channels are a multiple of 8: with 16 lanes the last vector may be half. The test costs nothing
 * where lanes is LANES itself. */
static inline vec load_lanes(const float *p, size_t lanes)
{
    return lanes == LANES ? v_load(p) : v_load_first(p, lanes);
}

static inline void store_lanes(float *p, vec v, size_t lanes)
{
    if (lanes == LANES)
        v_store(p, v);
    else
        v_store_first(p, v, lanes);
}

#define FOR_LANES(at, n, what)                                                                     \
    do {                                                                                           \
        size_t at = 0;                                                                             \
        for (; at + LANES <= (n); at += LANES) what(at, LANES);                                    \
        if (LANES > 8 && at < (n)) what(at, (n)-at);                                               \
    } while (0)

/* Six values times B^T (arXiv:1509.09308, section 4.3). */
static inline void transform_input(vec d[6], const vec x[6])
{
    const vec two = v_set(2), four = v_set(4), five = v_set(5);
    vec even = v_fnma(four, x[2], x[4]), odd = v_fnma(four, x[1], x[3]);
    vec even2 = v_sub(x[4], x[2]), odd2 = v_sub(x[3], x[1]);
    d[0] = v_fma(four, x[0], v_fnma(five, x[2], x[4]));
    d[1] = v_add(even, odd);
    d[2] = v_sub(even, odd);
    d[3] = v_fma(two, odd2, even2);
    d[4] = v_fnma(two, odd2, even2);
    d[5] = v_fma(four, x[1], v_fnma(five, x[3], x[5]));
}

static inline void input_lanes(float *v, size_t plane_stride, const float *x, size_t row_stride,
                               size_t pixel_stride, size_t lanes)
{
    vec mid[6][6], in[6], out[6]; /* mid[row][column] after the columns' transform */
    for (size_t j = 0; j < 6; j++) {
        for (size_t i = 0; i < 6; i++)
            in[i] = load_lanes(x + j * pixel_stride + i * row_stride, lanes);
        transform_input(out, in);
        for (size_t i = 0; i < 6; i++) mid[i][j] = out[i];
    }
    for (size_t i = 0; i < 6; i++) {
        transform_input(out, mid[i]);
        for (size_t j = 0; j < 6; j++) store_lanes(v + (i * 6 + j) * plane_stride, out[j], lanes);
    }
}

static void wino_input(float *v, size_t plane_stride, const float *x, size_t row_stride,
                       size_t pixel_stride, size_t c)
{
#define INPUT(at, lanes)                                                                           \
    input_lanes(v + (at), plane_stride, x + (at), row_stride, pixel_stride, lanes)
    FOR_LANES(channel, c, INPUT);
}

/* Three values times G. */
static inline void transform_weight(vec u[6], const vec g[3])
{
    const vec sixth = v_set(1.0f / 6), twelfth = v_set(1.0f / 12), minus = v_set(-1.0f / 6);
    vec sum = v_add(g[0], g[2]);
    vec quarter = v_fma(g[0], v_set(1.0f / 24), v_mul(g[2], sixth));
    u[0] = v_mul(g[0], v_set(0.25f));
    u[1] = v_mul(v_add(sum, g[1]), minus);
    u[2] = v_mul(v_sub(sum, g[1]), minus);
    u[3] = v_fma(g[1], twelfth, quarter);
    u[4] = v_fnma(g[1], twelfth, quarter);
    u[5] = g[2];
}

static inline void weight_lanes(float *u, size_t plane_stride, const float *w, size_t n,
                                size_t lanes)
{
    vec mid[6][3], in[3], out[6];
    for (size_t j = 0; j < 3; j++) {
        for (size_t i = 0; i < 3; i++) in[i] = load_lanes(w + (i * 3 + j) * n, lanes);
        transform_weight(out, in);
        for (size_t i = 0; i < 6; i++) mid[i][j] = out[i];
    }
    for (size_t i = 0; i < 6; i++) {
        transform_weight(out, mid[i]);
        for (size_t j = 0; j < 6; j++) store_lanes(u + (i * 6 + j) * plane_stride, out[j], lanes);
    }
}

static void wino_weight(float *u, size_t plane_stride, const float *w, size_t n)
{
#define WEIGHT(at, lanes) weight_lanes(u + (at), plane_stride, w + (at), n, lanes)
    FOR_LANES(filter, n, WEIGHT);
}

/* Six values times A^T. */
static inline void transform_output(vec y[4], const vec m[6])
{
    const vec two = v_set(2), four = v_set(4), eight_times = v_set(8);
    vec s1 = v_add(m[1], m[2]), d1 = v_sub(m[1], m[2]);
    vec s2 = v_add(m[3], m[4]), d2 = v_sub(m[3], m[4]);
    y[0] = v_add(v_add(m[0], s1), s2);
    y[1] = v_fma(two, d2, d1);
    y[2] = v_fma(four, s2, s1);
    y[3] = v_add(v_fma(eight_times, d2, d1), m[5]);
}

static inline void output_lanes(const struct wino_output *o, size_t channel, size_t lanes)
{
    vec mid[4][6], in[6], out[4];
    vec bias = o->bias ? load_lanes(o->bias + channel, lanes) : v_set(0);
    for (size_t j = 0; j < 6; j++) {
        const float *m = o->m + j * o->plane_stride + channel;
        for (size_t i = 0; i < 6; i++) in[i] = load_lanes(m + i * 6 * o->plane_stride, lanes);
        transform_output(out, in);
        for (size_t i = 0; i < 4; i++) mid[i][j] = out[i];
    }
    for (int i = 0; i < o->rows; i++) {
        transform_output(out, mid[i]);
        for (int j = 0; j < o->columns; j++) {
            size_t at = (size_t)i * o->row_stride + (size_t)j * o->pixel_stride + channel;
            vec y = v_add(out[j], bias);
            if (o->residual) y = v_add(y, load_lanes(o->residual + at, lanes));
            store_lanes(o->y + at, o->relu ? v_relu(y) : y, lanes);
        }
    }
}

static void wino_output(const struct wino_output *o)
{
#define OUTPUT(at, lanes) output_lanes(o, at, lanes)
    FOR_LANES(channel, o->c, OUTPUT);
}

#endif
