/* sigmas.h - where on the path the U-Net is asked: spacings, sigma schedules, lists. */
/* SPDX-License-Identifier: MIT */
#ifndef PIPELINE_SIGMAS_H
#define PIPELINE_SIGMAS_H

/*
 * From most to least binding: a list of timesteps, a list of sigmas, a schedule by name, a
 * spacing by name, the scheduler's own grid, the model's config.
 *
 *  - The config's words follow diffusers: sigmas between timesteps are interpolated linearly, a
 *    Karras schedule spans what the solver's class lets it span, timesteps are rounded where the
 *    class rounds.
 *  - Names given on the command line follow k-diffusion (A1111, ComfyUI): the whole training range,
 *    linear in ln sigma, timesteps with fractions, the latent in the exploding form where the
 *    solver allows it.
 */

#include "base/error.h"
#include "pipeline/scheduler_config.h"
#include "scheduler.h"

struct sigmas_request {
    const struct scheduler_config *config;
    const struct dk_scheduler *scheduler;
    int n_steps;                              /* 0: as many as the list has */
    const char *spacing, *sigmas, *timesteps; /* NULL: not asked for */
    int first_step;                           /* the steps before it are left out */
};

struct sigmas {
    int n_steps;
    bool exploding;        /* the form of the path */
    double *alpha_bar;     /* [n_train] */
    struct dk_point *node; /* [n_steps + 1] */
    double init_sigma;     /* x = unit noise times this */
    char warning[200];     /* "" or one sentence */
};

/*
 * plan receives model, options, form and steps for the scheduler's own grid; *out is freed by
 * sigmas_free.
 */
bool sigmas_make(struct sigmas *out, const struct sigmas_request *request,
                 struct dk_noise_model *model, struct dk_error *err);
/*
 * How many steps a comma-separated list of sigmas or timesteps makes: a last sigma of 0 is the end,
 * not a step. 0 for NULL and for a name, -1 for what is neither.
 */
int sigmas_list_length(const char *text, bool of_sigmas);

void sigmas_free(struct sigmas *sigmas);

#endif
