/* prompt.h - a prompt as chunks of token ids with weights. */
/* SPDX-License-Identifier: MIT */
#ifndef PIPELINE_PROMPT_H
#define PIPELINE_PROMPT_H

#include "pipeline/tokenizer.h"

/*
 *   "a (red:1.5) cat"  ->  a | red | cat  ->  [start  a   red  cat  end  pad ...]
 *                          1   1.5   1        [  1    1   1.5   1    1    1  ...]
 *
 * The syntax is A1111's (stable-diffusion-webui):
 *     (x) [x] (x:1.5)   weight 1.1, 1/1.1, 1.5; nested weights multiply, round and square may cross
 *     \( \) \[ \] \\    the character itself; any other backslash is text
 *     BREAK             as a word: the rest goes into a new chunk
 * A bracket never closed reaches to the end of the text. A closing one never opened, a ':' that no
 * number and ')' follow, and numbers outside brackets are text. Where a text has no syntax in it
 * the ids are those of the plain text.
 *
 * What A1111 understands and we do not (yet) is plain text, brackets included, and one warning a
 * kind: [from:to:when], [a|b], AND, <lora:name:weight> and the like. So is (x:1.2.3). Nothing is
 * ever an error here but length and memory.
 *
 * What the weights mean is the caller's part. A1111's rule: after the text encoder each token's
 * hidden state (all of its channels) is multiplied by its weight; then the whole chunk is
 * multiplied by (mean before) / (mean after) over tokens and channels. Where no weight differs from
 * 1 both steps must be left out, and where the mean after is zero or the quotient not finite the
 * second one.
 *
 * Long prompts: a chunk holds n_tokens - 2 tokens of text. When one is full and a comma stands
 * among its last 20 (for 77; in proportion for others), what follows the comma moves on into the
 * next chunk; otherwise the cut is hard. The reference pipelines of diffusers cut the text off
 * instead; for prompts of one chunk both are the same.
 */

#define PROMPT_MAX_CHUNKS 256
#define PROMPT_MAX_BYTES  (4 << 20)
#define PROMPT_MAX_WEIGHT 100.0
#define PROMPT_N_WARNINGS 8

struct prompt {
    size_t n_chunks;      /* at least 1, also for an empty text */
    int64_t n_tokens;     /* of one chunk, start, end and padding included: the encoder's context */
    size_t n_text_tokens; /* of the whole text, without start, end and padding */
    int32_t *ids;         /* [n_chunks, n_tokens] start, text, end, padding */
    float *weights;       /* [n_chunks, n_tokens] 1 for start, end and padding */
    bool weighted;        /* some weight is not 1 */
    size_t n_replaced;    /* ill-formed UTF-8 sequences, taken as U+FFFD */
    int32_t start, end, pad;
    size_t n_warnings; /* at most one of each kind, as sentences */
    char warnings[PROMPT_N_WARNINGS][256];
};

/*
 * text may hold anything, NUL bytes too. syntax false: all of it is one text of weight 1. n_tokens
 * is the text encoder's context length (77). pad_id -1: padding is the end token. On failure *out
 * is empty; free it otherwise.
 */
bool prompt_chunks(const struct tokenizer *tokenizer, const char *text, size_t n_bytes, bool syntax,
                   int64_t n_tokens, int32_t pad_id, struct prompt *out, struct dk_error *err);

/*
 * Appends chunks of an empty text until there are n_chunks: positive and negative need the same
 * number.
 */
bool prompt_pad(struct prompt *prompt, size_t n_chunks, struct dk_error *err);

void prompt_free(struct prompt *prompt);

#endif
