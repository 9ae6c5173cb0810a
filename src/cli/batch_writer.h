/* batch_writer.h - pictures become files beside the next picture's making. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_BATCH_WRITER_H
#define CLI_BATCH_WRITER_H

#include "batch_claims.h"
#include "batch_plan.h"
#include "batch_report.h"

/*
 * A picture goes three steps, in a thread of its own:
 *   1. FOLDER/.darkroom/JOB.png is written and synced;
 *   2. a line with its hash and its name to be is appended to the manifest and synced: now it is
 * done;
 *   3. it gets its name.
 * Whatever stops the machine in between, the next run can tell: before 2 the job is made again,
 * after it only step 3 is repeated (publish). A file under its name is therefore always whole, and
 * always in the manifest.
 */
#define STAGING_NAME ".darkroom"

struct writer;
struct writer_options {
    const char *folder, *staging, *manifest_path;
    const char *source_name;
    const struct provenance *provenance;
    struct claims *claims;
    struct report *report;
    bool go_on; /* after a picture that cannot be written */
};
struct writer *writer_start(const struct writer_options *options, struct dk_error *err);

/*
 * Hands over a picture (the writer frees it) and the start and seconds of its making. Waits only
 * when too many are waiting already.
 */
struct timing {
    char started[32]; /* UTC, ISO 8601 */
    double text_s, denoise_s, decode_s;
};
void writer_push(struct writer *writer, struct job *job, struct dk_image *image,
                 const struct timing *timing);
/* Records a picture that could not be made. False when that could not be recorded either. */
bool writer_fail(struct writer *writer, struct job *job, const struct dk_error *why,
                 struct dk_error *err);

/* Brings the states of jobs up to date; with wait, not before one more is finished or nothing is
 * waiting. True if something is still waiting to be written. */
bool writer_collect(struct writer *writer, bool wait);
/* The failure after which nothing more should be made; false when there is none. */
bool writer_failed(struct writer *writer, struct dk_error *err);
/* Writes what is waiting and ends the thread. */
void writer_stop(struct writer *writer);

/* Gives a staged picture its name, without replacing anything unless replace. *taken: the name
 * exists. */
bool publish(const char *staged, const char *path, bool replace, bool *taken, struct dk_error *err);

/* Makes the folders that a name with slashes needs. */
void make_parents(const char *path);

void now_iso(char text[32]);

#endif
