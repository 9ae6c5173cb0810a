/* ddpm.c - DDPM: the model's own noise process. */
/* SPDX-License-Identifier: MIT */

/*
 * Ho, Jain, Abbeel 2020, "Denoising diffusion probabilistic models", arXiv:2006.11239.
 *
 * The posterior of one step from alpha_bar a to a', with b = 1 - a / a' the noise added between
 * them:
 *
 *     x' = sqrt(a') b / (1 - a) x0 + sqrt(1 - b) (1 - a') / (1 - a) x + s noise                 (7)
 *     s^2 = (1 - a') / (1 - a) b   ("fixed_small"),  or b   ("fixed_large")
 *
 * When to use it: as the model was trained; it needs hundreds of steps. Fewer passes: every other
 * file here.
 */
#include "common.h"

static void step(struct dk_step *s)
{
    struct dk_point here = dk_here(s), next = dk_next(s);
    double a = here.alpha * here.alpha, a_next = next.alpha * next.alpha, b = 1 - a / a_next;
    double variance = s->plan->options->variance_large ? b : (1 - a_next) / (1 - a) * b;

    dk_mix(s->x, next.alpha * b / (1 - a), s->x0, sqrt(1 - b) * (1 - a_next) / (1 - a), s->x, s->n);
    if (here.t > 0) dk_add(s->x, sqrt(fmax(variance, 1e-20)), dk_noise(s), s->n);
}

const struct dk_scheduler dk_scheduler_ddpm = {
    DK_SCHEDULER_HEAD,
    .name = "ddpm",
    .title = "DDPM",
    .aliases = "DDPMScheduler",
    .summary = "the model's own noise process, for hundreds of steps",
    .paper = "Ho et al. 2020, arXiv:2006.11239",
    .order = 1,
    .passes_per_step = 1,
    .flags = DK_CLIPS | DK_ZERO_ALPHA | DK_STOCHASTIC | DK_INTEGER_T,
    .steps_low = 250,
    .steps_high = 1000,
    .spacing = DK_LEADING,
    .eta = 1,
    .step = step,
};
DK_SCHEDULER_PLUGIN(dk_scheduler_ddpm)
