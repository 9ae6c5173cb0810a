/* compare_sheet.c - the pictures of a comparison in rows and columns. */
/* SPDX-License-Identifier: MIT */
#include "canvas.h"
#include "compare_output.h"
#include "compare_store.h"
#include "say.h"
#include "text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SMALLEST_PX                                                                                \
    128 /* small pictures are enlarged to about this, large ones reduced to LARGEST_PX */
#define LARGEST_PX 256
#define GAP_PX     10
#define CAPTION_PX 36
#define LINE_PX    14 /* of a third line under a picture */
#define HEADING_PX 26
#define TITLE_PX   34
#define MOST_PX    2600 /* of a page's side: rows, sections and columns beyond go to the next one */
#define MAX_PAGES  999

struct sheet {
    const struct comparison *comparison;
    int box_w, box_h;
    int row_px, column_px; /* of a cell with its caption and gaps */
    int left_px;           /* of the first column: the rows' names, or the reference */
};

/* A page holds columns [first, first + n) of some rows of some sections, one below the other. */
struct band {
    const struct section *section;
    size_t first_row, n_rows;
};

static void set_sizes(struct sheet *sheet)
{
    const struct comparison *c = sheet->comparison;
    int w = 1, h = 1;
    bool judged = false;
    for (size_t i = 0; i < c->n_cells; i++) {
        char judgement[64];
        if (c->cells[i].state == CELL_REFUSED) continue;
        cell_judgement(&c->cells[i], judgement);
        judged = judged || *judgement;
        const struct dk_settings *s = &c->cells[i].request.settings;
        if (s->width_px > w) w = s->width_px;
        if (s->height_px > h) h = s->height_px;
    }
    int most = w > h ? w : h;
    double scale = most > LARGEST_PX    ? (double)LARGEST_PX / most
                   : most < SMALLEST_PX ? floor(SMALLEST_PX / most)
                                        : 1;
    sheet->box_w = (int)fmax(ceil(w * scale), SMALLEST_PX);
    sheet->box_h = (int)fmax(ceil(h * scale), 1);
    sheet->column_px = sheet->box_w + GAP_PX;
    sheet->row_px = sheet->box_h + CAPTION_PX + (judged ? LINE_PX : 0) + GAP_PX;
    sheet->left_px = sheet->box_w + 2 * GAP_PX;
}

static void draw_box(cairo_t *cr, const struct sheet *sheet, const struct cell *cell,
                     const char *caption, const char *more, const char *judgement, double x,
                     double y)
{
    struct dk_image image = {0};
    struct dk_error ignored = {0};
    cairo_set_source_rgb(cr, 0.93, 0.93, 0.93);
    cairo_rectangle(cr, x, y, sheet->box_w, sheet->box_h);
    cairo_fill(cr);
    if (cell->state == CELL_DONE &&
        store_picture(sheet->comparison->folder, cell, &image, &ignored))
        canvas_picture(cr, &image, x, y, sheet->box_w, sheet->box_h);
    else if (cell->why)
        canvas_words(cr, cell->why, "Sans 7", 6, sheet->box_w - 8, 0.35, x + 4, y + 4);
    dk_image_free(&image);
    int height = canvas_words(cr, caption, "Sans 9", 1, sheet->box_w, 0, x, y + sheet->box_h + 2);
    height +=
        canvas_words(cr, more, "Sans 8", 1, sheet->box_w, 0.3, x, y + sheet->box_h + 3 + height);
    if (*judgement)
        canvas_words(cr, judgement, "Sans 8", 1, sheet->box_w, 0.3, x,
                     y + sheet->box_h + 3 + height);
}

static void draw_reference(cairo_t *cr, const struct sheet *sheet, const struct problem *problem,
                           double y)
{
    const struct comparison *c = sheet->comparison;
    const struct cell *cell = problem ? problem_reference(c, problem) : NULL;
    if (c->reference.kind == REFERENCE_FILE) {
        canvas_picture(cr, &c->reference.image, GAP_PX, y, sheet->box_w, sheet->box_h);
        canvas_words(cr, "reference", "Sans Bold 9", 1, sheet->box_w, 0, GAP_PX,
                     y + sheet->box_h + 2);
        return;
    }
    if (!cell) return;
    char *more = text_format("%s, %d steps", cell->request.settings.scheduler,
                             cell->request.settings.n_steps);
    draw_box(cr, sheet, cell, "reference", more, "", GAP_PX, y);
    free(more);
}

static void draw_band(cairo_t *cr, const struct sheet *sheet, const struct band *band, size_t first,
                      size_t n, double y)
{
    const struct comparison *c = sheet->comparison;
    const struct section *s = band->section;
    const struct axes *axes = &c->axes;
    canvas_words(cr, s->title, "Sans Bold 11", 1,
                 sheet->left_px + (double)n * sheet->column_px - GAP_PX, 0, GAP_PX, y + 6);
    y += TITLE_PX;
    for (size_t x = 0; x < n; x++) {
        char *heading = axis_heading(&axes->items[axes->columns], first + x);
        canvas_words(cr, heading, "Sans Bold 9", 1, sheet->box_w, 0.15,
                     sheet->left_px + (double)x * sheet->column_px, y + 4);
        free(heading);
    }
    y += HEADING_PX;
    if (band->first_row == 0) draw_reference(cr, sheet, s->problem, y);
    for (size_t k = 0; k < band->n_rows; k++)
        for (size_t x = 0; x < n; x++) {
            const struct cell *cell = s->cells[(band->first_row + k) * s->n_columns + first + x];
            char caption[64], judgement[64], *name = cell_heading(c, cell);
            cell_caption(cell, caption);
            cell_judgement(cell, judgement);
            draw_box(cr, sheet, cell, name, caption, judgement,
                     sheet->left_px + (double)x * sheet->column_px, y + (double)k * sheet->row_px);
            free(name);
        }
}

static int band_px(const struct sheet *sheet, const struct band *band)
{
    return TITLE_PX + HEADING_PX + (int)band->n_rows * sheet->row_px + GAP_PX;
}

static bool write_page(const struct sheet *sheet, const struct band *bands, size_t n_bands,
                       size_t first, size_t n, size_t page, struct dk_error *err)
{
    int height = GAP_PX, width = sheet->left_px + (int)n * sheet->column_px;
    for (size_t i = 0; i < n_bands; i++) height += band_px(sheet, &bands[i]);
    char *path = page == 1 ? text_format("%s/sheet.png", sheet->comparison->folder)
                           : text_format("%s/sheet-%zu.png", sheet->comparison->folder, page);
    cairo_surface_t *surface = cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height);
    cairo_t *cr = cairo_create(surface);
    bool ok =
        cairo_status(cr) == CAIRO_STATUS_SUCCESS ||
        say_fail(err, DK_ERROR_MEMORY, "%s: out of memory for %dx%d pixels", path, width, height);
    if (ok) {
        double y = GAP_PX;
        cairo_set_source_rgb(cr, 1, 1, 1);
        cairo_paint(cr);
        for (size_t i = 0; i < n_bands; i++) {
            draw_band(cr, sheet, &bands[i], first, n, y);
            y += band_px(sheet, &bands[i]);
        }
        struct dk_image image = canvas_image(surface);
        ok = dk_png_write(path, &image, NULL, 0, true, err);
        dk_image_free(&image);
    }
    cairo_destroy(cr);
    cairo_surface_destroy(surface);
    free(path);
    return ok;
}

/* Sheets of an earlier, larger comparison would be taken for this one's. */
static void remove_others(const char *folder, size_t page)
{
    for (; page <= MAX_PAGES; page++) {
        char *path = text_format("%s/sheet-%zu.png", folder, page);
        int gone = unlink(path);
        free(path);
        if (gone != 0) return;
    }
}

/* Cuts sections with more rows than a page holds. */
static size_t cut(const struct sheet *sheet, const struct section *sections, size_t n_sections,
                  struct band **bands)
{
    size_t n = 0, capacity = 0,
           most = (size_t)((MOST_PX - TITLE_PX - HEADING_PX - 2 * GAP_PX) / sheet->row_px);
    *bands = NULL;
    for (size_t i = 0; i < n_sections; i++)
        for (size_t row = 0; row < sections[i].n_rows; row += most) {
            size_t left = sections[i].n_rows - row;
            *bands = list_room(*bands, n, &capacity, sizeof **bands);
            (*bands)[n++] = (struct band){&sections[i], row, left < most ? left : most};
        }
    return n;
}

bool sheets_write(const struct results *r, const struct comparison *c, struct dk_error *err)
{
    struct sheet sheet = {.comparison = c};
    struct band *bands;
    size_t n_sections, page = 0;
    bool ok = true;
    (void)r;
    set_sizes(&sheet);
    struct section *sections = sections_make(c, &n_sections);
    size_t n_bands = cut(&sheet, sections, n_sections, &bands);
    size_t columns = c->axes.items[c->axes.columns].values.n_items;
    size_t most = (size_t)((MOST_PX - sheet.left_px) / sheet.column_px);
    for (size_t i = 0; ok && i < n_bands && page < MAX_PAGES;) {
        size_t n = 1;
        for (int height = band_px(&sheet, &bands[i]); i + n < n_bands; n++) {
            height += band_px(&sheet, &bands[i + n]);
            if (height > MOST_PX) break;
        }
        for (size_t first = 0; ok && first < columns && page < MAX_PAGES; first += most)
            ok = write_page(&sheet, bands + i, n, first,
                            columns - first < most ? columns - first : most, ++page, err);
        i += n;
    }
    if (ok) remove_others(c->folder, page + 1);
    sections_free(sections, n_sections);
    free(bands);
    return ok;
}
