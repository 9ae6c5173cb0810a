/* find.c - where models and data files lie. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/find.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_MODEL "emoji"

char *path_join(const char *dir, const char *name)
{
    size_t size = strlen(dir) + strlen(name) + 2;
    char *path = malloc(size);
    if (path) snprintf(path, size, "%s/%s", dir, name);
    return path;
}

bool path_is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool path_is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool path_exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

char *find_config(const char *path)
{
    char *config = path_is_folder(path) ? path_join(path, "config.json") : NULL;
    if (config && path_exists(config)) return config;
    free(config);
    return NULL;
}

/*
 * The folder the running program lies in, without a slash at the end; "" when the system does not tell.
 * Where /proc is not mounted, the name the program was started by must do.
 */
static void program_folder(char folder[static PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", folder, PATH_MAX - 1);
    folder[n > 0 ? n : 0] = '\0';
    const char *started = n > 0 ? NULL : (const char *)getauxval(AT_EXECFN);
    if (started && !realpath(started, folder)) folder[0] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash) *slash = '\0';
}

typedef bool visitor(void *user, const char *folder);

/* An installed program finds the same folder by several rules: each is visited once. */
struct walk {
    visitor *visit;
    void *user;
    struct stat seen[16];
    size_t n_seen;
};

static bool walk_into(struct walk *walk, const char *folder)
{
    struct stat st;
    if (stat(folder, &st) != 0) return walk->visit(walk->user, folder);
    for (size_t i = 0; i < walk->n_seen; i++)
        if (walk->seen[i].st_dev == st.st_dev && walk->seen[i].st_ino == st.st_ino) return false;
    if (walk->n_seen < sizeof walk->seen / sizeof walk->seen[0]) walk->seen[walk->n_seen++] = st;
    return walk->visit(walk->user, folder);
}

/* Calls visit for each models folder in order until it returns true. */
static bool each_models_folder(visitor *visit, void *user)
{
    struct walk walk = {.visit = visit, .user = user};
    char program[PATH_MAX];
    char folder[PATH_MAX + 32];
    program_folder(program);
    if (program[0] != '\0') {
        snprintf(folder, sizeof folder, "%s/models", program);
        if (walk_into(&walk, folder)) return true;
        snprintf(folder, sizeof folder, "%s/../share/darkroom/models", program);
        if (walk_into(&walk, folder)) return true;
    }
    if (walk_into(&walk, DK_PREFIX "/share/darkroom/models")) return true;
    const char *list = getenv("DARKROOM_MODELS");
    while (list && *list) {
        size_t length = strcspn(list, ":");
        if (length > 0 && length < sizeof folder) {
            memcpy(folder, list, length);
            folder[length] = '\0';
            if (walk_into(&walk, folder)) return true;
        }
        list += length + (list[length] == ':');
    }
    return false;
}

/* A link counts that leads nowhere: whoever opens it tells where to. */
static bool has_name(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

struct search {
    const char *name;
    char *found;
};

static bool visit_for_name(void *user, const char *folder)
{
    struct search *search = user;
    char *path = path_join(folder, search->name);
    if (path && has_name(path)) {
        search->found = path;
        return true;
    }
    free(path);
    return false;
}

char *find_in_models(const char *name)
{
    struct search search = {.name = name};
    each_models_folder(visit_for_name, &search);
    return search.found;
}

char *find_clip_table(const char *data_dir)
{
    return data_dir ? path_join(data_dir, CLIP_TABLE) : find_in_models(CLIP_TABLE);
}

static bool visit_for_list(void *user, const char *folder)
{
    char *text = user;
    size_t used = strlen(text);
    snprintf(text + used, 1024 - used, "%s%s", used ? ", " : "", folder);
    return false;
}

char *dk_model_find(const char *name, struct dk_error *err)
{
    if (!name) name = DEFAULT_MODEL;
    if (!*name) { /* every folder searched would answer to it */
        dk_fail(err, DK_ERROR_ARGUMENT,
                "model: the name is empty; give a model's name, file or folder");
        return NULL;
    }
    if (has_name(name) && strcmp(name, DEFAULT_MODEL) != 0) {
        char *copy = strdup(name);
        if (!copy) dk_fail(err, DK_ERROR_MEMORY, "%s: out of memory", name);
        return copy;
    }
    char *found = strchr(name, '/') ? NULL : find_in_models(name);
    if (found) return found;
    char folders[1024] = "";
    each_models_folder(visit_for_list, folders);
    if (strchr(name, '/'))
        dk_fail(err, DK_ERROR_FILE,
                "%s: cannot open the model: %s; give an existing file or folder", name,
                strerror(errno == 0 ? ENOENT : errno));
    else
        dk_fail(err, DK_ERROR_FILE,
                "%s: no such file or folder, and no model of that name in %s; give another -m, or "
                "set DARKROOM_MODELS to the folder that holds it",
                name, folders);
    return NULL;
}

struct listing {
    void (*each)(void *user, const char *name, const char *path);
    void *user;
    size_t n_found;
};

/* A model is a folder with a model_index.json, or a single checkpoint file. */
static bool is_model(const char *path)
{
    const char *dot = strrchr(path, '.');
    if (path_is_file(path))
        return dot && (strcmp(dot, ".safetensors") == 0 || strcmp(dot, ".gguf") == 0 ||
                       strcmp(dot, ".ckpt") == 0);
    char *index = path_join(path, "model_index.json");
    bool yes = index && path_is_file(index);
    free(index);
    return yes;
}

static bool visit_for_models(void *user, const char *folder)
{
    struct listing *listing = user;
    struct dirent **entries;
    int n = scandir(folder, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;
        char *path = name[0] == '.' ? NULL : path_join(folder, name);
        if (path && is_model(path)) {
            listing->each(listing->user, name, path);
            listing->n_found++;
        }
        free(path);
        free(entries[i]);
    }
    if (n >= 0) free(entries);
    return false;
}

size_t dk_model_list(void (*each)(void *user, const char *name, const char *path), void *user)
{
    struct listing listing = {.each = each, .user = user};
    each_models_folder(visit_for_models, &listing);
    return listing.n_found;
}
