/* avx512.c - inner loops with AVX-512 F, BW, DQ and VL, as x86-64-v4 has them. */
/* SPDX-License-Identifier: MIT */
#include "kernels/kernels.h"

#include <immintrin.h>
#include <string.h>

/*
 * Every result is the same bits as AVX2's: each sum runs over the same terms in the same order, and
 * functions take the same steps. So a picture does not depend on which of the two made it.
 *
 * Tests compile this file a second time against a model of the instructions in plain C
 * (tests/model512), where there is no processor to run it.
 */

/* ---- what lanes.h needs ---- */

#define LANES 16
typedef __m512 vec;
typedef __m512d dvec;
typedef __m256 vec8;

static inline __mmask16 mask16(size_t n)
{
    return (__mmask16)(n < 16 ? (1u << n) - 1 : 0xffffu);
}

static inline vec v_set(float x)
{
    return _mm512_set1_ps(x);
}

static inline vec v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

static inline void v_store(float *p, vec v)
{
    _mm512_storeu_ps(p, v);
}

static inline vec v_load_first(const float *p, size_t n)
{
    return _mm512_maskz_loadu_ps(mask16(n), p);
}

static inline void v_store_first(float *p, vec v, size_t n)
{
    _mm512_mask_storeu_ps(p, mask16(n), v);
}

static inline vec v_first(vec v, size_t n, vec other)
{
    return _mm512_mask_blend_ps(mask16(n), other, v);
}

/* Of two panels of 8 columns and their gates the columns, or the gates. */
static inline vec v_load_split(const float *p, size_t n)
{
    vec low = _mm512_castps256_ps512(_mm256_loadu_ps(p));
    return _mm512_insertf32x8(low, n > 8 ? _mm256_loadu_ps(p + GEMM_PANEL) : _mm256_setzero_ps(),
                              1);
}

static inline void v_fetch(const float *p)
{
    _mm_prefetch((const char *)p, _MM_HINT_T1);
}

static inline vec v_add(vec a, vec b)
{
    return _mm512_add_ps(a, b);
}

static inline vec v_sub(vec a, vec b)
{
    return _mm512_sub_ps(a, b);
}

static inline vec v_mul(vec a, vec b)
{
    return _mm512_mul_ps(a, b);
}

static inline vec v_div(vec a, vec b)
{
    return _mm512_div_ps(a, b);
}

static inline vec v_max(vec a, vec b)
{
    return _mm512_max_ps(a, b);
}

static inline vec v_min(vec a, vec b)
{
    return _mm512_min_ps(a, b);
}

static inline vec v_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline vec v_fms(vec a, vec b, vec c)
{
    return _mm512_fmsub_ps(a, b, c);
}

static inline vec v_fnma(vec a, vec b, vec c)
{
    return _mm512_fnmadd_ps(a, b, c);
}

static inline vec v_abs(vec x)
{
    return _mm512_andnot_ps(v_set(-0.0f), x);
}

static inline vec v_negate(vec x)
{
    return _mm512_xor_ps(x, v_set(-0.0f));
}

static inline vec v_minus_abs(vec x)
{
    return _mm512_or_ps(x, v_set(-0.0f));
}

static inline vec v_nearest(vec x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline vec v_if_negative(vec x, vec a, vec b)
{
    return _mm512_mask_blend_ps(_mm512_movepi32_mask(_mm512_castps_si512(x)), b, a);
}

static inline vec v_clear(__mmask16 where, vec v)
{
    return _mm512_mask_blend_ps(where, v, _mm512_setzero_ps());
}

static inline vec v_clear_less(vec a, vec b, vec v)
{
    return v_clear(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), v);
}

static inline vec v_clear_greater(vec a, vec b, vec v)
{
    return v_clear(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), v);
}

/* vscalefps would do this in one, but differs from AVX2 where the product is below the normals. */
static inline vec v_times_power(vec v, vec n)
{
    __m512i exponent = _mm512_slli_epi32(_mm512_cvtps_epi32(n), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(v), exponent));
}

static inline float v_highest(vec v)
{
    return _mm512_reduce_max_ps(v);
}

static inline dvec d_load(const double *p)
{
    return _mm512_loadu_pd(p);
}

static inline void d_store(double *p, dvec v)
{
    _mm512_storeu_pd(p, v);
}

static inline dvec d_add(dvec a, dvec b)
{
    return _mm512_add_pd(a, b);
}

static inline dvec d_fma(dvec a, dvec b, dvec c)
{
    return _mm512_fmadd_pd(a, b, c);
}

static inline dvec d_widen(const float *p)
{
    return _mm512_cvtps_pd(_mm256_loadu_ps(p));
}

static inline vec8 e_low(const vec v[1])
{
    return _mm512_castps512_ps256(v[0]);
}

static inline vec8 e_high(const vec v[1])
{
    return _mm512_extractf32x8_ps(v[0], 1);
}

static inline vec8 e_add(vec8 a, vec8 b)
{
    return _mm256_add_ps(a, b);
}

static inline float e_sum(vec8 v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}

/* ---- matrix product: 12 rows times two panels, 24 sums in 32 registers ---- */

#define TILE_ROWS   12
#define TILE_PANELS 2
#include "kernels/tile.h"

/* Sums of one panel of one row to start with. */
static inline vec start(const struct block *block, size_t row, size_t panel)
{
    size_t column = panel * GEMM_PANEL;
    if (!block->from) return v_set(0);
    return v_load_first(block->from + row * block->from_stride + column, block->n_sums - column);
}

/* Bias and residual of 16 columns. */
static inline void finish(const struct gemm *g, size_t row, size_t panel, vec v)
{
    size_t at = row * g->ldc + panel * GEMM_PANEL;
    if (g->bias) v = v_add(v, v_load(g->bias + panel * GEMM_PANEL));
    v_store(g->c + at, g->residual ? v_add(v, v_load(g->residual + at)) : v);
}

#define START(i) vec left##i = start(block, row + i, 0), right##i = start(block, row + i, 1);
#define MULTIPLY(i)                                                                                \
    value = v_set(a##i[at]);                                                                       \
    left##i = v_fma(value, b0, left##i);                                                           \
    right##i = v_fma(value, b1, right##i);
#define STORE(i)                                                                                   \
    v_store(g->c + (row + i) * g->ldc, left##i);                                                   \
    v_store(g->c + (row + i) * g->ldc + GEMM_PANEL, right##i);
#define KEEP(i)                                                                                    \
    v_store(g->partial + (row + i) * block->partial_stride, left##i);                              \
    v_store(g->partial + (row + i) * block->partial_stride + GEMM_PANEL, right##i);
#define FINISH(i)                                                                                  \
    finish(g, row + i, 0, left##i);                                                                \
    finish(g, row + i, 1, right##i);
#define STEP(n, step)                                                                              \
    do {                                                                                           \
        enum { at = step };                                                                        \
        vec value, b0 = v_load(b + at * GEMM_PANEL), b1 = v_load(beside + at * GEMM_PANEL);        \
        ROWS_##n(MULTIPLY);                                                                        \
    } while (0)

DEFINE_TILE(pair_1, 1, STEP)
DEFINE_TILE(pair_2, 2, STEP)
DEFINE_TILE(pair_3, 3, STEP)
DEFINE_TILE(pair_4, 4, STEP)
DEFINE_TILE(pair_5, 5, STEP)
DEFINE_TILE(pair_6, 6, STEP)
DEFINE_TILE(pair_7, 7, STEP)
DEFINE_TILE(pair_8, 8, STEP)
DEFINE_TILE(pair_9, 9, STEP)
DEFINE_TILE(pair_10, 10, STEP)
DEFINE_TILE(pair_11, 11, STEP)
DEFINE_TILE(pair_12, 12, STEP)

/* The last panel of an odd number. */
#undef START
#undef MULTIPLY
#undef STORE
#undef KEEP
#undef FINISH
#define START(i)    vec left##i = start(block, row + i, 0);
#define MULTIPLY(i) left##i = v_fma(v_set(a##i[at]), b0, left##i);
#define STORE(i)    v_store(g->c + (row + i) * g->ldc, left##i);
#define KEEP(i)     v_store(g->partial + (row + i) * block->partial_stride, left##i);
#define FINISH(i)   finish(g, row + i, 0, left##i);
#define STEP_SINGLE(n, step)                                                                       \
    do {                                                                                           \
        enum { at = step };                                                                        \
        vec b0 = v_load(b + at * GEMM_PANEL);                                                      \
        ROWS_##n(MULTIPLY);                                                                        \
    } while (0)

DEFINE_TILE(single_1, 1, STEP_SINGLE)
DEFINE_TILE(single_2, 2, STEP_SINGLE)
DEFINE_TILE(single_3, 3, STEP_SINGLE)
DEFINE_TILE(single_4, 4, STEP_SINGLE)
DEFINE_TILE(single_5, 5, STEP_SINGLE)
DEFINE_TILE(single_6, 6, STEP_SINGLE)
DEFINE_TILE(single_7, 7, STEP_SINGLE)
DEFINE_TILE(single_8, 8, STEP_SINGLE)
DEFINE_TILE(single_9, 9, STEP_SINGLE)
DEFINE_TILE(single_10, 10, STEP_SINGLE)
DEFINE_TILE(single_11, 11, STEP_SINGLE)
DEFINE_TILE(single_12, 12, STEP_SINGLE)

static tile *const *tiles_of(const struct gemm *g)
{
    static tile *const pairs[] = {NULL,   pair_1, pair_2, pair_3,  pair_4,  pair_5, pair_6,
                                  pair_7, pair_8, pair_9, pair_10, pair_11, pair_12};
    static tile *const singles[] = {NULL,      single_1,  single_2, single_3, single_4,
                                    single_5,  single_6,  single_7, single_8, single_9,
                                    single_10, single_11, single_12};
    return g->n > gemm_width(g) ? pairs : singles;
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
            /* The next piece of this row, as in avx2.c. */
            _mm_prefetch((const char *)p + 2 * (i + k), _MM_HINT_T0);
            for (size_t j = i; j < i + 32; j += 16)
                v_store(out + j, _mm512_cvtph_ps(_mm256_loadu_si256(
                                     (const __m256i *)(const void *)(p + 2 * j))));
        }
        for (; i + 16 <= k; i += 16)
            v_store(out + i, _mm512_cvtph_ps(
                                 _mm256_loadu_si256((const __m256i *)(const void *)(p + 2 * i))));
        break;
    case DTYPE_BF16:
        for (; i + 16 <= k; i += 16) {
            __m512i wide = _mm512_cvtepu16_epi32(
                _mm256_loadu_si256((const __m256i *)(const void *)(p + 2 * i)));
            v_store(out + i, _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16)));
        }
        break;
    case DTYPE_Q8_0:
        for (; i < k; i += 32, p += 34) {
            float d;
            dtype_unpack(DTYPE_F16, &d, p, 1);
            for (size_t j = 0; j < 32; j += 16) {
                __m512i q = _mm512_cvtepi8_epi32(
                    _mm_loadu_si128((const __m128i *)(const void *)(p + 2 + j)));
                v_store(out + i + j, v_mul(v_set(d), _mm512_cvtepi32_ps(q)));
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

/* Rows to columns: 4 x 4 blocks within the quarters of registers, then the quarters. */
static inline void transpose16(vec r[16])
{
    vec t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    /* r[4 g + j] holds columns j, j + 4, j + 8, j + 12 of rows 4 g .. 4 g + 3. */
    for (int j = 0; j < 4; j++) {
        vec low01 = _mm512_shuffle_f32x4(r[j], r[4 + j], 0x88),
            low23 = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0x88),
            high01 = _mm512_shuffle_f32x4(r[j], r[4 + j], 0xdd),
            high23 = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0xdd);
        t[j] = _mm512_shuffle_f32x4(low01, low23, 0x88);
        t[j + 4] = _mm512_shuffle_f32x4(high01, high23, 0x88);
        t[j + 8] = _mm512_shuffle_f32x4(low01, low23, 0xdd);
        t[j + 12] = _mm512_shuffle_f32x4(high01, high23, 0xdd);
    }
    for (int i = 0; i < 16; i++) r[i] = t[i];
}

static void pack(float *out, const float *rows, size_t ld, size_t n, size_t k)
{
    size_t i = 0;
    for (; n == GEMM_PANEL && i + 16 <= k; i += 16) {
        vec r[16];
        for (size_t j = 0; j < 16; j++) r[j] = v_load(rows + j * ld + i);
        transpose16(r);
        for (size_t j = 0; j < 16; j++) v_store(out + (i + j) * GEMM_PANEL, r[j]);
    }
    for (; i < k; i++) {
        for (size_t j = 0; j < GEMM_PANEL; j++)
            out[i * GEMM_PANEL + j] = j < n ? rows[j * ld + i] : 0.0f;
    }
}

/* ---- the machine's best ---- */

#define BURN_START(i) vec low##i = v_set(i), high##i = v_set(i + 0.5f);
#define BURN(i)                                                                                    \
    low##i = v_fma(low##i, x, y);                                                                  \
    high##i = v_fma(high##i, x, y);
#define BURN_SUM(i) x = v_add(x, v_add(low##i, high##i));

static double burn(size_t rounds)
{
    vec x = v_set(0.999f), y = v_set(0.001f);
    ROWS_6(BURN_START);
    for (size_t r = 0; r < rounds; r++) {
        ROWS_6(BURN);
    }
    ROWS_6(BURN_SUM);
    return v_highest(x) >= 0 ? 2.0 * LANES * 12 * (double)rounds : 0;
}

void kernels_init_avx512(struct kernels *k)
{
    KERNELS_OF_THIS_SET(k);
}
