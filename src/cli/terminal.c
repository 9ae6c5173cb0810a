/* terminal.c - what the terminal at stderr can do, and pictures drawn in it. */
/* SPDX-License-Identifier: MIT */
#include "terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct terminal terminal_at(FILE *stream)
{
    struct terminal t = {false, COLOURS_NONE, 80, 24};
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR"), *depth = getenv("COLORTERM");
    if (!isatty(fileno(stream)) || !term || !*term || strcmp(term, "dumb") == 0) return t;
    t.can_rewrite = true;
    if (!no_color || !*no_color)
        t.colours = depth && (strcmp(depth, "truecolor") == 0 || strcmp(depth, "24bit") == 0)
                        ? COLOURS_ALL
                        : COLOURS_256;
    struct winsize size;
    if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        t.n_columns = size.ws_col;
        if (size.ws_row > 0) t.n_rows = size.ws_row;
    }
    return t;
}

/* The mean of the pixels that cell (x, y) of a columns x rows grid covers. */
static void cell_colour(const struct dk_image *image, int x, int y, int columns, int rows,
                        int rgb[3])
{
    int x0 = (int)((long)x * image->width_px / columns),
        x1 = (int)((long)(x + 1) * image->width_px / columns);
    int y0 = (int)((long)y * image->height_px / rows),
        y1 = (int)((long)(y + 1) * image->height_px / rows);
    if (x1 <= x0) x1 = x0 + 1;
    if (y1 <= y0) y1 = y0 + 1;
    long sum[3] = {0, 0, 0}, n = (long)(x1 - x0) * (y1 - y0);
    for (int v = y0; v < y1; v++)
        for (int u = x0; u < x1; u++)
            for (int c = 0; c < 3; c++)
                sum[c] +=
                    image->rgb[3 * ((size_t)v * (size_t)image->width_px + (size_t)u) + (size_t)c];
    for (int c = 0; c < 3; c++) rgb[c] = (int)(sum[c] / n);
}

/* The colour cube of 256-colour terminals: 16 + 36 r + 6 g + b with levels 0, 95, 135, 175, 215,
 * 255. */
static int cube_level(int value)
{
    return value < 48 ? 0 : value < 115 ? 1 : (value - 35) / 40;
}

static void set_colour(FILE *stream, const struct terminal *terminal, int layer, const int rgb[3])
{
    if (terminal->colours == COLOURS_ALL)
        fprintf(stream, "\033[%d;2;%d;%d;%dm", layer, rgb[0], rgb[1], rgb[2]);
    else
        fprintf(stream, "\033[%d;5;%dm", layer,
                16 + 36 * cube_level(rgb[0]) + 6 * cube_level(rgb[1]) + cube_level(rgb[2]));
}

int terminal_draw(FILE *stream, const struct terminal *terminal, const struct dk_image *image)
{
    int most_columns = terminal->n_columns - 1 < 64 ? terminal->n_columns - 1 : 64;
    int most_rows = 2 * (terminal->n_rows - 3); /* in half characters */
    if (most_columns < 2 || most_rows < 2 || image->width_px < 1 || image->height_px < 1) return 0;
    double scale = 1;
    if (image->width_px > most_columns) scale = (double)most_columns / image->width_px;
    if (image->height_px * scale > most_rows) scale = (double)most_rows / image->height_px;
    int columns = (int)(image->width_px * scale), rows = (int)(image->height_px * scale) & ~1;
    if (columns < 1) columns = 1;
    if (rows < 2) rows = 2;
    for (int y = 0; y < rows; y += 2) {
        for (int x = 0; x < columns; x++) {
            int rgb[3];
            cell_colour(image, x, y, columns, rows, rgb);
            set_colour(stream, terminal, 38, rgb);
            cell_colour(image, x, y + 1, columns, rows, rgb);
            set_colour(stream, terminal, 48, rgb);
            fputs("\xE2\x96\x80", stream); /* U+2580, upper half block */
        }
        fputs("\033[0m\033[K\n", stream);
    }
    return rows / 2;
}
