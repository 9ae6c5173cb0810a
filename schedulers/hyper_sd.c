/* hyper_sd.c - Hyper-SD: DDIM on the timesteps its files were distilled on. */
/* SPDX-License-Identifier: MIT */

/*
 * Ren et al. 2024, "Trajectory segmented consistency model", arXiv:2404.13686.
 *
 * LoRAs and models for a fixed number of steps: DDIM (ddim.c, eta 0) on trailing timesteps for 2,
 * 4, 8 and more; the one for a single step was trained to jump from timestep 800, not 999. (The
 * unified LoRAs want tcd.c.) No guidance, except the "CFG" ones of 8 and 12 steps, made for 5 to
 * 8.
 * When to use it: Hyper-SD files, with the number of steps in their name.
 */
#include "common.h"

static bool timesteps(struct dk_plan *plan, double *t)
{
    t[0] = floor(0.8 * plan->model->n_train);
    return plan->n_steps == 1 || dk_trailing_timesteps(plan, t);
}

const struct dk_scheduler dk_scheduler_hyper_sd = {
    DK_SCHEDULER_HEAD,
    .name = "hyper-sd",
    .title = "DDIM",
    .aliases = "hypersd, hyper-sdxl",
    .summary = "for Hyper-SD: 1 to 12 steps as in the file name, guidance 1",
    .paper = "Ren et al. 2024, arXiv:2404.13686",
    .order = 1,
    .passes_per_step = 1,
    .flags = DK_ALPHA_END | DK_ZERO_ALPHA | DK_RAW_EPS | DK_STOCHASTIC | DK_ETA | DK_DISTILLED,
    .steps_low = 1,
    .steps_high = 12,
    .spacing = DK_TRAILING,
    .guidance = 1,
    .timesteps = timesteps,
    .step = dk_ddim_step,
};
DK_SCHEDULER_PLUGIN(dk_scheduler_hyper_sd)
