/* text.h - from a prompt to what conditions the U-Net. */
/* SPDX-License-Identifier: MIT */
#ifndef PIPELINE_TEXT_H
#define PIPELINE_TEXT_H

/*
 * prompt -> chunks of ids and weights for each encoder -> hidden states -> weights applied ->
 * chunks side by side
 *
 * One encoder (SD 1, SD 2): the last hidden state, through the final norm; clip_skip leaves out
 * that many layers. Two encoders (SDXL, arXiv:2307.01952 section 2.1): the penultimate states of
 * both without the final norm, joined along the width, and the second encoder's pooled text of the
 * first chunk.
 *
 * Token weights multiply the hidden states; then each chunk is scaled so that its mean is what it
 * was (A1111's rule).
 */

#include "nets/clip.h"
#include "pipeline/tokenizer.h"

#define TEXT_MAX_ENCODERS 2

struct text_encoder {
    struct clip *clip;
    struct tokenizer *tokenizer;
    int32_t pad_id;
};

struct text_cache;

struct text_encoders {
    struct text_encoder items[TEXT_MAX_ENCODERS];
    int n_items;
    struct text_cache *cache;
};

/* An encoded text, owned by the cache until the next text_encode: copy what must last. */
struct text {
    const float *context; /* [n_chunks * tokens, width] */
    const float *pooled;  /* [pooled_width], NULL where there is one encoder */
    size_t n_chunks;
};

int64_t text_width(const struct text_encoders *e);
int64_t text_tokens(const struct text_encoders *e); /* of one chunk */
int64_t text_pooled_width(const struct text_encoders *e);

/* How many chunks the prompt fills (at least 1), and what was odd about it. warn may be NULL. */
bool text_count_chunks(const struct text_encoders *e, const char *prompt, bool syntax,
                       size_t *n_chunks, void (*warn)(void *user, const char *sentence), void *user,
                       struct dk_error *err);

#define TEXT_MAX_TOGETHER 16

/* A text, and what it is to be encoded as: padded to n_chunks with empty chunks. */
struct text_request {
    const char *prompt;
    bool syntax;
    int clip_skip;
    size_t n_chunks;
};

/*
 * Encodes up to TEXT_MAX_TOGETHER texts, those that have as many chunks in one pass: weights are
 * then unpacked once for all. Texts encoded before are remembered.
 */
bool text_encode(struct text_encoders *e, struct ops *o, const struct text_request *requests,
                 size_t n, struct text *texts, struct dk_error *err);

void text_encoders_close(struct text_encoders *e);

#endif
