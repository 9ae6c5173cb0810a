/* avx2.c - inner loops with AVX2, FMA and F16C. */
/* SPDX-License-Identifier: MIT */
#include "kernels/kernels.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

/* ---- functions of eight values ---- */

/*
 * 2^n * 2^f with n whole and |f| <= 1/2; 2^f = 1 + f q(f), q fitted for least relative error (2e-9,
 * so the rounding of f32 dominates). Below the smallest normal the answer is 0; n must not exceed
 * 127; NaN stays NaN.
 */
static inline __m256 scaled_power(__m256 n, __m256 f)
{
    __m256 q = _mm256_set1_ps(1.53532528e-4f);
    q = _mm256_fmadd_ps(q, f, _mm256_set1_ps(1.33990054e-3f));
    q = _mm256_fmadd_ps(q, f, _mm256_set1_ps(9.61843878e-3f));
    q = _mm256_fmadd_ps(q, f, _mm256_set1_ps(5.55033199e-2f));
    q = _mm256_fmadd_ps(q, f, _mm256_set1_ps(0.240226477f));
    q = _mm256_fmadd_ps(q, f, _mm256_set1_ps(0.693147182f));
    __m256 p = _mm256_fmadd_ps(q, f, _mm256_set1_ps(1.0f));
    p = _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23)));
    return _mm256_andnot_ps(_mm256_cmp_ps(n, _mm256_set1_ps(-126.0f), _CMP_LT_OQ), p);
}

static inline __m256 nearest(__m256 x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* exp(x) = 2^(x / ln 2) for x <= 88, 1 / ln 2 in two parts. */
static inline __m256 exp8(__m256 x)
{
    const __m256 high = _mm256_set1_ps(1.44269502f), low = _mm256_set1_ps(1.92596299e-8f);
    __m256 n = nearest(_mm256_mul_ps(x, high));
    return scaled_power(n, _mm256_fmadd_ps(x, low, _mm256_fmsub_ps(x, high, n)));
}

/* 2^x for x <= 127. */
static inline __m256 power8(__m256 x)
{
    __m256 n = nearest(x);
    return scaled_power(n, _mm256_sub_ps(x, n));
}

/* x / (1 + exp(-factor x)), written with e = exp(-|factor x|), which cannot overflow. */
static inline __m256 swish8(__m256 x, float factor)
{
    __m256 e = exp8(_mm256_or_ps(_mm256_mul_ps(x, _mm256_set1_ps(factor)), _mm256_set1_ps(-0.0f)));
    __m256 above = _mm256_blendv_ps(x, _mm256_mul_ps(x, e), x);
    return _mm256_div_ps(above, _mm256_add_ps(e, _mm256_set1_ps(1.0f)));
}

/*
 * gelu(x) = x (1 + erf(x / sqrt 2)) / 2. With z = |x| / sqrt 2, erfc(z) = 2^(-z p(z)); p is fitted
 * for least absolute error of erfc on 0..4.1 (2e-9), beyond which erfc is below the rounding of 1
 * and taken as 0. The half for negative x is erfc itself, so nothing cancels there.
 */
static inline __m256 gelu8(__m256 x)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 z = _mm256_mul_ps(_mm256_andnot_ps(sign, x), _mm256_set1_ps(0.707106781f));
    __m256 gone = _mm256_cmp_ps(z, _mm256_set1_ps(4.1f), _CMP_GT_OQ);
    z = _mm256_min_ps(_mm256_set1_ps(4.1f), z);
    __m256 p = _mm256_set1_ps(-1.15837993e-5f);
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(1.52774214e-4f));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(-8.47539399e-4f));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(2.27346155e-3f));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(-8.33889353e-5f));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(-2.77253296e-2f));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(0.148308188f));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(0.918442845f));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(1.62790728f));
    __m256 erfc = _mm256_andnot_ps(gone, power8(_mm256_xor_ps(_mm256_mul_ps(p, z), sign)));
    __m256 half = _mm256_blendv_ps(_mm256_sub_ps(_mm256_set1_ps(2.0f), erfc), erfc, x);
    return _mm256_mul_ps(_mm256_mul_ps(x, _mm256_set1_ps(0.5f)), half);
}

/* The second operand is the answer where one is NaN. */
static inline __m256 relu8(__m256 x)
{
    return _mm256_max_ps(_mm256_setzero_ps(), x);
}

static inline __m256 act8(__m256 x, enum act act)
{
    switch (act) {
    case ACT_SILU:
        return swish8(x, 1.0f);
    case ACT_GELU:
        return gelu8(x);
    case ACT_QUICK_GELU:
        return swish8(x, 1.702f);
    case ACT_RELU:
        return relu8(x);
    default:
        return x;
    }
}

/* The first n lanes of eight (n 0 to 8) for masked loads and stores. */
static inline __m256i mask8(size_t n)
{
    static const int32_t bits[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
    return _mm256_loadu_si256((const __m256i *)(const void *)(bits + 8 - (n < 8 ? n : 8)));
}

static inline float sum8(__m256 v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}

static inline float max8(__m256 v)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}

/* ---- matrix product ---- */

/* Values of k between two visits to a tile of C: 24 KB of the panel stay in the first-level cache
 * meanwhile. */
#define BLOCK_K 256

/* A block of runs: what is added to every tile before the next block. */
struct block {
    const struct gemm_run *runs;
    size_t n_runs;
    const float *b;
    bool first, last;
    bool plain; /* nothing to be done to the sums of a whole panel but storing them */
};

/* Residual and store of eight columns from column on; valid says how many exist. */
static inline void finish8(const struct gemm *g, size_t row, size_t column, size_t valid, __m256 v)
{
    float *c = g->c + row * g->ldc + column;
    if (valid == 8) {
        if (g->residual) v = _mm256_add_ps(v, _mm256_loadu_ps(g->residual + row * g->ldc + column));
        _mm256_storeu_ps(c, v);
        return;
    }
    __m256i mask = mask8(valid);
    if (g->residual)
        v = _mm256_add_ps(v, _mm256_maskload_ps(g->residual + row * g->ldc + column, mask));
    _mm256_maskstore_ps(c, mask, v);
}

/* Everything beyond bias and residual on a whole panel; out of the way, as it is rare and long. */
static void finish_row_slowly(const struct gemm *g, size_t row, __m256 v0, __m256 v1)
{
    if (g->geglu) {
        finish8(g, row, 0, g->n, _mm256_mul_ps(v0, gelu8(v1)));
        return;
    }
    finish8(g, row, 0, g->n < 8 ? g->n : 8, act8(v0, g->act));
    if (g->n > 8) finish8(g, row, 8, g->n - 8, act8(v1, g->act));
}

static inline void finish_row(const struct gemm *g, size_t row, __m256 v0, __m256 v1)
{
    if (g->bias) {
        v0 = _mm256_add_ps(v0, _mm256_loadu_ps(g->bias));
        v1 = _mm256_add_ps(v1, _mm256_loadu_ps(g->bias + 8));
    }
    if (g->act == ACT_NONE && !g->geglu && g->n % 8 == 0) {
        float *c = g->c + row * g->ldc;
        const float *residual = g->residual ? g->residual + row * g->ldc : NULL;
        _mm256_storeu_ps(c, residual ? _mm256_add_ps(v0, _mm256_loadu_ps(residual)) : v0);
        if (g->n > 8)
            _mm256_storeu_ps(c + 8,
                             residual ? _mm256_add_ps(v1, _mm256_loadu_ps(residual + 8)) : v1);
        return;
    }
    finish_row_slowly(g, row, v0, v1);
}

static inline void start_row(const struct gemm *g, const struct block *block, size_t row,
                             __m256 *v0, __m256 *v1)
{
    if (!block->first) {
        *v0 = _mm256_load_ps(g->partial + row * GEMM_PANEL);
        *v1 = _mm256_load_ps(g->partial + row * GEMM_PANEL + 8);
    } else if (g->accumulate) {
        const float *c = g->c + row * g->ldc;
        *v0 = g->n >= 8 ? _mm256_loadu_ps(c) : _mm256_maskload_ps(c, mask8(g->n));
        *v1 = g->n == 16 ? _mm256_loadu_ps(c + 8)
              : g->n > 8 ? _mm256_maskload_ps(c + 8, mask8(g->n - 8))
                         : _mm256_setzero_ps();
    } else {
        *v0 = *v1 = _mm256_setzero_ps();
    }
}

/*
 * A tile of some rows times 16 columns, or times 8 where the panel has no more: all sums in
 * registers over the runs of a block. Written with one variable a register: compilers keep arrays
 * of vectors in memory here, which costs half the speed.
 */
#define ROWS_1(X) X(0)
#define ROWS_2(X) ROWS_1(X) X(1)
#define ROWS_3(X) ROWS_2(X) X(2)
#define ROWS_4(X) ROWS_3(X) X(3)
#define ROWS_5(X) ROWS_4(X) X(4)
#define ROWS_6(X) ROWS_5(X) X(5)

#define START(i)                                                                                   \
    __m256 low##i, high##i;                                                                        \
    start_row(g, block, row + i, &low##i, &high##i);
#define POINT(i) const float *a##i = g->a + g->row[row + i] + block->runs[r].offset;
#define MULTIPLY(i)                                                                                \
    value = _mm256_broadcast_ss(a##i + at);                                                        \
    low##i = _mm256_fmadd_ps(value, b0, low##i);                                                   \
    high##i = _mm256_fmadd_ps(value, b1, high##i);
#define MULTIPLY_HALF(i) low##i = _mm256_fmadd_ps(_mm256_broadcast_ss(a##i + at), b0, low##i);
#define ADVANCE(i)       a##i += unroll;
#define FINISH(i)        finish_row(g, row + i, low##i, high##i);
#define STORE(i)                                                                                   \
    _mm256_storeu_ps(g->c + (row + i) * g->ldc, low##i);                                           \
    _mm256_storeu_ps(g->c + (row + i) * g->ldc + 8, high##i);
#define KEEP(i)                                                                                    \
    _mm256_store_ps(g->partial + (row + i) * GEMM_PANEL, low##i);                                  \
    _mm256_store_ps(g->partial + (row + i) * GEMM_PANEL + 8, high##i);

#define STEP(n, step)                                                                              \
    do {                                                                                           \
        enum { at = step };                                                                        \
        __m256 value, b0 = _mm256_load_ps(b + at * GEMM_PANEL),                                    \
                      b1 = _mm256_load_ps(b + at * GEMM_PANEL + 8);                                \
        ROWS_##n(MULTIPLY);                                                                        \
    } while (0)
#define STEP_HALF(n, step)                                                                         \
    do {                                                                                           \
        enum { at = step };                                                                        \
        __m256 b0 = _mm256_load_ps(b + at * GEMM_PANEL);                                           \
        ROWS_##n(MULTIPLY_HALF);                                                                   \
    } while (0)
#define EIGHT_STEPS(step, n)                                                                       \
    step(n, 0);                                                                                    \
    step(n, 1);                                                                                    \
    step(n, 2);                                                                                    \
    step(n, 3);                                                                                    \
    step(n, 4);                                                                                    \
    step(n, 5);                                                                                    \
    step(n, 6);                                                                                    \
    step(n, 7);

#define DEFINE_TILE(name, n, step)                                                                 \
    static void name(const struct gemm *g, const struct block *block, size_t row)                  \
    {                                                                                              \
        const float *b = block->b;                                                                 \
        ROWS_##n(START);                                                                           \
        for (size_t r = 0; r < block->n_runs; r++) {                                               \
            ROWS_##n(POINT);                                                                       \
            size_t k = block->runs[r].k;                                                           \
            for (; k >= 8; k -= 8) {                                                               \
                enum { unroll = 8 };                                                               \
                EIGHT_STEPS(step, n)                                                               \
                b += unroll * GEMM_PANEL;                                                          \
                ROWS_##n(ADVANCE);                                                                 \
            }                                                                                      \
            for (; k > 0; k--) {                                                                   \
                enum { unroll = 1 };                                                               \
                step(n, 0);                                                                        \
                b += unroll * GEMM_PANEL;                                                          \
                ROWS_##n(ADVANCE);                                                                 \
            }                                                                                      \
        }                                                                                          \
        if (!block->last) {                                                                        \
            ROWS_##n(KEEP);                                                                        \
        } else if (block->plain) {                                                                 \
            ROWS_##n(STORE);                                                                       \
        } else {                                                                                   \
            ROWS_##n(FINISH);                                                                      \
        }                                                                                          \
    }

DEFINE_TILE(tile_1, 1, STEP)
DEFINE_TILE(tile_2, 2, STEP)
DEFINE_TILE(tile_3, 3, STEP)
DEFINE_TILE(tile_4, 4, STEP)
DEFINE_TILE(tile_5, 5, STEP)
DEFINE_TILE(tile_6, 6, STEP)
DEFINE_TILE(half_1, 1, STEP_HALF)
DEFINE_TILE(half_2, 2, STEP_HALF)
DEFINE_TILE(half_3, 3, STEP_HALF)
DEFINE_TILE(half_4, 4, STEP_HALF)
DEFINE_TILE(half_5, 5, STEP_HALF)
DEFINE_TILE(half_6, 6, STEP_HALF)

/* Asks for one share of the next block of b, so that it is near when its turn comes. */
static void fetch(const float *b, size_t k, size_t share, size_t n_shares)
{
    size_t end = k * (share + 1) / n_shares;
    for (size_t i = k * share / n_shares; i < end; i++)
        _mm_prefetch((const char *)(b + i * GEMM_PANEL), _MM_HINT_T1);
}

static void gemm_panel(const struct gemm *g)
{
    typedef void tile(const struct gemm *, const struct block *, size_t);
    static tile *const tiles[2][7] = {{NULL, tile_1, tile_2, tile_3, tile_4, tile_5, tile_6},
                                      {NULL, half_1, half_2, half_3, half_4, half_5, half_6}};
    tile *const *of_rows = tiles[g->n <= 8 && !g->geglu];
    struct block block = {
        .b = g->b,
        .first = true,
        .plain = !g->bias && !g->residual && !g->geglu && g->act == ACT_NONE && g->n == GEMM_PANEL,
    };
    for (size_t r = 0; r < g->n_runs; r += block.n_runs) {
        size_t k = 0;
        block.runs = g->runs + r;
        block.n_runs = 0;
        do k += g->runs[r + block.n_runs++].k;
        while (r + block.n_runs < g->n_runs && k + g->runs[r + block.n_runs].k <= BLOCK_K);
        block.last = r + block.n_runs == g->n_runs;
        const float *next = block.last ? g->next_b : block.b + k * GEMM_PANEL;
        size_t row = 0;
        for (; row + 6 <= g->m; row += 6) {
            if (next) fetch(next, k, row / 6, g->m / 6);
            of_rows[6](g, &block, row);
        }
        if (row < g->m) of_rows[g->m - row](g, &block, row);
        block.b += k * GEMM_PANEL;
        block.first = false;
    }
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
    switch (dtype) {
    case DTYPE_F32:
        memcpy(out, row, k * sizeof(float));
        return;
    case DTYPE_F16:
        for (; i + 32 <= k; i += 32) {
            /* The caller goes through many rows in pieces: ask for this row's next piece, which no
             * stride predicts. */
            _mm_prefetch((const char *)p + 2 * (i + k), _MM_HINT_T0);
            for (size_t j = i; j < i + 32; j += 8)
                _mm256_storeu_ps(out + j, _mm256_cvtph_ps(_mm_loadu_si128(
                                              (const __m128i *)(const void *)(p + 2 * j))));
        }
        for (; i + 8 <= k; i += 8)
            _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(
                                          (const __m128i *)(const void *)(p + 2 * i))));
        break;
    case DTYPE_BF16:
        for (; i + 8 <= k; i += 8) {
            __m256i wide =
                _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p + 2 * i)));
            _mm256_storeu_ps(out + i, _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16)));
        }
        break;
    case DTYPE_Q8_0:
        for (; i < k; i += 32, p += 34) {
            uint16_t half;
            memcpy(&half, p, 2);
            __m256 d = _mm256_set1_ps(_cvtsh_ss(half));
            for (size_t j = 0; j < 32; j += 8) {
                __m256i q = _mm256_cvtepi8_epi32(
                    _mm_loadl_epi64((const __m128i *)(const void *)(p + 2 + j)));
                _mm256_storeu_ps(out + i + j, _mm256_mul_ps(d, _mm256_cvtepi32_ps(q)));
            }
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

static inline void transpose8(__m256 r[8])
{
    __m256 t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    for (int i = 0; i < 8; i++) r[i] = t[i];
}

static void pack(float *out, const float *rows, size_t ld, size_t n, size_t k)
{
    size_t i = 0;
    for (; n == GEMM_PANEL && i + 8 <= k; i += 8) {
        for (size_t half = 0; half < GEMM_PANEL; half += 8) {
            __m256 r[8];
            for (size_t j = 0; j < 8; j++) r[j] = _mm256_loadu_ps(rows + (half + j) * ld + i);
            transpose8(r);
            for (size_t j = 0; j < 8; j++)
                _mm256_storeu_ps(out + (i + j) * GEMM_PANEL + half, r[j]);
        }
    }
    for (; i < k; i++) {
        for (size_t j = 0; j < GEMM_PANEL; j++)
            out[i * GEMM_PANEL + j] = j < n ? rows[j * ld + i] : 0.0f;
    }
}

/* ---- element by element ---- */

/*
 * Whole vectors, then the rest by masks: masked stores are slow on some processors. One loop a
 * function, so that the choice is made once.
 */
#define AFFINE_ROW(function)                                                                       \
    do {                                                                                           \
        for (; i + 8 <= n; i += 8) {                                                               \
            __m256 v = _mm256_loadu_ps(x + i);                                                     \
            if (scale)                                                                             \
                v = _mm256_fmadd_ps(v, _mm256_loadu_ps(scale + i), _mm256_loadu_ps(shift + i));    \
            _mm256_storeu_ps(y + i, function(v));                                                  \
        }                                                                                          \
    } while (0)
#define SILU8(v)       swish8(v, 1.0f)
#define QUICK_GELU8(v) swish8(v, 1.702f)
#define SAME8(v)       (v)

static void affine_act(float *y, const float *x, const float *scale, const float *shift, size_t n,
                       enum act act)
{
    size_t i = 0;
    switch (act) {
    case ACT_SILU:
        AFFINE_ROW(SILU8);
        break;
    case ACT_GELU:
        AFFINE_ROW(gelu8);
        break;
    case ACT_QUICK_GELU:
        AFFINE_ROW(QUICK_GELU8);
        break;
    case ACT_RELU:
        AFFINE_ROW(relu8);
        break;
    default:
        AFFINE_ROW(SAME8);
        break;
    }
    if (i == n) return;
    __m256i mask = mask8(n - i);
    __m256 v = _mm256_maskload_ps(x + i, mask);
    if (scale)
        v = _mm256_fmadd_ps(v, _mm256_maskload_ps(scale + i, mask),
                            _mm256_maskload_ps(shift + i, mask));
    _mm256_maskstore_ps(y + i, mask, act8(v, act));
}

static void act_row(float *y, const float *x, size_t n, enum act act)
{
    affine_act(y, x, NULL, NULL, n, act);
}

static void add(float *y, const float *a, const float *b, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_add_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i)));
    for (; i < n; i++) y[i] = a[i] + b[i];
}

static void scale_row(float *y, const float *x, float factor, size_t n)
{
    size_t i = 0;
    __m256 f = _mm256_set1_ps(factor);
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(y + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), f));
    for (; i < n; i++) y[i] = x[i] * factor;
}

static bool all_finite(const float *x, size_t n)
{
    /* 0 times a finite value is 0, anything else makes NaN, and NaN stays. */
    __m256 zero = _mm256_setzero_ps(), s0 = zero, s1 = zero;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        s0 = _mm256_fmadd_ps(_mm256_loadu_ps(x + i), zero, s0);
        s1 = _mm256_fmadd_ps(_mm256_loadu_ps(x + i + 8), zero, s1);
    }
    for (; i < n; i += 8) s0 = _mm256_fmadd_ps(_mm256_maskload_ps(x + i, mask8(n - i)), zero, s0);
    return sum8(_mm256_add_ps(s0, s1)) == 0.0f;
}

/* ---- norms and softmax ---- */

/* Eight channels down the rows with the sums in registers; in double, so that variance = E[x^2] -
 * E[x]^2 holds up. */
static void moments(double *sum, double *sum_sq, const float *x, size_t rows, size_t c)
{
    size_t j = 0;
    for (; j + 8 <= c; j += 8) {
        __m256d s0 = _mm256_loadu_pd(sum + j), s1 = _mm256_loadu_pd(sum + j + 4);
        __m256d q0 = _mm256_loadu_pd(sum_sq + j), q1 = _mm256_loadu_pd(sum_sq + j + 4);
        for (size_t i = 0; i < rows; i++) {
            __m256d x0 = _mm256_cvtps_pd(_mm_loadu_ps(x + i * c + j));
            __m256d x1 = _mm256_cvtps_pd(_mm_loadu_ps(x + i * c + j + 4));
            s0 = _mm256_add_pd(s0, x0), s1 = _mm256_add_pd(s1, x1);
            q0 = _mm256_fmadd_pd(x0, x0, q0), q1 = _mm256_fmadd_pd(x1, x1, q1);
        }
        _mm256_storeu_pd(sum + j, s0), _mm256_storeu_pd(sum + j + 4, s1);
        _mm256_storeu_pd(sum_sq + j, q0), _mm256_storeu_pd(sum_sq + j + 4, q1);
    }
    for (size_t i = 0; j < c && i < rows; i++) {
        for (size_t t = j; t < c; t++) {
            sum[t] += (double)x[i * c + t];
            sum_sq[t] += (double)x[i * c + t] * (double)x[i * c + t];
        }
    }
}

static void layer_norm(float *y, const float *x, size_t n, float eps, const float *weight,
                       const float *bias)
{
    __m256 s[4], mean, scale;
    for (int j = 0; j < 4; j++) s[j] = _mm256_setzero_ps();
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        for (size_t j = 0; j < 4; j++) s[j] = _mm256_add_ps(s[j], _mm256_loadu_ps(x + i + 8 * j));
    }
    for (; i < n; i += 8) s[0] = _mm256_add_ps(s[0], _mm256_maskload_ps(x + i, mask8(n - i)));
    float total = sum8(_mm256_add_ps(_mm256_add_ps(s[0], s[1]), _mm256_add_ps(s[2], s[3])));
    mean = _mm256_set1_ps(total / (float)n);
    for (int j = 0; j < 4; j++) s[j] = _mm256_setzero_ps();
    for (i = 0; i + 32 <= n; i += 32) {
        for (size_t j = 0; j < 4; j++) {
            __m256 d = _mm256_sub_ps(_mm256_loadu_ps(x + i + 8 * j), mean);
            s[j] = _mm256_fmadd_ps(d, d, s[j]);
        }
    }
    for (; i < n; i += 8) {
        __m256i mask = mask8(n - i);
        __m256 d = _mm256_sub_ps(_mm256_maskload_ps(x + i, mask), mean);
        d = _mm256_and_ps(d, _mm256_castsi256_ps(mask));
        s[0] = _mm256_fmadd_ps(d, d, s[0]);
    }
    total = sum8(_mm256_add_ps(_mm256_add_ps(s[0], s[1]), _mm256_add_ps(s[2], s[3])));
    scale = _mm256_set1_ps((float)(1.0 / sqrt((double)total / (double)n + (double)eps)));
    for (i = 0; i + 8 <= n; i += 8) {
        __m256 v = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(x + i), mean), scale);
        _mm256_storeu_ps(
            y + i, _mm256_fmadd_ps(v, _mm256_loadu_ps(weight + i), _mm256_loadu_ps(bias + i)));
    }
    if (i < n) {
        __m256i mask = mask8(n - i);
        __m256 v = _mm256_mul_ps(_mm256_sub_ps(_mm256_maskload_ps(x + i, mask), mean), scale);
        v = _mm256_fmadd_ps(v, _mm256_maskload_ps(weight + i, mask),
                            _mm256_maskload_ps(bias + i, mask));
        _mm256_maskstore_ps(y + i, mask, v);
    }
}

static float softmax(float *s, size_t n, size_t n_all, float scale, float *max, float *sum)
{
    float old = *max, top = old;
    size_t whole = n & ~(size_t)7;
    const __m256i mask = mask8(n - whole);
    const __m256 rest = _mm256_castsi256_ps(mask), infinity = _mm256_set1_ps(-INFINITY);
    /* Where no score is, minus infinity: its power is 0. */
    __m256 last = whole < n ? _mm256_blendv_ps(infinity, _mm256_maskload_ps(s + whole, mask), rest)
                            : infinity;
    __m256 m = _mm256_max_ps(_mm256_set1_ps(old), last), m1 = m;
    size_t at = 0;
    for (; at + 16 <= whole; at += 16) {
        m = _mm256_max_ps(m, _mm256_loadu_ps(s + at));
        m1 = _mm256_max_ps(m1, _mm256_loadu_ps(s + at + 8));
    }
    if (at < whole) m = _mm256_max_ps(m, _mm256_loadu_ps(s + at));
    if (n > 0) top = max8(_mm256_max_ps(m, m1));
    /* exp((s - top) scale) as a power of 2: the rounding of the exponent weighs little as it is
     * below 0. */
    __m256 factor8 = _mm256_set1_ps(scale * 1.44269504f), top8 = _mm256_set1_ps(top),
           total = _mm256_setzero_ps();
    for (at = 0; at + 16 <= whole; at += 16) { /* two at a time: the polynomial is one long chain */
        __m256 e0 = power8(_mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(s + at), top8), factor8));
        __m256 e1 =
            power8(_mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(s + at + 8), top8), factor8));
        _mm256_storeu_ps(s + at, e0), _mm256_storeu_ps(s + at + 8, e1);
        total = _mm256_add_ps(total, _mm256_add_ps(e0, e1));
    }
    for (size_t i = at; i < whole; i += 8) {
        __m256 e = power8(_mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(s + i), top8), factor8));
        _mm256_storeu_ps(s + i, e);
        total = _mm256_add_ps(total, e);
    }
    if (whole < n) {
        __m256 e = power8(_mm256_mul_ps(_mm256_sub_ps(last, top8), factor8));
        e = _mm256_and_ps(e, rest); /* top may be NaN */
        _mm256_maskstore_ps(s + whole, mask, e);
        total = _mm256_add_ps(total, e);
    }
    for (size_t i = n; i < n_all; i++) s[i] = 0;
    if (n == 0) return 1.0f;
    float factor = old == top ? 1.0f : old == -INFINITY ? 0.0f : expf((old - top) * scale);
    *max = top;
    *sum = *sum * factor + sum8(total);
    return factor;
}

/* ---- Winograd F(4x4, 3x3) ---- */

/* Six values times B^T (arXiv:1509.09308, section 4.3). */
static inline void transform_input(__m256 d[6], const __m256 x[6])
{
    const __m256 two = _mm256_set1_ps(2), four = _mm256_set1_ps(4), five = _mm256_set1_ps(5);
    __m256 even = _mm256_fnmadd_ps(four, x[2], x[4]), odd = _mm256_fnmadd_ps(four, x[1], x[3]);
    __m256 even2 = _mm256_sub_ps(x[4], x[2]), odd2 = _mm256_sub_ps(x[3], x[1]);
    d[0] = _mm256_fmadd_ps(four, x[0], _mm256_fnmadd_ps(five, x[2], x[4]));
    d[1] = _mm256_add_ps(even, odd);
    d[2] = _mm256_sub_ps(even, odd);
    d[3] = _mm256_fmadd_ps(two, odd2, even2);
    d[4] = _mm256_fnmadd_ps(two, odd2, even2);
    d[5] = _mm256_fmadd_ps(four, x[1], _mm256_fnmadd_ps(five, x[3], x[5]));
}

static void wino_input(float *v, size_t plane_stride, const float *x, size_t row_stride,
                       size_t pixel_stride, size_t c)
{
    for (size_t ch = 0; ch < c; ch += 8) {
        __m256 half[6][6], in[6], out[6]; /* half[row][column] after the columns' transform */
        for (size_t j = 0; j < 6; j++) {
            const float *p = x + j * pixel_stride + ch;
            for (size_t i = 0; i < 6; i++) in[i] = _mm256_loadu_ps(p + i * row_stride);
            transform_input(out, in);
            for (size_t i = 0; i < 6; i++) half[i][j] = out[i];
        }
        for (size_t i = 0; i < 6; i++) {
            float *p = v + i * 6 * plane_stride + ch;
            transform_input(out, half[i]);
            for (size_t j = 0; j < 6; j++) _mm256_storeu_ps(p + j * plane_stride, out[j]);
        }
    }
}

/* Three values times G. */
static inline void transform_weight(__m256 u[6], const __m256 g[3])
{
    const __m256 sixth = _mm256_set1_ps(1.0f / 6), twelfth = _mm256_set1_ps(1.0f / 12);
    __m256 sum = _mm256_add_ps(g[0], g[2]), minus = _mm256_set1_ps(-1.0f / 6);
    __m256 quarter = _mm256_fmadd_ps(g[0], _mm256_set1_ps(1.0f / 24), _mm256_mul_ps(g[2], sixth));
    u[0] = _mm256_mul_ps(g[0], _mm256_set1_ps(0.25f));
    u[1] = _mm256_mul_ps(_mm256_add_ps(sum, g[1]), minus);
    u[2] = _mm256_mul_ps(_mm256_sub_ps(sum, g[1]), minus);
    u[3] = _mm256_fmadd_ps(g[1], twelfth, quarter);
    u[4] = _mm256_fnmadd_ps(g[1], twelfth, quarter);
    u[5] = g[2];
}

static void wino_weight(float *u, size_t plane_stride, const float *w, size_t n)
{
    for (size_t f = 0; f < n; f += 8) {
        __m256 half[6][3], in[3], out[6];
        for (size_t j = 0; j < 3; j++) {
            for (size_t i = 0; i < 3; i++) in[i] = _mm256_loadu_ps(w + (i * 3 + j) * n + f);
            transform_weight(out, in);
            for (size_t i = 0; i < 6; i++) half[i][j] = out[i];
        }
        for (size_t i = 0; i < 6; i++) {
            transform_weight(out, half[i]);
            for (size_t j = 0; j < 6; j++)
                _mm256_storeu_ps(u + (i * 6 + j) * plane_stride + f, out[j]);
        }
    }
}

/* Six values times A^T. */
static inline void transform_output(__m256 y[4], const __m256 m[6])
{
    const __m256 two = _mm256_set1_ps(2), four = _mm256_set1_ps(4), eight = _mm256_set1_ps(8);
    __m256 s1 = _mm256_add_ps(m[1], m[2]), d1 = _mm256_sub_ps(m[1], m[2]);
    __m256 s2 = _mm256_add_ps(m[3], m[4]), d2 = _mm256_sub_ps(m[3], m[4]);
    y[0] = _mm256_add_ps(_mm256_add_ps(m[0], s1), s2);
    y[1] = _mm256_fmadd_ps(two, d2, d1);
    y[2] = _mm256_fmadd_ps(four, s2, s1);
    y[3] = _mm256_add_ps(_mm256_fmadd_ps(eight, d2, d1), m[5]);
}

static void wino_output(const struct wino_output *o)
{
    for (size_t ch = 0; ch < o->c; ch += 8) {
        __m256 half[4][6], in[6], out[4];
        __m256 bias = o->bias ? _mm256_loadu_ps(o->bias + ch) : _mm256_setzero_ps();
        for (size_t j = 0; j < 6; j++) {
            const float *m = o->m + j * o->plane_stride + ch;
            for (size_t i = 0; i < 6; i++) in[i] = _mm256_loadu_ps(m + i * 6 * o->plane_stride);
            transform_output(out, in);
            for (size_t i = 0; i < 4; i++) half[i][j] = out[i];
        }
        for (int i = 0; i < o->rows; i++) {
            transform_output(out, half[i]);
            for (int j = 0; j < o->columns; j++) {
                size_t at = (size_t)i * o->row_stride + (size_t)j * o->pixel_stride + ch;
                __m256 y = _mm256_add_ps(out[j], bias);
                if (o->residual) y = _mm256_add_ps(y, _mm256_loadu_ps(o->residual + at));
                _mm256_storeu_ps(o->y + at, o->relu ? relu8(y) : y);
            }
        }
    }
}

/* ---- the machine's best ---- */

#define BURN_START(i) __m256 low##i = _mm256_set1_ps(i), high##i = _mm256_set1_ps(i + 0.5f);
#define BURN(i)                                                                                    \
    low##i = _mm256_fmadd_ps(low##i, x, y);                                                        \
    high##i = _mm256_fmadd_ps(high##i, x, y);
#define BURN_SUM(i) x = _mm256_add_ps(x, _mm256_add_ps(low##i, high##i));

static double burn(size_t rounds)
{
    __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
    ROWS_6(BURN_START);
    for (size_t r = 0; r < rounds; r++) {
        ROWS_6(BURN);
    }
    ROWS_6(BURN_SUM);
    return sum8(x) >= 0 ? 2.0 * 8 * 12 * (double)rounds : 0;
}

void kernels_init_avx2(struct kernels *k)
{
    k->burn = burn;
    k->unpack = unpack;
    k->pack = pack;
    k->gemm = gemm;
    k->affine_act = affine_act;
    k->act = act_row;
    k->add = add;
    k->all_finite = all_finite;
    k->moments = moments;
    k->layer_norm = layer_norm;
    k->softmax = softmax;
    k->scale = scale_row;
    k->wino_input = wino_input;
    k->wino_weight = wino_weight;
    k->wino_output = wino_output;
}
