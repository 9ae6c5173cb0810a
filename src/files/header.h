/* header.h - what a safetensors or GGUF file begins with, for writing one. */
/* SPDX-License-Identifier: MIT */
#ifndef FILES_HEADER_H
#define FILES_HEADER_H

#include "base/error.h"
#include "base/tensor.h"

struct header_tensor {
    const char *name;
    enum dtype dtype;
    int rank;
    int64_t dim[TENSOR_MAX_RANK];
    size_t size_bytes;
};

struct header {
    unsigned char *bytes; /* owned; free with free() */
    size_t n_bytes;
    size_t alignment; /* the data of each tensor is padded with zeros to a multiple of this */
};

/* The tensors' data follow in the order given. Keys that are there twice: the first counts. */
bool header_safetensors(struct header *header, const struct header_tensor *tensors,
                        size_t n_tensors, const struct dk_text *metadata, size_t n_metadata,
                        struct dk_error *err);
bool header_gguf(struct header *header, const struct header_tensor *tensors, size_t n_tensors,
                 const struct dk_text *metadata, size_t n_metadata, struct dk_error *err);

#endif
