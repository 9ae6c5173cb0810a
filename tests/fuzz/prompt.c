/* prompt.c - fuzz target: prompts, their syntax and dynamic prompts. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/prompt.h"

#include "fuzz.h"

/* A vocabulary of bytes and no merges: the syntax is what matters here. */
static struct tokenizer *bytes_tokenizer(void)
{
    static const unsigned char table[TOKENIZER_TABLE_HEADER_BYTES] =
        "CLIPBPE1\0\0\0\0\xc5\x9d\x1c\x81";
    struct dk_error err = {0};
    struct tokenizer *t = tokenizer_table_memory("bytes", table, sizeof table, 514, &err);
    return t;
}

static void fuzz_expand(const char *text)
{
    struct dk_error err = {0};
    char *prompt;
    if (fuzz_said(dk_expand_prompt(text, NULL, 7, &prompt, &err), &err)) dk_free(prompt);
    err = (struct dk_error){0};
    char **prompts;
    size_t n;
    bool complete;
    if (fuzz_said(dk_expand_all(text, NULL, 4, &prompts, &n, &complete, &err), &err)) {
        if (n > 4 || (n == 0 && complete && text[0] == 0)) abort();
        dk_prompts_free(prompts, n);
    }
}

/* More bytes show nothing new, but time is linear in them: a kilobyte has all chunks it takes. */
#define MAX_PROMPT_BYTES 1024

static void fuzz_prompt(const uint8_t *data, size_t size_bytes)
{
    if (size_bytes > MAX_PROMPT_BYTES) return;
    static struct tokenizer *t; /* made once: nothing in a prompt can change it */
    if (!t) t = bytes_tokenizer();
    if (!t) abort();
    struct map map = fuzz_map(data, size_bytes);
    for (int syntax = 0; syntax < 2; syntax++) {
        struct dk_error err = {0};
        struct prompt prompt;
        if (!fuzz_said(
                prompt_chunks(t, (const char *)map.data, size_bytes, syntax, 77, -1, &prompt, &err),
                &err))
            continue;
        for (size_t i = 0; i < prompt.n_chunks * 77; i++)
            if (prompt.ids[i] < 0 || prompt.ids[i] >= tokenizer_vocabulary(t) ||
                !(prompt.weights[i] <= (float)PROMPT_MAX_WEIGHT &&
                  prompt.weights[i] >= -(float)PROMPT_MAX_WEIGHT))
                abort();
        prompt_free(&prompt);
    }
    char *text = malloc(size_bytes + 1);
    if (!text) abort();
    if (size_bytes) memcpy(text, data, size_bytes);
    text[size_bytes] = 0;
    fuzz_expand(text);
    free(text);
    fuzz_unmap(map);
}
