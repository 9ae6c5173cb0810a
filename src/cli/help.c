/* help.c - help pages, version and shell completions, from the tables of commands and options. */
/* SPDX-License-Identifier: MIT */
#include "help.h"

#include "say.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_COMMANDS (COMMAND_BATCH | COMMAND_MERGE | COMMAND_SHEET) /* their words are files */

static const char *const group_titles[N_GROUPS] = {"Picture", "Variation", "Sampling",
                                                   "Model",   "Output",    "Running"};

int help_short(void)
{
    fputs("usage: darkroom PROMPT... [OPTIONS]\n"
          "       darkroom COMMAND ...\n"
          "example: darkroom \"a rocket on a blue background\" -o rocket.png\n"
          "darkroom --help lists commands and options\n",
          stderr);
    return EXIT_USAGE;
}

/* ---- pages --------------------------------------------------------------------------------- */

#define OPTION_COLUMN 30

/* What an option means to some commands where that differs from its row in the table. */
static const struct words {
    const char *name;
    unsigned commands;
    const char *argument, *help;
} own_words[] = {
    {"output", COMMAND_COMPARE, "FOLDER", "where report.html, tables, sheets and pictures go"},
    {"output", COMMAND_BATCH, "FOLDER", "where the pictures and their manifest go"},
    {"output", COMMAND_MERGE, "FOLDER", "where the joined pictures and manifest go"},
};

static struct words words_of(const struct option *option, unsigned commands)
{
    for (size_t i = 0; i < sizeof own_words / sizeof own_words[0]; i++)
        if (own_words[i].commands == commands && strcmp(own_words[i].name, option->name) == 0)
            return own_words[i];
    return (struct words){option->name, commands,
                          option->choices ? option->choices : option->argument, option->help};
}

static void print_option(const struct option *option, unsigned commands)
{
    char left[96];
    struct words words = words_of(option, commands);
    const char *argument = words.argument;
    if (option->letter)
        snprintf(left, sizeof left, "-%c, --%s%s%s", option->letter, option->name,
                 argument ? " " : "", argument ? argument : "");
    else
        snprintf(left, sizeof left, "    --%s%s%s", option->name, argument ? " " : "",
                 argument ? argument : "");
    if (strlen(left) >= OPTION_COLUMN - 3)
        printf("  %s\n%*s%s\n", left, OPTION_COLUMN, "", words.help);
    else
        printf("  %-*s%s\n", OPTION_COLUMN - 2, left, words.help);
}

static void print_options(unsigned commands)
{
    for (int group = 0; group < N_GROUPS; group++) {
        bool titled = false;
        for (size_t i = 0; option_at(i); i++) {
            const struct option *option = option_at(i);
            if ((int)option->group != group || !(option->commands & commands)) continue;
            if (!titled) printf("\n%s\n", group_titles[group]);
            titled = true;
            print_option(option, commands);
        }
    }
}

int help_command(const struct command_row *command)
{
    printf("usage: %s\n\n%s.\n", command->usage, command->summary);
    if (command->text) printf("\n%s", command->text);
    print_options(command->bit);
    return EXIT_DONE;
}

int help_all(void)
{
    puts("darkroom turns a text into a picture with a diffusion model, on the CPU and without a "
         "network.\n\n"
         "usage: darkroom PROMPT... [OPTIONS]\n"
         "       darkroom COMMAND ...\n\n"
         "Commands");
    for (size_t i = 0; command_at(i); i++)
        printf("  %-16s  %s\n", command_at(i)->name, command_at(i)->summary);
    puts("  help COMMAND      describe a command and its options\n"
         "  completions SHELL print the completions for bash, zsh or fish");
    printf("\nOptions of render\n");
    print_options(COMMAND_RENDER);
    puts("\n      --version               print the version\n\n"
         "Examples\n"
         "  darkroom \"a rocket on a blue background\"\n"
         "  darkroom \"two red apples\" --seed 7 --count 4 -o 'apples-{seed}.png'\n"
         "  darkroom --from apples-7.png --steps 50\n"
         "  darkroom info apples-7.png\n\n"
         "Exit status: 0 done, 1 failed, 2 wrong usage, 3 partly done, 130 interrupted. More in: "
         "man darkroom");
    return EXIT_DONE;
}

int help_words(int argc, char **argv)
{
    if (argc == 0) return help_all();
    char *name = argc == 1 ? text_copy(argv[0]) : text_format("%s %s", argv[0], argv[1]);
    const struct command_row *command = argc <= 2 ? command_find(name) : NULL;
    free(name);
    if (command) return help_command(command);
    const char *near = command_nearest(argv[0]);
    say_error("help: %s: no such command%s%s%s", argv[0], near ? "; did you mean \"" : "",
              near ? near : "", near ? "\"?" : "; see darkroom --help");
    return EXIT_USAGE;
}

int help_version(void)
{
    printf("darkroom %s (%s)\n", DK_VERSION, dk_cpu_level());
    return EXIT_DONE;
}

/* ---- completions --------------------------------------------------------------------------- */

static bool is_path(const struct option *option)
{
    return option->kind == OPTION_PATH;
}

/* Names that are best asked from the program itself: "darkroom completions schedulers". */
static const char *live_list(const struct option *option)
{
    return strcmp(option->name, "scheduler") == 0 ? "schedulers"
           : strcmp(option->name, "model") == 0   ? "models"
                                                  : NULL;
}

static void print_words(const char *choices)
{
    for (; *choices; choices++) putchar(*choices == '|' ? ' ' : *choices);
}

static void print_bash_values(void)
{
    for (size_t i = 0; option_at(i); i++) {
        const struct option *option = option_at(i);
        if (!option_takes_value(option)) continue;
        printf("        --%s", option->name);
        if (option->letter) printf("|-%c", option->letter);
        printf(") ");
        if (option->choices) {
            printf("words='");
            print_words(option->choices);
            printf("' ;;\n");
        } else if (live_list(option)) {
            printf("words=$(darkroom completions %s 2>/dev/null); files=1 ;;\n", live_list(option));
        } else {
            printf(is_path(option) ? "files=1 ;;\n" : ": ;;\n");
        }
    }
}

static void print_bash_options(void)
{
    for (size_t c = 0; command_at(c); c++) {
        printf("        '%s') words='", command_at(c)->name);
        for (size_t i = 0; option_at(i); i++)
            if (option_at(i)->commands & (unsigned)command_at(c)->bit)
                printf("--%s ", option_at(i)->name);
        printf("' ;;\n");
    }
}

static void print_command_names(void)
{
    for (size_t c = 0; command_at(c); c++)
        if (!strchr(command_at(c)->name, ' ')) printf("%s ", command_at(c)->name);
    printf("help completions");
}

static int complete_bash(void)
{
    printf(
        "# bash completion for darkroom, made by: darkroom completions bash\n"
        "_darkroom() {\n"
        "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words= files=\n"
        "    local command=${COMP_WORDS[1]}\n"
        "    [ \"$cur\" = '=' ] && cur=\n"
        "    [ \"$prev\" = '=' ] && prev=${COMP_WORDS[COMP_CWORD-2]}\n"
        "    [ \"$command ${COMP_WORDS[2]}\" = 'schedulers show' ] && command='schedulers show'\n"
        "    [ \"$command ${COMP_WORDS[2]}\" = 'batch merge' ] && command='batch merge'\n"
        "    case $prev in\n");
    print_bash_values();
    printf("        *)\n"
           "        case $cur in\n"
           "        -*)\n"
           "        case $command in\n");
    print_bash_options();
    printf("        *) words='--help --version ");
    for (size_t i = 0; option_at(i); i++)
        if (option_at(i)->commands & COMMAND_RENDER && strcmp(option_at(i)->name, "help") != 0)
            printf("--%s ", option_at(i)->name);
    printf("' ;;\n"
           "        esac ;;\n"
           "        *)\n"
           "        if [ \"$COMP_CWORD\" = 1 ]; then words='");
    print_command_names();
    printf("'\n"
           "        elif [ \"$command\" = help ]; then words='");
    print_command_names();
    printf("'\n"
           "        elif [ \"$command\" = completions ]; then words='bash zsh fish'\n"
           "        elif [ \"$command\" = 'schedulers show' ]; then words=$(darkroom completions "
           "schedulers 2>/dev/null)\n"
           "        elif [ \"$command\" = schedulers ]; then words=show\n"
           "        elif [ \"$command\" = batch ]; then words=merge; files=1\n"
           "        elif [ \"$command\" = sheet ]; then files=1\n"
           "        elif [ \"$command\" = info ]; then words=$(darkroom completions models "
           "2>/dev/null); files=1\n"
           "        fi ;;\n"
           "        esac ;;\n"
           "    esac\n"
           "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
           "    [ -n \"$files\" ] && COMPREPLY+=($(compgen -f -- \"$cur\"))\n"
           "}\n"
           "complete -o filenames -F _darkroom darkroom\n");
    return EXIT_DONE;
}

/* Inside single quotes of a shell; zsh's _arguments also wants : and [ ] escaped. */
static void print_quoted(const char *text, const char *escaped)
{
    for (; *text; text++) {
        if (*text == '\'')
            printf("'\\''");
        else
            printf("%s%c", strchr(escaped, *text) ? "\\" : "", *text);
    }
}

static void print_zsh_action(const struct option *option)
{
    if (!option_takes_value(option)) return;
    printf(":%s:", option->name);
    if (option->choices) {
        printf("(");
        print_words(option->choices);
        printf(")");
    } else if (live_list(option)) {
        printf("_darkroom_%s", live_list(option));
    } else if (is_path(option)) {
        printf("_files");
    }
}

static void print_zsh_options(unsigned commands, const char *words)
{
    printf("        _arguments \\\n");
    for (size_t i = 0; option_at(i); i++) {
        const struct option *option = option_at(i);
        if (!(option->commands & commands)) continue;
        printf("            '--%s%s[", option->name, option_takes_value(option) ? "=" : "");
        print_quoted(words_of(option, commands).help, "[]:\\");
        printf("]");
        print_zsh_action(option);
        printf("' \\\n");
    }
    printf("            '*:word:%s' ;;\n", words);
}

static int complete_zsh(void)
{
    printf("#compdef darkroom\n"
           "# zsh completion for darkroom, made by: darkroom completions zsh\n"
           "_darkroom_schedulers() { compadd -- ${(f)\"$(darkroom completions schedulers "
           "2>/dev/null)\"} }\n"
           "_darkroom_models() { compadd -- ${(f)\"$(darkroom completions models 2>/dev/null)\"}; "
           "_files }\n"
           "_darkroom_commands() { compadd -- ");
    print_command_names();
    printf(
        " }\n"
        "_darkroom() {\n"
        "    local command=${words[2]}\n"
        "    [[ $command == schedulers && ${words[3]} == show && $CURRENT -gt 3 ]] && "
        "command='schedulers show'\n"
        "    [[ $command == batch && ${words[3]} == merge && $CURRENT -gt 3 ]] && "
        "command='batch merge'\n"
        "    if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then _darkroom_commands; return; fi\n"
        "    case $command in\n");
    for (size_t c = 1; command_at(c); c++) {
        const struct command_row *command = command_at(c);
        printf("    '%s')\n", command->name);
        print_zsh_options(command->bit, command->bit == COMMAND_INFO         ? "_darkroom_models"
                                        : command->bit == COMMAND_SCHEDULERS ? "(show)"
                                        : command->bit == COMMAND_SHOW ? "_darkroom_schedulers"
                                        : command->bit & FILE_COMMANDS ? "_files"
                                                                       : " ");
    }
    printf("    help) _darkroom_commands ;;\n"
           "    completions) compadd bash zsh fish ;;\n"
           "    *)\n");
    print_zsh_options(COMMAND_RENDER, " ");
    printf("    esac\n}\n_darkroom \"$@\"\n");
    return EXIT_DONE;
}

static const char *last_word(const char *name)
{
    const char *blank = strrchr(name, ' ');
    return blank ? blank + 1 : name;
}

/* Conditions under which a row of options belongs to the command line being typed. */
static void print_fish_condition(unsigned commands)
{
    if (commands & COMMAND_RENDER) {
        unsigned without = COMMAND_ALL & ~commands & ~(unsigned)COMMAND_RENDER;
        if (without == 0) return;
        printf(" -n 'not __fish_seen_subcommand_from");
        for (size_t c = 0; command_at(c); c++)
            if (without & (unsigned)command_at(c)->bit && !strchr(command_at(c)->name, ' '))
                printf(" %s", command_at(c)->name);
        printf("'");
        return;
    }
    printf(" -n '__fish_seen_subcommand_from");
    for (size_t c = 0; command_at(c); c++)
        if (commands & (unsigned)command_at(c)->bit)
            printf(" %s", last_word(command_at(c)->name));
    printf("'");
}

static int complete_fish(void)
{
    printf("# fish completion for darkroom, made by: darkroom completions fish\n"
           "complete -c darkroom -n '__fish_use_subcommand' -f\n");
    for (size_t c = 0; command_at(c); c++) {
        if (strchr(command_at(c)->name, ' ')) continue;
        printf("complete -c darkroom -n '__fish_use_subcommand' -a %s -d '", command_at(c)->name);
        print_quoted(command_at(c)->summary, "");
        printf("'\n");
    }
    printf("complete -c darkroom -n '__fish_use_subcommand' -a help -d 'describe a command'\n"
           "complete -c darkroom -n '__fish_use_subcommand' -a completions -d 'print shell "
           "completions'\n"
           "complete -c darkroom -n '__fish_use_subcommand' -l version -d 'print the version'\n"
           "complete -c darkroom -n '__fish_seen_subcommand_from schedulers' -f -a show\n"
           "complete -c darkroom -n '__fish_seen_subcommand_from show' -f -a '(darkroom "
           "completions schedulers)'\n"
           "complete -c darkroom -n '__fish_seen_subcommand_from completions' -f -a 'bash zsh "
           "fish'\n");
    for (size_t i = 0; option_at(i); i++) {
        const struct option *option = option_at(i);
        printf("complete -c darkroom");
        print_fish_condition(option->commands);
        printf(" -l %s", option->name);
        if (option->letter) printf(" -s %c", option->letter);
        if (option->choices) {
            printf(" -x -a '");
            print_words(option->choices);
            printf("'");
        } else if (live_list(option)) {
            printf(" -r -a '(darkroom completions %s)'", live_list(option));
        } else if (option_takes_value(option)) {
            printf(is_path(option) ? " -r" : " -x");
        }
        printf(" -d '");
        print_quoted(option->help, "\\");
        printf("'\n");
    }
    return EXIT_DONE;
}

static void print_model(void *user, const char *name, const char *path)
{
    (void)user;
    (void)path;
    printf("%s\n", name);
}

static int list_schedulers(void)
{
    struct dk_scheduler_info info;
    for (size_t i = 0; dk_scheduler_get(i, &info); i++) printf("%s\n", info.name);
    return EXIT_DONE;
}

/* Besides the shells: "options", "schedulers" and "models", one name a line, for completions and
 * tests. */
int help_completions(int argc, char **argv)
{
    const char *what = argc == 1 ? argv[0] : "";
    if (strcmp(what, "bash") == 0) return complete_bash();
    if (strcmp(what, "zsh") == 0) return complete_zsh();
    if (strcmp(what, "fish") == 0) return complete_fish();
    if (strcmp(what, "schedulers") == 0) return list_schedulers();
    if (strcmp(what, "models") == 0) {
        dk_model_list(print_model, NULL);
        return EXIT_DONE;
    }
    if (strcmp(what, "options") == 0) {
        for (size_t i = 0; option_at(i); i++) printf("--%s\n", option_at(i)->name);
        return EXIT_DONE;
    }
    say_error("completions: expected bash, zsh or fish");
    return EXIT_USAGE;
}
