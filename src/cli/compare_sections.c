/* compare_sections.c - how cells are laid out on sheets. */
/* SPDX-License-Identifier: MIT */
#include "compare_output.h"
#include "identity.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

char *axis_word(const struct axis *axis, size_t value)
{
    const char *text = axis->values.items[value];
    if (axis->option->kind != OPTION_PATH) return text_copy(text);
    char *word = identity_name(text);
    for (size_t i = 0; i < axis->values.n_items; i++) {
        char *other = i == value ? NULL : identity_name(axis->values.items[i]);
        bool same = other && strcmp(other, word) == 0;
        free(other);
        if (!same) continue;
        free(word);
        return text_copy(text);
    }
    return word;
}

char *axis_heading(const struct axis *axis, size_t value)
{
    const char *name = axis->option->name, *text = axis->values.items[value];
    bool one = strcmp(text, "1") == 0;
    if (strcmp(text, "own") == 0) return text_format("%s: the model's", name);
    if (strcmp(name, "steps") == 0) return text_format("%s step%s", text, one ? "" : "s");
    if (strcmp(name, "scheduler") == 0 || strcmp(name, "prompt") == 0) return text_copy(text);
    char *word = axis_word(axis, value), *heading = text_format("%s %s", name, word);
    free(word);
    return heading;
}

char *cell_heading(const struct comparison *c, const struct cell *cell)
{
    const struct axis *rows = &c->axes.items[c->axes.rows];
    const struct axis *columns = &c->axes.items[c->axes.columns];
    char *row = axis_heading(rows, cell->at[c->axes.rows]);
    char *column = axis_heading(columns, cell->at[c->axes.columns]);
    char *name = text_format("%s, %s", row, column);
    free(row);
    free(column);
    return name;
}

void cell_caption(const struct cell *cell, char text[64])
{
    const struct outcome *o = &cell->outcome;
    double seconds = o->text_s + o->denoise_s + o->decode_s;
    if (cell->state == CELL_REFUSED)
        snprintf(text, 64, "not possible");
    else if (cell->state != CELL_DONE)
        snprintf(text, 64, "failed");
    else if (isnan(cell->measure.psnr_db))
        snprintf(text, 64, seconds < 9.95 ? "%.2f s" : "%.0f s", seconds);
    else
        snprintf(text, 64, seconds < 9.95 ? "%.2f s, %.1f dB" : "%.0f s, %.1f dB", seconds,
                 cell->measure.psnr_db);
}

void cell_judgement(const struct cell *cell, char text[64])
{
    const struct measure *m = &cell->measure;
    int n = 0;
    *text = '\0';
    if (cell->state != CELL_DONE) return;
    if (!isnan(m->clip)) n = snprintf(text, 64, "CLIP %.1f", m->clip);
    if (m->seen[0] && m->nearest == 0)
        snprintf(text + n, 64 - (size_t)n, "%slike %.24s%s%.24s", n ? ", " : "", m->seen[0],
                 m->seen[1] ? " and " : "", m->seen[1] ? m->seen[1] : "");
}

/* The number of the cell with these values. */
static size_t cell_number(const struct axes *axes, const size_t at[MAX_AXES])
{
    size_t number = 0;
    for (size_t i = 0; i < axes->n_items; i++)
        number = number * axes->items[i].values.n_items + at[i];
    return number;
}

/* A single prompt stands in every title; of the other axes, those that make pages. */
static char *make_title(const struct axes *axes, const size_t at[MAX_AXES])
{
    const struct values *prompts = &axes_find(axes, "prompt")->values;
    char *title = text_copy(prompts->n_items == 1 ? prompts->items[0] : "");
    for (size_t i = 0; i < axes->n_pages; i++) {
        char *heading = axis_heading(&axes->items[axes->pages[i]], at[axes->pages[i]]);
        char *longer = text_format("%s%s%s", title, *title ? ", " : "", heading);
        free(title);
        free(heading);
        title = longer;
    }
    return title;
}

/* False when no cell is possible. */
static bool fill(const struct comparison *c, size_t at[MAX_AXES], struct section *s)
{
    const struct axes *axes = &c->axes;
    bool any = false, several = false;
    *s = (struct section){.n_rows = axes->items[axes->rows].values.n_items,
                          .n_columns = axes->items[axes->columns].values.n_items,
                          .title = make_title(axes, at)};
    s->cells = text_alloc(s->n_rows * s->n_columns * sizeof *s->cells);
    for (size_t y = 0; y < s->n_rows; y++)
        for (size_t x = 0; x < s->n_columns; x++) {
            at[axes->rows] = y;
            at[axes->columns] = x;
            const struct cell *cell = s->cells[y * s->n_columns + x] =
                &c->cells[cell_number(axes, at)];
            if (cell->state == CELL_REFUSED) continue;
            const struct problem *problem = &c->problems[cell->problem];
            several = several || (any && problem != s->problem);
            s->problem = problem;
            any = true;
        }
    if (several) s->problem = NULL;
    return any;
}

struct section *sections_make(const struct comparison *c, size_t *n_sections)
{
    const struct axes *axes = &c->axes;
    size_t n = 1, at[MAX_AXES] = {0};
    for (size_t i = 0; i < axes->n_pages; i++) n *= axes->items[axes->pages[i]].values.n_items;
    struct section *sections = text_alloc(n * sizeof *sections);
    *n_sections = 0;
    for (size_t number = 0; number < n; number++) {
        size_t rest = number;
        for (size_t i = axes->n_pages; i-- > 0;) {
            size_t values = axes->items[axes->pages[i]].values.n_items;
            at[axes->pages[i]] = rest % values;
            rest /= values;
        }
        if (fill(c, at, &sections[*n_sections])) {
            ++*n_sections;
        } else {
            free(sections[*n_sections].cells);
            free(sections[*n_sections].title);
        }
    }
    return sections;
}

void sections_free(struct section *sections, size_t n_sections)
{
    for (size_t i = 0; i < n_sections; i++) {
        free(sections[i].cells);
        free(sections[i].title);
    }
    free(sections);
}
