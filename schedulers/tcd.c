/* tcd.c - TCD: jumps along the trajectory, noise back to the next timestep. */
/* SPDX-License-Identifier: MIT */

/*
 * Zheng et al. 2024, "Trajectory consistency distillation", arXiv:2402.19159.
 *
 * The network jumps from t to s = (1 - gamma) t', a place between the next timestep t' and the
 * picture, and noise leads from there back to t' (strategic stochastic sampling, algorithm 4);
 * gamma is typed --eta:
 *
 *     x_s = alpha_s x0 + sigma_s eps
 *     x'  = alpha' / alpha_s x_s + sqrt(1 - (alpha' / alpha_s)^2) noise
 *
 * gamma 0 is deterministic, 1 is multistep consistency sampling. Timesteps as lcm.c.
 * When to use it: TCD models and LoRAs, and Hyper-SD's unified LoRAs; 4 to 8 steps, guidance 1,
 * gamma 0.3 (more with more steps).
 */
#include "common.h"

/* The trained point at t; t' of the last step is 0 or the end. */
static struct dk_point place(const struct dk_plan *plan, double t)
{
    return dk_point_at(plan->exploding, t, dk_table_sigma(plan->model, (int)t));
}

static void step(struct dk_step *s)
{
    struct dk_point next = dk_next(s), mid = next;
    bool last = s->call == s->plan->n_calls - 1;
    if (!last) mid = place(s->plan, floor((1 - s->plan->eta) * next.t));

    dk_mix(s->x, mid.alpha, s->x0, mid.sigma, s->eps, s->n);
    if (last || s->plan->eta <= 0) return;
    double keep = next.alpha / mid.alpha;
    dk_mix(s->x, keep, s->x, sqrt(fmax(1 - keep * keep, 0)), dk_noise(s), s->n);
}

const struct dk_scheduler dk_scheduler_tcd = {
    DK_SCHEDULER_HEAD,
    .name = "tcd",
    .title = "TCD",
    .aliases = "TCDScheduler",
    .summary = "for TCD models and LoRAs: 4 to 8 steps, guidance 1; eta is their gamma",
    .paper = "Zheng et al. 2024, arXiv:2402.19159",
    .order = 1,
    .passes_per_step = 1,
    .flags = DK_ALPHA_END | DK_ZERO_ALPHA | DK_RAW_EPS | DK_STOCHASTIC | DK_ETA | DK_INTEGER_T |
             DK_DISTILLED,
    .steps_low = 4,
    .steps_high = 8,
    .eta = 0.3,
    .guidance = 1,
    .timesteps = dk_distilled_timesteps,
    .step = step,
};
DK_SCHEDULER_PLUGIN(dk_scheduler_tcd)
