/* pieces.h - a text as the normalised pieces within which CLIP's tokenizer merges. */
/* SPDX-License-Identifier: MIT */
#ifndef PIPELINE_PIECES_H
#define PIPELINE_PIECES_H

#include "base/error.h"

/*
 *   "It's  CAFE\u0301 42!?"  ->  it  's  café  4  2  !?
 *
 * NFC, lower case per character, then at each place the first of: 's 't 're 've 'm 'll 'd; a run of
 * letters; one number; a run of what is neither letter, number nor white space. White space
 * separates and is gone. Unicode's classes and tables come from utf8proc. Time is linear in the
 * text, whatever it holds.
 */
typedef bool pieces_each_fn(void *user, const unsigned char *bytes, size_t n_bytes,
                            struct dk_error *err);

/*
 * Calls each for every piece, in order, as UTF-8 that is gone when each returns; stops when each
 * returns false. Ill-formed UTF-8 becomes U+FFFD, one for each maximal subpart as the Unicode
 * standard recommends (3.9, table 3-8); *n_replaced is increased by their number.
 */
bool pieces_each(const char *text, size_t n_bytes, pieces_each_fn *each, void *user,
                 size_t *n_replaced, struct dk_error *err);

#endif
