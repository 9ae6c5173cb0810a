/* zip.h - the directory of a zip archive whose entries are stored, not compressed. */
/* SPDX-License-Identifier: MIT */
#ifndef FILES_ZIP_H
#define FILES_ZIP_H

#include "files/map.h"

struct zip_entry {
    const char *name; /* not terminated */
    size_t name_bytes;
    const unsigned char *data;
    size_t size_bytes;
};

struct zip {
    struct zip_entry *entries; /* sorted by name */
    size_t n_entries;
};

bool zip_is(const struct map *map);

/*
 * Reads the central directory and checks it against the local headers. Compressed or encrypted
 * entries, names that lead out of the archive, duplicates, overlaps and ranges beyond the file are
 * refused. Entries point into the map.
 */
bool zip_open(struct zip *zip, const char *path, const struct map *map, struct dk_error *err);
void zip_close(struct zip *zip);

/* NULL when there is none of that name. */
const struct zip_entry *zip_find(const struct zip *zip, const char *name, size_t name_bytes);

#endif
