/* scales.h - fp8 weights whose scales lie in tensors beside them. */
/* SPDX-License-Identifier: MIT */
#ifndef FILES_SCALES_H
#define FILES_SCALES_H

#include "files/container.h"

/*
 * ComfyUI's scaled fp8: values of LAYER.weight are to be multiplied by the one number of
 * LAYER.scale_weight (older) or LAYER.weight_scale (newer). Takes those tensors out of the list,
 * and what only serves arithmetic in fp8 (scale_input, input_scale, comfy_quant, scaled_fp8) with
 * them, and sets weight.scale. Names are still the file's own. Scales for rows or blocks are
 * refused.
 */
bool scales_apply(struct weights *w, struct dk_error *err);

/* The empty tensor that says a file is of this kind: "scaled_fp8", with any prefix. */
bool scales_is_marker(const char *name);

#endif
