/* dpmpp_sde.c - DPM++ SDE: DPM-Solver++(2S) with noise on both legs. */
/* SPDX-License-Identifier: MIT */

/*
 * k-diffusion, after Lu et al. 2022, "DPM-Solver++", arXiv:2211.01095.
 *
 * With lambda = -ln sigma, a middle at lambda_m = lambda + h / 2, and dk_ancestral() for both
 * legs:
 *
 *     x~ = sigma_down_m / sigma x + (1 - sigma_down_m / sigma) x0 + sigma_up_m noise
 *     x' = sigma_down / sigma x + (1 - sigma_down / sigma) x0~ + sigma_up noise
 *
 * (r = 1/2, for which the mean of x0 and x0~ has weights 0 and 1.) Two draws a step; the last
 * step, to sigma 0, gives x0: 2 N - 1 calls. When to use it: rich detail in 10 to 20 steps, at
 * two passes each.
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
    double down, up, from = s->plan->node[dk_this_call(s)->step].sigma;
    bool first = dk_this_call(s)->stage == 0;
    double to = first && dk_more_calls(s) ? dk_this_call(s)[1].at.sigma : dk_next(s).sigma;
    if (first) dk_copy(start, s->x, s->n);
    dk_ancestral(from, to, s->plan->eta, &down, &up);
    dk_mix(s->x, down / from, start, 1 - down / from, s->x0, s->n);
    if (up > 0) dk_add(s->x, up, dk_noise(s), s->n);
}

const struct dk_scheduler dk_scheduler_dpmpp_sde = {
    DK_SCHEDULER_HEAD,
    .name = "dpmpp-sde",
    .title = "DPM++ SDE",
    .aliases = "DPMSolverSDEScheduler, dpmpp_sde",
    .summary = "stochastic, two passes a step: rich detail in 10 to 20 steps",
    .paper = "k-diffusion, after Lu et al. 2022, arXiv:2211.01095",
    .order = 2,
    .passes_per_step = 2,
    .flags = DK_EXPLODING | DK_STOCHASTIC | DK_ETA,
    .steps_low = 10,
    .steps_high = 20,
    .spacing = DK_LINSPACE,
    .eta = 1,
    .n_vectors = N_VECTORS,
    .plan = plan,
    .step = step,
};
DK_SCHEDULER_PLUGIN(dk_scheduler_dpmpp_sde)
