/* x86.h - primitives of lanes.h that AVX2 and AVX-512 write alike. */
/* SPDX-License-Identifier: MIT */
#ifndef KERNELS_X86_H
#define KERNELS_X86_H

/*
 * The includer defines LANES, vec, dvec, vec8 and MM(name), the intrinsic's name with the prefix of
 * the set's registers. The casts stay with the includer, since their names tell the width twice.
 */

static inline vec v_set(float x)
{
    return MM(set1_ps)(x);
}

static inline vec v_load(const float *p)
{
    return MM(loadu_ps)(p);
}

static inline void v_store(float *p, vec v)
{
    MM(storeu_ps)(p, v);
}

static inline void v_fetch(const void *p)
{
    _mm_prefetch((const char *)p, _MM_HINT_T1);
}

static inline void v_fetch_next(const void *p)
{
    _mm_prefetch((const char *)p, _MM_HINT_T0);
}

static inline vec v_add(vec a, vec b)
{
    return MM(add_ps)(a, b);
}

static inline vec v_sub(vec a, vec b)
{
    return MM(sub_ps)(a, b);
}

static inline vec v_mul(vec a, vec b)
{
    return MM(mul_ps)(a, b);
}

static inline vec v_div(vec a, vec b)
{
    return MM(div_ps)(a, b);
}

static inline vec v_max(vec a, vec b)
{
    return MM(max_ps)(a, b);
}

static inline vec v_min(vec a, vec b)
{
    return MM(min_ps)(a, b);
}

static inline vec v_fma(vec a, vec b, vec c)
{
    return MM(fmadd_ps)(a, b, c);
}

static inline vec v_fms(vec a, vec b, vec c)
{
    return MM(fmsub_ps)(a, b, c);
}

static inline vec v_fnma(vec a, vec b, vec c)
{
    return MM(fnmadd_ps)(a, b, c);
}

static inline vec v_abs(vec x)
{
    return MM(andnot_ps)(v_set(-0.0f), x);
}

static inline vec v_negate(vec x)
{
    return MM(xor_ps)(x, v_set(-0.0f));
}

static inline vec v_minus_abs(vec x)
{
    return MM(or_ps)(x, v_set(-0.0f));
}

static inline dvec d_load(const double *p)
{
    return MM(loadu_pd)(p);
}

static inline void d_store(double *p, dvec v)
{
    MM(storeu_pd)(p, v);
}

static inline dvec d_add(dvec a, dvec b)
{
    return MM(add_pd)(a, b);
}

static inline dvec d_fma(dvec a, dvec b, dvec c)
{
    return MM(fmadd_pd)(a, b, c);
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

/* Each 4 x 4 block of rows and columns within a quarter or half of the registers. */
static inline void transpose_blocks(vec r[LANES])
{
    vec t[LANES];
    for (int i = 0; i < LANES; i += 2) {
        t[i] = MM(unpacklo_ps)(r[i], r[i + 1]);
        t[i + 1] = MM(unpackhi_ps)(r[i], r[i + 1]);
    }
    for (int i = 0; i < LANES; i += 4) {
        r[i] = MM(shuffle_ps)(t[i], t[i + 2], 0x44);
        r[i + 1] = MM(shuffle_ps)(t[i], t[i + 2], 0xee);
        r[i + 2] = MM(shuffle_ps)(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = MM(shuffle_ps)(t[i + 1], t[i + 3], 0xee);
    }
}

#endif
