/* arguments.c - a command line, read with the table of options. */
/* SPDX-License-Identifier: MIT */
#include "arguments.h"

#include "say.h"
#include "text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STDIN_BYTES (1024 * 1024)

struct reading {
    int argc, at; /* at: the argument being read */
    char **argv;
    enum command command;
    const char *command_name;
    struct request *request;
    struct arguments *arguments;
    struct dk_error *err;
};

static bool unknown(struct reading *r, const char *name)
{
    const char *near = option_nearest(name, r->command);
    if (near)
        return say_fail(r->err, DK_ERROR_ARGUMENT, "--%.100s: unknown option; did you mean --%s?",
                        name, near);
    return say_fail(r->err, DK_ERROR_ARGUMENT, "--%.100s: unknown option; see darkroom help %s",
                    name, r->command_name);
}

static bool known_here(struct reading *r, const struct option *option)
{
    if (option->commands & (unsigned)r->command) return true;
    return say_fail(r->err, DK_ERROR_ARGUMENT,
                    "--%s: not an option of darkroom %s; see darkroom help %s", option->name,
                    r->command_name, r->command_name);
}

/* The next argument as the value, unless it is itself one of our long options: "--negative --steps
 * 5" is a slip. */
static const char *next_value(struct reading *r, const struct option *option)
{
    const char *next = r->at + 1 < r->argc ? r->argv[r->at + 1] : NULL;
    if (next && strncmp(next, "--", 2) == 0 && option_find(next + 2, strcspn(next + 2, "="))) {
        say_fail(
            r->err, DK_ERROR_ARGUMENT,
            "--%s: needs a value, found the option %.100s; if that is the value, write --%s=%.100s",
            option->name, next, option->name, next);
        return NULL;
    }
    if (!next) {
        say_fail(r->err, DK_ERROR_ARGUMENT, "--%s: needs a value: --%s %s", option->name,
                 option->name, option->argument);
        return NULL;
    }
    r->at++;
    return next;
}

/* compare takes lists where other commands take one value, and reads them itself. */
static bool set(struct reading *r, const struct option *option, const char *value)
{
    bool is_list = r->command == COMMAND_COMPARE && option->use == USE_RECORDED && option_takes_value(option);
    if (!is_list) return option_set(r->request, option, value, r->err);
    r->arguments->listed[r->arguments->n_listed++] = (struct listed){option, value};
    return true;
}

static bool read_long(struct reading *r)
{
    const char *name = r->argv[r->at] + 2;
    size_t n = strcspn(name, "=");
    const char *value = name[n] ? name + n + 1 : NULL;
    const struct option *option = option_find(name, n);
    if (!option) {
        char *copy = text_copy_n(name, n);
        unknown(r, copy);
        free(copy);
        return false;
    }
    if (!known_here(r, option)) return false;
    if (!value && option_takes_value(option) && !(value = next_value(r, option))) return false;
    return set(r, option, value);
}

static bool read_short(struct reading *r)
{
    const char *text = r->argv[r->at] + 1;
    const struct option *option = option_by_letter(*text);
    bool trailing = text[1] != '\0';
    if (!option || (trailing && !option_takes_value(option))) {
        const char *near = option_nearest(text, r->command);
        return say_fail(r->err, DK_ERROR_ARGUMENT,
                        "-%.100s: unknown option%s%s; words that start with a dash go behind --",
                        text, near ? "; did you mean --" : "", near ? near : "");
    }
    if (!known_here(r, option)) return false;
    const char *value = trailing ? text + 1 : NULL;
    if (!value && option_takes_value(option) && !(value = next_value(r, option))) return false;
    return set(r, option, value);
}

bool arguments_read(int argc, char **argv, enum command command, const char *command_name,
                    struct request *request, struct arguments *arguments, struct dk_error *err)
{
    struct reading r = {argc, 0, argv, command, command_name, request, arguments, err};
    bool options_ended = false;
    arguments->words = text_alloc((size_t)(argc + 1) * sizeof *arguments->words);
    arguments->n_words = 0;
    arguments->listed = text_alloc((size_t)(argc + 1) * sizeof *arguments->listed);
    arguments->n_listed = 0;
    for (; r.at < argc; r.at++) {
        const char *text = argv[r.at];
        if (options_ended || text[0] != '-' || !text[1])
            arguments->words[arguments->n_words++] = text;
        else if (strcmp(text, "--") == 0)
            options_ended = true;
        else if (!(text[1] == '-' ? read_long(&r) : read_short(&r)))
            return false;
    }
    return true;
}

void arguments_free(struct arguments *arguments)
{
    free(arguments->words);
    free(arguments->listed);
    arguments->words = NULL;
    arguments->listed = NULL;
}

/* A prompt from a pipe ends in a line feed that nobody meant; a byte order mark in front is dropped
 * too. */
static char *read_stdin(struct dk_error *err)
{
    char *text = text_alloc(MAX_STDIN_BYTES + 2);
    errno = 0;
    size_t n = fread(text, 1, MAX_STDIN_BYTES + 1, stdin);
    if (ferror(stdin))
        say_fail(err, DK_ERROR_FILE, "standard input: cannot read: %s", strerror(errno));
    else if (n > MAX_STDIN_BYTES)
        say_fail(err, DK_ERROR_ARGUMENT, "standard input: more than %d bytes; a prompt is shorter",
                 MAX_STDIN_BYTES);
    else if (memchr(text, 0, n))
        say_fail(err, DK_ERROR_ARGUMENT,
                 "standard input: byte %zu is NUL, expected text; remove it",
                 (size_t)((char *)memchr(text, 0, n) - text) + 1);
    else {
        if (n > 0 && text[n - 1] == '\n') text[--n] = '\0';
        if (n > 0 && text[n - 1] == '\r') text[--n] = '\0';
        if (n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) memmove(text, text + 3, n - 2);
        return text;
    }
    free(text);
    return NULL;
}

char *arguments_text(const struct arguments *arguments, struct dk_error *err)
{
    if (arguments->n_words == 1 && strcmp(arguments->words[0], "-") == 0) return read_stdin(err);
    size_t n = 1;
    for (size_t i = 0; i < arguments->n_words; i++) n += strlen(arguments->words[i]) + 1;
    char *text = text_alloc(n), *end = text;
    for (size_t i = 0; i < arguments->n_words; i++) {
        if (i > 0) *end++ = ' ';
        size_t length = strlen(arguments->words[i]);
        memcpy(end, arguments->words[i], length);
        end += length;
    }
    return text;
}
