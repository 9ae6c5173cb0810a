/* batch_manifest.h - what has been made: a file that only grows. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_BATCH_MANIFEST_H
#define CLI_BATCH_MANIFEST_H

#include "batch_claims.h"
#include "batch_tally.h"

#include <jansson.h>

/*
 * FOLDER/manifest.jsonl has one JSON object a line: "job" (its identity), "outcome" ("done" or
 * "failed"), "file", "bytes", "sha256", "settings", times and more. Of several lines for one job
 * the last counts. A line is appended in one write under a claim of its own and synced before the
 * job counts as done. A line cut short by a power cut, or damaged otherwise, is no entry; the next
 * append begins on a new line.
 */
#define MANIFEST_NAME  "manifest.jsonl"
#define MANIFEST_CLAIM "manifest"

struct manifest_entry {
    char *job, *file;
    char sha256[65];
    long long size_bytes, index;
    long long at; /* where its line begins: lines in memory would take ten times the room */
    size_t line_bytes;
    bool is_done;
    bool is_new; /* appended after manifest_open */
};
struct manifest {
    char *path;
    long long read_bytes; /* of the file, up to the last complete line */
    struct manifest_entry *entries;
    size_t n_entries, capacity;
    struct tally jobs; /* entry number + 1 by job */
    size_t n_bad;      /* lines that are no entries */
    bool is_open;
};
/* Reads what there is; a missing file is an empty one. */
bool manifest_open(struct manifest *manifest, const char *folder, struct dk_error *err);
void manifest_close(struct manifest *manifest);
/* Reads what has been appended since, by anybody. */
bool manifest_refresh(struct manifest *manifest, struct dk_error *err);
/* The last entry of a job, or NULL. Good until the next refresh. */
const struct manifest_entry *manifest_find(const struct manifest *manifest, const char *job);

/* The whole line of an entry, read again; NULL when it is not there any more. A new reference. */
json_t *manifest_line(const struct manifest *manifest, const struct manifest_entry *entry);

/* Appends and syncs. Uses only the path, so another thread may read meanwhile. */
bool manifest_append(const char *path, const json_t *line, struct claims *claims,
                     struct dk_error *err);

/* True for a relative name without "..", hidden parts or empty ones:
 * manifests are copied around. */
bool manifest_is_inside(const char *file);

/* SHA-256 and size of a file. */
bool manifest_hash(const char *path, char hex[65], long long *size_bytes, struct dk_error *err);

#endif
