/* values.h - lists that grow, and lists of values as an option takes them. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_VALUES_H
#define CLI_VALUES_H

#include "darkroom.h"

/* items with room for one more than n; may move them. */
void *list_room(void *items, size_t n, size_t *capacity, size_t item_bytes);

/* Zero-initialise. Owns its texts. */
struct values {
    char **items;
    size_t n_items, capacity;
};
/* Takes text over. */
void values_add(struct values *values, char *text);
void values_free(struct values *values);

/*
 * Values with commas between, or semicolons if there is one; with ranges, 3..7 counts. The sentence
 * in err begins with
 * "--what". values_split has its separator given: NULL makes the whole text one value.
 */
bool values_read(struct values *values, const char *what, const char *text, bool ranges,
                 struct dk_error *err);
bool values_split(struct values *values, const char *what, const char *text, const char *separator,
                  bool ranges, struct dk_error *err);

/* A copy without the blanks around it. */
char *text_trimmed(const char *start, size_t n);

#endif
