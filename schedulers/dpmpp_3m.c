/* dpmpp_3m.c - DPM++ 3M: the multistep DPM-Solver++ of order 3, its last term whole. */
/* SPDX-License-Identifier: MIT */

/*
 * Lu et al. 2022, "DPM-Solver++", arXiv:2211.01095.
 *
 * x0 is taken as a parabola in lambda through the last three steps and integrated exactly over
 * this one. With u = (lambda - now) / h, r0 = h0 / h, r1 = h1 / h, D10 = (x0 - x0_1) / r0, D11 =
 * (x0_1 - x0_2) / r1:
 *
 *     x0(u) = x0 + u D1 + u^2 D2,   D2 = (D10 - D11) / (r0 + r1),   D1 = D10 + r0 D2
 *     x'    = sigma' / sigma x + alpha' (p0 x0 + p1 D1 + p2 D2)
 *     p0 = 1 - e^-h,   p1 = 1 - p0 / h,   p2 = 1 - 2 p1 / h
 *
 * The authors' program, diffusers (solver_order 3) and k-diffusion (DPM++ 3M SDE) give D2 half
 * the weight p2, which leaves them at order 2; docs/schedulers.md shows both. A step that ends at
 * sigma 0 is of order 1.
 * When to use it: 10 to 20 steps without noise.
 */
#include "common.h"

enum { DEPTH = 3 };

static void step(struct dk_step *s)
{
    struct dk_point here = dk_here(s), next = dk_next(s);
    int order = dk_order_at(s, DEPTH);
    double lambda = dk_lambda(here), h = dk_lambda(next) - lambda, p0 = -expm1(-h),
           w[DEPTH] = {p0, 0, 0};

    dk_keep(s, DEPTH, s->x0);
    if (order > 1) {
        double p1 = 1 - p0 / h, p2 = 1 - 2 * p1 / h, r0 = (lambda - dk_past_lambda(s, 1)) / h;
        double r1 = order > 2 ? (dk_past_lambda(s, 1) - dk_past_lambda(s, 2)) / h : 1;
        double of_d2 = order > 2 ? (p1 * r0 + p2) / (r0 + r1) : 0; /* D2 enters through D1 too */
        w[0] += (p1 + of_d2) / r0;
        w[1] = -(p1 + of_d2) / r0 - of_d2 / r1;
        w[2] = of_d2 / r1;
    }
    dk_mix(s->x, next.sigma / here.sigma, s->x, next.alpha * w[0], dk_past(s, DEPTH, 0), s->n);
    for (int j = 1; j < order; j++) dk_add(s->x, next.alpha * w[j], dk_past(s, DEPTH, j), s->n);
}

const struct dk_scheduler dk_scheduler_dpmpp_3m = {
    DK_SCHEDULER_HEAD,
    .name = "dpmpp-3m",
    .title = "DPM++ 3M",
    .aliases = "dpm++3m",
    .summary = "third order, one pass a step, no noise; 10 to 20 steps",
    .paper = "Lu et al. 2022, arXiv:2211.01095",
    .order = 3,
    .passes_per_step = 1,
    .flags = DK_ANY_FORM | DK_INTEGER_T | DK_INTEGER_SIGMA_T | DK_DROPS_LAST | DK_FULL_RANGE |
             DK_SIGMA_END,
    .steps_low = 10,
    .steps_high = 20,
    .spacing = DK_LINSPACE,
    .n_vectors = DEPTH,
    .step = step,
};
DK_SCHEDULER_PLUGIN(dk_scheduler_dpmpp_3m)
