/* checktokenizer.c - tokens against the reference's, and what damaged vocabularies do. */
/* SPDX-License-Identifier: MIT */
#include "check.h"
#include "pipeline/tokenizer.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define TABLE  "models/clip/merges.bin"
#define MODELS "tests/golden/models"

/* A file in memory and a NUL after it. */
static char *file_read(const char *path, size_t *n_bytes)
{
    FILE *file = fopen(path, "rb");
    *n_bytes = 0;
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *text = malloc((size_t)size + 1);
    if (text) *n_bytes = fread(text, 1, (size_t)size, file);
    if (text) text[*n_bytes] = '\0';
    fclose(file);
    return text;
}

static bool same_ids(const struct tokenizer *t, const char *text, size_t n_bytes,
                     const int32_t *wanted, size_t n)
{
    int32_t *ids;
    size_t n_ids;
    struct dk_error err = {0};
    if (!tokenizer_encode(t, text, n_bytes, &ids, &n_ids, NULL, &err)) return false;
    bool same = n_ids == n && (n == 0 || memcmp(ids, wanted, n * sizeof *ids) == 0);
    free(ids);
    return same;
}

static void check_golden(const struct tokenizer *t, const char *what)
{
    json_t *golden = json_load_file("tests/golden/tokenizer/tokens.json", JSON_ALLOW_NUL, NULL);
    const json_t *cases = json_object_get(golden, "cases");
    CHECK(json_array_size(cases) == 253, "tokens.json has %zu cases", json_array_size(cases));
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i), *ids = json_object_get(one, "hf_fast");
        const char *hex = json_string_value(json_object_get(one, "utf8_hex"));
        size_t n_bytes = strlen(hex) / 2, n = json_array_size(ids);
        char *text = malloc(n_bytes + 1);
        int32_t *wanted = malloc((n + 1) * sizeof *wanted);
        for (size_t k = 0; k < n_bytes; k++) {
            unsigned value;
            sscanf(hex + 2 * k, "%2x", &value);
            text[k] = (char)value;
        }
        for (size_t k = 0; k < n; k++)
            wanted[k] = (int32_t)json_integer_value(json_array_get(ids, k));
        CHECK(same_ids(t, text, n_bytes, wanted, n), "%s: case %zu, %s, %s", what, i,
              json_string_value(json_object_get(one, "tag")), hex);
        free(text);
        free(wanted);
    }
    json_decref(golden);
}

/* ---- what the golden file does not say ---- */

/*
 * Another way to the same ids: every merge in turn, wherever its pair stands. word is one piece of
 * ASCII letters.
 */
static size_t merge_in_turn(const unsigned char *pairs, size_t n_merges, const char *word,
                            int32_t *ids)
{
    size_t n = strlen(word);
    for (size_t i = 0; i < n; i++) ids[i] = word[i] - 0x21 + (i + 1 == n ? 256 : 0);
    for (size_t r = 0; r < n_merges; r++) {
        int32_t left = pairs[4 * r] | pairs[4 * r + 1] << 8,
                right = pairs[4 * r + 2] | pairs[4 * r + 3] << 8;
        for (size_t i = 0; i + 1 < n; i++) {
            if (ids[i] != left || ids[i + 1] != right) continue;
            ids[i] = (int32_t)(512 + r);
            memmove(ids + i + 1, ids + i + 2, (n - i - 2) * sizeof *ids);
            n--;
        }
    }
    return n;
}

static void check_merge_order(const struct tokenizer *t, const char *table, size_t n_merges)
{
    static const char *const words[] = {"internationalization",
                                        "aaaaaaaaaaaaaaaaaaaaaaa",
                                        "banananananananana",
                                        "pneumonoultramicroscopicsilicovolcanoconiosis",
                                        "xqzjkvwpy",
                                        "ototototototo"};
    uint32_t state = 1;
    for (int i = 0; i < 60; i++) {
        char word[64];
        if (i < (int)(sizeof words / sizeof *words)) {
            snprintf(word, sizeof word, "%s", words[i]);
        } else {
            int n = 1 + i % 40;
            for (int k = 0; k < n; k++)
                word[k] = "etaonirsh"[(state = state * 1664525u + 1013904223u) >> 24 & 7];
            word[n] = '\0';
        }
        int32_t wanted[64];
        size_t n = merge_in_turn((const unsigned char *)table + TOKENIZER_TABLE_HEADER_BYTES,
                                 n_merges, word, wanted);
        CHECK(same_ids(t, word, strlen(word), wanted, n), "%s", word);
    }
}

static void check_text(const struct tokenizer *t, const char *text, size_t n_bytes, size_t n_wanted,
                       size_t n_replaced)
{
    int32_t *ids = NULL;
    size_t n_ids = 0, replaced = 99;
    struct dk_error err = {0};
    bool ok = tokenizer_encode(t, text, n_bytes, &ids, &n_ids, &replaced, &err);
    CHECK(ok && n_ids == n_wanted && replaced == n_replaced,
          "\"%.20s\": %zu ids and %zu replaced, not %zu and %zu: %s", text, n_ids, replaced,
          n_wanted, n_replaced, err.message);
    bool inside = ok;
    for (size_t i = 0; i < n_ids; i++)
        inside = inside && ids[i] >= 0 && ids[i] < tokenizer_vocabulary(t);
    CHECK(inside, "\"%.20s\": an id beyond the vocabulary", text);
    free(ids);
}

static void check_odd_bytes(const struct tokenizer *t)
{
    check_text(t, NULL, 0, 0, 0);
    check_text(t, " \t\r\n\xC2\xA0\xE3\x80\x80 ", 10, 0, 0);
    check_text(t, "a\0b", 3, 3, 0); /* NUL is neither letter nor space */
    check_text(t, "\xFF", 1, 1, 1); /* U+FFFD is one token */
    check_text(t,
               "a\x80"
               "b",
               3, 3, 1);
    check_text(t, "\xF0\x9F\x98", 3, 1, 1); /* one maximal subpart */
    check_text(t,
               "\xF0\x9F\x98"
               "a",
               4, 2, 1);
    check_text(t, "\xE0\x80\x80", 3, 3, 3); /* an overlong form: three subparts */
    check_text(t, "\xED\xA0\x80", 3, 3, 3); /* a surrogate */
    check_text(t, "\xF0\x80\x80\x80", 4, 4, 4);
    check_text(t, "\xF4\x90\x80\x80", 4, 4, 4); /* beyond U+10FFFF */
    check_text(t, "\xC0\xAF", 2, 2, 2);
    static const int32_t dotted[] = {328, 16384}; /* U+0130 becomes i and the mark U+0307 */
    CHECK(same_ids(t, "\xC4\xB0", 2, dotted, 2), "U+0130");
}

/*
 * Texts of a megabyte, which anything quadratic would never finish; the count tells that nothing
 * was cut.
 */
static void check_long(const struct tokenizer *t)
{
    const size_t n = 1 << 20;
    char *text = malloc(n + 1);
    text[n] = '\0';
    static const struct {
        const char *unit;
        size_t n_units_a_token;
    } cases[] = {{"a ", 1}, {"7", 1}, {"<|endoftext|>", 1}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        size_t length = strlen(cases[c].unit), count = n / length;
        for (size_t i = 0; i < count; i++) memcpy(text + i * length, cases[c].unit, length);
        check_text(t, text, count * length, count / cases[c].n_units_a_token, 0);
    }
    static const char *const heavy[] = {"a",
                                        "ab",
                                        "\xCC\x81\xCC\xA7",
                                        "\xCC\xA7\xCD\x85\xCC\x81\xCC\xB4",
                                        "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB",
                                        "\xC4\xB0",
                                        "\xFF",
                                        "'s!'",
                                        "!",
                                        "\0\1"};
    for (size_t c = 0; c < sizeof heavy / sizeof *heavy; c++) {
        size_t length = *heavy[c] ? strlen(heavy[c]) : 2, count = n / length, n_ids = 0;
        for (size_t i = 0; i < count; i++) memcpy(text + i * length, heavy[c], length);
        int32_t *ids = NULL;
        bool ok = tokenizer_encode(t, text, count * length, &ids, &n_ids, NULL, NULL);
        CHECK(ok && n_ids >= count / 64, "unit %zu: %zu ids of %zu units", c, n_ids, count);
        free(ids);
    }
    free(text);
}

/* Marks in any order are the same text once they are in canonical order. */
static void check_marks(const struct tokenizer *t)
{
    char text[2][4 * 200 + 2] = {"a", "a"};
    size_t n = 1;
    for (int i = 0; i < 200;
         i++) { /* cedillas (class 202) and acutes (230): interleaved, and sorted */
        memcpy(text[0] + n, "\xCC\x81\xCC\xA7", 4);
        memcpy(text[1] + 1 + 2 * i, "\xCC\xA7", 2);
        memcpy(text[1] + 401 + 2 * i, "\xCC\x81", 2);
        n += 4;
    }
    int32_t *ids;
    size_t n_ids;
    if (tokenizer_encode(t, text[1], n, &ids, &n_ids, NULL, NULL)) {
        CHECK(same_ids(t, text[0], n, ids, n_ids) && n_ids > 100,
              "interleaved marks differ from sorted ones");
        free(ids);
    }
}

static void check_random(const struct tokenizer *t)
{
    uint32_t state = 7;
    for (int round = 0; round < 200; round++) {
        char text[97];
        for (size_t i = 0; i < sizeof text; i++)
            text[i] = (char)((state = state * 1664525u + 1013904223u) >> 24);
        int32_t *ids = NULL;
        size_t n_ids = 0;
        bool ok = tokenizer_encode(t, text, sizeof text, &ids, &n_ids, NULL, NULL);
        for (size_t i = 0; i < n_ids; i++)
            ok = ok && ids[i] >= 0 && ids[i] < tokenizer_vocabulary(t);
        CHECK(ok, "round %d: failed or an id beyond the vocabulary", round);
        free(ids);
    }
}

static void check_model(const char *folder, int64_t n_vocabulary, int32_t pad)
{
    struct dk_error err = {0};
    struct tokenizer *t = tokenizer_open_folder(folder, &err);
    CHECK(t != NULL, "%s", err.message);
    if (!t) return;
    CHECK(tokenizer_vocabulary(t) == n_vocabulary && tokenizer_start(t) == n_vocabulary - 2 &&
              tokenizer_end(t) == n_vocabulary - 1 && tokenizer_pad(t) == pad,
          "%s: %lld entries, start %d, end %d, padding %d", folder,
          (long long)tokenizer_vocabulary(t), (int)tokenizer_start(t), (int)tokenizer_end(t),
          (int)tokenizer_pad(t));
    check_random(t);
    tokenizer_free(t);
}

/* The folder and the table say the same about every prefix of the vocabulary. */
static void check_prefix(void)
{
    static const char text[] = "a photo of the 3 best cat's on Earth!! caf\xC3\xA9 <|endoftext|>";
    struct tokenizer *folder = tokenizer_open_folder(MODELS "/tiny-sd2/tokenizer", NULL);
    struct tokenizer *table = tokenizer_open_table(TABLE, 1000, NULL);
    int32_t *ids;
    size_t n_ids;
    CHECK(folder && table, "tokenizers of 1000 entries");
    if (folder && table && tokenizer_encode(table, text, strlen(text), &ids, &n_ids, NULL, NULL)) {
        CHECK(n_ids > 10 && ids[n_ids - 1] == 999, "%zu ids", n_ids);
        CHECK(same_ids(folder, text, strlen(text), ids, n_ids), "folder and table differ");
        free(ids);
    }
    tokenizer_free(folder);
    tokenizer_free(table);
}

static void check_emoji(void)
{
    struct tokenizer *t = tokenizer_open_folder("models/emoji/tokenizer", NULL);
    CHECK(t != NULL, "models/emoji/tokenizer does not open");
    if (!t) return;
    static const char *const texts[] = {"a rocket on a blue background",
                                        "It's the WOMAN's 2nd caf\xC3\xA9: red-heart, 100%%!",
                                        "\xE7\x81\xAB \xF0\x9F\x94\xA5 \xC4\xB0stanbul"};
    static const int32_t wanted[3][24] = {
        {320, 1233, 515, 320, 548, 521},
        {852, 6,   338, 544, 837, 6,   338, 273, 514, 549, 69, 127,
         358, 281, 567, 268, 596, 267, 272, 271, 271, 4,   4,  256},
        {163, 223, 360, 172, 253, 242, 354, 328, 136, 485, 578, 530, 605, 331}};
    static const size_t n_wanted[3] = {6, 24, 14};
    for (int i = 0; i < 3; i++) {
        CHECK(same_ids(t, texts[i], strlen(texts[i]), wanted[i], n_wanted[i]), "%s", texts[i]);
    }
    tokenizer_free(t);
}

/* ---- damaged files ---- */

struct files {
    struct tokenizer_file vocab, merges, config, specials;
};

static void check_refused(struct files f, const char *wanted)
{
    struct dk_error err = {0};
    struct tokenizer *t =
        tokenizer_open_memory("folder", f.vocab, f.merges, f.config, f.specials, &err);
    CHECK(!t && err.code != DK_OK && strstr(err.message, wanted), "%s \"%s\", wanted \"%s\"",
          t ? "opened" : "refused", err.message, wanted);
    tokenizer_free(t);
}

/* text with the first occurrence of from replaced by to. */
static struct tokenizer_file edited(struct tokenizer_file file, const char *from, const char *to)
{
    const char *at = strstr(file.text, from);
    size_t n_from = strlen(from), n_to = strlen(to), before = at ? (size_t)(at - file.text) : 0;
    char *text = malloc(file.n_bytes + n_to + 1);
    CHECK(at != NULL, "\"%s\" is not in the file", from);
    if (!at) n_from = n_to = 0;
    memcpy(text, file.text, before);
    memcpy(text + before, to, n_to);
    memcpy(text + before + n_to, file.text + before + n_from, file.n_bytes - before - n_from + 1);
    return (struct tokenizer_file){text, file.n_bytes + n_to - n_from};
}

static void check_vocab_edit(struct files f, const char *from, const char *to, const char *wanted)
{
    f.vocab = edited(f.vocab, from, to);
    check_refused(f, wanted);
    free((char *)(uintptr_t)f.vocab.text);
}

static void check_merges_edit(struct files f, const char *from, const char *to, const char *wanted)
{
    f.merges = edited(f.merges, from, to);
    check_refused(f, wanted);
    free((char *)(uintptr_t)f.merges.text);
}

static void check_config(struct files f, const char *config, const char *wanted)
{
    f.config = (struct tokenizer_file){config, strlen(config)};
    check_refused(f, wanted);
}

static void check_pad(struct files f, const char *config, const char *specials, int32_t pad)
{
    struct dk_error err = {0};
    f.config = (struct tokenizer_file){config, config ? strlen(config) : 0};
    f.specials = (struct tokenizer_file){specials, specials ? strlen(specials) : 0};
    struct tokenizer *t =
        tokenizer_open_memory("folder", f.vocab, f.merges, f.config, f.specials, &err);
    CHECK(t && tokenizer_pad(t) == pad, "padding %d, wanted %d: %s", t ? (int)tokenizer_pad(t) : -2,
          (int)pad, err.message);
    tokenizer_free(t);
}

static void check_damaged_folder(void)
{
    struct files f = {0};
    f.vocab.text = file_read(MODELS "/tiny-sd2/tokenizer/vocab.json", &f.vocab.n_bytes);
    f.merges.text = file_read(MODELS "/tiny-sd2/tokenizer/merges.txt", &f.merges.n_bytes);
    CHECK(f.vocab.text && f.merges.text, MODELS "/tiny-sd2/tokenizer is not there");
    if (!f.vocab.text || !f.merges.text) return;

    check_vocab_edit(f, "\"!\":0", "\"!\":-1", "\"!\" has no id between 0 and");
    check_vocab_edit(f, "\"!\":0", "\"!\":4294967296", "\"!\" has no id between 0 and");
    check_vocab_edit(f, "\"!\":0", "\"!\":99999999999999999999999", "vocab.json");
    check_vocab_edit(f, "\"!\":0", "\"!\":0.0", "\"!\" has no id");
    check_vocab_edit(f, "\"!\":0", "\"!\":\"0\"", "\"!\" has no id");
    check_vocab_edit(f, "\"!\":0", "\"!\":null", "\"!\" has no id");
    check_vocab_edit(f, "\"!\":0", "\"!\":1", "has id 1, which another word has already");
    check_vocab_edit(f, "\"!\":0", "\"!\":0,\"!\":0", "vocab.json");
    check_vocab_edit(f, "\"!\":0,", "", "no entry \"!\", the word for byte 0x21");
    check_vocab_edit(f, "\"!</w>\":256,", "",
                     "no entry \"!</w>\", the word for byte 0x21 at the end of a word");
    check_vocab_edit(f, "\"in\":512,", "", "merges.txt:2: \"in\" is not in vocab.json");
    check_vocab_edit(f, "<|endoftext|>", "<|endoftext>", "no entry \"<|endoftext|>\"");
    check_vocab_edit(f, "{", "[", "vocab.json");
    check_vocab_edit(f, "{", "{\"a\\u0000b\":5000,", "vocab.json");
    check_merges_edit(f, "i n\n", "in\n", "merges.txt:2: not two words");
    check_merges_edit(f, "i n\n", "i n g\n", "merges.txt:2: not two words");
    check_merges_edit(f, "i n\n", "\n", "merges.txt:2: not two words");
    check_merges_edit(f, "i n\n", " n\n", "merges.txt:2: not two words");
    check_merges_edit(f, "i n\n", "i \n", "merges.txt:2: not two words");
    check_merges_edit(f, "i n\n", "i n\ni n\n", "merges.txt:3: \"i n\" is there twice");
    check_merges_edit(f, "i n\n", "i q\n", "merges.txt:2: \"iq\" is not in vocab.json");
    check_merges_edit(f, "i n\n", "unheard n\n", "merges.txt:2: \"unheard\" is not in vocab.json");
    check_merges_edit(f, "i n\n", "\x1b[31m\x7f n\n", "\"?[31m?\" is not in vocab.json");
    check_config(f, "{\"pad_token\":\"[PAD]\"}", "pad_token \"[PAD]\" is not in vocab.json");
    check_config(f, "{\"pad_token\":7}", "pad_token is neither a text nor an object");
    check_config(f, "{\"eos_token\":{\"content\":7}}", "eos_token is neither a text nor an object");
    check_config(f, "{\"bos_token\":\"\"}", "bos_token is neither a text nor an object");
    check_config(f, "[]", "tokenizer_config.json");
    check_config(f, "{\"pad_token\":", "tokenizer_config.json");

    check_pad(f, NULL, NULL, -1);
    check_pad(f, "{}", "{}", -1);
    check_pad(f, "{\"pad_token\":null}", NULL, -1);
    check_pad(f, "{\"pad_token\":\"!\"}", "{\"pad_token\":\"<|endoftext|>\"}", 0);
    check_pad(f, NULL, "{\"pad_token\":{\"content\":\"<|endoftext|>\",\"lstrip\":false}}", 999);

    char *word = malloc(5001); /* a word longer than any */
    memset(word, 'x', 5000);
    memcpy(word + 4998, " n", 3);
    check_merges_edit(f, "i n", word, "merges.txt:2: a word of more than");
    free(word);
    for (size_t cut = 0; cut < f.vocab.n_bytes;
         cut += 97) { /* an unfinished object is never taken */
        struct files g = f;
        g.vocab.n_bytes = cut;
        check_refused(g, "vocab.json");
    }
    struct files crlf = f; /* as some unpackers leave it */
    crlf.merges = edited(f.merges, "i n\n", "i n\r\n");
    check_pad(crlf, NULL, NULL, -1);
    free((char *)(uintptr_t)crlf.merges.text);
    free((char *)(uintptr_t)f.vocab.text);
    free((char *)(uintptr_t)f.merges.text);
}

static void check_table_refused(const char *table, size_t n_bytes, int64_t n_vocabulary,
                                const char *wanted)
{
    struct dk_error err = {0};
    struct tokenizer *t = tokenizer_table_memory("table", table, n_bytes, n_vocabulary, &err);
    CHECK(!t && strstr(err.message, wanted), "%s \"%s\", wanted \"%s\"", t ? "opened" : "refused",
          err.message, wanted);
    tokenizer_free(t);
}

static void check_damaged_table(char *table, size_t n_bytes)
{
    const size_t header = TOKENIZER_TABLE_HEADER_BYTES;
    check_table_refused(table, n_bytes, 513, "514 to 49408");
    check_table_refused(table, n_bytes, 49409, "514 to 49408");
    check_table_refused(table, n_bytes, -1, "514 to 49408");
    check_table_refused(table, n_bytes, INT64_MAX, "514 to 49408");
    for (size_t cut = 0; cut < n_bytes; cut += 4093) check_table_refused(table, cut, 1000, "table");
    for (size_t bit = 0; bit < 8 * n_bytes; bit += 9973) {
        table[bit / 8] ^= (char)(1 << bit % 8);
        check_table_refused(table, n_bytes, 1000, "table");
        table[bit / 8] ^= (char)(1 << bit % 8);
    }
    /* A checksum that fits is no reason to believe the ids. */
    unsigned char small[16 + 8] = TOKENIZER_TABLE_MAGIC;
    small[8] = 2;
    small[header + 4] = 1; /* merge 1: 513 and 0, but 513 is itself */
    small[header + 5] = 2;
    uint32_t sum = tokenizer_table_sum(small + header, 8);
    for (int i = 0; i < 4; i++) small[12 + i] = (unsigned char)(sum >> 8 * i);
    check_table_refused((char *)small, sizeof small, 516, "merge 1 joins 513 and 0");
    small[header + 4] = small[header + 5] = 0;
    sum = tokenizer_table_sum(small + header, 8);
    for (int i = 0; i < 4; i++) small[12 + i] = (unsigned char)(sum >> 8 * i);
    check_table_refused((char *)small, sizeof small, 516, "merge 1 is there twice");
}

int main(void)
{
    struct dk_error err = {0};
    size_t n_table;
    char *table = file_read(TABLE, &n_table);
    struct tokenizer *t = tokenizer_open_table(TABLE, 49408, &err);
    CHECK(t && table, "%s", err.message);
    if (t && table) {
        check_golden(t, "table");
        check_merge_order(t, table, 48894);
        check_odd_bytes(t);
        check_marks(t);
        check_long(t);
        check_random(t);
        check_damaged_table(table, n_table);
    }
    tokenizer_free(t);
    free(table);

    t = tokenizer_open_folder(MODELS "/tiny-sd1/tokenizer", &err);
    CHECK(t != NULL, "%s", err.message);
    if (t) check_golden(t, "folder");
    tokenizer_free(t);
    check_model(MODELS "/tiny-sd1/tokenizer", 49408, 49407);
    check_model(MODELS "/tiny-sd2/tokenizer", 1000, 0);
    check_model(MODELS "/tiny-sdxl/tokenizer", 1000, 999);
    check_model(MODELS "/tiny-sdxl/tokenizer_2", 1000, 0);
    check_model("models/emoji/tokenizer", 2048, 2047);
    check_prefix();
    check_emoji();
    check_damaged_folder();

    err = (struct dk_error){0};
    CHECK(!tokenizer_open_folder("tests/golden/nowhere", &err) &&
              strstr(err.message, "nowhere/vocab.json"),
          "%s", err.message);
    return check_end("checktokenizer");
}
