/* unipc.c - UniPC: predictor and corrector in one pass. */
/* SPDX-License-Identifier: MIT */

/*
 * Zhao et al. 2023, "A unified predictor-corrector framework", arXiv:2302.04867.
 *
 * With h = lambda' - lambda, earlier steps at r_i = (lambda_i - lambda) / h (r_p = 1 the new one)
 * and D_i = (m_i - m) / r_i, where m is x0 (hh = -h) or, with predict_x0 false, eps (hh = h):
 *
 *     x' = sigma' / sigma x - alpha' (e^hh - 1) m - alpha' B(hh) sum_i rho_i D_i          (8)
 *     sum_i r_i^(k-1) rho_i = k! hh phi_(k+1)(hh) / B(hh),  k = 1 .. p          (theorem 3.1)
 *     B = hh ("bh1") or e^hh - 1 ("bh2")
 *     phi_1 = (e^hh - 1) / hh,  phi_(k+1) = (phi_k - 1 / k!) / hh
 *
 * The predictor (UniP-p) leaves out the new point; when the U-Net has been asked there, the
 * corrector (UniC-p) takes the step again with it, and costs no pass. Of order p + 1. A step that
 * ends at sigma 0 is of order 1.
 * When to use it: the fewest passes for a given error: 8 to 20 steps.
 */
#include "common.h"

enum { MOST = 3, START = MOST, N_VECTORS };

static int order_of(const struct dk_plan *plan, int step)
{
    int order = plan->options->solver_order ? plan->options->solver_order : 2,
        left = plan->n_steps - step;
    if (plan->options->lower_order_final && left < order) order = left;
    return step + 1 < order ? step + 1 : order;
}

/*
 * Solves the p equations of theorem 3.1 by elimination; r holds the nodes, rho becomes the
 * weights.
 */
static void solve(int p, const double *r, const double *right, double *rho)
{
    double a[MOST][MOST + 1];
    for (int k = 0; k < p; k++) {
        for (int i = 0; i < p; i++) a[k][i] = pow(r[i], k);
        a[k][p] = right[k];
    }
    for (int k = 0; k < p; k++)
        for (int row = 0; row < p; row++) {
            double factor = row == k ? 0 : a[row][k] / a[k][k];
            for (int i = k; i <= p; i++) a[row][i] -= factor * a[k][i];
        }
    for (int k = 0; k < p; k++) rho[k] = a[k][p] / a[k][k];
}

/*
 * x from node[step] to node[step + 1]. m[0] is the answer at node[step], m[i] that i steps
 * earlier; newest is the one at node[step + 1] (corrector) or NULL (predictor).
 */
static void take_step(struct dk_step *s, int step, int order, const float *start,
                      const float *const *m, const float *newest)
{
    const struct dk_solver_options *o = s->plan->options;
    const struct dk_point *node = s->plan->node, from = node[step], to = node[step + 1];
    double h = dk_lambda(to) - dk_lambda(from), hh = o->predict_x0 ? -h : h, e = expm1(hh);
    double scale = o->predict_x0 ? to.alpha : to.sigma,
           keep = o->predict_x0 ? to.sigma / from.sigma : to.alpha / from.alpha;
    double b = o->solver_type == DK_SOLVER_BH1 ? hh : e, r[MOST], right[MOST], rho[MOST] = {0};
    int used = newest ? order : order - 1;

    double phi = e / hh - 1, factorial = 1; /* hh phi_(k+1) and k!, from k = 1 on */
    for (int k = 0; k < order; k++) {
        r[k] = k < order - 1 ? (dk_lambda(node[step - k - 1]) - dk_lambda(from)) / h : 1;
        right[k] = phi * factorial / b;
        factorial *= k + 2;
        phi = phi / hh - 1 / factorial;
    }
    if (used == 1)
        rho[0] = 0.5; /* as the authors' code has it, for both */
    else if (used > 1)
        solve(used, r, right, rho);

    dk_mix(s->x, keep, start, -scale * e, m[0], s->n);
    for (int i = 0; i < used; i++) {
        const float *other = newest && i == order - 1 ? newest : m[i + 1];
        dk_add(s->x, -scale * b * rho[i] / r[i], other, s->n);
        dk_add(s->x, scale * b * rho[i] / r[i], m[0], s->n);
    }
}

static void step(struct dk_step *s)
{
    const struct dk_solver_options *o = s->plan->options;
    int step = dk_this_call(s)->step;
    const float *answer = o->predict_x0 ? s->x0 : s->eps, *m[MOST];
    float *start = dk_vector(s, START);
    bool off = step <= 64 && step > 0 && (o->disable_corrector >> (step - 1) & 1);

    if (dk_next(s).sigma <= 0) { /* the end, whatever came before */
        dk_mix(s->x, 0, s->x, dk_next(s).alpha, s->x0, s->n);
        return;
    }
    if (step > 0 && !off) {
        for (int i = 0; i < MOST; i++) m[i] = i < step ? dk_past(s, MOST, i + 1) : NULL;
        take_step(s, step - 1, order_of(s->plan, step - 1), start, m, answer);
    }
    dk_keep(s, MOST, answer);
    dk_copy(start, s->x, s->n);
    for (int i = 0; i < MOST; i++) m[i] = i <= step ? dk_past(s, MOST, i) : NULL;
    take_step(s, step, order_of(s->plan, step), start, m, NULL);
}

static bool plan(struct dk_plan *plan)
{
    if (plan->options->solver_order > MOST)
        return dk_refuse(plan, "solver_order %d in the config, this solver has 1 to 3",
                         plan->options->solver_order);
    return dk_plan_one(plan);
}

const struct dk_scheduler dk_scheduler_unipc = {
    DK_SCHEDULER_HEAD,
    .name = "unipc",
    .title = "UniPC",
    .aliases = "UniPCMultistepScheduler, uni_pc, uni_pc_bh2",
    .summary = "predictor and corrector in one pass: few steps for a given error, 8 to 20",
    .paper = "Zhao et al. 2023, arXiv:2302.04867",
    .order = 3,
    .passes_per_step = 1,
    .flags = DK_ANY_FORM | DK_INTEGER_T | DK_INTEGER_SIGMA_T | DK_DROPS_LAST | DK_FULL_RANGE |
             DK_SIGMA_END,
    .steps_low = 8,
    .steps_high = 20,
    .spacing = DK_LINSPACE,
    .n_vectors = N_VECTORS,
    .plan = plan,
    .step = step,
};
DK_SCHEDULER_PLUGIN(dk_scheduler_unipc)
