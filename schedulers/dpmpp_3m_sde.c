/* dpmpp_3m_sde.c - DPM++ 3M SDE: the multistep DPM-Solver++ with three terms and noise. */
/* SPDX-License-Identifier: MIT */

/*
 * k-diffusion, after Lu et al. 2022, "DPM-Solver++", arXiv:2211.01095.
 *
 * With h, h0, h1 the last three steps in lambda, g = (1 + eta) h, r0 = h0 / h, r1 = h1 / h and
 * the differences of dpmpp_2m.c
 *
 *     D10 = (x0 - x0_1) / r0,   D11 = (x0_1 - x0_2) / r1
 *     D2 = (D10 - D11) / (r0 + r1),   D1 = D10 + r0 D2
 *
 *     x' = sigma' / sigma e^(-eta h) x + alpha' ((1 - e^-g) x0 + phi2 D1 - phi3 D2)
 *          + sigma' sqrt(1 - e^(-2 eta h)) noise
 *     phi2 = 1 - (1 - e^-g) / g,  phi3 = phi2 / g - 1/2
 *
 * The second step has D1 = D10 and no D2, the first one neither. A parabola would give D2 twice
 * this weight (dpmpp_3m.c); as it is, and as every program that makes these pictures has it, the
 * order with eta 0 is 2.
 * When to use it: 25 steps and more, with an exponential or Karras schedule; under that DPM++ 2M
 * SDE is steadier.
 */
#include "common.h"

enum { DEPTH = 3 };

/* x0, x0_1, x0_2 enter with these weights through D1 and D2. */
static void add_differences(struct dk_step *s, int order, double h, double phi2, double phi3)
{
    double lambda = dk_lambda(dk_here(s)), r0 = (lambda - dk_past_lambda(s, 1)) / h,
           first = phi2 / r0, second = 0;
    if (order == 3) {
        double r1 = (dk_past_lambda(s, 1) - dk_past_lambda(s, 2)) / h,
               share = (phi2 * r0 - phi3) / (r0 + r1);
        first += share / r0;
        second = share / r1;
        dk_add(s->x, second, dk_past(s, DEPTH, 2), s->n);
    }
    dk_add(s->x, first, dk_past(s, DEPTH, 0), s->n);
    dk_add(s->x, -first - second, dk_past(s, DEPTH, 1), s->n);
}

static void step(struct dk_step *s)
{
    struct dk_point here = dk_here(s), next = dk_next(s);
    double h = dk_lambda(next) - dk_lambda(here), eta = s->plan->eta, g = (1 + eta) * h;
    int done = dk_this_call(s)->step, order = done < 2 ? done + 1 : 3;

    dk_keep(s, DEPTH, s->x0);
    if (next.sigma <= 0) {
        dk_mix(s->x, 0, s->x, next.alpha, s->x0, s->n);
        return;
    }
    double phi2 = 1 + expm1(-g) / g;
    dk_mix(s->x, next.sigma / here.sigma * exp(-eta * h), s->x, -next.alpha * expm1(-g), s->x0,
           s->n);
    if (order > 1) add_differences(s, order, h, next.alpha * phi2, next.alpha * (phi2 / g - 0.5));
    if (eta > 0) dk_add(s->x, next.sigma * sqrt(-expm1(-2 * eta * h)), dk_noise(s), s->n);
}

const struct dk_scheduler dk_scheduler_dpmpp_3m_sde = {
    DK_SCHEDULER_HEAD,
    .name = "dpmpp-3m-sde",
    .title = "DPM++ 3M SDE",
    .aliases = "dpm++3m_sde",
    .summary = "three terms with noise, for 25 steps and more",
    .paper = "k-diffusion, after Lu et al. 2022, arXiv:2211.01095",
    .order = 2,
    .passes_per_step = 1,
    .flags = DK_ANY_FORM | DK_INTEGER_T | DK_INTEGER_SIGMA_T | DK_DROPS_LAST | DK_FULL_RANGE |
             DK_SIGMA_END | DK_STOCHASTIC | DK_ETA,
    .steps_low = 25,
    .steps_high = 50,
    .spacing = DK_LINSPACE,
    .eta = 1,
    .n_vectors = DEPTH,
    .step = step,
};
DK_SCHEDULER_PLUGIN(dk_scheduler_dpmpp_3m_sde)
