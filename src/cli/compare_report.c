/* compare_report.c - what a comparison tells while it runs. */
/* SPDX-License-Identifier: MIT */
#include "compare_report.h"

#include "say.h"
#include "text.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define REWRITE_S 0.1
#define PLAIN_S   10.0 /* in a log */

void compare_report_init(struct compare_report *r, const struct request *request)
{
    *r = (struct compare_report){.quiet = request->quiet, .json = request->json};
    progress_init(&r->progress, request->quiet);
    r->told_s = progress_now_s();
}

void compare_report_free(struct compare_report *r)
{
    progress_clear(&r->progress);
    tally_free(&r->warnings);
}

void compare_report_time(double seconds, char text[32])
{
    if (seconds >= 3600)
        snprintf(text, 32, "%dh %02dm", (int)(seconds / 3600), (int)(seconds / 60) % 60);
    else if (seconds >= 60)
        snprintf(text, 32, "%dm %02ds", (int)(seconds / 60), (int)seconds % 60);
    else
        snprintf(text, 32, seconds >= 10 ? "%.0f s" : "%.2g s", seconds);
}

double compare_report_estimate(const struct compare_report *r, long long passes, size_t decodes)
{
    if (r->passes == 0) return NAN;
    double decode_s = r->decodes ? r->decode_s / (double)r->decodes : 0;
    return (double)passes * r->denoise_s / (double)r->passes + (double)decodes * decode_s;
}

void compare_report_measured(struct compare_report *r, const struct dk_stats *stats,
                             bool provisional)
{
    if (r->provisional || provisional) {
        r->passes = 0;
        r->decodes = 0;
        r->denoise_s = r->decode_s = 0;
    }
    r->provisional = provisional;
    r->passes += stats->unet_passes;
    r->denoise_s += stats->denoise_s;
    r->decodes++;
    r->decode_s += stats->decode_s;
}

/* ---- the line of progress ------------------------------------------------------------------ */

/* Whether it is time for a line again. */
static bool is_due(const struct compare_report *r)
{
    double pause_s = r->progress.terminal.can_rewrite ? REWRITE_S : PLAIN_S;
    return !r->quiet && progress_now_s() - r->told_s >= pause_s;
}

static void put_line(struct compare_report *r, const char *text)
{
    if (r->progress.terminal.can_rewrite) {
        fprintf(stderr, "\r\033[K%.*s", r->progress.terminal.n_columns - 1, text);
        fflush(stderr);
        r->progress.on_line = true;
    } else {
        fprintf(stderr, "%s\n", text);
    }
    r->told_s = progress_now_s();
}

static void show(struct compare_report *r, const char *more, long long passes_done)
{
    if (!is_due(r)) return;
    char eta[32] = "", left[48] = "";
    double left_s = compare_report_estimate(r, r->passes_left - passes_done, r->decodes_left);
    if (left_s > 0) compare_report_time(left_s, eta);
    if (*eta) snprintf(left, sizeof left, ", ETA %s", eta);
    char text[256];
    snprintf(text, sizeof text, "%zu of %zu cells%s%s", r->n_done, r->n_cells, left, more);
    put_line(r, text);
}

void compare_report_progress(void *user, const struct dk_progress *progress)
{
    struct compare_report *r = user;
    char more[64] = "";
    if (progress->phase == DK_PHASE_DENOISE)
        snprintf(more, sizeof more, "; %s: call %d/%d", r->in_reference ? "reference" : "cell",
                 progress->done, progress->total);
    bool known = progress->phase == DK_PHASE_DENOISE && progress->total > 0;
    show(r, more, known ? (long long)r->cell_passes * progress->done / progress->total : 0);
}

void compare_report_warn(void *user, const char *sentence)
{
    struct compare_report *r = user;
    if ((*tally_at(&r->warnings, sentence))++ > 0) return;
    progress_clear(&r->progress);
    say_warning(sentence);
}

__attribute__((format(printf, 2, 3))) static void note(struct compare_report *r, const char *format,
                                                       ...)
{
    char text[1024];
    va_list list;
    if (r->quiet) return;
    progress_clear(&r->progress);
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    say_note("%s", text);
}

/* ---- events -------------------------------------------------------------------------------- */

static void put_event(json_t *event)
{
    char *line = metadata_line(event);
    puts(line);
    fflush(stdout);
    free(line);
    json_decref(event);
}

void compare_report_plan(struct compare_report *r)
{
    double left_s = compare_report_estimate(r, r->passes_left, r->decodes_left);
    if (r->json)
        put_event(json_pack("{s:s, s:I, s:I, s:I, s:o}", "event", "plan", "cells",
                            (json_int_t)r->n_cells, "done", (json_int_t)r->n_done, "passes_left",
                            (json_int_t)r->passes_left, "seconds_left",
                            isnan(left_s) ? json_null() : json_real(left_s)));
    if (r->quiet) return;
    char eta[32] = "";
    if (!isnan(left_s)) compare_report_time(left_s, eta);
    fprintf(stderr, "%zu cells, %zu finished before; %lld passes to go%s%s\n", r->n_cells,
            r->n_kept, r->passes_left, *eta ? ", about " : "", eta);
}

void compare_report_cell(struct compare_report *r, const struct comparison *c,
                         const struct cell *cell, bool is_reference)
{
    if (!is_reference) r->n_done++;
    show(r, "", 0);
    if (!r->json) return;
    const struct outcome *o = &cell->outcome;
    json_t *values = json_object();
    for (size_t i = 0; !is_reference && i < c->axes.n_items; i++)
        json_object_set_new(values, c->axes.items[i].option->name,
                            option_get(&cell->request, c->axes.items[i].option));
    if (is_reference)
        json_object_set_new(values, "steps", json_integer(cell->request.settings.n_steps));
    put_event(json_pack("{s:s, s:s, s:s, s:b, s:o, s:i, s:f, s:I, s:I}", "event", "cell", "cell",
                        cell->id, "file", cell->file, "reference", is_reference, "settings", values,
                        "unet_passes", o->n_passes, "seconds",
                        o->text_s + o->denoise_s + o->decode_s, "done", (json_int_t)r->n_done,
                        "cells", (json_int_t)r->n_cells));
}

void compare_report_failed(struct compare_report *r, const struct cell *cell, const char *sentence)
{
    progress_clear(&r->progress);
    say_error("%s: %s", cell->file, sentence);
    if (r->json)
        put_event(
            json_pack("{s:s, s:s, s:s}", "event", "failed", "cell", cell->id, "error", sentence));
}

void compare_report_reference(struct compare_report *r, const struct comparison *c,
                              const struct problem *problem)
{
    const struct cell *last = problem_reference(c, problem);
    if (!last) return;
    double change = problem->n_used > 1 ? problem->changes[problem->n_used - 1] : NAN;
    if (!problem->converged)
        note(
            r,
            "the reference with seed %llu did not converge: at %d steps doubling still changed the "
            "latent by %.2g",
            (unsigned long long)last->request.settings.seed, last->request.settings.n_steps,
            change);
    if (r->json)
        put_event(json_pack("{s:s, s:s, s:s, s:i, s:o, s:b}", "event", "reference", "cell",
                            last->id, "file", last->file, "steps", last->request.settings.n_steps,
                            "change", isnan(change) ? json_null() : json_real(change), "converged",
                            problem->converged));
}

void compare_report_score(void *user, size_t n_scored)
{
    struct compare_report *r = user;
    char text[64];
    if (!is_due(r)) return;
    snprintf(text, sizeof text, "CLIP scores: %zu done", n_scored);
    put_line(r, text);
}

void compare_report_end(struct compare_report *r, const char *folder, int status)
{
    progress_clear(&r->progress);
    if (r->json)
        put_event(json_pack("{s:s, s:i, s:I, s:I, s:s}", "event", "end", "status", status, "done",
                            (json_int_t)r->n_done, "cells", (json_int_t)r->n_cells, "report",
                            status == EXIT_DONE || status == EXIT_PARTLY ? "report.html" : ""));
    else if (!r->quiet && (status == EXIT_DONE || status == EXIT_PARTLY)) {
        fputs("\n", stdout);
        text_print(stdout, folder);
        puts("/report.html");
    }
}
