/* scheduler_config.h - what a model's scheduler_config.json says. */
/* SPDX-License-Identifier: MIT */
#ifndef PIPELINE_SCHEDULER_CONFIG_H
#define PIPELINE_SCHEDULER_CONFIG_H

/*
 * The keys are diffusers'. A key left out means what the scheduler in use takes as its default,
 * which is not always what the class named in the file would take; SCHEDULER_UNSET keeps the
 * difference.
 */

#include "base/error.h"
#include "scheduler.h"

#include <stddef.h>

enum { SCHEDULER_MAX_TRAIN = 4096, SCHEDULER_UNSET = -1 };

enum beta_schedule { BETA_LINEAR, BETA_SCALED_LINEAR, BETA_SQUARED_COSINE, BETA_TRAINED };

/* Where a config's sigmas lie; "none": at the spaced timesteps. */
enum sigma_schedule { SIGMAS_NONE, SIGMAS_KARRAS, SIGMAS_EXPONENTIAL, SIGMAS_BETA, SIGMAS_LU };

enum final_sigma { FINAL_UNSET = SCHEDULER_UNSET, FINAL_ZERO, FINAL_SIGMA_MIN };

struct scheduler_config {
    char class_name[64]; /* "EulerDiscreteScheduler" */

    /* the noise */
    int n_train;
    double beta_start, beta_end;
    enum beta_schedule beta_schedule;
    double trained_betas[SCHEDULER_MAX_TRAIN]; /* [n_train] with BETA_TRAINED */
    bool zero_terminal_snr;                    /* rescale_betas_zero_snr */
    enum dk_prediction prediction;
    bool edm; /* the EDM classes */
    double sigma_data, rho;
    double sigma_min, sigma_max; /* 0: the table's; EDM: 0.002 and 80 */

    /* where it is asked */
    int spacing; /* enum dk_spacing or SCHEDULER_UNSET */
    int steps_offset;
    int set_alpha_to_one; /* 0, 1 or SCHEDULER_UNSET */
    enum sigma_schedule sigma_schedule;
    enum final_sigma final_sigma;
    bool interpolate_log; /* interpolation_type "log_linear" */
    bool continuous_t;    /* timestep_type "continuous": t = ln(sigma) / 4 */

    /* what is done to x0 */
    int clip_sample; /* 0, 1 or SCHEDULER_UNSET */
    double clip_sample_range;
    bool thresholding;
    double dynamic_thresholding_ratio, sample_max_value;

    bool algorithm_sde; /* algorithm_type "sde-dpmsolver++" */
    struct dk_solver_options solver;
};

/* Stable Diffusion's noise and an Euler scheduler: for files that say nothing. */
void scheduler_config_default(struct scheduler_config *config);

/*
 * Every value is checked against the range that makes sense; what is out of it is refused,
 * unknown keys are not.
 */
bool scheduler_config_read(const char *path, struct scheduler_config *config, struct dk_error *err);
/* The same from memory; name is for messages. */
bool scheduler_config_parse(const char *name, const char *text, size_t n_bytes,
                            struct scheduler_config *config, struct dk_error *err);

/* alpha_bar[n_train] of this config, as diffusers computes it (products in f32). */
void scheduler_config_alpha_bar(const struct scheduler_config *config, double *alpha_bar);

#endif
