/* scalar.c - the inner loops in plain C: the reference for all others. */
/* SPDX-License-Identifier: MIT */
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

static float act_value(float x, enum act act)
{
    switch (act) {
    case ACT_SILU:
        return x / (1.0f + expf(-x));
    case ACT_GELU:
        return 0.5f * x * erfcf(x * -0.70710678118654752f); /* 1 + erf, nothing cancelled */
    case ACT_QUICK_GELU:
        return x / (1.0f + expf(-1.702f * x));
    case ACT_RELU:
        return x < 0 ? 0 : x; /* NaN stays */
    default:
        return x;
    }
}

static void pack(float *out, const float *rows, size_t ld, size_t n, size_t k)
{
    for (size_t i = 0; i < k; i++) {
        for (size_t j = 0; j < GEMM_PANEL; j++)
            out[i * GEMM_PANEL + j] = j < n ? rows[j * ld + i] : 0.0f;
    }
}

static void gemm_panel(const struct gemm *g)
{
    for (size_t i = 0; i < g->m; i++) {
        float sum[GEMM_PANEL] = {0}, *c = g->c + i * g->ldc;
        const float *b = g->b;
        if (g->accumulate) memcpy(sum, c, g->n * sizeof(float));
        for (size_t r = 0; r < g->n_runs; r++) {
            const float *a = g->a + g->row[i] + g->runs[r].offset;
            for (size_t k = 0; k < g->runs[r].k; k++, b += GEMM_PANEL) {
                for (size_t j = 0; j < GEMM_PANEL; j++) sum[j] += a[k] * b[j];
            }
        }
        for (size_t j = 0; g->bias && j < GEMM_PANEL; j++) sum[j] += g->bias[j];
        for (size_t j = 0; j < g->n; j++) {
            float y =
                g->geglu ? sum[j] * act_value(sum[8 + j], ACT_GELU) : act_value(sum[j], g->act);
            c[j] = g->residual ? y + g->residual[i * g->ldc + j] : y;
        }
    }
}

static void gemm(const struct gemm *g)
{
    for (size_t i = 0; i * gemm_width(g) < g->n; i++) {
        struct gemm panel = gemm_panels(g, i, 1);
        gemm_panel(&panel);
    }
}

static void affine_act(float *y, const float *x, const float *scale, const float *shift, size_t n,
                       enum act act)
{
    for (size_t i = 0; i < n; i++) y[i] = act_value(x[i] * scale[i] + shift[i], act);
}

static void act_row(float *y, const float *x, size_t n, enum act act)
{
    for (size_t i = 0; i < n; i++) y[i] = act_value(x[i], act);
}

static void add(float *y, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

static void scale_row(float *y, const float *x, float factor, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = x[i] * factor;
}

static bool all_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) return false;
    }
    return true;
}

static void moments(double *sum, double *sum_sq, const float *x, size_t rows, size_t c)
{
    for (size_t i = 0; i < rows; i++, x += c) {
        for (size_t j = 0; j < c; j++) {
            sum[j] += (double)x[j];
            sum_sq[j] += (double)x[j] * (double)x[j];
        }
    }
}

static void layer_norm(float *y, const float *x, size_t n, float eps, const float *weight,
                       const float *bias)
{
    double sum = 0, sum_sq = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i];
    double mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) sum_sq += ((double)x[i] - mean) * ((double)x[i] - mean);
    float scale = (float)(1.0 / sqrt(sum_sq / (double)n + (double)eps)), shift = (float)mean;
    for (size_t i = 0; i < n; i++) y[i] = (x[i] - shift) * scale * weight[i] + bias[i];
}

static float softmax(float *s, size_t n, size_t n_all, float scale, float *max, float *sum)
{
    float old = *max, top = old, add_up = 0;
    for (size_t i = 0; i < n; i++) {
        /* Not fmaxf: a NaN must reach the result. */
        if (!(s[i] <= top)) top = s[i];
    }
    for (size_t i = 0; i < n; i++) {
        s[i] = expf((s[i] - top) * scale);
        add_up += s[i];
    }
    for (size_t i = n; i < n_all; i++) s[i] = 0;
    if (n == 0) return 1.0f;
    float factor = old == top ? 1.0f : expf((old - top) * scale);
    *max = top;
    *sum = *sum * factor + add_up;
    return factor;
}

/* B^T of arXiv:1509.09308, section 4.3, applied to six values in steps of step. */
static void transform_input(float d[6], const float *x, size_t step)
{
    float x0 = x[0], x1 = x[step], x2 = x[2 * step], x3 = x[3 * step], x4 = x[4 * step],
          x5 = x[5 * step];
    d[0] = 4 * x0 - 5 * x2 + x4;
    d[1] = (x4 - 4 * x2) + (x3 - 4 * x1);
    d[2] = (x4 - 4 * x2) - (x3 - 4 * x1);
    d[3] = (x4 - x2) + 2 * (x3 - x1);
    d[4] = (x4 - x2) - 2 * (x3 - x1);
    d[5] = 4 * x1 - 5 * x3 + x5;
}

static void wino_input(float *v, size_t plane_stride, const float *x, size_t row_stride,
                       size_t pixel_stride, size_t c)
{
    for (size_t ch = 0; ch < c; ch++) {
        float half[6][6], out[6];
        for (size_t j = 0; j < 6; j++) {
            transform_input(out, x + j * pixel_stride + ch, row_stride);
            for (size_t i = 0; i < 6; i++) half[i][j] = out[i];
        }
        for (size_t i = 0; i < 6; i++) {
            transform_input(out, half[i], 1);
            for (size_t j = 0; j < 6; j++) v[(i * 6 + j) * plane_stride + ch] = out[j];
        }
    }
}

/* G applied to three values in steps of step. */
static void transform_weight(float u[6], const float *g, size_t step)
{
    float even = g[0] + g[2 * step], quarter = g[0] / 24 + g[2 * step] / 6;
    u[0] = g[0] / 4;
    u[1] = -(even + g[step]) / 6;
    u[2] = -(even - g[step]) / 6;
    u[3] = quarter + g[step] / 12;
    u[4] = quarter - g[step] / 12;
    u[5] = g[2 * step];
}

static void wino_weight(float *u, size_t plane_stride, const float *w, size_t n)
{
    for (size_t f = 0; f < n; f++) {
        float half[6][3], out[6];
        for (size_t j = 0; j < 3; j++) {
            transform_weight(out, w + j * n + f, 3 * n);
            for (size_t i = 0; i < 6; i++) half[i][j] = out[i];
        }
        for (size_t i = 0; i < 6; i++) {
            transform_weight(out, half[i], 1);
            for (size_t j = 0; j < 6; j++) u[(i * 6 + j) * plane_stride + f] = out[j];
        }
    }
}

/* A^T applied to six values in steps of step. */
static void transform_output(float y[4], const float *m, size_t step)
{
    float m0 = m[0], m1 = m[step], m2 = m[2 * step], m3 = m[3 * step], m4 = m[4 * step],
          m5 = m[5 * step];
    y[0] = m0 + (m1 + m2) + (m3 + m4);
    y[1] = (m1 - m2) + 2 * (m3 - m4);
    y[2] = (m1 + m2) + 4 * (m3 + m4);
    y[3] = (m1 - m2) + 8 * (m3 - m4) + m5;
}

static void wino_output(const struct wino_output *o)
{
    for (size_t ch = 0; ch < o->c; ch++) {
        float half[4][6], out[4];
        for (size_t j = 0; j < 6; j++) {
            transform_output(out, o->m + j * o->plane_stride + ch, 6 * o->plane_stride);
            for (size_t i = 0; i < 4; i++) half[i][j] = out[i];
        }
        for (int i = 0; i < o->rows; i++) {
            transform_output(out, half[i], 1);
            for (int j = 0; j < o->columns; j++) {
                size_t at = (size_t)i * o->row_stride + (size_t)j * o->pixel_stride + ch;
                float y = o->bias ? out[j] + o->bias[ch] : out[j];
                if (o->residual) y += o->residual[at];
                o->y[at] = o->relu ? act_value(y, ACT_RELU) : y;
            }
        }
    }
}

static double burn(size_t rounds)
{
    float v[16], all = 0;
    for (int i = 0; i < 16; i++) v[i] = (float)i;
    for (size_t r = 0; r < rounds; r++) {
        for (int i = 0; i < 16; i++) v[i] = v[i] * 0.999f + 0.001f;
    }
    for (int i = 0; i < 16; i++) all += v[i];
    return all >= 0 ? 2.0 * 16 * (double)rounds : 0;
}

void kernels_init_scalar(struct kernels *k)
{
    *k = (struct kernels){
        .level = "scalar",
        .burn = burn,
        .unpack = dtype_unpack,
        .pack = pack,
        .gemm = gemm,
        .affine_act = affine_act,
        .act = act_row,
        .add = add,
        .all_finite = all_finite,
        .moments = moments,
        .layer_norm = layer_norm,
        .softmax = softmax,
        .scale = scale_row,
        .wino_input = wino_input,
        .wino_weight = wino_weight,
        .wino_output = wino_output,
    };
}
