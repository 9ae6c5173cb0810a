/* options.h - one table of options; everything that takes or shows one is derived from it. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

/*
 *   argv, a line of a job file  ─> option_set      ─┐                  ┌─> option_get ─> JSON, PNG
 *   a JSON object, a PNG record ─> option_set_json ─┴> struct request ─┴─> the library
 *
 * A row says what an option is called, which values it takes, which commands know it and where its
 * value is kept. --help, "did you mean", shell completions, job files and metadata read the same
 * rows. To add an option, add a field to struct request (or use one of the library's) and a row to
 * options.c.
 */

#include "darkroom.h"

#include <jansson.h>

enum command {
    COMMAND_RENDER = 1,
    COMMAND_INFO = 2,
    COMMAND_SCHEDULERS = 4,
    COMMAND_SHOW = 8, /* "schedulers show" */
    COMMAND_MODELS = 16,
    COMMAND_TOKENIZE = 32,
    COMMAND_BATCH = 64,
    COMMAND_MERGE = 128, /* "batch merge" */
    COMMAND_SHEET = 256,
    COMMAND_JOB = 512, /* no command: a line of a file of prompts */
    COMMAND_CONVERT = 1024,
    COMMAND_BENCH = 2048,
    COMMAND_COMPARE = 4096,
    COMMAND_ALL = 511 + 1024 + 2048 + 4096
};

enum option_kind {
    OPTION_FLAG,   /* bool, no value: sets true */
    OPTION_UNFLAG, /* bool, no value: sets false (--no-...) */
    OPTION_INTEGER,
    OPTION_SEED,   /* uint64_t, or "random" */
    OPTION_NUMBER, /* double, finite; NAN stands for "not given" */
    OPTION_TEXT,   /* UTF-8; what is not becomes U+FFFD */
    OPTION_LINES,  /* the same, and may be repeated: all values, with line feeds between */
    OPTION_PATH,   /* bytes as they come */
    OPTION_CHOICE, /* one of the words in choices */
    OPTION_SIZE,   /* two ints, WIDTHxHEIGHT */
    OPTION_BYTES   /* size_t: 1.5G, 800M, 64K or bytes */
};

enum option_group {
    GROUP_PICTURE,
    GROUP_VARIATION,
    GROUP_SAMPLING,
    GROUP_MODEL,
    GROUP_OUTPUT,
    GROUP_RUN,
    N_GROUPS
};

enum option_use {
    USE_NONE = 0,
    USE_REPORTED = 1, /* is a setting: stands in --json */
    USE_RECORDED = 3  /* decides the picture's bytes: stands in --json and in the PNG */
};

struct option {
    const char *name;    /* without the dashes; also the key in JSON */
    char letter;         /* short form or 0 */
    const char *aliases; /* other accepted names, comma-separated, or NULL */
    enum option_kind kind;
    enum option_group group;
    unsigned commands; /* of enum command */
    enum option_use use;
    size_t offset; /* of the value in struct request */
    double low, high;
    const char *argument; /* as --help shows it */
    const char *choices;  /* "a|b" */
    const char *help;
};

struct request; /* what one command line, job or record asks for */

const struct option *option_at(size_t index); /* NULL after the last */
const struct option *option_find(const char *name, size_t name_bytes);
const struct option *option_by_letter(char letter);
/* The nearest name that the commands know, or NULL. */
const char *option_nearest(const char *name, unsigned commands);
bool option_takes_value(const struct option *option);

/* What only a batch knows; each is a row of the table. */
struct batch_options {
    const char *format, *seeds, *matrix, *wildcards, *name, *on_error, *shard;
    int group, stale_after_s;
    bool iterate_seed, combinatorial, no_dynamic, keep_going, verify, no_sheet;
};

/* What only compare knows. Its settings are lists, kept as typed in struct arguments. */
struct compare_options {
    const char *rows, *columns, *pages, *file, *reference, *targets, *clip;
    double tolerance;
    bool add;
};

#define MAX_OPTIONS 96
struct kept;
struct request {
    struct dk_settings settings;
    struct dk_model_options model_options;
    const char *model;  /* as typed; NULL: the default model */
    const char *output; /* a file, a folder or a template; NULL: darkroom-{seed}.png */
    const char *from;
    const char *plot;
    const char *dtype; /* of a converted model */
    int n_repeats;     /* of a bench */
    const char *template; /* the prompt before its {a|b} were chosen; NULL: there were none */
    struct batch_options batch;
    struct compare_options compare;
    int count;
    bool random_seed; /* the seed is to be drawn */
    bool dry_run, json, quiet, force, no_metadata, preview, help;
    size_t n_replaced_bytes; /* in texts that were not UTF-8; the caller says so */
    bool given[MAX_OPTIONS]; /* by position in the table: set by hand, not by default */
    struct kept *kept;       /* copies of strings, freed with the request */
};
void request_init(struct request *request);
void request_free(struct request *request);
/* Keeps a copy of the text as long as the request lives. */
const char *request_keep(struct request *request, const char *text);
bool request_given(const struct request *request, const char *name);

/*
 * Stores a value given as text. value is NULL for flags (or "true"/"false"). The sentence in err
 * starts with "--name". Text is copied, so value may go away.
 */
bool option_set(struct request *request, const struct option *option, const char *value,
                struct dk_error *err);
/* Stores a JSON value; null puts the default back. Strings are read as option_set reads them. */
bool option_set_json(struct request *request, const struct option *option, const json_t *value,
                     struct dk_error *err);
/* The value as JSON; null where the option was left open. A new reference. */
json_t *option_get(const struct request *request, const struct option *option);

/* Copies all options with the given use (USE_REPORTED or USE_RECORDED) into object, under their
 * names. */
void options_to_json(const struct request *request, enum option_use use, json_t *object);

#endif
