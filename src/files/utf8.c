/* utf8.c - UTF-8 and Latin-1 as PNG text chunks need them. */
/* SPDX-License-Identifier: MIT */
#include "files/utf8.h"

#include <stdlib.h>

uint32_t utf8_next(const char **text, size_t n_bytes)
{
    static const struct {
        unsigned char mask, lead;
        int n_tail;
        uint32_t least; /* below it the form is overlong */
    } forms[] = {{0x80, 0x00, 0, 0},
                 {0xe0, 0xc0, 1, 0x80},
                 {0xf0, 0xe0, 2, 0x800},
                 {0xf8, 0xf0, 3, 0x10000}};
    const unsigned char *s = (const unsigned char *)*text;
    (*text)++;
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        if ((s[0] & forms[f].mask) != forms[f].lead) continue;
        uint32_t code = s[0] & (unsigned char)~forms[f].mask;
        if ((size_t)forms[f].n_tail >= n_bytes) return 0xfffd;
        for (int i = 1; i <= forms[f].n_tail; i++) {
            if ((s[i] & 0xc0) != 0x80) return 0xfffd;
            code = code << 6 | (s[i] & 0x3fu);
        }
        if (code < forms[f].least || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
            return 0xfffd;
        *text += forms[f].n_tail;
        return code;
    }
    return 0xfffd;
}

size_t utf8_put(char *out, uint32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

char *utf8_from_latin1(const char *text, size_t n_bytes)
{
    char *out = malloc(2 * n_bytes + 1);
    if (!out) return NULL;
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i++) n += utf8_put(out + n, (unsigned char)text[i]);
    out[n] = 0;
    return out;
}

char *utf8_repaired(const char *text, size_t n_bytes)
{
    char *out = malloc(3 * n_bytes + 1); /* U+FFFD takes three bytes for one ill-formed byte */
    if (!out) return NULL;
    size_t n = 0;
    for (const char *s = text, *end = text + n_bytes; s < end;)
        n += utf8_put(out + n, utf8_next(&s, (size_t)(end - s)));
    out[n] = 0;
    return out;
}

char *utf8_to_latin1(const char *text, size_t n_bytes, bool *fits)
{
    *fits = true;
    char *out = malloc(n_bytes + 1);
    if (!out) return NULL;
    size_t n = 0;
    for (const char *s = text, *end = text + n_bytes; s < end;) {
        uint32_t code = utf8_next(&s, (size_t)(end - s));
        if (code > 0xff) {
            *fits = false;
            free(out);
            return NULL;
        }
        out[n++] = (char)code;
    }
    out[n] = 0;
    return out;
}
