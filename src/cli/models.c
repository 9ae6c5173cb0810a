/* models.c - opening the model that is meant; the commands models and tokenize. */
/* SPDX-License-Identifier: MIT */
#include "commands.h"
#include "say.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

static void print_warning(void *user, const char *sentence)
{
    (void)user;
    say_warning(sentence);
}

struct dk_model *model_open(struct request *request, char **path, struct dk_error *err)
{
    if (!request->model_options.warn) request->model_options.warn = print_warning;
    *path = dk_model_find(request->model, err);
    struct dk_model *model = *path ? dk_model_open(*path, &request->model_options, err) : NULL;
    if (!model && *path) {
        dk_free(*path);
        *path = NULL;
    }
    return model;
}

struct listing {
    json_t *array;
    size_t n;
};

static void add_model(void *user, const char *name, const char *path)
{
    struct listing *listing = user;
    char *default_path = dk_model_find(NULL, NULL);
    bool is_default = default_path && strcmp(default_path, path) == 0;
    if (listing->array) {
        json_t *row = json_object();
        json_object_set_new(row, "name", json_string(name));
        json_object_set_new(row, "path", json_string(path));
        json_object_set_new(row, "default", json_boolean(is_default));
        json_array_append_new(listing->array, row);
    } else {
        text_print(stdout, name);
        printf("%*s", (int)(strlen(name) < 20 ? 20 - strlen(name) : 1), "");
        text_print(stdout, path);
        fputs(is_default ? "  (default)\n" : "\n", stdout);
    }
    listing->n++;
    dk_free(default_path);
}

int models_run(struct request *request, struct arguments *arguments, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    if (arguments->n_words > 0) {
        say_error(
            "models: found the word \"%s\", expected none; to render it: darkroom render models %s",
            arguments->words[0], arguments->words[0]);
        return EXIT_USAGE;
    }
    struct listing listing = {request->json ? json_array() : NULL, 0};
    dk_model_list(add_model, &listing);
    if (request->json) {
        json_dumpf(listing.array, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(listing.array);
    } else if (listing.n == 0) {
        say_note(
            "no models found; set DARKROOM_MODELS to a folder that holds some, or give -m PATH");
    }
    return EXIT_DONE;
}

static void print_ids(const struct request *request, const char *text, const int32_t *ids,
                      size_t n_ids)
{
    if (!request->json) {
        for (size_t i = 0; i < n_ids; i++) printf("%s%d", i ? " " : "", (int)ids[i]);
        putchar('\n');
        return;
    }
    json_t *answer = json_object(), *array = json_array();
    for (size_t i = 0; i < n_ids; i++) json_array_append_new(array, json_integer(ids[i]));
    json_object_set_new(answer, "text", json_string(text));
    json_object_set_new(answer, "ids", array);
    json_dumpf(answer, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(answer);
}

int tokenize_run(struct request *request, struct arguments *arguments, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    struct dk_error err = {0};
    if (arguments->n_words == 0) {
        say_error("tokenize: the text is missing: darkroom tokenize TEXT; - reads it from standard "
                  "input");
        return EXIT_USAGE;
    }
    char *words = arguments_text(arguments, &err), *path = NULL, *text = NULL;
    size_t n_replaced = 0, n_ids = 0;
    int32_t *ids = NULL;
    struct dk_model *model = words ? model_open(request, &path, &err) : NULL;
    if (words) text = text_repair(words, strlen(words), &n_replaced);
    if (n_replaced > 0) say_note("%zu bytes that are not UTF-8 became U+FFFD", n_replaced);
    bool ok = model && dk_tokenize(model, text, strlen(text), &ids, &n_ids, &err);
    if (ok) print_ids(request, text, ids, n_ids);
    dk_free(ids);
    dk_model_close(model);
    dk_free(path);
    free(text);
    free(words);
    return ok ? EXIT_DONE : say_failure(&err);
}
