/* sa_solver.c - SA-Solver: Adams, predictor and corrector, with noise. */
/* SPDX-License-Identifier: MIT */

/*
 * Xue et al. 2023, "SA-Solver: stochastic Adams solver", arXiv:2309.05019.
 *
 * The stochastic flow with noise strength tau, in lambda, c = 1 + tau^2, h = lambda' - lambda
 * (eq. 11 to 14):
 *
 *     x' = sigma' / sigma e^(-tau^2 h) x + sum_j b_j x0_j + sigma' sqrt(1 - e^(-2 tau^2 h)) noise
 *     b_j = alpha' c integral from -h to 0 of e^(c u) L_j(lambda' + u) du
 *
 * L_j are the Lagrange polynomials of the points used: earlier steps for the predictor (Adams and
 * Bashforth), these and the new one for the corrector (Adams and Moulton), which repeats the step
 * with the same noise once the U-Net has been asked at its end, and costs no pass. tau is eta
 * between timesteps 200 and 800 (of 1000), 0 outside, as the authors advise.
 * When to use it: stochastic detail in 20 to 30 steps. predictor_order, corrector_order 1 to 3, 2
 * by default.
 */
#include "common.h"

enum { MOST = 3, START = MOST, NOISE, N_VECTORS };

static double tau_at(const struct dk_plan *plan, int step)
{
    double t = plan->node[step].t / plan->model->n_train;
    return t >= 0.2 && t <= 0.8 ? plan->eta : 0;
}

/* Integrals of e^(c u) u^k from -h to 0. */
static void moments(double c, double h, double m[MOST])
{
    double e = exp(-c * h);
    m[0] = -expm1(-c * h) / c;
    m[1] = (h * e - m[0]) / c;
    m[2] = (-h * h * e - 2 * m[1]) / c;
}

/* The integral of e^(c u) L_j(u), points u[order]: L_j multiplied out. */
static double weight(const double m[MOST], const double *u, int order, int j)
{
    if (order == 1) return m[0];
    double a = u[(j + 1) % order], below = u[j] - a;
    if (order == 2) return (m[1] - a * m[0]) / below;
    double b = u[(j + 2) % order];
    return (m[2] - (a + b) * m[1] + a * b * m[0]) / (below * (u[j] - b));
}

/*
 * The step from node[step]; x0[0] is the answer there, x0[i] i steps earlier; newest that at its
 * end, or NULL.
 */
static void take_step(struct dk_step *s, int step, int order, const float *const *x0,
                      const float *newest)
{
    struct dk_point from = s->plan->node[step], to = s->plan->node[step + 1];
    double tau = tau_at(s->plan, step), c = 1 + tau * tau, h = dk_lambda(to) - dk_lambda(from),
           m[MOST], u[MOST];
    const float *points[MOST];
    double keep = to.sigma > 0 ? to.sigma / from.sigma * exp(-tau * tau * h) : 0;
    if (to.sigma <= 0) {
        dk_mix(s->x, 0, s->x, to.alpha, x0[0], s->n);
        return;
    }
    for (int j = 0; j < order; j++) {
        int back = newest ? j - 1 : j;
        points[j] = back < 0 ? newest : x0[back];
        u[j] = back < 0 ? 0 : dk_lambda(s->plan->node[step - back]) - dk_lambda(to);
    }
    moments(c, h, m);
    dk_mix(s->x, keep, dk_vector(s, START), to.alpha * c * weight(m, u, order, 0), points[0], s->n);
    for (int j = 1; j < order; j++)
        dk_add(s->x, to.alpha * c * weight(m, u, order, j), points[j], s->n);
    if (tau > 0)
        dk_add(s->x, to.sigma * sqrt(-expm1(-2 * tau * tau * h)), dk_vector(s, NOISE), s->n);
}

static int at_most(int a, int b)
{
    return a < b ? a : b;
}

static void step(struct dk_step *s)
{
    const struct dk_solver_options *o = s->plan->options;
    int step = dk_this_call(s)->step, predictor = o->predictor_order ? o->predictor_order : 2;
    int corrector = o->corrector_order ? o->corrector_order : 2;
    const float *x0[MOST];
    if (step > 0) {
        for (int i = 0; i < MOST; i++) x0[i] = i < step ? dk_past(s, MOST, i + 1) : NULL;
        take_step(s, step - 1, at_most(corrector, step + 1), x0, s->x0);
    }
    dk_keep(s, MOST, s->x0);
    dk_copy(dk_vector(s, START), s->x, s->n);
    if (tau_at(s->plan, step) > 0 && dk_next(s).sigma > 0)
        dk_copy(dk_vector(s, NOISE), dk_noise(s), s->n);
    for (int i = 0; i < MOST; i++) x0[i] = i <= step ? dk_past(s, MOST, i) : NULL;
    take_step(s, step, dk_order_at(s, predictor), x0, NULL);
}

static bool plan(struct dk_plan *plan)
{
    if (plan->options->predictor_order > MOST || plan->options->corrector_order > MOST)
        return dk_refuse(plan, "orders %d and %d in the config, this solver has 1 to 3",
                         plan->options->predictor_order, plan->options->corrector_order);
    return dk_plan_one(plan);
}

const struct dk_scheduler dk_scheduler_sa_solver = {
    DK_SCHEDULER_HEAD,
    .name = "sa-solver",
    .title = "SA-Solver",
    .aliases = "SASolverScheduler, sasolver",
    .summary = "stochastic with predictor and corrector in one pass; 20 to 30 steps",
    .paper = "Xue et al. 2023, arXiv:2309.05019",
    .order = 2,
    .passes_per_step = 1,
    .flags = DK_ANY_FORM | DK_INTEGER_T | DK_INTEGER_SIGMA_T | DK_DROPS_LAST | DK_FULL_RANGE |
             DK_SIGMA_END | DK_STOCHASTIC | DK_ETA,
    .steps_low = 20,
    .steps_high = 30,
    .spacing = DK_LINSPACE,
    .eta = 1,
    .n_vectors = N_VECTORS,
    .plan = plan,
    .step = step,
};
DK_SCHEDULER_PLUGIN(dk_scheduler_sa_solver)
