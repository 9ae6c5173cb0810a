/* values.c - lists that grow, and lists of values as an option takes them. */
/* SPDX-License-Identifier: MIT */
#include "values.h"

#include "say.h"
#include "text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RANGE ((size_t)10000000)

void *list_room(void *items, size_t n, size_t *capacity, size_t item_bytes)
{
    if (n < *capacity) return items;
    size_t larger = *capacity ? 2 * *capacity : 64;
    char *copy = text_alloc(larger * item_bytes);
    if (n > 0) memcpy(copy, items, n * item_bytes);
    free(items);
    *capacity = larger;
    return copy;
}

void values_add(struct values *values, char *text)
{
    values->items = list_room(values->items, values->n_items, &values->capacity, sizeof(char *));
    values->items[values->n_items++] = text;
}

void values_free(struct values *values)
{
    for (size_t i = 0; i < values->n_items; i++) free(values->items[i]);
    free(values->items);
    *values = (struct values){NULL, 0, 0};
}

char *text_trimmed(const char *start, size_t n)
{
    while (n > 0 && isspace((unsigned char)*start)) start++, n--;
    while (n > 0 && isspace((unsigned char)start[n - 1])) n--;
    return text_copy_n(start, n);
}

/* "3..7" counts; anything else is one value. Takes text over. */
static bool add_range(struct values *values, const char *what, char *text, struct dk_error *err)
{
    uint64_t first, last;
    char *dots = strstr(text, "..");
    char *low = dots ? text_copy_n(text, (size_t)(dots - text)) : NULL;
    bool is_range = dots && text_to_uint64(low, &first) && text_to_uint64(dots + 2, &last);
    free(low);
    if (!is_range) {
        values_add(values, text);
        return true;
    }
    bool ok = last >= first && last - first < MAX_RANGE;
    if (!ok)
        say_fail(err, DK_ERROR_ARGUMENT,
                 "--%s: found the range %.60s, expected at most %zu numbers that rise", what, text,
                 MAX_RANGE);
    for (uint64_t i = 0; ok && i <= last - first; i++)
        values_add(values, text_format("%llu", (unsigned long long)(first + i)));
    free(text);
    return ok;
}

bool values_split(struct values *values, const char *what, const char *text, const char *separator,
                  bool ranges, struct dk_error *err)
{
    for (const char *p = text;; p++) {
        size_t n = separator ? strcspn(p, separator) : strlen(p);
        char *value = text_trimmed(p, n);
        p += n;
        bool is_end = !*p;
        if (!*value && is_end && separator && *separator == ';' &&
            values->n_items > 0) { /* "a,b;" is one value */
            free(value);
            return true;
        }
        if (!*value && separator) {
            free(value);
            return say_fail(err, DK_ERROR_ARGUMENT, "--%s: \"%.100s\": a value is empty", what,
                            text);
        }
        if (!ranges)
            values_add(values, value);
        else if (!add_range(values, what, value, err))
            return false;
        if (is_end) return true;
    }
}

bool values_read(struct values *values, const char *what, const char *text, bool ranges,
                 struct dk_error *err)
{
    return values_split(values, what, text, strchr(text, ';') ? ";" : ",", ranges, err);
}
