/* schedulers.c - the commands schedulers and schedulers show. */
/* SPDX-License-Identifier: MIT */
#include "commands.h"
#include "interrupt.h"
#include "metadata.h"
#include "output.h"
#include "plot.h"
#include "say.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

/* ---- the list ------------------------------------------------------------------------------ */

static json_t *split_names(const char *names)
{
    json_t *array = json_array();
    while (names && *names) {
        names += strspn(names, ", ");
        size_t n = strcspn(names, ",");
        if (n > 0) json_array_append_new(array, json_stringn(names, n));
        names += n;
    }
    return array;
}

static json_t *string_or_null(const char *text)
{
    return text ? json_string(text) : json_null();
}

static json_t *scheduler_to_json(const struct dk_scheduler_info *info)
{
    json_t *row = json_object();
    json_object_set_new(row, "name", json_string(info->name));
    json_object_set_new(row, "title", string_or_null(info->title));
    json_object_set_new(row, "summary", string_or_null(info->summary));
    json_object_set_new(row, "paper", string_or_null(info->paper));
    json_object_set_new(row, "aliases", split_names(info->aliases));
    json_object_set_new(row, "order", json_integer(info->order));
    json_object_set_new(row, "passes_per_step", json_integer(info->passes_per_step));
    json_object_set_new(row, "stochastic", json_boolean(info->stochastic));
    json_object_set_new(row, "steps", json_pack("[i,i]", info->steps_low, info->steps_high));
    return row;
}

int schedulers_run(struct request *request, struct arguments *arguments, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    if (arguments->n_words > 0) {
        say_error("schedulers: found the word \"%s\", expected none, or show NAME",
                  arguments->words[0]);
        return EXIT_USAGE;
    }
    struct dk_scheduler_info info;
    json_t *list = request->json ? json_array() : NULL;
    if (!list)
        printf("%-16s %-20s %5s %11s %6s %7s  %s\n", "name", "in A1111", "order", "passes/step",
               "noise", "steps", "");
    for (size_t i = 0; dk_scheduler_get(i, &info); i++) {
        char steps[32];
        snprintf(steps, sizeof steps, "%d-%d", info.steps_low, info.steps_high);
        if (list)
            json_array_append_new(list, scheduler_to_json(&info));
        else
            printf("%-16s %-20s %5d %11d %6s %7s  %s\n", info.name, info.title ? info.title : "",
                   info.order, info.passes_per_step, info.stochastic ? "yes" : "no", steps,
                   info.summary ? info.summary : "");
    }
    if (list) {
        json_dumpf(list, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(list);
    }
    return EXIT_DONE;
}

/* ---- one plan ------------------------------------------------------------------------------ */

static json_t *numbers_to_json(const double *values, size_t n)
{
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(array, json_real(values[i]));
    return array;
}

static void print_plan_json(const struct plan *plan, const char *model_path)
{
    json_t *object = json_object();
    size_t n_replaced;
    char *path = text_repair(model_path, strlen(model_path), &n_replaced);
    json_object_set_new(object, "scheduler", json_string(plan->scheduler));
    json_object_set_new(object, "steps", json_integer(plan->n_steps));
    json_object_set_new(object, "model", json_string(path));
    json_object_set_new(object, "passes", json_integer((json_int_t)plan->n_calls));
    json_object_set_new(object, "timesteps", numbers_to_json(plan->timesteps, plan->n_calls));
    json_object_set_new(object, "sigmas", numbers_to_json(plan->sigmas, plan->n_calls));
    char *line = metadata_line(object);
    puts(line);
    free(line);
    free(path);
    json_decref(object);
}

static void print_plan(const struct plan *plan)
{
    printf("%s, %d steps, %zu passes (twice as many with guidance)\n%6s %12s %14s\n",
           plan->scheduler, plan->n_steps, plan->n_calls, "call", "timestep", "sigma");
    for (size_t i = 0; i < plan->n_calls; i++)
        printf("%6zu %12.6g %14.7g\n", i + 1, plan->timesteps[i], plan->sigmas[i]);
}

static bool write_plot(void *user, const char *path, bool overwrite, struct dk_error *err)
{
    return plot_write(user, path, overwrite, err);
}

static bool show_plot(const struct request *request, const struct plan *plan, struct dk_error *err)
{
    if (!request->plot) return true;
    interrupt_install(); /* a signal waits until the file is whole */
    char *name =
        output_write(request->plot, request->force, write_plot, (void *)(uintptr_t)plan, err);
    if (name) say_note("the plot is in %s", name);
    free(name);
    return name != NULL;
}

static bool show_plan(struct request *request, const char *name, struct dk_error *err)
{
    char *path = NULL;
    struct dk_settings settings = request->settings;
    settings.scheduler = name;
    struct plan plan = {0};
    struct dk_model *model = model_open(request, &path, err);
    bool ok =
        model && dk_resolve(model, &settings, NULL, err) &&
        dk_scheduler_plan(model, &settings, &plan.timesteps, &plan.sigmas, &plan.n_calls, err);
    plan.scheduler = settings.scheduler;
    plan.n_steps = settings.n_steps;
    ok = ok && show_plot(request, &plan, err);
    if (ok && request->json)
        print_plan_json(&plan, path);
    else if (ok)
        print_plan(&plan);
    dk_free(plan.timesteps);
    dk_free(plan.sigmas);
    dk_model_close(model);
    dk_free(path);
    return ok;
}

int schedulers_show_run(struct request *request, struct arguments *arguments, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    struct dk_error err = {0};
    if (arguments->n_words != 1) {
        say_error("schedulers show: found %zu names, expected one: darkroom schedulers show NAME "
                  "--steps N",
                  arguments->n_words);
        return EXIT_USAGE;
    }
    if (request->plot && (!plot_check(request->plot, &err) || !output_probe(request->plot, &err)))
        return say_failure(&err);
    if (!show_plan(request, arguments->words[0], &err)) return say_failure(&err);
    return interrupt_seen() ? EXIT_INTERRUPTED : EXIT_DONE;
}
