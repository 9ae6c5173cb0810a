/* pndm.c - PNDM and PLMS: Stable Diffusion's first scheduler. */
/* SPDX-License-Identifier: MIT */

/*
 * Liu et al. 2022, "Pseudo numerical methods", arXiv:2202.09778, algorithms 1 and 2.
 *
 * The slopes e of the last four steps are combined as Adams and Bashforth do (eq. 12)
 *
 *     E = e,  (3 e - e1) / 2,  (23 e - 16 e1 + 5 e2) / 12,  (55 e - 59 e1 + 37 e2 - 9 e3) / 24
 *
 * and DDIM's transfer carries x along E (eq. 11):  x' = alpha' / alpha x + (sigma' - alpha' /
 * alpha sigma) E. How it starts: with skip_prk_steps (PLMS, as Stable Diffusion's configs say)
 * the first step is taken twice, the second time with the mean of both slopes: N + 1 calls. Else
 * the first three steps are Runge-Kutta's, four calls each: N + 9. The slopes are eps also for a
 * v model; diffusers combines v itself, which is not constant on a straight path, so that even a
 * perfect model misses the picture. "combine_v" in the config does as diffusers does.
 * When to use it: Stable Diffusion's first default, 50 steps; needs N + 1 passes and is only
 * exact on even grids.
 */
#include "common.h"

enum { RING = 4, START = RING, SUM, N_VECTORS };
enum { PLMS, AGAIN, RK1, RK2, RK3, RK4 }; /* stages */

static bool plan_prk(struct dk_plan *plan)
{
    if (plan->n_steps < 4)
        return dk_refuse(plan, "%d steps with a Runge-Kutta start: ask for 4 or more",
                         plan->n_steps);
    for (int i = 0; i < 3; i++) {
        struct dk_point from = plan->node[i], to = plan->node[i + 1];
        double t = from.t - floor((from.t - to.t) / 2);
        double low = dk_table_sigma(plan->model, (int)floor(t)),
               high = dk_table_sigma(plan->model, (int)ceil(t));
        struct dk_point middle =
            dk_point_at(plan->exploding, t, low + (high - low) * (t - floor(t)));
        const struct dk_call calls[] = {{from, middle, i, RK1},
                                        {middle, middle, i, RK2},
                                        {middle, to, i, RK3},
                                        {to, to, i, RK4}};
        for (int k = 0; k < 4; k++)
            if (!dk_call_add(plan, calls[k])) return false;
    }
    return true;
}

/*
 * The first step is taken again along a slope from its end. That multiplies the rounding errors
 * of f32 by the square of alpha' / alpha, and an answer of the U-Net means little over such a
 * way.
 */
static bool too_far(const struct dk_plan *plan)
{
    return plan->n_steps > 1 && plan->node[1].alpha > 700 * plan->node[0].alpha;
}

static bool plan(struct dk_plan *plan)
{
    if (too_far(plan))
        return dk_refuse(plan,
                         "the first of %d steps goes from sigma %.4g to %.4g, too far for PLMS: "
                         "ask for more steps or for "
                         "another scheduler",
                         plan->n_steps, dk_sigma(plan->node[0]), dk_sigma(plan->node[1]));
    bool prk = !plan->options->skip_prk_steps;
    if (prk && !plan_prk(plan)) return false;
    for (int i = prk ? 3 : 0; i < plan->n_steps; i++) {
        struct dk_point from = plan->node[i], to = plan->node[i + 1];
        if (!dk_call_add(plan, (struct dk_call){from, to, i, PLMS})) return false;
        if (i == 0 && plan->n_steps > 1 && !dk_call_add(plan, (struct dk_call){to, to, i, AGAIN}))
            return false;
    }
    return true;
}

static bool is_v(const struct dk_step *s)
{
    return s->plan->options->combine_v && s->plan->model->prediction == DK_PREDICTS_V;
}

/*
 * DDIM from x at one point to another along the slope; for v, alpha e + sigma x is the eps meant.
 */
static void transfer(struct dk_step *s, struct dk_point from, struct dk_point to, const float *x,
                     const float *e)
{
    double keep = to.alpha / from.alpha, along = to.sigma - keep * from.sigma;
    if (is_v(s))
        dk_mix(s->x, keep + along * from.sigma, x, along * from.alpha, e, s->n);
    else
        dk_mix(s->x, keep, x, along, e, s->n);
}

/* E from the slopes remembered: the ring holds that of step i at i % 4. */
static void adams(struct dk_step *s, float *sum)
{
    static const double WEIGHTS[4][4] = {{1},
                                         {3 / 2.0, -1 / 2.0},
                                         {23 / 12.0, -16 / 12.0, 5 / 12.0},
                                         {55 / 24.0, -59 / 24.0, 37 / 24.0, -9 / 24.0}};
    int order = dk_this_call(s)->step < 3 ? dk_this_call(s)->step + 1 : 4;
    dk_mix(sum, WEIGHTS[order - 1][0], dk_past(s, RING, 0), 0, sum, s->n);
    for (int j = 1; j < order; j++) dk_add(sum, WEIGHTS[order - 1][j], dk_past(s, RING, j), s->n);
}

/* Algorithm 1 of the paper: slopes with weights 1/6, 1/3, 1/3, 1/6. */
static void runge_kutta(struct dk_step *s, const float *e)
{
    static const double WEIGHTS[] = {1 / 6.0, 1 / 3.0, 1 / 3.0, 1 / 6.0};
    const struct dk_call *call = dk_this_call(s);
    float *start = dk_vector(s, START), *sum = dk_vector(s, SUM);
    if (call->stage == RK1) {
        dk_keep(s, RING, e);
        dk_copy(start, s->x, s->n);
        dk_mix(sum, 0, e, 0, e, s->n);
    }
    dk_add(sum, WEIGHTS[call->stage - RK1], e, s->n);
    transfer(s, s->plan->node[call->step], call->to, start, call->stage == RK4 ? sum : e);
}

static void step(struct dk_step *s)
{
    const struct dk_call *call = dk_this_call(s);
    const float *e = is_v(s) ? s->out : s->eps;
    float *start = dk_vector(s, START), *sum = dk_vector(s, SUM);
    if (call->stage >= RK1) {
        runge_kutta(s, e);
    } else if (call->stage == AGAIN) {
        dk_mix(sum, 0.5, dk_past(s, RING, 0), 0.5, e, s->n);
        transfer(s, s->plan->node[0], call->to, start, sum);
    } else {
        dk_keep(s, RING, e);
        dk_copy(start, s->x, s->n);
        adams(s, sum);
        transfer(s, call->at, call->to, start, sum);
    }
}

const struct dk_scheduler dk_scheduler_pndm = {
    DK_SCHEDULER_HEAD,
    .name = "pndm",
    .title = "PLMS",
    .aliases = "PNDMScheduler, plms",
    .summary = "Stable Diffusion's first default: 50 steps, one pass more than steps",
    .paper = "Liu et al. 2022, arXiv:2202.09778",
    .order = 2,
    .passes_per_step = 1,
    .flags = DK_INTEGER_T | DK_ALPHA_END | DK_FIRST_ALPHA,
    .steps_low = 25,
    .steps_high = 50,
    .spacing = DK_LEADING,
    .n_vectors = N_VECTORS,
    .plan = plan,
    .step = step,
};
DK_SCHEDULER_PLUGIN(dk_scheduler_pndm)
