/* vocabulary.c - a tokenizer's vocabulary from vocab.json and merges.txt, or from the table. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/vocabulary.h"

#include "files/json.h"
#include "files/map.h"
#include "pipeline/excerpt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utf8proc.h>

#define MAX_FILE_BYTES ((size_t)64 << 20)
#define MAX_VOCABULARY ((int64_t)1 << 24)
#define MAX_WORD_BYTES 1024 /* of a vocabulary entry; CLIP's longest has 58 */
#define WORD_END       "</w>"

/* ---- the hash of pairs ---- */

/* The finaliser of splitmix64: the pairs are a hostile file's choice, so every bit must count. */
static size_t pair_slot(const struct tokenizer *t, int32_t left, int32_t right)
{
    uint64_t x = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return (size_t)(x ^ x >> 31) & (t->n_slots - 1);
}

struct merge *merge_find(const struct tokenizer *t, int32_t left, int32_t right)
{
    size_t i = pair_slot(t, left, right);
    while (t->merges[i].id >= 0 && (t->merges[i].left != left || t->merges[i].right != right)) {
        i = (i + 1) & (t->n_slots - 1);
    }
    return &t->merges[i];
}

static bool merges_reserve(struct tokenizer *t, size_t n_merges, const char *file,
                           struct dk_error *err)
{
    t->n_slots = 16;
    while (t->n_slots < 2 * n_merges + 2) t->n_slots *= 2;
    t->merges = malloc(t->n_slots * sizeof *t->merges);
    if (!t->merges)
        return dk_fail(err, DK_ERROR_MEMORY, "%s: no memory for %zu merges", file, n_merges);
    for (size_t i = 0; i < t->n_slots; i++) t->merges[i].id = -1;
    return true;
}

/* False when the pair is there already. */
static bool merge_add(struct tokenizer *t, int32_t left, int32_t right, int32_t rank, int32_t id)
{
    struct merge *slot = merge_find(t, left, right);
    if (slot->id >= 0) return false;
    *slot = (struct merge){left, right, rank, id};
    return true;
}

/* ---- the compact table ---- */

uint32_t tokenizer_table_sum(const unsigned char *data, size_t n_bytes)
{
    uint32_t sum = 2166136261u;
    for (size_t i = 0; i < n_bytes; i++) sum = (sum ^ data[i]) * 16777619u;
    return sum;
}

static uint32_t u32(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static bool special_set(struct special *special, const char *text, int64_t id, struct dk_error *err)
{
    special->n_bytes = strlen(text);
    special->text = malloc(special->n_bytes + 1);
    if (!special->text)
        return dk_fail(err, DK_ERROR_MEMORY, "tokenizer: no memory for a special token");
    memcpy(special->text, text, special->n_bytes + 1);
    special->id = (int32_t)id;
    return true;
}

static bool table_read(struct tokenizer *t, const char *file, const unsigned char *data,
                       size_t n_bytes, int64_t n_vocabulary, struct dk_error *err)
{
    const size_t header = TOKENIZER_TABLE_HEADER_BYTES;
    if (n_bytes < header || memcmp(data, TOKENIZER_TABLE_MAGIC, 8) != 0) {
        return dk_fail(err, DK_ERROR_FORMAT,
                       "%s: not a merge table: it does not begin with " TOKENIZER_TABLE_MAGIC,
                       file);
    }
    size_t n_merges = u32(data + 8);
    if (n_merges > TOKENIZER_TABLE_MAX_MERGES || n_bytes != header + 4 * n_merges) {
        return dk_fail(err, DK_ERROR_FORMAT,
                       "%s: the header promises %zu merges, the file has %zu bytes, not %zu", file,
                       n_merges, n_bytes, header + 4 * n_merges);
    }
    if (tokenizer_table_sum(data + header, n_bytes - header) != u32(data + 12)) {
        return dk_fail(err, DK_ERROR_FORMAT,
                       "%s: the checksum does not fit the content: the file is damaged", file);
    }
    if (n_vocabulary < 2 * N_BYTES + 2 || n_vocabulary > 2 * N_BYTES + 2 + (int64_t)n_merges) {
        return dk_fail(err, DK_ERROR_MODEL,
                       "%s: a vocabulary of %lld entries was asked for, the table gives 514 to %zu",
                       file, (long long)n_vocabulary, 2 * N_BYTES + 2 + n_merges);
    }
    n_merges = (size_t)n_vocabulary - 2 * N_BYTES - 2;
    if (!merges_reserve(t, n_merges, file, err)) return false;
    for (size_t r = 0; r < n_merges; r++) {
        const unsigned char *p = data + header + 4 * r;
        int32_t left = p[0] | p[1] << 8, right = p[2] | p[3] << 8, id = (int32_t)(2 * N_BYTES + r);
        if (left >= id || right >= id) {
            return dk_fail(err, DK_ERROR_FORMAT,
                           "%s: merge %zu joins %d and %d, but only ids below %d exist by then",
                           file, r, (int)left, (int)right, (int)id);
        }
        if (!merge_add(t, left, right, (int32_t)r, id)) {
            return dk_fail(err, DK_ERROR_FORMAT, "%s: merge %zu is there twice", file, r);
        }
    }
    for (int order = 0; order < N_BYTES; order++) {
        uint32_t character;
        int byte = tokenizer_byte(order, &character);
        t->byte_id[0][byte] = order;
        t->byte_id[1][byte] = N_BYTES + order;
    }
    t->n_vocabulary = n_vocabulary;
    return special_set(&t->start, "<|startoftext|>", n_vocabulary - 2, err) &&
           special_set(&t->end, "<|endoftext|>", n_vocabulary - 1, err);
}

static struct tokenizer *tokenizer_new(struct dk_error *err)
{
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t) {
        dk_fail(err, DK_ERROR_MEMORY, "tokenizer: no memory");
        return NULL;
    }
    t->pad = -1;
    return t;
}

struct tokenizer *tokenizer_table_memory(const char *file, const void *data, size_t n_bytes,
                                         int64_t n_vocabulary, struct dk_error *err)
{
    struct tokenizer *t = tokenizer_new(err);
    if (t && !table_read(t, file, data, n_bytes, n_vocabulary, err)) {
        tokenizer_free(t);
        return NULL;
    }
    return t;
}

struct tokenizer *tokenizer_open_table(const char *file, int64_t n_vocabulary, struct dk_error *err)
{
    struct map map;
    if (!map_open(&map, file, err)) return NULL;
    struct tokenizer *t = tokenizer_table_memory(file, map.data, map.size_bytes, n_vocabulary, err);
    map_close(&map);
    return t;
}

/* ---- vocab.json and merges.txt ---- */

/* What a reader of a folder's files needs for its messages and look-ups. */
struct reader {
    const char *folder;
    json_t *vocab;
    struct dk_error *err;
};

/* The id of a word, or -1. The ids were checked by vocab_check. */
static int32_t vocab_id(const struct reader *r, const char *word)
{
    const json_t *value = json_object_get(r->vocab, word);
    return value ? (int32_t)json_integer_value(value) : -1;
}

static bool vocab_check(const struct reader *r, int64_t *n_vocabulary)
{
    int64_t largest = -1;
    const char *key;
    json_t *value;
    json_object_foreach(r->vocab, key, value)
    {
        int64_t id = json_is_integer(value) ? (int64_t)json_integer_value(value) : -1;
        if (id < 0 || id >= MAX_VOCABULARY) {
            return dk_fail(r->err, DK_ERROR_FORMAT,
                           "%s/vocab.json: \"%s\" has no id between 0 and %lld", r->folder,
                           excerpt(key, strlen(key)).text, (long long)MAX_VOCABULARY - 1);
        }
        if (strlen(key) >= MAX_WORD_BYTES) {
            return dk_fail(r->err, DK_ERROR_FORMAT,
                           "%s/vocab.json: the word of id %lld has %zu bytes, more than %d",
                           r->folder, (long long)id, strlen(key), MAX_WORD_BYTES - 1);
        }
        if (id > largest) largest = id;
    }
    *n_vocabulary = largest + 1;
    unsigned char *seen = calloc((size_t)largest + 1, 1);
    if (!seen)
        return dk_fail(r->err, DK_ERROR_MEMORY, "%s/vocab.json: no memory to check the ids",
                       r->folder);
    bool ok = true;
    json_object_foreach(r->vocab, key, value)
    {
        int64_t id = (int64_t)json_integer_value(value);
        if (ok && seen[id]) {
            ok = dk_fail(r->err, DK_ERROR_FORMAT,
                         "%s/vocab.json: \"%s\" has id %lld, which another word has already",
                         r->folder, excerpt(key, strlen(key)).text, (long long)id);
        }
        seen[id] = 1;
    }
    free(seen);
    return ok;
}

static bool bytes_read(struct tokenizer *t, const struct reader *r)
{
    for (int order = 0; order < N_BYTES; order++) {
        uint32_t character;
        int byte = tokenizer_byte(order, &character);
        for (int at_end = 0; at_end < 2; at_end++) {
            char word[16] = {0};
            utf8proc_encode_char((utf8proc_int32_t)character, (utf8proc_uint8_t *)word);
            if (at_end) strcat(word, WORD_END);
            int32_t id = vocab_id(r, word);
            if (id < 0) {
                return dk_fail(r->err, DK_ERROR_FORMAT,
                               "%s/vocab.json: no entry \"%s\", the word for byte 0x%02x%s",
                               r->folder, word, (unsigned)byte,
                               at_end ? " at the end of a word" : "");
            }
            t->byte_id[at_end][byte] = id;
        }
    }
    return true;
}

static bool merge_read(struct tokenizer *t, const struct reader *r, const char *line,
                       size_t n_bytes, size_t n_line, size_t rank)
{
    char word[2][MAX_WORD_BYTES], joined[2 * MAX_WORD_BYTES];
    const char *space = memchr(line, ' ', n_bytes);
    size_t n_left = space ? (size_t)(space - line) : 0, n_right = space ? n_bytes - n_left - 1 : 0;
    if (!n_left || !n_right || memchr(space + 1, ' ', n_right) || memchr(line, '\0', n_bytes)) {
        return dk_fail(r->err, DK_ERROR_FORMAT,
                       "%s/merges.txt:%zu: not two words with a space between", r->folder, n_line);
    }
    if (n_left >= MAX_WORD_BYTES || n_right >= MAX_WORD_BYTES) {
        return dk_fail(r->err, DK_ERROR_FORMAT, "%s/merges.txt:%zu: a word of more than %d bytes",
                       r->folder, n_line, MAX_WORD_BYTES - 1);
    }
    memcpy(word[0], line, n_left);
    memcpy(word[1], space + 1, n_right);
    word[0][n_left] = word[1][n_right] = '\0';
    memcpy(joined, word[0], n_left);
    memcpy(joined + n_left, word[1], n_right + 1);
    int32_t left = vocab_id(r, word[0]), right = vocab_id(r, word[1]), id = vocab_id(r, joined);
    if (left < 0 || right < 0 || id < 0) {
        const char *missing = left < 0 ? word[0] : right < 0 ? word[1] : joined;
        return dk_fail(r->err, DK_ERROR_FORMAT, "%s/merges.txt:%zu: \"%s\" is not in vocab.json",
                       r->folder, n_line, excerpt(missing, strlen(missing)).text);
    }
    if (!merge_add(t, left, right, (int32_t)rank, id)) {
        return dk_fail(r->err, DK_ERROR_FORMAT, "%s/merges.txt:%zu: \"%s %s\" is there twice",
                       r->folder, n_line, excerpt(word[0], strlen(word[0])).text,
                       excerpt(word[1], strlen(word[1])).text);
    }
    return true;
}

/* The first line may be "#version: 0.2"; the last may lack its newline; \r\n is \n. */
static bool merges_read(struct tokenizer *t, const struct reader *r, struct tokenizer_file merges)
{
    static const char version[] = "#version";
    const size_t n_version = sizeof version - 1;
    size_t n_newlines = 0;
    for (size_t i = 0; i < merges.n_bytes; i++) n_newlines += merges.text[i] == '\n';
    if (!merges_reserve(t, n_newlines + 1, "merges.txt", r->err)) return false;
    size_t rank = 0, n_line = 0;
    for (size_t i = 0; i < merges.n_bytes;) {
        const char *line = merges.text + i, *newline = memchr(line, '\n', merges.n_bytes - i);
        size_t n = newline ? (size_t)(newline - line) : merges.n_bytes - i;
        i += n + (newline != NULL);
        n_line++;
        if (n && line[n - 1] == '\r') n--;
        if (n_line == 1 && n >= n_version && memcmp(line, version, n_version) == 0) continue;
        if (!n && i == merges.n_bytes) break;
        if (!merge_read(t, r, line, n, n_line, rank++)) return false;
    }
    return true;
}

/*
 * A special token's text under key: "text" or {"content": "text"}; NULL where nothing or null
 * stands.
 */
static bool special_read(const json_t *file, const char *name, const char *key,
                         const struct reader *r, const char **text)
{
    const json_t *value = json_object_get(file, key);
    *text = NULL;
    if (!value || json_is_null(value)) return true;
    if (json_is_object(value)) value = json_object_get(value, "content");
    *text = json_string_value(value);
    if (!*text || !**text) {
        return dk_fail(r->err, DK_ERROR_FORMAT,
                       "%s/%s: %s is neither a text nor an object with a text as \"content\"",
                       r->folder, name, key);
    }
    if (vocab_id(r, *text) < 0) {
        return dk_fail(r->err, DK_ERROR_FORMAT, "%s/%s: %s \"%s\" is not in vocab.json", r->folder,
                       name, key, excerpt(*text, strlen(*text)).text);
    }
    return true;
}

static bool specials_read(struct tokenizer *t, const struct reader *r, const json_t *config,
                          const json_t *specials)
{
    const char *keys[3] = {"bos_token", "eos_token", "pad_token"};
    const char *texts[3] = {"<|startoftext|>", "<|endoftext|>", NULL};
    for (int k = 0; k < 3; k++) {
        const char *in_config, *in_specials;
        if (!special_read(config, "tokenizer_config.json", keys[k], r, &in_config)) return false;
        if (!special_read(specials, "special_tokens_map.json", keys[k], r, &in_specials))
            return false;
        if (in_specials) texts[k] = in_specials;
        if (in_config) texts[k] = in_config;
        if (texts[k] && vocab_id(r, texts[k]) < 0) {
            return dk_fail(r->err, DK_ERROR_FORMAT, "%s/vocab.json: no entry \"%s\"", r->folder,
                           texts[k]);
        }
    }
    t->pad = texts[2] ? vocab_id(r, texts[2]) : -1;
    return special_set(&t->start, texts[0], vocab_id(r, texts[0]), r->err) &&
           special_set(&t->end, texts[1], vocab_id(r, texts[1]), r->err);
}

/* *json stays NULL where the file is absent. */
static bool json_read(const char *folder, const char *name, struct tokenizer_file file,
                      json_t **json, struct dk_error *err)
{
    char subject[512];
    if (!file.text) return true;
    snprintf(subject, sizeof subject, "%s/%s", folder, name);
    *json = json_object_parse(file.text, file.n_bytes, 8, subject, err);
    return *json != NULL;
}

struct tokenizer *tokenizer_open_memory(const char *folder, struct tokenizer_file vocab,
                                        struct tokenizer_file merges, struct tokenizer_file config,
                                        struct tokenizer_file specials, struct dk_error *err)
{
    struct tokenizer *t = tokenizer_new(err);
    if (!t) return NULL;
    json_t *vocab_json = NULL, *config_json = NULL, *specials_json = NULL;
    bool ok = json_read(folder, "vocab.json", vocab, &vocab_json, err) &&
              json_read(folder, "tokenizer_config.json", config, &config_json, err) &&
              json_read(folder, "special_tokens_map.json", specials, &specials_json, err);
    struct reader r = {folder, vocab_json, err};
    ok = ok && vocab_check(&r, &t->n_vocabulary) && bytes_read(t, &r) &&
         merges_read(t, &r, merges) && specials_read(t, &r, config_json, specials_json);
    json_decref(vocab_json);
    json_decref(config_json);
    json_decref(specials_json);
    if (!ok) {
        tokenizer_free(t);
        return NULL;
    }
    return t;
}

/* Maps folder/name; an absent optional file leaves *file empty. */
static bool file_open(const char *folder, const char *name, bool optional, struct map *map,
                      struct tokenizer_file *file, struct dk_error *err)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (n < 0 || (size_t)n >= sizeof path) {
        return dk_fail(err, DK_ERROR_FILE, "%.200s...: the path is longer than %zu bytes", folder,
                       sizeof path - 1);
    }
    if (optional && access(path, F_OK) != 0 && errno == ENOENT) return true;
    if (!map_open(map, path, err)) return false;
    if (map->size_bytes > MAX_FILE_BYTES) {
        return dk_fail(err, DK_ERROR_FORMAT,
                       "%s: %zu bytes are too many for a tokenizer file, at most %zu are read",
                       path, map->size_bytes, MAX_FILE_BYTES);
    }
    *file = (struct tokenizer_file){(const char *)map->data, map->size_bytes};
    return true;
}

struct tokenizer *tokenizer_open_folder(const char *folder, struct dk_error *err)
{
    struct map map[4] = {{NULL, 0}};
    struct tokenizer_file file[4] = {{NULL, 0}};
    struct tokenizer *t = NULL;
    if (file_open(folder, "vocab.json", false, &map[0], &file[0], err) &&
        file_open(folder, "merges.txt", false, &map[1], &file[1], err) &&
        file_open(folder, "tokenizer_config.json", true, &map[2], &file[2], err) &&
        file_open(folder, "special_tokens_map.json", true, &map[3], &file[3], err)) {
        t = tokenizer_open_memory(folder, file[0], file[1], file[2], file[3], err);
    }
    for (int i = 0; i < 4; i++) {
        if (map[i].data) map_close(&map[i]);
    }
    return t;
}
