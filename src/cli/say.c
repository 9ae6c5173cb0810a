/* say.c - how the program speaks: sentences on stderr, results on stdout, exit codes. */
/* SPDX-License-Identifier: MIT */
#include "say.h"

#include "text.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool say_fail(struct dk_error *err, enum dk_code code, const char *format, ...)
{
    if (err && err->code == DK_OK) {
        err->code = code;
        va_list list;
        va_start(list, format);
        vsnprintf(err->message, sizeof err->message, format, list);
        va_end(list);
    }
    return false;
}

static void say(const char *kind, const char *sentence)
{
    fprintf(stderr, "darkroom: %s", kind);
    text_print(stderr, sentence);
    fputc('\n', stderr);
}

static void say_list(const char *kind, const char *format, va_list list)
{
    char sentence[2048];
    vsnprintf(sentence, sizeof sentence, format, list);
    say(kind, sentence);
}

void say_error(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say_list("", format, list);
    va_end(list);
}

void say_note(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say_list("note: ", format, list);
    va_end(list);
}

void say_warning(const char *sentence)
{
    say("warning: ", sentence);
}

int say_exit_code(const struct dk_error *err)
{
    switch (err->code) {
    case DK_OK:
        return EXIT_DONE;
    case DK_ERROR_ARGUMENT:
        return EXIT_USAGE;
    case DK_ERROR_CANCELLED:
        return EXIT_INTERRUPTED;
    default:
        return EXIT_FAILED;
    }
}

int say_failure(const struct dk_error *err)
{
    say("", err->message);
    return say_exit_code(err);
}

/* Of a pipe: as head does when it has seen enough. */
static bool reader_is_gone(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&out, 1, 0) == 1 && out.revents & POLLERR;
}

static bool flush(bool may_be_gone)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return true;
    int why = errno;
    if (!may_be_gone || !reader_is_gone())
        say_error("standard output: cannot write: %s",
                  why ? strerror(why) : "an earlier write failed");
    return false;
}

bool say_flush(void)
{
    return flush(false);
}

bool say_all(void)
{
    return flush(true);
}
