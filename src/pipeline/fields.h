/* fields.h - typed fields of a JSON object from a file nobody vouches for. */
/* SPDX-License-Identifier: MIT */
#ifndef PIPELINE_FIELDS_H
#define PIPELINE_FIELDS_H

/*
 * Every function leaves *out alone when the key is absent or null, so defaults are set first. A
 * value of the wrong type or out of range is an error that names file, key and value; the first one
 * stays in err, and a reader is checked once at its end with fields_ok().
 */

#include "base/error.h"

#include <jansson.h>

struct fields {
    const char *subject; /* the file, for messages */
    const json_t *object;
    struct dk_error *err; /* not NULL */
};

static inline bool fields_ok(const struct fields *f)
{
    return f->err->code == DK_OK;
}
/* NULL when absent or null. */
const json_t *fields_value(const struct fields *f, const char *key);
/* "subject: "key" is <value>, expected <expected>"; false. */
bool fields_fail(const struct fields *f, const char *key, const char *expected);

void fields_bool(const struct fields *f, const char *key, bool *out);
void fields_int(const struct fields *f, const char *key, int low, int high, int *out);
void fields_number(const struct fields *f, const char *key, double low, double high, double *out);

/* A whole number for all, or a list of exactly n of them. */
void fields_ints(const struct fields *f, const char *key, int low, int high, int n, int *out);
/* The length of a list, at most max; -1 when absent. */
int fields_length(const struct fields *f, const char *key, int max);
/* Item i of a list of words, or a single word; NULL when it is neither. */
const char *fields_word(const struct fields *f, const char *key, size_t i);

/*
 * For settings that are understood but only done one way: the value, written as JSON, must be one
 * of those in allowed, which are separated by bars ("false|null"); else DK_ERROR_UNSUPPORTED.
 */
void fields_only(const struct fields *f, const char *key, const char *allowed);

#endif
