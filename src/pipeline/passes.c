/* passes.c - what each call of the U-Net computes, and what it takes from earlier calls. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/passes.h"

#include <math.h>
#include <stdlib.h>

/* Of 2 x 2 tokens one receives the others, so no more than these can merge. */
#define MAX_MERGE 0.75

#define MAX_INTERVAL 1000

/* Schedulers that work in sigmas give timesteps that are off by a rounding. */
#define SAME_TIMESTEP 1e-6

/* Steps before the gate: a number of them, or a fraction of the run. 0 and n_steps: no gate. */
static int gate_step(const struct dk_settings *job, int n_steps)
{
    double step = job->tgate < 1 ? ceil(job->tgate * n_steps - SAME_TIMESTEP) : job->tgate;
    return step < n_steps ? (int)step : n_steps;
}

struct unet_saving passes_saving(const struct dk_settings *job)
{
    int gate = gate_step(job, job->n_steps);
    return (struct unet_saving){.merge = job->tome,
                                .deep = job->deepcache > 1,
                                .cross = gate > 0 && gate < job->n_steps,
                                .branch = job->deepcache_branch};
}

bool passes_save(const struct unet_saving *saving)
{
    return saving->merge > 0 || saving->deep || saving->cross;
}

bool passes_guided_in_part(const struct dk_settings *job)
{
    return job->guidance_from > 0 || job->guidance_to < 1;
}

static bool guided_at(const struct dk_settings *job, int call, int n_calls)
{
    double at = (double)call / n_calls;
    return at >= job->guidance_from && at < job->guidance_to;
}

/* Calls before this one that took the deep features of the same earlier call, plus one. */
static void plan_deep(struct pass_plan *plan, const struct sampler *s, int interval, int n_calls)
{
    int age = 0; /* calls since the one that computed them */
    for (int i = 1; i < n_calls; i++) {
        bool noisier = sampler_timestep(s, i) > sampler_timestep(s, i - 1) + SAME_TIMESTEP;
        bool half_missing = plan[i].guided && !plan[i - 1].guided;
        age = noisier || half_missing || age + 1 >= interval ? 0 : age + 1;
        plan[i].deep = age > 0;
    }
}

static void plan_cross(struct pass_plan *plan, const struct sampler *s, int gate, int n_calls)
{
    double closes = sampler_step_timestep(s, gate) + SAME_TIMESTEP;
    for (int i = 1; i < n_calls; i++) {
        bool half_missing = plan[i].guided && !plan[i - 1].guided;
        plan[i].cross = sampler_timestep(s, i) <= closes && !half_missing;
    }
}

struct pass_plan *passes_new(const struct dk_settings *job, bool guided,
                             const struct sampler *sampler, struct dk_error *err)
{
    int n_calls = sampler_calls(sampler), n_steps = sampler_steps(sampler);
    struct pass_plan *plan = calloc((size_t)n_calls, sizeof *plan);
    if (!plan) {
        dk_fail(err, DK_ERROR_MEMORY, "run: out of memory for a plan of %d calls", n_calls);
        return NULL;
    }
    for (int i = 0; i < n_calls; i++) plan[i].guided = guided && guided_at(job, i, n_calls);
    int gate = gate_step(job, n_steps);
    if (job->deepcache > 1) plan_deep(plan, sampler, job->deepcache, n_calls);
    if (gate > 0 && gate < n_steps) plan_cross(plan, sampler, gate, n_calls);
    return plan;
}

bool passes_check(const struct dk_model *model, const struct dk_settings *job, struct dk_error *err)
{
    int n_skips = unet_skips(model->unet);
    if (job->deepcache < 1 || job->deepcache > MAX_INTERVAL)
        return dk_fail(err, DK_ERROR_ARGUMENT,
                       "deepcache: every %d calls is not possible; give 1 (off) to %d",
                       job->deepcache, MAX_INTERVAL);
    if (job->deepcache_branch < 0 || job->deepcache_branch >= n_skips)
        return dk_fail(err, DK_ERROR_ARGUMENT,
                       "deepcache-branch: %d is not possible; this model has %d skip connections: "
                       "give 0 to %d",
                       job->deepcache_branch, n_skips, n_skips - 1);
    if (!(job->tgate >= 0) || (job->tgate >= 1 && job->tgate != floor(job->tgate)))
        return dk_fail(err, DK_ERROR_ARGUMENT,
                       "tgate: %g is not possible; give a step from 1 on, or a fraction of the run "
                       "below 1",
                       job->tgate);
    if (job->tgate > job->n_steps)
        return dk_fail(err, DK_ERROR_ARGUMENT,
                       "tgate: the gate after step %g is beyond the run of %d; give 1 to %d, or a "
                       "fraction of the run below 1",
                       job->tgate, job->n_steps, job->n_steps);
    if (!(job->tome >= 0 && job->tome <= MAX_MERGE))
        return dk_fail(err, DK_ERROR_ARGUMENT,
                       "tome: merging %g of the tokens is not possible; one of four stays: give 0 "
                       "to %g",
                       job->tome, MAX_MERGE);
    return true;
}
