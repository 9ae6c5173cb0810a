/* cache.c - weights brought into the kernels' form once and kept across calls. */
/* SPDX-License-Identifier: MIT */
#include "ops/cache.h"

#include "base/arena.h"

#include <string.h>

struct entry {
    const void *weight;
    enum pack_kind kind;
    size_t size_bytes;
    float *data; /* NULL: the slot is free */
    bool filled;
};

/* A hash table with open addressing in front of the data, all in one arena of its own. */
#define N_SLOTS     8192
#define MAX_ENTRIES (N_SLOTS / 2)

struct pack_cache {
    struct arena arena;
    size_t start; /* mark behind this struct */
    size_t limit_bytes, n_entries;
    struct entry slots[N_SLOTS];
};

struct pack_cache *pack_cache_open(size_t limit_bytes, struct dk_error *err)
{
    struct arena arena;
    size_t own = sizeof(struct pack_cache) + 128;
    if (!arena_open(&arena, limit_bytes > SIZE_MAX - own ? SIZE_MAX : limit_bytes + own, err))
        return NULL;
    struct pack_cache *cache = arena_alloc(&arena, sizeof *cache, err); /* fresh pages: zero */
    if (!cache) {
        arena_close(&arena);
        return NULL;
    }
    cache->limit_bytes = limit_bytes;
    cache->start = arena_mark(&arena);
    cache->arena = arena;
    return cache;
}

void pack_cache_close(struct pack_cache *cache)
{
    if (!cache) return;
    struct arena arena = cache->arena;
    arena_close(&arena);
}

void pack_cache_clear(struct pack_cache *cache)
{
    if (!cache) return;
    arena_reset(&cache->arena, cache->start);
    arena_trim(&cache->arena);
    memset(cache->slots, 0, sizeof cache->slots);
    cache->n_entries = 0;
}

static size_t held_bytes(const struct pack_cache *cache)
{
    return cache ? arena_mark(&cache->arena) - cache->start : 0;
}

static size_t hash(const void *weight, enum pack_kind kind, size_t size_bytes)
{
    uint64_t h = ((uint64_t)(uintptr_t)weight * 31 + size_bytes) * 4 + (uint64_t)kind;
    h *= UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(h >> 40) % N_SLOTS;
}

/* The entry, or the free slot where it would be. */
static struct entry *find(struct pack_cache *cache, const void *weight, enum pack_kind kind,
                          size_t size_bytes)
{
    size_t i = hash(weight, kind, size_bytes);
    for (; cache->slots[i].data; i = (i + 1) % N_SLOTS) {
        const struct entry *e = &cache->slots[i];
        if (e->weight == weight && e->kind == kind && e->size_bytes == size_bytes) break;
    }
    return &cache->slots[i];
}

float *pack_cache_get(struct pack_cache *cache, const void *weight, enum pack_kind kind,
                      size_t size_bytes, bool *is_new)
{
    *is_new = false;
    if (!cache) return NULL;
    struct entry *e = find(cache, weight, kind, size_bytes);
    if (!e->data) {
        size_t used = held_bytes(cache);
        if (cache->n_entries == MAX_ENTRIES || used > cache->limit_bytes ||
            size_bytes > cache->limit_bytes - used)
            return NULL;
        float *data = arena_alloc(&cache->arena, size_bytes, NULL);
        if (!data) return NULL;
        *e = (struct entry){weight, kind, size_bytes, data, false};
        cache->n_entries++;
    }
    *is_new = !e->filled;
    return e->data;
}

void pack_cache_filled(struct pack_cache *cache, const void *weight, enum pack_kind kind,
                       size_t size_bytes)
{
    struct entry *e = find(cache, weight, kind, size_bytes);
    if (e->data) e->filled = true;
}
