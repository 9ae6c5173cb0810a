/* excerpt.c - a few bytes of somebody's text as they may stand in a message. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/excerpt.h"

#include <stdbool.h>
#include <string.h>

struct excerpt excerpt(const char *text, size_t n_bytes)
{
    struct excerpt e;
    bool cut = n_bytes > sizeof e.text - 1;
    size_t n = cut ? sizeof e.text - 4 : n_bytes;
    while (cut && n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80) n--;
    for (size_t i = 0; i < n; i++)
        e.text[i] = (unsigned char)text[i] < 0x20 || text[i] == 0x7F ? '?' : text[i];
    memcpy(e.text + n, cut ? "..." : "", cut ? 4 : 1);
    return e;
}
