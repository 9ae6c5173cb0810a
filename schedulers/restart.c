/* restart.c - Restart: Heun, with a jump back up into the noise. */
/* SPDX-License-Identifier: MIT */

/*
 * Xu et al. 2023, "Restart sampling for improving generative processes", arXiv:2306.14878.
 *
 * Heun's steps (heun.c) down to t_min, near sigma 0.1; then, one or two times (algorithm 1),
 *
 *     x' = x + sqrt(t_max^2 - t_min^2) noise        up again to t_max = 2
 *     Heun's steps from t_max to t_min             R of them, even in sigma^(1/7); R = N / 4, >= 2
 *
 * and Heun's steps to the end. The noise contracts the errors made so far. Passes: 2 N - 1 for
 * the N steps and 2 R for each restart, of which there is one, from 36 steps on two.
 * When to use it: quality over passes, 20 steps and more.
 */
#include "common.h"

enum { START, SLOPE, N_VECTORS };

static const double T_MIN = 0.1, T_MAX = 2;

/* Two calls from one point to the next; one if it is the end. */
static bool add_heun(struct dk_plan *plan, struct dk_point at, struct dk_point to, int *step)
{
    if (!dk_call_add(plan, (struct dk_call){at, to, *step, 0})) return false;
    if (to.sigma > 0 && !dk_call_add(plan, (struct dk_call){to, to, *step, 1})) return false;
    ++*step;
    return true;
}

/* From T_MAX to the node reached, in n steps even in sigma^(1/7). */
static bool add_restart(struct dk_plan *plan, struct dk_point low, int n, int *step)
{
    struct dk_point from = dk_point_of_sigma(plan, T_MAX);
    for (int i = 1; i <= n; i++) {
        double root = pow(T_MAX, 1 / 7.0) + (pow(low.sigma, 1 / 7.0) - pow(T_MAX, 1 / 7.0)) * i / n;
        struct dk_point to = i < n ? dk_point_of_sigma(plan, pow(root, 7)) : low;
        if (!add_heun(plan, from, to, step)) return false;
        from = to;
    }
    return true;
}

/* The node nearest T_MIN, which must lie between the ends and below T_MAX. */
static int restart_node(const struct dk_plan *plan)
{
    int best = 0;
    for (int i = 1; i < plan->n_steps; i++)
        if (fabs(plan->node[i].sigma - T_MIN) < fabs(plan->node[best].sigma - T_MIN)) best = i;
    return plan->node[best].sigma < T_MAX ? best : 0;
}

static bool plan(struct dk_plan *plan)
{
    int step = 0, low = restart_node(plan), times = plan->n_steps >= 36 ? 2 : 1,
        n = plan->n_steps / 4;
    if (plan->n_steps < 4 || low == 0 || plan->node[0].sigma < T_MAX)
        return dk_refuse(plan,
                         "%d steps leave no room to go back up to sigma %g: ask for 4 or more over "
                         "the whole range",
                         plan->n_steps, T_MAX);
    for (int i = 0; i < plan->n_steps; i++) {
        if (!add_heun(plan, plan->node[i], plan->node[i + 1], &step)) return false;
        for (int k = 0; i + 1 == low && k < times; k++)
            if (!add_restart(plan, plan->node[low], n < 2 ? 2 : n, &step)) return false;
    }
    return true;
}

static void heun(struct dk_step *s)
{
    const struct dk_call *call = dk_this_call(s);
    float *start = dk_vector(s, START), *slope = dk_vector(s, SLOPE);
    if (call->stage == 0) {
        dk_copy(start, s->x, s->n);
        dk_copy(slope, s->eps, s->n);
        dk_add(s->x, call->to.sigma - call->at.sigma, slope, s->n);
    } else {
        dk_mix(slope, 0.5, slope, 0.5, s->eps, s->n);
        dk_mix(s->x, 1, start, call->to.sigma - call[-1].at.sigma, slope, s->n);
    }
}

/* A call that is noisier than where this step ended is a restart. */
static void step(struct dk_step *s)
{
    const struct dk_call *call = dk_this_call(s);
    heun(s);
    if (s->call + 1 >= s->plan->n_calls || dk_more_calls(s)) return;
    double low = call->to.sigma, high = call[1].at.sigma;
    if (high > low) dk_add(s->x, sqrt(high * high - low * low), dk_noise(s), s->n);
}

const struct dk_scheduler dk_scheduler_restart = {
    DK_SCHEDULER_HEAD,
    .name = "restart",
    .title = "Restart",
    .aliases = "restart_sampler",
    .summary = "Heun with a jump back up: quality over passes, 20 steps and more",
    .paper = "Xu et al. 2023, arXiv:2306.14878",
    .order = 2,
    .passes_per_step = 2,
    .flags = DK_EXPLODING | DK_STOCHASTIC,
    .steps_low = 20,
    .steps_high = 40,
    .spacing = DK_LINSPACE,
    .n_vectors = N_VECTORS,
    .plan = plan,
    .step = step,
};
DK_SCHEDULER_PLUGIN(dk_scheduler_restart)
