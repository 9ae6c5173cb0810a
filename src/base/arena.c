/* arena.c - memory as a stack: mark, compute, reset. */
/* SPDX-License-Identifier: MIT */
#include "base/arena.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ALIGNMENT 64
/* Address space is free until touched, but limits (ulimit -v, containers) may allow less: halve
 * until granted. */
#define CAPACITY_MAX ((size_t)1 << 38)
#define CAPACITY_MIN ((size_t)1 << 24)

static size_t round_up(size_t size, size_t unit)
{
    return (size + unit - 1) / unit * unit;
}

bool arena_open(struct arena *arena, size_t limit_bytes, struct dk_error *err)
{
    *arena = (struct arena){0};
    size_t capacity = CAPACITY_MAX;
    if (limit_bytes != 0 && limit_bytes < CAPACITY_MAX)
        capacity = round_up(limit_bytes, (size_t)sysconf(_SC_PAGESIZE));
    for (;;) {
        void *base = mmap(NULL, capacity, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base != MAP_FAILED) {
            arena->base = base;
            break;
        }
        if (capacity / 2 < CAPACITY_MIN)
            return dk_fail(
                err, DK_ERROR_MEMORY,
                "work memory: the system grants no %zu bytes of address space, raise its limit",
                capacity);
        capacity /= 2;
    }
    /* Large pages spare most of the address translation misses of a matrix product. A refusal does
     * not matter. */
    (void)madvise(arena->base, capacity, MADV_HUGEPAGE);
    arena->capacity_bytes = capacity;
    arena->limit_bytes = limit_bytes != 0 && limit_bytes < capacity ? limit_bytes : capacity;
    return true;
}

void arena_close(struct arena *arena)
{
    if (arena->base) munmap(arena->base, arena->capacity_bytes);
    *arena = (struct arena){0};
}

void *arena_alloc(struct arena *arena, size_t size_bytes, struct dk_error *err)
{
    size_t start = round_up(arena->used_bytes, ALIGNMENT);
    if (start > arena->limit_bytes || size_bytes > arena->limit_bytes - start) {
        (void)dk_fail(err, DK_ERROR_MEMORY,
                      "work memory: %zu bytes more than the %zu in use exceed the limit of %zu, "
                      "allow more memory "
                      "or choose a smaller size",
                      size_bytes, arena->used_bytes, arena->limit_bytes);
        return NULL;
    }
    arena->used_bytes = start + size_bytes;
    if (arena->used_bytes > arena->peak_bytes) arena->peak_bytes = arena->used_bytes;
    return arena->base + start;
}

size_t arena_mark(const struct arena *arena)
{
    return arena->used_bytes;
}

void arena_reset(struct arena *arena, size_t mark)
{
    if (mark < arena->used_bytes) arena->used_bytes = mark;
}

void arena_trim(struct arena *arena)
{
    if (!arena->base) return;
    size_t start = round_up(arena->used_bytes, (size_t)sysconf(_SC_PAGESIZE));
    if (start < arena->capacity_bytes)
        (void)madvise(arena->base + start, arena->capacity_bytes - start, MADV_DONTNEED);
}

struct tensor tensor_new(struct arena *arena, int rank, const int64_t *dim, struct dk_error *err)
{
    struct tensor none = {0}, t = {.rank = rank};
    if (rank < 1 || rank > TENSOR_MAX_RANK) {
        (void)dk_fail(err, DK_ERROR_ARGUMENT, "tensor: rank %d, expected 1 to %d", rank,
                      TENSOR_MAX_RANK);
        return none;
    }
    size_t size_bytes = sizeof(float);
    for (int i = 0; i < rank; i++) {
        size_t d = dim[i] > 0 ? (size_t)dim[i] : 0;
        if (d == 0 || size_bytes > (SIZE_MAX / 4) / d) {
            (void)dk_fail(err, DK_ERROR_ARGUMENT,
                          "tensor: dimension %d of %lld is empty or too large", i,
                          (long long)dim[i]);
            return none;
        }
        size_bytes *= d;
        t.dim[i] = dim[i];
    }
    t.data = arena_alloc(arena, size_bytes, err);
    return t.data ? t : none;
}

struct tensor tensor_new4(struct arena *arena, int64_t n, int64_t h, int64_t w, int64_t c,
                          struct dk_error *err)
{
    int64_t dim[4] = {n, h, w, c};
    return tensor_new(arena, 4, dim, err);
}

struct tensor tensor_new3(struct arena *arena, int64_t n, int64_t tokens, int64_t c,
                          struct dk_error *err)
{
    int64_t dim[3] = {n, tokens, c};
    return tensor_new(arena, 3, dim, err);
}

struct tensor tensor_keep(struct arena *arena, size_t mark, struct tensor t)
{
    arena_reset(arena, mark);
    if (t.rank == 0) return t;
    size_t size_bytes = (size_t)tensor_count(t) * sizeof(float);
    /* The tensor lay above the mark or elsewhere, so there is room unless the limit is reached by a
     * foreign one. */
    float *data = arena_alloc(arena, size_bytes, NULL);
    if (!data) return (struct tensor){0};
    if (data != t.data && !arena->dry) memmove(data, t.data, size_bytes);
    t.data = data;
    return t;
}
