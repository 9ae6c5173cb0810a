/* ralston.c - a scheduler of one's own: Ralston's method, see docs/add-a-scheduler.md. */
/* SPDX-License-Identifier: MIT */

/*
 * Of all methods with two slopes a step, Ralston 1962 ("Runge-Kutta methods with minimum error
 * bounds", Math. Comp. 16) found the one with the least error bound. With dx/dsigma = (x - x0) /
 * sigma = eps, h = sigma' - sigma:
 *
 *     k1 = eps at sigma,   k2 = eps at sigma + 2/3 h, where x~ = x + 2/3 h k1
 *     x' = x + h (k1 + 3 k2) / 4
 *
 * The last step, to sigma 0, is Euler's: 2 N - 1 calls.
 */
#include "common.h"

enum { START, SLOPE, N_VECTORS };

static struct dk_point two_thirds(const struct dk_plan *plan, int i)
{
    return dk_point_of_sigma(plan, plan->node[i].sigma +
                                       2 / 3.0 * (plan->node[i + 1].sigma - plan->node[i].sigma));
}
static bool plan(struct dk_plan *plan)
{
    return dk_plan_two(plan, two_thirds);
}

static void step(struct dk_step *s)
{
    float *start = dk_vector(s, START), *slope = dk_vector(s, SLOPE);
    double h = dk_next(s).sigma - s->plan->node[dk_this_call(s)->step].sigma;
    if (dk_this_call(s)->stage == 0) {
        dk_copy(start, s->x, s->n);
        dk_copy(slope, s->eps, s->n);
        dk_add(s->x, dk_more_calls(s) ? 2 / 3.0 * h : h, slope, s->n);
    } else {
        dk_mix(slope, 0.25, slope, 0.75, s->eps, s->n);
        dk_mix(s->x, 1, start, h, slope, s->n);
    }
}

const struct dk_scheduler dk_scheduler_ralston = {
    DK_SCHEDULER_HEAD,
    .name = "ralston",
    .title = "Ralston",
    .aliases = "",
    .summary = "second order, two passes a step, the least error bound of its kind",
    .paper = "Ralston 1962",
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
DK_SCHEDULER_PLUGIN(dk_scheduler_ralston)
