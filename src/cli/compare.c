/* compare.c - the command compare: which scheduler needs how many steps. */
/* SPDX-License-Identifier: MIT */
#include "batch_claims.h"
#include "commands.h"
#include "compare_output.h"
#include "compare_report.h"
#include "compare_scores.h"
#include "compare_store.h"
#include "interrupt.h"
#include "output.h"
#include "say.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

#define CLAIM         "compare"
#define STALE_AFTER_S 60
#define CLIP_KEY      "clip" /* beside the axes, for --add */
#define USUAL_LEVELS  3 /* of a reference, for the estimate */

struct run {
    struct request *request;
    struct comparison comparison;
    struct results results;
    struct compare_report report;
    struct claims *claims;
    size_t n_failed;
    char *clip; /* the whole path of --clip, which --add goes on with */
    struct dk_error err; /* after which nothing more is made */
};

/* ---- making a cell ------------------------------------------------------------------------- */

struct latent {
    float *values;
    int h, w, c;
};

struct making {
    struct compare_report *report;
    struct latent latent;
};

static void take_latent(void *user, size_t job, const float *latent, int h, int w, int c)
{
    struct making *making = user;
    size_t n = (size_t)h * (size_t)w * (size_t)c * sizeof *latent;
    (void)job;
    making->latent = (struct latent){text_alloc(n), h, w, c};
    memcpy(making->latent.values, latent, n);
}

static void report_progress(void *user, const struct dk_progress *progress)
{
    compare_report_progress(((struct making *)user)->report, progress);
}

static bool render(struct run *run, struct cell *cell, struct dk_error *err)
{
    struct comparison *c = &run->comparison;
    struct making making = {&run->report, {0}};
    struct dk_image image = {0};
    struct dk_stats stats = {0};
    struct dk_hooks hooks = {.progress = report_progress,
                             .latent = take_latent,
                             .user = &making,
                             .cancel = interrupt_flag()};
    run->report.cell_passes = cell->n_passes;
    bool ok = comparison_use(c, cell->model, err) &&
              dk_render(c->model, &cell->request.settings, 1, &image, &hooks, &stats, err);
    if (ok && interrupt_seen()) ok = say_fail(err, DK_ERROR_CANCELLED, "interrupted");
    if (ok) {
        const struct latent *l = &making.latent;
        compare_report_measured(&run->report, &stats, false);
        cell->outcome = (struct outcome){
            stats.unet_passes, stats.text_s, stats.denoise_s, stats.decode_s, l->h, l->w, l->c};
        ok = store_save(c->folder, cell, &c->slots[cell->model].provenance, &image, l->values, err);
    }
    dk_image_free(&image);
    free(making.latent.values);
    return ok;
}

/* False when the run is to stop. A picture that cannot be made is a gap in the table. */
static bool make_cell(struct run *run, struct cell *cell, bool is_reference)
{
    struct dk_error err = {0};
    if (cell->state != CELL_OPEN || interrupt_seen()) return !interrupt_seen();
    run->report.in_reference = is_reference;
    /* The reference may be a cell of the matrix, or another one's reference. */
    bool ok = store_load(run->comparison.folder, cell) || render(run, cell, &err);
    run->report.passes_left -= cell->n_passes;
    if (run->report.decodes_left > 0) run->report.decodes_left--;
    if (ok) {
        compare_report_cell(&run->report, &run->comparison, cell, is_reference);
        return true;
    }
    if (err.code == DK_ERROR_CANCELLED || interrupt_seen()) return false;
    cell->state = CELL_FAILED;
    cell->why = text_copy(err.message);
    run->n_failed++;
    compare_report_failed(&run->report, cell, err.message);
    if (err.code != DK_ERROR_NUMERIC)
        run->err = err; /* a full disk or lack of memory will not get better */
    return err.code == DK_ERROR_NUMERIC;
}

/* ---- references ---------------------------------------------------------------------------- */

static bool compare_levels(struct run *run, struct problem *problem, size_t level)
{
    const char *folder = run->comparison.folder;
    const struct cell *now = &problem->levels[level], *before = now - 1;
    const struct outcome *o = &now->outcome;
    struct dk_image image = {0}, other = {0};
    struct dk_metrics metrics;
    float *a = store_latent(folder, now, &run->err),
          *b = a ? store_latent(folder, before, &run->err) : NULL;
    bool ok = b && store_picture(folder, now, &image, &run->err) &&
              store_picture(folder, before, &other, &run->err) &&
              dk_metrics_compare(&image, &other, &metrics, &run->err);
    if (ok) {
        problem->changes[level] = dk_metrics_rmse(a, b, (size_t)o->h * (size_t)o->w * (size_t)o->c);
        problem->changes_db[level] = metrics.psnr_db;
    }
    free(a);
    free(b);
    dk_image_free(&image);
    dk_image_free(&other);
    return ok;
}

/* Adds a cell that is to be made to the work ahead, or takes it away. */
static void expect(struct run *run, const struct cell *cell, int times)
{
    struct compare_report *r = &run->report;
    if (cell->state != CELL_OPEN) return;
    r->passes_left += times * cell->n_passes;
    if (times > 0)
        r->decodes_left++;
    else if (r->decodes_left > 0)
        r->decodes_left--;
}

static bool make_reference(struct run *run, struct problem *problem)
{
    problem->n_used = 0;
    for (size_t i = 0; i < problem->n_levels && !problem->converged; i++) {
        if (i >= USUAL_LEVELS) expect(run, &problem->levels[i], 1); /* more than was counted on */
        if (!make_cell(run, &problem->levels[i], true)) return false;
        if (problem->levels[i].state != CELL_DONE) return true;
        problem->n_used = i + 1;
        if (i > 0 && !compare_levels(run, problem, i)) return false;
        problem->converged = problem->n_levels == 1 ||
                             (i > 0 && problem->changes[i] < run->request->compare.tolerance);
    }
    for (size_t i = problem->n_used; i < problem->n_levels && i < USUAL_LEVELS; i++)
        expect(run, &problem->levels[i], -1);
    if (problem->n_levels > 0) compare_report_reference(&run->report, &run->comparison, problem);
    return true;
}

/* ---- the matrix ---------------------------------------------------------------------------- */

/* What is to be made if each reference converges at its third level. */
static void count_work(struct run *run)
{
    struct comparison *c = &run->comparison;
    struct compare_report *r = &run->report;
    for (size_t i = 0; i < c->n_cells; i++) {
        if (c->cells[i].state == CELL_REFUSED) continue;
        r->n_cells++;
        if (c->cells[i].state == CELL_DONE) r->n_done++;
        expect(run, &c->cells[i], 1);
    }
    r->n_kept = r->n_done;
    for (size_t i = 0; i < c->n_problems; i++)
        for (size_t k = 0; k < c->problems[i].n_levels && k < USUAL_LEVELS; k++)
            expect(run, &c->problems[i].levels[k], 1);
}

static void load_finished(struct comparison *c)
{
    for (size_t i = 0; i < c->n_cells; i++)
        if (c->cells[i].state == CELL_OPEN) store_load(c->folder, &c->cells[i]);
    for (size_t i = 0; i < c->n_problems; i++)
        for (size_t k = 0; k < c->problems[i].n_levels; k++)
            store_load(c->folder, &c->problems[i].levels[k]);
}

/* Weights are unpacked in the first pass, so that the first cell would look slow: two short
 * pictures come before it. */
static void warm_up(struct run *run, const struct cell *cell)
{
    struct comparison *c = &run->comparison;
    struct dk_settings settings = problem_request(cell).settings;
    struct dk_hooks hooks = {.cancel = interrupt_flag()};
    settings.scheduler = "ddim";
    settings.n_steps = 1;
    for (int i = 0; i < 2 && !interrupt_seen(); i++) {
        struct dk_image image = {0};
        struct dk_stats stats = {0};
        if (!comparison_use(c, cell->model, NULL) ||
            !dk_render(c->model, &settings, 1, &image, &hooks, &stats, NULL))
            return;
        dk_image_free(&image);
        if (run->report.passes == 0 || run->report.provisional)
            compare_report_measured(&run->report, &stats, true);
        if (stats.denoise_s > 5) return; /* a large model: once is enough */
    }
}

static bool make_slot(struct run *run, size_t slot)
{
    struct comparison *c = &run->comparison;
    for (size_t i = 0; i < c->n_problems; i++)
        if (c->cells[c->problems[i].first].model == slot && !make_reference(run, &c->problems[i]))
            return false;
    for (size_t i = 0; i < c->n_cells; i++)
        if (c->cells[i].model == slot && !make_cell(run, &c->cells[i], false)) return false;
    return true;
}

static const struct cell *first_open(const struct comparison *c, size_t slot)
{
    for (size_t i = 0; i < c->n_cells; i++)
        if (c->cells[i].model == slot && c->cells[i].state == CELL_OPEN) return &c->cells[i];
    return NULL;
}

static bool make_all(struct run *run)
{
    struct comparison *c = &run->comparison;
    load_finished(c);
    count_work(run);
    for (size_t i = 0; i < c->n_slots; i++) {
        const struct cell *open = first_open(c, i);
        if (open) warm_up(run, open);
        if (i == 0) compare_report_plan(&run->report);
        if (!make_slot(run, i)) return false;
    }
    return true;
}

static bool write_all(struct run *run, struct dk_error *err)
{
    struct comparison *c = &run->comparison;
    json_t *axes = axes_to_json(&c->axes);
    if (run->clip) json_object_set_new(axes, CLIP_KEY, json_string(run->clip));
    char *line = metadata_line(axes);
    bool ok = store_write(c->folder, STORE_NAME "/axes.json", line, strlen(line), err) &&
              results_measure(&run->results, c, err) && table_write(&run->results, c, err) &&
              chart_write(&run->results, c, err) && sheets_write(&run->results, c, err) &&
              page_write(&run->results, c, err);
    free(line);
    json_decref(axes);
    return ok;
}

/* ---- scores -------------------------------------------------------------------------------- */

/* What was measured stays measured: more values get scores of the CLIP that the others have. */
static bool open_scores(struct run *run, const json_t *before, struct dk_error *err)
{
    struct comparison *c = &run->comparison;
    struct compare_options *options = &run->request->compare;
    const char *earlier = json_string_value(json_object_get(before, CLIP_KEY));
    bool is_earlier = !options->clip && earlier;
    struct dk_error why = {0};
    if (is_earlier) options->clip = request_keep(run->request, earlier);
    if (!options->clip) return true;
    c->scores = scores_open(run->request, compare_report_score, &run->report, &why);
    run->clip = c->scores ? realpath(options->clip, NULL) : NULL;
    return c->scores ||
           say_fail(err, why.code, is_earlier ? "%s (the CLIP of this comparison: give --clip)" : "%s",
                    why.message);
}

/* ---- beginning and end --------------------------------------------------------------------- */

static void print_dry(struct run *run)
{
    struct comparison *c = &run->comparison;
    struct compare_report *r = &run->report;
    load_finished(c);
    count_work(run);
    const struct cell *open = first_open(c, 0);
    if (open) warm_up(run, open);
    if (r->json) {
        compare_report_plan(r);
        return;
    }
    size_t shown = 0;
    for (size_t i = 0; i < c->n_cells; i++) {
        const struct cell *cell = &c->cells[i];
        bool first = true;
        for (size_t k = 0; k < c->axes.n_items; k++)
            if (axis_is_sample(&c->axes.items[k]) && cell->at[k] > 0) first = false;
        if (!first) continue;
        for (size_t k = 0; k < c->axes.n_items; k++) {
            if (axis_is_sample(&c->axes.items[k])) continue;
            printf("%s %-10s  ", c->axes.items[k].option->name, cell_value(c, cell, k));
        }
        if (cell->state == CELL_REFUSED) {
            fputs("not possible: ", stdout);
            text_print(stdout, cell->why);
            putchar('\n');
        } else {
            printf("%d passes\n", cell->n_passes);
        }
        shown++;
    }
    char eta[32] = "no measurement";
    double left_s = compare_report_estimate(r, r->passes_left, r->decodes_left);
    if (!isnan(left_s)) compare_report_time(left_s, eta);
    printf("%zu settings, %zu cells, %zu finished, %zu references; %lld passes to go, about %s\n",
           shown, r->n_cells, r->n_done, c->n_problems, r->passes_left, eta);
}

static json_t *earlier_axes(const char *folder, struct dk_error *err)
{
    size_t n;
    char *text = store_read(folder, STORE_NAME "/axes.json", &n);
    json_t *axes = text ? json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL) : NULL;
    free(text);
    if (!axes)
        say_fail(err, DK_ERROR_FILE, "--add: %s holds no comparison to add to; leave --add out",
                 folder);
    return axes;
}

static bool prepare(struct run *run, const struct arguments *arguments, struct dk_error *err)
{
    struct comparison *c = &run->comparison;
    const struct compare_options *options = &run->request->compare;
    if (!run->request->output)
        return say_fail(err, DK_ERROR_ARGUMENT,
                        "compare: no folder was given: darkroom compare PROMPT... -o FOLDER");
    c->folder = output_folder(run->request->output);
    json_t *before = options->add ? earlier_axes(c->folder, err) : NULL;
    bool ok = (!options->add || before) &&
              axes_read(&c->axes, run->request, arguments, before, err) &&
              targets_read(&run->results, options->targets, err) &&
              reference_read(&c->reference, options->reference, err) &&
              open_scores(run, before, err) &&
              comparison_plan(c, err);
    json_decref(before);
    return ok;
}

static bool open_folder(struct run *run, struct dk_error *err)
{
    struct comparison *c = &run->comparison;
    char *inner = text_format("%s/" STORE_NAME, c->folder);
    bool ok = store_open(c->folder, err) && (run->claims = claims_open(inner, STALE_AFTER_S, err));
    enum claim_result result = ok ? claims_take(run->claims, CLAIM, err) : CLAIM_FAILED;
    free(inner);
    if (result == CLAIM_TAKEN)
        return say_fail(err, DK_ERROR_FILE,
                        "%s: another process is making this comparison; wait for it", c->folder);
    if (result == CLAIM_MINE) store_sweep(c->folder);
    if (result == CLAIM_MINE && c->scores) scores_use_folder(c->scores, c->folder);
    return result == CLAIM_MINE;
}

static int say_interrupted(void)
{
    say_error("interrupted; run the same command again to go on");
    return EXIT_INTERRUPTED;
}

static int execute(struct run *run)
{
    struct dk_error err = {0};
    if (!open_folder(run, &err)) return say_failure(&err);
    bool made = make_all(run);
    progress_clear(&run->report.progress);
    if (interrupt_seen()) return say_interrupted();
    if (!made) {
        say_failure(&run->err);
        return run->report.n_done > 0 ? EXIT_PARTLY : EXIT_FAILED;
    }
    if (run->report.n_done == 0) return EXIT_FAILED;
    bool written = write_all(run, &err);
    progress_clear(&run->report.progress);
    if (!written) return interrupt_seen() ? say_interrupted() : say_failure(&err);
    if (!run->request->json && !run->request->quiet) table_print(&run->results, &run->comparison);
    return run->n_failed > 0 ? EXIT_PARTLY : EXIT_DONE;
}

int compare_run(struct request *request, struct arguments *arguments, int argc, char **argv)
{
    struct run run = {
        .request = request,
        .comparison = {.request = request, .warn = compare_report_warn, .warn_user = &run.report}};
    struct dk_error err = {0};
    int status;
    (void)argc;
    (void)argv;
    compare_report_init(&run.report, request);
    interrupt_install();
    if (!prepare(&run, arguments, &err)) {
        status = interrupt_seen() ? EXIT_INTERRUPTED : say_failure(&err);
    } else if (request->dry_run) {
        print_dry(&run);
        status = EXIT_DONE;
    } else {
        status = execute(&run);
        compare_report_end(&run.report, run.comparison.folder, status);
    }
    claims_close(run.claims);
    results_free(&run.results);
    scores_close(run.comparison.scores);
    free(run.clip);
    comparison_free(&run.comparison);
    compare_report_free(&run.report);
    return status;
}
