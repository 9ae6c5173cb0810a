/* lcm.c - LCM: consistency steps on the distilled timesteps. */
/* SPDX-License-Identifier: MIT */

/*
 * Luo et al. 2023, "Latent consistency models", arXiv:2310.04378.
 *
 * A consistency function made from the network, with the skip of Song et al. 2023
 * (arXiv:2303.01469, eq. 5 and appendix C; sigma_data 0.5, tau = 10 t):
 *
 *     f = c_skip x + c_out x0,   c_skip = 0.25 / (tau^2 + 0.25),   c_out = tau / sqrt(tau^2 + 0.25)
 *     x' = alpha' f + sigma' noise             (algorithm 3; no noise at the end)
 *
 * The timesteps are N of the 50 the distillation used, t = 20 k - 1, from 999 down (4: 999 759
 * 499 259); on any other grid the network was never trained, and pictures blur.
 * When to use it: LCM models and LCM-LoRA, 2 to 8 steps, guidance 1 to 2.
 */
#include "common.h"

const struct dk_scheduler dk_scheduler_lcm = {
    DK_SCHEDULER_HEAD,
    .name = "lcm",
    .title = "LCM",
    .aliases = "LCMScheduler",
    .summary = "for LCM models and LCM-LoRA: 2 to 8 steps, guidance 1 to 2",
    .paper = "Luo et al. 2023, arXiv:2310.04378",
    .order = 1,
    .passes_per_step = 1,
    .flags = DK_ALPHA_END | DK_ZERO_ALPHA | DK_STOCHASTIC | DK_INTEGER_T | DK_DISTILLED,
    .steps_low = 2,
    .steps_high = 8,
    .guidance = 1.5,
    .timesteps = dk_distilled_timesteps,
    .plan = dk_lcm_plan,
    .step = dk_lcm_step,
};
DK_SCHEDULER_PLUGIN(dk_scheduler_lcm)
