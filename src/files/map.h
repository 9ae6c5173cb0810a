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

/* False and an error where path is a link to what does not exist, as in a cache of which a part was
 * removed. */
bool map_check_link(const char *path, struct dk_error *err);

/* Only regular files: a pipe or device is refused, not waited for. */
bool map_open(struct map *map, const char *path, struct dk_error *err);
void map_close(struct map *map);

#endif
