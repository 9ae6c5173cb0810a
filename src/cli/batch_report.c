/* batch_report.c - what a batch tells: a line of progress, names, JSON events. */
/* SPDX-License-Identifier: MIT */
#include "batch_report.h"

#include "progress.h"
#include "say.h"
#include "text.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define REWRITE_S 0.1
#define PLAIN_S   10.0 /* in a log */

void report_init(struct report *report, const struct request *request, const char *folder)
{
    memset(report, 0, sizeof *report);
    pthread_mutex_init(&report->lock, NULL);
    report->terminal = terminal_at(stderr);
    report->folder = folder;
    report->quiet = request->quiet;
    report->json = request->json;
    report->start_s = report->told_s = progress_now_s();
}

void report_free(struct report *report)
{
    pthread_mutex_destroy(&report->lock);
}

/* ---- the line of progress ------------------------------------------------------------------ */

static void clear_line(struct report *report)
{
    if (report->on_line) fputs("\r\033[K", stderr);
    report->on_line = false;
}

static size_t n_left(const struct report *report)
{
    return report->n_jobs - report->n_done - report->n_failed;
}

/* By all processes on the folder since this one began; 0 while nothing is known. */
static double per_minute(const struct report *report)
{
    double elapsed_s = progress_now_s() - report->start_s;
    size_t n = report->n_done - report->n_before;
    return n > 0 && elapsed_s > 0 ? 60 * (double)n / elapsed_s : 0;
}

static double eta_s(const struct report *report)
{
    double rate = per_minute(report);
    return rate > 0 ? 60 * (double)n_left(report) / rate : NAN;
}

static void print_eta(char *text, size_t size, double seconds)
{
    if (seconds >= 3600)
        snprintf(text, size, "%dh %02dm", (int)(seconds / 3600), (int)(seconds / 60) % 60);
    else if (seconds >= 60)
        snprintf(text, size, "%dm %02ds", (int)(seconds / 60), (int)seconds % 60);
    else
        snprintf(text, size, "%.0f s", seconds);
}

/* "12 of 1000 done, 1 failed, 987 left, 34.2 pictures/min, ETA 28m 51s". */
static void describe(const struct report *report, char *text, size_t size)
{
    char failed[48] = "", speed[64] = "", eta[32];
    double rate = per_minute(report), left_s = eta_s(report);
    if (report->n_failed) snprintf(failed, sizeof failed, ", %zu failed", report->n_failed);
    if (rate > 0 && n_left(report) > 0) {
        print_eta(eta, sizeof eta, left_s);
        snprintf(speed, sizeof speed, ", %.1f pictures/min, ETA %s", rate, eta);
    }
    if (report->growing)
        snprintf(text, size, "%zu done%s", report->n_done, failed);
    else
        snprintf(text, size, "%zu of %zu done%s, %zu left%s", report->n_done, report->n_jobs,
                 failed, n_left(report), speed);
}

static void show(struct report *report, bool now, const char *more)
{
    double now_s = progress_now_s();
    bool rewrite = report->terminal.can_rewrite;
    if (report->quiet || (!now && now_s - report->told_s < (rewrite ? REWRITE_S : PLAIN_S))) return;
    char text[256];
    describe(report, text, sizeof text);
    if (rewrite) {
        fprintf(stderr, "\r\033[K%.*s", report->terminal.n_columns - 1, text);
        int room = report->terminal.n_columns - 1 - (int)strlen(text);
        if (room > 0) fprintf(stderr, "%.*s", room, more);
        fflush(stderr);
        report->on_line = true;
    } else {
        fprintf(stderr, "%s%s\n", text, more);
    }
    report->told_s = now_s;
}

void report_progress(void *user, const struct dk_progress *progress)
{
    struct report *report = user;
    char more[64];
    pthread_mutex_lock(&report->lock);
    if (progress->phase == DK_PHASE_DENOISE)
        snprintf(more, sizeof more, "; pass %d/%d", progress->done, progress->total);
    else
        snprintf(more, sizeof more, "; %s", progress->phase == DK_PHASE_DECODE ? "decode" : "text");
    show(report, false, report->terminal.can_rewrite ? more : "");
    pthread_mutex_unlock(&report->lock);
}

void report_waiting(struct report *report, size_t n_others)
{
    char more[96];
    pthread_mutex_lock(&report->lock);
    snprintf(more, sizeof more, "; waiting for %zu that others are making", n_others);
    show(report, false, more);
    pthread_mutex_unlock(&report->lock);
}

/* ---- sentences ----------------------------------------------------------------------------- */

void report_warn(void *user, const char *sentence)
{
    struct report *report = user;
    pthread_mutex_lock(&report->lock);
    clear_line(report);
    say_warning(sentence);
    pthread_mutex_unlock(&report->lock);
}

static void say_list(struct report *report, bool error, const char *format, va_list list)
{
    char sentence[2048];
    vsnprintf(sentence, sizeof sentence, format, list);
    pthread_mutex_lock(&report->lock);
    clear_line(report);
    if (error)
        say_error("%s", sentence);
    else if (!report->quiet)
        say_note("%s", sentence);
    pthread_mutex_unlock(&report->lock);
}

void report_note(struct report *report, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say_list(report, false, format, list);
    va_end(list);
}

void report_error(struct report *report, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say_list(report, true, format, list);
    va_end(list);
}

/* ---- events -------------------------------------------------------------------------------- */

static double milliseconds(double seconds)
{
    return round(seconds * 1e3) / 1e3;
}

static void put_counts(const struct report *report, json_t *event)
{
    double rate = per_minute(report), left_s = eta_s(report);
    json_object_set_new(event, "jobs", json_integer((json_int_t)report->n_jobs));
    json_object_set_new(event, "done", json_integer((json_int_t)report->n_done));
    json_object_set_new(event, "failed", json_integer((json_int_t)report->n_failed));
    json_object_set_new(event, "left", json_integer((json_int_t)n_left(report)));
    json_object_set_new(event, "pictures_per_minute", json_real(milliseconds(rate)));
    json_object_set_new(event, "eta_s",
                        isfinite(left_s) ? json_real(milliseconds(left_s)) : json_null());
}

static json_t *new_event(const char *name, const struct job *job)
{
    json_t *event = json_object();
    json_object_set_new(event, "event", json_string(name));
    if (!job) return event;
    json_object_set_new(event, "job", json_string(job->id));
    json_object_set_new(event, "index", json_integer((json_int_t)job->index));
    json_object_set_new(event, "line", json_integer((json_int_t)job->line));
    return event;
}

/* Consumes the event. The lock is held. */
static void print_event(struct report *report, json_t *event)
{
    char *line = metadata_line(event);
    if (report->json) {
        puts(line);
        if (fflush(stdout) != 0) report->output_failed = true;
    }
    free(line);
    json_decref(event);
}

static void print_counts(struct report *report, const char *name)
{
    json_t *event = new_event(name, NULL);
    put_counts(report, event);
    print_event(report, event);
}

void report_plan(struct report *report, size_t n_jobs, size_t n_before)
{
    pthread_mutex_lock(&report->lock);
    report->n_jobs = n_jobs;
    report->n_done = report->n_before = n_before;
    report->start_s = progress_now_s();
    print_counts(report, "plan");
    show(report, true, "");
    pthread_mutex_unlock(&report->lock);
}

void report_more(struct report *report, bool done)
{
    pthread_mutex_lock(&report->lock);
    report->n_jobs++;
    report->n_done += done;
    report->n_before += done;
    pthread_mutex_unlock(&report->lock);
}

void report_start(struct report *report, const struct job *job)
{
    pthread_mutex_lock(&report->lock);
    print_event(report, new_event("start", job));
    pthread_mutex_unlock(&report->lock);
}

void report_done(struct report *report, const struct job *job, const json_t *line, bool by_others)
{
    pthread_mutex_lock(&report->lock);
    report->n_done++;
    if (!by_others) {
        report->n_made++;
        const char *file = json_string_value(json_object_get(line, "file"));
        char *path = text_format("%s/%s", report->folder, file ? file : "");
        clear_line(report);
        json_t *event = new_event("done", job);
        json_object_set_new(event, "output", json_string(path));
        json_object_set_new(
            event, "seed", json_incref(json_object_get(json_object_get(line, "settings"), "seed")));
        json_object_set(event, "seconds", json_object_get(line, "seconds"));
        put_counts(report, event);
        print_event(report, event);
        if (!report->json) {
            text_print(stdout, path);
            putchar('\n');
            if (fflush(stdout) != 0) report->output_failed = true;
        }
        free(path);
    }
    show(report, false, "");
    pthread_mutex_unlock(&report->lock);
}

void report_failed(struct report *report, const struct job *job, const char *source,
                   const char *sentence, bool by_others)
{
    pthread_mutex_lock(&report->lock);
    report->n_failed++;
    clear_line(report);
    if (!by_others) {
        json_t *event = new_event("failed", job);
        json_object_set_new(event, "error", json_string(sentence));
        put_counts(report, event);
        print_event(report, event);
    }
    say_error("%s:%zu: picture %zu%s: %s", source, job->line, job->index,
              by_others ? " (by another process)" : "", sentence);
    pthread_mutex_unlock(&report->lock);
}

void report_end(struct report *report, int status)
{
    pthread_mutex_lock(&report->lock);
    clear_line(report);
    report->growing = false;
    json_t *event = new_event("end", NULL);
    put_counts(report, event);
    json_object_set_new(event, "made", json_integer((json_int_t)report->n_made));
    json_object_set_new(event, "status", json_integer(status));
    print_event(report, event);
    if (!report->quiet) {
        char spent[32];
        double seconds = progress_now_s() - report->start_s;
        print_eta(spent, sizeof spent, seconds);
        fprintf(stderr, "%zu of %zu done, %zu failed, %zu left; %zu made here in %s",
                report->n_done, report->n_jobs, report->n_failed, n_left(report), report->n_made,
                spent);
        if (report->n_made > 0 && seconds > 0)
            fprintf(stderr, ", %.1f pictures/min", 60 * (double)report->n_made / seconds);
        fputc('\n', stderr);
    }
    pthread_mutex_unlock(&report->lock);
}
