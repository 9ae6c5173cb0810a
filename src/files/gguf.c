/* gguf.c - ggml's container: keys and values, tensor list, aligned data. */
/* SPDX-License-Identifier: MIT */
#include "files/gguf.h"
#include "files/bytes.h"
#include "files/container.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/*
 *   "GGUF"  u32 version  u64 n_tensors  u64 n_keys
 *   n_keys times:     string key, u32 type, value
 *   n_tensors times:  string name, u32 rank, u64 dim[rank] innermost first, u32 type, u64 offset
 *   padding to general.alignment, then the data; offsets count from here
 *
 * A string is u64 length and bytes. Numbers are little-endian.
 */

#define MAX_KEYS         65536u
#define MAX_STRING_BYTES (16u << 20)

static const struct {
    uint32_t type;
    enum dtype dtype;
} types[] = {
    {0, DTYPE_F32},   {1, DTYPE_F16},   {30, DTYPE_BF16}, {28, DTYPE_F64},
    {27, DTYPE_I64},  {26, DTYPE_I32},  {8, DTYPE_Q8_0},  {2, DTYPE_Q4_0},
    {3, DTYPE_Q4_1},  {6, DTYPE_Q5_0},  {7, DTYPE_Q5_1},  {10, DTYPE_Q2_K},
    {11, DTYPE_Q3_K}, {12, DTYPE_Q4_K}, {13, DTYPE_Q5_K}, {14, DTYPE_Q6_K},
};

bool gguf_type(enum dtype dtype, uint32_t *type)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (types[i].dtype != dtype) continue;
        *type = types[i].type;
        return true;
    }
    return false;
}

static bool read_type(uint32_t type, enum dtype *dtype)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (types[i].type != type) continue;
        *dtype = types[i].dtype;
        return true;
    }
    return false;
}

struct reader {
    struct weights *w;
    struct bytes in;
    uint64_t alignment;
    struct dk_error *err;
};

static bool cut_short(const struct reader *r)
{
    return dk_fail(
        r->err, DK_ERROR_FORMAT,
        "%s: the header is not over after %zu bytes, where the file ends: download it again",
        weights_file(r->w), r->in.size_bytes);
}

/* NULL when the file ends before. */
static const char *read_string(struct reader *r, size_t *length)
{
    uint64_t n = bytes_u64(&r->in);
    if (n > MAX_STRING_BYTES) r->in.failed = true;
    *length = (size_t)n;
    return (const char *)bytes_take(&r->in, n);
}

/* ---- keys and values ------------------------------------------------------------------------- */

enum value_type { GGUF_STRING = 8, GGUF_ARRAY = 9, N_GGUF_TYPES = 13 };
static const int value_bytes[N_GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

/* Lists (a tokenizer's vocabulary, say) are passed over: nothing here needs them. */
static bool skip_array(struct reader *r)
{
    uint32_t type = bytes_u32(&r->in);
    uint64_t n = bytes_u64(&r->in);
    if (type >= N_GGUF_TYPES || type == GGUF_ARRAY)
        return dk_fail(r->err, DK_ERROR_FORMAT, "%s: a list of values of type %u in the header",
                       weights_file(r->w), type);
    if (type != GGUF_STRING) {
        size_t rest = (r->in.size_bytes - r->in.at) / (size_t)value_bytes[type];
        return (n <= rest && bytes_take(&r->in, n * (uint64_t)value_bytes[type])) || cut_short(r);
    }
    for (uint64_t i = 0; i < n; i++) {
        size_t length;
        if (!read_string(r, &length)) return cut_short(r);
    }
    return true;
}

static void number_text(char *text, size_t size, uint32_t type, uint64_t bits)
{
    float f;
    double d;
    uint32_t low = (uint32_t)bits;
    memcpy(&f, &low, sizeof f);
    memcpy(&d, &bits, sizeof d);
    switch (type) {
    case 1:
        snprintf(text, size, "%d", (int8_t)bits);
        break;
    case 3:
        snprintf(text, size, "%d", (int16_t)bits);
        break;
    case 5:
        snprintf(text, size, "%" PRId32, (int32_t)low);
        break;
    case 6:
        snprintf(text, size, "%.*g", FLT_DECIMAL_DIG, (double)f);
        break;
    case 7:
        snprintf(text, size, "%s", bits ? "true" : "false");
        break;
    case 11:
        snprintf(text, size, "%" PRId64, (int64_t)bits);
        break;
    case 12:
        snprintf(text, size, "%.*g", DBL_DECIMAL_DIG, d);
        break;
    default:
        snprintf(text, size, "%" PRIu64, bits);
        break;
    }
}

static bool set_alignment(struct reader *r, uint32_t type, uint64_t value)
{
    if (type != 4 || value < 1 || value > 65536 || (value & (value - 1)) != 0)
        return dk_fail(r->err, DK_ERROR_FORMAT,
                       "%s: general.alignment is %llu, expected a power of two up to 65536",
                       weights_file(r->w), (unsigned long long)value);
    r->alignment = value;
    return true;
}

static bool read_key(struct reader *r)
{
    size_t key_length, length;
    const char *key = read_string(r, &key_length);
    uint32_t type = bytes_u32(&r->in);
    if (r->in.failed) return cut_short(r);
    const char *name = weights_own_name(r->w, key, key_length, "a key of the header", r->err);
    if (!name) return false;
    if (type >= N_GGUF_TYPES)
        return dk_fail(r->err, DK_ERROR_FORMAT, "%s: key %s is of unknown type %u",
                       weights_file(r->w), name, type);
    if (type == GGUF_ARRAY) return skip_array(r);
    if (type == GGUF_STRING) {
        const char *text = read_string(r, &length);
        if (!text) return cut_short(r);
        const char *copy = weights_own_string(r->w, text, length, r->err);
        return copy && weights_add_metadata(r->w, name, copy, r->err);
    }
    uint64_t bits = bytes_number(&r->in, value_bytes[type]);
    if (r->in.failed) return cut_short(r);
    if (strcmp(name, "general.alignment") == 0) return set_alignment(r, type, bits);
    char text[40];
    number_text(text, sizeof text, type, bits);
    return weights_add_metadata(r->w, name, text, r->err);
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Leaves the offset in *offset and data NULL, since where the data begins is known only behind the
 * last entry. */
static bool read_tensor(struct reader *r, struct weight *weight, uint64_t *offset)
{
    size_t length;
    const char *name = read_string(r, &length);
    uint32_t rank = bytes_u32(&r->in);
    if (r->in.failed) return cut_short(r);
    weight->name = weights_own_name(r->w, name, length, NULL, r->err);
    if (!weight->name) return false;
    if (rank > TENSOR_MAX_RANK)
        return dk_fail(r->err, DK_ERROR_UNSUPPORTED,
                       "%s: tensor %s has %u dimensions, expected at most %d", weights_file(r->w),
                       weight->name, rank, TENSOR_MAX_RANK);
    weight->rank = (int)rank;
    for (int i = (int)rank - 1; i >= 0; i--) {
        uint64_t size = bytes_u64(&r->in);
        weight->dim[i] = size > INT64_MAX ? -1 : (int64_t)size; /* refused below */
    }
    uint32_t type = bytes_u32(&r->in);
    *offset = bytes_u64(&r->in);
    if (r->in.failed) return cut_short(r);
    if (!read_type(type, &weight->dtype))
        return dk_fail(r->err, DK_ERROR_UNSUPPORTED,
                       "%s: tensor %s has ggml type %u, which is not read here; convert the model "
                       "to f16, q8_0 or q4_k",
                       weights_file(r->w), weight->name, type);
    return true;
}

/* ggml writes the tensors in the order of the list, each padded to the alignment; nothing else is
 * accepted. */
static bool place_tensors(struct reader *r, size_t first, const uint64_t *offsets)
{
    struct weights *w = r->w;
    size_t begin = (size_t)((r->in.at + r->alignment - 1) / r->alignment * r->alignment);
    if (begin > r->in.size_bytes) return cut_short(r);
    size_t data_bytes = r->in.size_bytes - begin, at = 0;
    for (size_t i = first; i < w->n_items; i++) {
        struct weight *weight = &w->items[i];
        size_t size_bytes;
        if (!weights_size(w, weight, &size_bytes, r->err)) return false;
        if (offsets[i - first] != at)
            return dk_fail(
                r->err, DK_ERROR_FORMAT,
                "%s: tensor %s begins at byte %llu of the data, the one before it ends at %zu",
                weights_file(w), weight->name, (unsigned long long)offsets[i - first], at);
        if (at > data_bytes || size_bytes > data_bytes - at)
            return dk_fail(r->err, DK_ERROR_FORMAT,
                           "%s: tensor %s needs %zu bytes at %zu of the data, the file has %zu: "
                           "download it again",
                           weights_file(w), weight->name, size_bytes, at, data_bytes);
        weight->data = r->in.data + begin + at;
        at = (size_t)((at + size_bytes + r->alignment - 1) / r->alignment * r->alignment);
    }
    if (data_bytes > at)
        return dk_fail(r->err, DK_ERROR_FORMAT,
                       "%s: the tensors end at byte %zu of the data, the file has %zu",
                       weights_file(w), at, data_bytes);
    return true;
}

static bool read_tensors(struct reader *r, uint64_t n_tensors)
{
    struct weights *w = r->w;
    size_t first = w->n_items;
    uint64_t *offsets = weights_own(w, (size_t)(n_tensors + 1) * sizeof *offsets, r->err);
    if (!offsets) return false;
    for (size_t i = 0; i < n_tensors; i++) {
        struct weight weight = {0};
        if (!read_tensor(r, &weight, &offsets[i]) || !weights_add(w, &weight, r->err)) return false;
    }
    return place_tensors(r, first, offsets);
}

bool gguf_is(const struct map *map)
{
    return map->size_bytes >= 4 && memcmp(map->data, "GGUF", 4) == 0;
}

bool gguf_read(struct weights *w, const char *path, const struct map *map, struct dk_error *err)
{
    struct reader r = {.w = w,
                       .in = {.data = map->data, .size_bytes = map->size_bytes},
                       .alignment = 32,
                       .err = err};
    bytes_take(&r.in, 4);
    uint32_t version = bytes_u32(&r.in);
    uint64_t n_tensors = bytes_u64(&r.in), n_keys = bytes_u64(&r.in);
    if (r.in.failed) return cut_short(&r);
    if (version != 2 && version != 3)
        return dk_fail(err, DK_ERROR_UNSUPPORTED, "%s: GGUF version %u, expected 2 or 3", path,
                       version);
    if (n_tensors > WEIGHTS_MAX_TENSORS || n_keys > MAX_KEYS)
        return dk_fail(err, DK_ERROR_FORMAT,
                       "%s: the header promises %llu tensors and %llu keys, at most %u are allowed",
                       path, (unsigned long long)n_tensors, (unsigned long long)n_keys,
                       WEIGHTS_MAX_TENSORS);
    for (uint64_t i = 0; i < n_keys; i++)
        if (!read_key(&r)) return false;
    return read_tensors(&r, n_tensors);
}
