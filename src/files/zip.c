/* zip.c - the directory of a zip archive whose entries are stored, not compressed. */
/* SPDX-License-Identifier: MIT */
#include "files/zip.h"

#include "files/bytes.h"

#include <stdlib.h>
#include <string.h>

/*
 * Field offsets are those of PKWARE's APPNOTE. From the end of the file backwards:
 *   end record (22 bytes and a comment) <- optional zip64 locator (20) -> optional zip64 end record
 * (56)
 *   -> central directory: one header of 46 bytes, name, extra, comment for each entry -> local
 * headers with the data
 */
#define END_BYTES         22u
#define MAX_COMMENT_BYTES 65535u
#define MAX_ENTRIES       200000u

struct directory {
    uint64_t n_entries, at, size_bytes;
};

bool zip_is(const struct map *map)
{
    return map->size_bytes >= 4 && memcmp(map->data, "PK\3\4", 4) == 0;
}

static struct bytes slice(const struct map *map, uint64_t at)
{
    struct bytes b = {.data = map->data, .size_bytes = map->size_bytes};
    bytes_take(&b, at);
    return b;
}

/* Position of the end record, searched from the end; size_bytes when there is none. */
static size_t find_end(const struct map *map)
{
    size_t n = map->size_bytes, deepest = END_BYTES + MAX_COMMENT_BYTES;
    for (size_t back = END_BYTES; back <= n && back <= deepest; back++) {
        const unsigned char *p = map->data + n - back;
        if (memcmp(p, "PK\5\6", 4) == 0 && (size_t)(p[20] | p[21] << 8) == back - END_BYTES)
            return n - back;
    }
    return n;
}

/* The 64-bit end record, where there is one, holds what does not fit the other. */
static bool read_end64(struct directory *d, const struct map *map, size_t end)
{
    if (end < 20 || memcmp(map->data + end - 20, "PK\6\7", 4) != 0) return true;
    struct bytes locator = slice(map, end - 20 + 8);
    struct bytes b = slice(map, bytes_u64(&locator));
    const unsigned char *magic = bytes_take(&b, 4);
    if (!magic || memcmp(magic, "PK\6\6", 4) != 0) return false;
    bytes_take(&b, 28);
    d->n_entries = bytes_u64(&b);
    d->size_bytes = bytes_u64(&b);
    d->at = bytes_u64(&b);
    return !b.failed;
}

static bool find_directory(struct directory *d, const char *path, const struct map *map,
                           struct dk_error *err)
{
    size_t end = find_end(map);
    struct bytes b = slice(map, end);
    bytes_take(&b, 10);
    d->n_entries = bytes_number(&b, 2);
    d->size_bytes = bytes_u32(&b);
    d->at = bytes_u32(&b);
    if (b.failed)
        return dk_fail(err, DK_ERROR_FORMAT,
                       "%s: the zip archive has no directory at its end: download it again", path);
    if (!read_end64(d, map, end) || d->at > end || d->size_bytes > end - d->at)
        return dk_fail(err, DK_ERROR_FORMAT,
                       "%s: the zip archive's directory lies outside the file", path);
    if (d->n_entries > MAX_ENTRIES)
        return dk_fail(err, DK_ERROR_FORMAT,
                       "%s: the zip archive has %llu entries, at most %u are allowed", path,
                       (unsigned long long)d->n_entries, MAX_ENTRIES);
    return true;
}

/* Nothing is ever written to such names, but they tell a forged archive. */
static bool name_ok(const char *name, size_t n)
{
    if (n == 0 || n > 512 || name[0] == '/') return false;
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f || name[i] == '\\') return false;
        bool starts = i == 0 || name[i - 1] == '/';
        if (starts && i + 1 < n && name[i] == '.' && name[i + 1] == '.' &&
            (i + 2 == n || name[i + 2] == '/'))
            return false;
    }
    return true;
}

/* The zip64 extra field holds those of the three numbers that are all ones in the header, in this
 * order. */
static void read_extra(struct bytes extra, uint64_t *size, uint64_t *stored, uint64_t *local)
{
    while (extra.size_bytes - extra.at >= 4) {
        uint64_t id = bytes_number(&extra, 2), n = bytes_number(&extra, 2);
        const unsigned char *p = bytes_take(&extra, n);
        if (!p) return;
        if (id != 1) continue;
        struct bytes b = {.data = p, .size_bytes = (size_t)n};
        if (*size == UINT32_MAX) *size = bytes_u64(&b);
        if (*stored == UINT32_MAX) *stored = bytes_u64(&b);
        if (*local == UINT32_MAX) *local = bytes_u64(&b);
        return;
    }
}

/* The data of an entry lies behind its local header, whose name must be the same. */
static bool locate(struct zip_entry *entry, const struct map *map, uint64_t local, uint64_t limit)
{
    struct bytes b = slice(map, local);
    const unsigned char *magic = bytes_take(&b, 4);
    if (!magic || memcmp(magic, "PK\3\4", 4) != 0) return false;
    bytes_take(&b, 22);
    uint64_t name_bytes = bytes_number(&b, 2), extra_bytes = bytes_number(&b, 2);
    const unsigned char *name = bytes_take(&b, name_bytes);
    bytes_take(&b, extra_bytes);
    if (b.failed || name_bytes != entry->name_bytes ||
        memcmp(name, entry->name, entry->name_bytes) != 0)
        return false;
    if (b.at > limit || entry->size_bytes > limit - b.at) return false;
    entry->data = map->data + b.at;
    return true;
}

static bool read_entry(struct zip_entry *entry, struct bytes *in, const char *path,
                       const struct map *map, uint64_t limit, struct dk_error *err)
{
    const unsigned char *magic = bytes_take(in, 4);
    bool is_entry = magic && memcmp(magic, "PK\1\2", 4) == 0;
    bytes_take(in, 4);
    uint64_t flags = bytes_number(in, 2), method = bytes_number(in, 2);
    bytes_take(in, 8);
    uint64_t stored = bytes_u32(in), size = bytes_u32(in);
    uint64_t name_bytes = bytes_number(in, 2), extra_bytes = bytes_number(in, 2),
             comment_bytes = bytes_number(in, 2);
    bytes_take(in, 8);
    uint64_t local = bytes_u32(in);
    const char *name = (const char *)bytes_take(in, name_bytes);
    const unsigned char *extra = bytes_take(in, extra_bytes);
    bytes_take(in, comment_bytes);
    if (in->failed || !is_entry)
        return dk_fail(err, DK_ERROR_FORMAT, "%s: the zip archive's directory is damaged", path);
    if (!name_ok(name, (size_t)name_bytes))
        return dk_fail(err, DK_ERROR_FORMAT,
                       "%s: an entry of the zip archive has a name that leads out of it", path);
    int shown = (int)name_bytes;
    if (method != 0 || (flags & 1) != 0)
        return dk_fail(
            err, DK_ERROR_UNSUPPORTED,
            "%s: entry %.*s is %s; PyTorch stores entries plainly, so save the model again", path,
            shown, name, method ? "compressed" : "encrypted");
    read_extra((struct bytes){.data = extra, .size_bytes = (size_t)extra_bytes}, &size, &stored,
               &local);
    *entry = (struct zip_entry){
        .name = name, .name_bytes = (size_t)name_bytes, .size_bytes = (size_t)size};
    if (size != stored || !locate(entry, map, local, limit))
        return dk_fail(
            err, DK_ERROR_FORMAT,
            "%s: entry %.*s does not lie in the file as the directory says: download it again",
            path, shown, name);
    return true;
}

static int compare_names(const char *a, size_t n, const char *b, size_t m)
{
    int order = memcmp(a, b, n < m ? n : m);
    return order ? order : (n > m) - (n < m);
}

static int by_name(const void *a, const void *b)
{
    const struct zip_entry *x = a, *y = b;
    return compare_names(x->name, x->name_bytes, y->name, y->name_bytes);
}

static int by_place(const void *a, const void *b)
{
    const struct zip_entry *x = a, *y = b;
    return (x->data > y->data) - (x->data < y->data);
}

static bool check_entries(struct zip *zip, const char *path, struct dk_error *err)
{
    struct zip_entry *e = zip->entries;
    qsort(e, zip->n_entries, sizeof *e, by_place);
    for (size_t i = 1; i < zip->n_entries; i++)
        if (e[i].data < e[i - 1].data + e[i - 1].size_bytes)
            return dk_fail(
                err, DK_ERROR_FORMAT, "%s: entries %.*s and %.*s of the zip archive overlap", path,
                (int)e[i - 1].name_bytes, e[i - 1].name, (int)e[i].name_bytes, e[i].name);
    qsort(e, zip->n_entries, sizeof *e, by_name);
    for (size_t i = 1; i < zip->n_entries; i++)
        if (by_name(&e[i - 1], &e[i]) == 0)
            return dk_fail(err, DK_ERROR_FORMAT, "%s: entry %.*s is twice in the zip archive", path,
                           (int)e[i].name_bytes, e[i].name);
    return true;
}

bool zip_open(struct zip *zip, const char *path, const struct map *map, struct dk_error *err)
{
    *zip = (struct zip){0};
    struct directory d;
    if (!find_directory(&d, path, map, err)) return false;
    zip->entries = calloc((size_t)d.n_entries + 1, sizeof *zip->entries);
    if (!zip->entries)
        return dk_fail(err, DK_ERROR_MEMORY, "%s: out of memory for its directory", path);
    struct bytes in = {.data = map->data + d.at, .size_bytes = (size_t)d.size_bytes};
    bool ok = true;
    for (; ok && zip->n_entries < d.n_entries; zip->n_entries++)
        ok = read_entry(&zip->entries[zip->n_entries], &in, path, map, d.at, err);
    if (ok && check_entries(zip, path, err)) return true;
    zip_close(zip);
    return false;
}

void zip_close(struct zip *zip)
{
    free(zip->entries);
    *zip = (struct zip){0};
}

const struct zip_entry *zip_find(const struct zip *zip, const char *name, size_t name_bytes)
{
    struct zip_entry key = {.name = name, .name_bytes = name_bytes};
    return zip->n_entries ? bsearch(&key, zip->entries, zip->n_entries, sizeof key, by_name) : NULL;
}
