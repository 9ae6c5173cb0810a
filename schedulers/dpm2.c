/* dpm2.c - DPM2: the midpoint rule in ln sigma. */
/* SPDX-License-Identifier: MIT */

/*
 * k-diffusion, after Karras et al. 2022, arXiv:2206.00364.
 *
 *     x~ = x + (sigma_m - sigma) (x - x0) / sigma,        sigma_m = sqrt(sigma sigma')
 *     x' = x + (sigma' - sigma) (x~ - x0~) / sigma_m
 *
 * The U-Net is asked between two planned timesteps; the last step, to sigma 0, is Euler's: 2 N -
 * 1 calls. With DPM-Solver-2 (Lu et al. 2022, arXiv:2206.00927) it shares the middle, not the
 * formula.
 * When to use it: as Heun, with which it is about even.
 */
#include "common.h"

enum { START, N_VECTORS };

static struct dk_point middle(const struct dk_plan *plan, int i)
{
    return dk_point_of_sigma(plan, sqrt(plan->node[i].sigma * plan->node[i + 1].sigma));
}
static bool plan(struct dk_plan *plan)
{
    return dk_plan_two(plan, middle);
}

static void step(struct dk_step *s)
{
    float *start = dk_vector(s, START);
    double from = s->plan->node[dk_this_call(s)->step].sigma;
    if (dk_this_call(s)->stage == 0) {
        double to = dk_more_calls(s) ? dk_this_call(s)[1].at.sigma : dk_next(s).sigma;
        dk_copy(start, s->x, s->n);
        dk_add(s->x, to - from, s->eps, s->n);
    } else {
        dk_mix(s->x, 1, start, dk_next(s).sigma - from, s->eps, s->n);
    }
}

const struct dk_scheduler dk_scheduler_dpm2 = {
    DK_SCHEDULER_HEAD,
    .name = "dpm2",
    .title = "DPM2",
    .aliases = "KDPM2DiscreteScheduler, dpm_2, k_dpm_2",
    .summary = "second order, two passes a step",
    .paper = "k-diffusion, after Karras et al. 2022, arXiv:2206.00364",
    .order = 2,
    .passes_per_step = 2,
    .flags = DK_EXPLODING | DK_INTEGER_SIGMA_T,
    .steps_low = 15,
    .steps_high = 25,
    .spacing = DK_LINSPACE,
    .n_vectors = N_VECTORS,
    .plan = plan,
    .step = step,
};
DK_SCHEDULER_PLUGIN(dk_scheduler_dpm2)
