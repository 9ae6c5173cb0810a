/* progress.c - how far a picture is: one line rewritten on a terminal, plain lines elsewhere. */
/* SPDX-License-Identifier: MIT */
#include "progress.h"

#include "interrupt.h"

#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define REWRITE_S 0.1 /* a line that changes faster cannot be read, and writing it costs time */
#define PLAIN_S   5.0
#define PREVIEW_S 0.25

static const char *const phase_names[N_PHASES] = {"load", "text", "denoise", "decode"};

double progress_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

size_t progress_peak_bytes(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (size_t)usage.ru_maxrss * 1024; /* Linux counts in KiB */
}

void progress_init(struct progress *progress, bool quiet)
{
    memset(progress, 0, sizeof *progress);
    progress->terminal = terminal_at(stderr);
    progress->quiet = quiet;
    progress->index = progress->count = 1;
    progress->phase_start_s = progress->told_s = progress_now_s();
}

void progress_picture(struct progress *progress, int index, int count, int n_steps)
{
    progress->index = index;
    progress->count = count;
    progress->n_steps = n_steps;
    progress->phase = DK_PHASE_LOAD;
    progress->n_drawn = 0;
}

void progress_clear(struct progress *progress)
{
    if (progress->on_line) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    progress->on_line = false;
    progress->n_drawn = 0;
}

/* "4m 20s", "12 s", "0.8 s" */
static void print_time(char *buffer, size_t size, double seconds)
{
    if (seconds >= 3600)
        snprintf(buffer, size, "%.0fh %02.0fm", (double)(long)(seconds / 3600),
                 (double)((long)(seconds / 60) % 60));
    else if (seconds >= 60)
        snprintf(buffer, size, "%dm %02ds", (int)seconds / 60, (int)seconds % 60);
    else
        snprintf(buffer, size, seconds >= 10 ? "%.0f s" : "%.1f s", seconds);
}

/* "step 12/20, 8.31 steps/s, 1.0 s left": rates by the share of calls done, so that two-call steps
 * count as one. */
static void describe_steps(const struct progress *progress, const struct dk_progress *report,
                           double now_s, char *text, size_t size)
{
    double share = report->total > 0 ? (double)report->done / report->total : 0;
    double steps = share * progress->n_steps, elapsed_s = now_s - progress->phase_start_s;
    int n = snprintf(text, size, "step %d/%d", (int)(steps + 1e-9), progress->n_steps);
    if (report->done < 1 || elapsed_s <= 0 || n < 0 || (size_t)n >= size) return;
    char left[32];
    print_time(left, sizeof left, elapsed_s * (1 - share) / share);
    double rate = steps / elapsed_s;
    snprintf(text + n, size - (size_t)n,
             rate >= 1 ? ", %.2f steps/s, %s left" : ", %.2f s/step, %s left",
             rate >= 1 ? rate : 1 / rate, left);
}

static void describe(const struct progress *progress, const struct dk_progress *report,
                     double now_s, char *text, size_t size)
{
    char picture[48] = "", steps[128] = "";
    if (progress->count > 1)
        snprintf(picture, sizeof picture, "%d/%d ", progress->index, progress->count);
    if (report->phase == DK_PHASE_DENOISE)
        describe_steps(progress, report, now_s, steps, sizeof steps);
    else if (report->done >= report->total)
        print_time(steps, sizeof steps, now_s - progress->phase_start_s);
    snprintf(text, size, "%s%s%s%s", picture, phase_names[report->phase], *steps ? " " : "", steps);
}

/* The preview moves up behind the line it belongs to: back to its first row, both written again. */
static void draw_preview(struct progress *progress, const struct dk_image *image)
{
    if (progress->on_line) fputs("\r\033[K", stderr);
    if (progress->n_drawn > 0) fprintf(stderr, "\033[%dA", progress->n_drawn);
    progress->n_drawn = terminal_draw(stderr, &progress->terminal, image);
}

static void rewrite_line(struct progress *progress, const char *text)
{
    int room = progress->terminal.n_columns - 1;
    bool colour = progress->terminal.colours != COLOURS_NONE;
    fprintf(stderr, "\r\033[K%s%.*s%s", colour ? "\033[36m" : "", room, text,
            colour ? "\033[0m" : "");
    fflush(stderr);
    progress->on_line = true;
}

/* Each file is synced to the disk, so not every step of a fast run gets one. */
static void write_preview(struct progress *progress, const struct dk_image *image, double now_s)
{
    if (now_s - progress->preview_s < PREVIEW_S) return;
    progress->preview_s = now_s;
    interrupt_hold(true);
    dk_png_write(progress->preview, image, NULL, 0, true,
                 NULL); /* a preview that fails is no reason to stop */
    interrupt_hold(false);
}

/* Phases shorter than this are not worth a line of their own in a log, but a long load is. */
static bool worth_a_plain_line(struct progress *progress, const struct dk_progress *report,
                               double now_s)
{
    if (report->phase != DK_PHASE_DENOISE) return report->done >= report->total;
    int quarter = report->total > 0 ? (int)(4L * report->done / report->total) : 0;
    bool due = quarter > progress->told_quarter || now_s - progress->told_s >= PLAIN_S;
    if (due) progress->told_quarter = quarter;
    return due && report->done > 0;
}

void progress_report(void *user, const struct dk_progress *report)
{
    struct progress *progress = user;
    if (report->phase < DK_PHASE_LOAD || report->phase > DK_PHASE_DECODE) return;
    double now_s = progress_now_s();
    if (report->phase != progress->phase || report->done == 0) {
        progress->phase = report->phase;
        progress->phase_start_s = now_s;
        progress->told_s = progress->terminal.can_rewrite ? 0 : now_s;
        progress->told_quarter = 0;
    }
    if (report->preview && progress->preview) write_preview(progress, report->preview, now_s);
    if (progress->quiet) return;
    char text[256];
    describe(progress, report, now_s, text, sizeof text);
    if (progress->terminal.can_rewrite) {
        if (now_s - progress->told_s < REWRITE_S && report->done < report->total) return;
        if (report->preview && progress->draw) draw_preview(progress, report->preview);
        rewrite_line(progress, text);
    } else if (worth_a_plain_line(progress, report, now_s)) {
        fprintf(stderr, "%s\n", text);
    } else {
        return;
    }
    progress->told_s = now_s;
}

void progress_bytes(struct progress *progress, const char *what, size_t done, size_t total)
{
    if (progress->quiet || total == 0) return;
    double now_s = progress_now_s(), elapsed_s = now_s - progress->phase_start_s;
    double share = (double)done / (double)total;
    char text[256], left[32];
    int tenth = (int)(10 * share);
    print_time(left, sizeof left, share > 0 ? elapsed_s * (1 - share) / share : 0);
    snprintf(text, sizeof text, "%s %.1f of %.1f MB, %.0f MB/s, %s left", what, (double)done / 1e6,
             (double)total / 1e6, elapsed_s > 0 ? (double)done / 1e6 / elapsed_s : 0, left);
    if (progress->terminal.can_rewrite) {
        if (now_s - progress->told_s < REWRITE_S && done < total) return;
        rewrite_line(progress, text);
    } else {
        bool soon = now_s - progress->told_s < 1 && done < total; /* a short job is no news */
        if (tenth <= progress->told_quarter || soon) return;
        progress->told_quarter = tenth;
        fprintf(stderr, "%s\n", text);
    }
    progress->told_s = now_s;
}
