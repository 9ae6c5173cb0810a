/* image.c - between the networks' numbers and 8-bit pictures. */
/* SPDX-License-Identifier: MIT */
#include "files/image.h"

#include <math.h>
#include <stdlib.h>

bool image_new(struct dk_image *image, int width_px, int height_px, struct dk_error *err)
{
    *image = (struct dk_image){0};
    if (width_px < 1 || height_px < 1 || width_px > IMAGE_MAX_SIDE_PX ||
        height_px > IMAGE_MAX_SIDE_PX || (long long)width_px * height_px > IMAGE_MAX_PIXELS)
        return dk_fail(err, DK_ERROR_ARGUMENT,
                       "a picture of %dx%d pixels, expected 1 to %d a side and at most %d in all",
                       width_px, height_px, IMAGE_MAX_SIDE_PX, IMAGE_MAX_PIXELS);
    image->rgb = calloc((size_t)width_px * (size_t)height_px, 3);
    if (!image->rgb)
        return dk_fail(err, DK_ERROR_MEMORY, "out of memory for a picture of %dx%d pixels",
                       width_px, height_px);
    image->width_px = width_px;
    image->height_px = height_px;
    return true;
}

void dk_image_free(struct dk_image *image)
{
    if (!image) return;
    free(image->rgb);
    *image = (struct dk_image){0};
}

bool image_from_f32(struct dk_image *image, const float *rgb, int width_px, int height_px,
                    struct dk_error *err)
{
    if (!image_new(image, width_px, height_px, err)) return false;
    size_t n = (size_t)width_px * (size_t)height_px * 3;
    for (size_t i = 0; i < n; i++) {
        if (isnan(rgb[i])) {
            dk_image_free(image);
            return dk_fail(err, DK_ERROR_NUMERIC,
                           "the decoded picture has NaN at pixel %zu,%zu; the model or its "
                           "settings are at fault",
                           i / 3 % (size_t)width_px, i / 3 / (size_t)width_px);
        }
        float v = fminf(fmaxf(rgb[i] / 2 + 0.5f, 0), 1);
        image->rgb[i] = (uint8_t)rintf(v * 255); /* the default rounding mode is half to even */
    }
    return true;
}
