/* passes.h - what each call of the U-Net computes, and what it takes from earlier calls. */
/* SPDX-License-Identifier: MIT */
#ifndef PIPELINE_PASSES_H
#define PIPELINE_PASSES_H

/*
 * A call asks the U-Net once about a latent at a timestep; with guidance for both halves together.
 * A step of a scheduler is one call (ddim, euler) or several (heun, dpm2, restart). What may be
 * left out is decided call by call, before the run:
 *
 *   guided  both halves of guidance: while call / calls is within guidance_from and guidance_to
 *   deep    deep features are those of an earlier call (--deepcache N): of N calls in a row the
 *           first computes them. Where the noise goes up again (restart) and where guidance begins,
 *           the count begins anew.
 *   cross   the answers of cross-attention are those of earlier calls (--tgate S): at the timestep
 *           where step S + 1 begins and at all less noisy ones. So the calls of a restart that are
 *           noisier compute theirs; so does the call with which guidance begins.
 */
#include "pipeline/model.h"
#include "pipeline/sampler.h"

struct pass_plan {
    bool guided, deep, cross;
};

/* What the job needs room for (unet_reuse_new). */
struct unet_saving passes_saving(const struct dk_settings *job);
/* True if any call reuses something or tokens are merged. */
bool passes_save(const struct unet_saving *saving);

/* Whether a guided job leaves guidance out in part of its run. */
bool passes_guided_in_part(const struct dk_settings *job);

/* All sampler_calls calls of a job, guided or not as a whole; the caller frees them. NULL on
 * failure. */
struct pass_plan *passes_new(const struct dk_settings *job, bool guided,
                             const struct sampler *sampler, struct dk_error *err);

/* Refuses what cannot be, in a sentence. n_steps of the job must be known. */
bool passes_check(const struct dk_model *model, const struct dk_settings *job,
                  struct dk_error *err);

#endif
