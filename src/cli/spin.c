/* spin.c - how long an idle thread spins before it sleeps. */
/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

/*
 * GCC's OpenMP lets a thread that has finished its share spin for milliseconds. On a machine with
 * other work that takes the processor from the very thread it waits for: a picture of 0.4 s took 10
 * to 20 s beside busy neighbours, and 1 s with the short spin set here.
 *
 * OpenMP reads its environment in a constructor. It is linked statically into the program (see the
 * Makefile), so that a constructor of the program can come first. What the user has set stays.
 */
__attribute__((constructor(101))) static void limit_spinning(void)
{
    if (!getenv("OMP_WAIT_POLICY")) setenv("GOMP_SPINCOUNT", "1000", 0);
}
