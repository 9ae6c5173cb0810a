/* metrics.c - how much two pictures differ, and how sharp one is. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/metrics.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>

#define WINDOW 11
#define SIGMA  1.5
#define PEAK   255.0

static const double exponents[METRICS_SCALES] = {0.0448, 0.2856, 0.3001, 0.2363, 0.1333};

/* A grey picture; owned. */
struct plane {
    int w, h;
    double *v; /* [h, w] */
};

/* Two pictures at one scale, and room for the work on them. */
struct pair {
    struct plane a, b;
    double *product;      /* [h, w] */
    double *rows, *means; /* [h, w], of which the valid part is used; means holds five planes */
};

static double luminance(const uint8_t *rgb)
{
    return 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2];
}

static void fill_luminance(const struct dk_image *image, double *v)
{
    size_t n = (size_t)image->width_px * (size_t)image->height_px;
    for (size_t i = 0; i < n; i++) v[i] = luminance(image->rgb + 3 * i);
}

int metrics_scales(int width_px, int height_px)
{
    int side = width_px < height_px ? width_px : height_px, n = 1;
    while (n < METRICS_SCALES && side / 2 >= WINDOW) {
        side /= 2;
        n++;
    }
    return n;
}

/* The largest odd window up to WINDOW that fits, and its weights. */
static int window(int w, int h, double weights[WINDOW])
{
    int side = w < h ? w : h, n = side < WINDOW ? side - (side % 2 == 0) : WINDOW;
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double d = i - n / 2;
        weights[i] = exp(-d * d / (2 * SIGMA * SIGMA));
        sum += weights[i];
    }
    for (int i = 0; i < n; i++) weights[i] /= sum;
    return n;
}

/* out [h - n + 1, w - n + 1] = v [h, w] under the window, along rows and then along columns */
static void blur(const double *v, int w, int h, const double *weights, int n, double *rows,
                 double *out)
{
    int valid = w - n + 1;
    for (int y = 0; y < h; y++)
        for (int x = 0; x < valid; x++) {
            double sum = 0;
            for (int i = 0; i < n; i++)
                sum += weights[i] * v[(size_t)y * (size_t)w + (size_t)(x + i)];
            rows[(size_t)y * (size_t)valid + (size_t)x] = sum;
        }
    for (int y = 0; y + n <= h; y++)
        for (int x = 0; x < valid; x++) {
            double sum = 0;
            for (int i = 0; i < n; i++)
                sum += weights[i] * rows[(size_t)(y + i) * (size_t)valid + (size_t)x];
            out[(size_t)y * (size_t)valid + (size_t)x] = sum;
        }
}

static void multiply(const double *a, const double *b, size_t n, double *out)
{
    for (size_t i = 0; i < n; i++) out[i] = a[i] * b[i];
}

/* Means over all windows: of SSIM, and of its contrast and structure without the luminance. */
static void similarity(const struct pair *p, double *ssim, double *contrast_structure)
{
    static const double c1 = (0.01 * PEAK) * (0.01 * PEAK), c2 = (0.03 * PEAK) * (0.03 * PEAK);
    double weights[WINDOW];
    int w = p->a.w, h = p->a.h, n = window(w, h, weights);
    size_t size = (size_t)w * (size_t)h, valid = (size_t)(w - n + 1) * (size_t)(h - n + 1);
    double *mean_a = p->means, *mean_b = mean_a + size, *aa = mean_b + size, *bb = aa + size,
           *ab = bb + size;
    blur(p->a.v, w, h, weights, n, p->rows, mean_a);
    blur(p->b.v, w, h, weights, n, p->rows, mean_b);
    multiply(p->a.v, p->a.v, size, p->product);
    blur(p->product, w, h, weights, n, p->rows, aa);
    multiply(p->b.v, p->b.v, size, p->product);
    blur(p->product, w, h, weights, n, p->rows, bb);
    multiply(p->a.v, p->b.v, size, p->product);
    blur(p->product, w, h, weights, n, p->rows, ab);
    double sum = 0, sum_cs = 0;
    for (size_t i = 0; i < valid; i++) {
        double ma = mean_a[i], mb = mean_b[i];
        double variances = aa[i] + bb[i] - (ma * ma + mb * mb), covariance = ab[i] - ma * mb;
        double cs = (2 * covariance + c2) / (variances + c2);
        sum += cs * (2 * ma * mb + c1) / (ma * ma + mb * mb + c1);
        sum_cs += cs;
    }
    *ssim = sum / (double)valid;
    *contrast_structure = sum_cs / (double)valid;
}

/* In place: the means of 2 x 2 pixels. */
static void halve(struct plane *p)
{
    int w = p->w / 2, h = p->h / 2;
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            const double *from = p->v + (size_t)(2 * y) * (size_t)p->w + (size_t)(2 * x);
            p->v[(size_t)y * (size_t)w + (size_t)x] =
                (from[0] + from[1] + from[p->w] + from[p->w + 1]) / 4;
        }
    p->w = w;
    p->h = h;
}

static void compare_scales(struct pair *p, struct dk_metrics *m)
{
    double sum = 0, cs;
    m->n_scales = metrics_scales(p->a.w, p->a.h);
    for (int i = 0; i < m->n_scales; i++) sum += exponents[i];
    m->ms_ssim = 1;
    for (int i = 0; i < m->n_scales; i++) {
        double ssim;
        similarity(p, &ssim, &cs);
        if (i == 0) m->ssim = ssim;
        double value = i == m->n_scales - 1 ? ssim : cs;
        m->ms_ssim *= pow(value > 0 ? value : 0, exponents[i] / sum);
        halve(&p->a);
        halve(&p->b);
    }
}

static double mean_square(const struct dk_image *a, const struct dk_image *b)
{
    size_t n = 3 * (size_t)a->width_px * (size_t)a->height_px;
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        int d = a->rgb[i] - b->rgb[i];
        sum += (uint64_t)(d * d);
    }
    return (double)sum / (double)n;
}

bool dk_metrics_compare(const struct dk_image *a, const struct dk_image *b,
                        struct dk_metrics *metrics, struct dk_error *err)
{
    if (a->width_px != b->width_px || a->height_px != b->height_px || a->width_px < 1 ||
        a->height_px < 1)
        return dk_fail(err, DK_ERROR_ARGUMENT,
                       "metrics: found pictures of %dx%d and %dx%d, expected one size", a->width_px,
                       a->height_px, b->width_px, b->height_px);
    size_t n = (size_t)a->width_px * (size_t)a->height_px;
    double *room = n > SIZE_MAX / (9 * sizeof *room) ? NULL : malloc(9 * n * sizeof *room);
    if (!room)
        return dk_fail(err, DK_ERROR_MEMORY, "metrics: out of memory for pictures of %zu pixels",
                       n);
    struct pair pair = {.a = {a->width_px, a->height_px, room},
                        .b = {a->width_px, a->height_px, room + n},
                        .product = room + 2 * n,
                        .rows = room + 3 * n,
                        .means = room + 4 * n};
    fill_luminance(a, pair.a.v);
    fill_luminance(b, pair.b.v);
    double square = mean_square(a, b);
    metrics->psnr_db = square > 0 ? 10 * log10(PEAK * PEAK / square) : INFINITY;
    compare_scales(&pair, metrics);
    free(room);
    return true;
}

double dk_metrics_rmse(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        sum += d * d;
    }
    return n ? sqrt(sum / (double)n) : 0;
}

double dk_metrics_sharpness(const struct dk_image *image)
{
    int w = image->width_px, h = image->height_px;
    double sum = 0;
    for (int y = 0; y + 1 < h; y++)
        for (int x = 0; x + 1 < w; x++) {
            const uint8_t *at = image->rgb + 3 * ((size_t)y * (size_t)w + (size_t)x);
            double here = luminance(at), dx = luminance(at + 3) - here,
                   dy = luminance(at + 3 * (size_t)w) - here;
            sum += dx * dx + dy * dy;
        }
    return w > 1 && h > 1 ? sqrt(sum / ((double)(w - 1) * (double)(h - 1))) : 0;
}

double dk_metrics_contrast(const struct dk_image *image)
{
    size_t n = (size_t)image->width_px * (size_t)image->height_px;
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) sum += luminance(image->rgb + 3 * i);
    double mean = n ? sum / (double)n : 0;
    for (size_t i = 0; i < n; i++) {
        double d = luminance(image->rgb + 3 * i) - mean;
        squares += d * d;
    }
    return n ? sqrt(squares / (double)n) : 0;
}
