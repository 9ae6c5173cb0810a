/* compare_table.c - the numbers of a comparison as CSV, as JSON, and for a terminal. */
/* SPDX-License-Identifier: MIT */
#include "compare_output.h"
#include "compare_store.h"
#include "identity.h"
#include "say.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

#define SCHEMA "darkroom-compare-1"

/* Enough digits for what is measured; the same in every locale. */
static const char *number(double value, char text[32])
{
    if (isnan(value)) return "";
    snprintf(text, 32, "%.6g", value);
    for (char *p = text; *p; p++)
        if (*p == ',') *p = '.';
    return text;
}

/* ---- results.csv --------------------------------------------------------------------------- */

/* RFC 4180. */
static void put_field(FILE *out, const char *text, bool first)
{
    if (!first) fputc(',', out);
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"') fputc('"', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

static void put_number(FILE *out, double value)
{
    char text[32];
    put_field(out, number(value, text), false);
}

static void put_header(FILE *out, const struct results *r, const struct comparison *c)
{
    bool first = true;
    for (size_t i = 0; i < c->axes.n_items; i++) {
        if (axis_is_sample(&c->axes.items[i])) continue;
        put_field(out, c->axes.items[i].option->name, first);
        first = false;
    }
    fputs(",pictures,draws_noise", out);
    for (int q = 0; q < N_QUANTITIES; q++) {
        bool single = q == Q_PASSES || quantity_is_share((enum quantity)q);
        fprintf(out, single ? ",%s" : ",%s,%s_sd", quantity_names[q], quantity_names[q]);
    }
    fputs(",statistics,pareto", out);
    for (size_t t = 0; t < r->n_targets; t++) {
        char text[48];
        target_describe(&r->targets[t], text);
        for (char *p = text; *p; p++)
            *p = *p == ' ' ? '_' : (char)(*p >= 'A' && *p <= 'Z' ? *p + 32 : *p);
        fprintf(out, ",within_%s", text);
    }
    fputs("\r\n", out);
}

static void put_setting(FILE *out, const struct results *r, const struct comparison *c,
                        const struct setting *s)
{
    const struct cell *cell = &c->cells[s->cells[0]];
    bool first = true;
    for (size_t i = 0; i < c->axes.n_items; i++) {
        if (axis_is_sample(&c->axes.items[i])) continue;
        put_field(out, cell_value(c, cell, i), first);
        first = false;
    }
    fprintf(out, ",%zu,%s", s->n_done, s->draws ? "true" : "false");
    for (int q = 0; q < N_QUANTITIES; q++) {
        put_number(out, s->q[q].mean);
        if (q != Q_PASSES && !quantity_is_share((enum quantity)q))
            put_number(out, s->q[q].deviation);
    }
    put_number(out, s->statistics);
    fprintf(out, ",%s", s->pareto ? "true" : "false");
    for (size_t t = 0; t < r->n_targets; t++) fprintf(out, ",%s", s->within[t] ? "true" : "false");
    fputs("\r\n", out);
}

static bool write_csv(const struct results *r, const struct comparison *c, struct dk_error *err)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    if (!out) return say_fail(err, DK_ERROR_MEMORY, "results.csv: out of memory");
    put_header(out, r, c);
    for (size_t i = 0; i < r->n_settings; i++)
        if (r->settings[i].first != SIZE_MAX) put_setting(out, r, c, &r->settings[i]);
    fclose(out);
    bool ok = store_write(c->folder, "results.csv", text, n, err);
    free(text);
    return ok;
}

/* ---- results.json -------------------------------------------------------------------------- */

static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *values_of(const struct comparison *c, const struct cell *cell, bool samples)
{
    json_t *values = json_object();
    for (size_t i = 0; i < c->axes.n_items; i++)
        if (samples || !axis_is_sample(&c->axes.items[i]))
            json_object_set_new(values, c->axes.items[i].option->name,
                                option_get(&cell->request, c->axes.items[i].option));
    return values;
}

static json_t *describe_cell(const struct comparison *c, const struct cell *cell)
{
    static const char *const states[] = {"open", "done", "failed", "refused"};
    const struct measure *m = &cell->measure;
    const struct outcome *o = &cell->outcome;
    json_t *object = json_object();
    json_object_set_new(object, "settings", values_of(c, cell, true));
    json_object_set_new(object, "state", json_string(states[cell->state]));
    if (cell->why) json_object_set_new(object, "why", json_string(cell->why));
    if (cell->state != CELL_DONE) return object;
    json_object_set_new(object, "cell", json_string(cell->id));
    json_object_set_new(object, "file", json_string(cell->file));
    json_object_set_new(object, "unet_passes", json_integer(o->n_passes));
    json_object_set_new(object, "seconds",
                        json_pack("{s:f, s:f, s:f}", "text", o->text_s, "denoise", o->denoise_s,
                                  "decode", o->decode_s));
    for (int q = Q_RMSE; q < Q_PASSES; q++)
        json_object_set_new(object, quantity_names[q], real(cell_quantity(cell, (enum quantity)q)));
    if (m->seen[0]) {
        json_t *seen = json_array();
        for (size_t i = 0; i < CAPTION_OBJECTS && m->seen[i]; i++)
            json_array_append_new(seen, json_string(m->seen[i]));
        json_object_set_new(object, "nearest_objects", seen);
    }
    return object;
}

static json_t *describe_setting(const struct results *r, const struct comparison *c,
                                const struct setting *s)
{
    json_t *object = json_object(), *within = json_array();
    json_object_set_new(object, "settings", values_of(c, &c->cells[s->first], false));
    json_object_set_new(object, "pictures", json_integer((json_int_t)s->n_done));
    json_object_set_new(object, "draws_noise", json_boolean(s->draws));
    json_object_set_new(object, "compared_by",
                        json_string(s->by_statistics ? "statistics" : "picture"));
    for (int q = 0; q < N_QUANTITIES; q++)
        json_object_set_new(object, quantity_names[q],
                            json_pack("{s:o, s:o, s:I}", "mean", real(s->q[q].mean), "sd",
                                      real(s->q[q].deviation), "n", (json_int_t)s->q[q].n));
    json_object_set_new(object, "statistics", real(s->statistics));
    json_object_set_new(object, "pareto", json_boolean(s->pareto));
    for (size_t t = 0; t < r->n_targets; t++)
        json_array_append_new(within, json_boolean(s->within[t]));
    json_object_set_new(object, "within", within);
    return object;
}

static json_t *describe_problem(const struct comparison *c, const struct problem *problem)
{
    json_t *object = json_object(), *levels = json_array();
    const struct cell *first = &c->cells[problem->first],
                      *reference = problem_reference(c, problem);
    json_object_set_new(object, "prompt", option_get(&first->request, option_find("prompt", 6)));
    json_object_set_new(object, "seed", option_get(&first->request, option_find("seed", 4)));
    json_object_set_new(object, "guidance",
                        option_get(&first->request, option_find("guidance", 8)));
    json_object_set_new(object, "file", reference ? json_string(reference->file) : json_null());
    json_object_set_new(object, "converged", json_boolean(problem->converged));
    json_object_set_new(object, "clip_score", real(problem->clip));
    for (size_t i = 0; i < problem->n_used; i++) {
        const struct dk_settings *s = &problem->levels[i].request.settings;
        json_t *change = i ? real(problem->changes[i]) : json_null();
        json_t *db = i ? real(problem->changes_db[i]) : json_null();
        json_array_append_new(
            levels, json_pack("{s:s, s:s?, s:i, s:i, s:o, s:o}", "scheduler", s->scheduler,
                              "sigmas", s->sigmas, "steps", s->n_steps, "unet_passes",
                              problem->levels[i].n_passes, "change_rmse", change, "change_db", db));
    }
    json_object_set_new(object, "levels", levels);
    return object;
}

static json_t *describe_choice(const struct results *r, const struct comparison *c, size_t setting)
{
    if (setting == SIZE_MAX) return json_null();
    const struct setting *s = &r->settings[setting];
    char *command = setting_command(c, s);
    json_t *object = json_pack(
        "{s:o, s:f, s:o, s:s}", "settings", values_of(c, &c->cells[s->first], false), "seconds",
        s->q[Q_SECONDS].mean, "error", real(setting_error(r, s)), "command", command);
    free(command);
    return object;
}

static json_t *describe_answers(const struct results *r, const struct comparison *c)
{
    json_t *answers = json_array();
    for (size_t t = 0; t < r->n_targets; t++) {
        char text[48];
        json_t *each = json_object(), *object = json_object();
        target_describe(&r->targets[t], text);
        for (size_t k = 0; k < r->n_series; k++)
            json_object_set_new(each, r->series[k].name,
                                describe_choice(r, c, r->series[k].fewest[t]));
        json_object_set_new(object, "target", json_string(text));
        json_object_set_new(object, "fewest_steps", describe_choice(r, c, r->fewest[t]));
        json_object_set_new(object, "fastest", describe_choice(r, c, r->fastest[t]));
        json_object_set_new(object, "series", each);
        json_array_append_new(answers, object);
    }
    return answers;
}

static json_t *describe_models(const struct comparison *c)
{
    json_t *models = json_array();
    for (size_t i = 0; i < c->n_slots; i++)
        json_array_append_new(models,
                              json_pack("{s:s, s:s}", "name", c->slots[i].provenance.model_name,
                                        "fingerprint", c->slots[i].provenance.fingerprint));
    return models;
}

static json_t *describe_clip(const char *path)
{
    char *name = identity_name(path);
    json_t *text = json_string(name);
    free(name);
    return text;
}

static json_t *describe_all(const struct results *r, const struct comparison *c)
{
    static const char *const kinds[] = {"converged", "setting", "file"};
    const struct axes *axes = &c->axes;
    const char *clip = c->request->compare.clip;
    json_t *settings = json_array(), *cells = json_array(), *problems = json_array(),
           *reference = json_object();
    for (size_t i = 0; i < r->n_settings; i++)
        if (r->settings[i].first != SIZE_MAX)
            json_array_append_new(settings, describe_setting(r, c, &r->settings[i]));
    for (size_t i = 0; i < c->n_cells; i++)
        json_array_append_new(cells, describe_cell(c, &c->cells[i]));
    for (size_t i = 0; i < c->n_problems; i++)
        json_array_append_new(problems, describe_problem(c, &c->problems[i]));
    json_object_set_new(reference, "kind", json_string(kinds[c->reference.kind]));
    json_object_set_new(reference, "tolerance", json_real(c->request->compare.tolerance));
    json_object_set_new(reference, "problems", problems);
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:s, s:s, s:o, s:o, s:o, s:o}", "schema",
                     SCHEMA, "darkroom", DK_VERSION, "cpu", dk_cpu_level(), "models",
                     describe_models(c), "clip", clip ? describe_clip(clip) : json_null(), "axes",
                     axes_to_json(axes), "rows", axes->items[axes->rows].option->name, "columns",
                     axes->items[axes->columns].option->name, "reference", reference, "answers",
                     describe_answers(r, c), "settings", settings, "cells", cells);
}

static bool write_json(const struct results *r, const struct comparison *c, struct dk_error *err)
{
    json_t *all = describe_all(r, c);
    char *text = json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    bool ok = text ? store_write(c->folder, "results.json", text, strlen(text), err)
                   : say_fail(err, DK_ERROR_MEMORY, "results.json: out of memory");
    free(text);
    json_decref(all);
    return ok;
}

bool table_write(const struct results *r, const struct comparison *c, struct dk_error *err)
{
    return write_csv(r, c, err) && write_json(r, c, err);
}

/* ---- for a terminal ------------------------------------------------------------------------ */

#define LEAST_NAME 24
#define MOST_NAME  60

/* Room for the names of all series. */
static size_t name_width(const struct results *r)
{
    size_t most = LEAST_NAME;
    for (size_t k = 0; k < r->n_series; k++) {
        size_t n = text_length(r->series[k].name);
        if (n > most) most = n;
    }
    return most < MOST_NAME ? most : MOST_NAME;
}

static void print_name(const char *name, size_t width)
{
    char *shown = text_shortened(name, width);
    text_print(stdout, shown);
    printf("%*s", (int)(width - text_length(shown)), "");
    free(shown);
}

static void print_choice(const struct comparison *c, const char *what,
                         const struct setting *setting)
{
    char *command = setting_command(c, setting);
    printf("  %s: ", what);
    text_print(stdout, command);
    putchar('\n');
    free(command);
}

static void print_answers(const struct results *r, const struct comparison *c)
{
    size_t width = name_width(r);
    if (!results_compared(r)) {
        puts("\nNoise is drawn on the way, so no picture can be compared with the reference one by "
             "one;\nreport.html has the statistics.");
        return;
    }
    for (size_t t = 0; t < r->n_targets; t++) {
        char text[48];
        target_describe(&r->targets[t], text);
        printf("\nWithin %s of the reference:\n", text);
        for (size_t k = 0; k < r->n_series; k++) {
            const struct series *s = &r->series[k];
            if (r->settings[s->settings[0]].by_statistics) continue;
            fputs("  ", stdout);
            print_name(s->name, width);
            putchar(' ');
            if (s->fewest[t] == SIZE_MAX)
                puts("not reached");
            else
                printf("%d steps, %.2f s\n",
                       c->cells[r->settings[s->fewest[t]].first].request.settings.n_steps,
                       r->settings[s->fewest[t]].q[Q_SECONDS].mean);
        }
        if (r->fastest[t] == SIZE_MAX) continue;
        bool one = r->fewest[t] == r->fastest[t];
        print_choice(c, one ? "fewest steps and fastest" : "fewest steps", &r->settings[r->fewest[t]]);
        if (!one) print_choice(c, "fastest", &r->settings[r->fastest[t]]);
    }
}

/* Columns that a table has where their numbers are known. */
static const struct {
    enum quantity quantity;
    const char *heading;
} more[] = {{Q_BACKGROUND, "ground"}, {Q_NEAREST, "nearest"}, {Q_CLIP, "clip"}};
#define N_MORE (sizeof more / sizeof more[0])

void table_print(const struct results *r, const struct comparison *c)
{
    char a[32], b[32];
    size_t width = name_width(r);
    printf("%-*s %5s %6s %8s %9s %8s %7s %8s %9s", (int)width, "", "steps", "passes", "seconds", "rmse",
           "psnr dB", "ssim", "sharper", "contrast");
    for (size_t i = 0; i < N_MORE; i++)
        if (r->has[more[i].quantity]) printf(" %8s", more[i].heading);
    putchar('\n');
    for (size_t k = 0; k < r->n_series; k++)
        for (size_t i = 0; i < r->series[k].n; i++) {
            const struct setting *s = &r->settings[r->series[k].settings[i]];
            if (s->n_done == 0) continue;
            print_name(r->series[k].name, width);
            printf(" %5d %6.0f %8.2f ",
                   c->cells[s->first].request.settings.n_steps, s->q[Q_PASSES].mean,
                   s->q[Q_SECONDS].mean);
            if (s->by_statistics)
                printf("%9s %8s %7s ", "-", "-", "-");
            else if (isnan(s->q[Q_RMSE].mean))
                printf("%9s %8.2f %7.4f ", "-", s->q[Q_PSNR].mean, s->q[Q_SSIM].mean);
            else
                printf("%9.4g %8.2f %7.4f ", s->q[Q_RMSE].mean, s->q[Q_PSNR].mean,
                       s->q[Q_SSIM].mean);
            printf("%8s %9s", number(round(s->q[Q_SHARPER].mean * 1000) / 1000, a),
                   number(round(s->q[Q_CONTRAST].mean * 100) / 100, b));
            for (size_t n = 0; n < N_MORE; n++)
                if (r->has[more[n].quantity])
                    printf(" %8s", number(round(s->q[more[n].quantity].mean * 100) / 100, a));
            puts(s->pareto ? "  *" : "");
        }
    puts("* nothing is both faster and nearer to the reference");
    print_answers(r, c);
}
