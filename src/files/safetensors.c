/* safetensors.c - 8 bytes of header length, a JSON header, then the tensors end to end. */
/* SPDX-License-Identifier: MIT */
#include "files/container.h"
#include "files/json.h"
#include "files/scales.h"

#include <stdlib.h>
#include <string.h>

#define MAX_HEADER_BYTES (100u << 20) /* the format's own limit */
#define MAX_HEADER_DEPTH 4            /* object > tensor > list is 3 */

/* Where one tensor lies in the data after the header. */
struct range {
    uint64_t begin, end;
    size_t item;
};

static uint64_t u64_le(const unsigned char *p)
{
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--) value = value << 8 | p[i];
    return value;
}

static bool read_dtype(const char *text, enum dtype *dtype)
{
    static const struct {
        const char *text;
        enum dtype dtype;
    } table[] = {
        {"F32", DTYPE_F32},         {"F16", DTYPE_F16},         {"BF16", DTYPE_BF16},
        {"F64", DTYPE_F64},         {"I64", DTYPE_I64},         {"I32", DTYPE_I32},
        {"F8_E4M3", DTYPE_F8_E4M3}, {"F8_E5M2", DTYPE_F8_E5M2}, {"U8", DTYPE_U8},
        {"BOOL", DTYPE_U8},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(table[i].text, text) != 0) continue;
        *dtype = table[i].dtype;
        return true;
    }
    return false;
}

static bool read_shape(const struct weights *w, struct weight *weight, const json_t *shape,
                       struct dk_error *err)
{
    if (!json_is_array(shape))
        return dk_fail(err, DK_ERROR_FORMAT, "%s: tensor %s has no list as its shape",
                       weights_file(w), weight->name);
    size_t rank = json_array_size(shape);
    if (rank > TENSOR_MAX_RANK)
        return dk_fail(err, DK_ERROR_UNSUPPORTED,
                       "%s: tensor %s has %zu dimensions, expected at most %d", weights_file(w),
                       weight->name, rank, TENSOR_MAX_RANK);
    weight->rank = (int)rank;
    for (size_t i = 0; i < rank; i++) {
        const json_t *size = json_array_get(shape, i);
        if (!json_is_integer(size))
            return dk_fail(err, DK_ERROR_FORMAT,
                           "%s: tensor %s: dimension %zu is not a whole number", weights_file(w),
                           weight->name, i);
        weight->dim[i] = json_integer_value(size);
    }
    return true;
}

static bool read_range(const struct weights *w, const char *name, const json_t *offsets,
                       size_t data_bytes, struct range *range, struct dk_error *err)
{
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return dk_fail(err, DK_ERROR_FORMAT,
                       "%s: tensor %s: data_offsets are not two whole numbers", weights_file(w),
                       name);
    long long from = json_integer_value(begin), to = json_integer_value(end);
    if (from < 0 || to < from)
        return dk_fail(err, DK_ERROR_FORMAT,
                       "%s: tensor %s runs from byte %lld to %lld, expected a forward range",
                       weights_file(w), name, from, to);
    range->begin = (uint64_t)from;
    range->end = (uint64_t)to;
    if (range->end > data_bytes)
        return dk_fail(
            err, DK_ERROR_FORMAT,
            "%s: tensor %s ends at byte %lld of the data, the file has %zu: download it again",
            weights_file(w), name, to, data_bytes);
    return true;
}

static bool is_empty(const json_t *shape)
{
    return json_array_size(shape) == 1 && json_is_integer(json_array_get(shape, 0)) &&
           json_integer_value(json_array_get(shape, 0)) == 0;
}

static bool read_tensor(struct weights *w, const char *name, const json_t *entry,
                        const unsigned char *data, size_t data_bytes, struct range *range,
                        struct dk_error *err)
{
    struct weight weight = {.name = weights_own_name(w, name, strlen(name), NULL, err)};
    if (!weight.name) return false;
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    if (!dtype)
        return dk_fail(err, DK_ERROR_FORMAT, "%s: tensor %s has no dtype", weights_file(w), name);
    if (!read_dtype(dtype, &weight.dtype))
        return dk_fail(err, DK_ERROR_UNSUPPORTED,
                       "%s: tensor %s has dtype %.20s, which is not read here", weights_file(w),
                       name, dtype);
    const json_t *shape = json_object_get(entry, "shape");
    if (!read_range(w, name, json_object_get(entry, "data_offsets"), data_bytes, range, err))
        return false;
    if (is_empty(shape) && range->begin == range->end) { /* else refused below */
        if (weights_is_marker(name)) return weights_add_metadata(w, name, "true", err);
        if (scales_is_marker(name)) return weights_add_ignored(w, weight.name, err);
    }
    size_t size_bytes;
    if (!read_shape(w, &weight, shape, err) || !weights_size(w, &weight, &size_bytes, err))
        return false;
    if (size_bytes != range->end - range->begin)
        return dk_fail(
            err, DK_ERROR_FORMAT, "%s: tensor %s occupies %llu bytes, its dtype and shape need %zu",
            weights_file(w), name, (unsigned long long)(range->end - range->begin), size_bytes);
    weight.data = data + range->begin;
    range->item = w->n_items;
    return weights_add(w, &weight, err);
}

static int by_begin(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* The tensors must cover the data without overlap, hole or remainder; anything else is a damaged or
 * forged header. */
static bool check_cover(const struct weights *w, struct range *ranges, size_t n, size_t data_bytes,
                        struct dk_error *err)
{
    qsort(ranges, n, sizeof *ranges, by_begin);
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (ranges[i].begin != at)
            return dk_fail(
                err, DK_ERROR_FORMAT, "%s: tensor %s begins at byte %llu of the data, %s at %llu",
                weights_file(w), w->items[ranges[i].item].name, (unsigned long long)ranges[i].begin,
                ranges[i].begin < at ? "inside its neighbour, which ends"
                                     : "after a hole, which begins",
                (unsigned long long)at);
        at = ranges[i].end;
    }
    if (at != data_bytes)
        return dk_fail(err, DK_ERROR_FORMAT,
                       "%s: the tensors end at byte %llu of the data, the file has %zu",
                       weights_file(w), (unsigned long long)at, data_bytes);
    return true;
}

static bool read_metadata(struct weights *w, json_t *metadata, struct dk_error *err)
{
    if (!json_is_object(metadata))
        return dk_fail(err, DK_ERROR_FORMAT, "%s: __metadata__ is not an object", weights_file(w));
    const char *key;
    json_t *value;
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return dk_fail(err, DK_ERROR_FORMAT, "%s: __metadata__ %.100s is not a string",
                           weights_file(w), key);
        if (!weights_add_metadata(w, key, json_string_value(value), err)) return false;
    }
    return true;
}

static bool read_header(struct weights *w, json_t *header, const unsigned char *data,
                        size_t data_bytes, struct range *ranges, struct dk_error *err)
{
    const char *name;
    json_t *entry;
    size_t n = 0;
    json_object_foreach(header, name, entry)
    {
        size_t before = w->n_items;
        bool ok = strcmp(name, "__metadata__") == 0
                      ? read_metadata(w, entry, err)
                      : read_tensor(w, name, entry, data, data_bytes, &ranges[n], err);
        if (!ok) return false;
        n += w->n_items - before;
    }
    return check_cover(w, ranges, n, data_bytes, err);
}

bool safetensors_read(struct weights *w, const char *path, const struct map *map,
                      struct dk_error *err)
{
    if (map->size_bytes < 8)
        return dk_fail(err, DK_ERROR_FORMAT,
                       "%s: %zu bytes are too few for a safetensors file: download it again", path,
                       map->size_bytes);
    uint64_t header_bytes = u64_le(map->data);
    size_t rest = map->size_bytes - 8;
    if (header_bytes > MAX_HEADER_BYTES)
        return dk_fail(err, DK_ERROR_FORMAT,
                       "%s: the header promises %llu bytes, at most %u are allowed: not a "
                       "safetensors file, or damaged",
                       path, (unsigned long long)header_bytes, MAX_HEADER_BYTES);
    if (header_bytes > rest)
        return dk_fail(err, DK_ERROR_FORMAT,
                       "%s: the header promises %llu bytes, the file has %zu: download it again",
                       path, (unsigned long long)header_bytes, rest);
    const unsigned char *data = map->data + 8 + header_bytes;
    json_t *header = json_object_parse((const char *)map->data + 8, (size_t)header_bytes,
                                       MAX_HEADER_DEPTH, path, err);
    if (!header) return false;
    struct range *ranges = calloc(json_object_size(header) + 1, sizeof *ranges);
    bool ok =
        ranges ? read_header(w, header, data, rest - (size_t)header_bytes, ranges, err)
               : dk_fail(err, DK_ERROR_MEMORY, "%s: out of memory while reading its header", path);
    free(ranges);
    json_decref(header);
    return ok;
}
