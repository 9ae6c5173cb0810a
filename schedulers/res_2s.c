/* res_2s.c - RES 2S: the refined exponential solver with two stages, order 2. */
/* SPDX-License-Identifier: MIT */

/*
 * Zhang et al. 2023, "Improved order analysis and design of exponential integrator for diffusion
 * models sampling", arXiv:2308.02157, with c2 = 1/2. In lambda, h = lambda' - lambda:
 *
 *     x~ = sigma_m / sigma x + alpha_m (1 - e^(-h/2)) x0                          at lambda + h / 2
 *     x' = sigma' / sigma x + alpha' ((p1 - 2 p2) x0 + 2 p2 x0~)
 *     p1 = 1 - e^-h,   p2 = 1 - p1 / h
 *
 * DPM++ 2S (dpmpp_2s_a.c) gives all the weight to x0~, which is of order 2 as well, but not on
 * stiff problems. The last step, to sigma 0, gives x0 itself: 2 N - 1 calls. The multistep form of
 * the same paper is dpmpp_2m.c with solver_type "heun" ("res_multistep").
 * When to use it: as Heun; 10 to 20 steps.
 */
#include "common.h"

enum { START, FIRST, N_VECTORS };

static struct dk_point middle(const struct dk_plan *plan, int i)
{
    return dk_point_of_sigma(plan, sqrt(dk_sigma(plan->node[i]) * dk_sigma(plan->node[i + 1])));
}

static bool plan(struct dk_plan *plan)
{
    return dk_plan_two(plan, middle);
}

static void step(struct dk_step *s)
{
    float *start = dk_vector(s, START), *first = dk_vector(s, FIRST);
    struct dk_point from = s->plan->node[dk_this_call(s)->step], to = dk_next(s);
    if (dk_this_call(s)->stage == 0) {
        struct dk_point mid = dk_more_calls(s) ? dk_this_call(s)[1].at : to;
        double keep = mid.sigma / from.sigma;
        dk_copy(start, s->x, s->n);
        dk_copy(first, s->x0, s->n);
        dk_mix(s->x, keep, s->x, mid.alpha - from.alpha * keep, s->x0, s->n);
    } else {
        double h = dk_lambda(to) - dk_lambda(from), p1 = -expm1(-h), p2 = 1 - p1 / h;
        dk_mix(s->x, to.sigma / from.sigma, start, to.alpha * (p1 - 2 * p2), first, s->n);
        dk_add(s->x, to.alpha * 2 * p2, s->x0, s->n);
    }
}

const struct dk_scheduler dk_scheduler_res_2s = {
    DK_SCHEDULER_HEAD,
    .name = "res-2s",
    .title = "RES 2S",
    .aliases = "res2s",
    .summary = "second order, two passes a step, steady with strong guidance; 10 to 20 steps",
    .paper = "Zhang et al. 2023, arXiv:2308.02157",
    .order = 2,
    .passes_per_step = 2,
    .flags = DK_ANY_FORM | DK_INTEGER_T,
    .steps_low = 10,
    .steps_high = 20,
    .spacing = DK_LINSPACE,
    .n_vectors = N_VECTORS,
    .plan = plan,
    .step = step,
};
DK_SCHEDULER_PLUGIN(dk_scheduler_res_2s)
