/* sampler.h - a scheduler, planned for one model and one number of steps, ready to be driven. */
/* SPDX-License-Identifier: MIT */
#ifndef PIPELINE_SAMPLER_H
#define PIPELINE_SAMPLER_H

/*
 *     s = sampler_new(options)                       everything that can be refused is refused here
 *     state = sampler_state_new(s, n) for each image;  x = unit noise * sampler_init_sigma(s)
 *     for i in 0 .. sampler_calls(s) - 1:
 *         sampler_scale_input(s, i, x, in, n);
 *         out = unet(in, sampler_timestep(s, i));
 *         sampler_step(s, state, i, out, x, n, ...)
 *
 * One call is one pass of the U-Net (both halves of guidance together). A sampler is read-only
 * after sampler_new and may drive many images at once, each with its own state.
 */

#include "base/error.h"
#include "pipeline/scheduler_config.h" /* struct scheduler_config: what scheduler_config.json says */

struct sampler;
struct sampler_state;

struct sampler_options {
    const struct scheduler_config *config;
    const char *scheduler; /* NULL: the config's _class_name; name, alias or ./plugin.so */
    int n_steps;           /* 0: as many as the list of sigmas or timesteps has */
    double eta;            /* NAN: the scheduler's default */
    const char *spacing;   /* NULL: the config's */
    const char *sigmas;    /* NULL: the config's; a name or a list */
    const char *timesteps; /* NULL, or a list */
    int first_step;        /* 0; else the run begins at this step of the n_steps planned, from a
                              picture with noise (sampler_add_noise) instead of pure noise */
};

/*
 * Where a solver's noise comes from: fills out[n] with the generator's next n unit normals, in
 * the latent's layout.
 */
struct noise_source {
    void (*draw)(void *user, float *out, size_t n);
    void *user;
};

struct sampler *sampler_new(const struct sampler_options *options, struct dk_error *err);
void sampler_free(struct sampler *sampler);

/*
 * What to take where nobody says: as many steps as a list has; for a scheduler of distilled models
 * its few steps and its guidance; else what the model says. Read before sampler_new.
 */
int sampler_default_steps(const struct sampler_options *options, int model_steps);
double sampler_default_guidance(const struct sampler_options *options, double model_guidance);

const char *sampler_name(const struct sampler *sampler); /* the canonical name, "euler-a" */
double sampler_eta(const struct sampler *sampler);       /* the eta in force */
int sampler_calls(const struct sampler *sampler);        /* passes of the U-Net */
double sampler_timestep(const struct sampler *sampler, int call);
/* Where a step begins, the first being step 0. */
double sampler_step_timestep(const struct sampler *sampler, int step);
double sampler_sigma(const struct sampler *sampler, int call); /* sqrt((1 - a) / a) at the call */
double sampler_init_sigma(const struct sampler *sampler);
int sampler_steps(const struct sampler *sampler); /* n_steps, or the length of the list */
/* The guidance scale its models are made for; 0: it does not say. */
double sampler_guidance(const struct sampler *sampler);
bool sampler_distilled(const struct sampler *sampler); /* made for models distilled to few steps */
/* One sentence about a plan that will work badly, or NULL. Lives as long as the sampler. */
const char *sampler_warning(const struct sampler *sampler);

void sampler_scale_input(const struct sampler *sampler, int call, const float *x, float *in,
                         size_t n);

struct sampler_state *sampler_state_new(const struct sampler *sampler, size_t n,
                                        struct dk_error *err);
void sampler_state_free(struct sampler_state *state);

/*
 * x [n] goes one call further; out [n] is the U-Net's answer (eps, v or x0 as the config says),
 * after guidance.
 */
bool sampler_step(const struct sampler *sampler, struct sampler_state *state, int call,
                  const float *out, float *x, size_t n, const struct noise_source *noise,
                  struct dk_error *err);

/*
 * How many draws a run makes before this call. It depends on the plan alone: a generator that has
 * skipped this many draws of n gives the call the same noise as a run from the start.
 */
int sampler_draws(const struct sampler *sampler, int call);

/* x at a call made from a clean latent: alpha x0 + sigma noise (pictures to start from). */
void sampler_add_noise(const struct sampler *sampler, int call, const float *x0, const float *noise,
                       float *x, size_t n);

/*
 * The clean latent that the U-Net's answer implies, for previews. x and out as given to
 * sampler_step.
 */
void sampler_predict_x0(const struct sampler *sampler, int call, const float *out, const float *x,
                        float *x0, size_t n);

#endif
