/* compare_plan.h - from axes to cells: every picture, and what it is measured against. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_COMPARE_PLAN_H
#define CLI_COMPARE_PLAN_H

#include "compare_axes.h"
#include "compare_truth.h"
#include "metadata.h"

#include <math.h>

/*
 * A cell is one picture: a combination of one value of each axis. Cells that differ in prompt and
 * seed alone are one setting, a line of the table. Cells that differ in the way of solving alone
 * (scheduler, steps, spacing, sigmas, timesteps, eta; what saves work, as deepcache; the decoder)
 * have one problem in common: the same model, text, guidance, size and starting noise, and so one
 * reference.
 *
 *     cell ──> setting   measured together: means and spread
 *       └────> problem   measured against its reference
 *
 * The converged reference is the solution of the probability-flow ODE: a second-order solver at 32,
 * 64, 128, ... steps until the latent changes by less than the tolerance when the steps are
 * doubled. These are cells like others.
 */
#define FIRST_LEVEL 32
#define MAX_LEVELS  6 /* 32 to 1024 steps */

enum cell_state {
    CELL_OPEN,
    CELL_DONE,
    CELL_FAILED, /* why says what went wrong */
    CELL_REFUSED /* these settings do not go together: why */
};

/* What is kept of a finished cell. */
struct outcome {
    int n_passes;
    double text_s, denoise_s, decode_s;
    int h, w, c; /* of the latent */
};

struct measure { /* NAN: not measured */
    double rmse, psnr_db, ssim, ms_ssim;
    double sharpness, contrast, sharper; /* sharper: sharpness divided by the reference's */
    double background; /* 1 if the background has the colour that the prompt names, 0 if not */
    double nearest;    /* 1 if the nearest of the model's objects is the named one, 0 if not */
    double rank;       /* the named object's place among all: 1 is the nearest */
    double clip;       /* CLIP score */
    const char *seen[CAPTION_OBJECTS]; /* the nearest object, the model's words; NULL: not known */
};

struct cell {
    struct request request; /* settings resolved; owns its strings */
    size_t at[MAX_AXES];    /* numbers of the axes' values */
    size_t model, setting, problem;
    int n_passes;
    bool says_guidance; /* the guidance is not what the scheduler would take by itself */
    bool draws;         /* noise on the way: does not converge to one picture */
    char id[IDENTITY_BYTES];
    char *file; /* of the picture, in the folder */
    char *why;
    enum dk_code code; /* of a refused cell */
    enum cell_state state;
    struct outcome outcome;
    struct measure measure;
};

struct problem {
    size_t first;        /* a cell of this problem */
    struct cell *levels; /* [n_levels] */
    size_t n_levels, n_used;
    double changes[MAX_LEVELS]; /* RMSE between the latents of level i and i - 1 */
    double changes_db[MAX_LEVELS];
    bool converged;
    double clip; /* of the reference's picture; NAN: not measured */
};

enum reference_kind { REFERENCE_CONVERGED, REFERENCE_SETTING, REFERENCE_FILE };
struct reference {
    enum reference_kind kind;
    struct values settings; /* "scheduler=ddpm", "steps=1000" */
    const char *path;
    struct dk_image image; /* of a file */
};

/* One model with its replaced parts. */
struct slot {
    struct request request;
    struct provenance provenance;
    char *path;
    double guidance;     /* the model's own */
    struct truth *truth; /* what its pictures should show; NULL: the model does not say */
};

struct comparison {
    struct request *request; /* of the command line */
    char *folder;
    struct axes axes;
    struct reference reference;
    struct slot *slots;
    size_t n_slots;
    struct cell *cells; /* [n_cells], those of one model in a row */
    size_t n_cells;
    struct problem *problems;
    size_t n_problems, problems_capacity;
    size_t n_settings;
    struct dk_model *model; /* the one that is open */
    size_t open;            /* its slot, n_slots: none */
    struct scores *scores;  /* of --clip; NULL: not asked for */
    void (*warn)(void *user, const char *sentence);
    void *warn_user;
};

bool reference_read(struct reference *reference, const char *text, struct dk_error *err);
/* Opens each model and resolves all cells. Fails when nothing of an axis' value is possible. */
bool comparison_plan(struct comparison *comparison, struct dk_error *err);
/* The cell's request, with all left to the model that only decides how a problem is solved. The
 * strings are the cell's. */
struct request problem_request(const struct cell *cell);
/* Makes the slot's model the open one. */
bool comparison_use(struct comparison *comparison, size_t slot, struct dk_error *err);
void comparison_free(struct comparison *comparison);

/* The reference's cell of a problem, or NULL: it is a file, or not finished. */
const struct cell *problem_reference(const struct comparison *comparison,
                                     const struct problem *problem);
/* The text of a cell's value: "ddim", "16". */
const char *cell_value(const struct comparison *comparison, const struct cell *cell, size_t axis);

#endif
