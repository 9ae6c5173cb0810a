/* turbo.c - SD-Turbo and SDXL-Turbo: Euler ancestral on trailing timesteps. */
/* SPDX-License-Identifier: MIT */

/*
 * Sauer et al. 2023, "Adversarial diffusion distillation", arXiv:2311.17042.
 *
 * Models distilled to jump from trailing timesteps (1: 999; 4: 999 749 499 249). The step is
 * Euler ancestral's (euler_a.c) with eta 1, as SDXL-Turbo's config has it; --eta 0 is Euler,
 * SD-Turbo's. No guidance: the model was trained without.
 * When to use it: those two models, 1 to 4 steps; on any other model the picture is a blur.
 */
#include "common.h"

const struct dk_scheduler dk_scheduler_turbo = {
    DK_SCHEDULER_HEAD,
    .name = "turbo",
    .title = "Euler a",
    .aliases = "sd-turbo, sdxl-turbo, add",
    .summary = "for SD-Turbo and SDXL-Turbo: 1 to 4 steps, guidance 1",
    .paper = "Sauer et al. 2023, arXiv:2311.17042",
    .order = 1,
    .passes_per_step = 1,
    .flags = DK_EXPLODING | DK_STOCHASTIC | DK_ETA | DK_DISTILLED,
    .steps_low = 1,
    .steps_high = 4,
    .spacing = DK_TRAILING,
    .eta = 1,
    .guidance = 1,
    .timesteps = dk_trailing_timesteps,
    .step = dk_euler_ancestral_step,
};
DK_SCHEDULER_PLUGIN(dk_scheduler_turbo)
