/* tokenizer.h - CLIP's byte-level BPE. */
/* SPDX-License-Identifier: MIT */
#ifndef PIPELINE_TOKENIZER_H
#define PIPELINE_TOKENIZER_H

#include "base/error.h"

/*
 * text -> NFC, runs of white space to one space, lower case per character
 *      -> pieces by CLIP's pattern -> bytes -> merges in order of rank -> ids
 *
 * This is the rule of transformers' fast tokenizer; special tokens only where they stand verbatim.
 *
 * Special tokens are the start and the end token. A padding token that is an ordinary word ("!" of
 * SD 2) stays one. A tokenizer is read-only once open: any number of threads may share it.
 */
struct tokenizer;

/*
 * From a folder with vocab.json and merges.txt; tokenizer_config.json and special_tokens_map.json
 * are optional.
 */
struct tokenizer *tokenizer_open_folder(const char *folder, struct dk_error *err);
/*
 * From the compact table under models/clip/; n_vocabulary below 49408 takes a prefix of the merges
 * (V - 514).
 */
struct tokenizer *tokenizer_open_table(const char *file, int64_t n_vocabulary,
                                       struct dk_error *err);
void tokenizer_free(struct tokenizer *tokenizer);

/* One file's content in memory; text NULL where there is none. */
struct tokenizer_file {
    const char *text;
    size_t n_bytes;
};
/* The same from memory; nothing is kept of it. folder and file only start the messages. */
struct tokenizer *tokenizer_open_memory(const char *folder, struct tokenizer_file vocab,
                                        struct tokenizer_file merges, struct tokenizer_file config,
                                        struct tokenizer_file specials, struct dk_error *err);
struct tokenizer *tokenizer_table_memory(const char *file, const void *data, size_t n_bytes,
                                         int64_t n_vocabulary, struct dk_error *err);

int32_t tokenizer_start(const struct tokenizer *tokenizer);
int32_t tokenizer_end(const struct tokenizer *tokenizer);
/* Every id is below this: the text encoder's embedding must have at least as many rows. */
int64_t tokenizer_vocabulary(const struct tokenizer *tokenizer);
/*
 * The padding token named by tokenizer_config.json / special_tokens_map.json, or -1 when nothing
 * says.
 */
int32_t tokenizer_pad(const struct tokenizer *tokenizer);

/*
 * Ids without start and end token; free *ids with free(). Invalid UTF-8 sequences are replaced by
 * U+FFFD, NUL bytes are ordinary characters. *n_replaced (may be NULL) counts replacements.
 */
bool tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t n_bytes,
                      int32_t **ids, size_t *n_ids, size_t *n_replaced, struct dk_error *err);

/*
 * CLIP's alphabet: byte number order (0 to 255) in id order, and the character vocab.json and
 * merges.txt write it as. First the 188 printable Latin-1 bytes as themselves, then the others as
 * U+0100 and up.
 */
int tokenizer_byte(int order, uint32_t *character);

/*
 * The compact table, little-endian:
 *     8 bytes   "CLIPBPE1"
 *     4 bytes   n, the number of merges
 *     4 bytes   FNV-1a (32 bits) of the rest
 *     n times   two 16-bit ids, left and right: merge r makes id 512 + r of them
 * Both ids of merge r are below 512 + r. Ids 0 to 255 are the bytes in CLIP's order, 256 to 511 the
 * same at the end of a word, then come the merges, start and end.
 */
#define TOKENIZER_TABLE_MAGIC        "CLIPBPE1"
#define TOKENIZER_TABLE_HEADER_BYTES 16
/* The id of the last merge, 65533, and the two special ones still fit 16 bits. */
#define TOKENIZER_TABLE_MAX_MERGES 65022
uint32_t tokenizer_table_sum(const unsigned char *data, size_t n_bytes);

#endif
