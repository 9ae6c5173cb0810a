/* gguf.c - fuzz target: GGUF files. */
/* SPDX-License-Identifier: MIT */
#include "fuzz.h"

static void fuzz_gguf(const uint8_t *data, size_t size_bytes)
{
    fuzz_weights(data, size_bytes);
}
