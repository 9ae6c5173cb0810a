/* create.h - a new file that appears whole or not at all. */
/* SPDX-License-Identifier: MIT */
#ifndef FILES_CREATE_H
#define FILES_CREATE_H

#include "base/error.h"

/*
 * Bytes go to a temporary file in the folder of the target; create_commit syncs it and gives it its
 * name, create_abort (or a failed commit) removes it. As long as every path of the caller ends in
 * one of the two, an interruption that is noticed by a flag leaves nothing behind.
 *
 *     struct create c;
 *     if (!create_open(&c, path, overwrite, err)) return false;
 *     bool ok = create_write(&c, data, n, err) && ...;
 *     if (!ok) create_abort(&c);
 *     return ok && create_commit(&c, err);
 */
struct create {
    int fd;
    bool overwrite;
    char *path, *temporary;
    unsigned char *buffer;
    size_t n_buffered;
};

/* Fails at once when the target exists and overwrite is false, or when the folder is missing or
 * cannot be written. */
bool create_open(struct create *c, const char *path, bool overwrite, struct dk_error *err);
bool create_write(struct create *c, const void *data, size_t size_bytes, struct dk_error *err);
/* Without overwrite the target is never replaced, even if it appeared in the meantime. */
bool create_commit(struct create *c, struct dk_error *err);
void create_abort(struct create *c);

#endif
