/* batch_manifest.c - what has been made: a file that only grows. */
/* SPDX-License-Identifier: MIT */
#include "batch_manifest.h"

#include "metadata.h"
#include "say.h"
#include "sha256.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_LINE_BYTES ((size_t)16 << 20)

/* ---- reading ------------------------------------------------------------------------------- */

static const char *string_at(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

bool manifest_is_inside(const char *file)
{
    if (!*file || *file == '/') return false;
    for (const char *p = file; p; p = strchr(p, '/')) {
        if (*p == '/') p++;
        if (*p == '.' || *p == '/' || !*p) return false;
    }
    return true;
}

static bool add_entry(struct manifest *m, const json_t *line, long long at, size_t line_bytes)
{
    const char *job = string_at(line, "job"), *outcome = string_at(line, "outcome"),
               *file = string_at(line, "file");
    const char *sha256 = string_at(line, "sha256");
    const json_t *size = json_object_get(line, "bytes");
    bool is_done = outcome && strcmp(outcome, "done") == 0;
    if (!job || !*job || !outcome) return false;
    if (is_done && (!file || !manifest_is_inside(file) || !sha256 || strlen(sha256) != 64 ||
                    !json_is_integer(size)))
        return false;
    if (m->n_entries == m->capacity) {
        m->capacity = m->capacity ? 2 * m->capacity : 64;
        struct manifest_entry *larger = text_alloc(m->capacity * sizeof *larger);
        if (m->n_entries > 0) memcpy(larger, m->entries, m->n_entries * sizeof *larger);
        free(m->entries);
        m->entries = larger;
    }
    struct manifest_entry *entry = &m->entries[m->n_entries++];
    *entry = (struct manifest_entry){.job = text_copy(job),
                                     .file = text_copy(file ? file : ""),
                                     .size_bytes = json_integer_value(size),
                                     .index = json_integer_value(json_object_get(line, "index")),
                                     .at = at,
                                     .line_bytes = line_bytes,
                                     .is_done = is_done,
                                     .is_new = m->is_open};
    if (is_done) snprintf(entry->sha256, sizeof entry->sha256, "%s", sha256);
    *tally_at(&m->jobs, job) = m->n_entries;
    return true;
}

static void read_line(struct manifest *m, const char *line, size_t n, long long at)
{
    json_t *object = json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL);
    size_t start = 0;
    while (start < n && (line[start] == ' ' || line[start] == '\r')) start++;
    if (start < n && !(json_is_object(object) && add_entry(m, object, at, n))) m->n_bad++;
    json_decref(object);
}

static void forget(struct manifest *m)
{
    for (size_t i = 0; i < m->n_entries; i++) {
        free(m->entries[i].job);
        free(m->entries[i].file);
    }
    free(m->entries);
    tally_free(&m->jobs);
    m->entries = NULL;
    m->n_entries = m->capacity = m->n_bad = 0;
    m->read_bytes = 0;
}

static bool read_rest(struct manifest *m, int file, struct dk_error *err)
{
    size_t capacity = (size_t)1 << 16, n = 0;
    char *buffer = text_alloc(capacity);
    bool ok = true;
    for (;;) {
        ssize_t got = pread(file, buffer + n, capacity - n, (off_t)m->read_bytes + (off_t)n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            ok = say_fail(err, DK_ERROR_FILE, "%s: cannot read: %s", m->path, strerror(errno));
        if (got <= 0) break;
        n += (size_t)got;
        size_t used = 0;
        for (char *end; (end = memchr(buffer + used, '\n', n - used));) {
            read_line(m, buffer + used, (size_t)(end - buffer) - used,
                      m->read_bytes + (long long)used);
            used = (size_t)(end - buffer) + 1;
        }
        memmove(buffer, buffer + used, n - used);
        m->read_bytes += (long long)used;
        n -= used;
        if (n < capacity) continue;
        if (capacity > MAX_LINE_BYTES) {
            ok = say_fail(err, DK_ERROR_FORMAT,
                          "%s: a line has more than %zu bytes: this is no manifest", m->path,
                          MAX_LINE_BYTES);
            break;
        }
        char *larger = text_alloc(2 * capacity);
        memcpy(larger, buffer, n);
        free(buffer);
        buffer = larger;
        capacity *= 2;
    }
    free(buffer);
    return ok;
}

bool manifest_refresh(struct manifest *m, struct dk_error *err)
{
    struct stat status;
    int file = open(m->path, O_RDONLY | O_CLOEXEC);
    if (file < 0 && errno == ENOENT && m->read_bytes == 0) return true;
    if (file < 0)
        return say_fail(err, DK_ERROR_FILE,
                        "%s: cannot read: %s; what was made cannot be known any more", m->path,
                        strerror(errno));
    bool ok = fstat(file, &status) == 0;
    if (ok && status.st_size < m->read_bytes) forget(m); /* somebody replaced it */
    ok = ok && read_rest(m, file, err);
    close(file);
    return ok;
}

bool manifest_open(struct manifest *m, const char *folder, struct dk_error *err)
{
    *m = (struct manifest){.path = text_format("%s/" MANIFEST_NAME, folder)};
    if (!manifest_refresh(m, err)) return false;
    m->is_open = true;
    return true;
}

void manifest_close(struct manifest *m)
{
    forget(m);
    free(m->path);
    m->path = NULL;
}

const struct manifest_entry *manifest_find(const struct manifest *m, const char *job)
{
    size_t at = tally_get(&m->jobs, job);
    return at ? &m->entries[at - 1] : NULL;
}

json_t *manifest_line(const struct manifest *m, const struct manifest_entry *entry)
{
    int file = open(m->path, O_RDONLY | O_CLOEXEC);
    char *line = text_alloc(entry->line_bytes + 1);
    bool ok = file >= 0 &&
              pread(file, line, entry->line_bytes, (off_t)entry->at) == (ssize_t)entry->line_bytes;
    json_t *object = ok ? json_loadb(line, entry->line_bytes, 0, NULL) : NULL;
    if (file >= 0) close(file);
    free(line);
    return object;
}

/* ---- appending ----------------------------------------------------------------------------- */

/* The name of a new file survives a power cut only once its folder is synced; where that cannot be
 * done it is no failure. */
static void sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? text_copy_n(path, (size_t)(slash - path) + 1) : text_copy(".");
    int file = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(folder);
    if (file < 0) return;
    (void)fsync(file);
    close(file);
}

/* One write; what did not fit is taken back, so that a full disk leaves no half line. */
static bool append_text(int file, const char *path, const char *text, size_t n,
                        struct dk_error *err)
{
    struct stat status;
    char last = '\n';
    if (fstat(file, &status) != 0)
        return say_fail(err, DK_ERROR_FILE, "%s: %s", path, strerror(errno));
    bool torn =
        status.st_size > 0 && pread(file, &last, 1, status.st_size - 1) == 1 && last != '\n';
    if (torn && write(file, "\n", 1) != 1)
        return say_fail(err, DK_ERROR_FILE, "%s: cannot write: %s", path, strerror(errno));
    ssize_t written = write(file, text, n);
    int why = written < 0 ? errno : ENOSPC;
    if (written == (ssize_t)n && fsync(file) == 0) {
        if (status.st_size == 0) sync_folder(path);
        return true;
    }
    if (written == (ssize_t)n) why = errno;
    if (written > 0 && ftruncate(file, status.st_size + torn) != 0) why = errno;
    return say_fail(err, DK_ERROR_FILE, "%s: cannot write: %s; the picture does not count as done",
                    path, strerror(why));
}

bool manifest_append(const char *path, const json_t *line, struct claims *claims,
                     struct dk_error *err)
{
    char *json = metadata_line(line), *text = text_format("%s\n", json);
    bool ok = claims_wait(claims, MANIFEST_CLAIM, err);
    if (ok) {
        int file = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
        ok = file >= 0
                 ? append_text(file, path, text, strlen(text), err)
                 : say_fail(err, DK_ERROR_FILE, "%s: cannot write: %s", path, strerror(errno));
        if (file >= 0) close(file);
        claims_release(claims, MANIFEST_CLAIM);
    }
    free(text);
    free(json);
    return ok;
}

bool manifest_hash(const char *path, char hex[65], long long *size_bytes, struct dk_error *err)
{
    struct sha256 sha;
    static const size_t block = 1 << 16;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    char *buffer = text_alloc(block);
    ssize_t n = -1;
    sha256_start(&sha);
    *size_bytes = 0;
    while (file >= 0 && (n = read(file, buffer, block)) != 0) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) break;
        sha256_add(&sha, buffer, (size_t)n);
        *size_bytes += n;
    }
    if (n != 0) say_fail(err, DK_ERROR_FILE, "%s: cannot read: %s", path, strerror(errno));
    if (file >= 0) close(file);
    free(buffer);
    sha256_finish(&sha, hex);
    return n == 0;
}
