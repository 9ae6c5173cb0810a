/* avx2.c - inner loops with AVX2, FMA and F16C. */
/* SPDX-License-Identifier: MIT */
#include "kernels/kernels.h"

#include <immintrin.h>
#include <string.h>

/* ---- what lanes.h needs ---- */

#define LANES 8
typedef __m256 vec;
typedef __m256d dvec;
typedef __m256 vec8;

/* The first n lanes of eight for masked loads and stores. */
static inline __m256i mask8(size_t n)
{
    static const int32_t bits[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
    return _mm256_loadu_si256((const __m256i *)(const void *)(bits + 8 - (n < 8 ? n : 8)));
}

static inline vec v_set(float x)
{
    return _mm256_set1_ps(x);
}

static inline vec v_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

static inline void v_store(float *p, vec v)
{
    _mm256_storeu_ps(p, v);
}

static inline vec v_load_first(const float *p, size_t n)
{
    return _mm256_maskload_ps(p, mask8(n));
}

static inline void v_store_first(float *p, vec v, size_t n)
{
    _mm256_maskstore_ps(p, mask8(n), v);
}

static inline vec v_first(vec v, size_t n, vec other)
{
    return _mm256_blendv_ps(other, v, _mm256_castsi256_ps(mask8(n)));
}

/* Panels of 8 columns and their gates are whole vectors. */
static inline vec v_load_split(const float *p, size_t n)
{
    (void)n;
    return v_load(p);
}

static inline void v_fetch(const float *p)
{
    _mm_prefetch((const char *)p, _MM_HINT_T1);
}

static inline vec v_add(vec a, vec b)
{
    return _mm256_add_ps(a, b);
}

static inline vec v_sub(vec a, vec b)
{
    return _mm256_sub_ps(a, b);
}

static inline vec v_mul(vec a, vec b)
{
    return _mm256_mul_ps(a, b);
}

static inline vec v_div(vec a, vec b)
{
    return _mm256_div_ps(a, b);
}

static inline vec v_max(vec a, vec b)
{
    return _mm256_max_ps(a, b);
}

static inline vec v_min(vec a, vec b)
{
    return _mm256_min_ps(a, b);
}

static inline vec v_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline vec v_fms(vec a, vec b, vec c)
{
    return _mm256_fmsub_ps(a, b, c);
}

static inline vec v_fnma(vec a, vec b, vec c)
{
    return _mm256_fnmadd_ps(a, b, c);
}

static inline vec v_abs(vec x)
{
    return _mm256_andnot_ps(v_set(-0.0f), x);
}

static inline vec v_negate(vec x)
{
    return _mm256_xor_ps(x, v_set(-0.0f));
}

static inline vec v_minus_abs(vec x)
{
    return _mm256_or_ps(x, v_set(-0.0f));
}

static inline vec v_nearest(vec x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline vec v_if_negative(vec x, vec a, vec b)
{
    return _mm256_blendv_ps(b, a, x);
}

static inline vec v_clear_less(vec a, vec b, vec v)
{
    return _mm256_andnot_ps(_mm256_cmp_ps(a, b, _CMP_LT_OQ), v);
}

static inline vec v_clear_greater(vec a, vec b, vec v)
{
    return _mm256_andnot_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ), v);
}

static inline vec v_times_power(vec v, vec n)
{
    __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(v), exponent));
}

static inline float v_highest(vec v)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}

static inline dvec d_load(const double *p)
{
    return _mm256_loadu_pd(p);
}

static inline void d_store(double *p, dvec v)
{
    _mm256_storeu_pd(p, v);
}

static inline dvec d_add(dvec a, dvec b)
{
    return _mm256_add_pd(a, b);
}

static inline dvec d_fma(dvec a, dvec b, dvec c)
{
    return _mm256_fmadd_pd(a, b, c);
}

static inline dvec d_widen(const float *p)
{
    return _mm256_cvtps_pd(_mm_loadu_ps(p));
}

static inline vec8 e_low(const vec v[2])
{
    return v[0];
}

static inline vec8 e_high(const vec v[2])
{
    return v[1];
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

/* ---- matrix product: 6 rows times a panel ---- */

#define TILE_ROWS   6
#define TILE_PANELS 1
#include "kernels/tile.h"

static inline void start_row(const struct block *block, size_t row, vec *low, vec *high)
{
    *low = *high = v_set(0);
    if (!block->from) return;
    const float *from = block->from + row * block->from_stride;
    if (block->n_sums == GEMM_PANEL) {
        *low = v_load(from);
        *high = v_load(from + 8);
    } else {
        *low = v_load_first(from, block->n_sums);
        if (block->n_sums > 8) *high = v_load_first(from + 8, block->n_sums - 8);
    }
}

/* Bias and residual of 8 or 16 columns. */
static inline void finish_row(const struct gemm *g, size_t row, vec low, vec high)
{
    float *c = g->c + row * g->ldc;
    const float *residual = g->residual ? g->residual + row * g->ldc : NULL;
    if (g->bias) {
        low = v_add(low, v_load(g->bias));
        high = v_add(high, v_load(g->bias + 8));
    }
    v_store(c, residual ? v_add(low, v_load(residual)) : low);
    if (g->n > 8) v_store(c + 8, residual ? v_add(high, v_load(residual + 8)) : high);
}

#define START(i)                                                                                   \
    vec low##i, high##i;                                                                           \
    start_row(block, row + i, &low##i, &high##i);
#define MULTIPLY(i)                                                                                \
    value = _mm256_broadcast_ss(a##i + at);                                                        \
    low##i = v_fma(value, b0, low##i);                                                             \
    high##i = v_fma(value, b1, high##i);
#define MULTIPLY_HALF(i) low##i = v_fma(_mm256_broadcast_ss(a##i + at), b0, low##i);
#define STORE(i)                                                                                   \
    v_store(g->c + (row + i) * g->ldc, low##i);                                                    \
    v_store(g->c + (row + i) * g->ldc + 8, high##i);
#define KEEP(i)                                                                                    \
    v_store(g->partial + (row + i) * GEMM_PANEL, low##i);                                          \
    v_store(g->partial + (row + i) * GEMM_PANEL + 8, high##i);
#define FINISH(i) finish_row(g, row + i, low##i, high##i);

#define STEP(n, step)                                                                              \
    do {                                                                                           \
        enum { at = step };                                                                        \
        vec value, b0 = v_load(b + at * GEMM_PANEL), b1 = v_load(b + at * GEMM_PANEL + 8);         \
        ROWS_##n(MULTIPLY);                                                                        \
    } while (0)
#define STEP_HALF(n, step)                                                                         \
    do {                                                                                           \
        enum { at = step };                                                                        \
        vec b0 = v_load(b + at * GEMM_PANEL);                                                      \
        ROWS_##n(MULTIPLY_HALF);                                                                   \
    } while (0)

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

/* Where a panel has no more than 8 columns, half of it is left out. */
static tile *const *tiles_of(const struct gemm *g)
{
    static tile *const tiles[2][7] = {{NULL, tile_1, tile_2, tile_3, tile_4, tile_5, tile_6},
                                      {NULL, half_1, half_2, half_3, half_4, half_5, half_6}};
    return tiles[g->n <= 8 && !g->geglu];
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

/* ---- the machine's best ---- */

#define BURN_START(i) vec low##i = _mm256_set1_ps(i), high##i = _mm256_set1_ps(i + 0.5f);
#define BURN(i)                                                                                    \
    low##i = _mm256_fmadd_ps(low##i, x, y);                                                        \
    high##i = _mm256_fmadd_ps(high##i, x, y);
#define BURN_SUM(i) x = _mm256_add_ps(x, _mm256_add_ps(low##i, high##i));

static double burn(size_t rounds)
{
    vec x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
    ROWS_6(BURN_START);
    for (size_t r = 0; r < rounds; r++) {
        ROWS_6(BURN);
    }
    ROWS_6(BURN_SUM);
    return e_sum(x) >= 0 ? 2.0 * 8 * 12 * (double)rounds : 0;
}

void kernels_init_avx2(struct kernels *k)
{
    KERNELS_OF_THIS_SET(k);
}
