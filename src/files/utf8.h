/* utf8.h - UTF-8 and Latin-1 as PNG text chunks need them. */
/* SPDX-License-Identifier: MIT */
#ifndef FILES_UTF8_H
#define FILES_UTF8_H

#include "base/error.h"

/*
 * Next code point of the n_bytes at text, which is advanced by at least one byte; U+FFFD for a byte
 * that is not part of well-formed UTF-8 (overlong forms and surrogates included). n_bytes must not
 * be 0.
 */
uint32_t utf8_next(const char **text, size_t n_bytes);

/* Writes one code point, 1 to 4 bytes, and returns how many. */
size_t utf8_put(char *out, uint32_t code);

/* Both return an allocated string or NULL when memory is short; free it. */
char *utf8_from_latin1(const char *text, size_t n_bytes);
char *utf8_repaired(const char *text, size_t n_bytes); /* ill-formed bytes become U+FFFD */
/* *fits becomes false, and the answer NULL, when there are characters beyond U+00FF. */
char *utf8_to_latin1(const char *text, size_t n_bytes, bool *fits);

#endif
