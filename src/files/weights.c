/* weights.c - named tensors of a model: storage, index, and how networks ask for them. */
/* SPDX-License-Identifier: MIT */
#include "base/system.h"
#include "files/container.h"
#include "kernels/dtype.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- dtypes ---------------------------------------------------------------------------------- */

const char *weights_dtype_name(enum dtype dtype)
{
    return dtype_info(dtype)->name;
}

int weights_dtype_block(enum dtype dtype)
{
    return (int)dtype_info(dtype)->block_values;
}

int weights_dtype_bytes(enum dtype dtype)
{
    return (int)dtype_info(dtype)->block_bytes;
}

bool weights_size(const struct weights *w, const struct weight *weight, size_t *size_bytes,
                  struct dk_error *err)
{
    const size_t limit = SIZE_MAX / 16; /* so that count times bytes cannot overflow below */
    size_t count = 1;
    for (int i = 0; i < weight->rank; i++) {
        if (weight->dim[i] <= 0)
            return dk_fail(err, DK_ERROR_FORMAT,
                           "%s: tensor %s has a dimension of size %lld, expected 1 or more",
                           weights_file(w), weight->name, (long long)weight->dim[i]);
        if ((uint64_t)weight->dim[i] > limit / count)
            return dk_fail(err, DK_ERROR_FORMAT,
                           "%s: tensor %s: the product of its dimensions overflows",
                           weights_file(w), weight->name);
        count *= (size_t)weight->dim[i];
    }
    const struct dtype_info *dtype = dtype_info(weight->dtype);
    size_t block = dtype->block_values;
    int64_t row = weight->rank == 0 ? 1 : weight->dim[weight->rank - 1];
    if ((size_t)row % block != 0)
        return dk_fail(err, DK_ERROR_FORMAT,
                       "%s: tensor %s: rows of %lld values, expected a multiple of %zu for %s",
                       weights_file(w), weight->name, (long long)row, block, dtype->name);
    *size_bytes = count / block * dtype->block_bytes;
    return true;
}

size_t weights_value_count(const struct weight *weight)
{
    size_t count = 1;
    for (int i = 0; i < weight->rank; i++) count *= (size_t)weight->dim[i];
    return count;
}

size_t weights_byte_count(const struct weight *weight)
{
    const struct dtype_info *dtype = dtype_info(weight->dtype);
    return weights_value_count(weight) / dtype->block_values * dtype->block_bytes;
}

/* ---- storage --------------------------------------------------------------------------------- */

struct block {
    struct block *next;
    max_align_t data[];
};

static bool no_memory(const struct weights *w, struct dk_error *err)
{
    return dk_fail(err, DK_ERROR_MEMORY, "%s: out of memory while reading its tensor list",
                   weights_file(w));
}

void *weights_own(struct weights *w, size_t size_bytes, struct dk_error *err)
{
    struct block *b = size_bytes < SIZE_MAX / 2 ? calloc(1, sizeof *b + size_bytes) : NULL;
    if (!b) {
        no_memory(w, err);
        return NULL;
    }
    b->next = w->blocks;
    w->blocks = b;
    return b->data;
}

const char *weights_own_string(struct weights *w, const char *text, size_t length,
                               struct dk_error *err)
{
    char *copy = weights_own(w, length + 1, err);
    if (copy) memcpy(copy, text, length);
    return copy;
}

const char *weights_own_name(struct weights *w, const char *text, size_t length, const char *what,
                             struct dk_error *err)
{
    bool printable = true;
    if (!what) what = "a tensor's name";
    for (size_t i = 0; i < length && i <= WEIGHTS_MAX_NAME; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) printable = false;
    if (length == 0 || length > WEIGHTS_MAX_NAME)
        dk_fail(err, DK_ERROR_FORMAT, "%s: %s has %zu bytes, expected 1 to %u", weights_file(w),
                what, length, WEIGHTS_MAX_NAME);
    else if (!printable)
        dk_fail(err, DK_ERROR_FORMAT, "%s: %s has control characters in it", weights_file(w), what);
    else
        return weights_own_string(w, text, length, err);
    return NULL;
}

/* Room for one more element, doubling: capacity is implied by n being 0 or a power of two from 16
 * on. */
static void *grown(void *array, size_t n, size_t element_bytes)
{
    if (n != 0 && (n < 16 || (n & (n - 1)) != 0)) return array;
    size_t capacity = n == 0 ? 16 : 2 * n;
    return realloc(array, capacity * element_bytes);
}

const struct map *weights_map(struct weights *w, const char *path, struct dk_error *err)
{
    struct map *maps = grown(w->maps, w->n_maps, sizeof *maps);
    if (!maps) {
        no_memory(w, err);
        return NULL;
    }
    w->maps = maps;
    const char **paths = grown(w->map_paths, w->n_maps, sizeof *paths);
    if (!paths) {
        no_memory(w, err);
        return NULL;
    }
    w->map_paths = paths;
    paths[w->n_maps] = weights_own_string(w, path, strlen(path), err);
    if (!paths[w->n_maps] || !map_open(&maps[w->n_maps], path, err)) return NULL;
    return &maps[w->n_maps++];
}

/* The number of the file that the data lie in; n_maps: in none. */
static size_t map_of(const struct weights *w, const void *data)
{
    const unsigned char *p = data;
    size_t i = 0;
    while (i < w->n_maps && !(p >= w->maps[i].data && p < w->maps[i].data + w->maps[i].size_bytes))
        i++;
    return i;
}

static bool is_mapped(const struct weights *w, const void *data)
{
    return map_of(w, data) < w->n_maps;
}

bool weights_add(struct weights *w, const struct weight *weight, struct dk_error *err)
{
    if (w->n_items >= WEIGHTS_MAX_TENSORS)
        return dk_fail(err, DK_ERROR_FORMAT, "%s: more than %u tensors; is it a model?",
                       weights_file(w), WEIGHTS_MAX_TENSORS);
    struct weight *items = grown(w->items, w->n_items, sizeof *items);
    if (!items) return no_memory(w, err);
    w->items = items;
    items[w->n_items] = *weight;
    items[w->n_items++].mapped = is_mapped(w->whole ? w->whole : w, weight->data);
    return true;
}

bool weights_add_metadata(struct weights *w, const char *key, const char *value,
                          struct dk_error *err)
{
    struct dk_text *metadata = grown(w->metadata, w->n_metadata, sizeof *metadata);
    if (!metadata) return no_memory(w, err);
    w->metadata = metadata;
    char *key_copy = weights_own(w, strlen(key) + 1, err);
    char *value_copy = weights_own(w, strlen(value) + 1, err);
    if (!key_copy || !value_copy) return false;
    strcpy(key_copy, key);
    strcpy(value_copy, value);
    metadata[w->n_metadata++] = (struct dk_text){.keyword = key_copy, .text = value_copy};
    return true;
}

bool weights_is_marker(const char *name)
{
    return strcmp(name, "v_pred") == 0 || strcmp(name, "ztsnr") == 0;
}

bool weights_add_ignored(struct weights *w, const char *name, struct dk_error *err)
{
    const char **ignored = grown(w->ignored, w->n_ignored, sizeof *ignored);
    if (!ignored) return no_memory(w, err);
    w->ignored = ignored;
    ignored[w->n_ignored++] = name;
    return true;
}

size_t weights_total_bytes(const struct weights *w)
{
    size_t bytes = 0;
    for (size_t i = 0; i < w->n_items; i++) bytes += weights_byte_count(&w->items[i]);
    return bytes;
}

void weights_release(const struct weights *w)
{
    for (size_t i = 0; i < w->n_items; i++)
        if (w->items[i].mapped) system_release(w->items[i].data, weights_byte_count(&w->items[i]));
}

void weights_close(struct weights *w)
{
    if (!w) return;
    for (size_t i = 0; i < w->n_parts; i++) weights_close(w->parts[i]);
    for (size_t i = 0; i < w->n_maps; i++) map_close(&w->maps[i]);
    for (struct block *b = w->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(w->parts);
    free(w->part_names);
    free(w->maps);
    free(w->map_paths);
    free(w->items);
    free(w->used);
    free(w->slots);
    free(w->metadata);
    free(w->ignored);
    free(w->path);
    free(w);
}

/* ---- index ----------------------------------------------------------------------------------- */

/* FNV-1a, 64 bits. */
static uint64_t hash(const char *name)
{
    uint64_t h = 14695981039346656037u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 1099511628211u;
    return h ^ h >> 32;
}

/* The slot where name is, or the free one where it belongs. */
static uint32_t *slot_of(const struct weights *w, const char *name)
{
    size_t i = (size_t)hash(name) & (w->n_slots - 1);
    while (w->slots[i] != 0 && strcmp(w->items[w->slots[i] - 1].name, name) != 0)
        i = (i + 1) & (w->n_slots - 1);
    return &w->slots[i];
}

bool weights_index(struct weights *w, struct dk_error *err)
{
    w->n_slots = 16;
    while (w->n_slots < 2 * w->n_items) w->n_slots *= 2;
    w->slots = calloc(w->n_slots, sizeof *w->slots);
    w->used = calloc(w->n_items + 1, sizeof *w->used);
    if (!w->slots || !w->used) return no_memory(w, err);
    for (size_t i = 0; i < w->n_items; i++) {
        uint32_t *slot = slot_of(w, w->items[i].name);
        if (*slot != 0)
            return dk_fail(err, DK_ERROR_FORMAT,
                           "%s: tensor %s is there twice; which one is meant cannot be told",
                           weights_path_of(w, &w->items[i]), w->items[i].name);
        *slot = (uint32_t)i + 1;
    }
    return true;
}

/* ---- access ---------------------------------------------------------------------------------- */

size_t weights_count(const struct weights *w)
{
    return w->n_items;
}
const char *weights_path(const struct weights *w)
{
    return w->path;
}
const char *weights_path_of(const struct weights *w, const struct weight *weight)
{
    const struct weights *whole = w->whole ? w->whole : w;
    size_t i = map_of(whole, weight->data);
    return i < whole->n_maps ? whole->map_paths[i] : w->path;
}
enum weights_kind weights_kind(const struct weights *w)
{
    return w->kind;
}
size_t weights_metadata_count(const struct weights *w)
{
    return w->n_metadata;
}

const struct weight *weights_at(const struct weights *w, size_t index)
{
    return index < w->n_items ? &w->items[index] : NULL;
}

const struct dk_text *weights_metadata_at(const struct weights *w, size_t index)
{
    return index < w->n_metadata ? &w->metadata[index] : NULL;
}

const char *weights_metadata(const struct weights *w, const char *key)
{
    for (size_t i = 0; i < w->n_metadata; i++)
        if (strcmp(w->metadata[i].keyword, key) == 0) return w->metadata[i].text;
    return NULL;
}

const struct weight *weights_find(const struct weights *w, const char *name)
{
    uint32_t item = *slot_of(w, name);
    return item ? &w->items[item - 1] : NULL;
}

const char *weights_kind_name(enum weights_kind kind)
{
    static const char *const names[N_WEIGHTS_KINDS] = {
        [WEIGHTS_UNKNOWN] = "unknown tensors",
        [WEIGHTS_CHECKPOINT] = "a checkpoint",
        [WEIGHTS_UNET] = "a U-Net",
        [WEIGHTS_VAE] = "a VAE",
        [WEIGHTS_TINY] = "a tiny autoencoder",
        [WEIGHTS_TEXT_ENCODER] = "a text encoder",
        [WEIGHTS_LORA] = "a LoRA",
        [WEIGHTS_CONTROLNET] = "a ControlNet",
        [WEIGHTS_EMBEDDING] = "a textual inversion embedding",
    };
    return names[kind];
}

struct weights *weights_part(struct weights *w, const char *part)
{
    for (size_t i = 0; i < w->n_parts; i++)
        if (strcmp(w->part_names[i], part) == 0) return w->parts[i];
    bool is_it = (w->kind == WEIGHTS_UNET && strcmp(part, "unet") == 0) ||
                 (w->kind == WEIGHTS_VAE && strcmp(part, "vae") == 0) ||
                 (w->kind == WEIGHTS_TINY && strcmp(part, "vae_tiny") == 0) ||
                 (w->kind == WEIGHTS_TEXT_ENCODER && strncmp(part, "text_encoder", 12) == 0);
    return is_it ? w : NULL;
}

size_t weights_ignored(const struct weights *w, void (*each)(void *user, const char *name),
                       void *user)
{
    for (size_t i = 0; each && i < w->n_ignored; i++) each(user, w->ignored[i]);
    return w->n_ignored;
}

/* A tensor of a checkpoint counts as used when its part's view has handed it out. */
static bool is_used(const struct weights *w, size_t item)
{
    for (size_t i = 0; i < w->n_parts; i++) {
        size_t prefix = strlen(w->part_names[i]);
        const char *name = w->items[item].name;
        if (strncmp(name, w->part_names[i], prefix) == 0 && name[prefix] == '.')
            return w->parts[i]->used[*slot_of(w->parts[i], name + prefix + 1) - 1];
    }
    return w->used[item];
}

size_t weights_unused(const struct weights *w, void (*each)(void *user, const char *name),
                      void *user)
{
    size_t n = 0;
    for (size_t i = 0; i < w->n_items; i++) {
        if (is_used(w, i)) continue;
        n++;
        if (each) each(user, w->items[i].name);
    }
    return n;
}

/* ---- reading while a network is built -------------------------------------------------------- */

struct text {
    char s[WEIGHTS_MAX_NAME + 64];
};

static struct text full_name(const struct weights_reader *r, const char *format, va_list list)
{
    struct text t;
    int n = snprintf(t.s, sizeof t.s, "%s", r->prefix ? r->prefix : "");
    if (n >= 0 && (size_t)n < sizeof t.s) vsnprintf(t.s + n, sizeof t.s - (size_t)n, format, list);
    return t;
}

static struct text shape_text(const int64_t *dim, int rank)
{
    struct text t = {"["};
    size_t n = 1;
    for (int i = 0; i < rank; i++) {
        const char *comma = i ? ", " : "";
        n += (size_t)(dim[i] < 0
                          ? snprintf(t.s + n, sizeof t.s - n, "%sany", comma)
                          : snprintf(t.s + n, sizeof t.s - n, "%s%lld", comma, (long long)dim[i]));
    }
    snprintf(t.s + n, sizeof t.s - n, "]");
    return t;
}

/* Whether w can be read as shape; ones at the end are added or left out as asked (1x1 convolution
 * or linear). */
static bool fits(struct weight *w, const int64_t shape[4])
{
    int rank = 0;
    while (rank < TENSOR_MAX_RANK && shape[rank] != 0) rank++;
    for (int i = 0; i < rank || i < w->rank; i++) {
        int64_t have = i < w->rank ? w->dim[i] : 1, want = i < rank ? shape[i] : 1;
        if (have != want && want >= 0) return false;
    }
    for (int i = w->rank; i < rank; i++) w->dim[i] = 1;
    w->rank = rank;
    return true;
}

static struct weight read_weight(struct weights_reader *r, const int64_t shape[4], const char *name,
                                 bool needed)
{
    struct weight none = {0};
    if (r->err && r->err->code != DK_OK) return none;
    uint32_t item = *slot_of(r->weights, name);
    if (item == 0) {
        int rank = 0;
        while (rank < TENSOR_MAX_RANK && shape && shape[rank] != 0) rank++;
        if (needed)
            dk_fail(
                r->err, DK_ERROR_MODEL,
                "%s: tensor %s of shape %s is missing; the file is incomplete or of another model",
                r->weights->path, name, shape ? shape_text(shape, rank).s : "[any]");
        return none;
    }
    struct weight w = r->weights->items[item - 1];
    if (shape && !fits(&w, shape)) {
        int rank = 0;
        while (rank < TENSOR_MAX_RANK && shape[rank] != 0) rank++;
        dk_fail(r->err, DK_ERROR_MODEL,
                "%s: tensor %s has shape %s, expected %s; the parts are of different models",
                weights_path_of(r->weights, &w), name, shape_text(w.dim, w.rank).s,
                shape_text(shape, rank).s);
        return none;
    }
    if (w.dtype == DTYPE_I64 || w.dtype == DTYPE_I32 || w.dtype == DTYPE_U8) {
        dk_fail(r->err, DK_ERROR_MODEL,
                "%s: tensor %s holds integers (%s), expected floating point; download it again",
                weights_path_of(r->weights, &w), name, weights_dtype_name(w.dtype));
        return none;
    }
    r->weights->used[item - 1] = true;
    return w;
}

struct weight weights_need(struct weights_reader *r, const int64_t shape[4], const char *format,
                           ...)
{
    va_list list;
    va_start(list, format);
    struct text name = full_name(r, format, list);
    va_end(list);
    return read_weight(r, shape, name.s, true);
}

struct weight weights_want(struct weights_reader *r, const int64_t shape[4], const char *format,
                           ...)
{
    va_list list;
    va_start(list, format);
    struct text name = full_name(r, format, list);
    va_end(list);
    return read_weight(r, shape, name.s, false);
}

bool weights_has(const struct weights_reader *r, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    struct text name = full_name(r, format, list);
    va_end(list);
    return *slot_of(r->weights, name.s) != 0;
}
