/* euler_a.c - Euler ancestral: the Euler step with fresh noise at every step. */
/* SPDX-License-Identifier: MIT */

/*
 * k-diffusion, after Song et al. 2020, arXiv:2010.02502.
 *
 * Walk to sigma_down, then add noise up to sigma' (the split is DDIM's eq. 16, arXiv:2010.02502,
 * see dk_ancestral):
 *
 *     x' = x + (sigma_down - sigma) (x - x0) / sigma + sigma_up noise
 *     sigma_down^2 + sigma_up^2 = sigma'^2
 *
 * eta 0 is Euler. Pictures do not settle with more steps: the noise goes on changing them.
 * When to use it: lively pictures in 20 to 40 steps.
 */
#include "common.h"

const struct dk_scheduler dk_scheduler_euler_a = {
    DK_SCHEDULER_HEAD,
    .name = "euler-a",
    .title = "Euler a",
    .aliases = "EulerAncestralDiscreteScheduler, euler_ancestral, k_euler_a, k_euler_ancestral",
    .summary = "lively, changes with the number of steps; 20 to 40 steps",
    .paper = "k-diffusion, after Song et al. 2020, arXiv:2010.02502",
    .order = 1,
    .passes_per_step = 1,
    .flags = DK_EXPLODING | DK_STOCHASTIC | DK_ETA,
    .steps_low = 20,
    .steps_high = 40,
    .spacing = DK_LINSPACE,
    .eta = 1,
    .step = dk_euler_ancestral_step,
};
DK_SCHEDULER_PLUGIN(dk_scheduler_euler_a)
