/* registry.c - finds a scheduler by name, and loads one from a file. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/registry.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- the table ------------------------------------------------------------------------------- */

#define SCHEDULER(file) extern const struct dk_scheduler dk_scheduler_##file;
#include "registry.inc"
#undef SCHEDULER

static const struct dk_scheduler *const SCHEDULERS[] = {
#define SCHEDULER(file) &dk_scheduler_##file,
#include "registry.inc"
#undef SCHEDULER
};

size_t registry_count(void)
{
    return sizeof SCHEDULERS / sizeof *SCHEDULERS;
}

const struct dk_scheduler *registry_at(size_t index)
{
    return index < registry_count() ? SCHEDULERS[index] : NULL;
}

size_t dk_scheduler_count(void)
{
    return registry_count();
}

bool dk_scheduler_get(size_t index, struct dk_scheduler_info *info)
{
    const struct dk_scheduler *s = registry_at(index);
    if (s == NULL) return false;
    *info = (struct dk_scheduler_info){
        .name = s->name,
        .title = s->title,
        .summary = s->summary,
        .paper = s->paper,
        .aliases = s->aliases,
        .order = s->order,
        .passes_per_step = s->passes_per_step,
        .stochastic = (s->flags & DK_STOCHASTIC) && !((s->flags & DK_ETA) && s->eta <= 0),
        .takes_eta = (s->flags & DK_ETA) != 0,
        .steps_low = s->steps_low,
        .steps_high = s->steps_high,
    };
    return true;
}

/* ---- names ----------------------------------------------------------------------------------- */

void registry_fold(const char *text, char *out, size_t capacity)
{
    size_t n = 0;
    for (; *text && n + 1 < capacity; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '+')
            out[n++] = 'p';
        else if (isalnum(c))
            out[n++] = (char)tolower(c);
    }
    out[n] = '\0';
}

/* Copies the next of a comma-separated list, folded; NULL at the end. */
static const char *next_alias(const char *list, char *out, size_t capacity)
{
    char word[80];
    size_t n = strcspn(list, ",");
    if (*list == '\0') return NULL;
    snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), list);
    registry_fold(word, out, capacity);
    return list + n + (list[n] == ',');
}

static bool is_alias(const struct dk_scheduler *s, const char *folded)
{
    char alias[80];
    for (const char *list = s->aliases; (list = next_alias(list, alias, sizeof alias)) != NULL;)
        if (strcmp(alias, folded) == 0) return true;
    return false;
}

static bool same_folded(const char *text, const char *folded)
{
    char other[80];
    registry_fold(text, other, sizeof other);
    return strcmp(other, folded) == 0;
}

/*
 * Names first, titles last: several schedulers may share a title, as A1111 has no name for a
 * setting of a solver.
 */
static const struct dk_scheduler *find_folded(const char *folded)
{
    for (size_t i = 0; i < registry_count(); i++)
        if (same_folded(SCHEDULERS[i]->name, folded)) return SCHEDULERS[i];
    for (size_t i = 0; i < registry_count(); i++)
        if (is_alias(SCHEDULERS[i], folded)) return SCHEDULERS[i];
    for (size_t i = 0; i < registry_count(); i++)
        if (same_folded(SCHEDULERS[i]->title, folded)) return SCHEDULERS[i];
    return NULL;
}

/*
 * Names of a known solver with a setting, in A1111, ComfyUI and stable-diffusion.cpp; both
 * columns folded.
 */
static const struct {
    const char *name, *stem;
    enum dk_solver_type solver_type;
} VARIANTS[] = {
    {"dpmpp2msdeheun", "dpmpp2msde", DK_SOLVER_HEUN},
    {"dpmpp2mheun", "dpmpp2m", DK_SOLVER_HEUN},
    {"resmultistep", "dpmpp2m", DK_SOLVER_HEUN}, /* arXiv:2308.02157; the same formula */
    {"unipcbh1", "unipc", DK_SOLVER_BH1},
};

static bool find_exactly(const char *folded, struct registry_match *match)
{
    *match = (struct registry_match){.scheduler = find_folded(folded)};
    for (size_t i = 0; match->scheduler == NULL && i < sizeof VARIANTS / sizeof *VARIANTS; i++)
        if (strcmp(VARIANTS[i].name, folded) == 0)
            *match = (struct registry_match){find_folded(VARIANTS[i].stem), NULL, NULL,
                                             VARIANTS[i].solver_type};
    return match->scheduler != NULL;
}

/* Endings of names in A1111, diffusers and stable-diffusion.cpp. */
static const struct {
    const char *ending, *sigmas, *spacing;
} ENDINGS[] = {
    {"karras", "karras", NULL},     {"exponential", "exponential", NULL},
    {"beta", "beta", NULL},         {"sgmuniform", "sgm-uniform", NULL},
    {"simple", "simple", NULL},     {"ays", "ays", NULL},
    {"trailing", NULL, "trailing"}, {"leading", NULL, "leading"},
    {"linspace", NULL, "linspace"},
};

static bool find_with_ending(const char *folded, struct registry_match *match)
{
    size_t length = strlen(folded);
    for (size_t i = 0; i < sizeof ENDINGS / sizeof *ENDINGS; i++) {
        size_t n = strlen(ENDINGS[i].ending);
        char stem[80];
        if (length <= n || strcmp(folded + length - n, ENDINGS[i].ending) != 0) continue;
        snprintf(stem, sizeof stem, "%.*s", (int)(length - n), folded);
        if (!find_exactly(stem, match)) continue;
        match->sigmas = ENDINGS[i].sigmas;
        match->spacing = ENDINGS[i].spacing;
        return true;
    }
    return false;
}

/* Levenshtein's distance, for "did you mean". */
static int distance(const char *a, const char *b)
{
    int row[81], n = (int)strlen(b);
    for (int j = 0; j <= n; j++) row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int change = diagonal + (a[i - 1] != b[j - 1]), above = row[j] + 1,
                left = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = change < above ? change : above;
            if (left < row[j]) row[j] = left;
        }
    }
    return row[n];
}

static const struct dk_scheduler *nearest(const char *folded)
{
    const struct dk_scheduler *best = SCHEDULERS[0];
    int least = 1000;
    for (size_t i = 0; i < registry_count(); i++) {
        char name[80];
        registry_fold(SCHEDULERS[i]->name, name, sizeof name);
        int d = distance(folded, name);
        if (d < least) least = d, best = SCHEDULERS[i];
    }
    return best;
}

bool registry_find(const char *name, struct registry_match *match, struct dk_error *err)
{
    char folded[80];
    registry_fold(name, folded, sizeof folded);
    if (find_exactly(folded, match) || find_with_ending(folded, match)) return true;
    return dk_fail(err, DK_ERROR_ARGUMENT,
                   "scheduler \"%.60s\": no such name: did you mean \"%s\"? (darkroom schedulers "
                   "lists them; a file of "
                   "your own needs a slash, as in ./mine.so)",
                   name, nearest(folded)->name);
}

/* ---- plugins --------------------------------------------------------------------------------- */

static bool check_plugin(const char *path, const struct dk_scheduler *s, struct dk_error *err)
{
    if (s == NULL)
        return dk_fail(err, DK_ERROR_FORMAT,
                       "%s: its dk_plugin_scheduler() gives nothing: end the source with "
                       "DK_SCHEDULER_PLUGIN(object)",
                       path);
    /* The linker prefers the program's object to the plugin's where both have one of that name. */
    for (size_t i = 0; i < registry_count(); i++)
        if (s == SCHEDULERS[i])
            return dk_fail(err, DK_ERROR_FORMAT,
                           "%s: its object has the name of one of ours, dk_scheduler_%s, and would "
                           "be mistaken for it: rename it, or link with -Wl,-Bsymbolic",
                           path, s->name);
    if (s->abi != DK_SCHEDULER_ABI)
        return dk_fail(err, DK_ERROR_FORMAT,
                       "%s: made for scheduler ABI %u, this program has %d: compile it again with "
                       "this program's include/scheduler.h",
                       path, (unsigned)s->abi, DK_SCHEDULER_ABI);
    if (s->size_bytes != sizeof *s)
        return dk_fail(err, DK_ERROR_FORMAT,
                       "%s: its struct dk_scheduler has %u bytes, expected %zu: compile it again "
                       "for this machine",
                       path, (unsigned)s->size_bytes, sizeof *s);
    const char *missing = !s->name || !*s->name ? "name"
                          : !s->title           ? "title"
                          : !s->aliases         ? "aliases"
                          : !s->summary         ? "summary"
                          : !s->paper           ? "paper"
                          : !s->step            ? "step"
                                                : NULL;
    if (missing)
        return dk_fail(err, DK_ERROR_FORMAT, "%s: its scheduler has no %s: fill that field", path,
                       missing);
    if (s->order < 1 || s->passes_per_step < 1 || s->n_vectors < 0 || s->n_vectors > 64)
        return dk_fail(err, DK_ERROR_FORMAT,
                       "%s: order %d, passes %d, vectors %d are out of range: at least 1, 1, and "
                       "0 to 64",
                       path, s->order, s->passes_per_step, s->n_vectors);
    return true;
}

const struct dk_scheduler *registry_load(const char *path, void **handle, struct dk_error *err)
{
    *handle = NULL;
    struct stat status;
    /* The loader opens what it is given: a pipe would hold the program for ever. */
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode)) {
        dk_fail(err, DK_ERROR_FILE, "%s: is no file, expected a scheduler built with make plugins",
                path);
        return NULL;
    }
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (object == NULL) {
        const char *why = dlerror();
        dk_fail(err, DK_ERROR_FILE,
                "%s: cannot be loaded as a scheduler: %.300s; build it with make plugins", path,
                why ? why : "no reason given");
        return NULL;
    }
    /* ISO C has no cast from a data to a function pointer; POSIX promises that the bytes agree. */
    const struct dk_scheduler *(*get)(void) = NULL;
    void *symbol = dlsym(object, "dk_plugin_scheduler");
    memcpy(&get, &symbol, sizeof get);
    bool ok = get ? check_plugin(path, get(), err)
                  : dk_fail(err, DK_ERROR_FORMAT,
                            "%s: has no dk_plugin_scheduler: end its source with "
                            "DK_SCHEDULER_PLUGIN(object) and compile with -DDK_PLUGIN",
                            path);
    if (!ok) {
        dlclose(object);
        return NULL;
    }
    *handle = object;
    return get();
}

void registry_unload(void *handle)
{
    if (handle) dlclose(handle);
}
