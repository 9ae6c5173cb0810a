/* map.h - a file mapped read-only. */
/* SPDX-License-Identifier: MIT */
#ifndef FILES_MAP_H
#define FILES_MAP_H

#include "base/error.h"

/* Nothing is read until it is touched, and processes that map the same file share its pages. */
struct map {
    const unsigned char *data;
    size_t size_bytes; /* never 0 */
};

/* Only regular files: a pipe or device is refused, not waited for. */
bool map_open(struct map *map, const char *path, struct dk_error *err);
void map_close(struct map *map);

/* Lets the system take back the whole pages within data[size_bytes] of a map; touching them reads
 * the file again. */
void map_release(const struct map *map, const void *data, size_t size_bytes);

#endif
