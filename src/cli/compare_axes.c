/* compare_axes.c - what a comparison varies: options with lists of values. */
/* SPDX-License-Identifier: MIT */
#include "compare_axes.h"

#include "say.h"
#include "text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE_BYTES ((size_t)16 << 20)

static const char default_steps[] = "1,2,4,8,16,32",
                  default_schedulers[] = "ddim,euler,dpmpp-2m,unipc", default_seeds[] = "1..3";

/* ---- lists --------------------------------------------------------------------------------- */

static bool is_numbers(const char *text)
{
    struct values parts = {NULL, 0, 0};
    double x;
    bool all = values_split(&parts, "", text, ",", false, NULL);
    for (size_t i = 0; all && i < parts.n_items; i++) all = text_to_number(parts.items[i], &x);
    values_free(&parts);
    return all;
}

/* What separates the values of an option, or NULL: the text is one value. */
static const char *separator_of(const struct option *option, const char *text)
{
    bool is_prose = strcmp(option->name, "prompt") == 0 || strcmp(option->name, "negative") == 0;
    if (is_prose || option->kind == OPTION_PATH) return NULL;
    if (strchr(text, ';')) return ";";
    if (strcmp(option->name, "timesteps") == 0) return NULL;
    if (strcmp(option->name, "sigmas") == 0 && is_numbers(text)) return NULL;
    return ",";
}

static struct axis *find(struct axes *axes, const struct option *option)
{
    for (size_t i = 0; i < axes->n_items; i++)
        if (axes->items[i].option == option) return &axes->items[i];
    if (axes->n_items == MAX_AXES) return NULL;
    struct axis *axis = &axes->items[axes->n_items++];
    *axis = (struct axis){.option = option};
    return axis;
}

bool axis_apply(struct request *request, const struct option *option, const char *value,
                struct dk_error *err)
{
    if (strcmp(value, "own") != 0 || option->kind == OPTION_PATH)
        return option_set(request, option, value, err);
    json_t *nothing = json_null();
    return option_set_json(request, option, nothing, err);
}

/* The value must be one the option takes; a value that is there already is not taken twice. Takes
 * value over. */
static bool add_value(struct axis *axis, char *value, struct dk_error *err)
{
    struct request scratch;
    request_init(&scratch);
    bool ok = axis_apply(&scratch, axis->option, value, err);
    if (ok && axis->option->kind == OPTION_SEED && scratch.random_seed)
        ok = say_fail(err, DK_ERROR_ARGUMENT,
                      "--%s: found \"%.60s\", expected numbers: a comparison can be repeated",
                      axis->option->name, value);
    request_free(&scratch);
    for (size_t i = 0; ok && i < axis->values.n_items; i++)
        if (strcmp(axis->values.items[i], value) == 0) {
            free(value);
            return true;
        }
    if (ok)
        values_add(&axis->values, value);
    else
        free(value);
    return ok;
}

static bool add_list(struct axes *axes, const struct option *option, const char *text,
                     struct dk_error *err)
{
    struct axis *axis = find(axes, option);
    struct values values = {NULL, 0, 0};
    bool number = option->kind == OPTION_INTEGER || option->kind == OPTION_SEED;
    bool ok = axis || say_fail(err, DK_ERROR_ARGUMENT, "compare: more than %d options with values",
                               MAX_AXES);
    ok = ok && values_split(&values, option->name, text, separator_of(option, text), number, err);
    for (size_t i = 0; ok && i < values.n_items; i++)
        ok = add_value(axis, text_copy(values.items[i]), err);
    values_free(&values);
    return ok;
}

static bool add_named(struct axes *axes, const char *name, const char *text, struct dk_error *err)
{
    return add_list(axes, option_find(name, strlen(name)), text, err);
}

/* ---- where values come from ---------------------------------------------------------------- */

static char *read_file(const char *path, struct dk_error *err)
{
    FILE *in = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    char *text = text_alloc(MAX_FILE_BYTES + 1);
    errno = 0;
    size_t n = in ? fread(text, 1, MAX_FILE_BYTES + 1, in) : 0;
    bool ok = in && !ferror(in);
    if (!ok)
        say_fail(err, DK_ERROR_FILE, "%s: cannot read: %s", path, strerror(errno));
    else if (n > MAX_FILE_BYTES || memchr(text, 0, n))
        ok = say_fail(err, DK_ERROR_FORMAT, "%s: found %s, expected a text with a prompt a line",
                      path, n > MAX_FILE_BYTES ? "more than 16 MiB" : "a NUL byte");
    if (in && in != stdin) fclose(in);
    if (ok) {
        text[n] = '\0';
        return text;
    }
    free(text);
    return NULL;
}

static bool add_file(struct axes *axes, const char *path, struct dk_error *err)
{
    char *text = read_file(path, err);
    bool ok = text != NULL;
    for (char *line = text; ok && *line;) {
        size_t n = strcspn(line, "\n");
        char *prompt = text_trimmed(line, n);
        if (strncmp(prompt, "\xEF\xBB\xBF", 3) == 0 && line == text)
            memmove(prompt, prompt + 3, strlen(prompt) - 2);
        if (*prompt && *prompt != '#') ok = add_named(axes, "prompt", prompt, err);
        free(prompt);
        line += n + (line[n] == '\n');
    }
    free(text);
    return ok;
}

/* {"steps": ["1", "2"]} of an earlier run; what it holds is checked as if it were typed. */
static bool add_earlier(struct axes *axes, const json_t *before, struct dk_error *err)
{
    for (size_t i = 0; option_at(i); i++) {
        const struct option *option = option_at(i);
        const json_t *list = json_object_get(before, option->name), *item;
        size_t k;
        if (option->use != USE_RECORDED || !json_is_array(list) || json_array_size(list) == 0)
            continue;
        json_array_foreach(list, k, item)
        {
            const char *text = json_string_value(item);
            struct axis *axis = find(axes, option);
            if (!axis || !text)
                return say_fail(err, DK_ERROR_FORMAT,
                                "--add: the folder's list of axes is damaged");
            if (!add_value(axis, text_copy(text), err)) return false;
        }
    }
    return true;
}

static bool add_defaults(struct axes *axes, struct dk_error *err)
{
    static const struct {
        const char *name, *values;
    } defaults[] = {
        {"steps", default_steps}, {"scheduler", default_schedulers}, {"seed", default_seeds}};
    for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++)
        if (!axes_find(axes, defaults[i].name) &&
            !add_named(axes, defaults[i].name, defaults[i].values, err))
            return false;
    return true;
}

/* ---- order and place ----------------------------------------------------------------------- */

bool axis_is_of_model(const struct axis *axis)
{
    return axis->option->group == GROUP_MODEL;
}

bool axis_is_sample(const struct axis *axis)
{
    return strcmp(axis->option->name, "prompt") == 0 || strcmp(axis->option->name, "seed") == 0;
}

static int rank(const struct axis *axis)
{
    return axis_is_of_model(axis) ? 0 : strcmp(axis->option->name, "steps") == 0 ? 2 : 1;
}

static int by_rank(const void *a, const void *b)
{
    const struct axis *first = a, *second = b;
    if (rank(first) != rank(second)) return rank(first) - rank(second);
    return first->option < second->option ? -1
                                          : first->option > second->option; /* all in one table */
}

static bool place(const struct axes *axes, const char *given, const char *by, const char *otherwise,
                  size_t *at, struct dk_error *err)
{
    const char *name = given ? given : otherwise;
    if (strcmp(name, "seeds") == 0) name = "seed";
    const struct option *option = option_find(name, strlen(name));
    for (*at = 0; *at < axes->n_items; ++*at)
        if (axes->items[*at].option == option) return true;
    return say_fail(err, DK_ERROR_ARGUMENT,
                    "--%s: \"%.60s\" is no option with values here: give --%.60s A,B", by, name,
                    name);
}

/* The usual place of one of the two goes to the other where --rows steps or --columns scheduler
 * takes it. */
static bool lay_out(struct axes *axes, const struct compare_options *options, struct dk_error *err)
{
    bool turned = (options->rows && strcmp(options->rows, "steps") == 0) ||
                  (options->columns && option_find(options->columns, strlen(options->columns)) ==
                                           option_find("scheduler", strlen("scheduler")));
    size_t first = axes->n_items;
    if (!place(axes, options->rows, "rows", turned ? "steps" : "scheduler", &axes->rows, err) ||
        !place(axes, options->columns, "columns", turned ? "scheduler" : "steps", &axes->columns,
               err) ||
        (options->pages && !place(axes, options->pages, "pages", "", &first, err)))
        return false;
    if (axes->rows == axes->columns || first == axes->rows || first == axes->columns)
        return say_fail(err, DK_ERROR_ARGUMENT,
                        "--rows, --columns and --pages: found one option twice");
    axes->n_pages = 0;
    if (first < axes->n_items) axes->pages[axes->n_pages++] = first;
    for (size_t i = 0; i < axes->n_items; i++)
        if (i != axes->rows && i != axes->columns && i != first &&
            axes->items[i].values.n_items > 1)
            axes->pages[axes->n_pages++] = i;
    return true;
}

/* ---- all of it ----------------------------------------------------------------------------- */

bool axes_read(struct axes *axes, struct request *request, const struct arguments *arguments,
               const json_t *before, struct dk_error *err)
{
    axes->n_items = 0;
    bool ok = !before || add_earlier(axes, before, err);
    for (size_t i = 0; ok && i < arguments->n_words; i++)
        ok = add_named(axes, "prompt", arguments->words[i], err);
    if (ok && request->compare.file) ok = add_file(axes, request->compare.file, err);
    for (size_t i = 0; ok && i < arguments->n_listed; i++)
        ok = add_list(axes, arguments->listed[i].option, arguments->listed[i].value, err);
    if (ok && request->batch.seeds) ok = add_named(axes, "seed", request->batch.seeds, err);
    ok = ok && add_defaults(axes, err);
    if (ok && !axes_find(axes, "prompt"))
        ok = say_fail(err, DK_ERROR_ARGUMENT,
                      "compare: the prompt is missing: darkroom compare PROMPT... -o FOLDER");
    if (!ok) return false;
    qsort(axes->items, axes->n_items, sizeof axes->items[0], by_rank);
    return lay_out(axes, &request->compare, err);
}

void axes_free(struct axes *axes)
{
    for (size_t i = 0; i < axes->n_items; i++) values_free(&axes->items[i].values);
    axes->n_items = 0;
}

const struct axis *axes_find(const struct axes *axes, const char *name)
{
    for (size_t i = 0; i < axes->n_items; i++)
        if (strcmp(axes->items[i].option->name, name) == 0) return &axes->items[i];
    return NULL;
}

json_t *axes_to_json(const struct axes *axes)
{
    json_t *object = json_object();
    for (size_t i = 0; i < axes->n_items; i++) {
        const struct axis *axis = &axes->items[i];
        json_t *list = json_array();
        for (size_t k = 0; k < axis->values.n_items; k++) {
            size_t n_replaced;
            char *text =
                text_repair(axis->values.items[k], strlen(axis->values.items[k]), &n_replaced);
            json_array_append_new(list, json_string(text));
            free(text);
        }
        json_object_set_new(object, axis->option->name, list);
    }
    return object;
}
