/* say.h - how the program speaks: sentences on stderr, results on stdout, exit codes. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_SAY_H
#define CLI_SAY_H

#include "darkroom.h"

enum exit_code {
    EXIT_DONE = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_PARTLY = 3, /* some of the pictures asked for were made */
    EXIT_INTERRUPTED = 130
};

/* Fills err unless it holds a failure already, and returns false, as the library's functions do. */
bool say_fail(struct dk_error *err, enum dk_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "darkroom: ..." on stderr, one line, control characters made visible. */
void say_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void say_warning(const char *sentence);
void say_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints the failure and returns the exit code that belongs to it. */
int say_failure(const struct dk_error *err);
int say_exit_code(const struct dk_error *err);

/* False (and a sentence) when something printed on standard output could not be written. */
bool say_flush(void);
/* The same at the end of the program, where a reader that is gone needs no sentence. */
bool say_all(void);

#endif
