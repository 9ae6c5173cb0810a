/* batch_merge.c - the command batch merge: the work of several folders in one. */
/* SPDX-License-Identifier: MIT */
#include "batch_manifest.h"
#include "batch_sheet.h"
#include "batch_writer.h"
#include "commands.h"
#include "interrupt.h"
#include "say.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * A picture is merged like one that was just made: copied to the staging folder and synced,
 * recorded, then given its name. What the target has already is left alone, so a merge that was cut
 * off is simply repeated.
 */
struct merge {
    const char *folder;
    char *staging;
    struct manifest target;
    struct claims *claims;
    size_t n_merged, n_present, n_damaged;
};

static bool copy_file(const char *from, const char *to, struct dk_error *err)
{
    static const size_t block = 1 << 16;
    int in = open(from, O_RDONLY | O_CLOEXEC), out = -1;
    if (in < 0) return say_fail(err, DK_ERROR_FILE, "%s: cannot read: %s", from, strerror(errno));
    unlink(to);
    out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    char *buffer = text_alloc(block);
    ssize_t n = -1;
    while (out >= 0 && (n = read(in, buffer, block)) > 0)
        if (!text_write(out, buffer, (size_t)n)) {
            n = -1;
            break;
        }
    bool ok = n == 0 && fsync(out) == 0;
    int why = errno;
    if (out >= 0 && close(out) != 0) ok = false;
    close(in);
    free(buffer);
    return ok || say_fail(err, DK_ERROR_FILE, "%s: cannot write: %s", to, strerror(why));
}

static bool is_there(const struct merge *m, const char *job)
{
    struct stat status;
    const struct manifest_entry *entry = manifest_find(&m->target, job);
    if (!entry || !entry->is_done) return false;
    char *path = text_format("%s/%s", m->folder, entry->file);
    bool ok = lstat(path, &status) == 0 && status.st_size == entry->size_bytes;
    free(path);
    return ok;
}

/* "name.png", "name-2.png", ...: the first that is free in the target. */
static char *free_name(const struct merge *m, const char *file)
{
    struct stat status;
    size_t n = strlen(file), stem = n > 4 && file[n - 4] == '.' ? n - 4 : n;
    for (int number = 1;; number++) {
        char *name = number == 1 ? text_copy(file)
                                 : text_format("%.*s-%d%s", (int)stem, file, number, file + stem);
        char *path = text_format("%s/%s", m->folder, name);
        bool is_free = lstat(path, &status) != 0;
        free(path);
        if (is_free) return name;
        free(name);
    }
}

static bool record(struct merge *m, const struct manifest_entry *entry, json_t *line,
                   const char *staged, struct dk_error *err)
{
    for (;;) {
        char *name = free_name(m, entry->file), *path = text_format("%s/%s", m->folder, name);
        bool taken = false;
        struct dk_error why = {0};
        json_object_set_new(line, "file", json_string(name));
        make_parents(path);
        bool ok = manifest_append(m->target.path, line, m->claims, &why) &&
                  publish(staged, path, false, &taken, &why);
        free(name);
        free(path);
        if (ok) return true;
        if (!taken) return say_fail(err, why.code, "%s", why.message);
    }
}

static bool merge_entry(struct merge *m, const char *folder, const struct manifest *source,
                        const struct manifest_entry *entry, struct dk_error *err)
{
    char sha256[65];
    long long size_bytes;
    struct dk_error why = {0};
    json_t *line = manifest_line(source, entry);
    char *from = text_format("%s/%s", folder, entry->file),
         *staged = text_format("%s/%.32s.png", m->staging, entry->job);
    bool ok = true;
    if (strspn(entry->job, "0123456789abcdef") != 32 || entry->job[32] || !line ||
        !manifest_hash(from, sha256, &size_bytes, &why) || strcmp(sha256, entry->sha256) != 0) {
        m->n_damaged++;
        say_note("%s: is missing or damaged, and was left out", from);
    } else if (claims_wait(m->claims, entry->job, err) && manifest_refresh(&m->target, err)) {
        if (is_there(m, entry->job)) {
            m->n_present++;
        } else {
            ok = copy_file(from, staged, err) && record(m, entry, line, staged, err);
            m->n_merged += ok;
        }
        claims_release(m->claims, entry->job);
    } else {
        ok = false;
    }
    json_decref(line);
    free(from);
    free(staged);
    return ok;
}

static bool merge_folder(struct merge *m, const char *folder, struct dk_error *err)
{
    struct manifest source;
    struct stat status;
    char *path = text_format("%s/" MANIFEST_NAME, folder);
    bool ok = stat(path, &status) == 0 ||
              say_fail(err, DK_ERROR_FILE, "%s: cannot read: %s; expected the folder of a batch",
                       path, strerror(errno));
    free(path);
    if (!ok) return false;
    ok = manifest_open(&source, folder, err);
    for (size_t i = 0; ok && i < source.n_entries && !interrupt_seen(); i++) {
        const struct manifest_entry *entry = &source.entries[i];
        if (entry->is_done && manifest_find(&source, entry->job) == entry)
            ok = merge_entry(m, folder, &source, entry, err);
    }
    manifest_close(&source);
    return ok;
}

static bool open_target(struct merge *m, const struct request *request, struct dk_error *err)
{
    if (mkdir(m->folder, 0777) != 0 && errno != EEXIST)
        return say_fail(err, DK_ERROR_FILE, "%s: cannot create: %s; choose another --output",
                        m->folder, strerror(errno));
    return manifest_open(&m->target, m->folder, err) &&
           (m->claims = claims_open(m->staging, request->batch.stale_after_s, err)) != NULL;
}

static bool write_sheet(struct merge *m, struct dk_error *err)
{
    return m->n_merged == 0 ||
           (manifest_refresh(&m->target, err) && sheet_write(m->folder, &m->target, err));
}

int merge_run(struct request *request, struct arguments *arguments, int argc, char **argv)
{
    struct merge m = {.folder = request->output};
    struct dk_error err = {0};
    (void)argc;
    (void)argv;
    interrupt_install();
    bool ok = (request->output && arguments->n_words > 0) ||
              say_fail(&err, DK_ERROR_ARGUMENT,
                       "batch merge: expected folders and where to join them: darkroom batch "
                       "merge FOLDER... -o FOLDER");
    m.staging = text_format("%s/" STAGING_NAME, ok ? m.folder : ".");
    ok = ok && open_target(&m, request, &err);
    for (size_t i = 0; ok && i < arguments->n_words && !interrupt_seen(); i++)
        ok = merge_folder(&m, arguments->words[i], &err);
    ok = ok && !interrupt_seen() && write_sheet(&m, &err);
    if (m.claims && claims_sweep(m.claims) == 0) rmdir(m.staging);
    if (request->json)
        printf("{\"merged\":%zu,\"present\":%zu,\"damaged\":%zu}\n", m.n_merged, m.n_present,
               m.n_damaged);
    else if (!request->quiet && (ok || m.n_merged > 0))
        fprintf(stderr, "%zu merged, %zu there already, %zu damaged\n", m.n_merged, m.n_present,
                m.n_damaged);
    int status = interrupt_seen() ? EXIT_INTERRUPTED
                 : !ok            ? say_failure(&err)
                 : m.n_damaged    ? EXIT_PARTLY
                                  : EXIT_DONE;
    claims_close(m.claims);
    if (m.target.path) manifest_close(&m.target);
    free(m.staging);
    return status;
}
