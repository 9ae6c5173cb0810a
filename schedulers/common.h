/* common.h - formulas several schedulers share. */
/* SPDX-License-Identifier: MIT */
#ifndef SCHEDULERS_COMMON_H
#define SCHEDULERS_COMMON_H

/* Everything is static inline, so that a plugin needs nothing but its own source. */

#include "scheduler.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

/* ---- plan ------------------------------------------------------------------------------------ */

static inline bool dk_refuse(struct dk_plan *plan, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static inline bool dk_refuse(struct dk_plan *plan, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(plan->reason, sizeof plan->reason, format, list);
    va_end(list);
    return false;
}

static inline bool dk_call_add(struct dk_plan *plan, struct dk_call call)
{
    if (plan->n_calls >= plan->n_calls_max)
        return dk_refuse(plan, "%d steps need more than %d passes: ask for fewer steps",
                         plan->n_steps, plan->n_calls_max);
    plan->call[plan->n_calls++] = call;
    return true;
}

/* One call a step: what darkroom does when a scheduler has no plan(). */
static inline bool dk_plan_one(struct dk_plan *plan)
{
    for (int i = 0; i < plan->n_steps; i++)
        if (!dk_call_add(plan, (struct dk_call){plan->node[i], plan->node[i + 1], i, 0}))
            return false;
    return true;
}

/*
 * Two calls a step, the second one at second(step i); the last step, which ends at sigma 0, has
 * one.
 */
static inline bool dk_plan_two(struct dk_plan *plan,
                               struct dk_point (*second)(const struct dk_plan *plan, int i))
{
    for (int i = 0; i < plan->n_steps; i++) {
        struct dk_point at = plan->node[i], to = plan->node[i + 1];
        if (!dk_call_add(plan, (struct dk_call){at, to, i, 0})) return false;
        if (to.sigma > 0 && !dk_call_add(plan, (struct dk_call){second(plan, i), to, i, 1}))
            return false;
    }
    return true;
}

/*
 * The timesteps distillation used: of the grid t = k j - 1, j = 1 .. original, k = n_train /
 * original, every original / n-th from the top (LCM and TCD; 4 of 50: 999 759 499 259).
 */
static inline bool dk_distilled_timesteps(struct dk_plan *plan, double *t)
{
    int original = plan->options->original_inference_steps, n = plan->n_steps;
    if (original < 1 || original > plan->model->n_train || n > original)
        return dk_refuse(plan, "%d steps of the %d this model was distilled on: ask for %d at most",
                         n, original, original);
    int k = plan->model->n_train / original;
    for (int i = 0; i < n; i++) t[i] = k * (original - (int)floor(i * ((double)original / n))) - 1;
    return true;
}

/* Lin et al. 2023, arXiv:2305.08891, table 2, "trailing": n_train (1 - i / n) - 1. */
static inline bool dk_trailing_timesteps(struct dk_plan *plan, double *t)
{
    int n_train = plan->model->n_train;
    for (int i = 0; i < plan->n_steps; i++)
        t[i] = rint(n_train - i * ((double)n_train / plan->n_steps)) - 1;
    return true;
}

/* ---- points ---------------------------------------------------------------------------------- */

/* The point of this noise to signal ratio. */
static inline struct dk_point dk_point_of_sigma(const struct dk_plan *plan, double sigma)
{
    return dk_point_at(plan->exploding, sigma > 0 ? dk_t_of_sigma(plan->model, sigma) : -1, sigma);
}

/* The same, or the node itself when rounding is all that lies between. */
static inline struct dk_point dk_point_or_node(const struct dk_plan *plan, double sigma, int node)
{
    bool same = fabs(sigma / dk_sigma(plan->node[node]) - 1) < 1e-9;
    return same ? plan->node[node] : dk_point_of_sigma(plan, sigma);
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
    return dk_this_call(s)->to;
}
/* Whether this step has calls to come. */
static inline bool dk_more_calls(const struct dk_step *s)
{
    const struct dk_call *call = dk_this_call(s);
    return s->call + 1 < s->plan->n_calls && call[1].step == call->step;
}

/* ---- vectors --------------------------------------------------------------------------------- */

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

/* ---- steps ----------------------------------------------------------------------------------- */

/*
 * How much of the way from sigma to next is walked and how much is fresh noise (Song et al. 2020,
 * DDIM, eq. 16, in the exploding form):   up = min(next, eta sqrt(next^2 (sigma^2 - next^2) /
 * sigma^2)),  down^2 = next^2 - up^2
 */
static inline void dk_ancestral(double sigma, double next, double eta, double *down, double *up)
{
    double share = isinf(sigma) ? 1 : (sigma * sigma - next * next) / (sigma * sigma);
    *up = fmin(next, eta * next * sqrt(fmax(share, 0)));
    *down = sqrt(fmax(next * next - *up * *up, 0));
}

/* DDIM, eq. 12 and 16 (schedulers/ddim.c). */
static inline void dk_ddim_step(struct dk_step *s)
{
    struct dk_point here = dk_here(s), next = dk_next(s);
    double a = here.alpha * here.alpha, a_next = next.alpha * next.alpha;
    double variance = (1 - a_next) / (1 - a) * (1 - a / a_next);
    double noise_share = s->plan->eta * sqrt(fmax(variance, 0));

    dk_mix(s->x, next.alpha, s->x0, sqrt(fmax(1 - a_next - noise_share * noise_share, 0)), s->eps,
           s->n);
    if (noise_share > 0) dk_add(s->x, noise_share, dk_noise(s), s->n);
}

/* Euler ancestral (schedulers/euler_a.c). */
static inline void dk_euler_ancestral_step(struct dk_step *s)
{
    double sigma = dk_here(s).sigma, down, up;
    dk_ancestral(sigma, dk_next(s).sigma, s->plan->eta, &down, &up);
    dk_mix(s->x, down / sigma, s->x, 1 - down / sigma, s->x0, s->n);
    if (up > 0) dk_add(s->x, up, dk_noise(s), s->n);
}

/* How much of x a consistency function keeps, c_skip of schedulers/lcm.c. */
static inline double dk_lcm_skip(const struct dk_plan *plan, double t)
{
    double tau = t * plan->options->timestep_scaling;
    return 0.25 / (tau * tau + 0.25);
}

/* Near timestep 0 it keeps all of x, and the U-Net's answer counts for nothing. */
static inline bool dk_lcm_plan(struct dk_plan *plan)
{
    double last = plan->node[plan->n_steps - 1].t;
    if (dk_lcm_skip(plan, last) > 1e-4)
        return dk_refuse(
            plan, "the last timestep, %g, is too near 0 for a consistency model: end at 5 or above",
            last);
    return dk_plan_one(plan);
}

/* Multistep consistency sampling (schedulers/lcm.c). */
static inline void dk_lcm_step(struct dk_step *s)
{
    struct dk_point next = dk_next(s);
    double c_skip = dk_lcm_skip(s->plan, dk_here(s).t), c_out = sqrt(1 - c_skip);

    dk_mix(s->x, c_skip, s->x, c_out, s->x0, s->n);
    if (s->call < s->plan->n_calls - 1)
        dk_mix(s->x, next.alpha, s->x, next.sigma, dk_noise(s), s->n);
}

/* ---- history --------------------------------------------------------------------------------- */

/*
 * Multistep solvers remember what the U-Net said at the last steps: dk_keep() puts v in a ring of
 * k vectors, dk_past() finds what was put there back steps ago (0: this step's).
 */
static inline void dk_keep(const struct dk_step *s, int k, const float *v)
{
    dk_copy(dk_vector(s, dk_this_call(s)->step % k), v, s->n);
}
static inline const float *dk_past(const struct dk_step *s, int k, int back)
{
    return dk_vector(s, (dk_this_call(s)->step - back) % k);
}
/* lambda back steps ago. */
static inline double dk_past_lambda(const struct dk_step *s, int back)
{
    return dk_lambda(s->plan->node[dk_this_call(s)->step - back]);
}

/*
 * The order at a step: what is wanted, at most what the history allows; at the end of a run lower
 * again: 1 when the step ends at sigma 0 (there is no lambda to interpolate to), and in short
 * runs (under 15) 1 and 2 for the last two.
 */
static inline int dk_order_at(const struct dk_step *s, int wanted)
{
    const struct dk_plan *plan = s->plan;
    int step = dk_this_call(s)->step, left = plan->n_steps - step;
    int order = step + 1 < wanted ? step + 1 : wanted;
    bool lowers = plan->options->lower_order_final && plan->n_steps < 15;
    if (left == 1 && (dk_next(s).sigma <= 0 || plan->options->euler_at_final || lowers)) return 1;
    if (left == 2 && lowers && order > 2) return 2;
    return order;
}

#endif
