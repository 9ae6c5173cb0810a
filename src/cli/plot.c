/* plot.c - a scheduler's plan as a chart. */
/* SPDX-License-Identifier: MIT */
#include "plot.h"

#include "say.h"
#include "text.h"

#include <cairo-svg.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define WIDTH        800
#define HEIGHT       640
#define LEFT         80.0
#define RIGHT        24.0
#define PANEL_HEIGHT 240.0

struct panel {
    const char *title;
    const double *values; /* [n] */
    size_t n;
    double top;
    bool logarithmic;
    double low, high; /* of the axis, after the logarithm */
    double rgb[3];
};

static bool is_svg(const char *path)
{
    size_t n = strlen(path);
    return n > 4 && strcasecmp(path + n - 4, ".svg") == 0;
}

bool plot_check(const char *path, struct dk_error *err)
{
    size_t n = strlen(path);
    if (is_svg(path) || (n > 4 && strcasecmp(path + n - 4, ".png") == 0)) return true;
    return say_fail(err, DK_ERROR_ARGUMENT,
                    "--plot: found \"%.200s\", expected a name that ends in .png or .svg", path);
}

/* Zero, where a sampler ends, has no logarithm: it is drawn at the foot of the axis. */
static double axis_value(const struct panel *p, double value)
{
    if (!p->logarithmic) return value;
    return value > 0 ? log10(value) : p->low;
}

static void set_range(struct panel *p)
{
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < p->n; i++) {
        if (p->logarithmic && !(p->values[i] > 0)) continue;
        double v = p->logarithmic ? log10(p->values[i]) : p->values[i];
        if (v < low) low = v;
        if (v > high) high = v;
    }
    if (!(low <= high)) low = high = 0;
    p->low = p->logarithmic ? floor(low) : 0;
    p->high = p->logarithmic ? ceil(high) : high;
    if (p->high <= p->low) p->high = p->low + 1;
}

static double y_of(const struct panel *p, double axis)
{
    return p->top + PANEL_HEIGHT * (1 - (axis - p->low) / (p->high - p->low));
}

static double x_of(const struct panel *p, size_t i)
{
    double room = WIDTH - LEFT - RIGHT;
    return LEFT + (p->n > 1 ? room * (double)i / (double)(p->n - 1) : room / 2);
}

void plot_text(cairo_t *c, double x, double y, enum align align, const char *text)
{
    cairo_text_extents_t size;
    cairo_text_extents(c, text, &size);
    cairo_move_to(c,
                  x - (align == ALIGN_LEFT     ? 0
                       : align == ALIGN_CENTRE ? size.x_advance / 2
                                               : size.x_advance),
                  y);
    cairo_show_text(c, text);
    cairo_new_path(c); /* or the next line would start at the end of the text */
}

/* 1, 2 or 5 times a power of ten, so that an axis gets four to ten ticks. */
static double tick_distance(double range)
{
    double power = pow(10, floor(log10(range))), share = range / power;
    return share >= 5 ? power : share >= 2 ? power / 2 : power / 5;
}

static void draw_ticks(cairo_t *c, const struct panel *p)
{
    double step = p->logarithmic ? ceil((p->high - p->low) / 8) : tick_distance(p->high - p->low);
    for (double axis = p->low; axis <= p->high + 1e-9; axis += step) {
        char label[32];
        snprintf(label, sizeof label, "%g", p->logarithmic ? pow(10, axis) : axis);
        cairo_set_source_rgb(c, 0.88, 0.88, 0.88);
        cairo_move_to(c, LEFT, y_of(p, axis));
        cairo_line_to(c, WIDTH - RIGHT, y_of(p, axis));
        cairo_stroke(c);
        cairo_set_source_rgb(c, 0.2, 0.2, 0.2);
        plot_text(c, LEFT - 8, y_of(p, axis) + 4, ALIGN_RIGHT, label);
    }
    size_t stride = p->n > 12 ? (p->n + 9) / 10 : 1;
    for (size_t i = 0; i < p->n; i += stride) {
        char label[32];
        snprintf(label, sizeof label, "%zu", i + 1);
        plot_text(c, x_of(p, i), p->top + PANEL_HEIGHT + 18, ALIGN_CENTRE, label);
    }
}

static void draw_panel(cairo_t *c, struct panel *p)
{
    set_range(p);
    cairo_set_line_width(c, 1);
    draw_ticks(c, p);
    cairo_set_source_rgb(c, 0.2, 0.2, 0.2);
    plot_text(c, LEFT, p->top - 10, ALIGN_LEFT, p->title);
    cairo_set_source_rgb(c, p->rgb[0], p->rgb[1], p->rgb[2]);
    cairo_set_line_width(c, 1.5);
    for (size_t i = 0; i < p->n; i++)
        cairo_line_to(c, x_of(p, i), y_of(p, axis_value(p, p->values[i])));
    cairo_stroke(c);
    for (size_t i = 0; i < p->n; i++) {
        cairo_arc(c, x_of(p, i), y_of(p, axis_value(p, p->values[i])), p->n > 100 ? 1.5 : 3, 0,
                  6.283185307179586);
        cairo_fill(c);
    }
}

void plot_prepare(cairo_t *c)
{
    cairo_set_source_rgb(c, 1, 1, 1);
    cairo_paint(c);
    cairo_select_font_face(c, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
}

static void draw_plan(cairo_t *c, const void *what)
{
    const struct plan *plan = what;
    char title[256];
    plot_prepare(c);
    cairo_set_source_rgb(c, 0.1, 0.1, 0.1);
    cairo_set_font_size(c, 16);
    snprintf(title, sizeof title, "%s, %d steps, %zu calls of the U-Net", plan->scheduler,
             plan->n_steps, plan->n_calls);
    plot_text(c, LEFT, 30, ALIGN_LEFT, title);
    cairo_set_font_size(c, 12);
    /* Okabe and Ito's blue and vermilion: told apart by colour-blind readers too. */
    struct panel upper = {"timestep", plan->timesteps,  plan->n_calls, 70, false, 0,
                          0,          {0, 0.447, 0.698}};
    struct panel lower = {"sigma (logarithmic)", plan->sigmas, plan->n_calls, 360, true, 0, 0,
                          {0.835, 0.369, 0}};
    draw_panel(c, &upper);
    draw_panel(c, &lower);
}

static cairo_status_t draw_to(plot_drawer *draw, const void *what, int width, int height,
                              const char *temporary, bool svg)
{
    cairo_surface_t *surface = svg ? cairo_svg_surface_create(temporary, width, height)
                                   : cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height);
    cairo_t *c = cairo_create(surface);
    draw(c, what);
    cairo_status_t status = cairo_status(c);
    cairo_destroy(c);
    if (svg)
        cairo_surface_finish(surface);
    else if (status == CAIRO_STATUS_SUCCESS)
        status = cairo_surface_write_to_png(surface, temporary);
    if (status == CAIRO_STATUS_SUCCESS) status = cairo_surface_status(surface);
    cairo_surface_destroy(surface);
    return status;
}

/* link() refuses a name that is taken, rename() replaces it; both happen at once or not at all. */
bool plot_file(plot_drawer *draw, const void *what, int width, int height, const char *path,
               bool overwrite, struct dk_error *err)
{
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash - path) + 1 : 0;
    char *temporary = text_format("%.*s.darkroom-%ld.tmp", folder, path, (long)getpid());
    cairo_status_t status = draw_to(draw, what, width, height, temporary, is_svg(path));
    bool ok = status == CAIRO_STATUS_SUCCESS;
    if (!ok)
        say_fail(err, DK_ERROR_FILE, "%s: cannot write: %s", path, cairo_status_to_string(status));
    else if ((overwrite ? rename(temporary, path) : link(temporary, path)) != 0)
        ok = say_fail(err, DK_ERROR_FILE, "%s: cannot create: %s", path, strerror(errno));
    unlink(temporary);
    free(temporary);
    return ok;
}

bool plot_write(const struct plan *plan, const char *path, bool overwrite, struct dk_error *err)
{
    return plot_file(draw_plan, plan, WIDTH, HEIGHT, path, overwrite, err);
}
