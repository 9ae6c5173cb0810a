/* pieces.c - a text as the normalised pieces within which CLIP's tokenizer merges. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/pieces.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define REPLACEMENT 0xFFFD
/* Every character below is the same in NFC, whatever stands beside it. */
#define FIRST_NOT_STABLE 0x300
#define MAX_DECOMPOSED   8 /* canonical decompositions have at most 4 characters */

/*
 * One run without white space. NFC never reaches across white space, so runs are normalised one by
 * one.
 */
struct run {
    int32_t *points;      /* [n], room for capacity */
    int32_t *spare;       /* [capacity] */
    unsigned char *bytes; /* [4 * capacity]: UTF-8 of a piece */
    size_t n, capacity;
    bool stable; /* all characters so far are below FIRST_NOT_STABLE */
};

static void run_free(struct run *run)
{
    free(run->points);
    free(run->spare);
    free(run->bytes);
}

static bool run_reserve(struct run *run, size_t n)
{
    if (n <= run->capacity) return true;
    size_t capacity = run->capacity ? run->capacity : 256;
    while (capacity < n) capacity *= 2;
    int32_t *points = realloc(run->points, capacity * sizeof *points);
    if (points) run->points = points;
    int32_t *spare = realloc(run->spare, capacity * sizeof *spare);
    if (spare) run->spare = spare;
    unsigned char *bytes = realloc(run->bytes, capacity * 4);
    if (bytes) run->bytes = bytes;
    if (!points || !spare || !bytes) return false;
    run->capacity = capacity;
    return true;
}

/*
 * One character of at least one byte; returns the bytes it takes. What is not well-formed (Unicode
 * table 3-7) gives REPLACEMENT and -- in *valid -- false, and takes the longest beginning of a
 * well-formed sequence, at least a byte.
 */
static size_t decode(const unsigned char *s, size_t n, int32_t *point, bool *valid)
{
    unsigned char lead = s[0], low = 0x80, high = 0xBF;
    size_t length = 0;
    *valid = true;
    if (lead < 0x80) {
        *point = lead;
        return 1;
    }
    if (lead >= 0xC2 && lead <= 0xDF) length = 2;
    if (lead >= 0xE0 && lead <= 0xEF) length = 3;
    if (lead >= 0xF0 && lead <= 0xF4) length = 4;
    if (lead == 0xE0) low = 0xA0;  /* shorter forms exist */
    if (lead == 0xED) high = 0x9F; /* surrogates */
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F; /* beyond U+10FFFF */
    int32_t value = length ? lead & (0x7F >> length) : 0;
    size_t i = 1;
    for (; i < length && i < n && s[i] >= low && s[i] <= high; i++) {
        value = value << 6 | (s[i] & 0x3F);
        low = 0x80;
        high = 0xBF;
    }
    *valid = length && i == length;
    *point = *valid ? value : REPLACEMENT;
    return i;
}

/* Unicode's White_Space property. */
static bool is_space(int32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

enum kind { LETTER, NUMBER, OTHER };

static enum kind kind_of(int32_t c)
{
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return LETTER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return NUMBER;
    default:
        return OTHER;
    }
}

static int combining_class(int32_t c)
{
    return utf8proc_get_property(c)->combining_class;
}

/*
 * Canonical order of n characters that are all marks (combining class above 0): by class, equal
 * ones as they came. One pass for each class that occurs; there are fewer than 60. utf8proc's own
 * ordering is quadratic in n, which a megabyte of marks would turn into hours.
 */
static void order_marks(int32_t *marks, size_t n, int32_t *spare)
{
    size_t n_sorted = 0;
    for (int class = 0; n_sorted < n;) {
        int next = 256;
        for (size_t i = 0; i < n; i++) {
            int other = combining_class(marks[i]);
            if (other > class && other < next) next = other;
        }
        class = next;
        for (size_t i = 0; i < n; i++) {
            if (combining_class(marks[i]) == class) spare[n_sorted++] = marks[i];
        }
    }
    memcpy(marks, spare, n * sizeof *marks);
}

static bool run_compose(struct run *run)
{
    size_t n_source = run->n, n = 0;
    memcpy(run->spare, run->points, n_source * sizeof *run->points);
    for (size_t i = 0; i < n_source; i++) {
        int boundary = 0;
        utf8proc_int32_t parts[MAX_DECOMPOSED] = {run->spare[i]};
        utf8proc_ssize_t n_parts = utf8proc_decompose_char(
            run->spare[i], parts, MAX_DECOMPOSED, UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &boundary);
        if (n_parts < 1 || n_parts > MAX_DECOMPOSED)
            n_parts = 1; /* never seen: the character itself */
        if (!run_reserve(run, n + (size_t)n_parts)) return false;
        for (utf8proc_ssize_t k = 0; k < n_parts; k++) run->points[n++] = parts[k];
    }
    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end < n && combining_class(run->points[end]) > 0) end++;
        if (end > i + 1) order_marks(run->points + i, end - i, run->spare);
        i = end + 1;
    }
    utf8proc_ssize_t n_composed = utf8proc_normalize_utf32(run->points, (utf8proc_ssize_t)n,
                                                           UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    run->n = n_composed < 0 ? n : (size_t)n_composed;
    return true;
}

/*
 * U+0130 is the only character whose lower case, without regard to language, has two (Unicode's
 * SpecialCasing).
 */
static bool run_lower(struct run *run)
{
    size_t n_dotted = 0;
    for (size_t i = 0; i < run->n; i++) n_dotted += run->points[i] == 0x130;
    if (!run_reserve(run, run->n + n_dotted)) return false;
    size_t to = run->n + n_dotted;
    for (size_t i = run->n; i-- > 0;) {
        if (run->points[i] == 0x130) {
            run->points[--to] = 0x307;
            run->points[--to] = 'i';
        } else {
            run->points[--to] = utf8proc_tolower(run->points[i]);
        }
    }
    run->n += n_dotted;
    return true;
}

/* Characters of the piece at points[0]; n is at least 1. */
static size_t piece_length(const int32_t *points, size_t n)
{
    static const char *const endings[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    if (points[0] == '\'') {
        for (size_t e = 0; e < sizeof endings / sizeof *endings; e++) {
            size_t length = strlen(endings[e]), i = 0;
            while (i < length && i + 1 < n && points[i + 1] == endings[e][i]) i++;
            if (i == length) return length + 1;
        }
    }
    enum kind kind = kind_of(points[0]);
    size_t length = 1;
    if (kind == NUMBER) return length;
    while (length < n && kind_of(points[length]) == kind) length++;
    return length;
}

static bool run_cut(struct run *run, pieces_each_fn *each, void *user, struct dk_error *err)
{
    for (size_t begin = 0; begin < run->n;) {
        size_t length = piece_length(run->points + begin, run->n - begin), n_bytes = 0;
        for (size_t i = begin; i < begin + length; i++) {
            n_bytes += (size_t)utf8proc_encode_char(run->points[i], run->bytes + n_bytes);
        }
        if (!each(user, run->bytes, n_bytes, err)) return false;
        begin += length;
    }
    return true;
}

static bool run_end(struct run *run, pieces_each_fn *each, void *user, struct dk_error *err)
{
    if (!run->n) return true;
    if ((!run->stable && !run_compose(run)) || !run_lower(run)) {
        return dk_fail(err, DK_ERROR_MEMORY, "prompt: no memory for a word of %zu characters",
                       run->n);
    }
    bool ok = run_cut(run, each, user, err);
    run->n = 0;
    run->stable = true;
    return ok;
}

bool pieces_each(const char *text, size_t n_bytes, pieces_each_fn *each, void *user,
                 size_t *n_replaced, struct dk_error *err)
{
    struct run run = {.stable = true};
    bool ok = true;
    for (size_t i = 0; ok && i < n_bytes;) {
        int32_t point;
        bool valid;
        i += decode((const unsigned char *)text + i, n_bytes - i, &point, &valid);
        if (!valid) ++*n_replaced;
        if (is_space(point)) {
            ok = run_end(&run, each, user, err);
        } else if (run_reserve(&run, run.n + 1)) {
            run.points[run.n++] = point;
            if (point >= FIRST_NOT_STABLE) run.stable = false;
        } else {
            ok =
                dk_fail(err, DK_ERROR_MEMORY, "prompt: no memory for a text of %zu bytes", n_bytes);
        }
    }
    ok = ok && run_end(&run, each, user, err);
    run_free(&run);
    return ok;
}
