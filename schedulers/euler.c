/* euler.c - Euler: along the slope, order 1. */
/* SPDX-License-Identifier: MIT */

/*
 * Karras et al. 2022, "Elucidating the design space", arXiv:2206.00364, algorithm 2,
 * without its second half.
 *
 * With alpha = 1 the probability flow is dx/dsigma = (x - x0) / sigma = eps, and one step follows
 * its slope:
 *
 *     x' = x + (sigma' - sigma) eps
 *
 * With s_churn (a key of ours in the config) noise is added first, up to sigma_hat = sigma (1 +
 * gamma), gamma = min(s_churn / N, sqrt(2) - 1); as in diffusers the U-Net's answer is that of
 * the unchurned x.
 * When to use it: 20 to 30 steps of anything; with trailing spacing also the 1 to 4 of distilled
 * models.
 */
#include "common.h"

static double churn(struct dk_step *s, double sigma)
{
    const struct dk_solver_options *o = s->plan->options;
    double gamma = fmin(o->s_churn / s->plan->n_steps, sqrt(2) - 1), hat = sigma * (gamma + 1);
    dk_add(s->x, o->s_noise * sqrt(hat * hat - sigma * sigma), dk_noise(s), s->n);
    return hat;
}

static void step(struct dk_step *s)
{
    double sigma = dk_here(s).sigma;
    if (s->plan->options->s_churn > 0) sigma = churn(s, sigma);
    dk_add(s->x, dk_next(s).sigma - sigma, s->eps, s->n);
}

const struct dk_scheduler dk_scheduler_euler = {
    DK_SCHEDULER_HEAD,
    .name = "euler",
    .title = "Euler",
    .aliases = "EulerDiscreteScheduler, EDMEulerScheduler, k_euler",
    .summary = "simple, fast and steady; 20 to 30 steps",
    .paper = "Karras et al. 2022, arXiv:2206.00364",
    .order = 1,
    .passes_per_step = 1,
    .flags = DK_EXPLODING | DK_SIGMA_END,
    .steps_low = 20,
    .steps_high = 30,
    .spacing = DK_LINSPACE,
    .step = step,
};
DK_SCHEDULER_PLUGIN(dk_scheduler_euler)
