/* batch.c - the command batch: a file of prompts becomes a folder of pictures. */
/* SPDX-License-Identifier: MIT */
#include "batch_manifest.h"
#include "batch_plan.h"
#include "batch_report.h"
#include "batch_shard.h"
#include "batch_sheet.h"
#include "batch_source.h"
#include "batch_writer.h"
#include "commands.h"
#include "interrupt.h"
#include "output.h"
#include "progress.h"
#include "say.h"
#include "text.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_TOGETHER  4   /* what the library computes at once */
#define LOOK_AHEAD    256 /* jobs passed over while looking for ones of the same size */
#define MAX_SENTENCES 20  /* about bad lines */

struct batch {
    struct request *request;
    const char *path; /* of the prompts, or "-" */
    char *folder, *staging;
    struct batch_source source;
    struct shard shard;
    struct dk_model *model;
    char *model_path;
    struct provenance provenance;
    struct plan plan;
    struct manifest manifest;
    struct claims *claims;
    struct writer *writer;
    struct report report;
    size_t first_open; /* jobs before it need no more looking at */
    size_t n_bad;      /* lines */
    enum dk_code bad;  /* what they come to: memory where all of them lack that, else wrong usage */
    size_t n_done_before;
    bool stop;
    struct dk_error err; /* why it stopped */
};

static bool goes_on(const struct batch *b)
{
    const char *choice = b->request->batch.on_error;
    return choice ? strcmp(choice, "continue") == 0 : b->request->batch.keep_going;
}

static bool is_stream(const struct batch *b)
{
    return strcmp(b->path, "-") == 0;
}

/* ---- the plan ------------------------------------------------------------------------------ */

static void say_replaced(struct batch *b, const struct request *request, size_t line)
{
    size_t n = request->n_replaced_bytes - b->request->n_replaced_bytes;
    if (n == 0) return;
    char *sentence = text_format("%s:%zu: %zu byte%s not UTF-8 became U+FFFD", b->source.name, line,
                                 n, n == 1 ? "" : "s");
    report_warn(&b->report, sentence);
    free(sentence);
}

static void say_bad(struct batch *b, const struct dk_error *err)
{
    if (err->code != DK_ERROR_MEMORY)
        b->bad = DK_ERROR_ARGUMENT;
    else if (b->n_bad == 0)
        b->bad = DK_ERROR_MEMORY;
    if (++b->n_bad <= MAX_SENTENCES) report_error(&b->report, "%s", err->message);
    if (b->n_bad == MAX_SENTENCES + 1)
        report_error(&b->report, "... and more lines that are wrong");
}

/* The next line's jobs come into the plan. */
static enum source_result read_job(struct batch *b)
{
    struct request request;
    struct dk_error err = {0};
    size_t line = 0;
    plan_line_init(&b->plan, &request);
    enum source_result result = batch_source_next(&b->source, &request, &line, &err);
    if (result != SOURCE_JOB)
        request_free(&request);
    else {
        say_replaced(b, &request, line);
        if (!plan_add(&b->plan, &request, line, &err)) result = SOURCE_BAD;
    }
    if (result == SOURCE_BAD) say_bad(b, &err);
    if (result == SOURCE_BROKEN) b->err = err;
    return result;
}

static bool read_all(struct batch *b)
{
    enum source_result result;
    while ((result = read_job(b)) == SOURCE_JOB || result == SOURCE_BAD) {}
    if (result == SOURCE_BROKEN) return false;
    if (b->n_bad > 0 && !b->request->batch.keep_going)
        return say_fail(
            &b->err, b->bad,
            "%s: %zu line%s wrong; nothing was rendered (--keep-going renders the others)",
            b->source.name, b->n_bad, b->n_bad == 1 ? " is" : "s are");
    if (b->plan.n_jobs == 0)
        return say_fail(&b->err, b->n_bad ? b->bad : DK_ERROR_FORMAT, "%s: holds no prompt%s",
                        b->source.name, b->n_bad ? " that can be rendered" : "");
    return true;
}

/* ---- what is done already ------------------------------------------------------------------ */

static char *in_folder(const struct batch *b, const char *name)
{
    return text_format("%s/%s", b->folder, name);
}

static bool is_whole(const char *path, const struct manifest_entry *entry, bool verify)
{
    struct stat status;
    char sha256[65];
    long long size_bytes;
    struct dk_error ignored = {0};
    if (lstat(path, &status) != 0 || !S_ISREG(status.st_mode) ||
        status.st_size != entry->size_bytes)
        return false;
    return !verify || (manifest_hash(path, sha256, &size_bytes, &ignored) &&
                       strcmp(sha256, entry->sha256) == 0);
}

/* A picture whose last step, getting its name, was cut off. */
static bool finish_staged(struct batch *b, const char *path, const struct manifest_entry *entry)
{
    bool taken;
    struct stat status;
    struct dk_error ignored = {0};
    char *staged = text_format("%s/%s.png", b->staging, entry->job);
    bool ok = lstat(path, &status) != 0 && is_whole(staged, entry, true) &&
              publish(staged, path, false, &taken, &ignored);
    free(staged);
    return ok;
}

/*
 * The file that stands under the job's name says itself that it is this very job: its line in the
 * manifest was lost. It is made again over it, so that nothing rests on an unrecorded file.
 */
static void recognise(struct batch *b, struct job *job)
{
    struct stat status;
    struct record record;
    struct dk_error ignored = {0};
    char *path = in_folder(b, job->name);
    if (lstat(path, &status) == 0 && S_ISREG(status.st_mode) &&
        record_read(path, &record, &ignored)) {
        json_t *own = metadata_record(&job->request, &b->provenance);
        char *ours = metadata_line(own),
             *theirs = record.is_exact ? metadata_line(record.settings) : text_copy("");
        if (strcmp(ours, theirs) == 0) job->replaces = text_copy(job->name);
        free(ours);
        free(theirs);
        json_decref(own);
        record_free(&record);
    }
    free(path);
}

/* True if the job's picture is there. A damaged one may be replaced. */
static bool is_made(struct batch *b, struct job *job)
{
    const struct manifest_entry *entry = manifest_find(&b->manifest, job->id);
    if (!entry) recognise(b, job);
    if (!entry || !entry->is_done) return false;
    char *path = in_folder(b, entry->file);
    bool ok = is_whole(path, entry, b->request->batch.verify) || finish_staged(b, path, entry);
    struct stat status;
    if (!ok && lstat(path, &status) == 0) {
        report_note(&b->report, "%s: is damaged, and will be made again", path);
        free(job->replaces);
        job->replaces = text_copy(entry->file);
    }
    free(path);
    return ok;
}

/* Jobs from number first on: whose are they, and what is left to do. */
static void settle(struct batch *b, size_t first)
{
    for (size_t i = first; i < b->plan.n_jobs; i++) {
        struct job *job = b->plan.jobs[i];
        if (i % b->shard.count != b->shard.index)
            job->state = JOB_ELSEWHERE;
        else if (is_made(b, job))
            job->state = JOB_DONE;
    }
}

static size_t count(const struct batch *b, enum job_state state)
{
    size_t n = 0;
    for (size_t i = 0; i < b->plan.n_jobs; i++) n += b->plan.jobs[i]->state == state;
    return n;
}

/* ---- choosing the next jobs ---------------------------------------------------------------- */

/*
 * Small pictures leave most of a call to overhead: four 32 x 32 pictures take 0.8 of the time
 * together, at 64 x 64 there is no difference (models/emoji, AVX2). Alone, fewer are lost when the
 * machine stops.
 */
static size_t group_size(const struct batch *b, const struct job *job)
{
    const struct dk_settings *s = &job->request.settings;
    if (b->request->batch.group > 0) return (size_t)b->request->batch.group;
    return (int64_t)s->width_px * s->height_px <= 48 * 48 ? MAX_TOGETHER : 1;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool fit_together(const struct job *a, const struct job *b)
{
    const struct dk_settings *s = &a->request.settings, *t = &b->request.settings;
    return s->width_px == t->width_px && s->height_px == t->height_px && s->n_steps == t->n_steps &&
           same_text(s->scheduler, t->scheduler) && same_text(s->spacing, t->spacing) &&
           same_text(s->sigmas, t->sigmas) && same_text(s->timesteps, t->timesteps) &&
           (s->guidance > 1) == (t->guidance > 1);
}

static void stop(struct batch *b, const struct dk_error *why)
{
    b->stop = true;
    say_fail(&b->err, why->code, "%s", why->message);
}

/* Takes over what another process has said about the job since we began. */
static bool is_settled_by_others(struct batch *b, struct job *job)
{
    const struct manifest_entry *entry = manifest_find(&b->manifest, job->id);
    if (!entry || !entry->is_new) return false;
    job->state = entry->is_done ? JOB_DONE : JOB_FAILED;
    if (entry->is_done) {
        report_done(&b->report, job, NULL, true);
    } else {
        json_t *line = manifest_line(&b->manifest, entry);
        const char *error = json_string_value(json_object_get(line, "error"));
        report_failed(&b->report, job, b->source.name, error ? error : "failed", true);
        json_decref(line);
    }
    return true;
}

static bool refresh(struct batch *b)
{
    struct dk_error err = {0};
    if (manifest_refresh(&b->manifest, &err)) return true;
    stop(b, &err);
    return false;
}

/* Claims a job; whoever had it before may have finished it meanwhile, which only the manifest
 * knows. */
static bool claim(struct batch *b, struct job *job, size_t *n_taken)
{
    struct dk_error err = {0};
    enum claim_result result = claims_take(b->claims, job->id, &err);
    if (result == CLAIM_FAILED) stop(b, &err);
    if (result == CLAIM_TAKEN) ++*n_taken;
    if (result != CLAIM_MINE) return false;
    if (refresh(b) && !is_settled_by_others(b, job)) {
        job->state = JOB_RUNNING;
        return true;
    }
    claims_release(b->claims, job->id);
    return false;
}

/* Up to MAX_TOGETHER claimed jobs. *n_taken: those that others are making. */
static size_t next_jobs(struct batch *b, struct job *group[MAX_TOGETHER], size_t *n_taken)
{
    size_t n = 0, most = 1;
    *n_taken = 0;
    writer_collect(b->writer, false);
    if (!refresh(b)) return 0;
    while (b->first_open < b->plan.n_jobs && b->plan.jobs[b->first_open]->state >= JOB_DONE)
        b->first_open++;
    for (size_t i = b->first_open, last = b->plan.n_jobs; i < last && n < most && !b->stop; i++) {
        struct job *job = b->plan.jobs[i];
        if (job->state != JOB_OPEN || is_settled_by_others(b, job)) continue;
        if (n > 0 && !fit_together(group[0], job)) continue;
        if (!claim(b, job, n_taken)) continue;
        group[n++] = job;
        if (n > 1) continue;
        most = group_size(b, job);
        if (last - i > LOOK_AHEAD) last = i + LOOK_AHEAD;
    }
    return n;
}

/* ---- making them --------------------------------------------------------------------------- */

static void give_back(struct batch *b, struct job *const *group, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        claims_release(b->claims, group[i]->id);
        group[i]->state = JOB_OPEN;
    }
}

static void fail(struct batch *b, struct job *job, const struct dk_error *why)
{
    struct dk_error err = {0};
    bool recorded = writer_fail(b->writer, job, why, &err);
    claims_release(b->claims, job->id);
    job->state = JOB_FAILED;
    if (!recorded) stop(b, &err);
    if (!goes_on(b)) stop(b, why);
}

static void render(struct batch *b, struct job *const *group, size_t n)
{
    struct dk_settings settings[MAX_TOGETHER];
    struct dk_image images[MAX_TOGETHER];
    struct dk_stats stats = {0};
    struct dk_error err = {0};
    struct timing timing;
    struct dk_hooks hooks = {
        .progress = report_progress, .user = &b->report, .cancel = interrupt_flag()};
    for (size_t i = 0; i < n; i++) settings[i] = group[i]->request.settings;
    now_iso(timing.started);
    if (dk_render(b->model, settings, n, images, &hooks, &stats, &err)) {
        timing.text_s = stats.text_s / (double)n;
        timing.denoise_s = stats.denoise_s / (double)n;
        timing.decode_s = stats.decode_s / (double)n;
        for (size_t i = 0; i < n; i++) writer_push(b->writer, group[i], &images[i], &timing);
    } else if (err.code == DK_ERROR_CANCELLED || interrupt_seen()) {
        give_back(b, group, n);
    } else if (n == 1) {
        fail(b, group[0], &err);
    } else {
        for (size_t i = 0; i < n; i++) { /* which one is it? */
            if (b->stop || interrupt_seen())
                give_back(b, &group[i], 1);
            else
                render(b, &group[i], 1);
        }
    }
}

/* Makes what is open in the plan; returns when nothing is, or the batch is to stop. */
static void work(struct batch *b)
{
    while (!b->stop && !interrupt_seen()) {
        struct job *group[MAX_TOGETHER];
        size_t n_taken, n = next_jobs(b, group, &n_taken);
        for (size_t i = 0; i < n; i++) report_start(&b->report, group[i]);
        if (n > 0 && (b->stop || interrupt_seen()))
            give_back(b, group, n);
        else if (n > 0)
            render(b, group, n);
        else if (n_taken > 0) {
            report_waiting(&b->report, n_taken);
            nanosleep(&(struct timespec){0, 100000000}, NULL);
        } else {
            bool busy = writer_collect(b->writer, !is_stream(b));
            if (count(b, JOB_OPEN) == 0 && (!busy || is_stream(b))) return;
        }
        struct dk_error err = {0};
        if (writer_failed(b->writer, &err)) stop(b, &err);
        if (b->report.output_failed)
            stop(b, &(struct dk_error){DK_ERROR_FILE, "standard output: cannot write"});
    }
}

/* Lines from a pipe, each made before the next is read. */
static void follow(struct batch *b)
{
    enum source_result result = SOURCE_JOB;
    while (!b->stop && !interrupt_seen() && (result == SOURCE_JOB || result == SOURCE_BAD)) {
        size_t before = b->plan.n_jobs;
        result = read_job(b);
        if (result == SOURCE_BAD && !b->request->batch.keep_going)
            stop(b, &(struct dk_error){b->bad, "a line is wrong; --keep-going renders the others"});
        if (result == SOURCE_BROKEN) b->stop = true;
        if (result != SOURCE_JOB) continue;
        settle(b, before);
        for (size_t i = before; i < b->plan.n_jobs; i++)
            if (b->plan.jobs[i]->state != JOB_ELSEWHERE)
                report_more(&b->report, b->plan.jobs[i]->state == JOB_DONE);
        work(b);
    }
}

/* ---- beginning and end --------------------------------------------------------------------- */

static bool make_folder(const char *folder, struct dk_error *err)
{
    struct stat status;
    char *path = text_copy(folder);
    bool ok = true;
    int why = 0;
    for (char *slash = strchr(path + 1, '/'); ok; slash = strchr(slash + 1, '/')) {
        if (slash) *slash = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST) {
            why = errno;
            ok = stat(path, &status) == 0; /* a read-only parent that exists is no hindrance */
        }
        if (!slash) break;
        *slash = '/';
    }
    if (ok && stat(folder, &status) != 0) why = errno, ok = false;
    if (!ok)
        say_fail(err, DK_ERROR_FILE, "%s: cannot create: %s; choose another --output", folder,
                 strerror(why));
    else if (!S_ISDIR(status.st_mode))
        ok = say_fail(err, DK_ERROR_FILE,
                      "%s: is a file, expected a folder; choose another --output", folder);
    free(path);
    return ok;
}

static bool open_model(struct batch *b, struct dk_error *err)
{
    b->request->model_options.warn = report_warn;
    b->request->model_options.user = &b->report;
    b->model = model_open(b->request, &b->model_path, err);
    if (!b->model ||
        !identity_fingerprint(b->model_path, b->request, b->provenance.fingerprint, err))
        return false;
    b->provenance.model_name = identity_name(b->model_path);
    return true;
}

static bool check_words(struct batch *b, const struct arguments *arguments, struct dk_error *err)
{
    if (arguments->n_words != 1)
        return say_fail(err, DK_ERROR_ARGUMENT,
                        "batch: found %zu words, expected one file of prompts, or -: darkroom "
                        "batch FILE -o FOLDER",
                        arguments->n_words);
    if (!b->request->output)
        return say_fail(err, DK_ERROR_ARGUMENT,
                        "batch: no folder was given: darkroom batch %.200s -o FOLDER",
                        arguments->words[0]);
    b->path = arguments->words[0];
    return true;
}

/* Everything but the folder, which a dry run does not touch. */
static bool prepare(struct batch *b, struct dk_error *err)
{
    if (!shard_find(b->request->batch.shard, &b->shard, err) ||
        !batch_source_open(&b->source, b->path, b->request->batch.format, err) ||
        !open_model(b, err))
        return false;
    b->plan = (struct plan){.model = b->model,
                            .provenance = &b->provenance,
                            .defaults = b->request,
                            .source_name = b->source.name,
                            .folder = b->folder};
    if (is_stream(b)) return true;
    bool ok = read_all(b);
    if (!ok) *err = b->err;
    return ok;
}

static bool open_folder(struct batch *b, struct dk_error *err)
{
    char *manifest_path = text_format("%s/" MANIFEST_NAME, b->folder);
    interrupt_remove_temporaries(b->staging);
    bool ok = make_folder(b->folder, err) && manifest_open(&b->manifest, b->folder, err) &&
              (b->claims = claims_open(b->staging, b->request->batch.stale_after_s, err)) &&
              claims_wait(b->claims, MANIFEST_CLAIM,
                          err); /* shows whether files can be made here at all */
    if (ok) claims_release(b->claims, MANIFEST_CLAIM);
    free(manifest_path);
    if (ok && b->manifest.n_bad > 0)
        report_note(&b->report,
                    "%s: %zu line%s no entries, perhaps cut off; their pictures are made again",
                    b->manifest.path, b->manifest.n_bad, b->manifest.n_bad == 1 ? " is" : "s are");
    struct writer_options options = {.folder = b->folder,
                                     .staging = b->staging,
                                     .manifest_path = b->manifest.path,
                                     .source_name = b->source.name,
                                     .provenance = &b->provenance,
                                     .claims = b->claims,
                                     .report = &b->report,
                                     .go_on = goes_on(b)};
    return ok && (b->writer = writer_start(&options, err)) != NULL;
}

/* Temporary files, and in the staging folder unnamed pictures; files by other names than our own
 * stay. */
static void remove_leftovers(const char *folder, bool pictures)
{
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        size_t n = strlen(entry->d_name);
        bool is_picture = pictures && n == 36 && strcmp(entry->d_name + 32, ".png") == 0;
        if (!is_picture && strncmp(entry->d_name, ".darkroom-", 10) != 0) continue;
        char *path = text_format("%s/%s", folder, entry->d_name);
        unlink(path);
        free(path);
    }
    if (dir) closedir(dir);
}

/* Removes the staging folder once nobody works here; what lies there then is of runs that were
 * killed. */
static void clear_staging(struct batch *b)
{
    if (claims_sweep(b->claims) > 0) return;
    remove_leftovers(b->staging, true);
    remove_leftovers(b->folder, false);
    rmdir(b->staging);
}

/* Another process may have recorded its last picture and not yet given it its name. */
static void await_file(const struct batch *b, const struct manifest_entry *entry)
{
    struct stat status;
    char *path = in_folder(b, entry->file);
    for (int i = 0; i < 100 && lstat(path, &status) != 0; i++)
        nanosleep(&(struct timespec){0, 20000000}, NULL);
    free(path);
}

/* Whoever makes the last picture of the whole plan makes the sheet; a sheet that is right is left
 * alone. False, and said, when it cannot be made. */
static bool make_sheet(struct batch *b)
{
    struct dk_error err = {0};
    if (b->request->batch.no_sheet) return true;
    if (!manifest_refresh(&b->manifest, &err)) {
        report_error(&b->report, "%s", err.message);
        return false;
    }
    for (size_t i = 0; i < b->plan.n_jobs; i++) {
        const struct manifest_entry *entry = manifest_find(&b->manifest, b->plan.jobs[i]->id);
        if (!entry || (!entry->is_done && b->plan.jobs[i]->state == JOB_ELSEWHERE)) return true;
        if (entry->is_done && entry->is_new) await_file(b, entry);
    }
    enum claim_result result = claims_take(b->claims, "sheet", &err);
    if (result == CLAIM_TAKEN) return true;
    bool ok = result == CLAIM_MINE && sheet_write(b->folder, &b->manifest, &err);
    if (!ok) report_error(&b->report, "%s", err.message);
    if (result == CLAIM_MINE) claims_release(b->claims, "sheet");
    return ok;
}

static int outcome(struct batch *b)
{
    size_t n_done = count(b, JOB_DONE), n_failed = count(b, JOB_FAILED);
    if (interrupt_seen()) {
        report_error(&b->report, "interrupted; run the same command again to go on");
        return EXIT_INTERRUPTED;
    }
    if (b->err.code != DK_OK && n_failed == 0) report_error(&b->report, "%s", b->err.message);
    if (b->stop && n_failed > 0 && !goes_on(b))
        report_note(&b->report, "stopped after a failure; --keep-going goes on");
    if (b->err.code == DK_OK && n_failed == 0 && b->n_bad == 0) return EXIT_DONE;
    if (n_done > 0) return EXIT_PARTLY;
    return b->err.code == DK_ERROR_ARGUMENT && n_failed == 0 ? EXIT_USAGE : EXIT_FAILED;
}

static void report_dry(struct batch *b)
{
    for (size_t i = 0; i < b->plan.n_jobs; i++) {
        const struct job *job = b->plan.jobs[i];
        if (i % b->shard.count != b->shard.index) continue;
        if (b->request->json) {
            json_t *object = json_object();
            json_object_set_new(object, "job", json_string(job->id));
            json_object_set_new(object, "index", json_integer((json_int_t)job->index));
            json_object_set_new(object, "line", json_integer((json_int_t)job->line));
            json_object_set_new(object, "file", json_string(job->name));
            json_object_set_new(object, "settings", metadata_record(&job->request, &b->provenance));
            char *line = metadata_line(object);
            puts(line);
            free(line);
            json_decref(object);
        } else {
            printf("%s:%zu: ", b->source.name, job->line);
            text_print(stdout, job->name);
            putchar('\n');
        }
    }
    if (!b->request->quiet)
        fprintf(stderr, "%zu pictures from %zu lines\n", b->plan.n_jobs, b->plan.n_added);
}

static int run(struct batch *b)
{
    struct dk_error err = {0};
    if (!open_folder(b, &err)) return interrupt_seen() ? EXIT_INTERRUPTED : say_failure(&err);
    if (b->shard.count > 1)
        report_note(&b->report, "shard %zu of %zu, from %s", b->shard.index + 1, b->shard.count,
                    b->shard.source);
    b->report.growing = is_stream(b);
    if (is_stream(b)) {
        follow(b);
    } else {
        settle(b, 0);
        report_plan(&b->report, b->plan.n_jobs - count(b, JOB_ELSEWHERE), count(b, JOB_DONE));
        work(b);
    }
    writer_stop(b->writer);
    b->writer = NULL;
    bool all = !b->stop && !interrupt_seen();
    int status = outcome(b);
    if (all && !make_sheet(b) && status == EXIT_DONE) status = EXIT_FAILED;
    if (all) clear_staging(b);
    report_end(&b->report, status);
    return status;
}

int batch_run(struct request *request, struct arguments *arguments, int argc, char **argv)
{
    struct batch b = {.request = request, .source = {.file = -1}};
    struct dk_error err = {0};
    int status;
    (void)argc;
    (void)argv;
    bool ok = check_words(&b, arguments, &err);
    b.folder = output_folder(ok ? request->output : ".");
    b.staging = text_format("%s/" STAGING_NAME, b.folder);
    report_init(&b.report, request, b.folder);
    interrupt_install();
    ok = ok && prepare(&b, &err);
    if (!ok) {
        status = interrupt_seen() ? EXIT_INTERRUPTED : say_failure(&err);
    } else if (request->dry_run) {
        report_dry(&b);
        status = b.n_bad ? EXIT_PARTLY : EXIT_DONE;
    } else {
        status = run(&b);
    }
    writer_stop(b.writer);
    claims_close(b.claims);
    manifest_close(&b.manifest);
    plan_free(&b.plan);
    dk_model_close(b.model);
    dk_free(b.model_path);
    free(b.provenance.model_name);
    batch_source_close(&b.source);
    report_free(&b.report);
    free(b.folder);
    free(b.staging);
    return status;
}
