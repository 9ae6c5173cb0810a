/* find.h - where models and data files lie. */
/* SPDX-License-Identifier: MIT */
#ifndef PIPELINE_FIND_H
#define PIPELINE_FIND_H

/*
 * Searched in this order, the first hit counts:
 *   1. models/ beside the program                 a clone, built in place
 *   2. ../share/darkroom/models from the program  an installed copy, wherever it was moved
 *   3. PREFIX/share/darkroom/models               the prefix it was built for
 *   4. each folder of $DARKROOM_MODELS            separated by ':'
 */

#include "base/error.h"

/* The path of NAME in the models folders, or NULL; free it with free(). Never an error. */
char *find_in_models(const char *name);

/* The built-in tokenizer: in data_dir, or where that is NULL in the models folders. Likewise. */
#define CLIP_TABLE "clip/merges.bin"
char *find_clip_table(const char *data_dir);

/* "DIR/NAME", or NULL when memory is out; free it with free(). */
char *path_join(const char *dir, const char *name);
bool path_is_folder(const char *path);
bool path_is_file(const char *path);
/* Whether anything has that name, a link to nothing included: what is there and cannot be read is an
 * error, not an absence. */
bool path_exists(const char *path);
/* The config.json of a folder of weights, or NULL; free it with free(). */
char *find_config(const char *path);

#endif
