/* compare_output.h - what a comparison leaves in its folder: tables, charts, sheets, the report. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_COMPARE_OUTPUT_H
#define CLI_COMPARE_OUTPUT_H

#include "compare_measure.h"

/* results.csv and results.json; docs/compare.md describes both. */
bool table_write(const struct results *results, const struct comparison *comparison,
                 struct dk_error *err);
/* The table and the answers, for a person at a terminal. */
void table_print(const struct results *results, const struct comparison *comparison);

/* chart.svg and chart.png: error against steps and against seconds, a line for each series. */
bool chart_write(const struct results *results, const struct comparison *comparison,
                 struct dk_error *err);
/* The chart as SVG text, its colours left to the style sheet of the page around it. Free it. */
char *chart_svg(const struct results *results, const struct comparison *comparison);

/* sheet.png, sheet-2.png, ...: the pictures in rows and columns. */
bool sheets_write(const struct results *results, const struct comparison *comparison,
                  struct dk_error *err);

/* report.html: everything in one file. */
bool page_write(const struct results *results, const struct comparison *comparison,
                struct dk_error *err);

/*
 * A part of a sheet: one combination of the values of all axes but those of rows and columns.
 * Sections with nothing but impossible cells are left out.
 */
struct section {
    size_t n_rows, n_columns;
    const struct cell **cells;     /* [n_rows, n_columns] */
    const struct problem *problem; /* of all its cells; NULL where they have several */
    char *title;                   /* what is the same in all its cells and not in all sections */
};
struct section *sections_make(const struct comparison *comparison, size_t *n_sections);
void sections_free(struct section *sections, size_t n_sections);
/* A value as a word: of a path the last part, where that tells it from the others. Free it. */
char *axis_word(const struct axis *axis, size_t value);
/* "16 steps", "ddim", "guidance 4": a value as a heading. Free it. */
char *axis_heading(const struct axis *axis, size_t value);
/* "ddim, 16 steps". Free it. */
char *cell_heading(const struct comparison *comparison, const struct cell *cell);
/* "0.31 s" and "34.1 dB", or why there is no number. */
void cell_caption(const struct cell *cell, char text[64]);
/* "CLIP 27.3, like lemon": the score, and the object it is nearer to than to the named one. */
void cell_judgement(const struct cell *cell, char text[64]);

#endif
