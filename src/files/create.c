/* create.c - a new file that appears whole or not at all. */
/* SPDX-License-Identifier: MIT */
#include "files/create.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)1 << 16)

/* Length of a path's folder with its last slash; 0 for a name in the working folder. */
static size_t folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

static bool fail_create(const char *path, int why, struct dk_error *err)
{
    size_t folder = folder_length(path);
    const char *name = folder ? path : ".";
    int shown = folder > 1 ? (int)folder - 1 : 1; /* without its last slash, but "/" stays */
    switch (why) {
    case ENOENT:
        return dk_fail(
            err, DK_ERROR_FILE,
            "%s: cannot create: no such directory \"%.*s\"; create it or choose another name",
            path, shown, name);
    case ENOTDIR:
        return dk_fail(err, DK_ERROR_FILE,
                       "%s: cannot create: \"%.*s\" is not a directory; choose another name",
                       path, shown, name);
    case EACCES:
    case EPERM:
    case EROFS:
        return dk_fail(err, DK_ERROR_FILE,
                       "%s: cannot create: the directory \"%.*s\" is %s; choose another name",
                       path, shown, name,
                       why == EROFS ? "on a read-only disk" : "not writable for you");
    case EISDIR:
        return dk_fail(err, DK_ERROR_FILE, "%s: is a directory; name a file in it",
                       path);
    case EEXIST:
        return dk_fail(err, DK_ERROR_FILE,
                       "%s: exists already; choose another name, or --force to replace it",
                       path);
    case ENOSPC:
    case EDQUOT:
        return dk_fail(err, DK_ERROR_FILE,
                       "%s: cannot write: %s; free some or choose another name", path,
                       why == ENOSPC ? "no space left on the disk" : "your disk quota is used up");
    default:
        return dk_fail(err, DK_ERROR_FILE, "%s: cannot write: %s", path, strerror(why));
    }
}

/* Opens FOLDER/.darkroom-PID-N.tmp for the first free N; O_EXCL makes the name ours alone. */
static bool open_temporary(struct create *c, struct dk_error *err)
{
    size_t folder = folder_length(c->path), size = folder + 64;
    c->temporary = malloc(size);
    if (!c->temporary) return dk_fail(err, DK_ERROR_MEMORY, "%s: out of memory", c->path);
    memcpy(c->temporary, c->path, folder);
    for (int i = 0; i < 1000; i++) {
        snprintf(c->temporary + folder, size - folder, ".darkroom-%ld-%d.tmp", (long)getpid(), i);
        c->fd = open(c->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (c->fd >= 0) return true;
        if (errno != EEXIST) return fail_create(c->path, errno, err);
    }
    return dk_fail(err, DK_ERROR_FILE,
                   "%s: a thousand temporary files lie in its folder; remove .darkroom-*.tmp",
                   c->path);
}

/* Frees what c holds; the temporary file, if it still has a name, is removed. */
static void release(struct create *c, bool remove_temporary)
{
    if (c->fd >= 0) close(c->fd);
    if (remove_temporary) unlink(c->temporary);
    free(c->path);
    free(c->temporary);
    free(c->buffer);
    *c = (struct create){.fd = -1};
}

bool create_open(struct create *c, const char *path, bool overwrite, struct dk_error *err)
{
    *c = (struct create){.fd = -1, .overwrite = overwrite};
    struct stat st;
    bool exists = lstat(path, &st) == 0;
    if (path[0] == 0)
        return dk_fail(err, DK_ERROR_ARGUMENT, "the name of the file to write is empty");
    if (exists && S_ISDIR(st.st_mode)) return fail_create(path, EISDIR, err);
    /* Renaming over /dev/null, or over a link to it, would take the device away. */
    if (exists && stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return dk_fail(err, DK_ERROR_FILE,
                       "%s: is a device or pipe, expected a file; choose another name", path);
    if (exists && !overwrite) return fail_create(path, EEXIST, err);
    size_t path_bytes = strlen(path) + 1;
    c->path = malloc(path_bytes);
    c->buffer = malloc(BUFFER_BYTES);
    bool ok = c->path && c->buffer;
    if (!ok) dk_fail(err, DK_ERROR_MEMORY, "%s: out of memory", path);
    if (ok) memcpy(c->path, path, path_bytes);
    ok = ok && open_temporary(c, err);
    if (!ok) release(c, false);
    return ok;
}

static bool write_all(struct create *c, const unsigned char *data, size_t size_bytes,
                      struct dk_error *err)
{
    while (size_bytes > 0) {
        ssize_t n = write(c->fd, data, size_bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_create(c->path, errno, err);
        data += n;
        size_bytes -= (size_t)n;
    }
    return true;
}

static bool flush(struct create *c, struct dk_error *err)
{
    size_t n = c->n_buffered;
    c->n_buffered = 0;
    return write_all(c, c->buffer, n, err);
}

bool create_write(struct create *c, const void *data, size_t size_bytes, struct dk_error *err)
{
    if (size_bytes > BUFFER_BYTES - c->n_buffered && !flush(c, err)) return false;
    if (size_bytes > BUFFER_BYTES) return write_all(c, data, size_bytes, err);
    if (size_bytes > 0) memcpy(c->buffer + c->n_buffered, data, size_bytes);
    c->n_buffered += size_bytes;
    return true;
}

/* Gives the temporary file its name; afterwards the temporary name is gone or to be removed. */
static bool give_name(struct create *c, struct dk_error *err)
{
    if (c->overwrite) return rename(c->temporary, c->path) == 0 || fail_create(c->path, errno, err);
    /* link never replaces anything, rename does. */
    if (link(c->temporary, c->path) == 0) return true;
    if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS && errno != EMLINK)
        return fail_create(c->path, errno, err);
    /* A file system without hard links: claim the name with an empty file, then replace that. */
    int fd = open(c->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return fail_create(c->path, errno, err);
    close(fd);
    if (rename(c->temporary, c->path) == 0) return true;
    int why = errno;
    unlink(c->path);
    return fail_create(c->path, why, err);
}

/* The name itself survives a power cut only once the folder is synced; where that is not possible
 * it is no failure. */
static void sync_folder(struct create *c)
{
    size_t n = folder_length(c->path);
    memcpy(c->temporary, n ? c->path : ".", n ? n : 1);
    c->temporary[n ? n : 1] = 0;
    int fd = open(c->temporary, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd);
    close(fd);
}

bool create_commit(struct create *c, struct dk_error *err)
{
    bool ok = flush(c, err);
    if (ok && fsync(c->fd) != 0 && errno != EINVAL) ok = fail_create(c->path, errno, err);
    int fd = c->fd;
    c->fd = -1;
    if (close(fd) != 0 && ok && errno != EINTR) ok = fail_create(c->path, errno, err);
    ok = ok && give_name(c, err);
    unlink(c->temporary); /* after rename there is nothing to remove, after link the second name
                             goes */
    if (ok) sync_folder(c);
    release(c, false);
    return ok;
}

void create_abort(struct create *c)
{
    if (c->path) release(c, true);
}
