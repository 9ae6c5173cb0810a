/* er_sde.c - ER-SDE-Solver: an extended reverse-time SDE, three terms. */
/* SPDX-License-Identifier: MIT */

/*
 * Cui et al. 2023, "Elucidating the solution space of extended reverse-time SDE for diffusion
 * models", arXiv:2309.06169, ER-SDE-Solver-3. In sigma, with the noise scale of eq. 21,
 * phi(s) = s (e^(s^0.3) + 10), r = phi(sigma') / phi(sigma), h = sigma' - sigma:
 *
 *     x' = r x + (1 - r) x0 + (h + phi(sigma') I0) D + (h^2 / 2 + phi(sigma') I1) U
 *          + sqrt(sigma'^2 - r^2 sigma^2) noise
 *     I0 = integral from sigma' to sigma of ds / phi(s),   I1 = the same of (s - sigma) / phi(s)
 *     D = (x0 - x0_1) / (sigma - sigma_1),   U = (D - D_1) / ((sigma - sigma_2) / 2)
 *
 * The second step has no U, the first neither; the last, to sigma 0, gives x0. The integrals are
 * sums over 200 points, as in the authors' program.
 * When to use it: as DPM++ 2M SDE; 20 to 30 steps.
 */
#include "common.h"

enum { DEPTH = 3, POINTS = 200 };

static double noise_scale(double sigma)
{
    return sigma * (exp(pow(sigma, 0.3)) + 10);
}

static double sigma_back(const struct dk_step *s, int back)
{
    return s->plan->node[dk_this_call(s)->step - back].sigma;
}

/* D enters with weight d and U with weight u; written out, x0, x0_1 and x0_2 have these. */
static void add_differences(struct dk_step *s, int terms, double d, double u)
{
    double h1 = sigma_back(s, 0) - sigma_back(s, 1), h2 = 1, of_d = d, of_d1 = 0;
    if (terms == 3) {
        double span = (sigma_back(s, 0) - sigma_back(s, 2)) / 2;
        h2 = sigma_back(s, 1) - sigma_back(s, 2);
        of_d += u / span;
        of_d1 = -u / span;
    }
    dk_add(s->x, of_d / h1, dk_past(s, DEPTH, 0), s->n);
    dk_add(s->x, of_d1 / h2 - of_d / h1, dk_past(s, DEPTH, 1), s->n);
    if (terms == 3) dk_add(s->x, -of_d1 / h2, dk_past(s, DEPTH, 2), s->n);
}

static void step(struct dk_step *s)
{
    double sigma = dk_here(s).sigma, next = dk_next(s).sigma, h = next - sigma, i0 = 0, i1 = 0;
    int terms = dk_this_call(s)->step < 2 ? dk_this_call(s)->step + 1 : 3;

    dk_keep(s, DEPTH, s->x0);
    if (next <= 0) {
        dk_copy(s->x, s->x0, s->n);
        return;
    }
    for (int i = 0; i < POINTS; i++) {
        double at = next - h * i / POINTS;
        i0 += -h / POINTS / noise_scale(at);
        i1 += -h / POINTS * (at - sigma) / noise_scale(at);
    }
    double scale = noise_scale(next), r = scale / noise_scale(sigma);
    dk_mix(s->x, r, s->x, 1 - r, s->x0, s->n);
    if (terms > 1) add_differences(s, terms, h + scale * i0, h * h / 2 + scale * i1);
    dk_add(s->x, sqrt(fmax(next * next - r * r * sigma * sigma, 0)), dk_noise(s), s->n);
}

const struct dk_scheduler dk_scheduler_er_sde = {
    DK_SCHEDULER_HEAD,
    .name = "er-sde",
    .title = "ER SDE",
    .aliases = "er_sde_solver",
    .summary = "stochastic with three terms, one pass a step; 20 to 30 steps",
    .paper = "Cui et al. 2023, arXiv:2309.06169",
    .order = 1,
    .passes_per_step = 1,
    .flags = DK_EXPLODING | DK_STOCHASTIC,
    .steps_low = 20,
    .steps_high = 30,
    .spacing = DK_LINSPACE,
    .n_vectors = DEPTH,
    .step = step,
};
DK_SCHEDULER_PLUGIN(dk_scheduler_er_sde)
