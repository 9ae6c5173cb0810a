/* rng.c - Mersenne Twister as torch's CPU generator uses it, and Philox as CUDA does. */
/* SPDX-License-Identifier: MIT */
#include "base/rng.h"

#include <math.h>
#include <string.h>

static const double PI = 3.14159265358979323846;

/* ---- MT19937: Matsumoto and Nishimura 1998, "Mersenne Twister" ------------------------------- */

enum { MT_N = 624, MT_M = 397 };

static void mt_seed(struct rng *rng, uint32_t seed)
{
    rng->mt[0] = seed;
    for (uint32_t i = 1; i < MT_N; i++)
        rng->mt[i] = 1812433253u * (rng->mt[i - 1] ^ (rng->mt[i - 1] >> 30)) + i;
    rng->mt_index = MT_N;
}

static void mt_refill(struct rng *rng)
{
    uint32_t *mt = rng->mt;
    for (int i = 0; i < MT_N; i++) {
        uint32_t y = (mt[i] & 0x80000000u) | (mt[(i + 1) % MT_N] & 0x7fffffffu);
        mt[i] = mt[(i + MT_M) % MT_N] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    rng->mt_index = 0;
}

uint32_t rng_u32(struct rng *rng)
{
    if (rng->mt_index >= MT_N) mt_refill(rng);
    uint32_t y = rng->mt[rng->mt_index++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

/* 53 bits in [0, 1): two words, the first one is the high half. */
static double uniform53(struct rng *rng)
{
    uint64_t high = rng_u32(rng);
    uint64_t word = high << 32 | rng_u32(rng);
    return (double)(word & ((UINT64_C(1) << 53) - 1)) * 0x1p-53;
}

/*
 * Fewer than 16 values: Box-Muller in double; the sine waits for the next draw, in whichever
 * tensor that is.
 */
static double normal_one(struct rng *rng)
{
    if (rng->has_cached) {
        rng->has_cached = false;
        return rng->cached;
    }
    double u1 = uniform53(rng), u2 = uniform53(rng);
    double radius = sqrt(-2 * log1p(-u2)), angle = 2 * PI * u1;
    rng->cached = radius * sin(angle);
    rng->has_cached = true;
    return radius * cos(angle);
}

static void fill_uniform24(struct rng *rng, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = (float)(rng_u32(rng) & 0xffffff) * 0x1p-24f;
}

/* 16 uniforms to 16 normals in place: the first eight give the radii, the last eight the angles. */
static void box_muller_16(float *d)
{
    for (int j = 0; j < 8; j++) {
        float radius = sqrtf(-2 * logf(1 - d[j])), angle = 2 * (float)PI * d[j + 8];
        d[j] = radius * cosf(angle);
        d[j + 8] = radius * sinf(angle);
    }
}

/* 16 values and more: whole blocks of 16; a rest is covered by drawing the last 16 values anew. */
static void fill_blocks(struct rng *rng, float *out, size_t n)
{
    fill_uniform24(rng, out, n);
    for (size_t i = 0; i + 16 <= n; i += 16) box_muller_16(out + i);
    if (n % 16 == 0) return;
    fill_uniform24(rng, out + n - 16, 16);
    box_muller_16(out + n - 16);
}

/* ---- Philox 4x32-10: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3" ------- */

static void philox_round(uint32_t c[4], const uint32_t key[2])
{
    uint64_t a = (uint64_t)c[0] * 0xd2511f53u, b = (uint64_t)c[2] * 0xcd9e8d57u;
    uint32_t c1 = c[1], c3 = c[3];
    c[0] = (uint32_t)(b >> 32) ^ c1 ^ key[0];
    c[1] = (uint32_t)b;
    c[2] = (uint32_t)(a >> 32) ^ c3 ^ key[1];
    c[3] = (uint32_t)a;
}

/*
 * Each element has its own counter (call, 0, element, 0) and uses the first two of its four
 * words.
 */
static float philox_normal(uint64_t seed, uint32_t call, uint32_t element)
{
    uint32_t c[4] = {call, 0, element, 0}, key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int round = 0; round < 10; round++) {
        philox_round(c, key);
        key[0] += 0x9e3779b9u;
        key[1] += 0xbb67ae85u;
    }
    const float unit = 2.3283064e-10f; /* 2^-32 */
    float u = (float)c[0] * unit + unit / 2;
    float v = (float)c[1] * (unit * 2 * (float)PI) + unit * (float)PI;
    return sqrtf(-2 * logf(u)) * sinf(v);
}

/* ---- both ------------------------------------------------------------------------------------ */

void rng_seed(struct rng *rng, enum rng_kind kind, uint64_t seed)
{
    memset(rng, 0, sizeof *rng);
    rng->kind = kind;
    rng->seed = seed;
    mt_seed(rng, (uint32_t)seed); /* torch keeps the low 32 bits only */
}

void rng_normal(struct rng *rng, float *out, size_t n)
{
    if (n == 0) return;
    if (rng->kind == RNG_NV) {
        for (size_t i = 0; i < n; i++) out[i] = philox_normal(rng->seed, rng->n_calls, (uint32_t)i);
        rng->n_calls++;
    } else if (n < 16) {
        for (size_t i = 0; i < n; i++) out[i] = (float)normal_one(rng);
    } else {
        fill_blocks(rng, out, n);
    }
}
