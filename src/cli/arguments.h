/* arguments.h - a command line, read with the table of options. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_ARGUMENTS_H
#define CLI_ARGUMENTS_H

#include "options.h"

/*
 * Accepted: --name value, --name=value, -m value, -mvalue, flags without a value; "--" ends the
 * options; "-" alone is a word. Options and words may be mixed, and of an option given twice the
 * last one counts.
 */
struct listed {
    const struct option *option;
    const char *value;
};
struct arguments {
    const char **words; /* [n_words] what is not an option, pointing into argv */
    size_t n_words;
    struct listed *listed; /* [n_listed] settings of compare, which may have several values each */
    size_t n_listed;
};

/* argv starts behind the command's name.
 * False with a sentence for what the command does not know. */
bool arguments_read(int argc, char **argv, enum command command, const char *command_name,
                    struct request *request, struct arguments *arguments, struct dk_error *err);
void arguments_free(struct arguments *arguments);

/* The words joined by spaces, a new string; "-" alone means standard input (at most 1 MiB of text
 * without NUL). */
char *arguments_text(const struct arguments *arguments, struct dk_error *err);

#endif
