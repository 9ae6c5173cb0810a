/* batch_report.h - what a batch tells: a line of progress, names, JSON events. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_BATCH_REPORT_H
#define CLI_BATCH_REPORT_H

#include "batch_plan.h"
#include "terminal.h"

#include <pthread.h>

/*
 * Names of finished pictures go to standard output as they are written, or with --json one object a
 * line, whose "event" is plan, start, done, failed or end. Everything else goes to standard error.
 * Any thread may call.
 */
struct report {
    pthread_mutex_t lock;
    struct terminal terminal;
    const char *folder;
    bool quiet, json, on_line, output_failed;
    bool growing; /* the number of jobs is not known yet */
    size_t n_jobs, n_before, n_done,
        n_failed;  /* n_before: done when the run began, counted in n_done too */
    size_t n_made; /* by this process */
    double start_s, told_s;
};
void report_init(struct report *report, const struct request *request, const char *folder);
void report_free(struct report *report);
void report_plan(struct report *report, size_t n_jobs, size_t n_before);
/* One more job is known; done: there is nothing to do for it. */
void report_more(struct report *report, bool done);
void report_start(struct report *report, const struct job *job);
/* line is the manifest's; NULL with by_others: another process made it. */
void report_done(struct report *report, const struct job *job, const json_t *line, bool by_others);
void report_failed(struct report *report, const struct job *job, const char *source,
                   const char *sentence, bool by_others);
/* A dk_hooks.progress; user is the report. */
void report_progress(void *user, const struct dk_progress *progress);
void report_waiting(struct report *report, size_t n_others);
/* Notes, warnings and errors between the lines of progress. */
void report_warn(void *user, const char *sentence);
void report_note(struct report *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void report_error(struct report *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void report_end(struct report *report, int status);

#endif
