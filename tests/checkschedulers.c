/* checkschedulers.c - what every scheduler must do, built in or a plugin. */
/* SPDX-License-Identifier: MIT */

/*
 * The oracle: a model that knows the clean latent. Whatever a scheduler plans, with such a model
 * it must arrive at that latent, or refuse the request with a sentence before the first call;
 * never be wrong in silence.
 */
#include "check.h"

#include "base/rng.h"
#include "pipeline/registry.h"
#include "pipeline/sampler.h"

#include <stdlib.h>
#include <string.h>

enum { N = 20 };
static const float CLEAN[N] = {0.5f,  -1.25f, 0,  2, 0.031f, -0.7f, 1.1f, -2.2f, 0.9f,  0.4f,
                               -0.3f, 0.77f,  -1, 1, 0.25f,  -0.6f, 1.9f, -1.7f, 0.05f, 3};
static const int STEPS[] = {1, 2, 3, 4, 7, 10, 13, 30, 31, 50, 100, 999, 1000};
enum { N_STEPS = sizeof STEPS / sizeof *STEPS };
static const char *const SPACINGS[] = {"leading", "linspace", "trailing"};
static const char *const SCHEDULES[] = {"karras",   "exponential", "beta",   "kl-optimal",
                                        "discrete", "sgm-uniform", "simple", "ays",
                                        "ays-sdxl", "gits"};
enum { N_SCHEDULES = sizeof SCHEDULES / sizeof *SCHEDULES };

static struct scheduler_config plain_config(void)
{
    struct scheduler_config config;
    scheduler_config_default(&config);
    config.set_alpha_to_one = 1;
    return config;
}

static void draw(void *user, float *out, size_t n)
{
    rng_normal(user, out, n);
}

/*
 * The answer of a U-Net that knows CLEAN: x0 is linear in it, so the line through two answers
 * tells.
 */
static void oracle(const struct sampler *s, int call, const float *x, float *out)
{
    for (int i = 0; i < N; i++) {
        float zero = 0, one = 1, at_zero, at_one;
        sampler_predict_x0(s, call, &zero, &x[i], &at_zero, 1);
        sampler_predict_x0(s, call, &one, &x[i], &at_one, 1);
        double slope = (double)at_one - (double)at_zero;
        float nought = 0, weight;
        sampler_predict_x0(s, call, &one, &nought, &weight, 1);
        if (fabs((double)weight) > 1e-30) slope = (double)weight;
        out[i] = (float)(((double)CLEAN[i] - (double)at_zero) / slope);
    }
}

/* A whole run from seed 7; the distance of its end from CLEAN, or infinity if a step fails. */
static double run(const struct sampler *s, float *x, struct dk_error *err)
{
    struct rng rng;
    struct noise_source noise = {draw, &rng};
    struct sampler_state *state = sampler_state_new(s, N, err);
    float out[N];
    bool ok = state != NULL;
    rng_seed(&rng, RNG_CPU, 7);
    rng_normal(&rng, x, N);
    for (int i = 0; i < N; i++) x[i] *= (float)sampler_init_sigma(s);
    for (int call = 0; ok && call < sampler_calls(s); call++) {
        oracle(s, call, x, out);
        ok = sampler_step(s, state, call, out, x, N, &noise, err);
    }
    sampler_state_free(state);
    return ok ? check_distance(x, CLEAN, N) : INFINITY;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static bool is_restart(const struct sampler *s)
{
    return strcmp(sampler_name(s), "restart") == 0;
}

/* What each scheduler promises for N steps. */
static int promised_calls(const struct sampler *s, const struct dk_scheduler *scheduler, bool prk)
{
    int n = sampler_steps(s), restart = n / 4 < 2 ? 2 : n / 4;
    if (strcmp(scheduler->name, "pndm") == 0) return prk ? n + 9 : n == 1 ? 1 : n + 1;
    if (strcmp(scheduler->name, "restart") == 0) return 2 * n - 1 + 2 * restart * (n >= 36 ? 2 : 1);
    return scheduler->passes_per_step == 2 ? 2 * n - 1 : n;
}

/*
 * Falling timesteps and sigmas (equal ones only where a solver asks twice at one place), all in
 * range.
 */
static void check_plan(const struct sampler *s, const char *what)
{
    bool falls = true, in_range = true;
    for (int call = 0; call < sampler_calls(s); call++) {
        double t = sampler_timestep(s, call), sigma = sampler_sigma(s, call);
        in_range &= t >= 0 && t <= 999 && sigma > 0 && !isnan(sigma);
        if (call == 0 || is_restart(s)) continue;
        bool same = sigma == sampler_sigma(s, call - 1);
        falls &= same ? t == sampler_timestep(s, call - 1)
                      : t < sampler_timestep(s, call - 1) && sigma < sampler_sigma(s, call - 1);
    }
    CHECK(falls, "%s: timesteps or sigmas do not fall", what);
    CHECK(in_range, "%s: a timestep or sigma is out of range", what);
}

/* Requests that a scheduler may refuse, by what it is; everything else must work. */
static bool may_refuse(const struct dk_scheduler *s, const struct sampler_options *o, bool prk)
{
    if (s->timesteps && (o->spacing || o->sigmas)) return true;
    if (s->timesteps) return (s->flags & DK_DISTILLED) != 0; /* its own numbers of steps */
    if (strcmp(s->name, "restart") == 0) return o->n_steps < 30;
    bool wide = o->config->zero_terminal_snr || o->config->beta_schedule == BETA_SQUARED_COSINE;
    if (strcmp(s->name, "pndm") == 0 && wide)
        return o->n_steps <= 20; /* a first step from sigma 4096 or 20291 */
    return prk && o->n_steps < 4;
}

static void check_request(const struct dk_scheduler *scheduler, const struct sampler_options *o,
                          bool prk)
{
    char what[300];
    static const char *const PREDICTIONS[] = {"eps", "v", "x0"};
    snprintf(what, sizeof what, "%s %s %s%s %d", scheduler->name,
             PREDICTIONS[o->config->prediction], o->spacing ? o->spacing : "",
             o->sigmas ? o->sigmas : "", o->n_steps);
    struct dk_error err = {0};
    struct sampler *s = sampler_new(o, &err);
    if (s == NULL) {
        CHECK(may_refuse(scheduler, o, prk), "%s: refused: %s", what, err.message);
        CHECK(strlen(err.message) > 20 && strchr(err.message, ':'), "%s: \"%s\" is no sentence",
              what, err.message);
        return;
    }
    float x[N];
    check_plan(s, what);
    CHECK(sampler_steps(s) == o->n_steps, "%s: %d steps", what, sampler_steps(s));
    CHECK(sampler_calls(s) == promised_calls(s, scheduler, prk), "%s: %d calls, promised %d", what,
          sampler_calls(s), promised_calls(s, scheduler, prk));
    /* x0 is a difference of numbers of the size of sigma, of which f32 keeps seven digits */
    double sigma = fmax(sampler_init_sigma(s), sampler_sigma(s, sampler_calls(s) - 1));
    double distance = run(s, x, &err), allowed = 5e-4 + 5e-7 * sigma;
    CHECK(distance < allowed, "%s: the oracle ends %g away %s", what, distance, err.message);
    sampler_free(s);
}

/* name is what to type: a registered name or a path. */
static void check_oracle(const struct dk_scheduler *scheduler, const char *name)
{
    struct scheduler_config config = plain_config();
    for (int prediction = 0; prediction < 3; prediction++) {
        config.prediction = (enum dk_prediction)prediction;
        for (int k = 0; k < N_STEPS; k++) {
            struct sampler_options o = {
                .config = &config, .scheduler = name, .n_steps = STEPS[k], .eta = NAN};
            check_request(scheduler, &o, false);
            for (int j = 0; j < 3; j++) {
                o.spacing = SPACINGS[j];
                check_request(scheduler, &o, false);
            }
            o.spacing = NULL;
            for (int j = 0; j < N_SCHEDULES && STEPS[k] != 100 && STEPS[k] != 31; j++) {
                o.sigmas = SCHEDULES[j];
                if (prediction == k % 3) check_request(scheduler, &o, false);
            }
        }
    }
}

/* eta, the ends of the config, zero terminal SNR, other betas, a config's own schedules. */
static void check_configs(const struct dk_scheduler *scheduler, const char *name)
{
    static const int COUNTS[] = {1, 4, 20, 50, 999};
    for (int variant = 0; variant < 11; variant++) {
        for (size_t k = 0; k < sizeof COUNTS / sizeof *COUNTS; k++) {
            struct scheduler_config config = plain_config();
            struct sampler_options o = {
                .config = &config, .scheduler = name, .n_steps = COUNTS[k], .eta = NAN};
            bool prk = false;
            switch (variant) {
            case 0:
                config.beta_schedule = BETA_SQUARED_COSINE, config.sigma_schedule = SIGMAS_KARRAS;
                break;
            case 1:
                config.beta_schedule = BETA_SQUARED_COSINE, config.spacing = DK_TRAILING;
                break;
            case 2:
                config.beta_schedule = BETA_LINEAR, config.beta_end = 0.02,
                config.sigma_schedule = SIGMAS_BETA;
                break;
            case 3:
                config.sigma_schedule = SIGMAS_EXPONENTIAL;
                break;
            case 4:
                config.sigma_schedule = SIGMAS_LU, config.spacing = DK_LEADING;
                break;
            case 5:
                config.zero_terminal_snr = true, config.prediction = DK_PREDICTS_V,
                config.spacing = DK_TRAILING;
                break;
            case 6:
                config.solver.solver_order = 3;
                break;
            case 7:
                config.solver.solver_type = DK_SOLVER_HEUN, config.solver.lower_order_final = false;
                break;
            case 8:
                config.solver.skip_prk_steps = false, prk = strcmp(scheduler->name, "pndm") == 0;
                break;
            case 9:
                config.solver.algorithm_eps = true, config.solver.solver_order = 3;
                break;
            case 10:
                config.solver.predict_x0 = false, config.solver.solver_type = DK_SOLVER_BH1;
                break;
            }
            if (config.solver.solver_order == 3 && strcmp(scheduler->name, "dpmpp-2s") == 0)
                continue;
            check_request(scheduler, &o, prk);
            if (!(scheduler->flags & DK_ETA)) continue;
            o.eta = 0;
            check_request(scheduler, &o, prk);
            o.eta = 0.5;
            check_request(scheduler, &o, prk);
        }
    }
}

/* ---- noise ----------------------------------------------------------------------------------- */

/*
 * Same seed, same bytes; and the noise of a call can be had by skipping draws, without the calls
 * before it.
 */
static void check_noise(const struct dk_scheduler *scheduler, const char *name)
{
    struct scheduler_config config = plain_config();
    struct dk_error err = {0};
    struct sampler_options o = {.config = &config, .scheduler = name, .n_steps = 4, .eta = NAN};
    struct sampler *s = sampler_new(&o, &err);
    CHECK(s, "%s: %s", name, err.message);
    if (s == NULL) return;
    float a[N], b[N], out[N] = {0.1f, -0.4f}, x[N] = {0}, y[N];
    run(s, a, &err);
    run(s, b, &err);
    CHECK(memcmp(a, b, sizeof a) == 0, "%s: two runs differ", name);

    struct rng rng, skipped;
    struct noise_source noise = {draw, &rng};
    struct sampler_state *state = sampler_state_new(s, N, &err);
    rng_seed(&rng, RNG_CPU, 3);
    for (int call = 0; call < sampler_calls(s); call++) {
        rng_seed(&skipped, RNG_CPU, 3);
        for (int k = sampler_draws(s, call); k > 0; k--) rng_normal(&skipped, y, N);
        CHECK(memcmp(&rng, &skipped, sizeof rng) == 0, "%s: call %d's noise is not the %dth", name,
              call, sampler_draws(s, call));
        sampler_step(s, state, call, out, x, N, &noise, &err);
    }
    bool draws = sampler_draws(s, sampler_calls(s)) > 0;
    CHECK(draws == ((scheduler->flags & DK_STOCHASTIC) &&
                    !(scheduler->flags & DK_ETA && scheduler->eta <= 0)),
          "%s: %s noise", name, draws ? "draws" : "draws no");
    sampler_state_free(state);
    sampler_free(s);
}

/* ---- fields ---------------------------------------------------------------------------------- */

static void check_fields(const struct dk_scheduler *s, size_t index)
{
    struct dk_scheduler_info info;
    bool eta_0 = (s->flags & DK_ETA) && s->eta <= 0;
    CHECK(dk_scheduler_get(index, &info) && strcmp(info.name, s->name) == 0 &&
              info.stochastic == ((s->flags & DK_STOCHASTIC) && !eta_0),
          "%s is listed as another", s->name);
    struct registry_match match;
    struct dk_error err = {0};
    char list[300], *word, *rest = list;
    CHECK(strlen(s->summary) > 10 && strlen(s->paper) > 5 && s->order >= 1 && s->steps_low >= 1 &&
              s->steps_high >= s->steps_low,
          "%s: a field is missing", s->name);
    CHECK(strspn(s->name, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(s->name), "%s",
          s->name);
    CHECK(registry_find(s->name, &match, &err) && match.scheduler == s, "%s is found as another",
          s->name);
    snprintf(list, sizeof list, "%s", s->aliases);
    while ((word = strtok_r(rest, ",", &rest)) != NULL)
        CHECK(registry_find(word, &match, &err) && match.scheduler == s,
              "%s: its alias \"%s\" is found as %s", s->name, word,
              match.scheduler ? match.scheduler->name : "nothing");
}

/* ---- names, lists, refusals ------------------------------------------------------------------ */

static void check_names(void)
{
    static const struct {
        const char *typed, *name, *sigmas, *spacing;
    } NAMES[] = {
        {"DPM++ 2M", "dpmpp-2m", NULL, NULL},
        {"DPM++ 2M Karras", "dpmpp-2m", "karras", NULL},
        {"dpm++2m", "dpmpp-2m", NULL, NULL},
        {"dpmpp_2m", "dpmpp-2m", NULL, NULL},
        {"DPM++ 2M SDE Exponential", "dpmpp-2m-sde", "exponential", NULL},
        {"DPM++ 3M SDE", "dpmpp-3m-sde", NULL, NULL},
        {"DPM++ SDE Karras", "dpmpp-sde", "karras", NULL},
        {"DPM++ 2S a", "dpmpp-2s-a", NULL, NULL},
        {"dpm++2s_a", "dpmpp-2s-a", NULL, NULL},
        {"Euler a", "euler-a", NULL, NULL},
        {"euler_a", "euler-a", NULL, NULL},
        {"k_euler_a", "euler-a", NULL, NULL},
        {"EULER", "euler", NULL, NULL},
        {"EulerAncestralDiscreteScheduler", "euler-a", NULL, NULL},
        {"LMS Karras", "lms", "karras", NULL},
        {"Heun", "heun", NULL, NULL},
        {"DPM2 a Karras", "dpm2-a", "karras", NULL},
        {"PLMS", "pndm", NULL, NULL},
        {"ddim_trailing", "ddim", NULL, "trailing"},
        {"UniPC", "unipc", NULL, NULL},
        {"LCM", "lcm", NULL, NULL},
        {"Restart", "restart", NULL, NULL},
        {"DDIM", "ddim", NULL, NULL},
        {"ipndm", "ipndm", NULL, NULL},
        {"SDXL-Lightning", "lightning", NULL, NULL},
        {"sd-turbo", "turbo", NULL, NULL},
        {"Euler SGMUniform", "euler", "sgm-uniform", NULL},
        {"DPM++ 2M SDE Heun", "dpmpp-2m-sde", NULL, NULL},
        {"DPM++ 2M SDE Heun Karras", "dpmpp-2m-sde", "karras", NULL},
        {"res_multistep", "dpmpp-2m", NULL, NULL},
        {"ipndm_v", "lms", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        struct registry_match m;
        struct dk_error err = {0};
        bool ok = registry_find(NAMES[i].typed, &m, &err) &&
                  strcmp(m.scheduler->name, NAMES[i].name) == 0;
        ok &=
            NAMES[i].sigmas ? m.sigmas && strcmp(m.sigmas, NAMES[i].sigmas) == 0 : m.sigmas == NULL;
        ok &= NAMES[i].spacing ? m.spacing && strcmp(m.spacing, NAMES[i].spacing) == 0
                               : m.spacing == NULL;
        CHECK(ok, "\"%s\" is not %s: %s", NAMES[i].typed, NAMES[i].name, err.message);
    }
    struct registry_match m;
    struct dk_error err = {0};
    CHECK(registry_find("DPM++ 2M SDE Heun", &m, &err) && m.solver_type == DK_SOLVER_HEUN,
          "heun is lost");
    CHECK(!registry_find("eulr", &m, &err) && strstr(err.message, "\"euler\""), "%s", err.message);
    CHECK(!registry_find("", &m, NULL) && !registry_find("karras", &m, NULL), "nothing is a name");
}

/* The request must be refused, with this in the sentence. */
static void refuses(const char *part, struct sampler_options o)
{
    struct scheduler_config config = plain_config();
    struct dk_error err = {0};
    if (o.config == NULL) o.config = &config;
    struct sampler *s = sampler_new(&o, &err);
    CHECK(s == NULL && strstr(err.message, part), "wanted \"%s\" in \"%s\"", part, err.message);
    sampler_free(s);
}

static void check_refusals(void)
{
    refuses("give 1 to 1000",
            (struct sampler_options){.scheduler = "ddim", .n_steps = 0, .eta = NAN});
    refuses("give 1 to 1000",
            (struct sampler_options){.scheduler = "ddim", .n_steps = -5, .eta = NAN});
    refuses("give 1 to 1000",
            (struct sampler_options){.scheduler = "euler", .n_steps = 1001, .eta = NAN});
    refuses("eta", (struct sampler_options){.scheduler = "ddim", .n_steps = 5, .eta = 1.5});
    refuses("eta", (struct sampler_options){.scheduler = "ddim", .n_steps = 5, .eta = -0.1});
    refuses("leave eta out",
            (struct sampler_options){.scheduler = "euler", .n_steps = 5, .eta = 0.5});
    refuses("spacing", (struct sampler_options){
                           .scheduler = "ddim", .n_steps = 5, .eta = NAN, .spacing = "even"});
    refuses(
        "no such schedule",
        (struct sampler_options){.scheduler = "ddim", .n_steps = 5, .eta = NAN, .sigmas = "karas"});
    refuses("not a list",
            (struct sampler_options){.scheduler = "ddim", .eta = NAN, .sigmas = "3,,1"});
    refuses("not a list",
            (struct sampler_options){.scheduler = "ddim", .eta = NAN, .timesteps = "999,x"});
    refuses("not a list",
            (struct sampler_options){.scheduler = "ddim", .eta = NAN, .timesteps = ""});
    refuses("not a list",
            (struct sampler_options){.scheduler = "ddim", .eta = NAN, .timesteps = "nan"});
    refuses("out of range",
            (struct sampler_options){.scheduler = "ddim", .eta = NAN, .timesteps = "1000,500"});
    refuses("out of range",
            (struct sampler_options){.scheduler = "ddim", .eta = NAN, .timesteps = "500,-1"});
    refuses("out of this model's range",
            (struct sampler_options){.scheduler = "euler", .eta = NAN, .sigmas = "20,1"});
    refuses("out of this model's range",
            (struct sampler_options){.scheduler = "euler", .eta = NAN, .sigmas = "10,0,1"});
    refuses("out of order",
            (struct sampler_options){.scheduler = "euler", .eta = NAN, .sigmas = "1,10"});
    refuses("alike",
            (struct sampler_options){.scheduler = "euler", .eta = NAN, .timesteps = "999,999"});
    refuses("alike",
            (struct sampler_options){.scheduler = "euler", .eta = NAN, .sigmas = "10,0.02,0.01"});
    refuses("leave one of the two out",
            (struct sampler_options){
                .scheduler = "euler", .n_steps = 3, .eta = NAN, .timesteps = "999,500"});
    refuses("leave one of the two out", (struct sampler_options){.scheduler = "euler",
                                                                 .n_steps = 3,
                                                                 .eta = NAN,
                                                                 .sigmas = "karras",
                                                                 .spacing = "leading"});
    refuses("ask for 50 at most",
            (struct sampler_options){.scheduler = "lcm", .n_steps = 51, .eta = NAN});
    refuses(
        "its own timesteps",
        (struct sampler_options){.scheduler = "lcm", .n_steps = 4, .eta = NAN, .sigmas = "karras"});
    refuses("1, 2, 4 and 8",
            (struct sampler_options){.scheduler = "lightning", .n_steps = 3, .eta = NAN});
    refuses("did you mean",
            (struct sampler_options){.scheduler = "unicp", .n_steps = 3, .eta = NAN});
    refuses("cannot be loaded",
            (struct sampler_options){.scheduler = "./no-such.so", .n_steps = 3, .eta = NAN});
    refuses("cannot be loaded",
            (struct sampler_options){.scheduler = "tests/check.h", .n_steps = 3, .eta = NAN});

    struct scheduler_config config = plain_config();
    config.zero_terminal_snr = true;
    refuses(
        "zero terminal SNR",
        (struct sampler_options){.config = &config, .scheduler = "ddim", .n_steps = 3, .eta = NAN});
    config = plain_config();
    config.beta_end = 0.05;
    refuses(
        "Stable Diffusion's noise",
        (struct sampler_options){
            .config = &config, .scheduler = "euler", .n_steps = 3, .eta = NAN, .sigmas = "ays"});
    config.edm = true, config.sigma_min = 0.002, config.sigma_max = 80,
    config.sigma_schedule = SIGMAS_KARRAS;
    refuses("EDM", (struct sampler_options){
                       .config = &config, .scheduler = "ddim", .n_steps = 3, .eta = NAN});
    refuses(
        "EDM",
        (struct sampler_options){
            .config = &config, .scheduler = "euler", .n_steps = 3, .eta = NAN, .sigmas = "ays"});
}

/* Plans whose numbers are known from elsewhere. */
static void check_grid(struct sampler_options o, const char *what, size_t n, const double *t,
                       double tolerance)
{
    struct scheduler_config config = plain_config();
    struct dk_error err = {0};
    if (o.config == NULL) o.config = &config;
    o.eta = NAN;
    struct sampler *s = sampler_new(&o, &err);
    double worst = s && (size_t)sampler_calls(s) == n ? 0 : INFINITY;
    for (size_t i = 0; s && i < n && worst < INFINITY; i++)
        worst = fmax(worst, fabs(sampler_timestep(s, (int)i) - t[i]));
    CHECK(worst <= tolerance, "%s: timesteps off by %g %s", what, worst, err.message);
    sampler_free(s);
}

static void check_grids(void)
{
    check_grid((struct sampler_options){.scheduler = "lcm", .n_steps = 4}, "lcm", 4,
               (double[]){999, 759, 499, 259}, 0);
    check_grid((struct sampler_options){.scheduler = "turbo", .n_steps = 1}, "turbo", 1,
               (double[]){999}, 0);
    check_grid((struct sampler_options){.scheduler = "turbo", .n_steps = 4}, "turbo", 4,
               (double[]){999, 749, 499, 249}, 0);
    check_grid((struct sampler_options){.scheduler = "hyper-sd", .n_steps = 1}, "hyper-sd", 1,
               (double[]){800}, 0);
    check_grid((struct sampler_options){.scheduler = "dmd2", .n_steps = 1}, "dmd2", 1,
               (double[]){399}, 0);
    check_grid((struct sampler_options){.scheduler = "dmd2", .n_steps = 4}, "dmd2", 4,
               (double[]){999, 749, 499, 249}, 0);
    check_grid((struct sampler_options){.scheduler = "ddim", .n_steps = 4, .spacing = "trailing"},
               "trailing", 4, (double[]){999, 749, 499, 249}, 0);
    check_grid((struct sampler_options){.scheduler = "euler", .timesteps = "999, 500,20"}, "list",
               3, (double[]){999, 500, 20}, 0);
    /* the ten timesteps that diffusers gives for these tables */
    check_grid((struct sampler_options){.scheduler = "euler", .n_steps = 10, .sigmas = "ays"},
               "ays", 10, (double[]){999, 850, 736, 645, 545, 455, 343, 233, 124, 24}, 1);
    check_grid((struct sampler_options){.scheduler = "euler", .n_steps = 10, .sigmas = "ays-sdxl"},
               "ays-sdxl", 10, (double[]){999, 845, 730, 587, 443, 310, 193, 116, 53, 13}, 1);
    check_grid((struct sampler_options){.scheduler = "euler", .n_steps = 4, .sigmas = "simple"},
               "simple", 4, (double[]){999, 749, 499, 249}, 0);
    check_grid(
        (struct sampler_options){.scheduler = "euler", .n_steps = 4, .sigmas = "sgm-uniform"},
        "sgm", 4, (double[]){999, 749.25, 499.5, 249.75}, 1e-9);
}

/* A run that begins with a picture: the tail of the whole plan, and the oracle is reached. */
static void check_first_step(const char *name)
{
    struct scheduler_config config = plain_config();
    struct sampler_options o = {.config = &config, .scheduler = name, .n_steps = 20, .eta = NAN};
    struct dk_error err = {0};
    struct sampler *whole = sampler_new(&o, &err);
    if (whole == NULL) return; /* a distilled one with 20 steps */
    for (o.first_step = 3; o.first_step < 20; o.first_step += 8) {
        struct sampler *s = sampler_new(&o, &err);
        if (s == NULL) {
            CHECK(strcmp(name, "restart") == 0, "%s from step %d: %s", name, o.first_step,
                  err.message);
            continue;
        }
        int calls = sampler_calls(s), last = sampler_calls(whole);
        bool tail = sampler_steps(s) == 20 - o.first_step;
        for (int i = 1; i <= 2; i++)
            tail &=
                i > calls || sampler_timestep(s, calls - i) == sampler_timestep(whole, last - i);
        CHECK(tail, "%s: step %d on is another plan", name, o.first_step);
        struct rng rng;
        struct noise_source noise = {draw, &rng};
        struct sampler_state *state = sampler_state_new(s, N, &err);
        float x[N], out[N];
        rng_seed(&rng, RNG_CPU, 2);
        rng_normal(&rng, out, N);
        sampler_add_noise(s, 0, CLEAN, out, x, N);
        for (int call = 0; call < calls; call++) {
            oracle(s, call, x, out);
            sampler_step(s, state, call, out, x, N, &noise, &err);
        }
        CHECK(check_distance(x, CLEAN, N) < 5e-4, "%s from step %d", name, o.first_step);
        sampler_state_free(state);
        sampler_free(s);
    }
    o.first_step = 20;
    struct sampler *none = sampler_new(&o, &err);
    CHECK(none == NULL, "%s: all steps left out", name);
    sampler_free(none);
    sampler_free(whole);
}

/* Sentences about plans that work badly; NULL where there is nothing to say. */
static void warns(const char *part, struct sampler_options o)
{
    struct scheduler_config config = plain_config();
    struct dk_error err = {0};
    if (o.config == NULL) o.config = &config;
    o.eta = NAN;
    struct sampler *s = sampler_new(&o, &err);
    const char *warning = s ? sampler_warning(s) : err.message;
    CHECK(part ? warning && strstr(warning, part) : warning == NULL, "wanted \"%s\", got \"%s\"",
          part ? part : "nothing", warning ? warning : "nothing");
    sampler_free(s);
}

static void check_warnings(void)
{
    /* diffusers#2585, CompVis#686: leading spacing with 3 steps begins at 667, with 1 step at 1 */
    warns("begin at timestep 667",
          (struct sampler_options){.scheduler = "ddim", .n_steps = 3, .spacing = "leading"});
    warns("trailing spacing",
          (struct sampler_options){.scheduler = "ddim", .n_steps = 1, .spacing = "leading"});
    warns("trailing spacing",
          (struct sampler_options){.scheduler = "euler", .n_steps = 1, .spacing = "linspace"});
    warns("begin at timestep",
          (struct sampler_options){.scheduler = "dpmpp-2m", .n_steps = 600, .spacing = "leading"});
    warns(NULL, (struct sampler_options){.scheduler = "ddim", .n_steps = 20, .spacing = "leading"});
    warns(NULL, (struct sampler_options){.scheduler = "ddim", .n_steps = 1, .spacing = "trailing"});
    warns(NULL, (struct sampler_options){.scheduler = "dmd2", .n_steps = 1});
    /* a config that asks for a last pass that changes nothing gets it, and the sentence */
    struct scheduler_config config = plain_config();
    config.final_sigma = FINAL_SIGMA_MIN;
    config.sigma_schedule = SIGMAS_KARRAS;
    warns("changes nothing",
          (struct sampler_options){.config = &config, .scheduler = "unipc", .n_steps = 10});
    warns(NULL, (struct sampler_options){
                    .config = &config, .scheduler = "unipc", .n_steps = 10, .sigmas = "karras"});
}

/*
 * diffusers#6477: the last sigma twice, and so a pass for nothing; the same with alpha_bar[0] as
 * the end of a spacing that has timestep 0. Here the last pass always moves x.
 */
static void check_last_pass(const char *name, enum sigma_schedule schedule, int spacing, int n)
{
    struct scheduler_config config = plain_config();
    config.sigma_schedule = schedule;
    config.spacing = spacing;
    config.set_alpha_to_one = 0;
    struct sampler_options o = {.config = &config, .scheduler = name, .n_steps = n, .eta = NAN};
    struct sampler *s = sampler_new(&o, NULL);
    if (s == NULL) return; /* refused: a distilled one with so many steps */
    float x[N] = {5, 6, 7}, before[N], out[N] = {0.3f};
    struct rng rng;
    struct noise_source noise = {draw, &rng};
    struct sampler_state *state = sampler_state_new(s, N, NULL);
    rng_seed(&rng, RNG_CPU, 1);
    for (int call = 0; call < sampler_calls(s); call++) {
        memcpy(before, x, sizeof x);
        sampler_step(s, state, call, out, x, N, &noise, NULL);
    }
    CHECK(check_distance(before, x, N) > 1e-6, "%s: the last pass changes nothing", name);
    CHECK(sampler_warning(s) == NULL, "%s: %s", name, sampler_warning(s));
    sampler_state_free(state);
    sampler_free(s);
}

static void check_last_passes(void)
{
    for (size_t i = 0; i < registry_count(); i++) {
        const char *name = registry_at(i)->name;
        check_last_pass(name, SIGMAS_KARRAS, DK_LEADING, 8);
        check_last_pass(name, SIGMAS_NONE, DK_LINSPACE, 8);
        check_last_pass(name, SIGMAS_NONE, DK_TRAILING, 1000);
        check_last_pass(name, SIGMAS_NONE, DK_LEADING, 1000);
    }
}

/* ---- clipping and thresholding --------------------------------------------------------------- */

/* One DDIM step to the end shows x0 as the solver gets it. */
static void check_x0_limits(void)
{
    float want[N], x[N];
    for (int variant = 0; variant < 4; variant++) {
        struct scheduler_config config = plain_config();
        /* the 0.995 quantile of |CLEAN| lies between its two largest, 2.2 and 3, at 18.905 of 19 */
        double quantile = (double)2.2f + ((double)3.0f - (double)2.2f) * 0.905, limit = 0.5,
               divide = 1;
        config.spacing = DK_TRAILING;
        if (variant == 0) config.clip_sample = 1, config.clip_sample_range = 0.5;
        if (variant == 1)
            config.thresholding = true, config.sample_max_value = 10, limit = divide = quantile;
        if (variant == 2) config.thresholding = true, limit = 1;           /* sample_max_value 1 */
        if (variant == 3) config.clip_sample = SCHEDULER_UNSET, limit = 1; /* DDIM's own default */
        struct sampler_options o = {
            .config = &config, .scheduler = "ddim", .n_steps = 1, .eta = NAN};
        struct dk_error err = {0};
        struct sampler *s = sampler_new(&o, &err);
        config.clip_sample = 0, config.thresholding = false;
        struct sampler *plain = sampler_new(&o, &err);
        struct sampler_state *state = sampler_state_new(s, N, &err);
        float out[N];
        for (int i = 0; i < N; i++) {
            want[i] = (float)(fmin(fmax((double)CLEAN[i], -limit), limit) / divide);
            x[i] = 0.1f * (float)i;
        }
        oracle(plain, 0, x, out);
        sampler_step(s, state, 0, out, x, N, &(struct noise_source){draw, NULL}, &err);
        CHECK(check_distance(x, want, N) < 1e-4, "variant %d: x0 is off by %g", variant,
              check_distance(x, want, N));
        sampler_state_free(state);
        sampler_free(plain);
        sampler_free(s);
    }
}

/* ---- the config as a file -------------------------------------------------------------------- */

static bool parses(const char *text, struct scheduler_config *config, struct dk_error *err)
{
    *err = (struct dk_error){0};
    return scheduler_config_parse("scheduler_config.json", text, strlen(text), config, err);
}

static void check_hostile_configs(void)
{
    static const char *const BAD[] = {
        "",
        "[]",
        "{",
        "null",
        "{\"num_train_timesteps\": 0}",
        "{\"num_train_timesteps\": 1e9}",
        "{\"num_train_timesteps\": 10.5}",
        "{\"num_train_timesteps\": \"1000\"}",
        "{\"num_train_timesteps\": -1}",
        "{\"beta_start\": -1}",
        "{\"beta_start\": \"x\"}",
        "{\"beta_end\": 1e300}",
        "{\"beta_schedule\": \"cubic\"}",
        "{\"beta_schedule\": 3}",
        "{\"prediction_type\": \"noise\"}",
        "{\"timestep_spacing\": \"even\"}",
        "{\"steps_offset\": 1000}",
        "{\"steps_offset\": -1}",
        "{\"clip_sample\": 1}",
        "{\"set_alpha_to_one\": \"true\"}",
        "{\"solver_order\": 0}",
        "{\"solver_order\": 99}",
        "{\"trained_betas\": []}",
        "{\"trained_betas\": [0]}",
        "{\"trained_betas\": [0.1, \"a\"]}",
        "{\"trained_betas\": {}}",
        "{\"sigma_min\": 10, \"sigma_max\": 1}",
        "{\"_class_name\": \"../../x\"}",
        "{\"_class_name\": 7}",
        "{\"disable_corrector\": [64]}",
        "{\"disable_corrector\": [-1]}",
        "{\"original_inference_steps\": 0}",
        "{\"use_flow_sigmas\": true}",
        "{\"dynamic_thresholding_ratio\": 2}",
        "{\"sample_max_value\": 0}",
        "{\"variance_type\": \"learned\"}",
        "{\"timestep_scaling\": 0}",
        "{\"rho\": 0}",
        "{\"a\": 1, \"a\": 2}",
        "{\"algorithm_type\": \"magic\"}",
    };
    struct scheduler_config config;
    struct dk_error err;
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++)
        CHECK(!parses(BAD[i], &config, &err) && strstr(err.message, "scheduler_config.json"),
              "accepted: %s", BAD[i]);
    CHECK(parses("{}", &config, &err) && config.n_train == 1000, "an empty object is a config");
    CHECK(parses("{\"unknown\": [1, {\"x\": null}], \"trained_betas\": null, \"sigma_max\": null}",
                 &config, &err),
          "%s", err.message);
    CHECK(parses("{\"trained_betas\": [0.1, 0.2, 0.3]}", &config, &err) && config.n_train == 3,
          "trained betas");
    /* betas so small that alpha_bar stays 1 in f32: no noise, no path */
    CHECK(parses("{\"beta_start\": 1e-9, \"beta_end\": 1e-9}", &config, &err), "%s", err.message);
    refuses("does not fall", (struct sampler_options){
                                 .config = &config, .scheduler = "ddim", .n_steps = 3, .eta = NAN});
    CHECK(!scheduler_config_read("tests/no-such-file.json", &config, &err), "a missing file");
}

/* A sound config with bytes changed: parsed and planned, or refused; never more than that. */
static void check_damaged_configs(void)
{
    static const char SOUND[] =
        "{\"_class_name\": \"UniPCMultistepScheduler\", \"num_train_timesteps\": 1000, "
        "\"beta_start\": 0.00085, \"beta_end\": 0.012, \"beta_schedule\": \"scaled_linear\", "
        "\"steps_offset\": 1, \"solver_order\": 3, \"timestep_spacing\": \"leading\", "
        "\"use_karras_sigmas\": true, \"sigma_min\": 0.03, \"sigma_max\": 14.6, "
        "\"trained_betas\": null, \"thresholding\": true, \"sample_max_value\": 1.5}";
    uint32_t state = 1;
    int n_parsed = 0, n_planned = 0;
    for (int i = 0; i < 4000; i++) {
        char text[sizeof SOUND];
        memcpy(text, SOUND, sizeof text);
        for (int k = 0; k < 1 + i % 4; k++) {
            state = state * 1664525u + 1013904223u;
            text[(state >> 8) % (sizeof text - 1)] = "0123456789.-e\"{}[],:nul "[(state >> 3) % 25];
        }
        struct scheduler_config config;
        struct dk_error err = {0};
        if (!scheduler_config_parse("x", text, sizeof text - 1, &config, &err)) {
            CHECK(err.message[0], "refused without a word: %s", text);
            continue;
        }
        n_parsed++;
        struct sampler_options o = {.config = &config, .n_steps = 1 + i % 12, .eta = NAN};
        if (i % 3) o.scheduler = registry_at((size_t)i % registry_count())->name;
        struct sampler *s = sampler_new(&o, &err);
        CHECK(s || err.message[0], "refused without a word: %s", text);
        float x[N];
        if (s) n_planned++, run(s, x, &err);
        sampler_free(s);
    }
    CHECK(n_parsed > 500 && n_planned > 300, "%d parsed, %d planned", n_parsed, n_planned);
}

/* Few training steps, up to all of them: no index may leave the table. */
static void check_small_tables(void)
{
    for (int n_train = 1; n_train <= 12; n_train++) {
        for (size_t i = 0; i < registry_count(); i++) {
            for (int n = 1; n <= n_train; n++) {
                for (int k = 0; k <= 3; k++) {
                    struct scheduler_config config = plain_config();
                    config.n_train = n_train;
                    config.steps_offset = n_train > 1 ? 1 : 0;
                    struct sampler_options o = {.config = &config,
                                                .scheduler = registry_at(i)->name,
                                                .n_steps = n,
                                                .eta = NAN};
                    o.spacing = k < 3 ? SPACINGS[k] : NULL;
                    struct dk_error err = {0};
                    struct sampler *s = sampler_new(&o, &err);
                    float x[N];
                    if (s)
                        CHECK(run(s, x, &err) < 1e-3, "%s %d of %d: %s", o.scheduler, n, n_train,
                              err.message);
                    else
                        CHECK(err.message[0], "%s %d of %d: refused without a word", o.scheduler, n,
                              n_train);
                    sampler_free(s);
                }
            }
        }
    }
}

/* ---- plugins --------------------------------------------------------------------------------- */

/* Everything above for one shared object. */
static int check_plugin(const char *path)
{
    void *handle;
    struct dk_error err = {0};
    const struct dk_scheduler *scheduler = registry_load(path, &handle, &err);
    if (scheduler == NULL) {
        printf("%s\n", err.message);
        return 1;
    }
    check_oracle(scheduler, path);
    check_configs(scheduler, path);
    check_noise(scheduler, path);
    registry_unload(handle);
    return check_end("checkschedulers");
}

int main(int argc, char **argv)
{
    if (argc > 1) return check_plugin(argv[1]);
    for (size_t i = 0; i < registry_count(); i++) {
        const struct dk_scheduler *scheduler = registry_at(i);
        check_fields(scheduler, i);
        check_oracle(scheduler, scheduler->name);
        check_configs(scheduler, scheduler->name);
        check_noise(scheduler, scheduler->name);
        check_first_step(scheduler->name);
    }
    CHECK(registry_count() >= 26 && registry_at(registry_count()) == NULL &&
              dk_scheduler_count() == registry_count(),
          "%zu schedulers", registry_count());
    check_names();
    check_refusals();
    check_grids();
    check_warnings();
    check_last_passes();
    check_x0_limits();
    check_hostile_configs();
    check_damaged_configs();
    check_small_tables();
    return check_end("checkschedulers");
}
