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
#define MM(name) _mm512_##name
#include "kernels/x86.h"

static inline __mmask16 mask16(size_t n)
{
    return (__mmask16)(n < 16 ? (1u << n) - 1 : 0xffffu);
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

static inline vec v_from_f16(const unsigned char *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

static inline vec v_from_bf16(const unsigned char *p)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

static inline vec v_from_i8(const unsigned char *p)
{
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

static inline float f16_at(const unsigned char *p)
{
    float x;
    dtype_unpack(DTYPE_F16, &x, p, 1);
    return x;
}

static inline void v_transpose(vec r[LANES])
{
    vec t[LANES];
    transpose_blocks(r);
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
    for (int i = 0; i < LANES; i++) r[i] = t[i];
}

/* Of 32 registers 24 hold sums. */
#define TILE_ROWS 12
#include "kernels/tile.h"

void kernels_init_avx512(struct kernels *k)
{
    KERNELS_OF_THIS_SET(k);
}
