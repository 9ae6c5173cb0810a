/* clip_table.c - makes CLIP's compact merge table, and tokenizer folders from it. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/tokenizer.h"

/*
 *   clip_table pack SOURCE TABLE            SOURCE is the npm package's bpe_simple_vocab_16e6.js,
 *                                           or the plain text in it
 *   clip_table write TABLE V FOLDER [PAD]   vocab.json, merges.txt and the two small files there
 *
 * The format of the table is told in tokenizer.h. V entries are the first V - 514 merges and 514
 * others. Files are written under another name and renamed, so that builds running side by side do
 * not meet half a file.
 */

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utf8proc.h>

#define N_BYTES  256
#define N_MERGES 48894 /* 49152 - 256 - 2: CLIP ignores what follows in its file */
#define START    "<|startoftext|>"
#define END      "<|endoftext|>"

static int fail(const char *subject, const char *what)
{
    fprintf(stderr, "clip_table: %s: %s\n", subject, what);
    return 1;
}

static void *need(void *pointer)
{
    if (pointer) return pointer;
    exit(fail("memory", "none left"));
}

/* The whole file and a NUL after it; NULL after a message. */
static char *file_read(const char *path, size_t *n_bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        fail(path, strerror(errno));
        return NULL;
    }
    size_t capacity = 1 << 16, n = 0;
    char *text = need(malloc(capacity + 1));
    for (size_t got; (got = fread(text + n, 1, capacity - n, file)) > 0;) {
        n += got;
        if (n == capacity) text = need(realloc(text, (capacity *= 2) + 1));
    }
    fclose(file);
    text[n] = '\0';
    *n_bytes = n;
    return text;
}

/* Opens PATH.PID for writing; file_end renames it. */
static FILE *file_begin(const char *path, char temporary[4096])
{
    if (snprintf(temporary, 4096, "%s.%ld", path, (long)getpid()) >= 4096) {
        fail(path, "the path is too long");
        return NULL;
    }
    FILE *file = fopen(temporary, "wb");
    if (!file) fail(temporary, strerror(errno));
    return file;
}

static int file_end(FILE *file, const char *path, const char *temporary)
{
    bool ok = !ferror(file);
    ok = fclose(file) == 0 && ok;
    if (ok && rename(temporary, path) == 0) return 0;
    remove(temporary);
    return fail(path, strerror(errno));
}

/* ---- the words of the vocabulary: [n] strings by id ---- */

static char *word_of_byte(int order, const char *end)
{
    uint32_t character;
    char word[16] = {0};
    tokenizer_byte(order, &character);
    utf8proc_encode_char((utf8proc_int32_t)character, (utf8proc_uint8_t *)word);
    strcat(word, end);
    return need(strdup(word));
}

static void words_of_bytes(char **words)
{
    for (int order = 0; order < N_BYTES; order++) {
        words[order] = word_of_byte(order, "");
        words[N_BYTES + order] = word_of_byte(order, "</w>");
    }
}

static char *word_join(const char *left, const char *right)
{
    size_t n_left = strlen(left), n_right = strlen(right);
    char *word = need(malloc(n_left + n_right + 1));
    memcpy(word, left, n_left);
    memcpy(word + n_left, right, n_right + 1);
    return word;
}

static void words_free(char **words, size_t n)
{
    for (size_t i = 0; i < n; i++) free(words[i]);
    free(words);
}

/* ---- pack ---- */

/*
 * The table's text: the string "text" of the object in the script, or the file as it is. Frees
 * source.
 */
static char *source_text(char *source)
{
    char *begin = strstr(source, "{ \"text\":"), *end = strrchr(source, '}');
    if (!begin || !end) return source;
    json_t *object = json_loadb(begin, (size_t)(end + 1 - begin), JSON_DISABLE_EOF_CHECK, NULL);
    const char *text = json_string_value(json_object_get(object, "text"));
    char *copy = text ? need(strdup(text)) : NULL;
    json_decref(object);
    free(source);
    return copy;
}

/* The id of a word, or -1. ids: word -> integer. */
static long id_of(const json_t *ids, const char *word)
{
    const json_t *value = json_object_get(ids, word);
    return value ? (long)json_integer_value(value) : -1;
}

static void u16_put(unsigned char *at, long value)
{
    at[0] = (unsigned char)(value & 0xFF);
    at[1] = (unsigned char)(value >> 8);
}

/* Reads N_MERGES lines after the first, which is a version. False after a message. */
static bool merges_pack(char *text, unsigned char *pairs)
{
    json_t *ids = need(json_object());
    char **words = need(calloc(2 * N_BYTES, sizeof *words));
    words_of_bytes(words);
    for (int i = 0; i < 2 * N_BYTES; i++) json_object_set_new(ids, words[i], json_integer(i));
    words_free(words, 2 * N_BYTES);
    bool ok = strstr(text, "#version") != NULL;
    char *line = strchr(text, '\n');
    for (long r = 0; ok && r < N_MERGES; r++) {
        char *next = line ? strchr(line + 1, '\n') : NULL, *space = NULL;
        if (next) *next = '\0';
        if (line) space = strchr(++line, ' ');
        if (space) *space++ = '\0';
        long left = space ? id_of(ids, line) : -1, right = space ? id_of(ids, space) : -1;
        ok = left >= 0 && right >= 0;
        if (!ok) {
            fprintf(stderr, "clip_table: line %ld: not two words known by then\n", r + 2);
            break;
        }
        u16_put(pairs + 4 * r, left);
        u16_put(pairs + 4 * r + 2, right);
        char *joined = word_join(line, space);
        ok = id_of(ids, joined) < 0;
        if (!ok)
            fprintf(stderr, "clip_table: line %ld: makes a word that is there already\n", r + 2);
        json_object_set_new(ids, joined, json_integer(2 * N_BYTES + r));
        free(joined);
        line = next;
    }
    json_decref(ids);
    return ok;
}

static int table_pack(const char *from, const char *to)
{
    size_t n_bytes;
    char *source = file_read(from, &n_bytes);
    if (!source) return 1;
    char *text = source_text(source);
    if (!text) return fail(from, "the script's object has no string \"text\"");
    const size_t n_table = TOKENIZER_TABLE_HEADER_BYTES + 4 * N_MERGES;
    unsigned char *table = need(calloc(n_table, 1));
    unsigned char *pairs = table + TOKENIZER_TABLE_HEADER_BYTES;
    bool ok = merges_pack(text, pairs);
    free(text);
    if (!ok) return fail(from, "not CLIP's merge table");
    memcpy(table, TOKENIZER_TABLE_MAGIC, 8);
    uint32_t sum = tokenizer_table_sum(pairs, 4 * N_MERGES);
    u16_put(table + 8, N_MERGES & 0xFFFF);
    u16_put(table + 10, N_MERGES >> 16);
    u16_put(table + 12, (long)(sum & 0xFFFF));
    u16_put(table + 14, (long)(sum >> 16));
    char temporary[4096];
    FILE *file = file_begin(to, temporary);
    if (!file) return 1;
    fwrite(table, 1, n_table, file);
    free(table);
    return file_end(file, to, temporary);
}

/* ---- write ---- */

/* {"!":0,...}: ASCII only, as the reference tools write it. */
static int vocab_write(char *const *words, size_t n, const char *path)
{
    char temporary[4096];
    FILE *file = file_begin(path, temporary);
    if (!file) return 1;
    for (size_t id = 0; id < n; id++) {
        json_t *word = need(json_string(words[id]));
        char *text = need(json_dumps(word, JSON_ENCODE_ANY | JSON_ENSURE_ASCII));
        fprintf(file, "%c%s:%zu", id ? ',' : '{', text, id);
        free(text);
        json_decref(word);
    }
    fputc('}', file);
    return file_end(file, path, temporary);
}

static int merges_write(char *const *words, const unsigned char *pairs, size_t n_merges,
                        const char *path)
{
    char temporary[4096];
    FILE *file = file_begin(path, temporary);
    if (!file) return 1;
    fputs("#version: 0.2\n", file);
    for (size_t r = 0; r < n_merges; r++) {
        const unsigned char *p = pairs + 4 * r;
        fprintf(file, "%s %s\n", words[p[0] | p[1] << 8], words[p[2] | p[3] << 8]);
    }
    return file_end(file, path, temporary);
}

static int config_write(const char *path, const char *pad, bool whole)
{
    char temporary[4096];
    json_t *config = need(json_pack("{s:s, s:s, s:s, s:s}", "bos_token", START, "eos_token", END,
                                    "pad_token", pad, "unk_token", END));
    if (whole) {
        json_object_set_new(config, "tokenizer_class", json_string("CLIPTokenizer"));
        json_object_set_new(config, "model_max_length", json_integer(77));
        json_object_set_new(config, "do_lower_case", json_true());
        json_object_set_new(config, "add_prefix_space", json_false());
        json_object_set_new(config, "errors", json_string("replace"));
    }
    FILE *file = file_begin(path, temporary);
    if (file) json_dumpf(config, file, JSON_INDENT(1));
    json_decref(config);
    return file ? file_end(file, path, temporary) : 1;
}

/* The tokenizer's own reader checks the table first, so the pairs may be trusted here. */
static char **words_of_table(const unsigned char *pairs, size_t n_vocabulary)
{
    char **words = need(calloc(n_vocabulary, sizeof *words));
    words_of_bytes(words);
    for (size_t id = 2 * N_BYTES; id + 2 < n_vocabulary; id++) {
        const unsigned char *p = pairs + 4 * (id - 2 * N_BYTES);
        words[id] = word_join(words[p[0] | p[1] << 8], words[p[2] | p[3] << 8]);
    }
    words[n_vocabulary - 2] = need(strdup(START));
    words[n_vocabulary - 1] = need(strdup(END));
    return words;
}

static int folder_write(const char *from, const char *size, const char *folder, const char *pad)
{
    size_t n_bytes;
    char *table = file_read(from, &n_bytes);
    if (!table) return 1;
    struct dk_error err = {0};
    long long n_vocabulary = strtoll(size, NULL, 10);
    struct tokenizer *tokenizer = tokenizer_table_memory(from, table, n_bytes, n_vocabulary, &err);
    tokenizer_free(tokenizer);
    if (!tokenizer) {
        fprintf(stderr, "clip_table: %s\n", err.message);
        return 1;
    }
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) return fail(folder, strerror(errno));

    const unsigned char *pairs = (const unsigned char *)table + TOKENIZER_TABLE_HEADER_BYTES;
    size_t n = (size_t)n_vocabulary;
    char **words = words_of_table(pairs, n);
    static const char *const names[] = {"merges.txt", "tokenizer_config.json",
                                        "special_tokens_map.json", "vocab.json"};
    char path[4][4096];
    for (int i = 0; i < 4; i++) snprintf(path[i], sizeof path[i], "%s/%s", folder, names[i]);
    int status = merges_write(words, pairs, n - 2 * N_BYTES - 2, path[0]) ||
                 config_write(path[1], pad, true) || config_write(path[2], pad, false) ||
                 vocab_write(words, n, path[3]);
    words_free(words, n);
    free(table);
    return status;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "pack") == 0) return table_pack(argv[2], argv[3]);
    if ((argc == 5 || argc == 6) && strcmp(argv[1], "write") == 0) {
        return folder_write(argv[2], argv[3], argv[4], argc == 6 ? argv[5] : END);
    }
    fputs("usage: clip_table pack SOURCE TABLE\n"
          "       clip_table write TABLE ENTRIES FOLDER [PADDING-TOKEN]\n",
          stderr);
    return 2;
}
