/* compare_measure.h - the numbers of a comparison: cells, settings, answers. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_COMPARE_MEASURE_H
#define CLI_COMPARE_MEASURE_H

#include "compare_plan.h"

/* Over the cells of a setting that have the number; mean and deviation NAN when none has. */
struct spread {
    double mean, deviation; /* deviation: of a sample, divided by n - 1; 0 for one */
    size_t n;
};

enum quantity { /* the measures, and what they cost */
                Q_RMSE,
                Q_PSNR,
                Q_SSIM,
                Q_MS_SSIM,
                Q_SHARPNESS,
                Q_SHARPER,
                Q_CONTRAST,
                Q_BACKGROUND,
                Q_NEAREST,
                Q_RANK,
                Q_CLIP,
                Q_PASSES,
                Q_TEXT_S,
                Q_DENOISE_S,
                Q_DECODE_S,
                Q_SECONDS,
                N_QUANTITIES
};
extern const char *const quantity_names[N_QUANTITIES]; /* as in results.csv */

enum target_kind { TARGET_PSNR, TARGET_SSIM, TARGET_MS_SSIM, TARGET_RMSE };
struct target {
    enum target_kind kind;
    double value;
};
#define MAX_TARGETS 8

struct setting {
    size_t *cells; /* [n_cells], numbers */
    size_t n_cells;
    size_t first; /* the first of them that is possible, or SIZE_MAX */
    size_t n_done;
    bool draws;         /* its pictures do not converge to one */
    bool by_statistics; /* it, or the reference, draws noise: only statistics can be compared */
    struct spread q[N_QUANTITIES];
    double statistics; /* distance of the latents' statistics from the reference's, NAN if not
                          measured */
    bool pareto;       /* nothing is both faster and nearer */
    bool within[MAX_TARGETS];
};

/* Settings that differ in steps alone: one line of a chart. */
struct series {
    char *name;       /* what tells it from the others: "ddim", "ddim, karras" */
    size_t *settings; /* [n], steps rising */
    size_t n;
    size_t fewest[MAX_TARGETS]; /* number of the setting with the fewest steps within the target,
                                   SIZE_MAX: none */
};

struct results {
    struct setting *settings; /* [comparison->n_settings] */
    struct series *series;
    size_t n_series;
    struct target targets[MAX_TARGETS];
    size_t n_targets;
    size_t fewest[MAX_TARGETS], fastest[MAX_TARGETS]; /* over all series; SIZE_MAX: none */
    size_t n_settings;
    size_t *cells; /* of all settings, one after the other */
    bool has[N_QUANTITIES]; /* some setting has the number */
};

double cell_quantity(const struct cell *cell, enum quantity quantity);
/* Shares of pictures: their deviation says nothing more. */
static inline bool quantity_is_share(enum quantity quantity)
{
    return quantity == Q_BACKGROUND || quantity == Q_NEAREST;
}

/* text as --target takes it; NULL: 30 dB and SSIM 0.95. */
bool targets_read(struct results *results, const char *text, struct dk_error *err);
/* "psnr 30 dB" */
void target_describe(const struct target *target, char text[48]);

/* Measures every finished cell against its reference, then sums up. */
bool results_measure(struct results *results, struct comparison *comparison, struct dk_error *err);
/* Whether any picture was compared with its reference; else noise was drawn in all of them. */
bool results_compared(const struct results *results);
void results_free(struct results *results);

/* The command that renders a setting with the first prompt and seed. Free it. */
char *setting_command(const struct comparison *comparison, const struct setting *setting);
/* The setting's error: latent RMSE, or 1 - SSIM against a reference without latent. NAN if there is
 * none. */
double setting_error(const struct results *results, const struct setting *setting);

#endif
