/* checkprompt.c - prompt syntax, weights and chunks. */
/* SPDX-License-Identifier: MIT */
#include "check.h"
#include "pipeline/prompt.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

struct piece {
    const char *text;
    float weight;
};

/*
 * The tokens of text are those of the pieces, one piece after the other, each with its weight; n
 * chunks in all.
 */
static void check_pieces(const struct tokenizer *t, const char *text, const struct piece *pieces,
                         size_t n_warnings, const char *warning)
{
    struct prompt p;
    struct dk_error err = {0};
    bool ok = prompt_chunks(t, text, strlen(text), true, 77, -1, &p, &err);
    CHECK(ok, "\"%s\": %s", text, err.message);
    if (!ok) return;
    size_t at = 1, n_wrong = 0;
    for (; pieces->text; pieces++) {
        int32_t *ids;
        size_t n_ids;
        if (!tokenizer_encode(t, pieces->text, strlen(pieces->text), &ids, &n_ids, NULL, NULL))
            return;
        for (size_t i = 0; i < n_ids && at < 76; i++, at++) {
            if (p.ids[at] != ids[i] || fabsf(p.weights[at] - pieces->weight) > 1e-6f) n_wrong++;
        }
        free(ids);
    }
    CHECK(n_wrong == 0 && at == p.n_text_tokens + 1 && p.n_chunks == 1,
          "\"%s\": %zu wrong, %zu tokens, not %zu", text, n_wrong, p.n_text_tokens, at - 1);
    CHECK(p.n_warnings == n_warnings && (!n_warnings || strstr(p.warnings[0], warning)),
          "\"%s\": %zu warnings, \"%s\"", text, p.n_warnings, p.n_warnings ? p.warnings[0] : "");
    prompt_free(&p);
}

static void check_syntax(const struct tokenizer *t)
{
    const float up = 1.1f, down = 1 / 1.1f;
    static const struct {
        const char *text, *warning;
        struct piece pieces[6];
    } plain[] = {
        {"a red cat", NULL, {{"a red cat", 1}}},
        {"", NULL, {{NULL, 0}}},
        {"web 2.0", NULL, {{"web 2.0", 1}}},
        {"portrait, f/2.8, 1.5 m", NULL, {{"portrait, f/2.8, 1.5 m", 1}}},
        {"time: 12:30", NULL, {{"time: 12:30", 1}}},
        {"a) b] c:1.5)", NULL, {{"a) b] c:1.5)", 1}}},
        {"C:\\dir\\name", NULL, {{"C:\\dir\\name", 1}}},
        {"\\(a\\) \\[b\\] \\\\", NULL, {{"(a) [b] \\", 1}}},
        {"(a:1)", NULL, {{"a", 1}}},
        {"([a])", NULL, {{"a", 1}}},
        {"()[](:2)", NULL, {{NULL, 0}}},
        {"a (cat:1.5) b", NULL, {{"a", 1}, {"cat", 1.5f}, {"b", 1}}},
        {"a (cat: 1.5 ) b", NULL, {{"a", 1}, {"cat", 1.5f}, {"b", 1}}},
        {"(a:.5)(b:2.)(c:-1)(d:+3)", NULL, {{"a", .5f}, {"b", 2}, {"c", -1}, {"d", 3}}},
        {"(a:0)", NULL, {{"a", 0}}},
        {"((a:2) b:3)", NULL, {{"a", 6}, {"b", 3}}},
        {"(a:b:2)", NULL, {{"a:b", 2}}},
        {"(cat:2)s (cat:2)(fish:2)", NULL, {{"cat", 2}, {"s", 1}, {"catfish", 2}}},
        {"(x\\):2)", NULL, {{"x)", 2}}},
        {"ANDROID BREAKFAST a|b", NULL, {{"ANDROID BREAKFAST a|b", 1}}},
        /* not understood: plain text and one warning, however often it occurs */
        {"(a:1.2.3)", "no number as its weight", {{"(a:1.2.3)", 1}}},
        {"(a:.) (b:..)", "no number as its weight", {{"(a:.) (b:..)", 1}}},
        {"((a:2):1.2.3)", "no number as its weight", {{"(", 1}, {"a", 2}, {":1.2.3)", 1}}},
        {"[cats:0.3] in a house", "changing the prompt", {{"[cats:0.3] in a house", 1}}},
        {"[a:b:0.5]", "changing the prompt", {{"[a:b:0.5]", 1}}},
        {"[a::5]", "changing the prompt", {{"[a::5]", 1}}},
        {"[a:b:]", "changing the prompt", {{"[a:b:]", 1}}},
        {"[a|b] [c|d]", "alternating", {{"[a|b] [c|d]", 1}}},
        {"[(a:2)|b]", "alternating", {{"[", 1}, {"a", 2}, {"|b]", 1}}},
        {"cat AND dog", "AND", {{"cat AND dog", 1}}},
        {"<lora:x:abc> cat", "\"<lora:x:abc>\"", {{"<lora:x:abc> cat", 1}}},
        {"<lora:x(1):2> cat", "tags", {{"<lora:x(1):2> cat", 1}}},
        {"<a <b:c <d>", NULL, {{"<a <b:c <d>", 1}}},
        {"(a:1000)", "beyond 100", {{"a", 100}}},
        {"(a:-99999999999999999999999999999999999999999999)", "beyond 100", {{"a", -100}}},
        {"a \xFF", "not UTF-8", {{"a \xEF\xBF\xBD", 1}}},
    };
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        check_pieces(t, plain[i].text, plain[i].pieces, plain[i].warning ? 1 : 0, plain[i].warning);
    }
    const struct {
        const char *text, *warning;
        struct piece pieces[6];
    } factors[] = {
        {"(a)", NULL, {{"a", up}}},
        {"[a]", NULL, {{"a", down}}},
        {"((a) b)", NULL, {{"a", up * up}, {"b", up}}},
        {"[[a]]", NULL, {{"a", down * down}}},
        {"(a:b)", NULL, {{"a:b", up}}},
        {"(a:)", NULL, {{"a:", up}}},
        {"[a:b]", NULL, {{"a:b", down}}},
        {"[(a|b)]", NULL, {{"a|b", 1}}},
        {"(a:1e5)", NULL, {{"a:1e5", up}}},
        {"(a [b) c]", NULL, {{"a", up}, {"b", 1}, {"c", down}}},
        {"a (b", "never closed", {{"a", 1}, {"b", up}}},
        {"a ((b [c", "never closed", {{"a", 1}, {"b", up * up}, {"c", up}}},
        {"(((", "never closed", {{NULL, 0}}},
        {"(a:2", "never closed", {{"a:2", up}}},
        {"(\\", "never closed", {{"\\", up}}},
    };
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        check_pieces(t, factors[i].text, factors[i].pieces, factors[i].warning ? 1 : 0,
                     factors[i].warning);
    }
}

/* With all weights 1 and one chunk the row is what the reference gives to the text encoder. */
static void check_reference(const struct tokenizer *t)
{
    json_t *golden = json_load_file("tests/golden/tokenizer/tokens.json", JSON_ALLOW_NUL, NULL);
    const json_t *cases = json_object_get(golden, "cases");
    size_t n_rows = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i), *text = json_object_get(one, "text");
        if (!json_is_true(json_object_get(one, "agree")) ||
            json_array_size(json_object_get(one, "hf_fast")) > 75)
            continue;
        for (int sd2 = 0; sd2 < 2; sd2++) {
            const json_t *row = json_object_get(one, sd2 ? "padded_sd2" : "padded_sd1");
            struct prompt p;
            struct dk_error err = {0};
            bool ok = prompt_chunks(t, json_string_value(text), json_string_length(text), false, 77,
                                    sd2 ? 0 : -1, &p, &err);
            CHECK(ok && p.n_chunks == 1 && !p.weighted, "case %zu: %s", i, err.message);
            size_t n_wrong = 0;
            for (size_t k = 0; ok && k < 77; k++)
                n_wrong += p.ids[k] != json_integer_value(json_array_get(row, k));
            CHECK(json_array_size(row) == 77 && n_wrong == 0, "case %zu, SD %d: %zu ids differ", i,
                  1 + sd2, n_wrong);
            prompt_free(&p);
            n_rows++;
        }
    }
    CHECK(n_rows > 300, "only %zu rows compared", n_rows);
    json_decref(golden);
}

/* ---- chunks ---- */

/* n words "cat", a comma before the word numbered comma (0: none). */
static struct prompt words(const struct tokenizer *t, size_t n, size_t comma, int64_t n_tokens)
{
    char text[4096] = "";
    size_t at = 0;
    for (size_t i = 0; i < n; i++)
        at += (size_t)sprintf(text + at, "%s", comma && i == comma ? ", cat " : "cat ");
    struct prompt p;
    struct dk_error err = {0};
    CHECK(prompt_chunks(t, text, at, true, n_tokens, 0, &p, &err), "%s", err.message);
    return p;
}

/* Tokens of text in each chunk, as "75 1": found by the end token. */
static void check_fills(struct prompt p, const char *wanted)
{
    char found[256] = "";
    size_t at = 0, sum = 0;
    for (size_t c = 0; c < p.n_chunks; c++) {
        const int32_t *row = p.ids + c * (size_t)p.n_tokens;
        size_t n = 1;
        while (n < (size_t)p.n_tokens && row[n] != p.end) n++;
        at += (size_t)sprintf(found + at, "%s%zu", c ? " " : "", n - 1);
        sum += n - 1;
        bool padded = row[0] == p.start;
        for (size_t i = n + 1; i < (size_t)p.n_tokens; i++) padded = padded && row[i] == p.pad;
        CHECK(padded, "chunk %zu does not begin with the start token or end with padding", c);
    }
    CHECK(strcmp(found, wanted) == 0 && sum == p.n_text_tokens, "chunks of %s, not %s; %zu tokens",
          found, wanted, p.n_text_tokens);
    prompt_free(&p);
}

static struct prompt chunks_of(const struct tokenizer *t, const char *text)
{
    struct prompt p;
    struct dk_error err = {0};
    CHECK(prompt_chunks(t, text, strlen(text), true, 77, 0, &p, &err), "%s", err.message);
    return p;
}

static void check_chunks(const struct tokenizer *t)
{
    check_fills(words(t, 0, 0, 77), "0");
    check_fills(words(t, 74, 0, 77), "74");
    check_fills(words(t, 75, 0, 77), "75");
    check_fills(words(t, 76, 0, 77), "75 1");
    check_fills(words(t, 151, 0, 77), "75 75 1");
    check_fills(words(t, 120, 60, 77),
                "61 60"); /* the comma is token 61: what follows it moves on */
    check_fills(words(t, 120, 55, 77), "56 65"); /* 20 tokens back */
    check_fills(words(t, 120, 54, 77), "75 46"); /* 21 tokens back: a hard cut */
    check_fills(words(t, 120, 74, 77), "75 46"); /* the comma is the last that fits */
    check_fills(words(t, 120, 75, 77), "75 46"); /* the comma itself does not fit */
    check_fills(words(t, 75, 60, 77), "61 15");
    check_fills(words(t, 30, 0, 32), "30");
    check_fills(words(t, 31, 0, 32), "30 1");
    check_fills(words(t, 31, 22, 32), "23 9"); /* a context of 32: 8 tokens back */
    check_fills(words(t, 31, 21, 32), "30 2");
    check_fills(words(t, 3, 0, 3), "1 1 1");
    check_fills(chunks_of(t, "a BREAK b c"), "1 2");
    check_fills(chunks_of(t, "a\nBREAK\nb"), "1 1");
    check_fills(chunks_of(t, "BREAK"), "0 0");
    check_fills(chunks_of(t, "a,BREAK,b BREAK BREAK c"), "2 2 0 1");
    check_fills(chunks_of(t, "aBREAK BREAKb break BREAK_ \xC3\xA9"
                             "BREAK"),
                "9");

    struct prompt p = chunks_of(t, "(a BREAK b:1.5) c");
    CHECK(p.n_chunks == 2 && p.weights[1] == 1.5f && p.weights[78] == 1.5f && p.weights[79] == 1 &&
              p.weighted,
          "BREAK within brackets");
    struct dk_error err = {0};
    CHECK(prompt_pad(&p, 4, &err) && p.n_chunks == 4, "%s", err.message);
    CHECK(p.ids[77] == p.start && p.ids[3 * 77] == p.start && p.ids[3 * 77 + 1] == p.end &&
              p.ids[3 * 77 + 2] == 0 && p.weights[3 * 77 + 5] == 1,
          "the chunk appended is not an empty one");
    CHECK(!prompt_pad(&p, PROMPT_MAX_CHUNKS + 1, &err), "more chunks than the maximum");
    prompt_free(&p);
    p = chunks_of(t, "");
    CHECK(p.ids[0] == 49406 && p.ids[1] == 49407 && p.ids[2] == 0 && p.n_text_tokens == 0,
          "the empty prompt");
    prompt_free(&p);
}

/* ---- texts nobody writes ---- */

static void check_sound(const struct tokenizer *t, const char *text, size_t n_bytes, bool syntax,
                        const char *what)
{
    struct prompt p;
    struct dk_error err = {0};
    if (!prompt_chunks(t, text, n_bytes, syntax, 32, -1, &p, &err)) {
        CHECK(strstr(err.message, "shorten it") && !p.ids && !p.weights, "%s: %s", what,
              err.message);
        return;
    }
    bool sound = p.n_chunks >= 1 && p.n_warnings <= PROMPT_N_WARNINGS;
    for (size_t i = 0; i < p.n_chunks * 32; i++) {
        sound = sound && p.ids[i] >= 0 && p.ids[i] < tokenizer_vocabulary(t) &&
                fabsf(p.weights[i]) <= 100;
    }
    for (size_t i = 0; i < p.n_warnings; i++)
        sound = sound && strncmp(p.warnings[i], "prompt: ", 8) == 0;
    CHECK(sound, "%s", what);
    prompt_free(&p);
}

static void check_odd(const struct tokenizer *t)
{
    static const char *const units[] = {"(",      "[",         "(a",   "[a:",    "(a:9", "((a:9)",
                                        ")",      "\\",        "<a:",  "[|",     ":",    ": ",
                                        "BREAK ", "(BREAK)",   "AND ", "(a:0",   "[(a)", "a ",
                                        "\xFF",   "(\xF0\x9F", ",",    "(a:1.1)"};
    const size_t n = 1 << 20;
    char *text = malloc(n);
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        for (size_t i = 0; i < n; i++) text[i] = units[u][i % strlen(units[u])];
        check_sound(t, text, n, true, units[u]);
    }
    memset(text, 0, n);
    check_sound(t, text, 100, true, "NUL bytes");
    free(text);
    static const char *const atoms[] = {
        "(",        ")",    "[",     "]",   "\\",    ":",    "|",
        "<",        ">",    ".",     "1.5", "-2",    " ",    "a",
        "cat",      ",",    "BREAK", "AND", "lora:", "\xFF", "\xE7\x8C\xAB",
        "\xF0\x9F", "\x1b", "\n"};
    uint32_t state = 5;
    for (int round = 0; round < 3000; round++) {
        char line[512] = "";
        size_t at = 0;
        for (int i = 0; i < 40; i++) {
            state = state * 1664525u + 1013904223u;
            at += (size_t)sprintf(line + at, "%s",
                                  atoms[(state >> 16) % (sizeof atoms / sizeof *atoms)]);
        }
        check_sound(t, line, at, round % 4 != 0, line);
    }
    struct prompt p;
    struct dk_error err = {0};
    CHECK(!prompt_chunks(t, "a", 1, true, 2, -1, &p, &err) && strstr(err.message, "2 tokens"), "%s",
          err.message);
    err = (struct dk_error){0};
    CHECK(!prompt_chunks(t, "a", (size_t)PROMPT_MAX_BYTES + 1, true, 77, -1, &p, &err) &&
              strstr(err.message, "too long"),
          "%s", err.message);
    CHECK(prompt_chunks(t, "a\0(b:2)", 7, true, 77, -1, &p, NULL) && p.n_text_tokens == 3 &&
              p.weights[3] == 2,
          "a NUL byte ends the text");
    prompt_free(&p);
    CHECK(prompt_chunks(t, NULL, 0, true, 77, -1, &p, NULL) && p.n_chunks == 1, "no text");
    prompt_free(&p);
    CHECK(prompt_chunks(t, "((a:2)", 6, false, 77, -1, &p, NULL) && p.n_text_tokens == 6 &&
              !p.weighted && !p.n_warnings,
          "plain mode reads syntax: %zu tokens", p.n_text_tokens);
    prompt_free(&p);
}

int main(void)
{
    struct dk_error err = {0};
    struct tokenizer *clip = tokenizer_open_table("models/clip/merges.bin", 49408, &err);
    struct tokenizer *emoji = tokenizer_open_folder("models/emoji/tokenizer", &err);
    CHECK(clip && emoji, "%s", err.message);
    if (clip && emoji) {
        check_syntax(clip);
        check_reference(clip);
        check_chunks(clip);
        check_odd(emoji);
    }
    tokenizer_free(clip);
    tokenizer_free(emoji);
    return check_end("checkprompt");
}
