/* prompt.c - a prompt as chunks of token ids with weights. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/prompt.h"

#include "pipeline/decimal.h"
#include "pipeline/excerpt.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUND_FACTOR   1.1 /* A1111, prompt_parser.py */
#define SQUARE_FACTOR  (1 / 1.1)
#define COMMA_REACH    20 /* A1111's comma_padding_backtrack, for chunks of */
#define COMMA_REACH_OF 75
#define PRODUCT_LIMIT  1e30 /* of nested factors, so that no product becomes infinite */

enum warning {
    UNCLOSED,
    BAD_WEIGHT,
    SCHEDULE,
    ALTERNATE,
    AND_WORD,
    TAG,
    TOO_HEAVY,
    BAD_UTF8,
    N_WARNINGS
};
_Static_assert(N_WARNINGS == PROMPT_N_WARNINGS, "one of each kind has room");

/* One place of the text that is not plain text. */
enum mark_kind { OPEN, CLOSE, ESCAPE, BREAK };

struct mark {
    size_t begin, end; /* bytes of the text */
    enum mark_kind kind;
    bool square;   /* of OPEN and CLOSE: [] or () */
    bool literal;  /* of OPEN and CLOSE: text after all */
    double factor; /* of OPEN */
    /* Of an open square bracket: what stands directly in it. */
    size_t n_colons;
    bool has_bar, has_when;
    size_t below; /* the OPEN of the same shape around it, as an index + 1; 0: none */
};

struct parser {
    const char *text;
    size_t n_bytes, at;
    struct mark *marks;
    size_t n_marks, capacity;
    size_t open[2]; /* [round, square] innermost open bracket as an index + 1; 0: none */
    struct prompt *out;
    bool warned[N_WARNINGS];
    bool no_memory;
};

static void __attribute__((format(printf, 4, 5)))
warn(struct prompt *out, bool *warned, enum warning kind, const char *format, ...)
{
    if (warned[kind]) return;
    warned[kind] = true;
    va_list list;
    va_start(list, format);
    vsnprintf(out->warnings[out->n_warnings], sizeof out->warnings[0], format, list);
    va_end(list);
    out->n_warnings++;
}

static struct excerpt part(const struct parser *p, size_t begin, size_t end)
{
    return excerpt(p->text + begin, end - begin);
}

/* ---- reading: text -> marks ---- */

static struct mark *mark_add(struct parser *p, enum mark_kind kind, size_t n_bytes)
{
    if (p->n_marks == p->capacity) {
        size_t capacity = p->capacity ? 2 * p->capacity : 32;
        struct mark *marks = realloc(p->marks, capacity * sizeof *marks);
        if (!marks) {
            p->no_memory = true;
            return NULL;
        }
        p->marks = marks;
        p->capacity = capacity;
    }
    struct mark *mark = &p->marks[p->n_marks++];
    *mark = (struct mark){.begin = p->at, .end = p->at + n_bytes, .kind = kind};
    p->at += n_bytes;
    return mark;
}

static void bracket_open(struct parser *p, bool square)
{
    struct mark *mark = mark_add(p, OPEN, 1);
    if (!mark) return;
    mark->square = square;
    mark->factor = square ? SQUARE_FACTOR : ROUND_FACTOR;
    mark->below = p->open[square];
    p->open[square] = p->n_marks;
}

/* Closes the innermost bracket of the shape, which is open; returns where it was opened. */
static struct mark *bracket_close(struct parser *p, bool square, size_t n_bytes)
{
    struct mark *close = mark_add(p, CLOSE, n_bytes);
    if (!close) return NULL;
    close->square = square;
    struct mark *open = &p->marks[p->open[square] - 1];
    p->open[square] = open->below;
    return open;
}

/* The innermost open bracket, if it is a square one. */
static struct mark *square_here(struct parser *p)
{
    return p->open[1] > p->open[0] ? &p->marks[p->open[1] - 1] : NULL;
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}
static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/*
 * ": number closing" at the parser's place, in A1111's terms :\s*[+-]?[.\d]+\s*\) . Returns its
 * length, or 0; *value is NAN when the digits and dots are no number.
 */
static size_t number_ahead(const struct parser *p, char closing, double *value)
{
    const char *s = p->text + p->at + 1, *limit = p->text + p->n_bytes;
    while (s < limit && is_blank(*s)) s++;
    bool minus = s < limit && *s == '-';
    if (s < limit && (*s == '-' || *s == '+')) s++;
    const char *first = s;
    s = decimal_read(s, limit, value);
    if (minus) *value = -*value;
    if (s == first) return 0;
    while (s < limit && is_blank(*s)) s++;
    return s < limit && *s == closing ? (size_t)(s + 1 - (p->text + p->at)) : 0;
}

static void colon(struct parser *p)
{
    double value;
    size_t n = p->open[0] ? number_ahead(p, ')', &value) : 0;
    if (n) {
        struct mark *open = bracket_close(p, false, n);
        if (!open) return;
        open->factor = value;
        if (!isnan(value)) return;
        open->literal = p->marks[p->n_marks - 1].literal = true;
        warn(p->out, p->warned, BAD_WEIGHT,
             "prompt: \"%s\" has no number as its weight: taken as plain text",
             part(p, open->begin, p->at).text);
        return;
    }
    struct mark *square = square_here(p);
    if (square) {
        square->n_colons++;
        square->has_when = square->has_when || number_ahead(p, ']', &value);
    }
    p->at++;
}

static void square_close(struct parser *p)
{
    struct mark *open = bracket_close(p, true, 1);
    if (!open || (!open->has_bar && !open->has_when && open->n_colons < 2)) return;
    open->literal = p->marks[p->n_marks - 1].literal = true;
    struct excerpt shown = part(p, open->begin, p->at);
    if (open->has_bar) {
        warn(p->out, p->warned, ALTERNATE,
             "prompt: \"%s\" is taken as plain text: alternating words are not supported",
             shown.text);
    } else {
        warn(p->out, p->warned, SCHEDULE,
             "prompt: \"%s\" is taken as plain text: changing the prompt between steps is not "
             "supported",
             shown.text);
    }
}

static bool is_word_byte(unsigned char c)
{
    return c >= 0x80 || c == '_' || is_digit((char)c) || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z');
}

/* The word stands at the parser's place, as a word of its own. */
static bool word_here(const struct parser *p, const char *word)
{
    size_t n = strlen(word), end = p->at + n;
    return end <= p->n_bytes && memcmp(p->text + p->at, word, n) == 0 &&
           (p->at == 0 || !is_word_byte((unsigned char)p->text[p->at - 1])) &&
           (end == p->n_bytes || !is_word_byte((unsigned char)p->text[end]));
}

/*
 * Bytes of a tag <name:...> at the parser's place, or 0. It ends before the next '<', so a row of
 * them is linear.
 */
static size_t tag_here(const struct parser *p)
{
    size_t i = p->at + 1;
    while (i < p->n_bytes && is_word_byte((unsigned char)p->text[i])) i++;
    if (i == p->at + 1 || i == p->n_bytes || p->text[i] != ':') return 0;
    while (i < p->n_bytes && p->text[i] != '<' && p->text[i] != '>') i++;
    return i < p->n_bytes && p->text[i] == '>' ? i + 1 - p->at : 0;
}

static void tag(struct parser *p)
{
    size_t n = tag_here(p);
    if (n) {
        warn(p->out, p->warned, TAG,
             "prompt: \"%s\" is taken as plain text: tags are not supported in prompts",
             part(p, p->at, p->at + n).text);
    }
    p->at += n ? n : 1;
}

static void read_one(struct parser *p)
{
    char c = p->text[p->at], next = p->at + 1 < p->n_bytes ? p->text[p->at + 1] : '\0';
    if (c == '\\' && next && strchr("()[]\\", next)) {
        mark_add(p, ESCAPE, 2);
    } else if (c == '(' || c == '[') {
        bracket_open(p, c == '[');
    } else if (c == ')' && p->open[0]) {
        bracket_close(p, false, 1);
    } else if (c == ']' && p->open[1]) {
        square_close(p);
    } else if (c == ':') {
        colon(p);
    } else if (c == '<') {
        tag(p);
    } else if (c == 'B' && word_here(p, "BREAK")) {
        mark_add(p, BREAK, 5);
    } else {
        if (c == '|' && square_here(p)) square_here(p)->has_bar = true;
        if (c == 'A' && word_here(p, "AND")) {
            warn(p->out, p->warned, AND_WORD,
                 "prompt: AND is taken as a word: combining prompts is not supported");
        }
        p->at++;
    }
}

static bool read_marks(struct parser *p)
{
    while (p->at < p->n_bytes && !p->no_memory) read_one(p);
    for (int square = 0; square < 2 && !p->no_memory; square++) {
        if (!p->open[square]) continue;
        const struct mark *open = &p->marks[p->open[square] - 1];
        warn(p->out, p->warned, UNCLOSED,
             "prompt: the bracket of \"%s\" is never closed: it reaches to the end",
             part(p, open->begin, p->n_bytes).text);
    }
    return !p->no_memory;
}

/* ---- chunks ---- */

struct chunker {
    const struct tokenizer *tokenizer;
    struct prompt *out;
    size_t capacity; /* chunks there is room for */
    int64_t fill;    /* tokens of text in the last chunk */
    int64_t comma;   /* where the last comma of the last chunk is, -1: none */
    int32_t comma_id;
    int64_t reach;
    bool warned[N_WARNINGS];
    struct dk_error *err;
};

static bool chunks_reserve(struct prompt *out, size_t n_chunks, size_t *capacity,
                           struct dk_error *err)
{
    if (n_chunks <= *capacity) return true;
    size_t n = n_chunks * (size_t)out->n_tokens;
    int32_t *ids = realloc(out->ids, n * sizeof *ids);
    if (ids) out->ids = ids;
    float *weights = realloc(out->weights, n * sizeof *weights);
    if (weights) out->weights = weights;
    if (!ids || !weights)
        return dk_fail(err, DK_ERROR_MEMORY, "prompt: no memory for %zu chunks", n_chunks);
    *capacity = n_chunks;
    return true;
}

/*
 * A chunk of an empty text after the others, for which there is room: the text then overwrites its
 * beginning.
 */
static void chunk_add(struct prompt *out)
{
    size_t first = out->n_chunks++ * (size_t)out->n_tokens;
    for (int64_t i = 0; i < out->n_tokens; i++) {
        out->ids[first + (size_t)i] = i == 0 ? out->start : i == 1 ? out->end : out->pad;
        out->weights[first + (size_t)i] = 1;
    }
}

static bool chunk_next(struct chunker *c)
{
    struct prompt *out = c->out;
    if (out->n_chunks == PROMPT_MAX_CHUNKS) {
        return dk_fail(c->err, DK_ERROR_ARGUMENT,
                       "prompt: the text is longer than %d chunks of %lld tokens: shorten it",
                       PROMPT_MAX_CHUNKS, (long long)out->n_tokens - 2);
    }
    size_t wanted = out->n_chunks + 1;
    if (wanted > c->capacity && wanted > 1) wanted *= 2;
    if (!chunks_reserve(out, wanted, &c->capacity, c->err)) return false;
    chunk_add(out);
    c->fill = 0;
    c->comma = -1;
    return true;
}

static void token_put(struct chunker *c, int32_t id, float weight)
{
    struct prompt *out = c->out;
    size_t at = (out->n_chunks - 1) * (size_t)out->n_tokens + 1 + (size_t)c->fill++;
    out->ids[at] = id;
    out->weights[at] = weight;
    out->ids[at + 1] = out->end; /* the padding after it is there already */
}

/* The last chunk is full and its last comma near: what follows the comma moves into a new chunk. */
static bool chunk_split(struct chunker *c)
{
    struct prompt *out = c->out;
    int64_t keep = c->comma + 1, n = c->fill - keep;
    size_t from = (out->n_chunks - 1) * (size_t)out->n_tokens + 1 + (size_t)keep;
    if (!chunk_next(c)) return false;
    for (int64_t i = 0; i < n; i++)
        token_put(c, out->ids[from + (size_t)i], out->weights[from + (size_t)i]);
    for (int64_t i = 0; i <= n; i++) {
        out->ids[from + (size_t)i] = i == 0 ? out->end : out->pad;
        out->weights[from + (size_t)i] = 1;
    }
    return true;
}

static bool token_add(struct chunker *c, int32_t id, float weight)
{
    bool full = c->fill == c->out->n_tokens - 2;
    if (full && id != c->comma_id && c->comma >= 0 && c->fill - c->comma <= c->reach) {
        if (!chunk_split(c)) return false;
    } else if (full && !chunk_next(c)) {
        return false;
    }
    if (id == c->comma_id) c->comma = c->fill;
    token_put(c, id, weight);
    c->out->n_text_tokens++;
    if (weight < 1 || weight > 1) c->out->weighted = true;
    return true;
}

static bool text_add(struct chunker *c, const char *text, size_t n_bytes, float weight)
{
    int32_t *ids;
    size_t n_ids, n_replaced;
    if (!tokenizer_encode(c->tokenizer, text, n_bytes, &ids, &n_ids, &n_replaced, c->err))
        return false;
    bool ok = true;
    for (size_t i = 0; ok && i < n_ids; i++) ok = token_add(c, ids[i], weight);
    free(ids);
    c->out->n_replaced += n_replaced;
    return ok;
}

/* ---- writing: marks and text -> weighted texts -> chunks ---- */

/*
 * Adjacent texts of one weight become one text before they are tokenised, as in A1111: "(a)(b)" is
 * the word "ab".
 */
struct writer {
    struct chunker *chunker;
    char *text; /* [n_bytes of the prompt] */
    size_t n_bytes;
    float weight;
    double *products; /* [n_marks + 2]: two stacks, round from the start, square from the end */
    size_t n_round, n_square, n_products;
};

static bool writer_flush(struct writer *w)
{
    bool ok = !w->n_bytes || text_add(w->chunker, w->text, w->n_bytes, w->weight);
    w->n_bytes = 0;
    return ok;
}

static double round_product(const struct writer *w)
{
    return w->products[w->n_round];
}
static double square_product(const struct writer *w)
{
    return w->products[w->n_products - 1 - w->n_square];
}

static bool writer_text(struct writer *w, const char *text, size_t n_bytes)
{
    if (!n_bytes) return true;
    double weight = round_product(w) * square_product(w);
    if (fabs(weight) > PROMPT_MAX_WEIGHT) {
        weight = copysign(PROMPT_MAX_WEIGHT, weight);
        warn(w->chunker->out, w->chunker->warned, TOO_HEAVY,
             "prompt: the weight of \"%s\" is beyond %g: taken as %g", excerpt(text, n_bytes).text,
             PROMPT_MAX_WEIGHT, weight);
    }
    float rounded = (float)weight; /* 1.1 * (1 / 1.1) is 1 again */
    if ((rounded < w->weight || rounded > w->weight) && !writer_flush(w)) return false;
    w->weight = rounded;
    memcpy(w->text + w->n_bytes, text, n_bytes);
    w->n_bytes += n_bytes;
    return true;
}

static double product(double a, double b)
{
    return fmax(-PRODUCT_LIMIT, fmin(PRODUCT_LIMIT, a * b));
}

static bool writer_mark(struct writer *w, const char *text, const struct mark *mark)
{
    switch (mark->kind) {
    case ESCAPE:
        return writer_text(w, text + mark->begin + 1, 1);
    case BREAK:
        return writer_flush(w) && chunk_next(w->chunker);
    case OPEN:
        if (mark->literal) break;
        if (mark->square) {
            double value = product(square_product(w), mark->factor);
            w->products[w->n_products - 1 - ++w->n_square] = value;
        } else {
            double value = product(round_product(w), mark->factor);
            w->products[++w->n_round] = value;
        }
        return true;
    case CLOSE:
        if (mark->literal) break;
        --*(mark->square ? &w->n_square : &w->n_round);
        return true;
    }
    return writer_text(w, text + mark->begin, mark->end - mark->begin);
}

static bool write_marks(const struct parser *p, struct chunker *chunker)
{
    struct writer w = {.chunker = chunker, .weight = 1, .n_products = p->n_marks + 2};
    w.text = malloc(p->n_bytes + 1);
    w.products = malloc(w.n_products * sizeof *w.products);
    bool ok =
        (w.text && w.products) || dk_fail(chunker->err, DK_ERROR_MEMORY,
                                          "prompt: no memory for a text of %zu bytes", p->n_bytes);
    if (ok) w.products[0] = w.products[w.n_products - 1] = 1;
    size_t at = 0;
    for (size_t i = 0; ok && i < p->n_marks; i++) {
        const struct mark *mark = &p->marks[i];
        ok = writer_text(&w, p->text + at, mark->begin - at) && writer_mark(&w, p->text, mark);
        at = mark->end;
    }
    ok = ok && writer_text(&w, p->text + at, p->n_bytes - at) && writer_flush(&w);
    free(w.text);
    free(w.products);
    return ok;
}

static bool syntax_add(struct chunker *c, const char *text, size_t n_bytes)
{
    struct parser p = {.text = text, .n_bytes = n_bytes, .out = c->out};
    bool ok = read_marks(&p) || dk_fail(c->err, DK_ERROR_MEMORY,
                                        "prompt: no memory for a text of %zu bytes", n_bytes);
    ok = ok && write_marks(&p, c);
    free(p.marks);
    return ok;
}

static bool comma_find(struct chunker *c)
{
    int32_t *ids;
    size_t n_ids;
    if (!tokenizer_encode(c->tokenizer, ",", 1, &ids, &n_ids, NULL, c->err)) return false;
    c->comma_id = n_ids == 1 ? ids[0] : -1;
    free(ids);
    return true;
}

bool prompt_chunks(const struct tokenizer *tokenizer, const char *text, size_t n_bytes, bool syntax,
                   int64_t n_tokens, int32_t pad_id, struct prompt *out, struct dk_error *err)
{
    int32_t end = tokenizer_end(tokenizer);
    *out = (struct prompt){.n_tokens = n_tokens,
                           .start = tokenizer_start(tokenizer),
                           .end = end,
                           .pad = pad_id < 0 ? end : pad_id};
    struct chunker c = {.tokenizer = tokenizer,
                        .out = out,
                        .reach = COMMA_REACH * (n_tokens - 2) / COMMA_REACH_OF,
                        .err = err};
    bool ok =
        (n_tokens >= 3 && n_tokens <= 1 << 16) ||
        dk_fail(err, DK_ERROR_MODEL, "prompt: a text encoder of %lld tokens, expected 3 to %d",
                (long long)n_tokens, 1 << 16);
    if (n_bytes > PROMPT_MAX_BYTES) {
        ok = dk_fail(err, DK_ERROR_ARGUMENT,
                     "prompt: a text of %zu bytes is too long, at most %d are taken", n_bytes,
                     PROMPT_MAX_BYTES);
    }
    if (!n_bytes) text = "";
    ok = ok && comma_find(&c) && chunk_next(&c) &&
         (syntax ? syntax_add(&c, text, n_bytes) : text_add(&c, text, n_bytes, 1));
    if (ok && out->n_replaced) {
        warn(out, c.warned, BAD_UTF8,
             "prompt: %zu sequences of bytes are not UTF-8: each taken as U+FFFD", out->n_replaced);
    }
    if (!ok) prompt_free(out);
    return ok;
}

bool prompt_pad(struct prompt *prompt, size_t n_chunks, struct dk_error *err)
{
    size_t capacity = prompt->n_chunks;
    if (n_chunks > PROMPT_MAX_CHUNKS) {
        return dk_fail(err, DK_ERROR_ARGUMENT,
                       "prompt: %zu chunks were asked for, at most %d are made", n_chunks,
                       PROMPT_MAX_CHUNKS);
    }
    if (!chunks_reserve(prompt, n_chunks, &capacity, err)) return false;
    while (prompt->n_chunks < n_chunks) chunk_add(prompt);
    return true;
}

void prompt_free(struct prompt *prompt)
{
    free(prompt->ids);
    free(prompt->weights);
    *prompt = (struct prompt){0};
}
