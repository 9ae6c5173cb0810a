/* cache.h - weights brought into the kernels' form once and kept across calls. */
/* SPDX-License-Identifier: MIT */
#ifndef OPS_CACHE_H
#define OPS_CACHE_H

#include "base/error.h"

/*
 * Entries are keyed by where the weight lies in memory and by their kind, so a model's mapping must
 * outlive the cache. What does not fit within the limit is computed at each call instead: results
 * never depend on the cache. Used by one thread at a time.
 */
struct pack_cache;

/* limit_bytes 0: keep nothing. NULL on failure. */
struct pack_cache *pack_cache_open(size_t limit_bytes, struct dk_error *err);
void pack_cache_close(struct pack_cache *cache);

/* Forgets everything (weights have changed). */
void pack_cache_clear(struct pack_cache *cache);

/*
 * What is worth an entry: packing costs about as much as multiplying with 5 rows of activations, so
 * where many rows share a call it does not matter, and room is better left to weights with few.
 */
#define PACK_CACHE_MAX_ROWS    512
#define PACK_CACHE_SMALL_BYTES ((size_t)256 << 10)

enum pack_kind { PACK_PANELS, PACK_GEGLU, PACK_CONV, PACK_WINOGRAD };

/*
 * The entry's memory, 64-byte aligned, or NULL if there is no room. While *is_new the caller must
 * fill it and then say so with pack_cache_filled(); an entry whose filling failed stays new.
 */
float *pack_cache_get(struct pack_cache *cache, const void *weight, enum pack_kind kind,
                      size_t size_bytes, bool *is_new);
void pack_cache_filled(struct pack_cache *cache, const void *weight, enum pack_kind kind,
                       size_t size_bytes);

#endif
