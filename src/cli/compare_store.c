/* compare_store.c - the folder of a comparison: finished cells, kept for the next run. */
/* SPDX-License-Identifier: MIT */
#include "compare_store.h"

#include "batch_manifest.h"
#include "batch_writer.h"
#include "interrupt.h"
#include "say.h"
#include "text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_FILE_BYTES ((size_t)1 << 30)
#define MAX_SIDE       100000

static const char *const folders[] = {"", STORE_NAME "/", "cells/"};

bool store_open(const char *folder, struct dk_error *err)
{
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        struct stat status;
        char *path = text_format("%s/%s.", folder, folders[i]);
        make_parents(path);
        bool ok = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
        int why = errno;
        free(path);
        if (!ok)
            return say_fail(err, DK_ERROR_FILE,
                            "%s: cannot make the folder: %s; choose another --output", folder,
                            strerror(why));
    }
    return true;
}

void store_sweep(const char *folder)
{
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        char *path = text_format("%s/%s", folder, folders[i]);
        DIR *dir = opendir(path);
        for (struct dirent *entry; dir && (entry = readdir(dir));) {
            size_t n = strlen(entry->d_name);
            if (strncmp(entry->d_name, ".darkroom-", 10) != 0 ||
                strcmp(entry->d_name + n - 4, ".tmp") != 0)
                continue;
            char *leftover = text_format("%s%s", path, entry->d_name);
            unlink(leftover);
            free(leftover);
        }
        if (dir) closedir(dir);
        free(path);
    }
}

/* ---- whole files --------------------------------------------------------------------------- */

bool store_write(const char *folder, const char *name, const void *bytes, size_t n,
                 struct dk_error *err)
{
    const char *slash = strrchr(name, '/');
    int inner = slash ? (int)(slash - name) + 1 : 0;
    char *path = text_format("%s/%s", folder, name);
    char *temporary = text_format("%s/%.*s.darkroom-%ld.tmp", folder, inner, name, (long)getpid());
    interrupt_hold(true);
    int file = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool ok = file >= 0 && text_write(file, bytes, n) && fsync(file) == 0;
    int why = errno;
    if (file >= 0 && close(file) != 0) ok = false;
    if (ok && rename(temporary, path) != 0) {
        ok = false;
        why = errno;
    }
    if (!ok) {
        unlink(temporary);
        say_fail(err, DK_ERROR_FILE, "%s: cannot write: %s", path, strerror(why));
    }
    interrupt_hold(false);
    free(path);
    free(temporary);
    return ok;
}

char *store_read(const char *folder, const char *name, size_t *n_bytes)
{
    char *path = text_format("%s/%s", folder, name), *bytes = NULL;
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    free(path);
    if (file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
        (size_t)status.st_size <= MAX_FILE_BYTES) {
        size_t n = 0, size = (size_t)status.st_size;
        bytes = text_alloc(size + 1);
        for (ssize_t got; n < size && (got = read(file, bytes + n, size - n)) > 0;)
            n += (size_t)got;
        bytes[n] = '\0';
        *n_bytes = n;
    }
    if (file >= 0) close(file);
    return bytes;
}

/* ---- cells --------------------------------------------------------------------------------- */

static char *inner_name(const struct cell *cell, const char *ending)
{
    return text_format(STORE_NAME "/%s.%s", cell->id, ending);
}

static bool hash_is(const char *folder, const char *name, const json_t *expected)
{
    char hex[65], *path = text_format("%s/%s", folder, name);
    const char *wanted = json_string_value(expected);
    long long size;
    struct dk_error ignored = {0};
    bool ok = wanted && manifest_hash(path, hex, &size, &ignored) && strcmp(hex, wanted) == 0;
    free(path);
    return ok;
}

static bool is_side(const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) >= 1 &&
           json_integer_value(value) <= MAX_SIDE;
}

static bool read_outcome(const json_t *record, struct outcome *outcome)
{
    const json_t *shape = json_object_get(record, "latent"),
                 *seconds = json_object_get(record, "seconds");
    const json_t *passes = json_object_get(record, "unet_passes");
    for (size_t i = 0; i < 3; i++)
        if (!is_side(json_array_get(shape, i))) return false;
    if (!json_is_integer(passes)) return false;
    *outcome = (struct outcome){.n_passes = (int)json_integer_value(passes),
                                .text_s = json_number_value(json_object_get(seconds, "text")),
                                .denoise_s = json_number_value(json_object_get(seconds, "denoise")),
                                .decode_s = json_number_value(json_object_get(seconds, "decode")),
                                .h = (int)json_integer_value(json_array_get(shape, 0)),
                                .w = (int)json_integer_value(json_array_get(shape, 1)),
                                .c = (int)json_integer_value(json_array_get(shape, 2))};
    return true;
}

bool store_load(const char *folder, struct cell *cell)
{
    size_t n;
    char *name = inner_name(cell, "json"), *text = store_read(folder, name, &n);
    char *latent = inner_name(cell, "latent");
    json_t *record = text ? json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL) : NULL;
    bool ok = record && read_outcome(record, &cell->outcome) &&
              hash_is(folder, cell->file, json_object_get(record, "sha256")) &&
              hash_is(folder, latent, json_object_get(record, "latent_sha256"));
    if (ok) cell->state = CELL_DONE;
    json_decref(record);
    free(latent);
    free(name);
    free(text);
    return ok;
}

static bool write_picture(const char *folder, const struct cell *cell,
                          const struct provenance *provenance, const struct dk_image *image,
                          struct dk_error *err)
{
    json_t *record = metadata_record(&cell->request, provenance);
    char exact_key[] = "darkroom", parameters_key[] = "parameters";
    struct dk_text texts[] = {{parameters_key, metadata_parameters(&cell->request, provenance)},
                              {exact_key, metadata_line(record)}};
    char *path = text_format("%s/%s", folder, cell->file);
    interrupt_hold(true);
    bool ok = dk_png_write(path, image, texts, 2, true, err);
    interrupt_hold(false);
    free(texts[0].text);
    free(texts[1].text);
    json_decref(record);
    free(path);
    return ok;
}

static json_t *describe(const struct cell *cell, const char *sha256, const char *latent_sha256)
{
    const struct outcome *o = &cell->outcome;
    return json_pack("{s:s, s:s, s:s, s:s, s:[iii], s:i, s:{s:f, s:f, s:f}}", "cell", cell->id,
                     "file", cell->file, "sha256", sha256, "latent_sha256", latent_sha256, "latent",
                     o->h, o->w, o->c, "unet_passes", o->n_passes, "seconds", "text", o->text_s,
                     "denoise", o->denoise_s, "decode", o->decode_s);
}

bool store_save(const char *folder, struct cell *cell, const struct provenance *provenance,
                const struct dk_image *image, const float *latent, struct dk_error *err)
{
    const struct outcome *o = &cell->outcome;
    size_t n = (size_t)o->h * (size_t)o->w * (size_t)o->c;
    char hex[65], latent_hex[65];
    long long size;
    char *latent_name = inner_name(cell, "latent"), *record_name = inner_name(cell, "json");
    char *picture = text_format("%s/%s", folder, cell->file),
         *latent_path = text_format("%s/%s", folder, latent_name);
    bool ok = store_write(folder, latent_name, latent, n * sizeof *latent, err) &&
              write_picture(folder, cell, provenance, image, err) &&
              manifest_hash(picture, hex, &size, err) &&
              manifest_hash(latent_path, latent_hex, &size, err);
    if (ok) {
        json_t *record = describe(cell, hex, latent_hex);
        char *line = metadata_line(record);
        ok = store_write(folder, record_name, line, strlen(line), err);
        free(line);
        json_decref(record);
    }
    if (ok) cell->state = CELL_DONE;
    free(latent_name);
    free(record_name);
    free(latent_path);
    free(picture);
    return ok;
}

float *store_latent(const char *folder, const struct cell *cell, struct dk_error *err)
{
    const struct outcome *o = &cell->outcome;
    size_t n = (size_t)o->h * (size_t)o->w * (size_t)o->c * sizeof(float), n_bytes = 0;
    char *name = inner_name(cell, "latent"), *bytes = store_read(folder, name, &n_bytes);
    float *latent = bytes && n_bytes == n ? text_alloc(n) : NULL;
    if (latent)
        memcpy(latent, bytes, n);
    else
        say_fail(err, DK_ERROR_FILE, "%s/%s: cannot read the latent; run the command again", folder,
                 name);
    free(bytes);
    free(name);
    return latent;
}

bool store_picture(const char *folder, const struct cell *cell, struct dk_image *image,
                   struct dk_error *err)
{
    char *path = text_format("%s/%s", folder, cell->file);
    bool ok = dk_png_read(path, image, NULL, err);
    free(path);
    return ok;
}
