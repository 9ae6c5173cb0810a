/* ddim.c - DDIM: deterministic by default, order 1. */
/* SPDX-License-Identifier: MIT */

/*
 * Song, Meng, Ermon 2020, "Denoising diffusion implicit models", arXiv:2010.02502.
 *
 * Eq. 12, from alpha_bar a to the next planned a':
 *
 *     x' = sqrt(a') x0 + sqrt(1 - a' - s^2) eps + s noise
 *     s  = eta sqrt((1 - a') / (1 - a)) sqrt(1 - a / a')                                 (16)
 *
 * eta 0 is deterministic and of order 1, eta 1 is DDPM's noise. The last step goes to the end of
 * the path, not a fixed stride back as diffusers does: with a step count that does not divide the
 * training steps, the stride misses.
 * When to use it: the plain choice; 20 to 50 steps, or the few a distilled model was made for
 * (with trailing spacing).
 */
#include "common.h"

const struct dk_scheduler dk_scheduler_ddim = {
    DK_SCHEDULER_HEAD,
    .name = "ddim",
    .title = "DDIM",
    .aliases = "DDIMScheduler, k_ddim",
    .summary = "the plain choice: deterministic, forgiving; eta 1 makes it DDPM",
    .paper = "Song et al. 2020, arXiv:2010.02502",
    .order = 1,
    .passes_per_step = 1,
    .flags = DK_ALPHA_END | DK_CLIPS | DK_RAW_EPS | DK_ZERO_ALPHA | DK_STOCHASTIC | DK_ETA |
             DK_INTEGER_T,
    .steps_low = 20,
    .steps_high = 50,
    .spacing = DK_LEADING,
    .step = dk_ddim_step,
};
DK_SCHEDULER_PLUGIN(dk_scheduler_ddim)
