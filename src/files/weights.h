/* weights.h - named tensors of a model, whatever container they come from. */
/* SPDX-License-Identifier: MIT */
#ifndef FILES_WEIGHTS_H
#define FILES_WEIGHTS_H

/*
 *   safetensors file ─┐
 *   shards + index   ─┼─> struct weights: name -> struct weight (mapped, never copied)
 *   gguf, ckpt       ─┘
 *
 * Names are the diffusers ones. Everything about every tensor (dtype, shape, offsets, product, overlap) is checked
 * against the file while opening, so that whoever holds a struct weight may read all of it.
 */

#include "base/error.h"
#include "base/tensor.h"

struct weights;

/* path: one file, or a folder holding one file, shards with an index, or an fp16 variant. NULL on failure. */
struct weights *weights_open(const char *path, struct dk_error *err);
void weights_close(struct weights *weights);

size_t weights_count(const struct weights *weights);
const struct weight *weights_at(const struct weights *weights, size_t index);
const struct weight *weights_find(const struct weights *weights, const char *name);
/* The file a tensor came from, for messages. */
const char *weights_path(const struct weights *weights);

/*
 * Finding tensors while a network is built. Names are printf-formatted after prefix. The first failure stays in err,
 * later calls return empty weights, so a loader reads as a list of what it needs and is checked once at the end.
 * Every tensor handed out is remembered: weights_unused() tells what a file has beyond that.
 */
struct weights_reader {
    struct weights *weights;
    const char *prefix; /* "" or "text_model." and the like */
    struct dk_error *err;
};
/* Shape as up to 4 dims, -1 matches any size, ends at the first 0. A wrong or missing one is an error naming it. */
struct weight weights_need(struct weights_reader *r, const int64_t shape[4], const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* As weights_need, but an absent tensor gives an empty weight and is no error (a wrong shape still is). */
struct weight weights_want(struct weights_reader *r, const int64_t shape[4], const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool weights_has(const struct weights_reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Calls each for every tensor nobody has asked for. */
size_t weights_unused(const struct weights *weights, void (*each)(void *user, const char *name), void *user);

#endif
