/* cpu.c - which instruction sets are there, and the table for them. */
/* SPDX-License-Identifier: MIT */
#include "darkroom.h"
#include "kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

#define CPUID_1_ECX_F16C (1u << 29) /* clang's __builtin_cpu_supports does not know "f16c" */

static bool has_avx2(void)
{
    unsigned eax, ebx, ecx, edx;
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & CPUID_1_ECX_F16C);
}

/* The builtin answers yes only if the system keeps the registers too (opmask and both zmm bits of
 * XCR0). */
static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

static bool always(void)
{
    return true;
}

/* From the reference to the best; each level builds on those before it that are there. */
static const struct {
    const char *name;
    bool (*available)(void);
    void (*init)(struct kernels *k);
} levels[] = {
    {"scalar", always, kernels_init_scalar},
#if defined(__x86_64__)
    {"avx2", has_avx2, kernels_init_avx2},
    {"avx512", has_avx512, kernels_init_avx512},
#elif defined(__aarch64__)
    {"neon", always, kernels_init_neon},
#endif
};

static bool init_up_to(struct kernels *k, const char *last)
{
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        if (levels[i].available()) {
            levels[i].init(k);
            k->level = levels[i].name;
        }
        if (last && strcmp(last, levels[i].name) == 0) return levels[i].available();
    }
    return last == NULL;
}

bool kernels_init_level(struct kernels *k, const char *level)
{
    return init_up_to(k, level);
}

void kernels_init(struct kernels *k, unsigned flags)
{
    const char *forced = flags & KERNELS_SCALAR ? "scalar" : getenv("DARKROOM_CPU");
    if (!forced || !init_up_to(k, forced)) (void)init_up_to(k, NULL);
}

const char *dk_cpu_level(void)
{
    struct kernels k;
    kernels_init(&k, 0);
    return k.level;
}
