/* plot.h - a scheduler's plan as a chart. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_PLOT_H
#define CLI_PLOT_H

#include "darkroom.h"

#include <cairo.h>

struct plan {
    const char *scheduler;
    int n_steps;
    double *timesteps, *sigmas; /* [n_calls] */
    size_t n_calls;
};

/* The name must end in .png or .svg. */
bool plot_check(const char *path, struct dk_error *err);

/* Draws width x height points into a PNG or SVG file, written whole or not at all. */
typedef void plot_drawer(cairo_t *c, const void *what);
bool plot_file(plot_drawer *draw, const void *what, int width, int height, const char *path,
               bool overwrite, struct dk_error *err);

enum align { ALIGN_LEFT, ALIGN_CENTRE, ALIGN_RIGHT };
void plot_text(cairo_t *c, double x, double y, enum align align, const char *text);
/* White ground, and the font every chart is written in. */
void plot_prepare(cairo_t *c);

/* Timesteps on a linear and sigmas on a logarithmic axis, over the calls. Written whole or not at
 * all. */
bool plot_write(const struct plan *plan, const char *path, bool overwrite, struct dk_error *err);

#endif
