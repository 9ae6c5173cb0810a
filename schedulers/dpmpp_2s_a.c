/* dpmpp_2s_a.c - DPM++ 2S ancestral: DPM-Solver++(2S) with fresh noise at every step. */
/* SPDX-License-Identifier: MIT */

/*
 * k-diffusion, after Lu et al. 2022, "DPM-Solver++", arXiv:2211.01095, algorithm 1.
 *
 * DPM-Solver++(2S) with r = 1/2 from lambda to lambda_down, then noise of sigma_up
 * (dk_ancestral). h = lambda_down - lambda:
 *
 *     x~ = sigma_m / sigma x - alpha_m (e^(-h/2) - 1) x0                       at lambda + h / 2
 *     x' = sigma_down / sigma x - alpha' (e^(-h) - 1) x0~ + sigma_up noise
 *
 * The last step, to sigma 0, gives x0 itself: 2 N - 1 calls.
 * When to use it: as Euler a, at twice the passes and with finer detail.
 */
#include "common.h"

enum { START, N_VECTORS };

static double sigma_down(const struct dk_plan *plan, int i, double *up)
{
    double down;
    dk_ancestral(dk_sigma(plan->node[i]), dk_sigma(plan->node[i + 1]), plan->eta, &down, up);
    return down;
}

static struct dk_point middle(const struct dk_plan *plan, int i)
{
    double up;
    return dk_point_or_node(plan, sqrt(dk_sigma(plan->node[i]) * sigma_down(plan, i, &up)), i + 1);
}
static bool plan(struct dk_plan *plan)
{
    return dk_plan_two(plan, middle);
}

static void step(struct dk_step *s)
{
    float *start = dk_vector(s, START);
    double up, from = dk_sigma(s->plan->node[dk_this_call(s)->step]),
               down = sigma_down(s->plan, dk_this_call(s)->step, &up);
    if (dk_this_call(s)->stage == 0) {
        double to = dk_more_calls(s) ? dk_this_call(s)[1].at.sigma : down;
        dk_copy(start, s->x, s->n);
        dk_mix(s->x, to / from, s->x, 1 - to / from, s->x0, s->n);
    } else {
        dk_mix(s->x, down / from, start, 1 - down / from, s->x0, s->n);
        if (up > 0) dk_add(s->x, up, dk_noise(s), s->n);
    }
}

const struct dk_scheduler dk_scheduler_dpmpp_2s_a = {
    DK_SCHEDULER_HEAD,
    .name = "dpmpp-2s-a",
    .title = "DPM++ 2S a",
    .aliases = "dpmpp_2s_ancestral, dpm++2s_a",
    .summary = "second order with fresh noise, two passes a step",
    .paper = "Lu et al. 2022, arXiv:2211.01095; k-diffusion",
    .order = 2,
    .passes_per_step = 2,
    .flags = DK_EXPLODING | DK_STOCHASTIC | DK_ETA,
    .steps_low = 15,
    .steps_high = 30,
    .spacing = DK_LINSPACE,
    .eta = 1,
    .n_vectors = N_VECTORS,
    .plan = plan,
    .step = step,
};
DK_SCHEDULER_PLUGIN(dk_scheduler_dpmpp_2s_a)
