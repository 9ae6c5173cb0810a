/* checkmetrics.c - PSNR, SSIM, MS-SSIM, sharpness and contrast against another implementation. */
/* SPDX-License-Identifier: MIT */
#include "check.h"
#include "darkroom.h"
#include "pipeline/metrics.h"

#include <stdlib.h>
#include <string.h>

/* The pictures of tests/golden/metrics/make.py, made of integers alone. */
enum kind { NOISY, NOISIER, BLURRED, BRIGHTER };

static int clip(int v)
{
    return v < 0 ? 0 : v > 255 ? 255 : v;
}

static int plain(int x, int y, int c)
{
    return (2 * x + 3 * y + 50 * c + 64 * (((x >> 3) + (y >> 3)) & 1)) & 255;
}

static int noise(int x, int y, int c, int k)
{
    uint32_t u = ((uint32_t)x * 73856093u) ^ ((uint32_t)y * 19349663u) ^ ((uint32_t)c * 83492791u);
    u = u * 1664525u + 1013904223u;
    return (int)(u >> 24) % k - k / 2;
}

static int between(int v, int last)
{
    return v < 0 ? 0 : v > last ? last : v;
}

static int changed(enum kind kind, int x, int y, int c, int w, int h)
{
    int sum = 0;
    switch (kind) {
    case NOISY:
        return clip(plain(x, y, c) + noise(x, y, c, 31));
    case NOISIER:
        return clip(plain(x, y, c) + noise(x, y, c, 121));
    case BRIGHTER:
        return clip(plain(x, y, c) + 12);
    case BLURRED:
        for (int i = -1; i <= 1; i++)
            for (int j = -1; j <= 1; j++)
                sum += plain(between(x + j, w - 1), between(y + i, h - 1), c);
        return sum / 9;
    }
    return 0;
}

static struct dk_image new_image(int w, int h)
{
    struct dk_image image = {w, h, malloc(3 * (size_t)w * (size_t)h)};
    if (!image.rgb) exit(1);
    return image;
}

static void make(int w, int h, enum kind kind, struct dk_image *a, struct dk_image *b)
{
    *a = new_image(w, h);
    *b = new_image(w, h);
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            for (int c = 0; c < 3; c++) {
                size_t at = 3 * ((size_t)y * (size_t)w + (size_t)x) + (size_t)c;
                a->rgb[at] = (uint8_t)plain(x, y, c);
                b->rgb[at] = (uint8_t)changed(kind, x, y, c, w, h);
            }
}

/*
 * Printed by tests/golden/metrics/make.py with scikit-image 0.19.3: peak_signal_noise_ratio;
 * structural_similarity with gaussian_weights, sigma 1.5 and use_sample_covariance False (for 17 x
 * 10, which is too small for it, the script's own sum); MS-SSIM from the paper's equations in
 * numpy; gradient and deviation in numpy.
 */
static const struct {
    int w, h;
    enum kind kind;
    double psnr_db, ssim, ms_ssim;
    int n_scales;
    double sharpness, contrast;
} expected[] = {
    {200, 181, NOISY, 29.148877, 0.948812, 0.995693, 5, 42.157933, 49.419873},
    {200, 181, NOISIER, 17.523842, 0.658329, 0.954715, 5, 58.478795, 52.151958},
    {200, 181, BLURRED, 18.989533, 0.793377, 0.943457, 5, 19.230479, 42.601022},
    {200, 181, BRIGHTER, 26.692995, 0.994531, 0.999305, 5, 40.197300, 48.918373},
    {128, 128, NOISY, 29.160158, 0.948385, 0.994987, 4, 42.058626, 49.552085},
    {128, 128, NOISIER, 17.526814, 0.662106, 0.948522, 4, 58.388401, 52.356721},
    {128, 128, BLURRED, 19.049400, 0.793412, 0.935444, 4, 19.170209, 42.791661},
    {128, 128, BRIGHTER, 26.693583, 0.994515, 0.998715, 4, 40.002390, 49.001907},
    {33, 46, NOISY, 29.182289, 0.956567, 0.988670, 2, 36.563671, 43.627136},
    {33, 46, NOISIER, 17.429338, 0.662652, 0.869953, 2, 55.318240, 47.573622},
    {33, 46, BLURRED, 19.616550, 0.800594, 0.906070, 2, 16.824205, 37.353398},
    {33, 46, BRIGHTER, 26.696740, 0.996565, 0.997478, 2, 34.389413, 42.923385},
    {17, 10, NOISY, 28.968432, 0.953298, 0.953298, 1, 33.381207, 38.626830},
    {17, 10, NOISIER, 17.179890, 0.623807, 0.623807, 1, 53.202753, 45.183981},
    {17, 10, BLURRED, 25.240426, 0.830567, 0.830567, 1, 16.138506, 33.076194},
    {17, 10, BRIGHTER, 26.547179, 0.992757, 0.992757, 1, 31.306726, 38.262687},
};

static void check_expected(void)
{
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        struct dk_image a, b;
        struct dk_metrics m = {0};
        int w = expected[i].w, h = expected[i].h;
        make(w, h, expected[i].kind, &a, &b);
        CHECK(dk_metrics_compare(&a, &b, &m, NULL), "case %zu", i);
        CHECK(fabs(m.psnr_db - expected[i].psnr_db) < 1e-4, "case %zu: psnr %f", i, m.psnr_db);
        CHECK(fabs(m.ssim - expected[i].ssim) < 1e-4, "case %zu: ssim %f", i, m.ssim);
        CHECK(fabs(m.ms_ssim - expected[i].ms_ssim) < 1e-4, "case %zu: ms-ssim %f", i, m.ms_ssim);
        CHECK(m.n_scales == expected[i].n_scales, "case %zu: %d scales", i, m.n_scales);
        CHECK(fabs(dk_metrics_sharpness(&b) - expected[i].sharpness) < 1e-4,
              "case %zu: sharpness %f", i, dk_metrics_sharpness(&b));
        CHECK(fabs(dk_metrics_contrast(&b) - expected[i].contrast) < 1e-4, "case %zu: contrast %f",
              i, dk_metrics_contrast(&b));
        struct dk_metrics back = {0};
        CHECK(dk_metrics_compare(&b, &a, &back, NULL) && back.ssim == m.ssim &&
                  back.psnr_db == m.psnr_db,
              "case %zu: the order matters", i);
        dk_image_free(&a);
        dk_image_free(&b);
    }
}

static void check_edges(void)
{
    struct dk_image a, b, small;
    struct dk_metrics m = {0};
    struct dk_error err = {0};
    make(40, 30, NOISY, &a, &b);
    memcpy(b.rgb, a.rgb, 3 * 40 * 30);
    CHECK(dk_metrics_compare(&a, &b, &m, NULL) && isinf(m.psnr_db) && m.psnr_db > 0,
          "equal: psnr %f", m.psnr_db);
    CHECK(m.ssim == 1 && m.ms_ssim == 1, "equal: ssim %f, ms-ssim %f", m.ssim, m.ms_ssim);
    small = new_image(1, 1);
    memset(small.rgb, 9, 3);
    CHECK(!dk_metrics_compare(&a, &small, &m, &err) && err.code == DK_ERROR_ARGUMENT &&
              strstr(err.message, "40x30"),
          "sizes: %s", err.message);
    CHECK(dk_metrics_compare(&small, &small, &m, NULL) && m.ssim == 1 && m.n_scales == 1,
          "one pixel: %f", m.ssim);
    CHECK(dk_metrics_sharpness(&small) == 0 && dk_metrics_contrast(&small) == 0,
          "one pixel has no edges");
    dk_image_free(&a);
    dk_image_free(&b);
    dk_image_free(&small);
    const float u[] = {1, 2, 3, 4}, v[] = {1, 2, 3, 2};
    CHECK(dk_metrics_rmse(u, v, 4) == 1, "rmse %f", dk_metrics_rmse(u, v, 4));
    CHECK(dk_metrics_rmse(u, u, 4) == 0 && dk_metrics_rmse(u, v, 0) == 0, "rmse of equals");
    static const int sides[][2] = {{1, 1},  {21, 1}, {22, 2},  {43, 2},  {44, 3},
                                   {87, 3}, {88, 4}, {175, 4}, {176, 5}, {4096, 5}};
    for (size_t i = 0; i < sizeof sides / sizeof sides[0]; i++)
        CHECK(metrics_scales(sides[i][0], 4096) == sides[i][1], "side %d: %d scales", sides[i][0],
              metrics_scales(sides[i][0], 4096));
}

int main(void)
{
    check_expected();
    check_edges();
    return check_end("checkmetrics");
}
