/* batch_plan.h - from lines to jobs: every picture with its settings, identity and name. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_BATCH_PLAN_H
#define CLI_BATCH_PLAN_H

#include "batch_tally.h"
#include "metadata.h"
#include "options.h"

/*
 * A line is multiplied: each combination of --matrix (the first one outermost), then each prompt of
 * its template when combinatorial, then each seed. What depends on chance does so through the seed
 * alone. A line without a seed, or with random or -1, gets one that follows from its prompt, its
 * negative prompt and how many equal lines stand before it: lines differ, and a second run asks for
 * the same pictures.
 *
 * A job's identity is SHA-256 over all its resolved settings that were not left alone, the model's
 * fingerprint, and a number among equal jobs. The place in the file, the file's name and the
 * machine have no part in it.
 */
enum job_state {
    JOB_OPEN,
    JOB_RUNNING, /* claimed by this process, perhaps waiting to be written */
    JOB_DONE,
    JOB_FAILED,
    JOB_ELSEWHERE /* belongs to another shard */
};
struct job {
    struct request request; /* settings resolved */
    size_t index;           /* from 1 */
    size_t line;            /* of the source */
    int n_passes;
    char id[33];
    char *name;     /* of the file, in the folder */
    char *replaces; /* a damaged file of this job, which may be written over; NULL: none */
    enum job_state state;
};
struct plan_line {
    struct request request; /* owns the strings of its jobs */
    size_t number;
};
struct plan {
    struct dk_model *model;
    const struct provenance *provenance;
    const struct request *defaults; /* of the command line */
    const char *source_name, *folder;
    struct job **jobs;
    size_t n_jobs, jobs_capacity;
    struct plan_line **lines;
    size_t n_lines, lines_capacity;
    size_t n_added; /* lines of the source; a line with a matrix has several in lines */
    struct tally ids, names, texts;
};

/* A request with the defaults, to be changed by a line. Hand it to plan_add or free it. */
void plan_line_init(const struct plan *plan, struct request *request);
/* Takes the request over in any case. False leaves the plan as it was; the sentence begins with
 * "file:line:". */
bool plan_add(struct plan *plan, struct request *request, size_t line, struct dk_error *err);
void plan_free(struct plan *plan);

#endif
