/* lightning.c - SDXL-Lightning: Euler on trailing timesteps. */
/* SPDX-License-Identifier: MIT */

/*
 * Lin et al. 2024, "Progressive adversarial diffusion distillation", arXiv:2402.13929.
 *
 * Checkpoints for 1, 2, 4 and 8 steps, each right with its own number only; Euler's step
 * (euler.c) on trailing timesteps:
 *
 *     x' = x + (sigma' - sigma) eps
 *
 * The checkpoint for 1 step predicts x0 ("sample"); the others eps. No guidance.
 * When to use it: those checkpoints and LoRAs, with the number of steps in their name.
 */
#include "common.h"

static void step(struct dk_step *s)
{
    dk_add(s->x, dk_next(s).sigma - dk_here(s).sigma, s->eps, s->n);
}

static bool timesteps(struct dk_plan *plan, double *t)
{
    int n = plan->n_steps;
    if (n != 1 && n != 2 && n != 4 && n != 8)
        return dk_refuse(
            plan,
            "%d steps, there are checkpoints for 1, 2, 4 and 8: ask for the one in the file's name",
            n);
    return dk_trailing_timesteps(plan, t);
}

const struct dk_scheduler dk_scheduler_lightning = {
    DK_SCHEDULER_HEAD,
    .name = "lightning",
    .title = "Euler",
    .aliases = "sdxl-lightning",
    .summary = "for SDXL-Lightning: 1, 2, 4 or 8 steps as in the file name, guidance 1",
    .paper = "Lin et al. 2024, arXiv:2402.13929",
    .order = 1,
    .passes_per_step = 1,
    .flags = DK_EXPLODING | DK_DISTILLED,
    .steps_low = 1,
    .steps_high = 8,
    .spacing = DK_TRAILING,
    .guidance = 1,
    .timesteps = timesteps,
    .step = step,
};
DK_SCHEDULER_PLUGIN(dk_scheduler_lightning)
