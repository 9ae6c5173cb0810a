/* rng.h - normal deviates that other programs can reproduce. */
/* SPDX-License-Identifier: MIT */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum rng_kind {
    RNG_CPU, /* torch's CPU generator: MT19937 and its two fill paths */
    RNG_NV   /* Philox 4x32-10 as torch on CUDA, A1111's NV source */
};

/* One generator an image. Plain data: copying it copies the state. */
struct rng {
    enum rng_kind kind;
    uint64_t seed;
    uint32_t mt[624];
    int mt_index;
    bool has_cached; /* the second value of torch's scalar path */
    double cached;
    uint32_t n_calls; /* Philox: counter word 0, one up a call */
};

void rng_seed(struct rng *rng, enum rng_kind kind, uint64_t seed);

/*
 * Fills out[n] with what torch.randn(n) gives next: only the count matters, not the shape. For latents the caller
 * draws in [c, h, w] order as the reference does and lays the values out afterwards.
 */
void rng_normal(struct rng *rng, float *out, size_t n);

/* The generator's next raw 32-bit word (RNG_CPU only). */
uint32_t rng_u32(struct rng *rng);

#endif
