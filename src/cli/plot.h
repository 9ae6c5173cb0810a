/* plot.h - a scheduler's plan as a chart. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_PLOT_H
#define CLI_PLOT_H

#include "darkroom.h"

struct plan {
    const char *scheduler;
    int n_steps;
    double *timesteps, *sigmas; /* [n_calls] */
    size_t n_calls;
};

/* The name must end in .png or .svg. */
bool plot_check(const char *path, struct dk_error *err);

/* Timesteps on a linear and sigmas on a logarithmic axis, over the calls. Written whole or not at
 * all. */
bool plot_write(const struct plan *plan, const char *path, bool overwrite, struct dk_error *err);

#endif
