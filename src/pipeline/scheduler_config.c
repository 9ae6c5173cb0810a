/* scheduler_config.c - reads scheduler_config.json and computes alpha_bar. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/scheduler_config.h"

#include "files/json.h"
#include "pipeline/fields.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- one key --------------------------------------------------------------------------------- */

static void read_tristate(const struct fields *f, const char *key, int *out)
{
    if (!fields_value(f, key)) return;
    bool value = false;
    fields_bool(f, key, &value);
    *out = value;
}

struct choice {
    const char *word;
    int value;
};

static bool choose(const struct choice *choices, const char *word, int *out)
{
    for (; choices->word; choices++) {
        if (strcmp(choices->word, word) != 0) continue;
        *out = choices->value;
        return true;
    }
    return false;
}

static void read_choice(const struct fields *f, const char *key, const struct choice *choices,
                        int *out)
{
    const json_t *value = fields_value(f, key);
    if (value == NULL || (json_is_string(value) && choose(choices, json_string_value(value), out)))
        return;
    char expected[300];
    size_t used = (size_t)snprintf(expected, sizeof expected, "one of");
    for (const struct choice *c = choices; c->word && used < sizeof expected; c++)
        used += (size_t)snprintf(expected + used, sizeof expected - used, " %s", c->word);
    fields_fail(f, key, expected);
}

/* ---- the file -------------------------------------------------------------------------------- */

static const struct choice BETA_SCHEDULES[] = {{"linear", BETA_LINEAR},
                                               {"scaled_linear", BETA_SCALED_LINEAR},
                                               {"squaredcos_cap_v2", BETA_SQUARED_COSINE},
                                               {NULL, 0}};
static const struct choice PREDICTIONS[] = {{"epsilon", DK_PREDICTS_EPS},
                                            {"v_prediction", DK_PREDICTS_V},
                                            {"sample", DK_PREDICTS_X0},
                                            {NULL, 0}};
static const struct choice SPACINGS[] = {
    {"leading", DK_LEADING}, {"linspace", DK_LINSPACE}, {"trailing", DK_TRAILING}, {NULL, 0}};
static const struct choice FINALS[] = {
    {"zero", FINAL_ZERO}, {"sigma_min", FINAL_SIGMA_MIN}, {NULL, 0}};
static const struct choice INTERPOLATIONS[] = {{"linear", 0}, {"log_linear", 1}, {NULL, 0}};
static const struct choice TIMESTEP_TYPES[] = {{"discrete", 0}, {"continuous", 1}, {NULL, 0}};
static const struct choice EDM_SCHEDULES[] = {
    {"karras", SIGMAS_KARRAS}, {"exponential", SIGMAS_EXPONENTIAL}, {NULL, 0}};
/* 1: the noise form, 2: stochastic, 4: data form. */
static const struct choice ALGORITHMS[] = {{"dpmsolver++", 4},     {"dpmsolver", 1},
                                           {"sde-dpmsolver++", 6}, {"deis", 0},
                                           {"data_prediction", 0}, {NULL, 0}};
/*
 * solver_type means another thing in each class; what a solver does not know it takes as its
 * default.
 */
static const struct choice SOLVER_TYPES[] = {
    {"midpoint", DK_SOLVER_MIDPOINT}, {"heun", DK_SOLVER_HEUN},      {"bh1", DK_SOLVER_BH1},
    {"bh2", DK_SOLVER_BH2},           {"logrho", DK_SOLVER_DEFAULT}, {NULL, 0}};
static const struct choice VARIANCES[] = {{"fixed_small", 0},
                                          {"fixed_small_log", 0},
                                          {"fixed_large", 1},
                                          {"fixed_large_log", 1},
                                          {NULL, 0}};

static void read_class(const struct fields *f, struct scheduler_config *c)
{
    const json_t *value = fields_value(f, "_class_name");
    if (value == NULL) return;
    const char *text = json_string_value(value);
    if (text == NULL || strlen(text) >= sizeof c->class_name ||
        strspn(text, "abcdefghijklmnopqrstuvwxyz"
                     "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != strlen(text))
        fields_fail(f, "_class_name", "a scheduler's class, letters and digits");
    else
        strcpy(c->class_name, text);
    c->edm = strncmp(c->class_name, "EDM", 3) == 0;
}

static void read_trained_betas(const struct fields *f, struct scheduler_config *c)
{
    const json_t *list = fields_value(f, "trained_betas");
    if (list == NULL) return;
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n < 1 || n > SCHEDULER_MAX_TRAIN) {
        fields_fail(f, "trained_betas", "a list of 1 to 4096 numbers");
        return;
    }
    for (size_t i = 0; i < n; i++) {
        double beta = json_number_value(json_array_get(list, i));
        if (!(beta > 0 && beta <= 1)) {
            fields_fail(f, "trained_betas", "numbers above 0, at most 1");
            return;
        }
        c->trained_betas[i] = beta;
    }
    c->n_train = (int)n;
    c->beta_schedule = BETA_TRAINED;
}

static void read_noise(const struct fields *f, struct scheduler_config *c)
{
    int beta_schedule = (int)c->beta_schedule, prediction = (int)c->prediction;
    fields_int(f, "num_train_timesteps", 1, SCHEDULER_MAX_TRAIN, &c->n_train);
    fields_number(f, "beta_start", 1e-9, 0.999, &c->beta_start);
    fields_number(f, "beta_end", 1e-9, 0.999, &c->beta_end);
    read_choice(f, "beta_schedule", BETA_SCHEDULES, &beta_schedule);
    read_choice(f, "prediction_type", PREDICTIONS, &prediction);
    c->beta_schedule = (enum beta_schedule)beta_schedule;
    c->prediction = (enum dk_prediction)prediction;
    read_trained_betas(f, c);
    fields_bool(f, "rescale_betas_zero_snr", &c->zero_terminal_snr);
    if (c->edm) c->sigma_min = 0.002, c->sigma_max = 80;
    fields_number(f, "sigma_min", 1e-6, 1e3, &c->sigma_min);
    fields_number(f, "sigma_max", 1e-3, 1e6, &c->sigma_max);
    fields_number(f, "sigma_data", 1e-3, 1e3, &c->sigma_data);
    fields_number(f, "rho", 0.1, 100, &c->rho);
    if (fields_ok(f) && c->sigma_max > 0 && c->sigma_min >= c->sigma_max)
        fields_fail(f, "sigma_min", "less than sigma_max");
}

static void read_grid(const struct fields *f, struct scheduler_config *c)
{
    int final = FINAL_UNSET, log_linear = c->interpolate_log, continuous = c->continuous_t;
    int schedule = c->edm ? SIGMAS_KARRAS : SIGMAS_NONE;
    read_choice(f, "timestep_spacing", SPACINGS, &c->spacing);
    fields_int(f, "steps_offset", 0, c->n_train - 1, &c->steps_offset);
    read_tristate(f, "set_alpha_to_one", &c->set_alpha_to_one);
    read_choice(f, "final_sigmas_type", FINALS, &final);
    read_choice(f, "interpolation_type", INTERPOLATIONS, &log_linear);
    read_choice(f, "timestep_type", TIMESTEP_TYPES, &continuous);
    if (c->edm) read_choice(f, "sigma_schedule", EDM_SCHEDULES, &schedule);
    static const struct {
        const char *key;
        enum sigma_schedule schedule;
    } SWITCHES[] = {{"use_lu_lambdas", SIGMAS_LU},
                    {"use_beta_sigmas", SIGMAS_BETA},
                    {"use_exponential_sigmas", SIGMAS_EXPONENTIAL},
                    {"use_karras_sigmas", SIGMAS_KARRAS}};
    for (size_t i = 0; i < sizeof SWITCHES / sizeof *SWITCHES; i++) {
        bool on = false;
        fields_bool(f, SWITCHES[i].key, &on);
        if (on) schedule = (int)SWITCHES[i].schedule;
    }
    bool flow = false;
    fields_bool(f, "use_flow_sigmas", &flow);
    if (flow)
        dk_fail(f->err, DK_ERROR_UNSUPPORTED,
                "%s: use_flow_sigmas is for flow models, this program runs diffusion U-Nets: "
                "choose another model",
                f->subject);
    c->final_sigma = (enum final_sigma) final;
    c->interpolate_log = log_linear != 0;
    c->continuous_t = continuous != 0;
    c->sigma_schedule = (enum sigma_schedule)schedule;
}

static void read_x0(const struct fields *f, struct scheduler_config *c)
{
    read_tristate(f, "clip_sample", &c->clip_sample);
    fields_number(f, "clip_sample_range", 1e-6, 1e6, &c->clip_sample_range);
    fields_bool(f, "thresholding", &c->thresholding);
    fields_number(f, "dynamic_thresholding_ratio", 0, 1, &c->dynamic_thresholding_ratio);
    fields_number(f, "sample_max_value", 1, 1e6, &c->sample_max_value);
}

static void read_disable_corrector(const struct fields *f, struct dk_solver_options *o)
{
    const json_t *list = fields_value(f, "disable_corrector");
    if (list == NULL) return;
    if (!json_is_array(list)) fields_fail(f, "disable_corrector", "a list of step numbers");
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *step = json_array_get(list, i);
        if (!json_is_integer(step) || json_integer_value(step) < 0 ||
            json_integer_value(step) > 63) {
            fields_fail(f, "disable_corrector", "step numbers from 0 to 63");
            return;
        }
        o->disable_corrector |= UINT64_C(1) << json_integer_value(step);
    }
}

static void read_solver(const struct fields *f, struct scheduler_config *c)
{
    struct dk_solver_options *o = &c->solver;
    int algorithm = 0, type = DK_SOLVER_DEFAULT, large = 0;
    read_choice(f, "algorithm_type", ALGORITHMS, &algorithm);
    o->algorithm_eps = algorithm == 1;
    c->algorithm_sde = algorithm == 6;
    read_choice(f, "solver_type", SOLVER_TYPES, &type);
    o->solver_type = (enum dk_solver_type)type;
    read_choice(f, "variance_type", VARIANCES, &large);
    o->variance_large = large != 0;
    fields_int(f, "solver_order", 1, 4, &o->solver_order);
    fields_int(f, "predictor_order", 1, 4, &o->predictor_order);
    fields_int(f, "corrector_order", 0, 4, &o->corrector_order);
    fields_bool(f, "predict_x0", &o->predict_x0);
    fields_bool(f, "lower_order_final", &o->lower_order_final);
    fields_bool(f, "euler_at_final", &o->euler_at_final);
    fields_bool(f, "skip_prk_steps", &o->skip_prk_steps);
    fields_bool(f, "combine_v", &o->combine_v);
    fields_int(f, "original_inference_steps", 1, SCHEDULER_MAX_TRAIN, &o->original_inference_steps);
    fields_number(f, "timestep_scaling", 1e-3, 1e6, &o->timestep_scaling);
    fields_number(f, "s_churn", 0, 1e6, &o->s_churn);
    fields_number(f, "s_noise", 0, 100, &o->s_noise);
    read_disable_corrector(f, o);
}

/* Before the file speaks: what diffusers takes where all classes agree. */
static void set_blank(struct scheduler_config *c)
{
    memset(c, 0, sizeof *c);
    c->n_train = 1000;
    c->beta_start = 0.0001;
    c->beta_end = 0.02;
    c->beta_schedule = BETA_LINEAR;
    c->sigma_data = 0.5;
    c->rho = 7;
    c->spacing = c->set_alpha_to_one = c->clip_sample = SCHEDULER_UNSET;
    c->final_sigma = FINAL_UNSET;
    c->clip_sample_range = 1;
    c->dynamic_thresholding_ratio = 0.995;
    c->sample_max_value = 1;
    c->solver.predict_x0 = c->solver.lower_order_final = true;
    c->solver.original_inference_steps = 50;
    c->solver.timestep_scaling = 10;
    c->solver.s_noise = 1;
}

void scheduler_config_default(struct scheduler_config *config)
{
    set_blank(config);
    strcpy(config->class_name, "EulerDiscreteScheduler");
    config->beta_start = 0.00085;
    config->beta_end = 0.012;
    config->beta_schedule = BETA_SCALED_LINEAR;
    config->steps_offset = 1;
    config->set_alpha_to_one = config->clip_sample = 0;
    config->solver.skip_prk_steps = true;
}

/* Consumes root; NULL (with the reason in err already) is passed on. */
static bool read_object(const char *name, json_t *root, struct scheduler_config *config,
                        struct dk_error *err)
{
    struct dk_error own = {.code = DK_OK};
    const struct fields f = {.subject = name, .object = root, .err = err ? err : &own};
    set_blank(config);
    if (root == NULL) return false;
    read_class(&f, config);
    read_noise(&f, config);
    read_grid(&f, config);
    read_x0(&f, config);
    read_solver(&f, config);
    json_decref(root);
    return fields_ok(&f);
}

enum { MAX_DEPTH = 8 };

bool scheduler_config_parse(const char *name, const char *text, size_t n_bytes,
                            struct scheduler_config *config, struct dk_error *err)
{
    return read_object(name, json_object_parse(text, n_bytes, MAX_DEPTH, name, err), config, err);
}

bool scheduler_config_read(const char *path, struct scheduler_config *config, struct dk_error *err)
{
    const size_t max_bytes = 1 << 20; /* 4096 trained betas fit many times */
    return read_object(path, json_object_read(path, max_bytes, MAX_DEPTH, err), config, err);
}

/* ---- alpha_bar ------------------------------------------------------------------------------- */

/* torch.linspace in f32: from both ends towards the middle. */
static float linspace_f32(float first, float last, int n, int i)
{
    if (n < 2) return first;
    float step = (last - first) / (float)(n - 1);
    return i < n / 2 ? first + step * (float)i : last - step * (float)(n - 1 - i);
}

/* Nichol and Dhariwal 2021, arXiv:2102.09672, eq. 17. */
static double cosine_alpha_bar(double t)
{
    double c = cos((t + 0.008) / 1.008 * 3.14159265358979323846 / 2);
    return c * c;
}

static float beta_at(const struct scheduler_config *c, int i)
{
    float root;
    int n = c->n_train;
    switch (c->beta_schedule) {
    case BETA_LINEAR:
        return linspace_f32((float)c->beta_start, (float)c->beta_end, n, i);
    case BETA_SCALED_LINEAR:
        root = linspace_f32((float)sqrt(c->beta_start), (float)sqrt(c->beta_end), n, i);
        return root * root;
    case BETA_SQUARED_COSINE:
        return (float)fmin(1 - cosine_alpha_bar((i + 1.0) / n) / cosine_alpha_bar((double)i / n),
                           0.999);
    case BETA_TRAINED:
        return (float)c->trained_betas[i];
    }
    return 0;
}

/*
 * Lin et al. 2023, arXiv:2305.08891, algorithm 1: shift and scale sqrt(alpha_bar) so that the
 * last is 0.
 */
static void rescale_to_zero_snr(double *alpha_bar, int n)
{
    double first = sqrt(alpha_bar[0]), last = sqrt(alpha_bar[n - 1]);
    if (!(first > last)) return;
    for (int i = 0; i < n; i++) {
        double root = (sqrt(alpha_bar[i]) - last) * first / (first - last);
        alpha_bar[i] = root * root;
    }
    alpha_bar[n - 1] = 0;
}

void scheduler_config_alpha_bar(const struct scheduler_config *config, double *alpha_bar)
{
    double product = 1;
    for (int i = 0; i < config->n_train; i++) {
        product *= (double)(1 - beta_at(config, i));
        alpha_bar[i] = (double)(float)product;
    }
    if (config->zero_terminal_snr) rescale_to_zero_snr(alpha_bar, config->n_train);
}
