/* batch_source.h - the file of prompts, read record by record as it comes. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_BATCH_SOURCE_H
#define CLI_BATCH_SOURCE_H

#include "options.h"

/*
 * Text (one job a line), JSON Lines (one object a line) or CSV/TSV (a header, then one job a
 * record, which may go over several lines inside quotes, RFC 4180). Without a format given, the
 * file's ending and its first line that is not blank decide: an object makes JSON Lines, a header
 * of known names that has "prompt" makes a table. UTF-8 with or without a byte order mark, lines of
 * any length that end in LF or CRLF. Nothing is read ahead of what is needed, so that a pipe can be
 * followed line by line.
 */
enum source_format { SOURCE_AUTO, SOURCE_TEXT, SOURCE_JSON, SOURCE_TABLE };
struct batch_source {
    const char *name; /* as the user wrote it; "standard input" for - */
    int file;
    enum source_format format;
    char delimiter; /* of a table: , ; or tab; 0: not known yet */
    size_t n_lines; /* read so far */
    char **columns; /* names of a table's header */
    size_t n_columns;
    char *buffer; /* bytes read and not used: [at, n) */
    size_t at, n, capacity;
    bool ended;
};
/* path "-" is standard input. */
bool batch_source_open(struct batch_source *source, const char *path, const char *format,
                       struct dk_error *err);
void batch_source_close(struct batch_source *source);

enum source_result {
    SOURCE_JOB,
    SOURCE_END,
    SOURCE_BAD,   /* this record is wrong; the next ones can be read */
    SOURCE_BROKEN /* nothing more can be read */
};
/* Applies the next record to the request (which holds the defaults); *line is where it begins. */
enum source_result batch_source_next(struct batch_source *source, struct request *request,
                                     size_t *line, struct dk_error *err);

#endif
