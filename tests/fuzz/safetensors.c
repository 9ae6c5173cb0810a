/* safetensors.c - fuzz target: the header of safetensors files. */
/* SPDX-License-Identifier: MIT */
#include "fuzz.h"

static void fuzz_safetensors(const uint8_t *data, size_t size_bytes)
{
    fuzz_weights(data, size_bytes);
}
