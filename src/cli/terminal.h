/* terminal.h - what the terminal at stderr can do, and pictures drawn in it. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include "darkroom.h"

#include <stdio.h>

enum terminal_colours { COLOURS_NONE, COLOURS_256, COLOURS_ALL };

struct terminal {
    bool can_rewrite; /* a terminal that understands escape sequences: the line can be written again
                       */
    enum terminal_colours colours;
    int n_columns, n_rows;
};

/* Looks at the stream, TERM, NO_COLOR (no-color.org: any value that is not empty) and COLORTERM. */
struct terminal terminal_at(FILE *stream);

/*
 * Draws the picture with half blocks, two pixels a character, made smaller where it would not fit.
 * Returns the number of lines it took, each ended by a line feed.
 */
int terminal_draw(FILE *stream, const struct terminal *terminal, const struct dk_image *image);

#endif
