/* dpm2_a.c - DPM2 ancestral: the midpoint rule with fresh noise at every step. */
/* SPDX-License-Identifier: MIT */

/*
 * k-diffusion.
 *
 * As dpm2.c, but to sigma_down instead of sigma', with noise of sigma_up added after it
 * (dk_ancestral):
 *
 *     x~ = x + (sigma_m - sigma) (x - x0) / sigma,        sigma_m = sqrt(sigma sigma_down)
 *     x' = x + (sigma_down - sigma) (x~ - x0~) / sigma_m + sigma_up noise
 *
 * With eta 1, sigma_m is sigma' itself. When to use it: rarely; it costs two passes and is of
 * order 1 like Euler a.
 */
#include "common.h"

enum { START, N_VECTORS };

static struct dk_point middle(const struct dk_plan *plan, int i)
{
    double down, up, sigma = plan->node[i].sigma;
    dk_ancestral(sigma, plan->node[i + 1].sigma, plan->eta, &down, &up);
    return dk_point_or_node(plan, sqrt(sigma * down), i + 1);
}
static bool plan(struct dk_plan *plan)
{
    return dk_plan_two(plan, middle);
}

static void step(struct dk_step *s)
{
    float *start = dk_vector(s, START);
    double down, up, from = s->plan->node[dk_this_call(s)->step].sigma;
    dk_ancestral(from, dk_next(s).sigma, s->plan->eta, &down, &up);
    if (dk_this_call(s)->stage == 0) {
        double to = dk_more_calls(s) ? dk_this_call(s)[1].at.sigma : down;
        dk_copy(start, s->x, s->n);
        dk_add(s->x, to - from, s->eps, s->n);
    } else {
        dk_mix(s->x, 1, start, down - from, s->eps, s->n);
        if (up > 0) dk_add(s->x, up, dk_noise(s), s->n);
    }
}

const struct dk_scheduler dk_scheduler_dpm2_a = {
    DK_SCHEDULER_HEAD,
    .name = "dpm2-a",
    .title = "DPM2 a",
    .aliases = "KDPM2AncestralDiscreteScheduler, dpm_2_ancestral, dpm2_ancestral, k_dpm_2_a",
    .summary = "DPM2 with fresh noise at every step",
    .paper = "k-diffusion",
    .order = 2,
    .passes_per_step = 2,
    .flags = DK_EXPLODING | DK_INTEGER_SIGMA_T | DK_STOCHASTIC | DK_ETA,
    .steps_low = 20,
    .steps_high = 40,
    .spacing = DK_LINSPACE,
    .eta = 1,
    .n_vectors = N_VECTORS,
    .plan = plan,
    .step = step,
};
DK_SCHEDULER_PLUGIN(dk_scheduler_dpm2_a)
