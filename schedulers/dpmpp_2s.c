/* dpmpp_2s.c - DPM++ 2S: the single-step DPM-Solver++ on the planned timesteps. */
/* SPDX-License-Identifier: MIT */

/*
 * Lu et al. 2022, "DPM-Solver++", arXiv:2211.01095, algorithm 1.
 *
 * A pair of steps forms one of second order whose middle is the timestep between them; h and h0
 * in lambda, r = h0 / h:
 *
 *     from s to m:   x~ = sigma_m / sigma x - alpha_m (e^-h0 - 1) x0
 *     from s to t:   x' = sigma_t / sigma x - alpha_t (e^-h - 1) (x0 + (x0~ - x0) / (2 r))
 *
 * so N steps are N calls, every second one finishing a pair. A step that would end a pair at
 * sigma 0 is of order 1, as is the last of an odd number.
 * When to use it: like DPM++ 2M without its memory; for models that change abruptly between
 * steps.
 */
#include "common.h"

enum { START, START_X0, N_VECTORS };

/*
 * A step without a pair goes on from where x is; the second of a pair goes from its partner's
 * start.
 */
static void step(struct dk_step *s)
{
    float *start = dk_vector(s, START), *start_x0 = dk_vector(s, START_X0);
    struct dk_point here = dk_here(s), next = dk_next(s);
    int step = dk_this_call(s)->step;
    if (step % 2 == 0 || next.sigma <= 0) {
        dk_copy(start, s->x, s->n);
        dk_copy(start_x0, s->x0, s->n);
        double keep = next.sigma / here.sigma;
        dk_mix(s->x, keep, s->x, next.alpha - here.alpha * keep, s->x0, s->n);
        return;
    }
    struct dk_point first = s->plan->node[step - 1];
    double h = dk_lambda(next) - dk_lambda(first), r = (dk_lambda(here) - dk_lambda(first)) / h;
    double pull = -next.alpha * expm1(-h);
    dk_mix(s->x, next.sigma / first.sigma, start, pull * (1 - 0.5 / r), start_x0, s->n);
    dk_add(s->x, pull * 0.5 / r, s->x0, s->n);
}

static bool plan(struct dk_plan *plan)
{
    if (plan->options->solver_order > 2)
        return dk_refuse(plan, "solver_order %d in the config, this solver has 2: use dpmpp-2m",
                         plan->options->solver_order);
    return dk_plan_one(plan);
}

const struct dk_scheduler dk_scheduler_dpmpp_2s = {
    DK_SCHEDULER_HEAD,
    .name = "dpmpp-2s",
    .title = "DPM++ 2S",
    .aliases = "DPMSolverSinglestepScheduler, dpm++2s",
    .summary = "second order in pairs of steps, without memory beyond a pair",
    .paper = "Lu et al. 2022, arXiv:2211.01095",
    .order = 2,
    .passes_per_step = 1,
    .flags = DK_ANY_FORM | DK_INTEGER_T | DK_INTEGER_SIGMA_T | DK_DROPS_LAST | DK_FULL_RANGE |
             DK_SIGMA_END,
    .steps_low = 16,
    .steps_high = 30,
    .spacing = DK_LINSPACE,
    .n_vectors = N_VECTORS,
    .plan = plan,
    .step = step,
};
DK_SCHEDULER_PLUGIN(dk_scheduler_dpmpp_2s)
