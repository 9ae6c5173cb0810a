/* pickle.h - tensors of PyTorch's .ckpt, .pt and .bin files, without executing anything. */
/* SPDX-License-Identifier: MIT */
#ifndef FILES_PICKLE_H
#define FILES_PICKLE_H

#include "files/container.h"

bool pickle_is(const struct map *map);
/* Appends the tensors of one file to w. Opcodes and globals other than those torch.save needs are
 * refused by name. */
bool pickle_read(struct weights *w, const char *path, const struct map *map, struct dk_error *err);

#endif
