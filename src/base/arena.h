/* arena.h - memory as a stack: mark, compute, reset. */
/* SPDX-License-Identifier: MIT */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

/*
 * An arena reserves address space once and commits pages as they are touched, so it never moves and
 * never copies. Allocation is a pointer bump (64-byte aligned); freeing is going back to a mark:
 *
 *     size_t mark = arena_mark(a);
 *     struct tensor t = ... several operations ...;
 *     t = tensor_keep(a, mark, t);     // t slides down to the mark, all above it is free again
 */

#include "base/error.h"
#include "base/tensor.h"

struct arena {
    unsigned char *base;
    size_t capacity_bytes; /* address space reserved */
    size_t limit_bytes;    /* allocations beyond this fail; at most capacity_bytes */
    size_t used_bytes;
    size_t peak_bytes;
    bool dry; /* set by the owner: nothing is moved or touched, memory is only counted */
};

/* limit_bytes 0: as much as the address space reservation allows. False when not even a small arena
 * can be had. */
bool arena_open(struct arena *arena, size_t limit_bytes, struct dk_error *err);
void arena_close(struct arena *arena);

/* NULL (and DK_ERROR_MEMORY in err) when the limit is reached.
 * size_bytes 0 gives a valid pointer. */
void *arena_alloc(struct arena *arena, size_t size_bytes, struct dk_error *err);

size_t arena_mark(const struct arena *arena);
void arena_reset(struct arena *arena, size_t mark);
/* Gives the pages above the mark back to the system (they read as zero afterwards). */
void arena_trim(struct arena *arena);

/* A tensor with undefined content; dims beyond rank are ignored. Rank 0 on failure or overflow. */
struct tensor tensor_new(struct arena *arena, int rank, const int64_t *dim, struct dk_error *err);
struct tensor tensor_new4(struct arena *arena, int64_t n, int64_t h, int64_t w, int64_t c,
                          struct dk_error *err);
struct tensor tensor_new3(struct arena *arena, int64_t n, int64_t tokens, int64_t c,
                          struct dk_error *err);

/* Moves t (allocated after mark, or anywhere else) down to the mark and frees all that was
 * allocated since. */
struct tensor tensor_keep(struct arena *arena, size_t mark, struct tensor t);

#endif
