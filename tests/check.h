/* check.h - the few lines every test program shares. */
/* SPDX-License-Identifier: MIT */
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H

/*
 * A test program calls CHECK many times and returns check_end(). Each prints "name: N passed, N failed"; the runner
 * (tests/run.sh) adds them up and prints the last line "N passed, N failed".
 */

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

static int check_passed, check_failed;

#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (condition) {                                                                                               \
            check_passed++;                                                                                            \
        } else {                                                                                                       \
            check_failed++;                                                                                            \
            printf("%s:%d: failed: %s: ", __FILE__, __LINE__, #condition);                                             \
            printf(__VA_ARGS__);                                                                                       \
            printf("\n");                                                                                              \
        }                                                                                                              \
    } while (0)

/* Largest absolute difference; NaN anywhere counts as infinite. */
static inline double check_distance(const float *a, const float *b, size_t n)
{
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= worst)) worst = isnan(d) ? INFINITY : d;
    }
    return worst;
}

static inline int check_end(const char *name)
{
    printf("%s: %d passed, %d failed\n", name, check_passed, check_failed);
    return check_failed != 0;
}

#endif
