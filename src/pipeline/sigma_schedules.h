/* sigma_schedules.h - sigma schedules that have a name: formulas, timesteps, tables. */
/* SPDX-License-Identifier: MIT */
#ifndef PIPELINE_SIGMA_SCHEDULES_H
#define PIPELINE_SIGMA_SCHEDULES_H

/*
 * Each gives n noise levels from the highest down; the end of the path, sigma 0, is not among them.
 * Sources stand at the formulas.
 */

#include "base/error.h"

struct schedule_range {
    int n;           /* how many */
    double max, min; /* the model's sigmas */
    double rho;      /* of the Karras schedule */
    int n_train;     /* the model's timesteps */
};

enum schedule_kind {
    SCHEDULE_FORMULA,   /* gives sigmas from max to min */
    SCHEDULE_TIMESTEPS, /* gives timesteps, which may have fractions */
    SCHEDULE_TABLE      /* gives sigmas; only for Stable Diffusion's noise, 14.6 to 0.029 */
};

struct schedule {
    const char *name;
    enum schedule_kind kind;
    void (*fill)(const struct schedule_range *r, double *out); /* out[r->n] */
};

/* By our name or another program's; NULL (and the names there are, in err) when there is none. */
const struct schedule *schedule_find(const char *name, struct dk_error *err);

/* Value i of n even ones; both ends are exact. n below 2 gives the first. */
double schedule_linspace(double first, double last, int n, int i);

#endif
