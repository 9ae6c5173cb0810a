/* open.c - from a path to weights: which file of a folder, which format, which parts. */
/* SPDX-License-Identifier: MIT */
#include "files/gguf.h"
#include "files/json.h"
#include "files/names.h"
#include "files/pickle.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_INDEX_BYTES (64u << 20)
#define MAX_INDEX_DEPTH 8
#define MAX_SHARDS      1000u

/* What a folder may hold, best first: full precision before fp16, one file before shards. */
static const struct candidate {
    const char *file;
    bool is_index;
} candidates[] = {
    {"diffusion_pytorch_model.safetensors", false},
    {"model.safetensors", false},
    {"diffusion_pytorch_model.safetensors.index.json", true},
    {"model.safetensors.index.json", true},
    {"diffusion_pytorch_model.fp16.safetensors", false},
    {"model.fp16.safetensors", false},
    {"diffusion_pytorch_model.safetensors.index.fp16.json",
     true}, /* transformers' and older diffusers' spelling */
    {"diffusion_pytorch_model.safetensors.fp16.index.json", true},
    {"model.safetensors.index.fp16.json", true},
    {"model.fp16.safetensors.index.json", true},
    {"diffusion_pytorch_model.bin", false}, /* pickles last, however they are split */
    {"pytorch_model.bin", false},
    {"diffusion_pytorch_model.bin.index.json", true},
    {"pytorch_model.bin.index.json", true},
    {"diffusion_pytorch_model.fp16.bin", false},
    {"pytorch_model.fp16.bin", false},
    {"diffusion_pytorch_model.bin.index.fp16.json", true},
    {"diffusion_pytorch_model.bin.fp16.index.json", true},
    {"diffusion_pytorch_model.fp16.bin.index.json", true},
    {"pytorch_model.bin.index.fp16.json", true},
    {"pytorch_model.fp16.bin.index.json", true},
};

/* FOLDER/FILE; free it. */
static char *joined(const char *folder, const char *file, struct dk_error *err)
{
    size_t n = strlen(folder), m = strlen(file);
    char *path = malloc(n + m + 2);
    if (!path) {
        dk_fail(err, DK_ERROR_MEMORY, "%s: out of memory", folder);
        return NULL;
    }
    memcpy(path, folder, n);
    if (n == 0 || path[n - 1] != '/') path[n++] = '/';
    memcpy(path + n, file, m + 1);
    return path;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* ---- formats --------------------------------------------------------------------------------- */

/* The content decides, not the file's name. */
bool weights_read_map(struct weights *w, const char *path, const struct map *map,
                      struct dk_error *err)
{
    w->reading = path;
    bool ok = gguf_is(map)     ? gguf_read(w, path, map, err)
              : pickle_is(map) ? pickle_read(w, path, map, err)
                               : safetensors_read(w, path, map, err);
    w->reading = NULL;
    return ok;
}

static bool read_file(struct weights *w, const char *path, struct dk_error *err)
{
    const struct map *map = weights_map(w, path, err);
    return map && weights_read_map(w, path, map, err);
}

/* ---- folders --------------------------------------------------------------------------------- */

/* Shards lie beside their index; a name that leads anywhere else is refused. */
static bool shard_name_ok(const char *name)
{
    return name && name[0] != 0 && name[0] != '.' && !strchr(name, '/') && !strchr(name, '\\') &&
           strlen(name) < 256;
}

static bool read_shards(struct weights *w, const char *folder, const char *index_path, json_t *map,
                        struct dk_error *err)
{
    json_t *seen = json_object(); /* the set of files read */
    if (!seen) return dk_fail(err, DK_ERROR_MEMORY, "%s: out of memory", index_path);
    bool ok = true;
    const char *tensor;
    json_t *value;
    json_object_foreach(map, tensor, value)
    {
        const char *file = json_string_value(value);
        if (!shard_name_ok(file)) {
            ok = dk_fail(err, DK_ERROR_FORMAT,
                         "%s: tensor %.200s is said to be in \"%.100s\", expected a file beside it",
                         index_path, tensor, file ? file : "(no text)");
            break;
        }
        if (json_object_get(seen, file)) continue;
        if (json_object_size(seen) >= MAX_SHARDS) {
            ok = dk_fail(err, DK_ERROR_FORMAT, "%s: more than %u shards", index_path, MAX_SHARDS);
            break;
        }
        char *path = joined(folder, file, err);
        ok = path && read_file(w, path, err);
        free(path);
        if (!ok) break;
        if (json_object_set_new(seen, file, json_true()) != 0) {
            ok = dk_fail(err, DK_ERROR_MEMORY, "%s: out of memory", index_path);
            break;
        }
    }
    json_decref(seen);
    return ok;
}

/* Every tensor the index lists must have come with a shard. The names are still the file's own
 * here. */
static bool check_index(const struct weights *w, const char *index_path, json_t *map,
                        struct dk_error *err)
{
    json_t *have = json_object();
    bool ok = have != NULL;
    for (size_t i = 0; ok && i < w->n_items; i++)
        ok = json_object_set_new(have, w->items[i].name, json_true()) == 0;
    if (!ok) dk_fail(err, DK_ERROR_MEMORY, "%s: out of memory", index_path);
    const char *tensor;
    json_t *value;
    json_object_foreach(map, tensor, value)
    {
        if (!ok || json_object_get(have, tensor)) continue;
        ok = dk_fail(err, DK_ERROR_FORMAT,
                     "%s: tensor %.200s is in none of the shards; download them again", index_path,
                     tensor);
    }
    json_decref(have);
    return ok;
}

static bool read_index(struct weights *w, const char *folder, const char *index_path,
                       struct dk_error *err)
{
    json_t *root = json_object_read(index_path, MAX_INDEX_BYTES, MAX_INDEX_DEPTH, err);
    if (!root) return false;
    json_t *map = json_object_get(root, "weight_map");
    bool ok =
        json_object_size(map) > 0
            ? read_shards(w, folder, index_path, map, err) && check_index(w, index_path, map, err)
            : dk_fail(err, DK_ERROR_FORMAT, "%s: there is no weight_map in it", index_path);
    json_decref(root);
    return ok;
}

/* How many files of a folder have an ending; *found becomes the first, free it. -1 on failure. */
static int find_files(const char *folder, const char *ending, char **found, struct dk_error *err)
{
    DIR *dir = opendir(folder);
    if (!dir) {
        dk_fail(err, DK_ERROR_FILE, "%s: cannot open: %s", folder, strerror(errno));
        return -1;
    }
    int n = 0;
    for (const struct dirent *entry; n >= 0 && (entry = readdir(dir));) {
        if (entry->d_name[0] == '.' || !ends_with(entry->d_name, ending)) continue;
        if (n++ == 0 && !(*found = joined(folder, entry->d_name, err))) n = -1;
    }
    closedir(dir);
    return n;
}

/* The only file of a folder with weights in it by its ending, or NULL; free it. */
static char *only_file(const char *folder, struct dk_error *err)
{
    static const char *const kinds[] = {".safetensors", ".gguf", ".bin"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char *found = NULL;
        int n = find_files(folder, kinds[i], &found, err);
        if (n == 0) continue;
        if (n == 1) return found;
        free(found);
        if (n > 1)
            dk_fail(err, DK_ERROR_MODEL,
                    "%s: several %s files and none is called %s or %s; name the file that is meant",
                    folder, kinds[i], candidates[0].file, candidates[1].file);
        return NULL;
    }
    dk_fail(err, DK_ERROR_MODEL, "%s: no weights in this folder, expected %s or %s", folder,
            candidates[0].file, candidates[1].file);
    return NULL;
}

static bool read_folder(struct weights *w, const char *folder, struct dk_error *err)
{
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
        char *path = joined(folder, candidates[i].file, err);
        if (!path) return false;
        struct stat st;
        bool there = lstat(path, &st) == 0; /* a link that leads nowhere is told, not passed over */
        bool ok = there && (candidates[i].is_index ? read_index(w, folder, path, err)
                                                   : read_file(w, path, err));
        free(path);
        if (there) return ok;
    }
    char *path = only_file(folder, err);
    bool ok = path && read_file(w, path, err);
    free(path);
    return ok;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static const char *const part_names[] = {"unet", "vae", "text_encoder", "text_encoder_2"};

/* A view of the tensors of one part. It owns nothing but its lists; the names point past the
 * prefix. */
static struct weights *make_part(struct weights *w, const char *part, struct dk_error *err)
{
    struct weights *view = weights_new(w->path, err);
    if (!view) return NULL;
    view->whole = w;
    size_t prefix = strlen(part);
    bool ok = true;
    for (size_t i = 0; ok && i < w->n_items; i++) {
        struct weight item = w->items[i];
        if (strncmp(item.name, part, prefix) != 0 || item.name[prefix] != '.') continue;
        item.name += prefix + 1;
        ok = weights_add(view, &item, err);
    }
    view->kind = strcmp(part, "unet") == 0  ? WEIGHTS_UNET
                 : strcmp(part, "vae") == 0 ? WEIGHTS_VAE
                                            : WEIGHTS_TEXT_ENCODER;
    if (ok && weights_index(view, err)) return view;
    weights_close(view);
    return NULL;
}

static bool make_parts(struct weights *w, struct dk_error *err)
{
    size_t n = sizeof part_names / sizeof *part_names;
    w->parts = calloc(n, sizeof *w->parts);
    w->part_names = calloc(n, sizeof *w->part_names);
    if (!w->parts || !w->part_names)
        return dk_fail(err, DK_ERROR_MEMORY, "%s: out of memory", w->path);
    for (size_t i = 0; i < n; i++) {
        struct weights *view = make_part(w, part_names[i], err);
        if (!view) return false;
        if (view->n_items == 0) {
            weights_close(view);
            continue;
        }
        w->part_names[w->n_parts] = part_names[i];
        w->parts[w->n_parts++] = view;
    }
    return true;
}

/* ---- opening --------------------------------------------------------------------------------- */

struct weights *weights_new(const char *path, struct dk_error *err)
{
    struct weights *w = calloc(1, sizeof *w);
    size_t path_bytes = strlen(path) + 1;
    if (w) w->path = malloc(path_bytes);
    if (!w || !w->path) {
        dk_fail(err, DK_ERROR_MEMORY, "%s: out of memory", path);
        free(w);
        return NULL;
    }
    memcpy(w->path, path, path_bytes);
    return w;
}

bool weights_finish(struct weights *w, struct dk_error *err)
{
    if (w->n_items == 0)
        return dk_fail(err, DK_ERROR_FORMAT, "%s: there are no tensors in it", w->path);
    if (!names_translate(w, err) || !weights_index(w, err)) return false;
    if (w->n_items == 0)
        return dk_fail(err, DK_ERROR_MODEL, "%s: none of its tensors are of use here", w->path);
    return w->kind != WEIGHTS_CHECKPOINT || make_parts(w, err);
}

static struct weights *open_path(const char *path, bool keeps_vision, struct dk_error *err)
{
    struct stat st;
    bool is_folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    struct weights *w = weights_new(path, err);
    if (!w) return NULL;
    w->keeps_vision = keeps_vision;
    bool ok = is_folder ? read_folder(w, path, err) : read_file(w, path, err);
    if (ok && weights_finish(w, err)) return w;
    weights_close(w);
    return NULL;
}

struct weights *weights_open(const char *path, struct dk_error *err)
{
    return open_path(path, false, err);
}

struct weights *weights_open_clip(const char *path, struct dk_error *err)
{
    return open_path(path, true, err);
}
