/* compare_plan.c - from axes to cells: every picture, and what it is measured against. */
/* SPDX-License-Identifier: MIT */
#include "compare_plan.h"

#include "batch_tally.h"
#include "commands.h"
#include "say.h"
#include "text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_CELLS ((size_t)20000)

/* What only decides how a problem is solved, and what is saved on the way. */
static const char *const solving[] = {"scheduler",        "steps", "spacing", "sigmas",
                                      "timesteps",        "eta",   "decoder", "deepcache",
                                      "deepcache-branch", "tgate", "tome"};
#define N_SOLVING (sizeof solving / sizeof solving[0])

/* ---- the reference ------------------------------------------------------------------------- */

static bool ends_in_png(const char *text)
{
    size_t n = strlen(text);
    return n > 4 && strcasecmp(text + n - 4, ".png") == 0;
}

/* "ddpm-1000": a scheduler and its steps. */
static bool read_short_form(struct reference *reference, const char *text)
{
    const char *dash = strrchr(text, '-');
    int64_t steps;
    if (strchr(text, '=') || !dash || dash == text || !text_to_integer(dash + 1, &steps) ||
        steps < 1)
        return false;
    char *name = text_copy_n(text, (size_t)(dash - text));
    for (char *p = name; *p; p++) *p = (char)tolower((unsigned char)*p);
    values_add(&reference->settings, text_format("scheduler=%s", name));
    values_add(&reference->settings, text_format("steps=%s", dash + 1));
    free(name);
    return true;
}

bool reference_read(struct reference *reference, const char *text, struct dk_error *err)
{
    *reference = (struct reference){.kind = REFERENCE_CONVERGED};
    if (!text) return true;
    if (ends_in_png(text)) {
        reference->kind = REFERENCE_FILE;
        reference->path = text;
        return dk_png_read(text, &reference->image, NULL, err);
    }
    reference->kind = REFERENCE_SETTING;
    if (read_short_form(reference, text)) return true;
    if (!values_read(&reference->settings, "reference", text, false, err)) return false;
    for (size_t i = 0; i < reference->settings.n_items; i++) {
        const char *item = reference->settings.items[i];
        const struct option *option = option_find(item, strcspn(item, "="));
        if (!strchr(item, '=') || !option || option->use != USE_RECORDED ||
            option->group == GROUP_MODEL)
            return say_fail(err, DK_ERROR_ARGUMENT,
                            "--reference: found \"%.100s\", expected a PNG, NAME-STEPS as in "
                            "ddpm-1000, or settings as "
                            "in scheduler=heun,steps=200",
                            item);
    }
    return true;
}

/* ---- models -------------------------------------------------------------------------------- */

bool comparison_use(struct comparison *c, size_t slot, struct dk_error *err)
{
    if (c->open == slot) return true;
    dk_model_close(c->model);
    c->open = c->n_slots;
    struct slot *s = &c->slots[slot];
    char *path = NULL;
    s->request.model_options.warn = c->warn;
    s->request.model_options.user = c->warn_user;
    c->model = model_open(&s->request, &path, err);
    bool ok = c->model != NULL;
    if (ok && !s->path) {
        struct dk_error why = {0};
        struct dk_model_info info; /* lays out a run to count its memory: not for each cell */
        dk_model_get_info(c->model, &info);
        s->guidance = info.guidance;
        s->truth = truth_open(path, &why);
        s->provenance.model_name = identity_name(path);
        s->path = text_copy(path);
        if (why.code != DK_OK && err) *err = why;
        ok = why.code == DK_OK &&
             identity_fingerprint(path, &s->request, s->provenance.fingerprint, err);
    }
    dk_free(path);
    if (ok) c->open = slot;
    return ok;
}

/* ---- cells --------------------------------------------------------------------------------- */

/* The cell's numbers: those of the first axis change last. */
static void place_cell(const struct axes *axes, size_t number, struct cell *cell)
{
    for (size_t i = axes->n_items; i-- > 0;) {
        size_t n = axes->items[i].values.n_items;
        cell->at[i] = number % n;
        number /= n;
    }
    for (size_t i = 0; i < axes->n_items; i++) {
        size_t n = axes->items[i].values.n_items;
        if (axis_is_of_model(&axes->items[i])) cell->model = cell->model * n + cell->at[i];
        if (!axis_is_sample(&axes->items[i])) cell->setting = cell->setting * n + cell->at[i];
    }
}

static void init_request(const struct comparison *c, struct request *request)
{
    *request = *c->request;
    request->kept = NULL;
    request->output = NULL;
    request->template = NULL;
    request->random_seed = false;
}

static bool apply_values(const struct comparison *c, struct cell *cell, struct dk_error *err)
{
    for (size_t i = 0; i < c->axes.n_items; i++)
        if (!axis_apply(&cell->request, c->axes.items[i].option, cell_value(c, cell, i), err))
            return false;
    cell->request.random_seed = false;
    return true;
}

/* What dk_resolve filled in lives as long as the model; a cell outlives it. */
static void keep_strings(struct request *request)
{
    struct dk_settings *s = &request->settings;
    const char **places[] = {&s->prompt, &s->negative,  &s->scheduler, &s->spacing,
                             &s->sigmas, &s->timesteps, &s->rng,       &s->decoder};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (*places[i]) *places[i] = request_keep(request, *places[i]);
}

/* Letters and digits alone, up to a comma; + is p, as in the library's registry. */
static void fold(const char *text, char out[64])
{
    size_t n = 0;
    for (; *text && *text != ',' && n + 1 < 64; text++)
        if (*text == '+' || isalnum((unsigned char)*text))
            out[n++] = *text == '+' ? 'p' : (char)tolower((unsigned char)*text);
    out[n] = '\0';
}

static bool is_called(const struct dk_scheduler_info *info, const char *name)
{
    char wanted[64], known[64];
    const char *const lists[] = {info->name, info->title, info->aliases};
    fold(name, wanted);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        for (const char *p = lists[i]; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
            fold(p, known);
            if (strcmp(known, wanted) == 0) return true;
        }
    return false;
}

static bool draws_noise(const struct dk_settings *s)
{
    struct dk_scheduler_info info;
    for (size_t i = 0; dk_scheduler_get(i, &info); i++)
        if (is_called(&info, s->scheduler)) return info.takes_eta ? s->eta > 0 : info.stochastic;
    return s->eta > 0; /* a plugin */
}

/* "cells/dpmpp-2m-16-7-0123456789.png": for people; the digits tell cells apart. */
static char *name_cell(const struct cell *cell)
{
    const struct dk_settings *s = &cell->request.settings;
    const char *slash = strrchr(s->scheduler, '/');
    char *scheduler = text_copy(slash ? slash + 1 : s->scheduler);
    for (char *p = scheduler; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '-' && *p != '_') *p = '-';
    char *name = text_format("cells/%.60s-%d-%llu-%.10s.png", scheduler, s->n_steps,
                             (unsigned long long)s->seed, cell->id);
    free(scheduler);
    return name;
}

/*
 * Some schedulers bring a guidance of their own, for the models they were made for. Where none is
 * asked for, all cells get the model's, or else they would not solve one problem.
 */
static void fix_guidance(const struct comparison *c, struct cell *cell)
{
    struct dk_settings *s = &cell->request.settings, own = *s;
    if (!isnan(s->guidance)) return;
    s->guidance = c->slots[cell->model].guidance;
    struct dk_error ignored = {0};
    cell->says_guidance = !dk_resolve(c->model, &own, NULL, &ignored) || own.guidance != s->guidance;
}

static bool resolve(struct comparison *c, struct cell *cell, struct dk_error *err)
{
    fix_guidance(c, cell);
    if (!dk_resolve(c->model, &cell->request.settings, &cell->n_passes, err)) return false;
    keep_strings(&cell->request);
    char *text = identity_of_picture(&cell->request, c->slots[cell->model].provenance.fingerprint);
    identity_hash(text, "", cell->id);
    free(text);
    cell->draws = draws_noise(&cell->request.settings);
    cell->file = name_cell(cell);
    return true;
}

static void free_cell(struct cell *cell)
{
    request_free(&cell->request);
    free(cell->file);
    free(cell->why);
}

/* ---- problems ------------------------------------------------------------------------------ */

struct request problem_request(const struct cell *cell)
{
    struct request request = cell->request;
    request.kept = NULL;
    for (size_t i = 0; i < N_SOLVING; i++) {
        struct dk_error ignored = {0};
        const struct option *option = option_find(solving[i], strlen(solving[i]));
        if (option) axis_apply(&request, option, "own", &ignored);
    }
    return request;
}

static bool apply_text(struct request *request, const char *item, struct dk_error *err)
{
    size_t n = strcspn(item, "=");
    return axis_apply(request, option_find(item, n), item + n + 1, err);
}

/* A cell for the same problem as another one, solved by these settings. */
static bool derive(struct comparison *c, const struct cell *from, const struct values *settings,
                   struct cell *cell, struct dk_error *err)
{
    *cell = (struct cell){.model = from->model, .problem = from->problem, .setting = SIZE_MAX};
    cell->request = problem_request(from);
    keep_strings(&cell->request);
    bool ok = true;
    for (size_t i = 0; ok && i < settings->n_items; i++)
        ok = apply_text(&cell->request, settings->items[i], err);
    ok = ok && resolve(c, cell, err);
    if (!ok) free_cell(cell);
    return ok;
}

/*
 * Solvers of second order whose picture converges to the flow's solution, by preference: some
 * models allow no free choice of noise levels.
 */
static const char *const converging[] = {"scheduler=dpmpp-2m,sigmas=karras",
                                         "scheduler=dpmpp-2m,spacing=trailing",
                                         "scheduler=ddim,spacing=trailing"};

static bool derive_levels(struct comparison *c, struct problem *problem, const char *solver,
                          struct dk_error *err)
{
    problem->n_levels = 0;
    for (int steps = FIRST_LEVEL; problem->n_levels < MAX_LEVELS; steps *= 2) {
        struct values settings = {NULL, 0, 0};
        values_read(&settings, "reference", solver, false, err);
        values_add(&settings, text_format("steps=%d", steps));
        struct cell *level = &problem->levels[problem->n_levels];
        bool ok = derive(c, &c->cells[problem->first], &settings, level,
                         problem->n_levels == 0 ? err : NULL);
        values_free(&settings);
        if (!ok) break; /* a trained grid of 1000 timesteps has no 1024 steps */
        problem->n_levels++;
    }
    return problem->n_levels > 0;
}

static bool plan_reference(struct comparison *c, struct problem *problem, struct dk_error *err)
{
    const struct cell *first = &c->cells[problem->first];
    const struct dk_image *image = &c->reference.image;
    if (c->reference.kind == REFERENCE_FILE) {
        int w = first->request.settings.width_px, h = first->request.settings.height_px;
        if (image->width_px == w && image->height_px == h) return true;
        return say_fail(err, DK_ERROR_ARGUMENT,
                        "--reference: %.200s has %dx%d pixels, the cells %dx%d; give --size %dx%d",
                        c->reference.path, image->width_px, image->height_px, w, h, image->width_px,
                        image->height_px);
    }
    problem->levels = text_alloc(MAX_LEVELS * sizeof *problem->levels);
    if (c->reference.kind == REFERENCE_SETTING) {
        problem->n_levels =
            derive(c, first, &c->reference.settings, &problem->levels[0], err) ? 1 : 0;
        return problem->n_levels == 1;
    }
    for (size_t i = 0; i < sizeof converging / sizeof converging[0]; i++) {
        struct dk_error why = {0};
        if (derive_levels(c, problem, converging[i], &why)) return true;
        if (i == 0) *err = why;
    }
    return false;
}

/* The number of the cell's problem; a new one gets its reference planned. */
static bool find_problem(struct comparison *c, struct tally *known, size_t number,
                         struct dk_error *err)
{
    struct cell *cell = &c->cells[number];
    const struct request bare = problem_request(cell);
    char *key = identity_of_picture(&bare, c->slots[cell->model].provenance.fingerprint);
    size_t *at = tally_at(known, key);
    bool ok = true;
    if (*at == 0) {
        c->problems =
            list_room(c->problems, c->n_problems, &c->problems_capacity, sizeof *c->problems);
        *at = ++c->n_problems;
        struct problem *problem = &c->problems[c->n_problems - 1];
        *problem = (struct problem){.first = number, .clip = NAN};
        cell->problem = *at - 1;
        ok = plan_reference(c, problem, err);
    }
    cell->problem = *at - 1;
    free(key);
    return ok;
}

/* ---- all of it ----------------------------------------------------------------------------- */

static bool count_cells(struct comparison *c, struct dk_error *err)
{
    c->n_cells = c->n_slots = c->n_settings = 1;
    for (size_t i = 0; i < c->axes.n_items; i++) {
        const struct axis *axis = &c->axes.items[i];
        size_t n = axis->values.n_items;
        if (c->n_cells * n > MAX_CELLS)
            return say_fail(err, DK_ERROR_ARGUMENT,
                            "compare: more than %zu pictures; give fewer values", MAX_CELLS);
        c->n_cells *= n;
        if (axis_is_of_model(axis)) c->n_slots *= n;
        if (!axis_is_sample(axis)) c->n_settings *= n;
    }
    c->open = c->n_slots;
    c->cells = text_alloc(c->n_cells * sizeof *c->cells);
    memset(c->cells, 0, c->n_cells * sizeof *c->cells);
    c->slots = text_alloc(c->n_slots * sizeof *c->slots);
    memset(c->slots, 0, c->n_slots * sizeof *c->slots);
    return true;
}

static bool plan_cell(struct comparison *c, struct tally *known, size_t number,
                      struct dk_error *err)
{
    struct cell *cell = &c->cells[number];
    struct dk_error why = {0};
    place_cell(&c->axes, number, cell);
    init_request(c, &cell->request);
    if (!apply_values(c, cell, err)) return false;
    if (c->open != cell->model) {
        struct slot *slot = &c->slots[cell->model];
        slot->request = cell->request;
        slot->request.kept = NULL; /* the cell keeps the strings */
        if (!comparison_use(c, cell->model, err)) return false;
    }
    if (resolve(c, cell, &why)) return find_problem(c, known, number, err);
    cell->state = CELL_REFUSED;
    cell->why = text_copy(why.message);
    cell->code = why.code;
    return true;
}

/* A value with which nothing is possible is a mistake, not a gap in the table. */
static bool check_values(const struct comparison *c, struct dk_error *err)
{
    for (size_t i = 0; i < c->axes.n_items; i++)
        for (size_t k = 0; k < c->axes.items[i].values.n_items; k++) {
            const struct cell *refused = NULL;
            bool possible = false;
            for (size_t n = 0; n < c->n_cells && !possible; n++) {
                const struct cell *cell = &c->cells[n];
                if (cell->at[i] != k) continue;
                possible = cell->state != CELL_REFUSED;
                if (!possible && !refused) refused = cell;
            }
            if (!possible)
                return say_fail(err, refused ? refused->code : DK_ERROR_ARGUMENT, "%.1000s",
                                refused ? refused->why : "compare: nothing to do");
        }
    return true;
}

bool comparison_plan(struct comparison *c, struct dk_error *err)
{
    struct tally known = {0};
    bool ok = count_cells(c, err);
    for (size_t i = 0; ok && i < c->n_cells; i++) ok = plan_cell(c, &known, i, err);
    tally_free(&known);
    return ok && check_values(c, err);
}

void comparison_free(struct comparison *c)
{
    for (size_t i = 0; c->cells && i < c->n_cells; i++) free_cell(&c->cells[i]);
    for (size_t i = 0; i < c->n_problems; i++) {
        for (size_t k = 0; k < c->problems[i].n_levels; k++) free_cell(&c->problems[i].levels[k]);
        free(c->problems[i].levels);
    }
    for (size_t i = 0; c->slots && i < c->n_slots; i++) {
        free(c->slots[i].provenance.model_name);
        truth_free(c->slots[i].truth);
        free(c->slots[i].path);
    }
    dk_model_close(c->model);
    dk_image_free(&c->reference.image);
    values_free(&c->reference.settings);
    axes_free(&c->axes);
    free(c->cells);
    free(c->problems);
    free(c->slots);
    free(c->folder);
}

const struct cell *problem_reference(const struct comparison *c, const struct problem *problem)
{
    if (c->reference.kind == REFERENCE_FILE || problem->n_used == 0) return NULL;
    const struct cell *cell = &problem->levels[problem->n_used - 1];
    return cell->state == CELL_DONE ? cell : NULL;
}

const char *cell_value(const struct comparison *c, const struct cell *cell, size_t axis)
{
    return c->axes.items[axis].values.items[cell->at[axis]];
}
