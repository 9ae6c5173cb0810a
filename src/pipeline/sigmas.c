/* sigmas.c - makes the nodes of a plan. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/sigmas.h"

#include "pipeline/sigma_schedules.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What one call of sigmas_make() carries about. */
struct making {
    const struct sigmas_request *request;
    const struct scheduler_config *config;
    const struct dk_scheduler *scheduler;
    struct dk_noise_model *model;
    struct sigmas *out;
    struct dk_error *err;
    int n;
    double *t, *sigma; /* [n] */
    enum dk_spacing spacing;
    bool literal; /* the config's own words, unchanged by options */
};

static bool has(const struct making *m, uint32_t flag)
{
    return (m->scheduler->flags & flag) != 0;
}

/* ---- spacings: Lin et al. 2023, arXiv:2305.08891, table 2 ------------------------------------ */

/* n of n_spaced timesteps from the top; rint() rounds half to even, as numpy does. */
static void space_timesteps(struct making *m)
{
    int n_train = m->model->n_train, n = m->n;
    /* The DPM-Solver family spaces one more and drops it, unless there are not that many. */
    int n_spaced = has(m, DK_DROPS_LAST) && n < n_train ? n + 1 : n;
    int stride = n_train / n_spaced, offset = m->config->steps_offset;
    if (m->spacing == DK_LEADING && (n_spaced - 1) * stride + offset > n_train - 1) {
        offset = n_train - 1 -
                 (n_spaced - 1) * stride; /* 1000 steps with offset 1 would ask for timestep 1000 */
        m->literal = false;
    }
    for (int i = 0; i < n; i++) {
        int from_end = n_spaced - 1 - i;
        if (m->spacing == DK_LEADING)
            m->t[i] = from_end * stride + offset;
        else if (m->spacing == DK_TRAILING)
            m->t[i] = rint(n_train - i * ((double)n_train / n)) - 1;
        else
            m->t[i] = schedule_linspace(0, n_train - 1, n_spaced, from_end);
        if (has(m, DK_INTEGER_T)) m->t[i] = rint(m->t[i]);
    }
}

/* ---- sigma at a timestep --------------------------------------------------------------------- */

/* Between trained timesteps linear in sigma (diffusers) or in ln sigma (k-diffusion). */
static double sigma_of_t(const struct dk_noise_model *model, double t, bool in_log)
{
    int low = (int)floor(t), high = (int)ceil(t);
    double a = dk_table_sigma(model, low), b = dk_table_sigma(model, high), share = t - low;
    if (low == high) return a;
    return in_log ? exp(log(a) + (log(b) - log(a)) * share) : a + (b - a) * share;
}

/* ---- the ways to nodes ----------------------------------------------------------------------- */

static double range_max(const struct making *m)
{
    if (m->config->sigma_max > 0) return m->config->sigma_max;
    return dk_table_sigma(m->model, m->model->n_train - 1);
}
static double range_min(const struct making *m)
{
    return m->config->sigma_min > 0 ? m->config->sigma_min : dk_table_sigma(m->model, 0);
}

static void timesteps_from_sigmas(struct making *m)
{
    for (int i = 0; i < m->n; i++) m->t[i] = dk_t_of_sigma(m->model, m->sigma[i]);
}

static void sigmas_from_timesteps(struct making *m, bool in_log)
{
    for (int i = 0; i < m->n; i++) m->sigma[i] = sigma_of_t(m->model, m->t[i], in_log);
}

static struct schedule_range range_of(const struct making *m)
{
    return (struct schedule_range){m->n, range_max(m), range_min(m), m->config->rho,
                                   m->model->n_train};
}

static bool by_name(struct making *m)
{
    const struct schedule *schedule = schedule_find(m->request->sigmas, m->err);
    struct schedule_range range = range_of(m);
    if (schedule == NULL) return false;
    if (schedule->kind != SCHEDULE_FORMULA && m->model->edm)
        return dk_fail(m->err, DK_ERROR_ARGUMENT,
                       "sigmas \"%s\": this model (EDM) has no training timesteps: choose karras, "
                       "exponential, beta or kl-optimal",
                       schedule->name);
    if (schedule->kind == SCHEDULE_TABLE && fabs(range.max / 14.6146 - 1) > 0.1)
        return dk_fail(m->err, DK_ERROR_ARGUMENT,
                       "sigmas \"%s\": the table is for Stable Diffusion's noise, which begins at "
                       "sigma 14.6; this model's begins at %.4g: choose karras or another formula",
                       schedule->name, range.max);
    if (schedule->kind == SCHEDULE_TIMESTEPS) {
        schedule->fill(&range, m->t);
        sigmas_from_timesteps(m, true);
    } else {
        schedule->fill(&range, m->sigma);
        timesteps_from_sigmas(m);
    }
    return true;
}

static bool by_sigma_list(struct making *m)
{
    double max = range_max(m);
    for (int i = 0; i < m->n; i++) {
        if (!(m->sigma[i] > 0) || m->sigma[i] > max * 1.001)
            return dk_fail(m->err, DK_ERROR_ARGUMENT,
                           "sigmas: %g is out of this model's range: give numbers above 0, "
                           "at most %.6g (a last 0 may be left out)",
                           m->sigma[i], max);
        m->sigma[i] = fmin(m->sigma[i], max);
    }
    timesteps_from_sigmas(m);
    return true;
}

static bool by_timestep_list(struct making *m)
{
    for (int i = 0; i < m->n; i++)
        if (!(m->t[i] >= 0 && m->t[i] <= m->model->n_train - 1))
            return dk_fail(m->err, DK_ERROR_ARGUMENT,
                           "timesteps: %g is out of range: give numbers from %d down to 0", m->t[i],
                           m->model->n_train - 1);
    sigmas_from_timesteps(m, true);
    return true;
}

/* The scheduler's own grid. */
static bool by_scheduler(struct making *m)
{
    struct dk_plan plan = {.model = m->model, .options = &m->config->solver, .n_steps = m->n};
    if (!m->scheduler->timesteps(&plan, m->t))
        return dk_fail(m->err, DK_ERROR_ARGUMENT, "scheduler %s: %s", m->scheduler->name,
                       plan.reason);
    for (int i = 0; i < m->n; i++)
        if (!(m->t[i] >= 0 && m->t[i] <= m->model->n_train - 1))
            return dk_fail(m->err, DK_ERROR_ARGUMENT,
                           "scheduler %s: its own grid asks for timestep %g, this model has "
                           "0 to %d: choose another scheduler",
                           m->scheduler->name, m->t[i], m->model->n_train - 1);
    sigmas_from_timesteps(m, false);
    return true;
}

static bool falls(const double *values, int n)
{
    for (int i = 1; i < n; i++)
        if (!(values[i] < values[i - 1])) return false;
    return true;
}

/* A sigma schedule as the config's class computes it. */
static void by_config_schedule(struct making *m)
{
    static const char *const NAMES[] = {[SIGMAS_KARRAS] = "karras",
                                        [SIGMAS_EXPONENTIAL] = "exponential",
                                        [SIGMAS_BETA] = "beta",
                                        [SIGMAS_LU] = "exponential"};
    struct schedule_range range = range_of(m);
    if (!m->model->edm) {
        space_timesteps(m);
        if (!has(m, DK_FULL_RANGE)) {
            sigmas_from_timesteps(m, false);
            if (m->config->sigma_max <= 0) range.max = m->sigma[0];
            if (m->config->sigma_min <= 0) range.min = m->sigma[m->n - 1];
        }
    }
    schedule_find(NAMES[m->config->sigma_schedule], m->err)->fill(&range, m->sigma);
    timesteps_from_sigmas(m);
    if (!has(m, DK_INTEGER_SIGMA_T) || m->model->edm) return;
    bool cuts =
        m->config->sigma_schedule == SIGMAS_EXPONENTIAL || m->config->sigma_schedule == SIGMAS_BETA;
    for (int i = 0; i < m->n; i++) m->t[i] = cuts ? floor(m->t[i] + 1e-9) : rint(m->t[i]);
    if (!falls(m->t, m->n))
        timesteps_from_sigmas(m); /* rounding made two alike: keep the fractions */
}

static void by_spacing(struct making *m)
{
    space_timesteps(m);
    sigmas_from_timesteps(m, false);
    if (!m->config->interpolate_log || !has(m, DK_EXPLODING)) return;
    /*
     * diffusers' "log_linear" keeps the timesteps and spreads n + 1 sigmas evenly in ln sigma,
     * ends included.
     */
    double max = log(range_max(m)), min = log(range_min(m));
    for (int i = 0; i < m->n; i++) m->sigma[i] = exp(schedule_linspace(max, min, m->n + 1, i));
}

/* ---- the end --------------------------------------------------------------------------------- */

/*
 * The sigma of the last node: what the config says, as long as it is below the last timestep's.
 * Else the last pass would change nothing and the end is 0, unless "final_sigmas_type" wants it so.
 */
static double end_sigma(struct making *m)
{
    const struct scheduler_config *c = m->config;
    double end = 0, last = m->sigma[m->n - 1];
    bool wants_min = has(m, DK_SIGMA_END) && c->final_sigma == FINAL_SIGMA_MIN;
    if (has(m, DK_ALPHA_END)) {
        bool to_one = c->set_alpha_to_one == SCHEDULER_UNSET ? !has(m, DK_FIRST_ALPHA)
                                                             : c->set_alpha_to_one != 0;
        if (!to_one) end = dk_table_sigma(m->model, 0);
    } else if (wants_min || (c->interpolate_log && has(m, DK_EXPLODING) && m->literal)) {
        end = range_min(m);
    }
    if (last > end) return end;
    if (!m->literal || !wants_min) return 0;
    snprintf(m->out->warning, sizeof m->out->warning,
             "the last of %d steps changes nothing: the model's scheduler config ends where the "
             "last timestep is",
             m->n);
    return last;
}

static void make_nodes(struct making *m)
{
    struct dk_point *node = m->out->node;
    for (int i = 0; i < m->n; i++) {
        node[i] = dk_point_at(m->out->exploding, m->t[i], m->sigma[i]);
        if (m->config->continuous_t && m->config->prediction == DK_PREDICTS_V &&
            has(m, DK_EXPLODING))
            node[i].t = log(m->sigma[i]) / 4;
    }
    node[m->n] = dk_point_at(m->out->exploding, -1, end_sigma(m));
}

/*
 * Pure noise is x at the start, or x0 + sigma noise with x0 standing for a unit variance (spacing
 * "leading", EDM).
 */
static double init_sigma(const struct making *m)
{
    double sigma = m->sigma[0];
    if (!m->out->exploding) return 1;
    if (m->model->edm || (m->spacing == DK_LEADING && !m->request->sigmas))
        return sqrt(sigma * sigma + 1);
    return sigma;
}

/* ---- the request ----------------------------------------------------------------------------- */

static bool spacing_of(const char *name, enum dk_spacing *spacing, struct dk_error *err)
{
    static const char *const NAMES[] = {"leading", "linspace", "trailing"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(name, NAMES[i]) != 0) continue;
        *spacing = (enum dk_spacing)i;
        return true;
    }
    return dk_fail(err, DK_ERROR_ARGUMENT,
                   "spacing \"%.40s\": unknown: give leading, linspace or trailing", name);
}

static bool is_list(const char *text)
{
    return text && strspn(text, " 0123456789.,+-eE") == strlen(text) && *text;
}

/* Counts and reads a comma-separated list; -1 when it is not one. values may be NULL. */
static int read_list(const char *text, double *values, int limit, double *last)
{
    for (int n = 0;; text++) {
        char *end;
        *last = strtod(text, &end);
        if (end == text || !isfinite(*last) || n == limit) return -1;
        if (values) values[n] = *last;
        n++;
        text = end + strspn(end, " ");
        if (*text == '\0') return n;
        if (*text != ',') return -1;
    }
}

int sigmas_list_length(const char *text, bool of_sigmas)
{
    double last;
    if (text == NULL || (of_sigmas && !is_list(text))) return 0;
    int n = read_list(text, NULL, SCHEDULER_MAX_TRAIN + 1, &last);
    return n > 1 && of_sigmas && last == 0 ? n - 1 : n;
}

/* The number of steps: asked for, or the list's length. */
static bool count_steps(struct making *m)
{
    const struct sigmas_request *r = m->request;
    int most = m->model->n_train, n = r->timesteps ? sigmas_list_length(r->timesteps, false)
                                                   : sigmas_list_length(r->sigmas, true);
    const char *name = r->timesteps ? "timesteps" : "sigmas";
    if (n < 0 || (r->timesteps && n == 0))
        return dk_fail(
            m->err, DK_ERROR_ARGUMENT,
            "%s \"%.40s\": not a list: give up to %d numbers with commas between, falling", name,
            r->timesteps ? r->timesteps : r->sigmas, most);
    if (n > 0 && r->n_steps != 0 && r->n_steps != n)
        return dk_fail(m->err, DK_ERROR_ARGUMENT,
                       "%s: the list has %d, but %d steps are asked for: leave one of the two out",
                       name, n, r->n_steps);
    m->n = n > 0 ? n : r->n_steps;
    if (m->n < 1 || m->n > most)
        return dk_fail(m->err, DK_ERROR_ARGUMENT,
                       "steps: %d asked for, the model was trained with %d: give 1 to %d", m->n,
                       most, most);
    return true;
}

static bool check_request(struct making *m)
{
    const struct sigmas_request *r = m->request;
    const struct dk_scheduler *s = m->scheduler;
    bool own = s->timesteps != NULL;
    if (r->spacing && !spacing_of(r->spacing, &m->spacing, m->err)) return false;
    const char *asked = r->spacing ? "spacing" : r->sigmas ? "sigmas" : NULL;
    if (own && asked)
        return dk_fail(m->err, DK_ERROR_ARGUMENT,
                       "%s: scheduler %s has its own timesteps, those its models were "
                       "distilled on: leave %s out, or give timesteps",
                       asked, s->name, asked);
    if (r->timesteps && asked)
        return dk_fail(m->err, DK_ERROR_ARGUMENT,
                       "timesteps: given together with %s: leave one of the two out", asked);
    if (r->spacing && r->sigmas)
        return dk_fail(m->err, DK_ERROR_ARGUMENT,
                       "spacing: given together with sigmas: leave one of the two out");
    if (m->model->edm && (r->spacing || r->timesteps || own))
        return dk_fail(m->err, DK_ERROR_ARGUMENT,
                       "scheduler %s: this model (EDM) has no training timesteps to choose "
                       "from: use sigmas",
                       s->name);
    if (m->model->edm && !has(m, DK_EXPLODING | DK_ANY_FORM))
        return dk_fail(m->err, DK_ERROR_ARGUMENT,
                       "scheduler %s: not made for EDM models: choose euler, heun or "
                       "dpmpp-2m",
                       s->name);
    return true;
}

/* Zero terminal SNR for those who divide by alpha: diffusers' alpha_bar of 2^-24, sigma 4096. */
static bool fill_alpha_bar(struct making *m)
{
    const struct scheduler_config *c = m->config;
    double *alpha_bar = m->out->alpha_bar = malloc(sizeof *alpha_bar * (size_t)c->n_train);
    if (alpha_bar == NULL) return dk_fail(m->err, DK_ERROR_MEMORY, "scheduler: out of memory");
    scheduler_config_alpha_bar(c, alpha_bar);
    double *last = &alpha_bar[c->n_train - 1];
    bool sigma_schedule = m->request->sigmas || c->sigma_schedule != SIGMAS_NONE;
    if (*last <= 0 && (!has(m, DK_ZERO_ALPHA) || sigma_schedule)) *last = 0x1p-24;
    *m->model =
        (struct dk_noise_model){c->n_train, alpha_bar, c->prediction, c->edm, c->sigma_data};
    for (int i = 0; i < c->n_train; i++)
        if (!(alpha_bar[i] < (i ? alpha_bar[i - 1] : 1) && alpha_bar[i] >= 0))
            return dk_fail(m->err, DK_ERROR_FORMAT,
                           "scheduler config: alpha_bar does not fall at timestep %d: its betas "
                           "are unsound",
                           i);
    if (*last <= 0 && c->prediction == DK_PREDICTS_EPS)
        return dk_fail(m->err, DK_ERROR_ARGUMENT,
                       "scheduler %s: at zero terminal SNR a model that predicts eps says "
                       "nothing about the picture: such a config needs v_prediction",
                       m->scheduler->name);
    return true;
}

static bool make_grid(struct making *m)
{
    const struct sigmas_request *r = m->request;
    double last;
    if (r->timesteps)
        return read_list(r->timesteps, m->t, m->n, &last) == m->n && by_timestep_list(m);
    if (is_list(r->sigmas)) {
        int n = read_list(r->sigmas, m->sigma, m->n + 1, &last); /* room for the last 0 */
        return n >= m->n && by_sigma_list(m);
    }
    if (r->sigmas) return by_name(m);
    if (m->scheduler->timesteps) return by_scheduler(m);
    if (m->config->sigma_schedule != SIGMAS_NONE && (!r->spacing || m->model->edm))
        by_config_schedule(m);
    else
        by_spacing(m);
    return true;
}

static bool check_grid(struct making *m)
{
    if (!falls(m->sigma, m->n) || !falls(m->t, m->n))
        return dk_fail(m->err, DK_ERROR_ARGUMENT,
                       "scheduler %s: two of the %d %s are alike or out of order: give "
                       "numbers that fall, or fewer steps",
                       m->scheduler->name, m->n, m->request->timesteps ? "timesteps" : "sigmas");
    double top = m->model->n_train - 1;
    bool chosen = m->request->timesteps || is_list(m->request->sigmas) || m->scheduler->timesteps;
    if (!chosen && !m->request->first_step && !m->model->edm && m->t[0] < 0.74 * top)
        snprintf(m->out->warning, sizeof m->out->warning,
                 "%d steps by this spacing begin at timestep %.0f of %.0f, where a picture should "
                 "already be there: "
                 "use trailing spacing",
                 m->n, m->t[0], top);
    return true;
}

/* A run that begins with a picture leaves the first steps out. */
static bool drop_first_steps(struct making *m)
{
    int first = m->request->first_step;
    if (first < 0 || first >= m->n)
        return dk_fail(m->err, DK_ERROR_ARGUMENT,
                       "first step: %d of %d steps leaves none: give 0 to %d", first, m->n,
                       m->n - 1);
    m->out->n_steps = m->n - first;
    memmove(m->out->node, m->out->node + first,
            sizeof *m->out->node * (size_t)(m->out->n_steps + 1));
    return true;
}

bool sigmas_make(struct sigmas *out, const struct sigmas_request *request,
                 struct dk_noise_model *model, struct dk_error *err)
{
    const struct scheduler_config *c = request->config;
    const struct dk_scheduler *s = request->scheduler;
    struct making m = {
        .request = request, .config = c, .scheduler = s, .model = model, .out = out, .err = err};
    *out = (struct sigmas){0};
    bool own = s->timesteps != NULL;
    m.spacing = own || c->spacing == SCHEDULER_UNSET ? s->spacing : (enum dk_spacing)c->spacing;
    m.literal = !request->spacing && !request->sigmas && !request->timesteps && !own;
    if (!fill_alpha_bar(&m) || !check_request(&m) || !count_steps(&m)) {
        sigmas_free(out);
        return false;
    }
    size_t n = (size_t)m.n;
    out->n_steps = m.n;
    out->exploding = has(&m, DK_EXPLODING) || (has(&m, DK_ANY_FORM) && (c->edm || request->sigmas));
    out->node = malloc(sizeof *out->node * (n + 1));
    double *work = malloc(sizeof *work * 2 * (n + 1));
    m.t = work;
    m.sigma = work ? work + n + 1 : NULL;
    bool ok = out->node && work
                  ? make_grid(&m) && check_grid(&m)
                  : dk_fail(err, DK_ERROR_MEMORY, "scheduler: out of memory for %d steps", m.n);
    if (ok) {
        make_nodes(&m);
        out->init_sigma = init_sigma(&m);
        ok = drop_first_steps(&m);
    }
    if (!ok) sigmas_free(out);
    free(work);
    return ok;
}

void sigmas_free(struct sigmas *sigmas)
{
    free(sigmas->alpha_bar);
    free(sigmas->node);
    *sigmas = (struct sigmas){0};
}
