/* text.h - what the command line needs of strings: UTF-8, numbers, likeness, safe printing, whole writes. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_TEXT_H
#define CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* malloc and friends that never return NULL: the program says so and ends when memory is out. */
void *text_alloc(size_t size_bytes);
char *text_copy(const char *text);
char *text_copy_n(const char *text, size_t n_bytes);
char *text_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The length in bytes (1 to 4) of the UTF-8 character at s, 0 when the bytes there are not one. */
size_t text_utf8_length(const char *s, size_t n_bytes);

/* A copy in which every byte that is not part of valid UTF-8 is U+FFFD; *n_replaced counts them.
 * Free it. */
char *text_repair(const char *bytes, size_t n_bytes, size_t *n_replaced);

/* Whole-string numbers, the same in every locale; false when there is anything else in the text. */
bool text_to_integer(const char *text, int64_t *value);
bool text_to_uint64(const char *text, uint64_t *value);
bool text_to_number(const char *text, double *value);

/* The shortest decimal that reads back as the same double. buffer holds 32 bytes. */
const char *text_from_number(double value, char buffer[32]);

/*
 * The name that was probably meant by word, or NULL: names is NULL-terminated. One edit is forgiven
 * in a short word, two from 5 letters on, three from 9 on; a name that begins with the word (3
 * letters or more) counts as near.
 */
const char *text_nearest(const char *word, const char *const *names);

/* Prints text with control characters as \n, \t or \xNN,
 * so that no file can talk to the terminal. */
void text_print(FILE *stream, const char *text);
/* The same, but line feeds stay and every line after the first starts with indent. */
void text_print_lines(FILE *stream, const char *text, const char *indent);

/* Writes all n bytes to an open file; false with errno when they do not go in. */
bool text_write(int file, const char *bytes, size_t n);

/* A copy of no more than n_most characters, the middle left out: ends tell names apart. Free it. */
char *text_shortened(const char *text, size_t n_most);
/* Characters, of which UTF-8 has up to four bytes each. */
size_t text_length(const char *text);

#endif
