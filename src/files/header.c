/* header.c - what a safetensors or GGUF file begins with, for writing one. */
/* SPDX-License-Identifier: MIT */
#include "files/header.h"

#include "files/gguf.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define GGUF_ALIGNMENT 32u

static bool no_memory(struct dk_error *err)
{
    return dk_fail(err, DK_ERROR_MEMORY, "out of memory for the header of the file to write");
}

static bool is_repeated(const struct dk_text *metadata, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (strcmp(metadata[i].keyword, metadata[index].keyword) == 0) return true;
    return false;
}

/* ---- safetensors ----------------------------------------------------------------------------- */

static const char *safetensors_dtype(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_F32:
        return "F32";
    case DTYPE_F16:
        return "F16";
    case DTYPE_BF16:
        return "BF16";
    case DTYPE_F64:
        return "F64";
    case DTYPE_F8_E4M3:
        return "F8_E4M3";
    case DTYPE_F8_E5M2:
        return "F8_E5M2";
    case DTYPE_I64:
        return "I64";
    case DTYPE_I32:
        return "I32";
    case DTYPE_U8:
        return "U8";
    default:
        return NULL;
    }
}

static json_t *tensor_json(const struct header_tensor *t, size_t begin)
{
    json_t *shape = json_array();
    for (int i = 0; i < t->rank; i++) json_array_append_new(shape, json_integer(t->dim[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", safetensors_dtype(t->dtype), "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)(begin + t->size_bytes));
}

static json_t *header_json(const struct header_tensor *tensors, size_t n_tensors,
                           const struct dk_text *metadata, size_t n_metadata)
{
    json_t *root = json_object(), *texts = json_object();
    bool ok = root && texts;
    for (size_t i = 0; ok && i < n_metadata; i++) {
        if (json_object_get(texts, metadata[i].keyword)) continue;
        json_t *text = json_string(metadata[i].text);
        if (!text) continue; /* not UTF-8: a GGUF file may hold such text, JSON cannot */
        ok = json_object_set_new(texts, metadata[i].keyword, text) == 0;
    }
    ok = ok && json_object_set(root, "__metadata__", texts) == 0;
    json_decref(texts);
    size_t begin = 0;
    for (size_t i = 0; ok && i < n_tensors; i++) {
        ok = json_object_set_new(root, tensors[i].name, tensor_json(&tensors[i], begin)) == 0;
        begin += tensors[i].size_bytes;
    }
    if (ok) return root;
    json_decref(root);
    return NULL;
}

bool header_safetensors(struct header *header, const struct header_tensor *tensors,
                        size_t n_tensors, const struct dk_text *metadata, size_t n_metadata,
                        struct dk_error *err)
{
    *header = (struct header){.alignment = 1};
    for (size_t i = 0; i < n_tensors; i++)
        if (!safetensors_dtype(tensors[i].dtype))
            return dk_fail(err, DK_ERROR_UNSUPPORTED, "tensor %s: safetensors has no type for it",
                           tensors[i].name);
    json_t *root = header_json(tensors, n_tensors, metadata, n_metadata);
    if (!root) return no_memory(err);
    size_t n = json_dumpb(root, NULL, 0, JSON_COMPACT),
           padded = (n + 7) / 8 * 8; /* spaces, so that data is aligned */
    header->bytes = n ? malloc(padded + 8) : NULL;
    if (header->bytes) {
        for (int i = 0; i < 8; i++) header->bytes[i] = (unsigned char)((uint64_t)padded >> 8 * i);
        json_dumpb(root, (char *)header->bytes + 8, n, JSON_COMPACT);
        memset(header->bytes + 8 + n, ' ', padded - n);
        header->n_bytes = padded + 8;
    }
    json_decref(root);
    return header->bytes || no_memory(err);
}

/* ---- GGUF ------------------------------------------------------------------------------------ */

/* Appends to bytes when there are any, and counts in any case: the header is made twice, to know
 * its size. */
static void put(struct header *h, const void *data, size_t n)
{
    if (h->bytes && n) memcpy(h->bytes + h->n_bytes, data, n);
    h->n_bytes += n;
}

static void put_number(struct header *h, uint64_t value, int n)
{
    unsigned char bytes[8];
    for (int i = 0; i < n; i++) bytes[i] = (unsigned char)(value >> 8 * i);
    put(h, bytes, (size_t)n);
}

static void put_string(struct header *h, const char *text)
{
    put_number(h, strlen(text), 8);
    put(h, text, strlen(text));
}

static void put_gguf(struct header *h, const struct header_tensor *tensors, size_t n_tensors,
                     const struct dk_text *metadata, size_t n_metadata)
{
    size_t n_keys = 0;
    for (size_t i = 0; i < n_metadata; i++) n_keys += !is_repeated(metadata, i);
    put(h, "GGUF", 4);
    put_number(h, 3, 4);
    put_number(h, n_tensors, 8);
    put_number(h, n_keys, 8);
    for (size_t i = 0; i < n_metadata; i++) {
        if (is_repeated(metadata, i)) continue;
        put_string(h, metadata[i].keyword);
        put_number(h, 8, 4); /* a string */
        put_string(h, metadata[i].text);
    }
    uint64_t offset = 0;
    for (size_t i = 0; i < n_tensors; i++) {
        uint32_t type = 0;
        gguf_type(tensors[i].dtype, &type);
        put_string(h, tensors[i].name);
        put_number(h, (uint64_t)tensors[i].rank, 4);
        for (int d = tensors[i].rank - 1; d >= 0; d--)
            put_number(h, (uint64_t)tensors[i].dim[d], 8);
        put_number(h, type, 4);
        put_number(h, offset, 8);
        offset += (tensors[i].size_bytes + GGUF_ALIGNMENT - 1) / GGUF_ALIGNMENT * GGUF_ALIGNMENT;
    }
    static const unsigned char zeros[GGUF_ALIGNMENT];
    put(h, zeros, (GGUF_ALIGNMENT - h->n_bytes % GGUF_ALIGNMENT) % GGUF_ALIGNMENT);
}

bool header_gguf(struct header *header, const struct header_tensor *tensors, size_t n_tensors,
                 const struct dk_text *metadata, size_t n_metadata, struct dk_error *err)
{
    *header = (struct header){.alignment = GGUF_ALIGNMENT};
    uint32_t type;
    for (size_t i = 0; i < n_tensors; i++)
        if (!gguf_type(tensors[i].dtype, &type))
            return dk_fail(err, DK_ERROR_UNSUPPORTED,
                           "tensor %s: GGUF has no type for it; choose f16", tensors[i].name);
    put_gguf(header, tensors, n_tensors, metadata, n_metadata);
    header->bytes = malloc(header->n_bytes);
    if (!header->bytes) return no_memory(err);
    header->n_bytes = 0;
    put_gguf(header, tensors, n_tensors, metadata, n_metadata);
    return true;
}
