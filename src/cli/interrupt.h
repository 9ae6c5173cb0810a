/* interrupt.h - Ctrl-C: the first asks the run to stop, the second ends the program. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H

#include <stdbool.h>

/*
 * SIGINT, SIGTERM and SIGHUP set the flag that the library looks at; a second one ends the program
 * at once with status 130, but never while a file is being written: that takes milliseconds, and
 * the temporary file must not stay.
 */
void interrupt_install(void);
const volatile int *interrupt_flag(void);
bool interrupt_seen(void);
/* Between hold(true) and hold(false) a second signal waits; after hold(false) it takes effect. */
void interrupt_hold(bool writing);
/* A file to remove when the program ends by a second signal; NULL for none. The name is copied. */
void interrupt_remove(const char *path);
/* The same for what the library has not yet given its name in a folder (".darkroom-PID-N.tmp"). */
void interrupt_remove_temporaries(const char *folder);
/* Removes them and ends the program at once. For signal handlers. */
void interrupt_leave(int status);

#endif
