/* bench.h - what the command bench measures, and its chart. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "darkroom.h"

#define BENCH_PHASES 4
#define BENCH_KINDS  8

struct bench_phase {
    struct dk_cost costs[BENCH_KINDS]; /* sums over the repeats until bench_run divides them */
    size_t n_costs;
    double seconds; /* of the whole phase */
};
struct bench {
    const char *model_name;
    int width_px, height_px, n_steps, n_passes;
    struct dk_machine machine;
    struct bench_phase phases[BENCH_PHASES]; /* by enum dk_phase */
    double first_s, mean_s; /* the first picture, which also prepares the weights */
};
extern const char *const bench_phase_names[BENCH_PHASES];

/*
 * The roofline (Williams, Waterman and Patterson 2009, doi:10.1145/1498765.1498785): operations a
 * second over operations a byte. Nothing can be above the roof, except by an algorithm that saves
 * operations.
 */
bool bench_plot(const struct bench *bench, const char *path, bool overwrite, struct dk_error *err);

#endif
