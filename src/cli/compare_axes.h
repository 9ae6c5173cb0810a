/* compare_axes.h - what a comparison varies: options with lists of values. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_COMPARE_AXES_H
#define CLI_COMPARE_AXES_H

#include "arguments.h"
#include "values.h"

/*
 * Every setting of the table of options may be an axis. Numbers and names are separated by commas,
 * or by semicolons where one is found (values with commas); 3..7 counts. A list of nothing but
 * numbers is one value of --sigmas, and
 * --timesteps is always one value unless there is a semicolon. Texts and paths are never split: the
 * option is repeated. "own" leaves an option to the model.
 *
 * Order: what belongs to the model is outermost, then the table's order, steps innermost.
 */
#define MAX_AXES 24
struct axis {
    const struct option *option;
    struct values values;
};
struct axes {
    struct axis items[MAX_AXES];
    size_t n_items;
    size_t rows, columns;   /* of a sheet: numbers of axes */
    size_t pages[MAX_AXES]; /* the other axes that have several values */
    size_t n_pages;
};

/* before (may be NULL) holds the values of an earlier comparison, as axes_to_json has them, which
 * come first. */
bool axes_read(struct axes *axes, struct request *request, const struct arguments *arguments,
               const json_t *before, struct dk_error *err);
void axes_free(struct axes *axes);
const struct axis *axes_find(const struct axes *axes, const char *name);
/* Prompts and seeds are samples of a setting, not settings. */
bool axis_is_sample(const struct axis *axis);
bool axis_is_of_model(const struct axis *axis);
/* {"steps": ["1", "2"], ...} */
json_t *axes_to_json(const struct axes *axes);

/* Stores a value of an axis; "own" is none. */
bool axis_apply(struct request *request, const struct option *option, const char *value,
                struct dk_error *err);

#endif
