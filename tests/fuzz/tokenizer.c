/* tokenizer.c - fuzz target: vocab.json, merges.txt and the compact table. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/tokenizer.h"

#include "fuzz.h"

/* The next file of those glued together with 0xff bytes, which no valid UTF-8 has. */
static struct tokenizer_file next_file(const char **at, const char *end)
{
    const char *start = *at;
    if (!start) return (struct tokenizer_file){0};
    const char *stop = memchr(start, 0xff, (size_t)(end - start));
    *at = stop ? stop + 1 : NULL;
    return (struct tokenizer_file){start, (size_t)((stop ? stop : end) - start)};
}

static void fuzz_tokenizer(const uint8_t *data, size_t size_bytes)
{
    struct map map = fuzz_map(data, size_bytes);
    const char *at = (const char *)map.data, *end = at + size_bytes;
    struct dk_error err = {0};
    struct tokenizer *t;
    if (size_bytes >= 8 && memcmp(data, TOKENIZER_TABLE_MAGIC, 8) == 0) {
        /* The checksum would stop every mutation, so it is put right. */
        unsigned char *table = malloc(size_bytes);
        if (!table) abort();
        memcpy(table, data, size_bytes);
        if (size_bytes > TOKENIZER_TABLE_HEADER_BYTES) {
            uint32_t sum = tokenizer_table_sum(table + TOKENIZER_TABLE_HEADER_BYTES,
                                               size_bytes - TOKENIZER_TABLE_HEADER_BYTES);
            for (int i = 0; i < 4; i++) table[12 + i] = (unsigned char)(sum >> 8 * i);
        }
        int64_t n_merges = size_bytes >= 12 ? data[8] | data[9] << 8 : 0;
        t = tokenizer_table_memory("merges.bin", table, size_bytes, 514 + n_merges, &err);
        free(table);
    } else {
        struct tokenizer_file vocab = next_file(&at, end), merges = next_file(&at, end);
        struct tokenizer_file config = next_file(&at, end), specials = next_file(&at, end);
        t = tokenizer_open_memory("tokenizer", vocab, merges, config, specials, &err);
    }
    if (fuzz_said(t != NULL, &err)) {
        static const char text[] =
            "A lovely caf\xc3\xa9, 123 \xf0\x9f\x9a\x80's <|endoftext|> \xff\0 low lower lowest";
        int32_t *ids;
        size_t n;
        if (fuzz_said(tokenizer_encode(t, text, sizeof text - 1, &ids, &n, NULL, &err), &err)) {
            for (size_t i = 0; i < n; i++)
                if (ids[i] < 0 || ids[i] >= tokenizer_vocabulary(t)) abort();
            free(ids);
        }
        tokenizer_free(t);
    }
    fuzz_unmap(map);
}
