/* neon.c - inner loops with NEON, as every 64-bit ARM processor has it. */
/* SPDX-License-Identifier: MIT */
#include "kernels/kernels.h"

#include <arm_neon.h>
#include <math.h>
#include <string.h>

/* ---- functions of four values (the same approximations as in lanes.h) ---- */

/* 2^x for x <= 127: 2^n (1 + f q(f)), n whole, |f| <= 1/2. Below the smallest normal 0; NaN stays
 * NaN. */
static inline float32x4_t scaled_power(float32x4_t n, float32x4_t f)
{
    float32x4_t q = vdupq_n_f32(1.53532528e-4f);
    q = vfmaq_f32(vdupq_n_f32(1.33990054e-3f), q, f);
    q = vfmaq_f32(vdupq_n_f32(9.61843878e-3f), q, f);
    q = vfmaq_f32(vdupq_n_f32(5.55033199e-2f), q, f);
    q = vfmaq_f32(vdupq_n_f32(0.240226477f), q, f);
    q = vfmaq_f32(vdupq_n_f32(0.693147182f), q, f);
    int32x4_t p = vreinterpretq_s32_f32(vfmaq_f32(vdupq_n_f32(1.0f), q, f));
    p = vaddq_s32(p, vshlq_n_s32(vcvtq_s32_f32(n), 23));
    uint32x4_t small = vcltq_f32(n, vdupq_n_f32(-126.0f)), bits = vreinterpretq_u32_s32(p);
    return vreinterpretq_f32_u32(vbicq_u32(bits, small));
}

static inline float32x4_t power4(float32x4_t x)
{
    float32x4_t n = vrndnq_f32(x);
    return scaled_power(n, vsubq_f32(x, n));
}

/* exp(x) for x <= 88, 1 / ln 2 in two parts. */
static inline float32x4_t exp4(float32x4_t x)
{
    const float32x4_t high = vdupq_n_f32(1.44269502f), low = vdupq_n_f32(1.92596299e-8f);
    float32x4_t n = vrndnq_f32(vmulq_f32(x, high));
    return scaled_power(n, vfmaq_f32(vfmaq_f32(vnegq_f32(n), x, high), x, low));
}

/* x / (1 + exp(-factor x)), written with e = exp(-|factor x|). */
static inline float32x4_t swish4(float32x4_t x, float factor)
{
    float32x4_t e = exp4(vnegq_f32(vabsq_f32(vmulq_n_f32(x, factor))));
    uint32x4_t negative = vcltq_s32(vreinterpretq_s32_f32(x), vdupq_n_s32(0));
    return vdivq_f32(vbslq_f32(negative, vmulq_f32(x, e), x), vaddq_f32(e, vdupq_n_f32(1.0f)));
}

static inline float32x4_t gelu4(float32x4_t x)
{
    float32x4_t z = vmulq_n_f32(vabsq_f32(x), 0.707106781f);
    uint32x4_t gone = vcgtq_f32(z, vdupq_n_f32(4.1f)),
               negative = vcltq_s32(vreinterpretq_s32_f32(x), vdupq_n_s32(0));
    z = vbslq_f32(gone, vdupq_n_f32(4.1f), z);
    float32x4_t p = vdupq_n_f32(-1.15837993e-5f);
    p = vfmaq_f32(vdupq_n_f32(1.52774214e-4f), p, z);
    p = vfmaq_f32(vdupq_n_f32(-8.47539399e-4f), p, z);
    p = vfmaq_f32(vdupq_n_f32(2.27346155e-3f), p, z);
    p = vfmaq_f32(vdupq_n_f32(-8.33889353e-5f), p, z);
    p = vfmaq_f32(vdupq_n_f32(-2.77253296e-2f), p, z);
    p = vfmaq_f32(vdupq_n_f32(0.148308188f), p, z);
    p = vfmaq_f32(vdupq_n_f32(0.918442845f), p, z);
    p = vfmaq_f32(vdupq_n_f32(1.62790728f), p, z);
    uint32x4_t power = vreinterpretq_u32_f32(power4(vnegq_f32(vmulq_f32(p, z))));
    float32x4_t erfc = vreinterpretq_f32_u32(vbicq_u32(power, gone));
    float32x4_t half = vbslq_f32(negative, erfc, vsubq_f32(vdupq_n_f32(2.0f), erfc));
    return vmulq_f32(vmulq_n_f32(x, 0.5f), half);
}

static inline float32x4_t act4(float32x4_t x, enum act act)
{
    switch (act) {
    case ACT_SILU:
        return swish4(x, 1.0f);
    case ACT_GELU:
        return gelu4(x);
    case ACT_QUICK_GELU:
        return swish4(x, 1.702f);
    case ACT_RELU:
        return vmaxq_f32(x, vdupq_n_f32(0));
    default:
        return x;
    }
}

/* The first n of four values; the others read as fill and are not written. */
static inline float32x4_t load_some(const float *p, size_t n, float fill)
{
    float some[4] = {fill, fill, fill, fill};
    memcpy(some, p, n * sizeof(float));
    return vld1q_f32(some);
}

static inline void store_some(float *p, float32x4_t v, size_t n)
{
    float some[4];
    vst1q_f32(some, v);
    memcpy(p, some, n * sizeof(float));
}

/* ---- matrix product ---- */

static void finish_row(const struct gemm *g, size_t row, float32x4_t v[4])
{
    float *c = g->c + row * g->ldc;
    for (size_t j = 0; g->bias && j < 4; j++) v[j] = vaddq_f32(v[j], vld1q_f32(g->bias + 4 * j));
    if (g->geglu) {
        v[0] = vmulq_f32(v[0], gelu4(v[2]));
        v[1] = vmulq_f32(v[1], gelu4(v[3]));
    }
    for (size_t j = 0; 4 * j < g->n; j++) {
        size_t valid = g->n - 4 * j < 4 ? g->n - 4 * j : 4;
        if (!g->geglu) v[j] = act4(v[j], g->act);
        if (g->residual)
            v[j] = vaddq_f32(v[j], load_some(g->residual + row * g->ldc + 4 * j, valid, 0));
        if (valid == 4)
            vst1q_f32(c + 4 * j, v[j]);
        else
            store_some(c + 4 * j, v[j], valid);
    }
}

static inline float32x4_t start_value(const struct gemm *g, size_t row, size_t j)
{
    if (!g->accumulate || 4 * j >= g->n) return vdupq_n_f32(0);
    return load_some(g->c + row * g->ldc + 4 * j, g->n - 4 * j < 4 ? g->n - 4 * j : 4, 0);
}

/* A tile of some rows times 16 columns, one variable a register: 24 sums, 4 columns of b. */
#define ROWS_1(X) X(0)
#define ROWS_2(X) ROWS_1(X) X(1)
#define ROWS_3(X) ROWS_2(X) X(2)
#define ROWS_4(X) ROWS_3(X) X(3)
#define ROWS_5(X) ROWS_4(X) X(4)
#define ROWS_6(X) ROWS_5(X) X(5)

#define START(i)                                                                                   \
    float32x4_t c##i##0 = start_value(g, row + i, 0), c##i##1 = start_value(g, row + i, 1),        \
                c##i##2 = start_value(g, row + i, 2), c##i##3 = start_value(g, row + i, 3);
#define POINT(i) const float *a##i = g->a + g->row[row + i] + g->runs[r].offset;
#define MULTIPLY(i)                                                                                \
    c##i##0 = vfmaq_n_f32(c##i##0, b0, a##i[k]), c##i##1 = vfmaq_n_f32(c##i##1, b1, a##i[k]);      \
    c##i##2 = vfmaq_n_f32(c##i##2, b2, a##i[k]), c##i##3 = vfmaq_n_f32(c##i##3, b3, a##i[k]);
#define FINISH(i) finish_row(g, row + i, (float32x4_t[4]){c##i##0, c##i##1, c##i##2, c##i##3});

#define DEFINE_TILE(n)                                                                             \
    static void tile_##n(const struct gemm *g, size_t row)                                         \
    {                                                                                              \
        const float *b = g->b;                                                                     \
        ROWS_##n(START);                                                                           \
        for (size_t r = 0; r < g->n_runs; r++) {                                                   \
            ROWS_##n(POINT);                                                                       \
            for (size_t k = 0; k < g->runs[r].k; k++, b += GEMM_PANEL) {                           \
                float32x4_t b0 = vld1q_f32(b), b1 = vld1q_f32(b + 4);                              \
                float32x4_t b2 = vld1q_f32(b + 8), b3 = vld1q_f32(b + 12);                         \
                ROWS_##n(MULTIPLY);                                                                \
            }                                                                                      \
        }                                                                                          \
        ROWS_##n(FINISH);                                                                          \
    }

DEFINE_TILE(1)
DEFINE_TILE(2)
DEFINE_TILE(3)
DEFINE_TILE(4)
DEFINE_TILE(5)
DEFINE_TILE(6)

static void gemm_panel(const struct gemm *g)
{
    typedef void tile(const struct gemm *, size_t);
    static tile *const tiles[] = {NULL, tile_1, tile_2, tile_3, tile_4, tile_5, tile_6};
    size_t row = 0;
    for (; row + 6 <= g->m; row += 6) tile_6(g, row);
    if (row < g->m) tiles[g->m - row](g, row);
}

static void gemm(const struct gemm *g)
{
    for (size_t i = 0; i * gemm_width(g) < g->n; i++) {
        struct gemm panel = gemm_panels(g, i, 1);
        gemm_panel(&panel);
    }
}

/* ---- weights ---- */

static void unpack(enum dtype dtype, float *out, const void *row, size_t k)
{
    const unsigned char *p = row;
    size_t i = 0;
    for (; dtype == DTYPE_F16 && i + 4 <= k; i += 4)
        vst1q_f32(out + i, vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p + 2 * i))));
    for (; dtype == DTYPE_BF16 && i + 4 <= k; i += 4)
        vst1q_f32(out + i,
                  vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p + 2 * i)), 16)));
    if (i < k) dtype_unpack(dtype, out + i, p + 2 * i, k - i);
}

static void pack(float *out, const float *rows, size_t ld, size_t n, size_t k)
{
    size_t i = 0;
    for (; n == GEMM_PANEL && i + 4 <= k; i += 4) {
        for (size_t j = 0; j < GEMM_PANEL; j += 4) {
            float32x4x2_t r01 =
                vtrnq_f32(vld1q_f32(rows + j * ld + i), vld1q_f32(rows + (j + 1) * ld + i));
            float32x4x2_t r23 =
                vtrnq_f32(vld1q_f32(rows + (j + 2) * ld + i), vld1q_f32(rows + (j + 3) * ld + i));
            float *o = out + i * GEMM_PANEL + j;
            vst1q_f32(o, vcombine_f32(vget_low_f32(r01.val[0]), vget_low_f32(r23.val[0])));
            vst1q_f32(o + GEMM_PANEL,
                      vcombine_f32(vget_low_f32(r01.val[1]), vget_low_f32(r23.val[1])));
            vst1q_f32(o + 2 * GEMM_PANEL,
                      vcombine_f32(vget_high_f32(r01.val[0]), vget_high_f32(r23.val[0])));
            vst1q_f32(o + 3 * GEMM_PANEL,
                      vcombine_f32(vget_high_f32(r01.val[1]), vget_high_f32(r23.val[1])));
        }
    }
    for (; i < k; i++) {
        for (size_t j = 0; j < GEMM_PANEL; j++)
            out[i * GEMM_PANEL + j] = j < n ? rows[j * ld + i] : 0.0f;
    }
}

/* ---- element by element ---- */

static void affine_act(float *y, const float *x, const float *scale, const float *shift, size_t n,
                       enum act act)
{
    for (size_t i = 0; i < n; i += 4) {
        size_t valid = n - i < 4 ? n - i : 4;
        float32x4_t v = load_some(x + i, valid, 0);
        if (scale) v = vfmaq_f32(load_some(shift + i, valid, 0), v, load_some(scale + i, valid, 0));
        store_some(y + i, act4(v, act), valid);
    }
}

static void act_row(float *y, const float *x, size_t n, enum act act)
{
    affine_act(y, x, NULL, NULL, n, act);
}

static float softmax(float *s, size_t n, size_t n_all, float scale, float *max, float *sum)
{
    float old = *max, top = old;
    size_t whole = n & ~(size_t)3;
    float32x4_t last = load_some(s + whole, n - whole, -INFINITY),
                m = vmaxnmq_f32(vdupq_n_f32(old), last);
    for (size_t i = 0; i < whole; i += 4) m = vmaxnmq_f32(m, vld1q_f32(s + i));
    if (n > 0) top = vmaxnmvq_f32(m);
    float32x4_t top4 = vdupq_n_f32(top), total = vdupq_n_f32(0);
    float factor4 = scale * 1.44269504f;
    for (size_t i = 0; i < whole; i += 4) {
        float32x4_t e = power4(vmulq_n_f32(vsubq_f32(vld1q_f32(s + i), top4), factor4));
        vst1q_f32(s + i, e);
        total = vaddq_f32(total, e);
    }
    if (whole < n) {
        float32x4_t e = power4(vmulq_n_f32(vsubq_f32(last, top4), factor4));
        store_some(s + whole, e, n - whole);
        total = vaddq_f32(total, load_some(s + whole, n - whole, 0));
    }
    for (size_t i = n; i < n_all; i++) s[i] = 0;
    if (n == 0) return 1.0f;
    float factor = old == top ? 1.0f : old == -INFINITY ? 0.0f : expf((old - top) * scale);
    *max = top;
    *sum = *sum * factor + vaddvq_f32(total);
    return factor;
}

/* ---- Winograd F(4x4, 3x3) ---- */

/* Six values times B^T. */
static inline void transform_input(float32x4_t d[6], const float32x4_t x[6])
{
    float32x4_t even = vfmsq_n_f32(x[4], x[2], 4), odd = vfmsq_n_f32(x[3], x[1], 4);
    float32x4_t even2 = vsubq_f32(x[4], x[2]), odd2 = vsubq_f32(x[3], x[1]);
    d[0] = vfmaq_n_f32(vfmsq_n_f32(x[4], x[2], 5), x[0], 4);
    d[1] = vaddq_f32(even, odd);
    d[2] = vsubq_f32(even, odd);
    d[3] = vfmaq_n_f32(even2, odd2, 2);
    d[4] = vfmsq_n_f32(even2, odd2, 2);
    d[5] = vfmaq_n_f32(vfmsq_n_f32(x[5], x[3], 5), x[1], 4);
}

static void wino_input(float *v, size_t plane_stride, const float *x, size_t row_stride,
                       size_t pixel_stride, size_t c)
{
    for (size_t ch = 0; ch < c; ch += 4) {
        float32x4_t half[6][6], in[6], out[6];
        for (size_t j = 0; j < 6; j++) {
            for (size_t i = 0; i < 6; i++)
                in[i] = vld1q_f32(x + j * pixel_stride + i * row_stride + ch);
            transform_input(out, in);
            for (size_t i = 0; i < 6; i++) half[i][j] = out[i];
        }
        for (size_t i = 0; i < 6; i++) {
            transform_input(out, half[i]);
            for (size_t j = 0; j < 6; j++) vst1q_f32(v + (i * 6 + j) * plane_stride + ch, out[j]);
        }
    }
}

/* Six values times A^T. */
static inline void transform_output(float32x4_t y[4], const float32x4_t m[6])
{
    float32x4_t s1 = vaddq_f32(m[1], m[2]), d1 = vsubq_f32(m[1], m[2]);
    float32x4_t s2 = vaddq_f32(m[3], m[4]), d2 = vsubq_f32(m[3], m[4]);
    y[0] = vaddq_f32(vaddq_f32(m[0], s1), s2);
    y[1] = vfmaq_n_f32(d1, d2, 2);
    y[2] = vfmaq_n_f32(s1, s2, 4);
    y[3] = vaddq_f32(vfmaq_n_f32(d1, d2, 8), m[5]);
}

static void wino_output(const struct wino_output *o)
{
    for (size_t ch = 0; ch < o->c; ch += 4) {
        float32x4_t half[4][6], in[6], out[4];
        float32x4_t bias = o->bias ? vld1q_f32(o->bias + ch) : vdupq_n_f32(0);
        for (size_t j = 0; j < 6; j++) {
            for (size_t i = 0; i < 6; i++)
                in[i] = vld1q_f32(o->m + (i * 6 + j) * o->plane_stride + ch);
            transform_output(out, in);
            for (size_t i = 0; i < 4; i++) half[i][j] = out[i];
        }
        for (int i = 0; i < o->rows; i++) {
            transform_output(out, half[i]);
            for (int j = 0; j < o->columns; j++) {
                size_t at = (size_t)i * o->row_stride + (size_t)j * o->pixel_stride + ch;
                float32x4_t y = vaddq_f32(out[j], bias);
                if (o->residual) y = vaddq_f32(y, vld1q_f32(o->residual + at));
                vst1q_f32(o->y + at, o->relu ? act4(y, ACT_RELU) : y);
            }
        }
    }
}

/* ---- the machine's best ---- */

#define BURN_START(i)                                                                              \
    float32x4_t c##i##0 = vdupq_n_f32(i), c##i##1 = c##i##0, c##i##2 = c##i##0, c##i##3 = c##i##0;
#define BURN(i)                                                                                    \
    c##i##0 = vfmaq_f32(y, c##i##0, x), c##i##1 = vfmaq_f32(y, c##i##1, x);                        \
    c##i##2 = vfmaq_f32(y, c##i##2, x), c##i##3 = vfmaq_f32(y, c##i##3, x);
#define BURN_SUM(i)                                                                                \
    x = vaddq_f32(x, vaddq_f32(vaddq_f32(c##i##0, c##i##1), vaddq_f32(c##i##2, c##i##3)));

static double burn(size_t rounds)
{
    float32x4_t x = vdupq_n_f32(0.999f), y = vdupq_n_f32(0.001f);
    ROWS_6(BURN_START);
    for (size_t r = 0; r < rounds; r++) {
        ROWS_6(BURN);
    }
    ROWS_6(BURN_SUM);
    return vaddvq_f32(x) >= 0 ? 2.0 * 4 * 24 * (double)rounds : 0;
}

/* What is left out - norms, sums, weights' transforms - compilers vectorise from the reference. */
void kernels_init_neon(struct kernels *k)
{
    k->burn = burn;
    k->unpack = unpack;
    k->pack = pack;
    k->gemm = gemm;
    k->affine_act = affine_act;
    k->act = act_row;
    k->softmax = softmax;
    k->wino_input = wino_input;
    k->wino_output = wino_output;
}
