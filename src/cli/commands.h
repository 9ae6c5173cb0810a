/* commands.h - the commands of darkroom: one row each. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "arguments.h"

/*
 * A command gets the request read from its arguments, and its words; it returns the exit code.
 * "schedulers show" and "batch merge" are rows of their own with a blank in the name.
 */
struct command_row {
    const char *name;
    enum command bit;
    int (*run)(struct request *request, struct arguments *arguments, int argc, char **argv);
    const char *usage;
    const char *summary;
    const char *text; /* more for its help page, or NULL */
};
const struct command_row *command_at(size_t index); /* NULL after the last */
const struct command_row *command_find(const char *name);
const char *command_nearest(const char *word);

/* argv is what request and arguments were read from:
 * render reads it again over a picture's record. */
int render_run(struct request *request, struct arguments *arguments, int argc, char **argv);
int info_run(struct request *request, struct arguments *arguments, int argc, char **argv);
int schedulers_run(struct request *request, struct arguments *arguments, int argc, char **argv);
int schedulers_show_run(struct request *request, struct arguments *arguments, int argc,
                        char **argv);
int models_run(struct request *request, struct arguments *arguments, int argc, char **argv);
int batch_run(struct request *request, struct arguments *arguments, int argc, char **argv);
int merge_run(struct request *request, struct arguments *arguments, int argc, char **argv);
int sheet_run(struct request *request, struct arguments *arguments, int argc, char **argv);
int compare_run(struct request *request, struct arguments *arguments, int argc, char **argv);
int bench_run(struct request *request, struct arguments *arguments, int argc, char **argv);
int convert_run(struct request *request, struct arguments *arguments, int argc, char **argv);
int tokenize_run(struct request *request, struct arguments *arguments, int argc, char **argv);

/* The model of the request (or the default one), opened with its options; *path is to be freed.
 * NULL on failure. */
struct dk_model *model_open(struct request *request, char **path, struct dk_error *err);

#endif
