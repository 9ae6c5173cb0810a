/* container.h - what the readers of model files share: filling a struct weights. */
/* SPDX-License-Identifier: MIT */
#ifndef FILES_CONTAINER_H
#define FILES_CONTAINER_H

#include "files/map.h"
#include "files/weights.h"

#define WEIGHTS_MAX_TENSORS                                                                        \
    65536u /* ten times what the largest model of this kind has; bounds hostile files */
#define WEIGHTS_MAX_NAME 512u /* bytes of a tensor's name */

struct block; /* a piece of memory that lives as long as its weights */

struct weights {
    char *path;          /* as given */
    const char *reading; /* while opening: the file at hand, for messages */
    struct weight *items;
    size_t n_items;
    bool *used;      /* [n_items], once indexed */
    uint32_t *slots; /* open addressing: item number + 1, 0 is free */
    size_t n_slots;  /* a power of two */
    struct map *maps;
    const char **map_paths; /* [n_maps] */
    size_t n_maps;
    struct block *blocks;
    struct dk_text *metadata;
    size_t n_metadata;
    const char **ignored; /* names known and not needed: EMA copies, training buffers */
    size_t n_ignored;
    enum weights_kind kind;
    bool keeps_vision;      /* of a CLIP file: weights_open_clip */
    struct weights **parts; /* views of the parts of a checkpoint */
    const char **part_names;
    size_t n_parts;
    const struct weights *whole; /* of a part: the checkpoint it is a view of */
};

static inline const char *weights_file(const struct weights *w)
{
    return w->reading ? w->reading : w->path;
}

/* Memory that lives as long as the weights; zeroed. NULL and an error when there is none. */
void *weights_own(struct weights *w, size_t size_bytes, struct dk_error *err);
/* A copy of a string of known length, likewise. */
const char *weights_own_string(struct weights *w, const char *text, size_t length,
                               struct dk_error *err);

/* The same for a tensor's name: of sensible length, without control characters for a terminal. what
 * is it called in messages, NULL: "a tensor's name". */
const char *weights_own_name(struct weights *w, const char *text, size_t length, const char *what,
                             struct dk_error *err);

/* Maps a file that stays mapped as long as the weights. NULL on failure. */
const struct map *weights_map(struct weights *w, const char *path, struct dk_error *err);

/* Appends one tensor; its name must live as long as w. */
bool weights_add(struct weights *w, const struct weight *weight, struct dk_error *err);
bool weights_add_metadata(struct weights *w, const char *key, const char *value,
                          struct dk_error *err);
bool weights_add_ignored(struct weights *w, const char *name, struct dk_error *err);

/*
 * Checkpoints trained with v prediction or zero terminal SNR say so by a tensor "v_pred" or "ztsnr",
 * mostly an empty one. It holds nothing, so it becomes metadata of that name.
 */
bool weights_is_marker(const char *name);

/* Builds the name index and refuses duplicates. */
bool weights_index(struct weights *w, struct dk_error *err);

/* Bytes a tensor of this type and shape occupies; false and an error if there is no such tensor. */
bool weights_size(const struct weights *w, const struct weight *weight, size_t *size_bytes,
                  struct dk_error *err);

/*
 * Opening in steps, as weights_open does it: an empty list, then files (the bytes must stay while
 * the weights are in use), then names and index.
 */
struct weights *weights_new(const char *path, struct dk_error *err);
bool weights_read_map(struct weights *w, const char *path, const struct map *map,
                      struct dk_error *err);
bool weights_finish(struct weights *w, struct dk_error *err);

/* The formats: each appends the tensors of one file to w. */
bool safetensors_read(struct weights *w, const char *path, const struct map *map,
                      struct dk_error *err);

#endif
