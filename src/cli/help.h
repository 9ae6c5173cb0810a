/* help.h - help pages, version and shell completions, from the tables of commands and options. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include "commands.h"

/* Each prints and returns the exit code. */
int help_short(void); /* on stderr: no arguments were given */
int help_all(void);
int help_command(const struct command_row *command);
int help_words(int argc, char **argv); /* darkroom help [COMMAND] */
int help_version(void);
int help_completions(int argc, char **argv); /* darkroom completions bash|zsh|fish */

#endif
