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
#define MM(name) _mm256_##name
#include "kernels/x86.h"

/* The first n lanes of eight for masked loads and stores. */
static inline __m256i mask8(size_t n)
{
    static const int32_t bits[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
    return _mm256_loadu_si256((const __m256i *)(const void *)(bits + 8 - (n < 8 ? n : 8)));
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

static inline vec v_from_f16(const unsigned char *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline vec v_from_bf16(const unsigned char *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

static inline vec v_from_i8(const unsigned char *p)
{
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

static inline float f16_at(const unsigned char *p)
{
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return _cvtsh_ss(half);
}

static inline void v_transpose(vec r[LANES])
{
    vec t[LANES];
    transpose_blocks(r);
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    for (int i = 0; i < LANES; i++) r[i] = t[i];
}

/* Of 16 registers 12 hold sums. */
#define TILE_ROWS 6
#include "kernels/tile.h"

void kernels_init_avx2(struct kernels *k)
{
    KERNELS_OF_THIS_SET(k);
}
