/* png.h - pictures as PNG files; the functions for files are in darkroom.h. */
/* SPDX-License-Identifier: MIT */
#ifndef FILES_PNG_H
#define FILES_PNG_H

#include "files/map.h"

/* As dk_png_read, from memory; path starts the messages. */
bool png_read_map(const char *path, const struct map *map, struct dk_image *image,
                  struct dk_texts *texts, struct dk_error *err);

#endif
