/* canvas.h - lines and words drawn once, as pixels or as SVG. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_CANVAS_H
#define CLI_CANVAS_H

#include "darkroom.h"

#include <pango/pangocairo.h>
#include <stdio.h>

/*
 * Colours are numbers: 0 to N_SERIES_COLOURS - 1 are for lines of a chart, chosen to be told apart
 * with any colour vision (Okabe and Ito 2008, without black and yellow), then ink, faint ink and
 * grid lines. In a themed SVG they are the style sheet's --c0 ... --ink, --faint, --grid.
 */
#define N_SERIES_COLOURS 6
enum canvas_colour { COLOUR_INK = N_SERIES_COLOURS, COLOUR_FAINT, COLOUR_GRID };

struct canvas {
    cairo_t *cr; /* one of the two */
    FILE *svg;
    bool themed;
};

enum anchor { ANCHOR_START, ANCHOR_MIDDLE, ANCHOR_END };

void canvas_line(struct canvas *canvas, const double *xy, size_t n_points, int colour, double width,
                 bool dashed);
/* Shapes: circle, square, triangle, diamond, triangle on its tip. */
#define N_MARKS 5
void canvas_mark(struct canvas *canvas, double x, double y, int shape, int colour);
/* y is the base line. */
void canvas_text(struct canvas *canvas, double x, double y, enum anchor anchor, double size,
                 int colour, const char *text);

/* ---- pictures ------------------------------------------------------------------------------ */

/*
 * Draws the picture into a box, in its middle; small ones grow by whole factors and keep their
 * pixels sharp.
 */
void canvas_picture(cairo_t *cr, const struct dk_image *image, double x, double y, double width,
                    double height);
/* Words on at most n_lines lines, cut with dots; returns their height. font as Pango names it. */
int canvas_words(cairo_t *cr, const char *text, const char *font, int n_lines, double width,
                 double grey, double x, double y);
/* The surface as a picture, to be freed. */
struct dk_image canvas_image(cairo_surface_t *surface);

/* Text with what HTML and XML take for markup replaced. */
void canvas_escape(FILE *out, const char *text);

#endif
