/* canvas.c - lines and words drawn once, as pixels or as SVG. */
/* SPDX-License-Identifier: MIT */
#include "canvas.h"

#include "text.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *variable;
    int rgb[3];
} colours[] = {
    {"--c0", {0, 114, 178}},   {"--c1", {213, 94, 0}},       {"--c2", {0, 158, 115}},
    {"--c3", {204, 121, 167}}, {"--c4", {230, 159, 0}},      {"--c5", {86, 180, 233}},
    {"--ink", {30, 30, 30}},   {"--faint", {100, 100, 100}}, {"--grid", {222, 222, 222}},
};

/* "stroke", "fill": an attribute, or a style that follows the page's theme. */
static void put_colour(const struct canvas *canvas, const char *what, int colour)
{
    const int *rgb = colours[colour].rgb;
    if (canvas->themed)
        fprintf(canvas->svg, " style=\"%s:var(%s)\"", what, colours[colour].variable);
    else
        fprintf(canvas->svg, " %s=\"#%02x%02x%02x\"", what, (unsigned)rgb[0], (unsigned)rgb[1],
                (unsigned)rgb[2]);
}

static void set_colour(cairo_t *cr, int colour)
{
    const int *rgb = colours[colour].rgb;
    cairo_set_source_rgb(cr, rgb[0] / 255.0, rgb[1] / 255.0, rgb[2] / 255.0);
}

void canvas_line(struct canvas *canvas, const double *xy, size_t n_points, int colour, double width,
                 bool dashed)
{
    static const double dashes[] = {6, 4};
    if (canvas->cr) {
        set_colour(canvas->cr, colour);
        cairo_set_line_width(canvas->cr, width);
        cairo_set_dash(canvas->cr, dashes, dashed ? 2 : 0, 0);
        cairo_new_path(canvas->cr); /* words leave a current point behind */
        for (size_t i = 0; i < n_points; i++) cairo_line_to(canvas->cr, xy[2 * i], xy[2 * i + 1]);
        cairo_stroke(canvas->cr);
        cairo_set_dash(canvas->cr, dashes, 0, 0);
        return;
    }
    fputs("<polyline fill=\"none\"", canvas->svg);
    put_colour(canvas, "stroke", colour);
    fprintf(canvas->svg, " stroke-width=\"%g\"%s points=\"", width,
            dashed ? " stroke-dasharray=\"6 4\"" : "");
    for (size_t i = 0; i < n_points; i++)
        fprintf(canvas->svg, "%s%.1f,%.1f", i ? " " : "", xy[2 * i], xy[2 * i + 1]);
    fputs("\"/>\n", canvas->svg);
}

/* Corners around the origin; the circle has none. */
static const struct {
    int n;
    double xy[8];
} marks[N_MARKS] = {
    {0, {0}},
    {4, {-3.6, -3.6, 3.6, -3.6, 3.6, 3.6, -3.6, 3.6}},
    {3, {0, -4.8, 4.6, 3.4, -4.6, 3.4}},
    {4, {0, -5, 5, 0, 0, 5, -5, 0}},
    {3, {0, 4.8, 4.6, -3.4, -4.6, -3.4}},
};

void canvas_mark(struct canvas *canvas, double x, double y, int shape, int colour)
{
    const double *xy = marks[shape].xy;
    int n = marks[shape].n;
    if (canvas->cr) {
        set_colour(canvas->cr, colour);
        cairo_new_path(canvas->cr);
        if (n == 0) cairo_arc(canvas->cr, x, y, 4, 0, 6.283185307179586);
        for (int i = 0; i < n; i++) cairo_line_to(canvas->cr, x + xy[2 * i], y + xy[2 * i + 1]);
        cairo_fill(canvas->cr);
        return;
    }
    if (n == 0)
        fprintf(canvas->svg, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\"", x, y);
    else
        fputs("<polygon", canvas->svg);
    put_colour(canvas, "fill", colour);
    if (n > 0) fputs(" points=\"", canvas->svg);
    for (int i = 0; i < n; i++)
        fprintf(canvas->svg, "%s%.1f,%.1f", i ? " " : "", x + xy[2 * i], y + xy[2 * i + 1]);
    fputs(n > 0 ? "\"/>\n" : "/>\n", canvas->svg);
}

void canvas_escape(FILE *out, const char *text)
{
    for (; *text; text++) {
        const char *entity = *text == '&'   ? "&amp;"
                             : *text == '<' ? "&lt;"
                             : *text == '>' ? "&gt;"
                                            : "&quot;";
        if (strchr("&<>\"", *text))
            fputs(entity, out);
        else if ((unsigned char)*text >= ' ' || *text == '\n' || *text == '\t')
            fputc(*text, out); /* XML has no other control characters */
    }
}

void canvas_text(struct canvas *canvas, double x, double y, enum anchor anchor, double size,
                 int colour, const char *text)
{
    static const char *const anchors[] = {"start", "middle", "end"};
    if (canvas->svg) {
        fprintf(canvas->svg, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%g\" text-anchor=\"%s\"", x,
                y, size, anchors[anchor]);
        put_colour(canvas, "fill", colour);
        fputc('>', canvas->svg);
        canvas_escape(canvas->svg, text);
        fputs("</text>\n", canvas->svg);
        return;
    }
    PangoLayout *layout = pango_cairo_create_layout(canvas->cr);
    PangoFontDescription *font = pango_font_description_from_string("Sans");
    int width = 0;
    pango_font_description_set_absolute_size(font, size * PANGO_SCALE);
    pango_layout_set_font_description(layout, font);
    pango_layout_set_single_paragraph_mode(layout, TRUE);
    pango_layout_set_text(layout, text, -1);
    pango_layout_get_pixel_size(layout, &width, NULL);
    set_colour(canvas->cr, colour);
    cairo_move_to(canvas->cr,
                  x - (anchor == ANCHOR_START ? 0
                       : anchor == ANCHOR_END ? width
                                              : width / 2.0),
                  y - (double)pango_layout_get_baseline(layout) / PANGO_SCALE);
    pango_cairo_show_layout(canvas->cr, layout);
    pango_font_description_free(font);
    g_object_unref(layout);
}

/* ---- pictures ------------------------------------------------------------------------------ */

static uint32_t pixel_from(const uint8_t *rgb)
{
    return (uint32_t)rgb[0] << 16 | (uint32_t)rgb[1] << 8 | rgb[2];
}

void canvas_picture(cairo_t *cr, const struct dk_image *image, double x, double y, double width,
                    double height)
{
    int w = image->width_px, h = image->height_px;
    cairo_surface_t *surface = cairo_image_surface_create(CAIRO_FORMAT_RGB24, w, h);
    if (cairo_surface_status(surface) == CAIRO_STATUS_SUCCESS) {
        unsigned char *data = cairo_image_surface_get_data(surface);
        size_t stride = (size_t)cairo_image_surface_get_stride(surface);
        for (size_t v = 0; v < (size_t)h; v++)
            for (size_t u = 0; u < (size_t)w; u++) {
                uint32_t pixel = pixel_from(image->rgb + 3 * (v * (size_t)w + u));
                memcpy(data + v * stride + 4 * u, &pixel, sizeof pixel);
            }
        cairo_surface_mark_dirty(surface);
        double scale = fmin(width / w, height / h);
        if (scale > 1) scale = floor(scale);
        cairo_save(cr);
        cairo_translate(cr, x + floor((width - w * scale) / 2),
                        y + floor((height - h * scale) / 2));
        cairo_scale(cr, scale, scale);
        cairo_set_source_surface(cr, surface, 0, 0);
        cairo_pattern_set_filter(cairo_get_source(cr),
                                 scale >= 1 ? CAIRO_FILTER_NEAREST : CAIRO_FILTER_BEST);
        cairo_paint(cr);
        cairo_restore(cr);
    }
    cairo_surface_destroy(surface);
}

int canvas_words(cairo_t *cr, const char *text, const char *font, int n_lines, double width,
                 double grey, double x, double y)
{
    PangoLayout *layout = pango_cairo_create_layout(cr);
    PangoFontDescription *description = pango_font_description_from_string(font);
    int height = 0;
    pango_layout_set_font_description(layout, description);
    pango_layout_set_width(layout, (int)(width * PANGO_SCALE));
    pango_layout_set_wrap(layout, PANGO_WRAP_WORD_CHAR);
    pango_layout_set_height(layout, -n_lines);
    /* of one line the middle, since labels differ at their ends */
    pango_layout_set_ellipsize(layout, n_lines == 1 ? PANGO_ELLIPSIZE_MIDDLE : PANGO_ELLIPSIZE_END);
    pango_layout_set_single_paragraph_mode(layout, TRUE);
    pango_layout_set_text(layout, text, -1);
    cairo_set_source_rgb(cr, grey, grey, grey);
    cairo_move_to(cr, x, y);
    pango_cairo_show_layout(cr, layout);
    pango_layout_get_pixel_size(layout, NULL, &height);
    pango_font_description_free(description);
    g_object_unref(layout);
    return height;
}

struct dk_image canvas_image(cairo_surface_t *surface)
{
    cairo_surface_flush(surface);
    int w = cairo_image_surface_get_width(surface), h = cairo_image_surface_get_height(surface);
    size_t stride = (size_t)cairo_image_surface_get_stride(surface);
    const unsigned char *data = cairo_image_surface_get_data(surface);
    struct dk_image image = {w, h, text_alloc(3 * (size_t)w * (size_t)h)};
    for (size_t v = 0; v < (size_t)h; v++)
        for (size_t u = 0; u < (size_t)w; u++) {
            uint32_t pixel;
            memcpy(&pixel, data + v * stride + 4 * u, sizeof pixel);
            uint8_t *rgb = image.rgb + 3 * (v * (size_t)w + u);
            rgb[0] = (uint8_t)(pixel >> 16);
            rgb[1] = (uint8_t)(pixel >> 8);
            rgb[2] = (uint8_t)pixel;
        }
    return image;
}
