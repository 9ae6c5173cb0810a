/* heun.c - Heun: the mean of two slopes, order 2. */
/* SPDX-License-Identifier: MIT */

/*
 * Karras et al. 2022, "Elucidating the design space", arXiv:2206.00364, algorithm 1.
 *
 * An Euler step to sigma', the slope there, and the step again with the mean of both slopes:
 *
 *     d  = (x - x0) / sigma,     x~ = x + h d,     h = sigma' - sigma
 *     d' = (x~ - x0~) / sigma',  x' = x + h (d + d') / 2
 *
 * The last step, to sigma 0, is Euler's: 2 N - 1 calls.
 * When to use it: when accuracy counts more than passes; 15 to 25 steps.
 */
#include "common.h"

enum { START, SLOPE, N_VECTORS };

static struct dk_point second(const struct dk_plan *plan, int i)
{
    return plan->node[i + 1];
}
static bool plan(struct dk_plan *plan)
{
    return dk_plan_two(plan, second);
}

static void step(struct dk_step *s)
{
    double sigma = dk_here(s).sigma, h;
    float *start = dk_vector(s, START), *slope = dk_vector(s, SLOPE);
    if (dk_this_call(s)->stage == 0) {
        h = dk_next(s).sigma - sigma;
        dk_copy(start, s->x, s->n);
        dk_copy(slope, s->eps, s->n);
        dk_add(s->x, h, slope, s->n);
    } else {
        h = sigma - s->plan->node[dk_this_call(s)->step].sigma;
        dk_mix(slope, 0.5, slope, 0.5, s->eps, s->n);
        dk_mix(s->x, 1, start, h, slope, s->n);
    }
}

const struct dk_scheduler dk_scheduler_heun = {
    DK_SCHEDULER_HEAD,
    .name = "heun",
    .title = "Heun",
    .aliases = "HeunDiscreteScheduler, k_heun",
    .summary = "second order, two passes a step: accurate and slow",
    .paper = "Karras et al. 2022, arXiv:2206.00364",
    .order = 2,
    .passes_per_step = 2,
    .flags = DK_EXPLODING,
    .steps_low = 15,
    .steps_high = 25,
    .spacing = DK_LINSPACE,
    .n_vectors = N_VECTORS,
    .plan = plan,
    .step = step,
};
DK_SCHEDULER_PLUGIN(dk_scheduler_heun)
