/* pack.h - f32 values into the element types of files. */
/* SPDX-License-Identifier: MIT */
#ifndef FILES_PACK_H
#define FILES_PACK_H

#include "base/tensor.h"

/* Whether pack_row writes this type: f32, f16, bf16, q8_0, q4_0, q4_k. */
bool pack_can(enum dtype dtype);

/*
 * Writes n values, which fill whole blocks. Rounds half to even where the type is plain; quantised
 * types choose scales that keep the squared error small. False when a finite value is too large for
 * the type and would become infinite.
 */
bool pack_row(enum dtype dtype, void *out, const float *x, size_t n);

uint16_t pack_f16(float x);

#endif
