/* resize.c - pictures made smaller or larger as CLIP's own preprocessing does it. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/resize.h"

#include "files/image.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WEIGHT_BITS 22  /* of the fixed point of Pillow's 8-bit path: 32 - 8 bits, 2 to spare */
#define REACH       2.0 /* of the kernel, in pixels of the larger of the two scales */

/* Keys 1981 (doi:10.1109/TASSP.1981.1163711) with a = -1/2. */
static double cubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
    return 0;
}

/* What each pixel of a line of n_out is made of. */
struct taps {
    int n_out, most;
    int *first, *n;   /* [n_out] */
    int32_t *weights; /* [n_out, most] in units of 2^-WEIGHT_BITS */
};

static void taps_free(struct taps *t)
{
    free(t->first);
    free(t->n);
    free(t->weights);
}

static void fill_taps(struct taps *t, int at, double center, double reach, double narrow, int n_in)
{
    double sum = 0;
    int first = (int)(center - reach + 0.5), end = (int)(center + reach + 0.5);
    int32_t *weights = t->weights + (size_t)at * (size_t)t->most;
    if (first < 0) first = 0;
    if (end > n_in) end = n_in;
    for (int i = first; i < end; i++) sum += cubic((i - center + 0.5) * narrow);
    for (int i = first; i < end; i++) {
        double w = cubic((i - center + 0.5) * narrow) / sum * (1 << WEIGHT_BITS);
        weights[i - first] = (int32_t)(w < 0 ? w - 0.5 : w + 0.5);
    }
    t->first[at] = first;
    t->n[at] = end - first;
}

static bool make_taps(struct taps *t, int n_in, int n_out, struct dk_error *err)
{
    double scale = (double)n_in / n_out, wide = scale > 1 ? scale : 1;
    *t = (struct taps){.n_out = n_out, .most = (int)ceil(REACH * wide) * 2 + 1};
    t->first = calloc((size_t)n_out, sizeof *t->first);
    t->n = calloc((size_t)n_out, sizeof *t->n);
    t->weights = calloc((size_t)n_out * (size_t)t->most, sizeof *t->weights);
    if (!t->first || !t->n || !t->weights)
        return dk_fail(err, DK_ERROR_MEMORY, "picture: out of memory to resize it");
    for (int i = 0; i < n_out; i++)
        fill_taps(t, i, (i + 0.5) * scale, REACH * wide, 1 / wide, n_in);
    return true;
}

/* One value: pixels of a line, step bytes apart. */
static uint8_t weigh(const struct taps *t, int at, const uint8_t *line, size_t step)
{
    const int32_t *weights = t->weights + (size_t)at * (size_t)t->most;
    int64_t sum = (int64_t)1 << (WEIGHT_BITS - 1);
    for (int i = 0; i < t->n[at]; i++)
        sum += (int64_t)weights[i] * line[(size_t)(t->first[at] + i) * step];
    if (sum < 0) return 0;
    sum >>= WEIGHT_BITS;
    return (uint8_t)(sum > 255 ? 255 : sum);
}

static void resize_rows(const struct dk_image *from, const struct taps *t, struct dk_image *to)
{
    for (int y = 0; y < to->height_px; y++) {
        const uint8_t *line = from->rgb + (size_t)y * (size_t)from->width_px * 3;
        uint8_t *out = to->rgb + (size_t)y * (size_t)to->width_px * 3;
        for (int x = 0; x < to->width_px; x++)
            for (int c = 0; c < 3; c++) *out++ = weigh(t, x, line + c, 3);
    }
}

static void resize_columns(const struct dk_image *from, const struct taps *t, struct dk_image *to)
{
    size_t row = (size_t)to->width_px * 3;
    for (int y = 0; y < to->height_px; y++)
        for (size_t i = 0; i < row; i++)
            to->rgb[(size_t)y * row + i] = weigh(t, y, from->rgb + i, row);
}

bool resize_bicubic(const struct dk_image *from, int width_px, int height_px, struct dk_image *to,
                    struct dk_error *err)
{
    struct taps across = {0}, down = {0};
    struct dk_image between = {0};
    *to = (struct dk_image){0};
    bool ok = image_new(&between, width_px, from->height_px, err) &&
              make_taps(&across, from->width_px, width_px, err) &&
              make_taps(&down, from->height_px, height_px, err) &&
              image_new(to, width_px, height_px, err);
    if (ok) {
        resize_rows(from, &across, &between);
        resize_columns(&between, &down, to);
    }
    taps_free(&across);
    taps_free(&down);
    dk_image_free(&between);
    return ok;
}

bool resize_crop(const struct dk_image *from, int width_px, int height_px, struct dk_image *to,
                 struct dk_error *err)
{
    if (!image_new(to, width_px, height_px, err)) return false;
    int left = (from->width_px - width_px) / 2, top = (from->height_px - height_px) / 2;
    for (int y = 0; y < height_px; y++)
        memcpy(to->rgb + (size_t)y * (size_t)width_px * 3,
               from->rgb + ((size_t)(top + y) * (size_t)from->width_px + (size_t)left) * 3,
               (size_t)width_px * 3);
    return true;
}
