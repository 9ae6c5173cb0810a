/* pickle.c - fuzz target: PyTorch's zip pickles. */
/* SPDX-License-Identifier: MIT */
#include "fuzz.h"

static void fuzz_pickle(const uint8_t *data, size_t size_bytes)
{
    fuzz_weights(data, size_bytes);
}
