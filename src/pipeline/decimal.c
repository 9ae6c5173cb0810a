/* decimal.c - numbers in prompts, whatever the locale. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/decimal.h"

#include <math.h>

const char *decimal_read(const char *text, const char *limit, double *value)
{
    double digits = 0, scale = 1;
    int n_dots = 0, n_digits = 0;
    for (; text < limit && ((*text >= '0' && *text <= '9') || *text == '.'); text++) {
        if (*text == '.') {
            n_dots++;
            continue;
        }
        if (n_digits < 1000) n_digits++;
        if (n_dots && scale >= 1e15) continue; /* beyond double's precision */
        digits = fmin(10 * digits + (*text - '0'), 1e30);
        if (n_dots) scale *= 10;
    }
    *value = n_dots > 1 || !n_digits ? (double)NAN : digits / scale;
    return text;
}
