/* compare_chart.c - error against steps and against seconds, on logarithmic axes. */
/* SPDX-License-Identifier: MIT */
#include "canvas.h"
#include "compare_output.h"
#include "compare_store.h"
#include "say.h"
#include "text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH        860.0
#define LEFT         64.0
#define LABEL_LETTERS 26 /* of a line's name */
#define RIGHT        200.0 /* room for the lines' names */
#define TOP          48.0
#define PANEL_HEIGHT 290.0
#define BOTTOM       56.0
#define LABEL_PX     16.0
#define MAX_LABELS   ((size_t)18) /* that fit beside a panel */

enum across { ACROSS_STEPS, ACROSS_SECONDS };
enum upwards { UP_ERROR, UP_STATISTICS };

struct panel {
    const struct results *results;
    const struct comparison *comparison;
    enum across across;
    enum upwards upwards;
    double top;
    double x_low, x_high, y_low, y_high; /* logarithms */
};

/* False where the setting has no place in the panel. */
static bool point_of(const struct panel *p, size_t number, double *x, double *y)
{
    const struct setting *s = &p->results->settings[number];
    *x = p->across == ACROSS_SECONDS ? s->q[Q_SECONDS].mean
                                     : p->comparison->cells[s->first].request.settings.n_steps;
    *y = p->upwards == UP_STATISTICS ? s->statistics : setting_error(p->results, s);
    return *x > 0 && *y > 0 && isfinite(*x) && isfinite(*y);
}

static bool find_range(struct panel *p)
{
    p->x_low = p->y_low = INFINITY;
    p->x_high = p->y_high = -INFINITY;
    for (size_t i = 0; i < p->results->n_settings; i++) {
        double x, y;
        if (p->results->settings[i].first == SIZE_MAX || !point_of(p, i, &x, &y)) continue;
        p->x_low = fmin(p->x_low, log10(x));
        p->x_high = fmax(p->x_high, log10(x));
        p->y_low = fmin(p->y_low, log10(y));
        p->y_high = fmax(p->y_high, log10(y));
    }
    if (!(p->x_low <= p->x_high)) return false;
    double x_room = fmax(0.03 * (p->x_high - p->x_low), 0.02),
           y_room = fmax(0.06 * (p->y_high - p->y_low), 0.05);
    p->x_low -= x_room;
    p->x_high += x_room;
    p->y_low -= y_room;
    p->y_high += y_room;
    return true;
}

static double x_of(const struct panel *p, double x)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * (log10(x) - p->x_low) / (p->x_high - p->x_low);
}

static double y_of(const struct panel *p, double y)
{
    return p->top + PANEL_HEIGHT * (1 - (log10(y) - p->y_low) / (p->y_high - p->y_low));
}

/* ---- axes ---------------------------------------------------------------------------------- */

static void put_tick(struct canvas *canvas, const struct panel *p, bool upright, double value)
{
    char label[32];
    snprintf(label, sizeof label, "%g", value);
    double x = x_of(p, value), y = y_of(p, value), bottom = p->top + PANEL_HEIGHT;
    const double across[] = {LEFT, y, WIDTH - RIGHT, y}, up[] = {x, p->top, x, bottom};
    canvas_line(canvas, upright ? across : up, 2, COLOUR_GRID, 1, false);
    if (upright)
        canvas_text(canvas, LEFT - 8, y + 4, ANCHOR_END, 12, COLOUR_FAINT, label);
    else
        canvas_text(canvas, x, bottom + 18, ANCHOR_MIDDLE, 12, COLOUR_FAINT, label);
}

/* 1, 2 and 5 times each power of ten, or the powers alone where that would be too many. */
static void put_decades(struct canvas *canvas, const struct panel *p, bool upright)
{
    static const double parts[] = {1, 2, 5};
    double low = upright ? p->y_low : p->x_low, high = upright ? p->y_high : p->x_high;
    size_t n = high - low > 3 ? 1 : 3;
    for (int power = (int)floor(low); power <= (int)ceil(high); power++)
        for (size_t i = 0; i < n; i++) {
            double value = parts[i] * pow(10, power);
            if (log10(value) >= low && log10(value) <= high) put_tick(canvas, p, upright, value);
        }
}

/* The smallest step count above another, 0: there is none. */
static int next_steps(const struct panel *p, int above)
{
    int next = 0;
    for (size_t i = 0; i < p->results->n_settings; i++) {
        double x, y;
        if (p->results->settings[i].first == SIZE_MAX || !point_of(p, i, &x, &y)) continue;
        if ((int)x > above && (next == 0 || (int)x < next)) next = (int)x;
    }
    return next;
}

/* The step counts themselves, those left out that would touch the one before. */
static void put_steps(struct canvas *canvas, const struct panel *p)
{
    double last = -INFINITY;
    for (int steps = next_steps(p, 0); steps > 0; steps = next_steps(p, steps)) {
        if (x_of(p, steps) - last < 24) continue;
        put_tick(canvas, p, false, steps);
        last = x_of(p, steps);
    }
}

static void put_axes(struct canvas *canvas, const struct panel *p)
{
    const char *error =
        p->results->has[Q_RMSE] ? "latent RMSE to the reference" : "1 - SSIM to the reference";
    const char *up = p->upwards == UP_STATISTICS ? "distance of the latents' statistics" : error;
    const char *across = p->across == ACROSS_SECONDS ? "seconds a picture" : "steps";
    char title[128];
    snprintf(title, sizeof title, "%s, against %s", up, across);
    canvas_text(canvas, LEFT, p->top - 14, ANCHOR_START, 14, COLOUR_INK, title);
    put_decades(canvas, p, true);
    if (p->across == ACROSS_STEPS)
        put_steps(canvas, p);
    else
        put_decades(canvas, p, false);
    double middle = (LEFT + WIDTH - RIGHT) / 2;
    canvas_text(canvas, middle, p->top + PANEL_HEIGHT + 36, ANCHOR_MIDDLE, 12, COLOUR_FAINT,
                across);
}

/* ---- lines --------------------------------------------------------------------------------- */

struct label {
    double x, y; /* the line's last point */
    double at;   /* where the name stands */
    size_t series;
};

static int by_height(const void *a, const void *b)
{
    const struct label *first = a, *second = b;
    if (first->y != second->y) return first->y < second->y ? -1 : 1;
    return first->series < second->series ? -1 : 1;
}

/* Names stand beside their lines' ends, moved apart where they would touch. */
static void put_labels(struct canvas *canvas, const struct panel *p, struct label *labels, size_t n)
{
    qsort(labels, n, sizeof *labels, by_height);
    double bottom = p->top + PANEL_HEIGHT;
    for (size_t i = 0; i < n; i++) {
        labels[i].at = labels[i].y;
        if (i > 0 && labels[i].at < labels[i - 1].at + LABEL_PX)
            labels[i].at = labels[i - 1].at + LABEL_PX;
    }
    for (size_t i = n; i-- > 0;) {
        double most = i == n - 1 ? bottom : labels[i + 1].at - LABEL_PX;
        if (labels[i].at > most) labels[i].at = most;
    }
    for (size_t i = 0; i < n; i++) {
        const double leader[] = {labels[i].x + 7, labels[i].y, WIDTH - RIGHT + 14, labels[i].at};
        int colour = (int)(labels[i].series % N_SERIES_COLOURS);
        char *name = text_shortened(p->results->series[labels[i].series].name, LABEL_LETTERS);
        canvas_line(canvas, leader, 2, colour, 0.6, false);
        canvas_mark(canvas, WIDTH - RIGHT + 21, labels[i].at, (int)(labels[i].series % N_MARKS),
                    colour);
        canvas_text(canvas, WIDTH - RIGHT + 30, labels[i].at + 4, ANCHOR_START, 12, COLOUR_INK,
                    name);
        free(name);
    }
}

static void put_lines(struct canvas *canvas, const struct panel *p)
{
    const struct results *r = p->results;
    struct label *labels = text_alloc((r->n_series + 1) * sizeof *labels);
    double *xy = text_alloc((2 * r->n_settings + 2) * sizeof *xy);
    size_t n_labels = 0;
    for (size_t k = 0; k < r->n_series; k++) {
        size_t n = 0;
        int colour = (int)(k % N_SERIES_COLOURS);
        for (size_t i = 0; i < r->series[k].n; i++) {
            double x, y;
            if (!point_of(p, r->series[k].settings[i], &x, &y)) continue;
            xy[2 * n] = x_of(p, x);
            xy[2 * n + 1] = y_of(p, y);
            n++;
        }
        if (n == 0) continue;
        canvas_line(canvas, xy, n, colour, 2, (k / N_SERIES_COLOURS) % 2 == 1);
        for (size_t i = 0; i < n; i++)
            canvas_mark(canvas, xy[2 * i], xy[2 * i + 1], (int)(k % N_MARKS), colour);
        if (n_labels < MAX_LABELS)
            labels[n_labels++] = (struct label){xy[2 * n - 2], xy[2 * n - 1], 0, k};
    }
    put_labels(canvas, p, labels, n_labels);
    free(labels);
    free(xy);
}

/* ---- the whole chart ----------------------------------------------------------------------- */

/* The panels that have something to show; returns how many. */
static size_t lay_out(const struct results *r, const struct comparison *c, struct panel panels[3])
{
    size_t n = 0;
    bool statistics = false;
    for (size_t i = 0; i < r->n_settings; i++)
        statistics = statistics || r->settings[i].by_statistics;
    for (int kind = 0; kind < 3; kind++) {
        struct panel *p = &panels[n];
        *p = (struct panel){.results = r,
                            .comparison = c,
                            .across = kind == 1 ? ACROSS_SECONDS : ACROSS_STEPS,
                            .upwards = kind == 2 ? UP_STATISTICS : UP_ERROR,
                            .top = TOP + (double)n * (PANEL_HEIGHT + BOTTOM + TOP)};
        if ((kind < 2 || statistics) && find_range(p)) n++;
    }
    return n;
}

static double height_of(size_t n_panels)
{
    return (double)(n_panels ? n_panels : 1) * (PANEL_HEIGHT + BOTTOM + TOP);
}

static void draw(struct canvas *canvas, const struct panel *panels, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        put_axes(canvas, &panels[i]);
        put_lines(canvas, &panels[i]);
    }
    if (n == 0)
        canvas_text(canvas, LEFT, TOP, ANCHOR_START, 14, COLOUR_FAINT,
                    "there are no errors to draw");
}

static char *make_svg(const struct results *r, const struct comparison *c, bool themed)
{
    struct panel panels[3];
    size_t n = lay_out(r, c, panels), n_bytes = 0;
    char *text = NULL;
    FILE *out = open_memstream(&text, &n_bytes);
    if (!out) return text_copy("");
    fprintf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" width=\"%g\" "
        "height=\"%g\" "
        "font-family=\"sans-serif\" role=\"img\" aria-label=\"error against steps and seconds\">\n",
        WIDTH, height_of(n), WIDTH, height_of(n));
    if (!themed) fputs("<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n", out);
    draw(&(struct canvas){.svg = out, .themed = themed}, panels, n);
    fputs("</svg>\n", out);
    return fclose(out) == 0 ? text : text_copy("");
}

char *chart_svg(const struct results *r, const struct comparison *c)
{
    return make_svg(r, c, true);
}

static bool write_png(const struct results *r, const struct comparison *c, struct dk_error *err)
{
    struct panel panels[3];
    size_t n = lay_out(r, c, panels);
    cairo_surface_t *surface =
        cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)WIDTH, (int)height_of(n));
    struct canvas canvas = {.cr = cairo_create(surface)};
    bool ok = cairo_status(canvas.cr) == CAIRO_STATUS_SUCCESS ||
              say_fail(err, DK_ERROR_MEMORY, "chart.png: out of memory");
    if (ok) {
        cairo_set_source_rgb(canvas.cr, 1, 1, 1);
        cairo_paint(canvas.cr);
        draw(&canvas, panels, n);
        struct dk_image image = canvas_image(surface);
        char *path = text_format("%s/chart.png", c->folder);
        ok = dk_png_write(path, &image, NULL, 0, true, err);
        dk_image_free(&image);
        free(path);
    }
    cairo_destroy(canvas.cr);
    cairo_surface_destroy(surface);
    return ok;
}

bool chart_write(const struct results *r, const struct comparison *c, struct dk_error *err)
{
    char *svg = make_svg(r, c, false);
    bool ok = store_write(c->folder, "chart.svg", svg, strlen(svg), err) && write_png(r, c, err);
    free(svg);
    return ok;
}
