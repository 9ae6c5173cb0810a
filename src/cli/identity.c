/* identity.c - which model made a picture: a name and a fingerprint of its files. */
/* SPDX-License-Identifier: MIT */
#include "identity.h"

#include "say.h"
#include "sha256.h"
#include "text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define END_BYTES   (64 * 1024)
#define BLOCK_BYTES 4096
#define N_BLOCKS    64
#define MAX_FILES   4096

static const char *const model_endings[] = {".safetensors", ".gguf", ".ckpt", ".pt",
                                            ".bin",         ".json", ".txt",  NULL};

static const char *model_ending(const char *name)
{
    size_t n = strlen(name);
    for (const char *const *ending = model_endings; *ending; ending++) {
        size_t e = strlen(*ending);
        if (n > e && strcasecmp(name + n - e, *ending) == 0) return name + n - e;
    }
    return NULL;
}

static void add_number(struct sha256 *sha, uint64_t number)
{
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%llu\n", (unsigned long long)number);
    sha256_add(sha, digits, (size_t)n);
}

static bool add_range(struct sha256 *sha, int file, uint64_t offset, size_t n_bytes)
{
    unsigned char buffer[BLOCK_BYTES];
    while (n_bytes > 0) {
        ssize_t n =
            pread(file, buffer, n_bytes < sizeof buffer ? n_bytes : sizeof buffer, (off_t)offset);
        if (n <= 0) return false;
        sha256_add(sha, buffer, (size_t)n);
        offset += (uint64_t)n;
        n_bytes -= (size_t)n;
    }
    return true;
}

static bool add_content(struct sha256 *sha, int file, uint64_t size)
{
    if (size <= 2 * END_BYTES + N_BLOCKS * BLOCK_BYTES)
        return add_range(sha, file, 0, (size_t)size);
    uint64_t middle = size - 2 * END_BYTES - BLOCK_BYTES;
    if (!add_range(sha, file, 0, END_BYTES)) return false;
    for (uint64_t i = 0; i < N_BLOCKS; i++)
        if (!add_range(sha, file, END_BYTES + middle / N_BLOCKS * i, BLOCK_BYTES)) return false;
    return add_range(sha, file, size - END_BYTES, END_BYTES);
}

static bool add_file(struct sha256 *sha, const char *path, const char *name, struct dk_error *err)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status;
    bool ok = file >= 0 && fstat(file, &status) == 0;
    if (ok && S_ISREG(status.st_mode)) {
        sha256_add(sha, name, strlen(name) + 1);
        add_number(sha, (uint64_t)status.st_size);
        errno = 0;
        ok = add_content(sha, file, (uint64_t)status.st_size);
    }
    if (!ok)
        say_fail(err, DK_ERROR_FILE, "%s: cannot read: %s", path,
                 errno ? strerror(errno) : "it became shorter");
    if (file >= 0) close(file);
    return ok;
}

struct names {
    char **items;
    size_t n_items;
};

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Model files of folder/inner (inner "" or "unet/"), by name; folders are entered once. */
static void list_files(const char *folder, const char *inner, struct names *names)
{
    char *path = text_format("%s/%s", folder, inner);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && names->n_items < MAX_FILES && (entry = readdir(dir));) {
        if (entry->d_name[0] == '.') continue;
        char *full = text_format("%s%s", path, entry->d_name);
        struct stat status;
        bool exists = stat(full, &status) == 0;
        if (exists && S_ISREG(status.st_mode) && model_ending(entry->d_name)) {
            names->items[names->n_items++] = text_format("%s%s", inner, entry->d_name);
        } else if (exists && S_ISDIR(status.st_mode) && !*inner) {
            char *deeper = text_format("%s/", entry->d_name);
            list_files(folder, deeper, names);
            free(deeper);
        }
        free(full);
    }
    if (dir) closedir(dir);
    free(path);
}

static bool add_folder(struct sha256 *sha, const char *folder, struct dk_error *err)
{
    struct names names = {text_alloc(MAX_FILES * sizeof *names.items), 0};
    list_files(folder, "", &names);
    qsort(names.items, names.n_items, sizeof *names.items, compare_names);
    bool ok = true;
    for (size_t i = 0; i < names.n_items; i++) {
        char *path = text_format("%s/%s", folder, names.items[i]);
        ok = ok && add_file(sha, path, names.items[i], err);
        free(path);
        free(names.items[i]);
    }
    free(names.items);
    return ok;
}

/* The role ("model", "vae") counts, the place where the files lie does not. */
static bool add_part(struct sha256 *sha, const char *role, const char *path, struct dk_error *err)
{
    if (!path) return true;
    struct stat status;
    sha256_add(sha, role, strlen(role) + 1);
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode)) return add_folder(sha, path, err);
    return add_file(sha, path, "", err);
}

bool identity_fingerprint(const char *model_path, const struct request *request,
                          char hex[FINGERPRINT_BYTES], struct dk_error *err)
{
    const struct dk_model_options *parts = &request->model_options;
    struct sha256 sha;
    char digits[65];
    sha256_start(&sha);
    bool ok = add_part(&sha, "model", model_path, err) &&
              add_part(&sha, "unet", parts->unet, err) && add_part(&sha, "vae", parts->vae, err) &&
              add_part(&sha, "text-encoder", parts->text_encoder, err) &&
              add_part(&sha, "tokenizer", parts->tokenizer, err) &&
              add_part(&sha, "taesd", parts->taesd, err);
    sha256_finish(&sha, digits);
    snprintf(hex, FINGERPRINT_BYTES, "%.32s", digits);
    return ok;
}

char *identity_name(const char *path)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/') start--;
    char *name = text_copy_n(path + start, end - start);
    const char *ending = model_ending(name);
    if (ending && strcasecmp(ending, ".json") != 0 && strcasecmp(ending, ".txt") != 0)
        name[ending - name] = '\0';
    size_t n_replaced;
    char *clean = text_repair(name, strlen(name), &n_replaced);
    free(name);
    return clean;
}

char *identity_of_picture(const struct request *request, const char *fingerprint)
{
    /* The fingerprint says what lies there. */
    static const char *const places[] = {"model", "unet",      "vae", "text-encoder",
                                         "tokenizer", "taesd"};
    struct request fresh;
    json_t *all = json_object(), *unsaid = json_object(), *some = json_object(), *value;
    const char *key;
    request_init(&fresh);
    options_to_json(request, USE_RECORDED, all);
    options_to_json(&fresh, USE_RECORDED, unsaid);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) json_object_del(all, places[i]);
    json_object_foreach(all, key, value)
    {
        if (!json_equal(value, json_object_get(unsaid, key))) json_object_set(some, key, value);
    }
    json_object_set_new(some, "model-fingerprint", json_string(fingerprint));
    char *text = json_dumps(some, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    json_decref(all);
    json_decref(unsaid);
    json_decref(some);
    request_free(&fresh);
    return text ? text : text_copy("");
}

void identity_hash(const char *text, const char *more, char id[IDENTITY_BYTES])
{
    struct sha256 sha;
    char hex[65];
    sha256_start(&sha);
    sha256_add(&sha, text, strlen(text));
    sha256_add(&sha, more, strlen(more));
    sha256_finish(&sha, hex);
    snprintf(id, IDENTITY_BYTES, "%.32s", hex);
}
