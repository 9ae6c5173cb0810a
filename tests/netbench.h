/* netbench.h - operations with an arena and a cache, for tests of networks. */
/* SPDX-License-Identifier: MIT */
#ifndef TESTS_NETBENCH_H
#define TESTS_NETBENCH_H

#include "base/arena.h"
#include "check.h"
#include "kernels/kernels.h"
#include "ops/cache.h"
#include "ops/ops.h"

struct bench {
    struct dk_error err;
    struct arena arena;
    struct kernels kernels;
    struct pack_cache *cache;
    struct ops ops;
};

/* On two threads, with at most cache_bytes of packed weights kept. */
static inline bool bench_open(struct bench *b, unsigned kernel_flags, size_t cache_bytes)
{
    *b = (struct bench){.err = {.code = DK_OK}};
    kernels_init(&b->kernels, kernel_flags);
    b->cache = pack_cache_open(cache_bytes, &b->err);
    bool ok = b->cache && arena_open(&b->arena, (size_t)1 << 30, &b->err);
    b->ops = (struct ops){.kernels = &b->kernels,
                          .arena = &b->arena,
                          .err = &b->err,
                          .cache = b->cache,
                          .n_threads = 2};
    CHECK(ok, "%s", b->err.message);
    return ok;
}

static inline void bench_close(struct bench *b)
{
    arena_close(&b->arena);
    pack_cache_close(b->cache);
}

#endif
