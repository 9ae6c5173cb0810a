/* excerpt.h - a few bytes of somebody's text as they may stand in a message. */
/* SPDX-License-Identifier: MIT */
#ifndef PIPELINE_EXCERPT_H
#define PIPELINE_EXCERPT_H

#include <stddef.h>

/* At most 63 bytes, cut between characters and then ending in "...", control characters as "?". */
struct excerpt {
    char text[64];
};
struct excerpt excerpt(const char *text, size_t n_bytes);

#endif
