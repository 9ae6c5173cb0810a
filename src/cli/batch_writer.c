/* batch_writer.c - pictures become files beside the next picture's making. */
/* SPDX-License-Identifier: MIT */
#include "batch_writer.h"

#include "batch_manifest.h"
#include "interrupt.h"
#include "say.h"
#include "text.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define QUEUE_LENGTH 4
#define MAX_FAILURES                                                                               \
    3 /* in a row: the disk is full, the folder gone; the next one will not fare better */

struct item {
    struct job *job;
    struct dk_image image;
    struct timing timing;
};
struct finished {
    struct job *job;
    enum job_state state;
};

struct writer {
    struct writer_options o;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct item queue[QUEUE_LENGTH];
    size_t n_queued, first; /* the first one stays in the queue while it is written */
    struct finished done[2 * QUEUE_LENGTH];
    size_t n_done;
    int n_failures; /* in a row */
    bool stopping;
    struct dk_error err;
};

void now_iso(char text[32])
{
    struct timespec now;
    struct tm utc;
    char seconds[24];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text, 32, "%s.%03dZ", seconds, (int)(now.tv_nsec / 1000000));
}

/* ---- files --------------------------------------------------------------------------------- */

void make_parents(const char *path)
{
    char *copy = text_copy(path);
    for (char *slash = strchr(copy + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(copy, 0777); /* what is missing shows when the file is made */
        *slash = '/';
    }
    free(copy);
}

static bool rename_free(const char *staged, const char *path, bool replace, bool *taken)
{
    struct stat status;
    *taken = !replace && lstat(path, &status) == 0;
    return !*taken && rename(staged, path) == 0;
}

/* Over NFS an answer may be lost and the repeated request find its own work: then both names are
 * one file. */
static bool same_file(const char *a, const char *b)
{
    struct stat first, second;
    return lstat(a, &first) == 0 && lstat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

bool publish(const char *staged, const char *path, bool replace, bool *taken, struct dk_error *err)
{
    *taken = false;
    bool ok = !replace && link(staged, path) == 0;
    int why = errno;
    if (!ok && !replace && why == EEXIST) ok = same_file(staged, path), *taken = !ok;
    if (ok) unlink(staged);
    errno = why;
    bool no_links = errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS || errno == EMLINK;
    if (!ok && !*taken && (replace || no_links)) ok = rename_free(staged, path, replace, taken);
    return ok || say_fail(err, DK_ERROR_FILE, "%s: cannot create: %s", path,
                          strerror(*taken ? EEXIST : errno));
}

static bool write_staged(struct writer *w, const struct item *item, const char *staged,
                         struct dk_error *err)
{
    const struct request *request = &item->job->request;
    if (request->no_metadata) return dk_png_write(staged, &item->image, NULL, 0, true, err);
    json_t *record = metadata_record(request, w->o.provenance);
    char exact_key[] = "darkroom", parameters_key[] = "parameters";
    struct dk_text texts[] = {{parameters_key, metadata_parameters(request, w->o.provenance)},
                              {exact_key, metadata_line(record)}};
    bool ok = dk_png_write(staged, &item->image, texts, 2, true, err);
    free(texts[0].text);
    free(texts[1].text);
    json_decref(record);
    return ok;
}

/* ---- the manifest's line ------------------------------------------------------------------- */

static json_t *new_line(const struct writer *w, const struct job *job, const char *outcome)
{
    char host[256] = "-", *place = text_format("%s:%zu", w->o.source_name, job->line);
    size_t n_replaced;
    gethostname(host, sizeof host - 1);
    char *clean = text_repair(place, strlen(place), &n_replaced),
         *clean_host = text_repair(host, strlen(host), &n_replaced);
    json_t *line = json_object();
    json_object_set_new(line, "job", json_string(job->id));
    json_object_set_new(line, "outcome", json_string(outcome));
    json_object_set_new(line, "index", json_integer((json_int_t)job->index));
    json_object_set_new(line, "line", json_string(clean));
    json_object_set_new(line, "host", json_string(clean_host));
    json_object_set_new(line, "pid", json_integer(getpid()));
    free(place);
    free(clean);
    free(clean_host);
    return line;
}

static double milliseconds(double seconds)
{
    return round(seconds * 1e3) / 1e3;
}

static json_t *done_line(const struct writer *w, const struct item *item, const char *name,
                         const char *sha256, long long size_bytes)
{
    json_t *line = new_line(w, item->job, "done"), *seconds = json_object();
    char finished[32];
    now_iso(finished);
    json_object_set_new(line, "file", json_string(name));
    json_object_set_new(line, "bytes", json_integer(size_bytes));
    json_object_set_new(line, "sha256", json_string(sha256));
    json_object_set_new(line, "started", json_string(item->timing.started));
    json_object_set_new(line, "finished", json_string(finished));
    json_object_set_new(seconds, "text", json_real(milliseconds(item->timing.text_s)));
    json_object_set_new(seconds, "denoise", json_real(milliseconds(item->timing.denoise_s)));
    json_object_set_new(seconds, "decode", json_real(milliseconds(item->timing.decode_s)));
    json_object_set_new(line, "seconds", seconds);
    json_object_set_new(line, "settings", metadata_record(&item->job->request, w->o.provenance));
    return line;
}

/* ---- one picture --------------------------------------------------------------------------- */

/* The job's name, or "name-2.png" and so on where a file of somebody else's stands. */
static char *free_name(const struct writer *w, const struct job *job, int *number)
{
    struct stat status;
    size_t stem = strlen(job->name) - 4;
    for (;; ++*number) {
        char *name = *number == 1 ? text_copy(job->name)
                                  : text_format("%.*s-%d%s", (int)stem, job->name, *number,
                                                job->name + stem);
        char *path = text_format("%s/%s", w->o.folder, name);
        bool is_free =
            lstat(path, &status) != 0 || (job->replaces && strcmp(job->replaces, name) == 0);
        free(path);
        if (is_free) return name;
        free(name);
    }
}

/* Steps 2 and 3. A name that somebody takes in between costs a second line in the manifest. */
static json_t *record_and_publish(struct writer *w, const struct item *item, const char *staged,
                                  struct dk_error *err)
{
    char sha256[65];
    long long size_bytes;
    if (!manifest_hash(staged, sha256, &size_bytes, err)) return NULL;
    for (int number = 1;; number++) {
        char *name = free_name(w, item->job, &number),
             *path = text_format("%s/%s", w->o.folder, name);
        bool replace = item->job->replaces && strcmp(item->job->replaces, name) == 0, taken = false;
        json_t *line = done_line(w, item, name, sha256, size_bytes);
        make_parents(path);
        struct dk_error why = {0};
        bool ok = manifest_append(w->o.manifest_path, line, w->o.claims, &why) &&
                  publish(staged, path, replace, &taken, &why);
        free(name);
        free(path);
        if (ok) return line;
        json_decref(line);
        if (taken) continue;
        say_fail(err, why.code, "%s", why.message);
        return NULL;
    }
}

static enum job_state fail(struct writer *w, struct job *job, const struct dk_error *why)
{
    struct dk_error err = {0};
    bool recorded = writer_fail(w, job, why, &err);
    pthread_mutex_lock(&w->lock);
    w->n_failures++;
    if (!recorded || !w->o.go_on || w->n_failures >= MAX_FAILURES)
        say_fail(&w->err, why->code, "%s", why->message);
    pthread_mutex_unlock(&w->lock);
    return JOB_FAILED;
}

static enum job_state write_item(struct writer *w, struct item *item)
{
    struct dk_error err = {0};
    char *staged = text_format("%s/%s.png", w->o.staging, item->job->id);
    json_t *line = NULL;
    enum job_state state = JOB_DONE;
    interrupt_hold(true);
    bool ok = write_staged(w, item, staged, &err);
    /* A machine that slept may have been taken for dead, and its job made by another. */
    if (ok && !claims_holds(w->o.claims, item->job->id))
        state = JOB_OPEN;
    else if (ok)
        ok = (line = record_and_publish(w, item, staged, &err)) != NULL;
    if (!ok) unlink(staged);
    claims_release(w->o.claims, item->job->id);
    interrupt_hold(false);
    if (line) {
        w->n_failures = 0;
        report_done(w->o.report, item->job, line, false);
    } else if (!ok) {
        state = fail(w, item->job, &err);
    }
    json_decref(line);
    free(staged);
    dk_image_free(&item->image);
    return state;
}

bool writer_fail(struct writer *w, struct job *job, const struct dk_error *why,
                 struct dk_error *err)
{
    json_t *line = new_line(w, job, "failed");
    char now[32];
    size_t n_replaced;
    char *sentence = text_repair(why->message, strlen(why->message), &n_replaced);
    now_iso(now);
    json_object_set_new(line, "finished", json_string(now));
    json_object_set_new(line, "error", json_string(sentence));
    json_object_set_new(line, "settings", metadata_record(&job->request, w->o.provenance));
    bool ok = manifest_append(w->o.manifest_path, line, w->o.claims, err);
    report_failed(w->o.report, job, w->o.source_name, why->message, false);
    json_decref(line);
    free(sentence);
    return ok;
}

/* ---- the thread ---------------------------------------------------------------------------- */

static void *run(void *user)
{
    struct writer *w = user;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (w->n_queued == 0 && !w->stopping) pthread_cond_wait(&w->changed, &w->lock);
        if (w->n_queued == 0) break;
        struct item *item = &w->queue[w->first];
        pthread_mutex_unlock(&w->lock);
        enum job_state state = write_item(w, item);
        pthread_mutex_lock(&w->lock);
        w->done[w->n_done++] = (struct finished){item->job, state};
        w->first = (w->first + 1) % QUEUE_LENGTH;
        w->n_queued--;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

struct writer *writer_start(const struct writer_options *options, struct dk_error *err)
{
    sigset_t all, before;
    struct writer *w = text_alloc(sizeof *w);
    w->o = *options;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool ok = pthread_create(&w->thread, NULL, run, w) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (ok) return w;
    free(w);
    say_fail(err, DK_ERROR_MEMORY, "no thread could be started to write the pictures");
    return NULL;
}

/* The lock is held. */
static void collect(struct writer *w)
{
    for (size_t i = 0; i < w->n_done; i++) w->done[i].job->state = w->done[i].state;
    w->n_done = 0;
}

void writer_push(struct writer *w, struct job *job, struct dk_image *image,
                 const struct timing *timing)
{
    pthread_mutex_lock(&w->lock);
    while (w->n_queued == QUEUE_LENGTH) pthread_cond_wait(&w->changed, &w->lock);
    collect(w);
    w->queue[(w->first + w->n_queued) % QUEUE_LENGTH] = (struct item){job, *image, *timing};
    *image = (struct dk_image){0};
    w->n_queued++;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

bool writer_collect(struct writer *w, bool wait)
{
    pthread_mutex_lock(&w->lock);
    while (wait && w->n_queued > 0 && w->n_done == 0) pthread_cond_wait(&w->changed, &w->lock);
    collect(w);
    bool busy = w->n_queued > 0;
    pthread_mutex_unlock(&w->lock);
    return busy;
}

bool writer_failed(struct writer *w, struct dk_error *err)
{
    pthread_mutex_lock(&w->lock);
    bool failed = w->err.code != DK_OK;
    if (failed) say_fail(err, w->err.code, "%s", w->err.message);
    pthread_mutex_unlock(&w->lock);
    return failed;
}

void writer_stop(struct writer *w)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    collect(w);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
