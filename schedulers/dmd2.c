/* dmd2.c - DMD2: consistency steps on its own four timesteps, or one. */
/* SPDX-License-Identifier: MIT */

/*
 * Yin et al. 2024, "Improved distribution matching distillation", arXiv:2405.14867.
 *
 * Multistep consistency sampling (lcm.c) from the timesteps the student was trained at: 999, 749,
 * 499, 249 for the model of 4 steps; 399 for that of 1, which is given pure noise there all the
 * same. No guidance.
 * When to use it: DMD2's checkpoints and LoRAs.
 */
#include "common.h"

static bool timesteps(struct dk_plan *plan, double *t)
{
    int n = plan->n_steps, n_train = plan->model->n_train;
    if (n != 1 && n != 4)
        return dk_refuse(plan, "%d steps, its models are made for 1 or 4: ask for one of these", n);
    t[0] = floor(0.4 * n_train) - 1;
    return n == 1 || dk_trailing_timesteps(plan, t);
}

const struct dk_scheduler dk_scheduler_dmd2 = {
    DK_SCHEDULER_HEAD,
    .name = "dmd2",
    .title = "LCM",
    .aliases = "dmd",
    .summary = "for DMD2: 1 or 4 steps, guidance 1",
    .paper = "Yin et al. 2024, arXiv:2405.14867",
    .order = 1,
    .passes_per_step = 1,
    .flags = DK_ALPHA_END | DK_ZERO_ALPHA | DK_STOCHASTIC | DK_INTEGER_T | DK_DISTILLED,
    .steps_low = 1,
    .steps_high = 4,
    .guidance = 1,
    .timesteps = timesteps,
    .plan = dk_lcm_plan,
    .step = dk_lcm_step,
};
DK_SCHEDULER_PLUGIN(dk_scheduler_dmd2)
