/* compare_measure.c - the numbers of a comparison: cells, settings, answers. */
/* SPDX-License-Identifier: MIT */
#include "compare_measure.h"

#include "compare_output.h"
#include "compare_scores.h"
#include "compare_store.h"
#include "say.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

#define MOST_DB 120.0 /* stands for equal pictures, which have no finite PSNR */

const char *const quantity_names[N_QUANTITIES] = {
    "latent_rmse", "psnr_db",    "ssim",     "ms_ssim",      "sharpness",  "sharpness_ratio",
    "contrast",    "background", "nearest",  "nearest_rank", "clip_score", "unet_passes",
    "text_s",      "denoise_s",  "decode_s", "seconds"};

/* ---- targets ------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    enum target_kind kind;
    enum quantity quantity;
    bool least; /* the measure must reach the value, not stay below it */
    double low, high;
} target_kinds[] = {
    {"psnr", TARGET_PSNR, Q_PSNR, true, 0, MOST_DB},
    {"ssim", TARGET_SSIM, Q_SSIM, true, -1, 1},
    {"ms-ssim", TARGET_MS_SSIM, Q_MS_SSIM, true, 0, 1},
    {"rmse", TARGET_RMSE, Q_RMSE, false, 0, 1e6},
};
#define N_TARGET_KINDS (sizeof target_kinds / sizeof target_kinds[0])

/* "psnr=30"; "30dB" is the same. */
static bool read_target(struct results *r, const char *text, struct dk_error *err)
{
    size_t n = strlen(text), equals = strcspn(text, "=");
    char *name = text_copy_n(text, equals);
    bool is_db = !text[equals] && n > 2 && strcmp(text + n - 2, "dB") == 0;
    char *number =
        is_db ? text_copy_n(text, n - 2) : text_copy(text[equals] ? text + equals + 1 : "");
    double value;
    bool ok = false;
    for (size_t i = 0; i < N_TARGET_KINDS && !ok; i++) {
        if (strcmp(is_db ? "psnr" : name, target_kinds[i].name) != 0 ||
            !text_to_number(number, &value))
            continue;
        ok = value >= target_kinds[i].low && value <= target_kinds[i].high &&
             r->n_targets < MAX_TARGETS;
        if (ok) r->targets[r->n_targets++] = (struct target){target_kinds[i].kind, value};
    }
    free(name);
    free(number);
    return ok || say_fail(err, DK_ERROR_ARGUMENT,
                          "--target: found \"%.60s\", expected at most %d as psnr=30, ssim=0.95, "
                          "ms-ssim=0.98 or "
                          "rmse=0.1",
                          text, MAX_TARGETS);
}

bool targets_read(struct results *r, const char *text, struct dk_error *err)
{
    char *all = text_copy(text ? text : "psnr=30,ssim=0.95");
    struct values values = {NULL, 0, 0};
    for (char *p = all; *p; p++)
        if (*p == '\n') *p = ','; /* the option was repeated */
    bool ok = values_split(&values, "target", all, ",", false, err);
    for (size_t i = 0; ok && i < values.n_items; i++) ok = read_target(r, values.items[i], err);
    values_free(&values);
    free(all);
    return ok;
}

void target_describe(const struct target *target, char text[48])
{
    static const char *const forms[] = {"PSNR %g dB", "SSIM %g", "MS-SSIM %g", "latent RMSE %g"};
    snprintf(text, 48, forms[target->kind], target->value);
}

/* ---- cells --------------------------------------------------------------------------------- */

static bool measure_alone(const struct comparison *c, struct cell *cell,
                          const struct dk_image *image, struct dk_error *err)
{
    const struct dk_settings *settings = &cell->request.settings;
    const struct truth *truth = c->slots[cell->model].truth;
    struct measure *m = &cell->measure;
    *m = (struct measure){.rmse = NAN,
                          .psnr_db = NAN,
                          .ssim = NAN,
                          .ms_ssim = NAN,
                          .sharpness = dk_metrics_sharpness(image),
                          .sharper = NAN,
                          .contrast = dk_metrics_contrast(image),
                          .background = NAN,
                          .nearest = NAN,
                          .rank = NAN,
                          .clip = NAN};
    if (truth) {
        struct truth_answer answer;
        truth_judge(truth, settings->prompt, image, &answer);
        if (answer.background >= 0) m->background = answer.background;
        if (answer.rank > 0) m->nearest = answer.rank == 1;
        if (answer.rank > 0) m->rank = (double)answer.rank;
        memcpy(m->seen, answer.nearest, sizeof m->seen);
    }
    return !c->scores || scores_of(c->scores, settings, image, &m->clip, err);
}

static bool compare_pictures(struct measure *m, const struct dk_image *image,
                             const struct dk_image *reference, bool one_solution,
                             struct dk_error *err)
{
    struct dk_metrics metrics;
    double sharpness = dk_metrics_sharpness(reference);
    if (sharpness > 0) m->sharper = m->sharpness / sharpness;
    if (!one_solution) return true;
    if (!dk_metrics_compare(image, reference, &metrics, err)) return false;
    m->psnr_db = metrics.psnr_db < MOST_DB ? metrics.psnr_db : MOST_DB;
    m->ssim = metrics.ssim;
    m->ms_ssim = metrics.ms_ssim;
    return true;
}

static bool compare_latents(const struct comparison *c, struct cell *cell,
                            const struct cell *reference, struct dk_error *err)
{
    float *a = store_latent(c->folder, cell, err),
          *b = a ? store_latent(c->folder, reference, err) : NULL;
    const struct outcome *o = &cell->outcome, *p = &reference->outcome;
    bool same = o->h == p->h && o->w == p->w && o->c == p->c;
    if (b && same)
        cell->measure.rmse = dk_metrics_rmse(a, b, (size_t)o->h * (size_t)o->w * (size_t)o->c);
    free(a);
    free(b);
    return b != NULL;
}

static bool measure_cell(const struct comparison *c, struct cell *cell, struct dk_error *err)
{
    const struct problem *problem = &c->problems[cell->problem];
    const struct cell *reference = problem_reference(c, problem);
    struct dk_image image = {0}, other = {0};
    bool ok = store_picture(c->folder, cell, &image, err) && measure_alone(c, cell, &image, err);
    bool is_file = c->reference.kind == REFERENCE_FILE;
    bool one_solution = is_file || (!cell->draws && reference && !reference->draws);
    if (ok && is_file) {
        ok = compare_pictures(&cell->measure, &image, &c->reference.image, true, err);
    } else if (ok && reference) {
        ok = store_picture(c->folder, reference, &other, err) &&
             compare_pictures(&cell->measure, &image, &other, one_solution, err);
        if (ok && one_solution) ok = compare_latents(c, cell, reference, err);
    }
    dk_image_free(&image);
    dk_image_free(&other);
    return ok;
}

static bool score_reference(const struct comparison *c, struct problem *problem,
                            struct dk_error *err)
{
    const struct cell *cell = problem_reference(c, problem);
    const struct dk_settings *settings = &c->cells[problem->first].request.settings;
    struct dk_image image = {0};
    if (c->reference.kind == REFERENCE_FILE)
        return scores_of(c->scores, settings, &c->reference.image, &problem->clip, err);
    bool ok = !cell || (store_picture(c->folder, cell, &image, err) &&
                        scores_of(c->scores, settings, &image, &problem->clip, err));
    dk_image_free(&image);
    return ok;
}

/* ---- statistics of latents ----------------------------------------------------------------- */

#define MAX_CHANNELS 64
struct moments {
    int n_channels;
    double n, sum[MAX_CHANNELS], squares[MAX_CHANNELS];
};

static bool add_moments(const struct comparison *c, const struct cell *cell, struct moments *m,
                        struct dk_error *err)
{
    const struct outcome *o = &cell->outcome;
    if (o->c > MAX_CHANNELS || (m->n_channels && m->n_channels != o->c)) return false;
    float *latent = store_latent(c->folder, cell, err);
    size_t n = (size_t)o->h * (size_t)o->w;
    m->n_channels = o->c;
    for (size_t i = 0; latent && i < n; i++)
        for (int k = 0; k < o->c; k++) {
            double v = (double)latent[i * (size_t)o->c + (size_t)k];
            m->sum[k] += v;
            m->squares[k] += v * v;
        }
    m->n += (double)n;
    free(latent);
    return latent != NULL;
}

/* Root mean square over the channels of the distances in mean and in standard deviation. */
static double moments_distance(const struct moments *a, const struct moments *b)
{
    double sum = 0;
    for (int k = 0; k < a->n_channels; k++) {
        double mean = a->sum[k] / a->n, other = b->sum[k] / b->n;
        double spread = sqrt(fmax(a->squares[k] / a->n - mean * mean, 0));
        double other_spread = sqrt(fmax(b->squares[k] / b->n - other * other, 0));
        sum += (mean - other) * (mean - other) + (spread - other_spread) * (spread - other_spread);
    }
    return sqrt(sum / a->n_channels);
}

/* All prompts and seeds of a setting pooled, and the references of the same. */
static bool measure_statistics(const struct comparison *c, struct setting *setting,
                               struct dk_error *err)
{
    struct moments own = {0}, other = {0};
    setting->statistics = NAN;
    if (c->reference.kind == REFERENCE_FILE) return true;
    for (size_t i = 0; i < setting->n_cells; i++) {
        const struct cell *cell = &c->cells[setting->cells[i]];
        if (cell->state != CELL_DONE) continue;
        const struct cell *reference = problem_reference(c, &c->problems[cell->problem]);
        if (reference &&
            (!add_moments(c, cell, &own, err) || !add_moments(c, reference, &other, err)))
            return false;
    }
    if (own.n_channels && own.n_channels == other.n_channels)
        setting->statistics = moments_distance(&own, &other);
    return true;
}

/* ---- settings ------------------------------------------------------------------------------ */

double cell_quantity(const struct cell *cell, enum quantity quantity)
{
    const struct measure *m = &cell->measure;
    const struct outcome *o = &cell->outcome;
    const double all[N_QUANTITIES] = {
        m->rmse,      m->psnr_db,   m->ssim,     m->ms_ssim,
        m->sharpness, m->sharper,   m->contrast, m->background,
        m->nearest,   m->rank,      m->clip,     o->n_passes,
        o->text_s,    o->denoise_s, o->decode_s, o->text_s + o->denoise_s + o->decode_s};
    return all[quantity];
}

static struct spread spread_of(const struct comparison *c, const struct setting *setting,
                               enum quantity quantity)
{
    struct spread s = {0, 0, 0};
    for (int pass = 0; pass < 2; pass++) {
        double sum = 0;
        s.n = 0;
        for (size_t i = 0; i < setting->n_cells; i++) {
            const struct cell *cell = &c->cells[setting->cells[i]];
            double v = cell->state == CELL_DONE ? cell_quantity(cell, quantity) : NAN;
            if (isnan(v)) continue;
            sum += pass == 0 ? v : (v - s.mean) * (v - s.mean);
            s.n++;
        }
        if (pass == 0)
            s.mean = s.n ? sum / (double)s.n : NAN;
        else
            s.deviation = s.n > 1 ? sqrt(sum / (double)(s.n - 1)) : s.n ? 0 : NAN;
    }
    return s;
}

/* The cells of each setting, in the order of cells. */
static void collect_cells(struct results *r, const struct comparison *c)
{
    for (size_t i = 0; i < r->n_settings; i++) r->settings[i] = (struct setting){.first = SIZE_MAX};
    for (size_t i = 0; i < c->n_cells; i++) r->settings[c->cells[i].setting].n_cells++;
    r->cells = text_alloc((c->n_cells + 1) * sizeof *r->cells);
    size_t at = 0;
    for (size_t i = 0; i < r->n_settings; i++) {
        r->settings[i].cells = r->cells + at;
        at += r->settings[i].n_cells;
        r->settings[i].n_cells = 0;
    }
    for (size_t i = 0; i < c->n_cells; i++) {
        struct setting *s = &r->settings[c->cells[i].setting];
        s->cells[s->n_cells++] = i;
    }
}

static bool sum_up(struct results *r, const struct comparison *c, struct setting *s,
                   struct dk_error *err)
{
    for (size_t i = 0; i < s->n_cells; i++) {
        const struct cell *cell = &c->cells[s->cells[i]];
        if (cell->state == CELL_REFUSED) continue;
        if (s->first == SIZE_MAX) s->first = s->cells[i];
        if (cell->state != CELL_DONE) continue;
        const struct cell *reference = problem_reference(c, &c->problems[cell->problem]);
        s->n_done++;
        s->draws = s->draws || cell->draws;
        s->by_statistics = s->by_statistics || cell->draws || (reference && reference->draws);
    }
    if (c->reference.kind == REFERENCE_FILE) s->by_statistics = false;
    for (int q = 0; q < N_QUANTITIES; q++) s->q[q] = spread_of(c, s, (enum quantity)q);
    for (int q = 0; q < N_QUANTITIES; q++) r->has[q] = r->has[q] || s->q[q].n > 0;
    return measure_statistics(c, s, err);
}

double setting_error(const struct results *r, const struct setting *s)
{
    return r->has[Q_RMSE] ? s->q[Q_RMSE].mean : 1 - s->q[Q_SSIM].mean;
}

static void mark_pareto(struct results *r)
{
    for (size_t i = 0; i < r->n_settings; i++) {
        double error = setting_error(r, &r->settings[i]),
               seconds = r->settings[i].q[Q_SECONDS].mean;
        bool front = !isnan(error) && !isnan(seconds);
        for (size_t k = 0; front && k < r->n_settings; k++) {
            double other = setting_error(r, &r->settings[k]),
                   time = r->settings[k].q[Q_SECONDS].mean;
            if (other <= error && time <= seconds && (other < error || time < seconds))
                front = false;
        }
        r->settings[i].pareto = front;
    }
}

/* ---- series -------------------------------------------------------------------------------- */

static size_t steps_axis(const struct comparison *c)
{
    for (size_t i = 0; i < c->axes.n_items; i++)
        if (strcmp(c->axes.items[i].option->name, "steps") == 0) return i;
    return c->axes.n_items;
}

static bool same_series(const struct comparison *c, const struct cell *a, const struct cell *b)
{
    size_t steps = steps_axis(c);
    for (size_t i = 0; i < c->axes.n_items; i++)
        if (i != steps && !axis_is_sample(&c->axes.items[i]) && a->at[i] != b->at[i]) return false;
    return true;
}

/* The values of the axes that have several; "ddim", "ddim, guidance 4". */
static char *name_series(const struct comparison *c, const struct cell *cell)
{
    char *name = NULL;
    for (size_t pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < c->axes.n_items; i++) {
            const struct axis *axis = &c->axes.items[i];
            bool is_scheduler = strcmp(axis->option->name, "scheduler") == 0;
            bool is_steps = strcmp(axis->option->name, "steps") == 0;
            if (axis_is_sample(axis) || is_steps || is_scheduler != (pass == 0)) continue;
            if (axis->values.n_items < 2 && !is_scheduler) continue;
            bool is_word = is_scheduler || axis->option->kind == OPTION_CHOICE ||
                           axis->option->kind == OPTION_PATH ||
                           strcmp(axis->option->name, "sigmas") == 0;
            char *value = axis_word(axis, cell->at[i]);
            char *longer =
                text_format("%s%s%s%s%s", name ? name : "", name ? ", " : "",
                            is_word && strcmp(value, "own") != 0 ? "" : axis->option->name,
                            is_word && strcmp(value, "own") != 0 ? "" : " ", value);
            free(name);
            free(value);
            name = longer;
        }
    return name ? name : text_copy("all");
}

static void sort_by_steps(const struct comparison *c, const struct results *r, struct series *s)
{
    for (size_t i = 1; i < s->n; i++)
        for (size_t k = i; k > 0; k--) {
            int a = c->cells[r->settings[s->settings[k - 1]].first].request.settings.n_steps;
            int b = c->cells[r->settings[s->settings[k]].first].request.settings.n_steps;
            if (a <= b) break;
            size_t swap = s->settings[k];
            s->settings[k] = s->settings[k - 1];
            s->settings[k - 1] = swap;
        }
}

static void collect_series(struct results *r, const struct comparison *c)
{
    r->series = text_alloc((r->n_settings + 1) * sizeof *r->series);
    for (size_t i = 0; i < r->n_settings; i++) {
        if (r->settings[i].first == SIZE_MAX) continue;
        const struct cell *cell = &c->cells[r->settings[i].first];
        struct series *s = NULL;
        for (size_t k = 0; k < r->n_series && !s; k++)
            if (same_series(c, cell, &c->cells[r->settings[r->series[k].settings[0]].first]))
                s = &r->series[k];
        if (!s) {
            s = &r->series[r->n_series++];
            *s = (struct series){.name = name_series(c, cell),
                                 .settings = text_alloc(r->n_settings * sizeof *s->settings)};
        }
        s->settings[s->n++] = i;
    }
    for (size_t k = 0; k < r->n_series; k++) sort_by_steps(c, r, &r->series[k]);
}

/* ---- answers ------------------------------------------------------------------------------- */

static bool is_within(const struct setting *s, const struct target *target)
{
    for (size_t i = 0; i < N_TARGET_KINDS; i++) {
        double mean = s->q[target_kinds[i].quantity].mean;
        if (target_kinds[i].kind == target->kind)
            return target_kinds[i].least ? mean >= target->value : mean <= target->value;
    }
    return false;
}

static int steps_of(const struct results *r, const struct comparison *c, size_t setting)
{
    return c->cells[r->settings[setting].first].request.settings.n_steps;
}

/* True if setting a answers better than b (SIZE_MAX: nothing yet). */
static bool is_better(const struct results *r, const struct comparison *c, size_t a, size_t b,
                      bool by_time)
{
    if (b == SIZE_MAX) return true;
    int steps = steps_of(r, c, a), other = steps_of(r, c, b);
    double time = r->settings[a].q[Q_SECONDS].mean, other_time = r->settings[b].q[Q_SECONDS].mean;
    if (!by_time && steps != other) return steps < other;
    if (!by_time) return setting_error(r, &r->settings[a]) < setting_error(r, &r->settings[b]);
    return time < other_time;
}

static void answer(struct results *r, const struct comparison *c)
{
    for (size_t t = 0; t < r->n_targets; t++) {
        r->fewest[t] = r->fastest[t] = SIZE_MAX;
        for (size_t k = 0; k < r->n_series; k++) {
            struct series *s = &r->series[k];
            s->fewest[t] = SIZE_MAX;
            for (size_t i = 0; i < s->n; i++) {
                size_t number = s->settings[i];
                bool within = r->settings[number].within[t] =
                    is_within(&r->settings[number], &r->targets[t]);
                if (!within) continue;
                if (is_better(r, c, number, s->fewest[t], false)) s->fewest[t] = number;
                if (is_better(r, c, number, r->fewest[t], false)) r->fewest[t] = number;
                if (is_better(r, c, number, r->fastest[t], true)) r->fastest[t] = number;
            }
        }
    }
}

/* In single quotes where a shell would see more than a word. */
static void put_word(FILE *out, const char *word)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./,:=+@%";
    if (*word && strspn(word, plain) == strlen(word)) {
        fprintf(out, " %s", word);
        return;
    }
    fputs(" '", out);
    for (; *word; word++) {
        if (*word == '\'')
            fputs("'\\''", out);
        else
            fputc(*word, out);
    }
    fputc('\'', out);
}

char *setting_command(const struct comparison *c, const struct setting *setting)
{
    const struct cell *cell = &c->cells[setting->first];
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    if (!out) return text_copy("");
    fputs("darkroom", out);
    for (size_t i = 0; i < c->axes.n_items; i++)
        if (strcmp(c->axes.items[i].option->name, "prompt") == 0)
            put_word(out, cell_value(c, cell, i));
    for (size_t i = 0; i < c->axes.n_items; i++) {
        const char *name = c->axes.items[i].option->name, *value = cell_value(c, cell, i);
        if (strcmp(name, "prompt") == 0 ||
            (strcmp(value, "own") == 0 && c->axes.items[i].option->kind != OPTION_PATH))
            continue;
        fprintf(out, " --%s", name);
        put_word(out, value);
    }
    char number[32];
    if (cell->says_guidance)
        fprintf(out, " --guidance %s", text_from_number(cell->request.settings.guidance, number));
    if (!cell->request.settings.prompt_syntax) fputs(" --no-prompt-syntax", out);
    return fclose(out) == 0 ? text : text_copy("");
}

/* ---- all of it ----------------------------------------------------------------------------- */

bool results_measure(struct results *r, struct comparison *c, struct dk_error *err)
{
    r->n_settings = c->n_settings;
    r->settings = text_alloc(r->n_settings * sizeof *r->settings);
    for (size_t i = 0; i < c->n_cells; i++)
        if (c->cells[i].state == CELL_DONE && !measure_cell(c, &c->cells[i], err)) return false;
    for (size_t i = 0; c->scores && i < c->n_problems; i++)
        if (!score_reference(c, &c->problems[i], err)) return false;
    collect_cells(r, c);
    for (size_t i = 0; i < r->n_settings; i++)
        if (!sum_up(r, c, &r->settings[i], err)) return false;
    mark_pareto(r);
    collect_series(r, c);
    answer(r, c);
    return true;
}

bool results_compared(const struct results *r)
{
    for (size_t k = 0; k < r->n_series; k++)
        if (!r->settings[r->series[k].settings[0]].by_statistics) return true;
    return false;
}

void results_free(struct results *r)
{
    for (size_t i = 0; i < r->n_series; i++) {
        free(r->series[i].name);
        free(r->series[i].settings);
    }
    free(r->series);
    free(r->cells);
    free(r->settings);
}
