/* interrupt.c - Ctrl-C: the first asks the run to stop, the second ends the program. */
/* SPDX-License-Identifier: MIT */
#include "interrupt.h"

#include "say.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The only mutable globals of the program: a signal handler can reach nothing else. */
static volatile int n_signals;
static volatile sig_atomic_t writing_now;
static volatile sig_atomic_t has_leftover;
static char leftover[PATH_MAX];

static volatile sig_atomic_t has_temporaries;
static char temporary[PATH_MAX + 64];
static size_t temporary_end; /* behind ".darkroom-PID-" */

void interrupt_leave(int status)
{
    if (has_leftover) unlink(leftover);
    for (char digit = '0'; has_temporaries && digit <= '9'; digit++) {
        temporary[temporary_end] = digit;
        unlink(temporary);
    }
    _exit(status);
}

static void on_signal(int number)
{
    (void)number;
    if (n_signals < 2) n_signals = n_signals + 1;
    if (n_signals > 1 && !writing_now) interrupt_leave(EXIT_INTERRUPTED);
}

void interrupt_install(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (int i = 0; i < 3; i++) {
        /* nohup is respected; SIGINT is not inherited as ignored, so that "program & kill -INT $!"
         * works in scripts. */
        struct sigaction before;
        if (numbers[i] == SIGHUP && sigaction(SIGHUP, NULL, &before) == 0 &&
            before.sa_handler == SIG_IGN)
            continue;
        sigaction(numbers[i], &action, NULL);
    }
}

const volatile int *interrupt_flag(void)
{
    return &n_signals;
}
bool interrupt_seen(void)
{
    return n_signals > 0;
}

void interrupt_hold(bool writing)
{
    writing_now = writing;
    if (!writing && n_signals > 1) interrupt_leave(EXIT_INTERRUPTED);
}

void interrupt_remove(const char *path)
{
    has_leftover = 0;
    if (path && strlen(path) < sizeof leftover) {
        snprintf(leftover, sizeof leftover, "%s", path);
        has_leftover = 1;
    }
}

void interrupt_remove_temporaries(const char *folder)
{
    has_temporaries = 0;
    if (!folder || strlen(folder) >= PATH_MAX) return;
    temporary_end =
        (size_t)snprintf(temporary, sizeof temporary, "%s/.darkroom-%ld-", folder, (long)getpid());
    strcpy(temporary + temporary_end, "0.tmp");
    has_temporaries = 1;
}
