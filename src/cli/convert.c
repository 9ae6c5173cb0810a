/* convert.c - the command convert: a model as one file. */
/* SPDX-License-Identifier: MIT */
#include "commands.h"
#include "interrupt.h"
#include "output.h"
#include "progress.h"
#include "say.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void show_progress(void *user, size_t done_bytes, size_t total_bytes)
{
    progress_bytes(user, "converted", done_bytes, total_bytes);
}

static void report(const struct request *request, const char *out)
{
    struct stat status;
    size_t n_replaced, n_bytes = stat(out, &status) == 0 ? (size_t)status.st_size : 0;
    if (!request->json) {
        text_print(stdout, out);
        putchar('\n');
        return;
    }
    char *name = text_repair(out, strlen(out), &n_replaced);
    json_t *object = json_pack("{s:s,s:I}", "output", name, "bytes", (json_int_t)n_bytes);
    json_dumpf(object, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(object);
    free(name);
}

int convert_run(struct request *request, struct arguments *arguments, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    struct dk_error err = {0};
    struct progress progress;
    if (arguments->n_words != 2) {
        say_error(
            "convert: found %zu names, expected a model and a file to write: darkroom convert "
            "MODEL FILE",
            arguments->n_words);
        return EXIT_USAGE;
    }
    const char *out = arguments->words[1];
    progress_init(&progress, request->quiet);
    interrupt_install();
    struct dk_convert_options options = {.dtype = request->dtype,
                                         .overwrite = request->force,
                                         .progress = show_progress,
                                         .user = &progress,
                                         .cancel = interrupt_flag()};
    const char *slash = strrchr(out, '/');
    char *folder = text_format("%.*s.", slash ? (int)(slash - out) + 1 : 0, out);
    interrupt_remove_temporaries(folder);
    free(folder);
    char *in = output_probe(out, &err) ? dk_model_find(arguments->words[0], &err) : NULL;
    bool ok = in && dk_convert(in, out, &options, &err);
    progress_clear(&progress);
    dk_free(in);
    if (!ok) return say_failure(&err);
    report(request, out);
    return EXIT_DONE;
}
