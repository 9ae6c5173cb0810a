/* compare_report.h - what a comparison tells while it runs. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_COMPARE_REPORT_H
#define CLI_COMPARE_REPORT_H

#include "batch_tally.h"
#include "compare_plan.h"
#include "progress.h"

/*
 * A line of progress on standard error over the whole matrix: cells done, and the time left from
 * the measured seconds of a pass and of a decoding. With --json one object a line on standard
 * output, whose "event" is plan, cell, reference, failed or end.
 */
struct compare_report {
    struct progress progress; /* its terminal and line */
    bool quiet, json;
    size_t n_cells, n_done, n_kept; /* n_kept: of an earlier run, counted in n_done too */
    long long passes_left;          /* of cells and references that are to be made */
    size_t decodes_left;
    long long passes; /* measured so far */
    double denoise_s;
    size_t decodes;
    double decode_s;
    bool provisional; /* what was measured is of the warming up: the first real cell replaces it */
    bool in_reference;
    int cell_passes; /* of the cell being made */
    double told_s;
    struct tally warnings; /* said already */
};
void compare_report_init(struct compare_report *report, const struct request *request);
void compare_report_free(struct compare_report *report);

/* Seconds for so much work by what was measured; NAN when nothing was. */
double compare_report_estimate(const struct compare_report *report, long long passes,
                               size_t decodes);
void compare_report_measured(struct compare_report *report, const struct dk_stats *stats,
                             bool provisional);

void compare_report_plan(struct compare_report *report);
/* A dk_hooks.progress; user is the report. */
void compare_report_progress(void *user, const struct dk_progress *progress);
void compare_report_cell(struct compare_report *report, const struct comparison *comparison,
                         const struct cell *cell, bool is_reference);
void compare_report_failed(struct compare_report *report, const struct cell *cell,
                           const char *sentence);
void compare_report_reference(struct compare_report *report, const struct comparison *comparison,
                              const struct problem *problem);
/* Before a picture's CLIP score is computed; n_scored were already. user is the report. */
void compare_report_score(void *user, size_t n_scored);
void compare_report_end(struct compare_report *report, const char *folder, int status);
/* Each sentence once; user is the report. */
void compare_report_warn(void *user, const char *sentence);
/* "4m 20s", "0.8 s" */
void compare_report_time(double seconds, char text[32]);

#endif
