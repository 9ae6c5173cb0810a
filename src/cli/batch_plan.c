/* batch_plan.c - from lines to jobs: every picture with its settings, identity and name. */
/* SPDX-License-Identifier: MIT */
#include "batch_plan.h"

#include "batch_manifest.h"
#include "batch_words.h"
#include "output.h"
#include "say.h"
#include "sha256.h"
#include "text.h"
#include "values.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DEFAULT_NAME     "{index:05}-{seed}-{prompt:40}.png"
#define MAX_JOBS         ((size_t)10000000)
#define MAX_COMBINATIONS ((size_t)100000)
#define MAX_AXES         16
#define MAX_PART_BYTES   240

/* ---- the plan as memory --------------------------------------------------------------------- */

/* The plan takes over what the request keeps, and returns where it now is. */
static struct request *own(struct plan *plan, const struct request *request, size_t line)
{
    plan->lines =
        list_room(plan->lines, plan->n_lines, &plan->lines_capacity, sizeof(struct plan_line *));
    struct plan_line *owned = text_alloc(sizeof *owned);
    *owned = (struct plan_line){*request, line};
    plan->lines[plan->n_lines++] = owned;
    return &owned->request;
}

void plan_line_init(const struct plan *plan, struct request *request)
{
    *request = *plan->defaults;
    request->kept = NULL;
    request->settings.prompt = NULL;
    memset(request->given, 0, sizeof request->given);
}

void plan_free(struct plan *plan)
{
    for (size_t i = 0; i < plan->n_jobs; i++) {
        free(plan->jobs[i]->name);
        free(plan->jobs[i]->replaces);
        free(plan->jobs[i]);
    }
    for (size_t i = 0; i < plan->n_lines; i++) {
        request_free(&plan->lines[i]->request);
        free(plan->lines[i]);
    }
    free(plan->jobs);
    free(plan->lines);
    tally_free(&plan->ids);
    tally_free(&plan->names);
    tally_free(&plan->texts);
}

/* ---- --matrix ------------------------------------------------------------------------------ */

struct axis {
    char *name;
    struct values values;
};
struct axes {
    struct axis items[MAX_AXES];
    size_t n_items;
};

static void axes_free(struct axes *axes)
{
    for (size_t i = 0; i < axes->n_items; i++) {
        free(axes->items[i].name);
        values_free(&axes->items[i].values);
    }
}

static bool read_axis(struct axes *axes, const char *text, size_t n, struct dk_error *err)
{
    char *all = text_trimmed(text, n), *equals = strchr(all, '=');
    bool ok = equals && equals > all && axes->n_items < MAX_AXES;
    if (!ok)
        say_fail(err, DK_ERROR_ARGUMENT,
                 "--matrix: found \"%.100s\", expected OPTION=A,B,... at most %d times", all,
                 MAX_AXES);
    if (ok) {
        struct axis *axis = &axes->items[axes->n_items++];
        *axis = (struct axis){.name = text_trimmed(all, (size_t)(equals - all))};
        const struct option *option = option_find(axis->name, strlen(axis->name));
        bool number = option && (option->kind == OPTION_INTEGER || option->kind == OPTION_SEED);
        if (!option || option->use != USE_RECORDED || !(option->commands & COMMAND_JOB)) {
            const char *near = option_nearest(axis->name, COMMAND_JOB);
            ok = say_fail(err, DK_ERROR_ARGUMENT,
                          "--matrix: \"%.100s\" is no setting of a picture%s%s%s", axis->name,
                          near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
        }
        ok = ok && values_read(&axis->values, "matrix", equals + 1, number, err);
    }
    free(all);
    return ok;
}

static bool read_axes(struct axes *axes, const char *text, struct dk_error *err)
{
    axes->n_items = 0;
    while (text && *text) {
        size_t n = strcspn(text, "\n");
        if (!read_axis(axes, text, n, err)) return false;
        text += n + (text[n] != '\0');
    }
    return true;
}

/* ---- one line ------------------------------------------------------------------------------ */

struct spread {
    struct plan *plan;
    size_t line, repeat;   /* repeat: equal lines before this one */
    size_t ordinal;        /* of the line, from 0 */
    struct request *items; /* what the line has come to so far */
    int *n_passes;
    size_t n_items, capacity, passes_capacity;
    struct dk_error *err;
};

/* 32 bits from the text, as render draws them. */
static uint64_t derive_seed(const struct request *request, size_t repeat)
{
    struct sha256 sha;
    char hex[65], digits[9], number[24];
    const char *prompt = request->settings.prompt, *negative = request->settings.negative;
    snprintf(number, sizeof number, "%zu", repeat);
    sha256_start(&sha);
    sha256_add(&sha, prompt, strlen(prompt) + 1);
    sha256_add(&sha, negative ? negative : "", negative ? strlen(negative) + 1 : 1);
    sha256_add(&sha, number, strlen(number));
    sha256_finish(&sha, hex);
    snprintf(digits, sizeof digits, "%.8s", hex);
    return strtoull(digits, NULL, 16);
}

static bool list_seeds(struct spread *s, const struct request *request, uint64_t **seeds,
                       size_t *n_seeds)
{
    struct values values = {NULL, 0, 0};
    const char *list = request->batch.seeds;
    if (list && request->count > 1)
        return say_fail(s->err, DK_ERROR_ARGUMENT,
                        "--seeds: found --count too; --seeds says how many already");
    bool ok = !list || values_read(&values, "seeds", list, true, s->err);
    *n_seeds = list ? values.n_items : (size_t)request->count;
    *seeds = text_alloc(*n_seeds * sizeof **seeds);
    uint64_t base = request->random_seed ? derive_seed(request, s->repeat) : request->settings.seed;
    if (request->batch.iterate_seed && !request->random_seed) base += s->ordinal;
    for (size_t i = 0; ok && i < *n_seeds; i++) {
        (*seeds)[i] = base + i;
        if (list && !text_to_uint64(values.items[i], &(*seeds)[i]))
            ok = say_fail(s->err, DK_ERROR_ARGUMENT,
                          "--seeds: found \"%.60s\", expected numbers as 1,2,3 or 1..8",
                          values.items[i]);
    }
    values_free(&values);
    if (!ok) free(*seeds);
    return ok;
}

static bool is_dynamic(const struct request *request, const char *text)
{
    return !request->batch.no_dynamic && text && (strpbrk(text, "{}") || strstr(text, "__"));
}

/* The text with its choices made by the seed, kept by owner. */
static const char *choose(struct request *owner, const char *text, uint64_t seed,
                          struct dk_error *err)
{
    char *chosen;
    if (!is_dynamic(owner, text)) return text;
    if (!dk_expand_prompt(text, owner->batch.wildcards, seed, &chosen, err)) return NULL;
    const char *kept = request_keep(owner, chosen);
    dk_free(chosen);
    return kept;
}

static bool add_picture(struct spread *s, struct request *owner, const char *prompt, uint64_t seed)
{
    struct request request = *owner;
    const char *template = owner->settings.prompt;
    request.kept = NULL;
    request.count = 1;
    request.random_seed = false;
    request.settings.seed = seed;
    request.settings.prompt = prompt ? prompt : choose(owner, template, seed, s->err);
    if (!request.settings.prompt) return false;
    if (strcmp(request.settings.prompt, template) != 0) request.template = template;
    if (owner->settings.negative) {
        request.settings.negative = choose(owner, owner->settings.negative, seed, s->err);
        if (!request.settings.negative) return false;
    }
    int n_passes = 0;
    if (!dk_resolve(s->plan->model, &request.settings, &n_passes, s->err)) return false;
    if (s->plan->n_jobs + s->n_items >= MAX_JOBS)
        return say_fail(s->err, DK_ERROR_ARGUMENT, "more than %zu pictures; split the file",
                        MAX_JOBS);
    s->items = list_room(s->items, s->n_items, &s->capacity, sizeof *s->items);
    s->n_passes = list_room(s->n_passes, s->n_items, &s->passes_capacity, sizeof *s->n_passes);
    s->items[s->n_items] = request;
    s->n_passes[s->n_items++] = n_passes;
    return true;
}

static bool add_seeds(struct spread *s, struct request *owner, const char *prompt)
{
    uint64_t *seeds = NULL;
    size_t n_seeds = 0;
    if (!list_seeds(s, owner, &seeds, &n_seeds)) return false;
    bool ok = true;
    for (size_t i = 0; ok && i < n_seeds; i++) ok = add_picture(s, owner, prompt, seeds[i]);
    free(seeds);
    return ok;
}

static bool add_prompts(struct spread *s, struct request *owner)
{
    char **prompts;
    size_t n_prompts;
    bool complete;
    if (!owner->batch.combinatorial || !is_dynamic(owner, owner->settings.prompt))
        return add_seeds(s, owner, NULL);
    if (!dk_expand_all(owner->settings.prompt, owner->batch.wildcards, MAX_COMBINATIONS, &prompts,
                       &n_prompts, &complete, s->err))
        return false;
    bool ok = complete || say_fail(s->err, DK_ERROR_ARGUMENT,
                                   "--combinatorial: the prompt has more than %zu combinations",
                                   MAX_COMBINATIONS);
    for (size_t i = 0; ok && i < n_prompts; i++)
        ok = add_seeds(s, owner, request_keep(owner, prompts[i]));
    dk_prompts_free(prompts, n_prompts);
    return ok;
}

static bool add_combinations(struct spread *s, const struct request *line, const struct axes *axes)
{
    size_t at[MAX_AXES] = {0};
    for (;;) {
        struct request *owner = own(s->plan, line, s->line);
        owner->kept = NULL;
        for (size_t i = 0; i < axes->n_items; i++)
            if (!batch_set(owner, axes->items[i].name, axes->items[i].values.items[at[i]], s->err))
                return false;
        if (!add_prompts(s, owner)) return false;
        size_t i = axes->n_items;
        while (i > 0 && ++at[i - 1] == axes->items[i - 1].values.n_items) at[--i] = 0;
        if (i == 0) return true;
    }
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* A plugin is a program: only who starts the batch may name one, not a file that came from
 * somewhere. */
static bool check_plugins(const struct plan *plan, const struct request *line,
                          const struct axes *axes, struct dk_error *err)
{
    const char *plugin = line->settings.scheduler;
    if (same_text(plugin, plan->defaults->settings.scheduler) || !strchr(plugin, '/'))
        plugin = NULL;
    bool own_axes = !same_text(line->batch.matrix, plan->defaults->batch.matrix);
    for (size_t i = 0; own_axes && i < axes->n_items; i++) {
        const struct option *option = option_find(axes->items[i].name, strlen(axes->items[i].name));
        for (size_t k = 0;
             strcmp(option->name, "scheduler") == 0 && k < axes->items[i].values.n_items; k++)
            if (strchr(axes->items[i].values.items[k], '/'))
                plugin = axes->items[i].values.items[k];
    }
    return !plugin ||
           say_fail(
               err, DK_ERROR_ARGUMENT,
               "--scheduler: %.300s is a plugin, that is a program: name it on the command line if "
               "you trust it",
               plugin);
}

/* ---- identities ---------------------------------------------------------------------------- */

static void identify(struct plan *plan, struct job *job)
{
    char number[32];
    char *text = identity_of_picture(&job->request, plan->provenance->fingerprint);
    identity_hash(text, "", job->id);
    size_t before = (*tally_at(&plan->ids, job->id))++;
    snprintf(number, sizeof number, "#%zu", before);
    if (before > 0) identity_hash(text, number, job->id);
    free(text);
}

/* ---- names --------------------------------------------------------------------------------- */

static bool has_ending(const char *name)
{
    size_t n = strlen(name);
    return n > 4 && strcasecmp(name + n - 4, ".png") == 0;
}

/* FOLDER/TEMPLATE, where braces of the folder stand for themselves. */
static char *full_template(const char *folder, const char *template)
{
    char *escaped = text_alloc(2 * strlen(folder) + 1), *out = escaped;
    for (const char *p = folder; *p; p++) {
        if (*p == '{' || *p == '}') *out++ = *p;
        *out++ = *p;
    }
    char *full = text_format("%s/%s%s", escaped, template, has_ending(template) ? "" : ".png");
    free(escaped);
    return full;
}

/* Names that Windows keeps for devices, whatever their ending, and those of the contact sheet. */
static bool is_reserved(const char *name)
{
    static const char *const devices[] = {"con", "prn", "aux", "nul"};
    size_t n = strcspn(name, ".");
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++)
        if (n == 3 && strncasecmp(name, devices[i], 3) == 0) return true;
    if (n == 4 && isdigit((unsigned char)name[3]))
        return strncasecmp(name, "com", 3) == 0 || strncasecmp(name, "lpt", 3) == 0;
    if (n < 7 || strncasecmp(name, "contact", 7) != 0) return false;
    return n == 7 || (name[7] == '-' && strspn(name + 8, "0123456789") == n - 8);
}

static bool check_parts(const char *name, struct dk_error *err)
{
    for (const char *p = name; *p;) {
        size_t n = strcspn(p, "/");
        if (n > MAX_PART_BYTES)
            return say_fail(err, DK_ERROR_ARGUMENT,
                            "--name: \"%.60s...\" has %zu bytes, expected at most %d; shorten a "
                            "field as in {prompt:40}",
                            p, n, MAX_PART_BYTES);
        p += n + (p[n] == '/');
    }
    return manifest_is_inside(name) ||
           say_fail(err, DK_ERROR_ARGUMENT,
                    "--name: \"%.200s\" has an empty or hidden part or leads out of the folder",
                    name);
}

/* Two names that differ in case alone are one on some file systems. */
static char *lower(const char *name)
{
    char *copy = text_copy(name);
    for (char *p = copy; *p; p++) *p = (char)(*p >= 'A' && *p <= 'Z' ? *p + ('a' - 'A') : *p);
    return copy;
}

/* The name itself, or the first of "name-2.png", "name-3.png", ... that is not given yet. Takes
 * name over. */
static char *unique(struct plan *plan, char *name)
{
    char *key = lower(name);
    size_t number = ++*tally_at(&plan->names, key);
    free(key);
    if (number == 1) return name;
    for (;; number++) {
        char *numbered =
            text_format("%.*s-%zu%s", (int)strlen(name) - 4, name, number, name + strlen(name) - 4);
        key = lower(numbered);
        size_t used = tally_get(&plan->names, key);
        if (used == 0) {
            *tally_at(&plan->names, key) = 1;
            free(key);
            key = lower(name);
            *tally_at(&plan->names, key) = number;
            free(key);
            free(name);
            return numbered;
        }
        free(key);
        free(numbered);
    }
}

static char *make_name(struct plan *plan, const struct job *job, struct dk_error *err)
{
    struct request request = job->request;
    const char *template = request.batch.name ? request.batch.name : DEFAULT_NAME;
    char *full = full_template(plan->folder, template);
    struct dk_error why = {0};
    request.output = template; /* before .png is added, so that x.jpg is refused */
    bool ok = output_check(&request, &why);
    request.output = full;
    char *path =
        ok ? output_name(&request, plan->provenance->model_name, (int)job->index, &why) : NULL;
    free(full);
    if (!path) {
        const char *sentence =
            strncmp(why.message, "--output: ", 10) == 0 ? why.message + 10 : why.message;
        say_fail(err, why.code, "--name: %.900s", sentence);
        return NULL;
    }
    char *name = text_copy(path + strlen(plan->folder) + 1), *slash = strrchr(name, '/');
    char *last = slash ? slash + 1 : name;
    if (*last == '.' || is_reserved(last)) {
        char *longer =
            text_format("%.*spicture%s%s", (int)(last - name), name, *last == '.' ? "" : "-", last);
        free(name);
        name = longer;
    }
    free(path);
    if (check_parts(name, err)) return name;
    free(name);
    return NULL;
}

/* ---- adding -------------------------------------------------------------------------------- */

static bool commit(struct spread *s)
{
    struct plan *plan = s->plan;
    for (size_t i = 0; i < s->n_items; i++) {
        struct job *job = text_alloc(sizeof *job);
        *job = (struct job){.request = s->items[i],
                            .index = plan->n_jobs + 1,
                            .line = s->line,
                            .n_passes = s->n_passes[i]};
        char *name = make_name(plan, job, s->err);
        if (!name) {
            free(job);
            return false;
        }
        identify(plan, job);
        job->name = unique(plan, name);
        plan->jobs =
            list_room(plan->jobs, plan->n_jobs, &plan->jobs_capacity, sizeof(struct job *));
        plan->jobs[plan->n_jobs++] = job;
    }
    return true;
}

static void take_back(struct plan *plan, size_t n_jobs)
{
    while (plan->n_jobs > n_jobs) {
        struct job *job = plan->jobs[--plan->n_jobs];
        free(job->name);
        free(job);
    }
}

bool plan_add(struct plan *plan, struct request *request, size_t line, struct dk_error *err)
{
    struct dk_error why = {0};
    struct axes axes;
    struct spread s = {.plan = plan, .line = line, .err = &why};
    size_t n_jobs = plan->n_jobs;
    struct request *owned = own(plan, request, line);
    bool ok =
        read_axes(&axes, owned->batch.matrix, &why) && check_plugins(plan, owned, &axes, &why);
    s.ordinal = plan->n_added++;
    if (ok && owned->random_seed) {
        char *text = text_format("%s\n%s", owned->settings.prompt,
                                 owned->settings.negative ? owned->settings.negative : "");
        s.repeat = (*tally_at(&plan->texts, text))++;
        free(text);
    }
    ok = ok && add_combinations(&s, owned, &axes) && commit(&s);
    if (!ok) take_back(plan, n_jobs);
    axes_free(&axes);
    free(s.items);
    free(s.n_passes);
    return ok || say_fail(err, why.code, "%s:%zu: %.900s", plan->source_name, line, why.message);
}
