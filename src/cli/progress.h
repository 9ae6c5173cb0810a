/* progress.h - how far a picture is: one line rewritten on a terminal, plain lines elsewhere. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include "terminal.h"

#define N_PHASES 4

struct progress {
    struct terminal terminal;
    bool quiet;
    bool draw;           /* previews are drawn in the terminal */
    const char *preview; /* or written to this file: NULL if not */
    int index, count;    /* which picture of how many */
    int n_steps; /* of the picture; the library counts model calls, of which a step may need two */
    enum dk_phase phase;
    double phase_start_s, told_s; /* told_s: when a line was last shown */
    int told_quarter;             /* the quarter of the steps, or tenth of the bytes, last told */
    double preview_s;             /* when the preview file was last written */
    int n_drawn;                  /* lines of preview above the progress line */
    bool on_line;                 /* the cursor stands in a progress line */
};

/* Seconds on a clock that only goes forward. */
double progress_now_s(void);
/* The most memory this process has had resident. */
size_t progress_peak_bytes(void);

void progress_init(struct progress *progress, bool quiet);
void progress_picture(struct progress *progress, int index, int count, int n_steps);
/* A dk_hooks.progress; user is the struct progress. */
void progress_report(void *user, const struct dk_progress *report);
/* The same line for work counted in bytes; plain lines at each tenth. */
void progress_bytes(struct progress *progress, const char *what, size_t done, size_t total);
/* Takes the line away, so that something else can be printed. */
void progress_clear(struct progress *progress);

#endif
