/* vocabulary.h - what a tokenizer is made of, for those who fill it and those who use it. */
/* SPDX-License-Identifier: MIT */
#ifndef PIPELINE_VOCABULARY_H
#define PIPELINE_VOCABULARY_H

#include "pipeline/tokenizer.h"

#define N_BYTES 256

/* A slot of the hash of pairs; id is -1 in an empty one. */
struct merge {
    int32_t left, right;
    int32_t rank, id;
};

struct special {
    char *text;
    size_t n_bytes;
    int32_t id;
};

struct tokenizer {
    int64_t n_vocabulary;
    int32_t byte_id[2][N_BYTES]; /* [at the end of a word, byte] */
    struct merge *merges;        /* [n_slots], open addressing, at most half full */
    size_t n_slots;              /* a power of 2 */
    struct special start, end;
    int32_t pad;
};

/* The slot of the pair, or the empty one where it belongs. */
struct merge *merge_find(const struct tokenizer *t, int32_t left, int32_t right);

#endif
