/* fuzz.h - what the fuzz targets share. */
/* SPDX-License-Identifier: MIT */
#ifndef FUZZ_FUZZ_H
#define FUZZ_FUZZ_H

/*
 * A target is one function fuzz_NAME(data, size) in NAME.c. libFuzzer (make fuzz) compiles each
 * alone with FUZZ set to its name; tests/checkfuzz.c includes them all and replays the corpus,
 * which needs neither clang nor time.
 */

#include "files/container.h"

#include <float.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Every refusal must say something, and a failure without a sentence is a bug. Returns what it was
 * given. */
static inline bool fuzz_said(bool ok, const struct dk_error *err)
{
    if (!ok && (err->code == DK_OK || err->message[0] == 0)) abort();
    if (ok && err->code != DK_OK) abort();
    return ok;
}

/* A file in memory of exactly its size: the sanitizer sees the first byte read beyond it. */
static inline struct map fuzz_map(const uint8_t *data, size_t size_bytes)
{
    unsigned char *copy = malloc(size_bytes ? size_bytes : 1);
    if (!copy) abort();
    if (size_bytes) memcpy(copy, data, size_bytes);
    return (struct map){.data = copy, .size_bytes = size_bytes};
}

static inline void fuzz_unmap(struct map map)
{
    union {
        const unsigned char *in;
        unsigned char *out;
    } data = {.in = map.data};
    free(data.out);
}

/* Reads a model and, if it is accepted, all of its bytes through every list there is. */
static inline unsigned fuzz_weights(const uint8_t *data, size_t size_bytes)
{
    if (size_bytes == 0) return 0; /* map_open refuses an empty file before a reader sees it */
    struct dk_error err = {0};
    struct map map = fuzz_map(data, size_bytes);
    struct weights *w = weights_new("model", &err);
    bool ok = w && weights_read_map(w, "model", &map, &err) && weights_finish(w, &err);
    fuzz_said(ok, &err);
    unsigned sum = 0;
    for (size_t p = 0; ok && p <= w->n_parts; p++) {
        const struct weights *view = p < w->n_parts ? w->parts[p] : w;
        for (size_t i = 0; i < weights_count(view); i++) {
            const struct weight *t = weights_at(view, i);
            const unsigned char *bytes = t->data;
            size_t n = weights_byte_count(t);
            if (weights_find(view, t->name) != t || t->rank > TENSOR_MAX_RANK || n == 0) abort();
            if (!(t->scale >= 0 && t->scale <= FLT_MAX)) abort();
            sum += bytes[0] + (unsigned)bytes[n - 1];
            if (n <= size_bytes)
                for (size_t k = 0; k < n; k++) sum += bytes[k];
        }
    }
    weights_close(w);
    fuzz_unmap(map);
    return sum;
}

#ifdef FUZZ
#define FUZZ_JOIN2(a, b) a##b
#define FUZZ_JOIN(a, b)  FUZZ_JOIN2(a, b)
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);
static void FUZZ_JOIN(fuzz_, FUZZ)(const uint8_t *data, size_t size_bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    FUZZ_JOIN(fuzz_, FUZZ)(data, size_bytes);
    return 0;
}
#endif

#endif
