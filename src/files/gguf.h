/* gguf.h - ggml's container, as stable-diffusion.cpp writes it. */
/* SPDX-License-Identifier: MIT */
#ifndef FILES_GGUF_H
#define FILES_GGUF_H

#include "files/container.h"

bool gguf_is(const struct map *map);
/* Appends the tensors of one file to w; numbers and text of the header become metadata. */
bool gguf_read(struct weights *w, const char *path, const struct map *map, struct dk_error *err);

/* ggml's number of a dtype; false when it has none. */
bool gguf_type(enum dtype dtype, uint32_t *type);

#endif
