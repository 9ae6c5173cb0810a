/* lms.c - LMS: linear multistep, order 4. */
/* SPDX-License-Identifier: MIT */

/*
 * k-diffusion, after Liu et al. 2022 (PNDM), arXiv:2202.09778.
 *
 * The slopes d = (x - x0) / sigma of the last four steps, as a polynomial in sigma, integrated
 * over this step:
 *
 *     x'  = x + sum_j c_j d_j
 *     c_j = integral from sigma to sigma' of prod_{k != j} (s - sigma_k) / (sigma_j - sigma_k) ds
 *
 * (Adams and Bashforth on an uneven grid.) The polynomial is of degree 3, so two Gauss points
 * integrate it exactly. A step eight times as long as the last one, as the one to sigma 0 at the
 * end of a dense schedule, is of order 1: there the polynomial would be extrapolated beyond
 * reason.
 * When to use it: smooth schedules with 20 and more steps; with few or with strong guidance it
 * overshoots.
 */
#include "common.h"

enum { ORDER = 4 };

static double sigma_back(const struct dk_step *s, int back)
{
    return s->plan->node[dk_this_call(s)->step - back].sigma;
}

/* The j-th Lagrange polynomial at sigma. */
static double lagrange(const struct dk_step *s, int order, int j, double sigma)
{
    double product = 1;
    for (int k = 0; k < order; k++)
        if (k != j) product *= (sigma - sigma_back(s, k)) / (sigma_back(s, j) - sigma_back(s, k));
    return product;
}

static void step(struct dk_step *s)
{
    int order = dk_this_call(s)->step < ORDER ? dk_this_call(s)->step + 1 : ORDER;
    if (order > 1 &&
        dk_here(s).sigma - dk_next(s).sigma > 8 * (sigma_back(s, 1) - sigma_back(s, 0)))
        order = 1;
    double from = dk_here(s).sigma, to = dk_next(s).sigma, half = (to - from) / 2,
           middle = (to + from) / 2;
    dk_keep(s, ORDER, s->eps);
    for (int j = 0; j < order; j++) {
        double low = lagrange(s, order, j, middle - half / sqrt(3)),
               high = lagrange(s, order, j, middle + half / sqrt(3));
        dk_add(s->x, half * (low + high), dk_past(s, ORDER, j), s->n);
    }
}

const struct dk_scheduler dk_scheduler_lms = {
    DK_SCHEDULER_HEAD,
    .name = "lms",
    .title = "LMS",
    .aliases = "LMSDiscreteScheduler, k_lms, ipndm_v",
    .summary = "fourth order, one pass a step; wants 20 steps and more",
    .paper = "k-diffusion, after Liu et al. 2022, arXiv:2202.09778",
    .order = 4,
    .passes_per_step = 1,
    .flags = DK_EXPLODING,
    .steps_low = 20,
    .steps_high = 50,
    .spacing = DK_LINSPACE,
    .n_vectors = ORDER,
    .step = step,
};
DK_SCHEDULER_PLUGIN(dk_scheduler_lms)
