/* deis.c - DEIS: Adams and Bashforth for the noise, in ln rho. */
/* SPDX-License-Identifier: MIT */

/*
 * Zhang and Chen 2022, "Fast sampling with exponential integrator", arXiv:2204.13902 (tAB-DEIS).
 *
 * With rho = sigma / alpha the flow of y = x / alpha is dy/drho = eps. eps is extrapolated as a
 * polynomial in ln rho through the last steps and integrated over this one (eq. 15, time scaled
 * as ln rho):
 *
 *     x'  = alpha' (x / alpha + sum_j c_j eps_j)
 *     c_j = integral from rho to rho' of prod_{k != j} (v - v_k) / (v_j - v_k) drho
 *
 * with v = ln rho measured from here, so v_0 = 0. The integrals of v^k have a closed form,
 * I_k = rho v^k - k I_(k-1).
 * When to use it: 10 to 20 steps, on a par with DPM++ 2M. solver_order 1 to 3, 2 by default.
 */
#include "common.h"

enum { MOST = 3 };

/* Integrals of v^k from rho to end, v = ln(rho' / rho), k = 0 .. 2. */
static void moments(double rho, double end, double out[MOST])
{
    double v = log(end / rho);
    out[0] = end - rho;
    for (int k = 1; k < MOST; k++) out[k] = end * pow(v, k) - k * out[k - 1];
}

static void step(struct dk_step *s)
{
    struct dk_point here = dk_here(s), next = dk_next(s);
    int wanted = s->plan->options->solver_order ? s->plan->options->solver_order : 2,
        order = dk_order_at(s, wanted);
    double rho = dk_sigma(here), end = dk_sigma(next), m[MOST], c[MOST] = {end - rho, 0, 0};

    dk_keep(s, MOST, s->eps);
    if (order > 1) moments(rho, end, m);
    double v1 = order > 1 ? dk_lambda(here) - dk_past_lambda(s, 1)
                          : 0; /* ln(rho_1 / rho), as lambda = -ln rho */
    double v2 = order > 2 ? dk_lambda(here) - dk_past_lambda(s, 2) : 0;
    if (order == 2) {
        c[0] = m[0] - m[1] / v1;
        c[1] = m[1] / v1;
    } else if (order == 3) {
        c[0] = (m[2] - (v1 + v2) * m[1] + v1 * v2 * m[0]) / (v1 * v2);
        c[1] = (m[2] - v2 * m[1]) / (v1 * (v1 - v2));
        c[2] = (m[2] - v1 * m[1]) / (v2 * (v2 - v1));
    }
    dk_mix(s->x, next.alpha / here.alpha, s->x, next.alpha * c[0], s->eps, s->n);
    for (int j = 1; j < order; j++) dk_add(s->x, next.alpha * c[j], dk_past(s, MOST, j), s->n);
}

static bool plan(struct dk_plan *plan)
{
    if (plan->options->solver_order > MOST)
        return dk_refuse(plan, "solver_order %d in the config, this solver has 1 to 3",
                         plan->options->solver_order);
    return dk_plan_one(plan);
}

const struct dk_scheduler dk_scheduler_deis = {
    DK_SCHEDULER_HEAD,
    .name = "deis",
    .title = "DEIS",
    .aliases = "DEISMultistepScheduler",
    .summary = "second order, one pass a step; 10 to 20 steps",
    .paper = "Zhang and Chen 2022, arXiv:2204.13902",
    .order = 2,
    .passes_per_step = 1,
    .flags = DK_ANY_FORM | DK_INTEGER_T | DK_INTEGER_SIGMA_T | DK_DROPS_LAST | DK_FULL_RANGE |
             DK_SIGMA_END,
    .steps_low = 10,
    .steps_high = 20,
    .spacing = DK_LINSPACE,
    .n_vectors = MOST,
    .plan = plan,
    .step = step,
};
DK_SCHEDULER_PLUGIN(dk_scheduler_deis)
