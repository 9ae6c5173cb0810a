/* golden.h - the arrays of a golden file, for tests. */
/* SPDX-License-Identifier: MIT */
#ifndef TESTS_GOLDEN_H
#define TESTS_GOLDEN_H

/*
 * Trusts its input: these files are ours. Values are copied out as float, so that alignment does
 * not matter.
 */

#include <jansson.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct golden {
    json_t *header;
    unsigned char *bytes, *data;
};

static inline unsigned char *golden_slurp(const char *path, size_t *n_bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        printf("%s: missing\n", path);
        exit(1);
    }
    fseek(file, 0, SEEK_END);
    *n_bytes = (size_t)ftell(file);
    rewind(file);
    unsigned char *bytes = malloc(*n_bytes + 1);
    if (fread(bytes, 1, *n_bytes, file) != *n_bytes) exit(1);
    bytes[*n_bytes] = 0;
    fclose(file);
    return bytes;
}

static inline struct golden golden_open(const char *path)
{
    struct golden g;
    size_t n_bytes;
    uint64_t n_header;
    g.bytes = golden_slurp(path, &n_bytes);
    memcpy(&n_header, g.bytes, 8);
    g.header = json_loadb((char *)g.bytes + 8, (size_t)n_header, 0, NULL);
    g.data = g.bytes + 8 + n_header;
    return g;
}

static inline void golden_close(struct golden *g)
{
    json_decref(g->header);
    free(g->bytes);
}

/* A copy of the named array, to be freed; NULL (and *n 0) when there is none. 32-bit types only. */
static inline float *golden_get(const struct golden *g, size_t *n, const char *format, ...)
{
    char name[200];
    va_list list;
    va_start(list, format);
    vsnprintf(name, sizeof name, format, list);
    va_end(list);
    json_t *offsets = json_object_get(json_object_get(g->header, name), "data_offsets");
    *n = 0;
    if (offsets == NULL) return NULL;
    size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0));
    size_t end = (size_t)json_integer_value(json_array_get(offsets, 1));
    float *values = malloc(end - begin + 4);
    memcpy(values, g->data + begin, end - begin);
    *n = (end - begin) / 4;
    return values;
}

#endif
