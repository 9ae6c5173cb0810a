/* main.c - which command is meant, and what it answers when none is. */
/* SPDX-License-Identifier: MIT */
#include "commands.h"
#include "help.h"
#include "lost_file.h"
#include "say.h"
#include "text.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* clang-format off */
static const struct command_row commands[] = {
    {"render", COMMAND_RENDER, render_run, "darkroom [render] PROMPT... [OPTIONS]",
     "make pictures from a text",
     "The prompt is all words that are no options; - reads it from standard input. The word\n"
     "render is needed only before a prompt that begins with the name of a command. The name\n"
     "of each picture goes to standard output, everything else to standard error.\n"},
    {"info", COMMAND_INFO, info_run, "darkroom info FILE|MODEL [OPTIONS]",
     "tell how a picture was made, or what a model is",
     NULL},
    {"schedulers", COMMAND_SCHEDULERS, schedulers_run, "darkroom schedulers [--json]",
     "list the schedulers",
     NULL},
    {"schedulers show", COMMAND_SHOW, schedulers_show_run, "darkroom schedulers show NAME --steps N [OPTIONS]",
     "print or plot the timesteps and sigmas a scheduler visits",
     NULL},
    {"models", COMMAND_MODELS, models_run, "darkroom models [--json]",
     "list the models found",
     NULL},
    {"batch", COMMAND_BATCH, batch_run, "darkroom batch FILE|- -o FOLDER [OPTIONS]",
     "make a picture for every line of a file",
     "FILE holds one prompt a line, with options behind it where wanted (a cat --steps 8), JSON\n"
     "objects, or CSV with a header; - reads lines from standard input as they come. Options here\n"
     "are the defaults of every line. Run again, it makes only what is missing, changed or damaged;\n"
     "several processes and machines may work on one folder. See man darkroom and docs/batch.md.\n"},
    {"batch merge", COMMAND_MERGE, merge_run, "darkroom batch merge FOLDER... -o FOLDER",
     "join the pictures and manifests of several batch folders",
     NULL},
    {"compare", COMMAND_COMPARE, compare_run, "darkroom compare PROMPT... -o FOLDER [OPTIONS]",
     "measure how many steps of which scheduler are enough",
     "Every word is a prompt (quote it). Every setting may have several values (--steps 1,2,4 or\n"
     "--seeds 1..8, with ; where a value has commas, or the option repeated); a picture is made for\n"
     "each combination and measured against the converged solution of the same problem. Run again,\n"
     "it makes only what is missing. See man darkroom and docs/compare.md.\n"},
    {"sheet", COMMAND_SHEET, sheet_run, "darkroom sheet FOLDER",
     "make a contact sheet of a batch folder: index.html and contact.png",
     NULL},
    {"convert", COMMAND_CONVERT, convert_run, "darkroom convert MODEL FILE [--dtype TYPE]",
     "write a model as one file: safetensors or GGUF",
     "FILE ends in .safetensors or .gguf. MODEL is anything that -m takes.\n"},
    {"bench", COMMAND_BENCH, bench_run, "darkroom bench [PROMPT...] [OPTIONS]",
     "measure a model on this machine: time, arithmetic and share of what the machine can do",
     NULL},
    {"tokenize", COMMAND_TOKENIZE, tokenize_run, "darkroom tokenize TEXT [-m MODEL] [--json]",
     "print the token ids of a text, start and end included",
     NULL},
};
/* clang-format on */

#define N_COMMANDS (sizeof commands / sizeof commands[0])

const struct command_row *command_at(size_t index)
{
    return index < N_COMMANDS ? &commands[index] : NULL;
}

const struct command_row *command_find(const char *name)
{
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

const char *command_nearest(const char *word)
{
    const char *names[N_COMMANDS + 3];
    size_t n = 0;
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (!strchr(commands[i].name, ' ')) names[n++] = commands[i].name;
    names[n++] = "help";
    names[n++] = "version";
    names[n] = NULL;
    return text_nearest(word, names);
}

/*
 * Words are a prompt unless the first is a command's name. A slip such as "darkroom rendr" must not
 * cost a picture of "rendr": a first word without blanks that is nearly a command is refused when
 * it stands alone, or before words that were quoted ("darkroom rendr 'a red house'"). "darkroom
 * tender cats" is a prompt, and so are words that differ from a short command in a letter: "sheep"
 * is no slip for "sheet", but "shete" is.
 */
static bool is_slip(const char *word, const char *name)
{
    size_t n = strlen(name), counts[256] = {0};
    if (n > 5 || strlen(word) != n) return true;
    for (size_t i = 0; i < n; i++) counts[(unsigned char)word[i]]++;
    for (size_t i = 0; i < n; i++)
        if (counts[(unsigned char)name[i]]-- == 0) return false;
    return true;
}

static const char *mistaken_command(int argc, char **argv)
{
    if (argc < 2 || argv[1][0] == '-' || strchr(argv[1], ' ')) return NULL;
    int n_words = 0;
    bool quoted = false;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-') break;
        n_words++;
        quoted = quoted || strchr(argv[i], ' ');
    }
    const char *near = n_words == 1 || quoted ? command_nearest(argv[1]) : NULL;
    return near && is_slip(argv[1], near) ? near : NULL;
}

static int run_command(const struct command_row *command, int argc, char **argv)
{
    struct request request;
    struct arguments arguments = {NULL, 0, NULL, 0};
    struct dk_error err = {0};
    request_init(&request);
    int status;
    if (!arguments_read(argc, argv, command->bit, command->name, &request, &arguments, &err))
        status = say_failure(&err);
    else if (request.help)
        status = help_command(command);
    else
        status = command->run(&request, &arguments, argc, argv);
    arguments_free(&arguments);
    request_free(&request);
    return status;
}

static const struct command_row *find_two_words(const char *first, const char *second)
{
    char *name = text_format("%s %s", first, second);
    const struct command_row *command = strchr(first, ' ') ? NULL : command_find(name);
    free(name);
    return command;
}

static int run(int argc, char **argv)
{
    if (argc < 2) return help_short();
    const char *first = argv[1];
    if (strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0) return help_all();
    if (strcmp(first, "help") == 0) return help_words(argc - 2, argv + 2);
    if (strcmp(first, "--version") == 0 || strcmp(first, "version") == 0) return help_version();
    if (strcmp(first, "completions") == 0) return help_completions(argc - 2, argv + 2);
    const struct command_row *longer = argc > 2 ? find_two_words(first, argv[2]) : NULL;
    if (longer) return run_command(longer, argc - 3, argv + 3);
    const struct command_row *command = command_find(first);
    if (command) return run_command(command, argc - 2, argv + 2);
    const char *near = mistaken_command(argc, argv);
    if (near) {
        say_error("%s: unknown command; did you mean \"darkroom %s\"? To render it as a prompt: "
                  "darkroom render %s",
                  first, near, first);
        return EXIT_USAGE;
    }
    return run_command(&commands[0], argc - 1, argv + 1);
}

/*
 * If standard output was closed, the next file opened would take its place and receive what is
 * printed. A descriptor that cannot be written keeps the place, and printing fails as it should.
 */
static void keep_standard_streams(void)
{
    for (int file = 0; file < 3; file++)
        if (fcntl(file, F_GETFD) < 0 && open("/dev/null", file == 0 ? O_WRONLY : O_RDONLY) != file)
            _exit(EXIT_FAILED);
}

int main(int argc, char **argv)
{
    keep_standard_streams();
    signal(SIGPIPE, SIG_IGN); /* a write to a closed pipe then fails, and leaves no half file */
    signal(SIGXFSZ, SIG_IGN); /* and so does one beyond ulimit -f, which else leaves half a file */
    lost_file_install();
    int status = run(argc, argv);
    if ((status == EXIT_DONE || status == EXIT_PARTLY) && !say_all()) status = EXIT_FAILED;
    return status;
}
