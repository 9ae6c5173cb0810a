/* scratch.h - a folder of a test's own inside the build folder. */
/* SPDX-License-Identifier: MIT */
#ifndef TESTS_SCRATCH_H
#define TESTS_SCRATCH_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static char folder[512];

struct path {
    char s[1024];
};

/* The path of a file in the folder. */
static inline struct path in(const char *name)
{
    struct path p;
    snprintf(p.s, sizeof p.s, "%s/%s", folder, name);
    return p;
}

static inline bool scratch_close(void)
{
    char command[1200];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) == 0;
}

/* Makes the folder BUILD/tests/NAME.tmp, empty. */
static inline bool scratch_open(const char *name)
{
    const char *build = getenv("BUILD");
    char command[1200];
    snprintf(folder, sizeof folder, "%s/tests/%s.tmp", build ? build : "build", name);
    snprintf(command, sizeof command, "mkdir -p '%s'", folder);
    return scratch_close() && system(command) == 0;
}

#endif
