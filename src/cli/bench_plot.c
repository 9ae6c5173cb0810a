/* bench_plot.c - the roofline of a bench. */
/* SPDX-License-Identifier: MIT */
#include "bench.h"

#include "plot.h"

#include <math.h>
#include <stdio.h>

#define WIDTH  860
#define HEIGHT 560
#define LEFT   80.0
#define RIGHT  30.0
#define TOP    70.0
#define BOTTOM 60.0

/* Logarithms of the axes' ends: operations a byte, GFLOP/s. */
struct axes {
    double x_low, x_high, y_low, y_high;
};

static double x_of(const struct axes *a, double intensity)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * (log10(intensity) - a->x_low) / (a->x_high - a->x_low);
}

static double y_of(const struct axes *a, double gflops)
{
    return HEIGHT - BOTTOM -
           (HEIGHT - TOP - BOTTOM) * (log10(gflops) - a->y_low) / (a->y_high - a->y_low);
}

static bool is_point(const struct dk_cost *cost)
{
    return cost->flop > 0 && cost->bytes > 0 && cost->seconds > 0;
}

static double intensity(const struct dk_cost *cost)
{
    return cost->flop / cost->bytes;
}
static double gflops(const struct dk_cost *cost)
{
    return cost->flop / cost->seconds / 1e9;
}

static struct axes find_axes(const struct bench *bench)
{
    struct axes a = {0, 3, 0, 2};
    double peak = bench->machine.flops / 1e9;
    if (peak > 0) a.y_high = ceil(log10(4 * peak));
    for (int p = 0; p < BENCH_PHASES; p++)
        for (size_t i = 0; i < bench->phases[p].n_costs; i++) {
            const struct dk_cost *cost = &bench->phases[p].costs[i];
            if (!is_point(cost)) continue;
            a.x_low = fmin(a.x_low, floor(log10(intensity(cost))));
            a.x_high = fmax(a.x_high, ceil(log10(intensity(cost))));
            a.y_low = fmin(a.y_low, floor(log10(gflops(cost))));
            a.y_high = fmax(a.y_high, ceil(log10(gflops(cost))));
        }
    return a;
}

static void draw_grid(cairo_t *c, const struct axes *a)
{
    char label[32];
    cairo_set_line_width(c, 1);
    for (double x = a->x_low; x <= a->x_high; x++) {
        cairo_set_source_rgb(c, 0.88, 0.88, 0.88);
        cairo_move_to(c, x_of(a, pow(10, x)), TOP);
        cairo_line_to(c, x_of(a, pow(10, x)), HEIGHT - BOTTOM);
        cairo_stroke(c);
        cairo_set_source_rgb(c, 0.2, 0.2, 0.2);
        snprintf(label, sizeof label, "%g", pow(10, x));
        plot_text(c, x_of(a, pow(10, x)), HEIGHT - BOTTOM + 18, ALIGN_CENTRE, label);
    }
    for (double y = a->y_low; y <= a->y_high; y++) {
        cairo_set_source_rgb(c, 0.88, 0.88, 0.88);
        cairo_move_to(c, LEFT, y_of(a, pow(10, y)));
        cairo_line_to(c, WIDTH - RIGHT, y_of(a, pow(10, y)));
        cairo_stroke(c);
        cairo_set_source_rgb(c, 0.2, 0.2, 0.2);
        snprintf(label, sizeof label, "%g", pow(10, y));
        plot_text(c, LEFT - 8, y_of(a, pow(10, y)) + 4, ALIGN_RIGHT, label);
    }
    plot_text(c, LEFT, TOP - 10, ALIGN_LEFT, "GFLOP/s");
    plot_text(c, WIDTH - RIGHT, HEIGHT - 16, ALIGN_RIGHT, "operations a byte");
}

/* Memory bandwidth times intensity, up to the peak. */
static void draw_roof(cairo_t *c, const struct axes *a, const struct dk_machine *machine)
{
    double peak = machine->flops / 1e9, rate = machine->bytes_per_second / 1e9;
    if (!(peak > 0) || !(rate > 0)) return;
    double left = pow(10, a->x_low), lowest = pow(10, a->y_low), right = pow(10, a->x_high);
    if (left * rate < lowest) left = lowest / rate;
    cairo_set_source_rgb(c, 0.2, 0.2, 0.2);
    cairo_set_line_width(c, 2);
    cairo_move_to(c, x_of(a, left), y_of(a, fmin(peak, left * rate)));
    if (peak / rate > left) cairo_line_to(c, x_of(a, peak / rate), y_of(a, peak));
    cairo_line_to(c, x_of(a, right), y_of(a, peak));
    cairo_stroke(c);
    char label[64];
    snprintf(label, sizeof label, "%.0f GFLOP/s, %.1f GB/s", peak, rate);
    plot_text(c, WIDTH - RIGHT, y_of(a, peak) - 6, ALIGN_RIGHT, label);
}

/* Okabe and Ito's colours, told apart by colour-blind readers too;
 * the area is the share of time. */
static void draw_points(cairo_t *c, const struct axes *a, const struct bench *bench)
{
    static const double colours[BENCH_PHASES][3] = {
        {0, 0, 0}, {0, 0.447, 0.698}, {0.835, 0.369, 0}, {0, 0.62, 0.451}};
    for (int p = 0; p < BENCH_PHASES; p++)
        for (size_t i = 0; i < bench->phases[p].n_costs; i++) {
            const struct dk_cost *cost = &bench->phases[p].costs[i];
            if (!is_point(cost)) continue;
            char label[64];
            double x = x_of(a, intensity(cost)), y = y_of(a, gflops(cost));
            double radius = 3 + 14 * sqrt(fmin(1, cost->seconds / bench->mean_s));
            cairo_set_source_rgba(c, colours[p][0], colours[p][1], colours[p][2], 0.75);
            cairo_arc(c, x, y, radius, 0, 6.283185307179586);
            cairo_fill(c);
            snprintf(label, sizeof label, "%s %s", bench_phase_names[p], cost->kind);
            bool is_right = x > WIDTH - 180;
            plot_text(c, is_right ? x - radius - 3 : x + radius + 3, y + 4,
                      is_right ? ALIGN_RIGHT : ALIGN_LEFT, label);
        }
}

static void draw(cairo_t *c, const void *what)
{
    const struct bench *bench = what;
    struct axes axes = find_axes(bench);
    char title[256];
    plot_prepare(c);
    cairo_set_source_rgb(c, 0.1, 0.1, 0.1);
    cairo_set_font_size(c, 16);
    snprintf(title, sizeof title, "%s, %dx%d, %d steps, %d threads: %.2f s", bench->model_name,
             bench->width_px, bench->height_px, bench->n_steps, bench->machine.n_threads,
             bench->mean_s);
    plot_text(c, LEFT, 30, ALIGN_LEFT, title);
    cairo_set_font_size(c, 12);
    draw_grid(c, &axes);
    draw_roof(c, &axes, &bench->machine);
    draw_points(c, &axes, bench);
}

bool bench_plot(const struct bench *bench, const char *path, bool overwrite, struct dk_error *err)
{
    return plot_file(draw, bench, WIDTH, HEIGHT, path, overwrite, err);
}
