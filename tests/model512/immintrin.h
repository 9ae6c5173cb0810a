/* immintrin.h - the AVX-512 instructions that src/kernels/avx512.c uses, in plain C. */
/* SPDX-License-Identifier: MIT */
#ifndef TESTS_MODEL512_H
#define TESTS_MODEL512_H

/*
 * Found in place of the compiler's header, so that the kernels run where no processor has the
 * instructions. Written after Intel's Software Developer's Manual, volume 2; arithmetic is IEEE's,
 * rounded to nearest even. Lanes that a mask leaves out are not read or written. What an
 * instruction leaves undefined is filled with a NaN, which shows where somebody relies on it.
 */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define EACH(n) for (int i = 0; i < (n); i++)

typedef struct {
    float f[4];
} __m128;
typedef struct {
    float f[8];
} __m256;
typedef struct {
    float f[16];
} __m512;
typedef struct {
    double d[8];
} __m512d;
typedef struct {
    uint8_t b[16];
} __m128i;
typedef struct {
    uint8_t b[32];
} __m256i;
typedef struct {
    int32_t i[16];
} __m512i;
typedef uint16_t __mmask16;

#define _MM_HINT_T0               3
#define _MM_HINT_T1               2
#define _mm_prefetch(p, hint)     ((void)(p), (void)(hint))
#define _MM_FROUND_TO_NEAREST_INT 0
#define _MM_FROUND_NO_EXC         8
#define _CMP_LT_OQ                17
#define _CMP_GT_OQ                30

/* ---- moves ---- */

static inline __m512 _mm512_set1_ps(float x)
{
    __m512 r;
    EACH(16) r.f[i] = x;
    return r;
}

static inline __m512 _mm512_setzero_ps(void)
{
    return _mm512_set1_ps(0);
}

static inline __m512 _mm512_loadu_ps(const void *p)
{
    __m512 r;
    memcpy(&r, p, sizeof r);
    return r;
}

static inline void _mm512_storeu_ps(void *p, __m512 v)
{
    memcpy(p, &v, sizeof v);
}

static inline __m512 _mm512_maskz_loadu_ps(__mmask16 k, const void *p)
{
    __m512 r = _mm512_setzero_ps();
    EACH(16) if (k >> i & 1) memcpy(&r.f[i], (const char *)p + 4 * i, 4);
    return r;
}

static inline void _mm512_mask_storeu_ps(void *p, __mmask16 k, __m512 v)
{
    EACH(16) if (k >> i & 1) memcpy((char *)p + 4 * i, &v.f[i], 4);
}

/* b where the mask is set. */
static inline __m512 _mm512_mask_blend_ps(__mmask16 k, __m512 a, __m512 b)
{
    EACH(16) if (k >> i & 1) a.f[i] = b.f[i];
    return a;
}

static inline __m512d _mm512_loadu_pd(const void *p)
{
    __m512d r;
    memcpy(&r, p, sizeof r);
    return r;
}

static inline void _mm512_storeu_pd(void *p, __m512d v)
{
    memcpy(p, &v, sizeof v);
}

static inline __m256 _mm256_loadu_ps(const float *p)
{
    __m256 r;
    memcpy(&r, p, sizeof r);
    return r;
}

static inline __m256 _mm256_setzero_ps(void)
{
    return (__m256){{0}};
}

static inline __m256i _mm256_loadu_si256(const __m256i *p)
{
    __m256i r;
    memcpy(&r, p, sizeof r);
    return r;
}

static inline __m128i _mm_loadu_si128(const __m128i *p)
{
    __m128i r;
    memcpy(&r, p, sizeof r);
    return r;
}

static inline __m512i _mm512_castps_si512(__m512 v)
{
    __m512i r;
    memcpy(&r, &v, sizeof r);
    return r;
}

static inline __m512 _mm512_castsi512_ps(__m512i v)
{
    __m512 r;
    memcpy(&r, &v, sizeof r);
    return r;
}

static inline __m512 _mm512_castps256_ps512(__m256 v)
{
    __m512 r = _mm512_set1_ps(NAN);
    memcpy(&r, &v, sizeof v);
    return r;
}

static inline __m256 _mm512_castps512_ps256(__m512 v)
{
    __m256 r;
    memcpy(&r, &v, sizeof r);
    return r;
}

static inline __m256 _mm512_extractf32x8_ps(__m512 v, int half)
{
    __m256 r;
    memcpy(&r, v.f + half * 8, sizeof r);
    return r;
}

static inline __m512 _mm512_insertf32x8(__m512 v, __m256 part, int half)
{
    memcpy(v.f + half * 8, &part, sizeof part);
    return v;
}

static inline __m128 _mm256_castps256_ps128(__m256 v)
{
    __m128 r;
    memcpy(&r, &v, sizeof r);
    return r;
}

static inline __m128 _mm256_extractf128_ps(__m256 v, int half)
{
    __m128 r;
    memcpy(&r, v.f + half * 4, sizeof r);
    return r;
}

/* The high half of b below the high half of a. */
static inline __m128 _mm_movehl_ps(__m128 a, __m128 b)
{
    return (__m128){{b.f[2], b.f[3], a.f[2], a.f[3]}};
}

static inline __m128 _mm_shuffle_ps(__m128 a, __m128 b, int order)
{
    return (__m128){{a.f[order & 3], a.f[order >> 2 & 3], b.f[order >> 4 & 3], b.f[order >> 6]}};
}

static inline float _mm_cvtss_f32(__m128 v)
{
    return v.f[0];
}

/* Within each quarter of four. */
static inline __m512 _mm512_shuffle_ps(__m512 a, __m512 b, int order)
{
    __m512 r;
    EACH(16)
    {
        const float *from = (i % 4 < 2 ? a.f : b.f) + i / 4 * 4;
        r.f[i] = from[order >> i % 4 * 2 & 3];
    }
    return r;
}

static inline __m512 _mm512_unpacklo_ps(__m512 a, __m512 b)
{
    __m512 r;
    EACH(16) r.f[i] = (i % 2 ? b.f : a.f)[i / 4 * 4 + i % 4 / 2];
    return r;
}

static inline __m512 _mm512_unpackhi_ps(__m512 a, __m512 b)
{
    __m512 r;
    EACH(16) r.f[i] = (i % 2 ? b.f : a.f)[i / 4 * 4 + 2 + i % 4 / 2];
    return r;
}

/* Whole quarters: two of a, two of b. */
static inline __m512 _mm512_shuffle_f32x4(__m512 a, __m512 b, int order)
{
    __m512 r;
    EACH(16) r.f[i] = (i < 8 ? a.f : b.f)[(order >> i / 4 * 2 & 3) * 4 + i % 4];
    return r;
}

/* ---- arithmetic ---- */

#define OF_TWO(name, expression)                                                                   \
    static inline __m512 _mm512_##name##_ps(__m512 a, __m512 b)                                    \
    {                                                                                              \
        __m512 r;                                                                                  \
        EACH(16) r.f[i] = expression;                                                              \
        return r;                                                                                  \
    }
OF_TWO(add, a.f[i] + b.f[i])
OF_TWO(sub, a.f[i] - b.f[i])
OF_TWO(mul, a.f[i] * b.f[i])
OF_TWO(div, a.f[i] / b.f[i])
OF_TWO(max, a.f[i] > b.f[i] ? a.f[i] : b.f[i]) /* the second if either is NaN or both are zero */
OF_TWO(min, a.f[i] < b.f[i] ? a.f[i] : b.f[i])

#define OF_THREE(name, expression)                                                                 \
    static inline __m512 _mm512_##name##_ps(__m512 a, __m512 b, __m512 c)                          \
    {                                                                                              \
        __m512 r;                                                                                  \
        EACH(16) r.f[i] = expression;                                                              \
        return r;                                                                                  \
    }
OF_THREE(fmadd, fmaf(a.f[i], b.f[i], c.f[i]))
OF_THREE(fmsub, fmaf(a.f[i], b.f[i], -c.f[i]))
OF_THREE(fnmadd, fmaf(-a.f[i], b.f[i], c.f[i]))

#define OF_BITS(name, expression)                                                                  \
    static inline __m512 _mm512_##name##_ps(__m512 a, __m512 b)                                    \
    {                                                                                              \
        __m512i x = _mm512_castps_si512(a), y = _mm512_castps_si512(b);                            \
        EACH(16) x.i[i] = expression;                                                              \
        return _mm512_castsi512_ps(x);                                                             \
    }
OF_BITS(or, x.i[i] | y.i[i])
OF_BITS(xor, x.i[i] ^ y.i[i])
OF_BITS(andnot, ~x.i[i] & y.i[i])

static inline __m512d _mm512_add_pd(__m512d a, __m512d b)
{
    EACH(8) a.d[i] += b.d[i];
    return a;
}

static inline __m512d _mm512_fmadd_pd(__m512d a, __m512d b, __m512d c)
{
    EACH(8) a.d[i] = fma(a.d[i], b.d[i], c.d[i]);
    return a;
}

static inline __m256 _mm256_add_ps(__m256 a, __m256 b)
{
    EACH(8) a.f[i] += b.f[i];
    return a;
}

static inline __m128 _mm_add_ps(__m128 a, __m128 b)
{
    EACH(4) a.f[i] += b.f[i];
    return a;
}

static inline __m128 _mm_add_ss(__m128 a, __m128 b)
{
    a.f[0] += b.f[0];
    return a;
}

static inline float _mm512_reduce_max_ps(__m512 v)
{
    float r = v.f[0];
    EACH(16) r = r > v.f[i] ? r : v.f[i];
    return r;
}

static inline __mmask16 _mm512_cmp_ps_mask(__m512 a, __m512 b, int how)
{
    unsigned k = 0;
    EACH(16) k |= (unsigned)(how == _CMP_LT_OQ ? a.f[i] < b.f[i] : a.f[i] > b.f[i]) << i;
    return (__mmask16)k;
}

static inline __mmask16 _mm512_movepi32_mask(__m512i v)
{
    unsigned k = 0;
    EACH(16) k |= (unsigned)(v.i[i] < 0) << i;
    return (__mmask16)k;
}

static inline __m512i _mm512_add_epi32(__m512i a, __m512i b)
{
    EACH(16) a.i[i] = (int32_t)((uint32_t)a.i[i] + (uint32_t)b.i[i]);
    return a;
}

static inline __m512i _mm512_slli_epi32(__m512i v, unsigned n)
{
    EACH(16) v.i[i] = (int32_t)((uint32_t)v.i[i] << n);
    return v;
}

/* ---- conversions ---- */

/* No fraction bits, to nearest even: the only use. */
static inline __m512 _mm512_roundscale_ps(__m512 v, int how)
{
    EACH(16)
    v.f[i] = how == (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC) ? nearbyintf(v.f[i]) : NAN;
    return v;
}

/* What does not fit, and NaN, becomes the integer indefinite. */
static inline __m512i _mm512_cvtps_epi32(__m512 v)
{
    __m512i r;
    EACH(16)
    {
        float x = nearbyintf(v.f[i]);
        r.i[i] = x >= -0x1p31f && x < 0x1p31f ? (int32_t)x : INT32_MIN;
    }
    return r;
}

static inline __m512 _mm512_cvtepi32_ps(__m512i v)
{
    __m512 r;
    EACH(16) r.f[i] = (float)v.i[i];
    return r;
}

static inline __m512d _mm512_cvtps_pd(__m256 v)
{
    __m512d r;
    EACH(8) r.d[i] = (double)v.f[i];
    return r;
}

static inline __m512i _mm512_cvtepi8_epi32(__m128i v)
{
    __m512i r;
    EACH(16) r.i[i] = (int8_t)v.b[i];
    return r;
}

static inline __m512i _mm512_cvtepu16_epi32(__m256i v)
{
    __m512i r;
    EACH(16) r.i[i] = v.b[2 * i] | v.b[2 * i + 1] << 8;
    return r;
}

static inline __m512 _mm512_cvtph_ps(__m256i v)
{
    __m512 r;
    EACH(16)
    {
        int bits = v.b[2 * i] | v.b[2 * i + 1] << 8, exponent = bits >> 10 & 31,
            mantissa = bits & 1023;
        float x = exponent == 31  ? (mantissa ? NAN : INFINITY)
                  : exponent == 0 ? ldexpf((float)mantissa, -24)
                                  : ldexpf((float)(1024 + mantissa), exponent - 25);
        r.f[i] = copysignf(x, bits & 0x8000 ? -1.0f : 1.0f);
    }
    return r;
}

#undef EACH

#endif
