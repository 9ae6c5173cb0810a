/* preview.c - a rough picture of a latent. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/preview.h"

#include "base/rng.h"
#include "files/image.h"
#include "pipeline/decoder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FIT_SIDE     16 /* cells of the probe latent, each side */
#define MAX_CHANNELS 32

/* Solves a * x = b for n unknowns and 3 right-hand sides by Gaussian elimination with row pivots;
 * in place. */
static bool solve(double a[MAX_CHANNELS + 1][MAX_CHANNELS + 1], double b[MAX_CHANNELS + 1][3],
                  int n)
{
    for (int col = 0; col < n; col++) {
        int pivot = col;
        for (int r = col + 1; r < n; r++)
            if (fabs(a[r][col]) > fabs(a[pivot][col])) pivot = r;
        if (!(fabs(a[pivot][col]) > 1e-12)) return false;
        for (int j = 0; j < n; j++) {
            double t = a[col][j];
            a[col][j] = a[pivot][j];
            a[pivot][j] = t;
        }
        for (int j = 0; j < 3; j++) {
            double t = b[col][j];
            b[col][j] = b[pivot][j];
            b[pivot][j] = t;
        }
        for (int r = 0; r < n; r++) {
            if (r == col) continue;
            double f = a[r][col] / a[col][col];
            for (int j = col; j < n; j++) a[r][j] -= f * a[col][j];
            for (int j = 0; j < 3; j++) b[r][j] -= f * b[col][j];
        }
    }
    for (int r = 0; r < n; r++)
        for (int j = 0; j < 3; j++) b[r][j] /= a[r][r];
    return true;
}

/* The mean colour of cell (y, x) of a decoded picture [h * f, w * f, 3]. */
static void cell_colour(struct tensor pixels, int f, int64_t y, int64_t x, double colour[3])
{
    memset(colour, 0, 3 * sizeof *colour);
    for (int64_t j = y * f; j < (y + 1) * f; j++)
        for (int64_t i = x * f; i < (x + 1) * f; i++)
            for (int c = 0; c < 3; c++)
                colour[c] += (double)pixels.data[(j * pixels.dim[2] + i) * 3 + c] / (f * f);
}

/* Normal equations over the cells: row = [latent, 1]. */
static bool fit(struct dk_model *model, struct ops *o)
{
    int channels = (int)model->latent_channels, n = channels + 1;
    if (channels > MAX_CHANNELS) return false;
    struct tensor z = tensor_new4(o->arena, 1, FIT_SIDE, FIT_SIDE, channels, o->err);
    if (z.rank == 0) return false;
    struct rng rng;
    rng_seed(&rng, RNG_CPU, 0);
    rng_normal(&rng, z.data, (size_t)tensor_count(z));
    float *latent = malloc((size_t)tensor_count(z) * sizeof *latent);
    if (!latent) return false;
    memcpy(latent, z.data, (size_t)tensor_count(z) * sizeof *latent);
    for (int64_t i = 0; i < tensor_count(z); i++)
        z.data[i] = (float)((double)z.data[i] / model->scaling_factor + model->shift);
    struct tensor pixels = vae_decode(model->vae, o, z);
    static const double ridge = 1e-3;
    double a[MAX_CHANNELS + 1][MAX_CHANNELS + 1] = {{0}}, b[MAX_CHANNELS + 1][3] = {{0}};
    for (int64_t cell = 0; pixels.rank > 0 && cell < FIT_SIDE * FIT_SIDE; cell++) {
        double row[MAX_CHANNELS + 1], colour[3];
        for (int c = 0; c < channels; c++) row[c] = (double)latent[cell * channels + c];
        row[channels] = 1;
        cell_colour(pixels, vae_factor(model->vae), cell / FIT_SIDE, cell % FIT_SIDE, colour);
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < n; j++) a[i][j] += row[i] * row[j];
            for (int j = 0; j < 3; j++) b[i][j] += row[i] * colour[j];
        }
    }
    free(latent);
    for (int i = 0; i < n; i++) a[i][i] += ridge;
    if (pixels.rank == 0 || !solve(a, b, n)) return false;
    model->preview_map = malloc((size_t)n * 3 * sizeof *model->preview_map);
    for (int i = 0; model->preview_map && i < n * 3; i++)
        model->preview_map[i] = (float)b[i / 3][i % 3];
    return model->preview_map != NULL;
}

/* The tiny decoder's picture, as large as the one to come. */
static bool decode(const struct dk_model *model, struct ops *o, const float *latent, int64_t h,
                   int64_t w, struct dk_image *image)
{
    size_t mark = arena_mark(o->arena);
    struct tensor y = decoder_run(model, o, latent, h, w, (struct decoder_way){.tiny = true});
    bool good =
        y.rank > 0 && image_from_f32(image, y.data, (int)y.dim[2], (int)y.dim[1], o->err);
    arena_reset(o->arena, mark);
    return good;
}

bool preview_make(struct dk_model *model, const struct ops *ops, const float *latent, int64_t h,
                  int64_t w, struct dk_image *image)
{
    struct dk_error own = {.code = DK_OK}; /* out of memory here is no reason for a run to end */
    struct ops quiet = *ops, *o = &quiet;
    quiet.err = &own;
    quiet.meter = NULL;
    if (model->tiny && decode(model, o, latent, h, w, image)) return true;
    own = (struct dk_error){.code = DK_OK};
    if (!model->preview_map) {
        size_t mark = arena_mark(o->arena);
        bool good = fit(model, o);
        arena_reset(o->arena, mark);
        if (!good) return false;
    }
    image->width_px = (int)w;
    image->height_px = (int)h;
    image->rgb = malloc((size_t)(h * w * 3));
    if (!image->rgb) return false;
    int64_t channels = model->latent_channels;
    for (int64_t cell = 0; cell < h * w; cell++)
        for (int j = 0; j < 3; j++) {
            float v = model->preview_map[channels * 3 + j];
            for (int64_t c = 0; c < channels; c++)
                v += latent[cell * channels + c] * model->preview_map[c * 3 + j];
            float level = (v * 0.5f + 0.5f) * 255.0f;
            image->rgb[cell * 3 + j] = (uint8_t)(level > 255 ? 255 : level > 0 ? level : 0);
        }
    return true;
}
