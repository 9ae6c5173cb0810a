/* map.c - a file mapped read-only. */
/* SPDX-License-Identifier: MIT */
#include "files/map.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool map_descriptor(struct map *map, int fd, const char *path, struct dk_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return dk_fail(err, DK_ERROR_FILE, "%s: cannot examine: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return dk_fail(err, DK_ERROR_FILE, "%s: is a %s, expected a regular file", path,
                       S_ISDIR(st.st_mode) ? "folder" : "pipe or device");
    if (st.st_size == 0)
        return dk_fail(err, DK_ERROR_FORMAT, "%s: the file is empty; copy or download it again",
                       path);
    if ((uintmax_t)st.st_size > SIZE_MAX / 2)
        return dk_fail(err, DK_ERROR_MEMORY,
                       "%s: the file is too large for this machine's addresses", path);
    void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        return dk_fail(err, errno == ENOMEM ? DK_ERROR_MEMORY : DK_ERROR_FILE,
                       "%s: cannot map into memory: %s", path, strerror(errno));
    map->data = data;
    map->size_bytes = (size_t)st.st_size;
    return true;
}

bool map_check_link(const char *path, struct dk_error *err)
{
    struct stat st;
    char target[PATH_MAX];
    if (lstat(path, &st) != 0 || !S_ISLNK(st.st_mode)) return true;
    if (stat(path, &st) == 0 || errno != ENOENT) return true;
    ssize_t n = readlink(path, target, sizeof target - 1);
    target[n > 0 ? n : 0] = '\0';
    return dk_fail(err, DK_ERROR_FILE,
                   "%s: is a link to %s, which does not exist; copy or download that again", path,
                   target);
}

bool map_open(struct map *map, const char *path, struct dk_error *err)
{
    *map = (struct map){0};
    int fd =
        open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* O_NONBLOCK: a pipe must not hold us up */
    int why = errno;
    if (fd < 0)
        return map_check_link(path, err) &&
               dk_fail(err, DK_ERROR_FILE, "%s: cannot open: %s", path, strerror(why));
    bool ok = map_descriptor(map, fd, path, err);
    close(fd);
    return ok;
}

/* The system calls take a pointer to non-const though they write nothing; this keeps -Wcast-qual
 * quiet. */
static void *address_of(const void *data)
{
    union {
        const void *in;
        void *out;
    } address = {.in = data};
    return address.out;
}

void map_close(struct map *map)
{
    if (map->data) munmap(address_of(map->data), map->size_bytes);
    *map = (struct map){0};
}
