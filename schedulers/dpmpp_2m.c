/* dpmpp_2m.c - DPM++ 2M: the multistep DPM-Solver++, order 2 (also 1 and 3). */
/* SPDX-License-Identifier: MIT */

/*
 * Lu et al. 2022, "DPM-Solver++", arXiv:2211.01095, algorithm 2.
 *
 * In lambda = ln(alpha / sigma) the flow is x = sigma (...) + exponentials times x0, and x0 is
 * extrapolated from the last steps. With h = lambda' - lambda, r0 = h0 / h, r1 = h1 / h the
 * earlier steps, D0 = x0 now, and differences
 *
 *     D10 = (x0 - x0_1) / r0,   D11 = (x0_1 - x0_2) / r1
 *     D2 = (D10 - D11) / (r0 + r1),   D1 = D10 + r0 D2
 *
 *     order 1:  x' = sigma' / sigma x - alpha' (e^-h - 1) D0            (DDIM)
 *     order 2:     - alpha' (e^-h - 1) D10 / 2                       solver_type "midpoint"
 *                  + alpha' ((e^-h - 1) / h + 1) D10                 "heun"
 *     order 3:     + alpha' ((e^-h - 1) / h + 1) D1 - alpha' ((e^-h - 1 + h) / h^2 - 1/2) D2
 *
 * (Order 3 is diffusers': D2 has half the weight of a parabola's, which leaves it at order 2.
 * dpmpp_3m.c has the whole.) algorithm_type "dpmsolver" is the same with eps for x0, alpha and
 * sigma exchanged and h negated (arXiv:2206.00927).
 * When to use it: the best default: one pass a step, 15 to 25 steps.
 */
#include "common.h"

enum { MOST = 3 };

/* x' = a x + b (D0 + ...): b is alpha' for x0 and sigma' for eps, h is negated for eps. */
static void multistep(struct dk_step *s, int order, double a, double b, double h)
{
    double lambda = dk_lambda(dk_here(s)), step = dk_lambda(dk_next(s)) - lambda;
    double e = expm1(-h), w0 = -b * e, w1, w2 = 0, r0, r1;
    if (order == 1) {
        dk_mix(s->x, a, s->x, w0, dk_past(s, MOST, 0), s->n);
        return;
    }
    r0 = (lambda - dk_past_lambda(s, 1)) / step;
    w1 = s->plan->options->solver_type == DK_SOLVER_HEUN || order == 3 ? b * (e / h + 1)
                                                                       : -b * e / 2;
    if (order == 3) {
        r1 = (dk_past_lambda(s, 1) - dk_past_lambda(s, 2)) / step;
        w2 = -b * ((e + h) / (h * h) - 0.5);
        /* D1 and D2 written out: both are D10 and D11 with these weights */
        double to_second = (w1 * r0 + w2) / (r0 + r1);
        dk_mix(s->x, a, s->x, w0, dk_past(s, MOST, 0), s->n);
        dk_add(s->x, (w1 + to_second) / r0, dk_past(s, MOST, 0), s->n);
        dk_add(s->x, -(w1 + to_second) / r0 - to_second / r1, dk_past(s, MOST, 1), s->n);
        dk_add(s->x, to_second / r1, dk_past(s, MOST, 2), s->n);
        return;
    }
    dk_mix(s->x, a, s->x, w0 + w1 / r0, dk_past(s, MOST, 0), s->n);
    dk_add(s->x, -w1 / r0, dk_past(s, MOST, 1), s->n);
}

static void step(struct dk_step *s)
{
    struct dk_point here = dk_here(s), next = dk_next(s);
    bool noise_form = s->plan->options->algorithm_eps;
    int wanted = s->plan->options->solver_order ? s->plan->options->solver_order : 2,
        order = dk_order_at(s, wanted);
    double h = dk_lambda(next) - dk_lambda(here);

    dk_keep(s, MOST, noise_form ? s->eps : s->x0);
    if (order == 1)
        dk_mix(s->x, next.sigma / here.sigma, s->x,
               next.alpha - here.alpha * next.sigma / here.sigma, s->x0, s->n);
    else if (noise_form)
        multistep(s, order, next.alpha / here.alpha, next.sigma, -h);
    else
        multistep(s, order, next.sigma / here.sigma, next.alpha, h);
}

static bool plan(struct dk_plan *plan)
{
    if (plan->options->solver_order > MOST)
        return dk_refuse(plan, "solver_order %d in the config, this solver has 1 to 3",
                         plan->options->solver_order);
    return dk_plan_one(plan);
}

const struct dk_scheduler dk_scheduler_dpmpp_2m = {
    DK_SCHEDULER_HEAD,
    .name = "dpmpp-2m",
    .title = "DPM++ 2M",
    .aliases = "DPMSolverMultistepScheduler, EDMDPMSolverMultistepScheduler, dpm++2m, "
               "dpm_solver++, k_dpmpp_2m",
    .summary = "the best default: second order, one pass a step, 15 to 25 steps",
    .paper = "Lu et al. 2022, arXiv:2211.01095",
    .order = 2,
    .passes_per_step = 1,
    .flags = DK_ANY_FORM | DK_INTEGER_T | DK_INTEGER_SIGMA_T | DK_DROPS_LAST | DK_FULL_RANGE |
             DK_SIGMA_END,
    .steps_low = 15,
    .steps_high = 25,
    .spacing = DK_LINSPACE,
    .n_vectors = MOST,
    .plan = plan,
    .step = step,
};
DK_SCHEDULER_PLUGIN(dk_scheduler_dpmpp_2m)
