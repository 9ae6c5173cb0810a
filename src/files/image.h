/* image.h - between the networks' numbers and 8-bit pictures. */
/* SPDX-License-Identifier: MIT */
#ifndef FILES_IMAGE_H
#define FILES_IMAGE_H

#include "base/error.h"

#define IMAGE_MAX_SIDE_PX 32768
#define IMAGE_MAX_PIXELS                                                                           \
    (1 << 26) /* 8192 x 8192: 201 MB of RGB, what a hostile file may make us allocate */

/* Allocates a black picture. The sizes are checked against the limits. */
bool image_new(struct dk_image *image, int width_px, int height_px, struct dk_error *err);

/*
 * Makes a picture of rgb [h, w, 3], where -1 is black and 1 is white: x / 2 + 0.5, clamped to 0 to
 * 1, times 255, rounded half to even, each step in f32 as the reference does it. NaN is an error,
 * infinity is clamped.
 */
bool image_from_f32(struct dk_image *image, const float *rgb, int width_px, int height_px,
                    struct dk_error *err);

#endif
