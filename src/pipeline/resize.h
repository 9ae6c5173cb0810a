/* resize.h - pictures made smaller or larger as CLIP's own preprocessing does it. */
/* SPDX-License-Identifier: MIT */
#ifndef PIPELINE_RESIZE_H
#define PIPELINE_RESIZE_H

#include "base/error.h"

/*
 * Bicubic (a = -1/2), widened by the factor where the picture shrinks, first along rows and then
 * along columns, each rounded to 8 bits: Pillow's resize(), to the bit. The numbers of a CLIP
 * depend on it more than on the arithmetic of the network. The sizes are 1 to 32768; to is
 * allocated.
 */
bool resize_bicubic(const struct dk_image *from, int width_px, int height_px, struct dk_image *to,
                    struct dk_error *err);

/* The middle width_px x height_px of from, which is at least as large. */
bool resize_crop(const struct dk_image *from, int width_px, int height_px, struct dk_image *to,
                 struct dk_error *err);

#endif
