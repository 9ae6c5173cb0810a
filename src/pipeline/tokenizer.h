/* tokenizer.h - CLIP's byte-level BPE. */
/* SPDX-License-Identifier: MIT */
#ifndef PIPELINE_TOKENIZER_H
#define PIPELINE_TOKENIZER_H

#include "base/error.h"

/*
 * text -> NFC, runs of white space to one space, lower case per character -> pieces by CLIP's pattern
 *      -> bytes -> merges in order of rank -> ids       (the fast tokenizer's rule; special tokens only verbatim)
 */
struct tokenizer;

/* From a folder with vocab.json and merges.txt. */
struct tokenizer *tokenizer_open_folder(const char *folder, struct dk_error *err);
/* From the compact table under models/clip/; n_vocabulary below 49408 takes a prefix of the merges (V - 514). */
struct tokenizer *tokenizer_open_table(const char *file, int64_t n_vocabulary, struct dk_error *err);
void tokenizer_free(struct tokenizer *tokenizer);

int32_t tokenizer_start(const struct tokenizer *tokenizer);
int32_t tokenizer_end(const struct tokenizer *tokenizer);
int64_t tokenizer_vocabulary(const struct tokenizer *tokenizer);
/* The padding token named by tokenizer_config.json / special_tokens_map.json, or -1 when nothing says. */
int32_t tokenizer_pad(const struct tokenizer *tokenizer);

/*
 * Ids without start and end token; free *ids with free(). Invalid UTF-8 sequences are replaced by U+FFFD, NUL bytes
 * are ordinary characters. *n_replaced (may be NULL) counts replacements.
 */
bool tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t n_bytes, int32_t **ids,
                      size_t *n_ids, size_t *n_replaced, struct dk_error *err);

#endif
