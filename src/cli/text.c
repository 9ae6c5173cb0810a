/* text.c - what the command line needs of strings: UTF-8, numbers, likeness, safe printing, whole writes. */
/* SPDX-License-Identifier: MIT */
#include "text.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- memory -------------------------------------------------------------------------------- */

static void out_of_memory(void)
{
    fputs("darkroom: out of memory\n", stderr);
    exit(1);
}

void *text_alloc(size_t size_bytes)
{
    void *memory = calloc(1, size_bytes ? size_bytes : 1);
    if (!memory) out_of_memory();
    return memory;
}

char *text_copy_n(const char *text, size_t n_bytes)
{
    char *copy = text_alloc(n_bytes + 1);
    memcpy(copy, text, n_bytes);
    return copy;
}

char *text_copy(const char *text)
{
    return text_copy_n(text, strlen(text));
}

char *text_format(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = vsnprintf(NULL, 0, format, list);
    va_end(list);
    if (n < 0) out_of_memory();
    char *text = text_alloc((size_t)n + 1);
    va_start(list, format);
    vsnprintf(text, (size_t)n + 1, format, list);
    va_end(list);
    return text;
}

/* ---- UTF-8 --------------------------------------------------------------------------------- */

/* Unicode 15.0, table 3-7: well-formed sequences, so neither overlong forms nor surrogates. */
size_t text_utf8_length(const char *s, size_t n_bytes)
{
    const unsigned char *u = (const unsigned char *)s;
    if (n_bytes == 0) return 0;
    if (u[0] < 0x80) return 1;
    size_t n = u[0] >= 0xC2 && u[0] <= 0xDF   ? 2
               : u[0] >= 0xE0 && u[0] <= 0xEF ? 3
               : u[0] >= 0xF0 && u[0] <= 0xF4 ? 4
                                              : 0;
    if (n == 0 || n > n_bytes) return 0;
    unsigned char low = u[0] == 0xE0 ? 0xA0 : u[0] == 0xF0 ? 0x90 : 0x80;
    unsigned char high = u[0] == 0xED ? 0x9F : u[0] == 0xF4 ? 0x8F : 0xBF;
    if (u[1] < low || u[1] > high) return 0;
    for (size_t i = 2; i < n; i++)
        if (u[i] < 0x80 || u[i] > 0xBF) return 0;
    return n;
}

char *text_repair(const char *bytes, size_t n_bytes, size_t *n_replaced)
{
    if (n_bytes > SIZE_MAX / 4) out_of_memory();
    char *copy = text_alloc(3 * n_bytes + 1);
    size_t used = 0;
    *n_replaced = 0;
    for (size_t i = 0; i < n_bytes;) {
        size_t n = text_utf8_length(bytes + i, n_bytes - i);
        if (n > 0) {
            memcpy(copy + used, bytes + i, n);
            used += n;
            i += n;
        } else {
            memcpy(copy + used, "\xEF\xBF\xBD", 3);
            used += 3;
            i++;
            ++*n_replaced;
        }
    }
    return copy;
}

/* ---- numbers ------------------------------------------------------------------------------- */

static bool digits_only(const char *text)
{
    if (!*text) return false;
    for (; *text; text++)
        if (*text < '0' || *text > '9') return false;
    return true;
}

bool text_to_uint64(const char *text, uint64_t *value)
{
    if (!digits_only(text)) return false;
    errno = 0;
    unsigned long long v = strtoull(text, NULL, 10);
    if (errno) return false;
    *value = v;
    return true;
}

bool text_to_integer(const char *text, int64_t *value)
{
    if (!digits_only(*text == '-' || *text == '+' ? text + 1 : text)) return false;
    errno = 0;
    long long v = strtoll(text, NULL, 10);
    if (errno) return false;
    *value = v;
    return true;
}

/*
 * strtod alone would also take "inf", "0x1p3" and leading blanks, so the form is checked first. The
 * program never calls setlocale, which keeps the decimal point a point.
 */
bool text_to_number(const char *text, double *value)
{
    const char *s = text;
    if (*s == '-' || *s == '+') s++;
    size_t n_digits = 0;
    for (; *s >= '0' && *s <= '9'; s++) n_digits++;
    if (*s == '.')
        for (s++; *s >= '0' && *s <= '9'; s++) n_digits++;
    if (n_digits == 0) return false;
    if (*s == 'e' || *s == 'E') {
        s++;
        if (*s == '-' || *s == '+') s++;
        if (!digits_only(s)) return false;
    } else if (*s) {
        return false;
    }
    errno = 0;
    double v = strtod(text, NULL);
    if (errno == ERANGE && (v > 1 || v < -1)) return false;
    *value = v;
    return true;
}

const char *text_from_number(double value, char buffer[32])
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(buffer, 32, "%.*g", digits, value);
        if (strtod(buffer, NULL) == value) break;
    }
    return buffer;
}

/* ---- likeness ------------------------------------------------------------------------------ */

#define LONGEST_WORD 64

static char fold(char c)
{
    return c == '_' ? '-' : (char)tolower((unsigned char)c);
}

/* Edits (insert, delete, replace, swap neighbours) that turn a into b, at most limit + 1; case is
 * ignored. Optimal string alignment: row i of the table holds the distances from the first i
 * letters of a. */
static size_t count_edits(const char *a, const char *b, size_t limit)
{
    size_t na = strlen(a), nb = strlen(b);
    if (na > LONGEST_WORD || nb > LONGEST_WORD) return limit + 1;
    size_t rows[3][LONGEST_WORD + 1];
    for (size_t j = 0; j <= nb; j++) rows[0][j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            bool same = fold(a[i - 1]) == fold(b[j - 1]);
            size_t best = above[j - 1] + !same;
            if (above[j] + 1 < best) best = above[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) &&
                fold(a[i - 2]) == fold(b[j - 1]) && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            row[j] = best;
        }
    }
    size_t distance = rows[na % 3][nb];
    return distance > limit ? limit + 1 : distance;
}

static bool begins_with(const char *text, const char *start)
{
    for (; *start; text++, start++)
        if (fold(*text) != fold(*start)) return false;
    return true;
}

const char *text_nearest(const char *word, const char *const *names)
{
    size_t n = strlen(word), limit = n >= 9 ? 3 : n >= 5 ? 2 : 1;
    const char *best = NULL, *longer = NULL;
    size_t best_distance = limit + 1;
    for (; *names; names++) {
        size_t distance = count_edits(word, *names, limit);
        if (distance < best_distance && distance < strlen(*names)) {
            best = *names;
            best_distance = distance;
        }
        if (!longer && n >= 3 && begins_with(*names, word)) longer = *names;
    }
    return best_distance <= 1 || !longer ? best : longer;
}

/* ---- printing ------------------------------------------------------------------------------ */

/* C0, DEL and C1 (in UTF-8: C2 80 to C2 9F) are what terminals obey;
 * invalid bytes go the same way. */
static void print_safely(FILE *stream, const char *text, const char *indent)
{
    size_t n_bytes = strlen(text);
    for (size_t i = 0; i < n_bytes;) {
        unsigned char c = (unsigned char)text[i];
        size_t n = text_utf8_length(text + i, n_bytes - i);
        bool control = n == 0 || c < 0x20 || c == 0x7F ||
                       (n == 2 && c == 0xC2 && (unsigned char)text[i + 1] < 0xA0);
        if (!control)
            fwrite(text + i, 1, n, stream);
        else if (c == '\n' && indent)
            fprintf(stream, "\n%s", indent);
        else if (c == '\n' || c == '\t')
            fputs(c == '\n' ? "\\n" : "\\t", stream);
        else
            for (size_t k = 0; k < (n ? n : 1); k++)
                fprintf(stream, "\\x%02x", (unsigned)(unsigned char)text[i + k]);
        i += n ? n : 1;
    }
}

void text_print(FILE *stream, const char *text)
{
    print_safely(stream, text, NULL);
}

void text_print_lines(FILE *stream, const char *text, const char *indent)
{
    print_safely(stream, text, indent);
}

/* ---- files --------------------------------------------------------------------------------- */

bool text_write(int file, const char *bytes, size_t n)
{
    while (n > 0) { /* a short write does not tell why; the next one does */
        ssize_t written = write(file, bytes, n);
        if (written < 0 && errno == EINTR) continue;
        if (written == 0) errno = ENOSPC;
        if (written <= 0) return false;
        bytes += written;
        n -= (size_t)written;
    }
    return true;
}

/* ---- length -------------------------------------------------------------------------------- */

size_t text_length(const char *text)
{
    size_t n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

/* Where the character with this number begins. */
static const char *character(const char *text, size_t number)
{
    for (; *text; text++)
        if (((unsigned char)*text & 0xC0) != 0x80 && number-- == 0) break;
    return text;
}

char *text_shortened(const char *text, size_t n_most)
{
    size_t n = text_length(text), n_head = n_most / 2;
    if (n <= n_most || n_most < 3) return text_copy(text);
    size_t n_tail = n_most - n_head - 1;
    return text_format("%.*s\xE2\x80\xA6%s", (int)(character(text, n_head) - text), text,
                       character(text, n - n_tail));
}
