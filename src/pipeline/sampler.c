/* sampler.c - drives one scheduler: plan, scale, convert, step. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/sampler.h"

#include "pipeline/registry.h"
#include "pipeline/sigmas.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sampler {
    const struct dk_scheduler *scheduler;
    void *plugin; /* dlopen's handle, or NULL */
    struct dk_solver_options options;
    struct dk_noise_model model;
    struct sigmas sigmas;
    struct dk_plan plan;
    bool clip, threshold;
    double clip_range, threshold_ratio, threshold_max;
    char warning[400];
};

/* One image's memory: the scheduler's vectors, then x0, eps, noise and a spare one. */
struct sampler_state {
    size_t n;
    float *vectors, *x0, *eps, *noise, *spare;
};

/* ---- which scheduler ------------------------------------------------------------------------- */

/* A config's class names a scheduler; two of diffusers' classes hold several. */
static bool find_by_class(const struct scheduler_config *config, struct registry_match *match,
                          struct dk_error *err)
{
    const char *name = config->class_name[0] ? config->class_name : "EulerDiscreteScheduler";
    if (config->algorithm_sde && strcmp(name, "DPMSolverMultistepScheduler") == 0)
        name = "dpmpp-2m-sde";
    return registry_find(name, match, err);
}

static bool choose_scheduler(struct sampler *s, const struct sampler_options *o,
                             struct registry_match *match, struct dk_error *err)
{
    *match = (struct registry_match){0};
    if (o->scheduler && strchr(o->scheduler, '/'))
        match->scheduler = registry_load(o->scheduler, &s->plugin, err);
    else if (o->scheduler)
        registry_find(o->scheduler, match, err);
    else
        find_by_class(o->config, match, err);
    return (s->scheduler = match->scheduler) != NULL;
}

/* The same without loading anything or complaining; NULL for a plugin and for an unknown name. */
static const struct dk_scheduler *guess_scheduler(const struct sampler_options *o)
{
    struct registry_match match = {0};
    if (o->scheduler == NULL)
        find_by_class(o->config, &match, NULL);
    else if (!strchr(o->scheduler, '/'))
        registry_find(o->scheduler, &match, NULL);
    return match.scheduler;
}

int sampler_default_steps(const struct sampler_options *options, int model_steps)
{
    int n_list = options->timesteps ? sigmas_list_length(options->timesteps, false)
                                    : sigmas_list_length(options->sigmas, true);
    const struct dk_scheduler *s = guess_scheduler(options);
    if (n_list > 0) return n_list;
    if (s == NULL || !(s->flags & DK_DISTILLED)) return model_steps;
    if (model_steps >= s->steps_low && model_steps <= s->steps_high) return model_steps;
    return s->steps_high < 4 ? s->steps_high : 4; /* which all of them can do */
}

double sampler_default_guidance(const struct sampler_options *options, double model_guidance)
{
    const struct dk_scheduler *s = guess_scheduler(options);
    return s && s->guidance > 0 && model_guidance > s->guidance ? s->guidance : model_guidance;
}

/* ---- planning -------------------------------------------------------------------------------- */

static bool choose_eta(struct sampler *s, double eta, struct dk_error *err)
{
    bool has_eta = (s->scheduler->flags & DK_ETA) != 0;
    s->plan.eta = s->scheduler->eta;
    if (isnan(eta)) return true;
    if (!(eta >= 0 && eta <= 1))
        return dk_fail(err, DK_ERROR_ARGUMENT, "eta: %g is out of range: give 0 (no noise) to 1",
                       eta);
    if (!has_eta && eta != s->plan.eta)
        return dk_fail(err, DK_ERROR_ARGUMENT, "eta: scheduler %s has none: leave eta out",
                       s->scheduler->name);
    s->plan.eta = eta;
    return true;
}

static bool plan_calls(struct sampler *s, struct dk_error *err)
{
    struct dk_plan *plan = &s->plan;
    plan->n_calls_max = 12 * plan->n_steps + 64;
    plan->call = calloc((size_t)plan->n_calls_max, sizeof *plan->call);
    if (plan->call == NULL) return dk_fail(err, DK_ERROR_MEMORY, "scheduler: out of memory");
    bool ok = true;
    if (s->scheduler->plan) {
        ok = s->scheduler->plan(plan);
    } else {
        for (int i = 0; i < plan->n_steps; i++)
            plan->call[i] = (struct dk_call){plan->node[i], plan->node[i + 1], i, 0};
        plan->n_calls = plan->n_steps;
    }
    if (!ok)
        return dk_fail(err, DK_ERROR_ARGUMENT, "scheduler %s: %s", s->scheduler->name,
                       plan->reason);
    return true;
}

/* What a scheduler planned is checked too: it may be a plugin. */
static bool check_calls(const struct sampler *s, struct dk_error *err)
{
    const struct dk_plan *plan = &s->plan;
    bool ok = plan->n_calls >= 1 && plan->n_calls <= plan->n_calls_max;
    for (int i = 0; ok && i < plan->n_calls; i++) {
        const struct dk_call *c = &plan->call[i];
        ok = isfinite(c->at.t) &&
             (plan->model->edm || (c->at.t >= -20 && c->at.t <= plan->model->n_train - 1)) &&
             isfinite(c->at.alpha) && c->at.alpha >= 0 && isfinite(c->at.sigma) &&
             c->at.sigma > 0 && isfinite(c->to.sigma) && c->to.sigma >= 0;
        if (!ok)
            return dk_fail(err, DK_ERROR_ARGUMENT,
                           "scheduler %s: call %d of its plan is unsound (t %g, alpha %g, sigma "
                           "%g): choose another scheduler or schedule",
                           s->scheduler->name, i, c->at.t, c->at.alpha, c->at.sigma);
    }
    return ok || dk_fail(err, DK_ERROR_ARGUMENT, "scheduler %s: plans %d calls: expected 1 to %d",
                         s->scheduler->name, plan->n_calls, plan->n_calls_max);
}

static void choose_clipping(struct sampler *s, const struct scheduler_config *c)
{
    bool clips = (s->scheduler->flags & DK_CLIPS) != 0;
    s->threshold = c->thresholding;
    s->clip = !s->threshold && (c->clip_sample == SCHEDULER_UNSET ? clips : c->clip_sample != 0);
    s->clip_range = c->clip_sample_range;
    s->threshold_ratio = c->dynamic_thresholding_ratio;
    s->threshold_max = c->sample_max_value;
}

static bool prepare(struct sampler *s, const struct sampler_options *o, struct dk_error *err)
{
    struct registry_match match;
    if (!choose_scheduler(s, o, &match, err) || !choose_eta(s, o->eta, err)) return false;
    struct sigmas_request request = {
        .config = o->config,
        .scheduler = s->scheduler,
        .n_steps = o->n_steps,
        .spacing = o->spacing,
        .sigmas = o->sigmas,
        .timesteps = o->timesteps,
        .first_step = o->first_step,
    };
    if (!o->spacing && !o->sigmas && !o->timesteps)
        request.sigmas = match.sigmas, request.spacing = match.spacing;
    if (!sigmas_make(&s->sigmas, &request, &s->model, err)) return false;
    s->options = o->config->solver;
    if (match.solver_type != DK_SOLVER_DEFAULT) s->options.solver_type = match.solver_type;
    s->plan.model = &s->model;
    s->plan.options = &s->options;
    s->plan.exploding = s->sigmas.exploding;
    s->plan.n_steps = s->sigmas.n_steps;
    s->plan.node = s->sigmas.node;
    choose_clipping(s, o->config);
    snprintf(s->warning, sizeof s->warning, "%s", s->sigmas.warning);
    return plan_calls(s, err) && check_calls(s, err);
}

struct sampler *sampler_new(const struct sampler_options *options, struct dk_error *err)
{
    struct sampler *s = calloc(1, sizeof *s);
    if (s == NULL) {
        dk_fail(err, DK_ERROR_MEMORY, "scheduler: out of memory");
        return NULL;
    }
    if (prepare(s, options, err)) return s;
    sampler_free(s);
    return NULL;
}

void sampler_free(struct sampler *sampler)
{
    if (sampler == NULL) return;
    sigmas_free(&sampler->sigmas);
    free(sampler->plan.call);
    registry_unload(sampler->plugin);
    free(sampler);
}

/* ---- what a sampler tells -------------------------------------------------------------------- */

const char *sampler_name(const struct sampler *sampler)
{
    return sampler->scheduler->name;
}
double sampler_eta(const struct sampler *sampler)
{
    return sampler->plan.eta;
}
int sampler_steps(const struct sampler *sampler)
{
    return sampler->plan.n_steps;
}
int sampler_calls(const struct sampler *sampler)
{
    return sampler->plan.n_calls;
}
double sampler_init_sigma(const struct sampler *sampler)
{
    return sampler->sigmas.init_sigma;
}
double sampler_guidance(const struct sampler *sampler)
{
    return sampler->scheduler->guidance;
}

bool sampler_distilled(const struct sampler *sampler)
{
    return (sampler->scheduler->flags & DK_DISTILLED) != 0;
}

const char *sampler_warning(const struct sampler *sampler)
{
    return sampler->warning[0] ? sampler->warning : NULL;
}

double sampler_timestep(const struct sampler *sampler, int call)
{
    return sampler->plan.call[call].at.t;
}
double sampler_step_timestep(const struct sampler *sampler, int step)
{
    return sampler->plan.node[step].t;
}
double sampler_sigma(const struct sampler *sampler, int call)
{
    return dk_sigma(sampler->plan.call[call].at);
}

/* ---- x to the U-Net, its answer to x0 -------------------------------------------------------- */

/*
 * What the U-Net sees has unit variance: x / sqrt(alpha^2 + sigma^2), which is x in the
 * preserving form; for EDM x / sqrt(sigma^2 + sigma_data^2) (Karras et al. 2022, table 1).
 */
void sampler_scale_input(const struct sampler *sampler, int call, const float *x, float *in,
                         size_t n)
{
    struct dk_point at = sampler->plan.call[call].at;
    double data = sampler->model.edm ? sampler->model.sigma_data : at.alpha;
    double scale = sampler->plan.exploding ? 1 / sqrt(data * data + at.sigma * at.sigma) : 1;
    for (size_t i = 0; i < n; i++) in[i] = (float)((double)x[i] * scale);
}

/* x0 = a x + b out. With r^2 = alpha^2 + sigma^2 (1 in the preserving form):
 *     eps:  x0 = (x - sigma out) / alpha,   v:  x0 = alpha / r^2 x - sigma / r out,   x0:  x0 = out
 *     EDM:  x0 = c_skip x + c_out out (table 1; with v, c_out is negative) */
static void x0_weights(const struct sampler *s, struct dk_point at, double *a, double *b)
{
    double r2 = at.alpha * at.alpha + at.sigma * at.sigma;
    if (s->model.edm) {
        double data = s->model.sigma_data, d2 = data * data + at.sigma * at.sigma;
        *a = data * data / d2;
        *b = at.sigma * data / sqrt(d2) * (s->model.prediction == DK_PREDICTS_V ? -1 : 1);
        return;
    }
    switch (s->model.prediction) {
    case DK_PREDICTS_EPS:
        *a = 1 / at.alpha, *b = -at.sigma / at.alpha;
        break;
    case DK_PREDICTS_V:
        *a = at.alpha / r2, *b = -at.sigma / sqrt(r2);
        break;
    case DK_PREDICTS_X0:
        *a = 0, *b = 1;
        break;
    }
}

static void clip(float *x0, double range, size_t n)
{
    for (size_t i = 0; i < n; i++) x0[i] = fminf(fmaxf(x0[i], (float)-range), (float)range);
}

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/*
 * Saharia et al. 2022 (Imagen), arXiv:2205.11487, section 2.3: clip to a high quantile of |x0|
 * and divide by it.
 */
static void threshold(const struct sampler *s, float *x0, float *spare, size_t n)
{
    for (size_t i = 0; i < n; i++) spare[i] = fabsf(x0[i]);
    qsort(spare, n, sizeof *spare, compare_floats);
    double place = s->threshold_ratio * (double)(n - 1);
    size_t low = (size_t)place, high = low + 1 < n ? low + 1 : low;
    double quantile =
        (double)spare[low] + ((double)spare[high] - (double)spare[low]) * (place - (double)low);
    double limit = fmin(fmax(quantile, 1), s->threshold_max);
    clip(x0, limit, n);
    for (size_t i = 0; i < n; i++) x0[i] = (float)((double)x0[i] / limit);
}

void sampler_predict_x0(const struct sampler *sampler, int call, const float *out, const float *x,
                        float *x0, size_t n)
{
    double a = 0, b = 0;
    x0_weights(sampler, sampler->plan.call[call].at, &a, &b);
    for (size_t i = 0; i < n; i++) x0[i] = (float)(a * (double)x[i] + b * (double)out[i]);
    if (sampler->clip) clip(x0, sampler->clip_range, n);
}

/* x0 as the solver gets it, and the eps that belongs to it: eps = (x - alpha x0) / sigma. */
static void predict(const struct sampler *s, int call, struct sampler_state *state,
                    const float *out, const float *x)
{
    struct dk_point at = s->plan.call[call].at;
    double a = 0, b = 0;
    x0_weights(s, at, &a, &b);
    bool changes = s->clip || s->threshold,
         raw = !changes || (s->scheduler->flags & DK_RAW_EPS) != 0;
    for (size_t i = 0; i < state->n; i++)
        state->x0[i] = (float)(a * (double)x[i] + b * (double)out[i]);
    if (raw) /* with x0 put in; exact where x0 would lose digits */
        for (size_t i = 0; i < state->n; i++)
            state->eps[i] =
                (float)(((1 - at.alpha * a) * (double)x[i] - at.alpha * b * (double)out[i]) /
                        at.sigma);
    if (s->clip) clip(state->x0, s->clip_range, state->n);
    if (s->threshold) threshold(s, state->x0, state->spare, state->n);
    if (!raw)
        for (size_t i = 0; i < state->n; i++)
            state->eps[i] = (float)(((double)x[i] - at.alpha * (double)state->x0[i]) / at.sigma);
}

void sampler_add_noise(const struct sampler *sampler, int call, const float *x0, const float *noise,
                       float *x, size_t n)
{
    struct dk_point at = sampler->plan.call[call].at;
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(at.alpha * (double)x0[i] + at.sigma * (double)noise[i]);
}

/* ---- stepping -------------------------------------------------------------------------------- */

struct sampler_state *sampler_state_new(const struct sampler *sampler, size_t n,
                                        struct dk_error *err)
{
    size_t n_vectors = (size_t)sampler->scheduler->n_vectors + 4;
    struct sampler_state *state = calloc(1, sizeof *state);
    if (state && n > 0 && n <= SIZE_MAX / sizeof(float) / n_vectors)
        state->vectors = calloc(n * n_vectors, sizeof *state->vectors);
    if (state == NULL || state->vectors == NULL) {
        dk_fail(err, DK_ERROR_MEMORY, "scheduler %s: out of memory for a latent of %zu values",
                sampler_name(sampler), n);
        free(state);
        return NULL;
    }
    state->n = n;
    state->x0 = state->vectors + (n_vectors - 4) * n;
    state->eps = state->x0 + n;
    state->noise = state->eps + n;
    state->spare = state->noise + n;
    return state;
}

void sampler_state_free(struct sampler_state *state)
{
    if (state == NULL) return;
    free(state->vectors);
    free(state);
}

static bool all_finite(const float *x, size_t n)
{
    bool ok = true;
    for (size_t i = 0; i < n; i++) ok &= isfinite(x[i]) != 0;
    return ok;
}

bool sampler_step(const struct sampler *sampler, struct sampler_state *state, int call,
                  const float *out, float *x, size_t n, const struct noise_source *noise,
                  struct dk_error *err)
{
    if (call < 0 || call >= sampler->plan.n_calls || n != state->n)
        return dk_fail(err, DK_ERROR_ARGUMENT,
                       "scheduler %s: call %d with %zu values: the plan has %d calls, the state "
                       "%zu values",
                       sampler_name(sampler), call, n, sampler->plan.n_calls, state->n);
    predict(sampler, call, state, out, x);
    struct dk_step step = {
        .plan = &sampler->plan,
        .call = call,
        .n = n,
        .x = x,
        .out = out,
        .x0 = state->x0,
        .eps = state->eps,
        .state = state->vectors,
        .noise = state->noise,
        .draw = noise->draw,
        .user = noise->user,
    };
    sampler->scheduler->step(&step);
    if (!all_finite(x, n))
        return dk_fail(err, DK_ERROR_NUMERIC,
                       "scheduler %s: the latent is no longer finite after call %d of %d (timestep "
                       "%g): the model's answer or its weights are unsound",
                       sampler_name(sampler), call + 1, sampler->plan.n_calls,
                       sampler_timestep(sampler, call));
    return true;
}

static void count_draw(void *user, float *out, size_t n)
{
    ++*(int *)user;
    for (size_t i = 0; i < n; i++) out[i] = 0;
}

/* Nothing a scheduler draws depends on values, so a run of one value that is always 0 tells. */
int sampler_draws(const struct sampler *sampler, int call)
{
    int n_draws = 0;
    float x = 0, out = 0;
    struct noise_source counter = {count_draw, &n_draws};
    struct sampler_state *state = sampler_state_new(sampler, 1, NULL);
    for (int i = 0; state && i < call; i++)
        sampler_step(sampler, state, i, &out, &x, 1, &counter, NULL);
    sampler_state_free(state);
    return n_draws;
}
