/* common.h - formulas several schedulers share. */
/* SPDX-License-Identifier: MIT */
#ifndef SCHEDULERS_COMMON_H
#define SCHEDULERS_COMMON_H

/* Everything is static inline, so that a plugin needs nothing but its own source. */

#include "scheduler.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

/* ---- plan ----------------------------------------------------------------------------------------------------- */

static inline bool dk_refuse(struct dk_plan *plan, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline bool dk_refuse(struct dk_plan *plan, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(plan->reason, sizeof plan->reason, format, list);
    va_end(list);
    return false;
}

static inline bool dk_call_add(struct dk_plan *plan, struct dk_point at, int step, int stage)
{
    if (plan->n_calls >= plan->n_calls_max)
        return dk_refuse(plan, "%d steps need more than %d passes: ask for fewer steps", plan->n_steps,
                         plan->n_calls_max);
    plan->call[plan->n_calls++] = (struct dk_call){at, step, stage};
    return true;
}

/*
 * The timesteps distillation used: of the grid t = k j - 1, j = 1 .. original, k = n_train / original, every
 * original / n-th from the top (LCM and TCD; 4 of 50: 999 759 499 259).
 */
static inline bool dk_distilled_timesteps(struct dk_plan *plan, double *t)
{
    int original = plan->options->original_inference_steps, n = plan->n_steps;
    if (original < 1 || original > plan->model->n_train || n > original)
        return dk_refuse(plan, "%d steps of the %d this model was distilled on: ask for %d at most", n, original,
                         original);
    int k = plan->model->n_train / original;
    for (int i = 0; i < n; i++) t[i] = k * (original - (int)floor(i * ((double)original / n))) - 1;
    return true;
}

/* ---- points --------------------------------------------------------------------------------------------------- */

/* The point of this noise to signal ratio. */
static inline struct dk_point dk_point_of_sigma(const struct dk_plan *plan, double sigma)
{
    return dk_point_at(plan->exploding, sigma > 0 ? dk_t_of_sigma(plan->model, sigma) : -1, sigma);
}

/* The call being answered, where it was made, and where its step ends. */
static inline const struct dk_call *dk_this_call(const struct dk_step *s)
{
    return &s->plan->call[s->call];
}
static inline struct dk_point dk_here(const struct dk_step *s)
{
    return dk_this_call(s)->at;
}
static inline struct dk_point dk_next(const struct dk_step *s)
{
    return s->plan->node[dk_this_call(s)->step + 1];
}

/* ---- vectors -------------------------------------------------------------------------------------------------- */

/* Vector i of this image's memory. */
static inline float *dk_vector(const struct dk_step *s, int i)
{
    return s->state + (size_t)i * s->n;
}

/* The next unit normals of this image's generator, [n]. */
static inline const float *dk_noise(const struct dk_step *s)
{
    s->draw(s->user, s->noise, s->n);
    return s->noise;
}

static inline void dk_copy(float *y, const float *u, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = u[i];
}

/* y += b v */
static inline void dk_add(float *y, double b, const float *v, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = (float)((double)y[i] + b * (double)v[i]);
}

/* y = a u + b v; y may be u or v */
static inline void dk_mix(float *y, double a, const float *u, double b, const float *v, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = (float)(a * (double)u[i] + b * (double)v[i]);
}

/* ---- steps ---------------------------------------------------------------------------------------------------- */

/*
 * How much of the way from sigma to next is walked and how much is fresh noise (Song et al. 2020, DDIM, eq. 16, in
 * the exploding form):   up = min(next, eta sqrt(next^2 (sigma^2 - next^2) / sigma^2)),  down^2 = next^2 - up^2
 */
static inline void dk_ancestral(double sigma, double next, double eta, double *down, double *up)
{
    double share = isinf(sigma) ? 1 : (sigma * sigma - next * next) / (sigma * sigma);
    *up = fmin(next, eta * next * sqrt(fmax(share, 0)));
    *down = sqrt(fmax(next * next - *up * *up, 0));
}

#endif
