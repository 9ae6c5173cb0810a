/* checktrajectories.c - every scheduler against the reference's trajectories. */
/* SPDX-License-Identifier: MIT */

/*
 * The golden files hold, for a toy model out[i] = x[i] / 4 + c[i] / 2 - 0.0003 t, the latent
 * after every call of diffusers' classes and of k-diffusion's functions. Differences that are
 * meant are listed in EXCEPTIONS.
 */
#include "check.h"
#include "golden.h"

#include "pipeline/sampler.h"

#define FOLDER "tests/golden/schedulers/"
enum { N = 16 };

static float toy_c[N], toy_noise[N], toy_x0[N];

static void toy_model(const float *in, double t, float *out)
{
    for (int i = 0; i < N; i++) out[i] = 0.25f * in[i] + 0.5f * toy_c[i] - 0.0003f * (float)t;
}

/*
 * Golden noise: one row a draw. diffusers 0.27 draws at every call, used or not; then the row is
 * the call's.
 */
struct rows {
    const float *values;
    size_t n_rows, next;
};

static void draw_row(void *user, float *out, size_t n)
{
    struct rows *rows = user;
    if (rows->next >= rows->n_rows) {
        for (size_t i = 0; i < n; i++)
            out[i] = 0; /* a draw the reference does not make is not used either */
        return;
    }
    memcpy(out, rows->values + rows->next++ * N, n * sizeof *out);
}

static double biggest(const float *x, size_t n)
{
    double most = 1;
    for (size_t i = 0; i < n; i++) most = fmax(most, fabs((double)x[i]));
    return most;
}

/* ---- diffusers ------------------------------------------------------------------------------- */

static const struct exception {
    const char *prefix; /* of the file's name */
    const char *key,
        *value; /* the config key that makes us do as that version did; value NULL: not compared */
    const char *why;
} EXCEPTIONS[] = {
    {"ddpm_linspace", NULL, NULL,
     "0.27 stepped back by a fixed stride; x32_ddpm_linspace is compared"},
    {"ddim_linspace_", NULL, NULL, "the reference steps back by a fixed stride: check_stride()"},
    {"pndm_linspace", NULL, NULL, "the same"},
    {"pndm_leading_v", "combine_v", "true", "diffusers combines v, we eps"},
    {"unipc_", "final_sigmas_type", "sigma_min", "0.27 ended at sigma_min"},
    {"deis_", "final_sigmas_type", "sigma_min",
     "the reference ends at sigma_min, we at 0 unless the config says so"},
};

static const struct exception *exception_of(const char *name)
{
    for (size_t i = 0; i < sizeof EXCEPTIONS / sizeof *EXCEPTIONS; i++)
        if (strncmp(name, EXCEPTIONS[i].prefix, strlen(EXCEPTIONS[i].prefix)) == 0)
            return &EXCEPTIONS[i];
    return NULL;
}

/* The golden's config with its class, step arguments and the exception put in. */
static bool read_config(json_t *golden, const char *name, struct scheduler_config *config,
                        double *eta)
{
    const char *key;
    json_t *value, *root = json_deep_copy(json_object_get(golden, "config"));
    json_object_set(root, "_class_name", json_object_get(golden, "class"));
    json_object_foreach(json_object_get(golden, "step_kwargs"), key, value)
        json_object_set(root, key, value);
    json_object_foreach(json_object_get(golden, "set_timesteps_kwargs"), key, value)
        json_object_set(root, key, value);
    const struct exception *exception = exception_of(name);
    if (exception && exception->key) {
        bool is_true = strcmp(exception->value, "true") == 0;
        json_object_set_new(root, exception->key,
                            is_true ? json_true() : json_string(exception->value));
    }
    json_t *golden_eta = json_object_get(root, "eta");
    *eta = golden_eta ? json_number_value(golden_eta) : NAN;
    char *text = json_dumps(root, 0);
    struct dk_error err = {0};
    bool ok = scheduler_config_parse(name, text, strlen(text), config, &err);
    CHECK(ok, "%s: %s", name, err.message);
    free(text);
    json_decref(root);
    return ok;
}

/*
 * diffusers' Karras schedule of one step with sigma_min at its end goes from sigma_max to
 * sigma_max.
 */
static bool reference_stands_still(const struct golden *g, int steps)
{
    size_t n;
    if (steps != 1) return false;
    float *traj = golden_get(g, &n, "n1.traj"), *init = golden_get(g, &n, "n1.init_noise_sigma");
    double moved = 0;
    for (int i = 0; i < N; i++)
        moved = fmax(moved, fabs((double)(traj[i] - init[0] * toy_noise[i])));
    free(traj), free(init);
    return moved < 1e-6;
}

static void compare_run(const struct golden *g, const char *name, const struct sampler *s,
                        int steps, double share)
{
    size_t n_t, n_traj, n_noise, n_one;
    float *t = golden_get(g, &n_t, "n%d.timesteps", steps),
          *traj = golden_get(g, &n_traj, "n%d.traj", steps);
    float *noise = golden_get(g, &n_noise, "n%d.noise", steps);
    float *init = golden_get(g, &n_one, "n%d.init_noise_sigma", steps);
    float *first = golden_get(g, &n_one, "n%d.model_in_first", steps);
    float x[N], in[N], out[N];
    struct dk_error err = {0};
    struct rows rows = {noise, n_noise / N, 0};
    struct noise_source source = {draw_row, &rows};
    struct sampler_state *state = sampler_state_new(s, N, &err);
    int calls = sampler_calls(s);
    bool by_call = rows.n_rows == n_t;

    CHECK((size_t)calls == n_t, "%s n%d: %d calls, the reference makes %zu", name, steps, calls,
          n_t);
    CHECK(fabs(sampler_init_sigma(s) - (double)init[0]) <= 2e-5 * (double)init[0],
          "%s n%d: init %g, reference %g", name, steps, sampler_init_sigma(s), (double)init[0]);
    for (int i = 0; i < N; i++) x[i] = toy_noise[i] * (float)sampler_init_sigma(s);
    double worst = 0, limit = share * fmax(biggest(traj, n_traj), biggest(x, N)), worst_t = 0;
    int at = -1;
    bool twins = false; /* the reference's rounding made two timesteps alike or one sigma's two;
                           ours does neither */
    for (int call = 0; call < calls && (size_t)call < n_t; call++) {
        sampler_scale_input(s, call, x, in, N);
        if (call == 0)
            CHECK(check_distance(in, first, N) < 2e-5 * biggest(first, N), "%s n%d: input", name,
                  steps);
        worst_t = fmax(worst_t, fabs(sampler_timestep(s, call) - (double)t[call]));
        bool same_sigma = call > 0 && sampler_sigma(s, call) == sampler_sigma(s, call - 1);
        twins |= call > 0 && (t[call] == t[call - 1]) != same_sigma;
        toy_model(in, (double)t[call], out);
        if (by_call) rows.next = (size_t)call;
        bool ok = sampler_step(s, state, call, out, x, N, &source, &err);
        CHECK(ok, "%s n%d call %d: %s", name, steps, call, err.message);
        double distance = check_distance(x, traj + (size_t)call * N, N);
        if (distance > worst) worst = distance;
        if (distance > limit && at < 0) at = call;
    }
    CHECK(worst_t < (twins ? 1 : 2e-2), "%s n%d: timesteps differ by %g (first %g, reference %g)",
          name, steps, worst_t, sampler_timestep(s, 0), (double)t[0]);
    CHECK(worst <= limit, "%s n%d: %g from the reference, allowed %g, first at call %d", name,
          steps, worst, limit, at);
    sampler_state_free(state);
    free(t), free(traj), free(noise), free(init), free(first);
}

static void check_diffusers(const char *name)
{
    char path[300];
    const struct exception *exception = exception_of(name);
    if (exception && !exception->key) return;
    snprintf(path, sizeof path, FOLDER "%s.json", name);
    json_t *golden = json_load_file(path, 0, NULL);
    snprintf(path, sizeof path, FOLDER "%s.safetensors", name);
    struct golden g = golden_open(path);
    struct scheduler_config config;
    double eta;
    if (read_config(golden, name, &config, &eta)) {
        bool hard =
            strstr(name, "unipc") || strstr(name, "deis") || config.solver.solver_order == 3;
        size_t i;
        json_t *steps;
        json_array_foreach(json_object_get(golden, "steps"), i, steps)
        {
            struct dk_error err = {0};
            struct sampler_options options = {
                .config = &config, .n_steps = (int)json_integer_value(steps), .eta = eta};
            struct sampler *s = sampler_new(&options, &err);
            CHECK(s, "%s n%d: %s", name, options.n_steps, err.message);
            if (s && !reference_stands_still(&g, options.n_steps))
                compare_run(&g, name, s, options.n_steps, hard ? 1e-3 : 1e-4);
            if (s && options.n_steps == 10) {
                size_t n;
                float *want = golden_get(&g, &n, "add_noise.k4"), got[N];
                if (want) {
                    sampler_add_noise(s, 4, toy_x0, toy_noise, got, N);
                    CHECK(check_distance(got, want, N) < 2e-5 * biggest(want, N), "%s: add_noise",
                          name);
                }
                free(want);
            }
            sampler_free(s);
        }
    }
    golden_close(&g);
    json_decref(golden);
}

/*
 * diffusers' DDIM and PNDM always step back by 1000 / N, which with linspace spacing is not the
 * next timestep. Ours go to the next one; that each step agrees is shown by planning the
 * reference's own pair of timesteps.
 */
static void check_one_stride(const struct scheduler_config *config, double eta, double t, int to,
                             const float *start, const float *noise, const float *want,
                             double limit)
{
    char list[60];
    snprintf(list, sizeof list, "%d,%d", (int)t, to);
    struct dk_error err = {0};
    struct sampler_options options = {.config = config, .eta = eta, .timesteps = list};
    struct sampler *s = sampler_new(&options, &err);
    struct sampler_state *state = s ? sampler_state_new(s, N, &err) : NULL;
    struct rows rows = {noise, 1, 0};
    float in[N], out[N], x[N];
    memcpy(x, start, sizeof x);
    if (state) {
        sampler_scale_input(s, 0, x, in, N);
        toy_model(in, t, out);
        CHECK(sampler_step(s, state, 0, out, x, N, &(struct noise_source){draw_row, &rows}, &err),
              "%s", err.message);
    }
    CHECK(state && check_distance(x, want, N) <= limit, "%s: %s", list, err.message);
    sampler_state_free(state);
    sampler_free(s);
}

static void check_stride(const char *name, int steps, bool first_only)
{
    char path[300];
    snprintf(path, sizeof path, FOLDER "%s.safetensors", name);
    struct golden g = golden_open(path);
    snprintf(path, sizeof path, FOLDER "%s.json", name);
    json_t *golden = json_load_file(path, 0, NULL);
    size_t n_t, n_traj, n_noise;
    float *t = golden_get(&g, &n_t, "n%d.timesteps", steps),
          *traj = golden_get(&g, &n_traj, "n%d.traj", steps);
    float *noise = golden_get(&g, &n_noise, "n%d.noise", steps);
    struct scheduler_config config;
    double eta;
    if (read_config(golden, name, &config, &eta)) {
        for (size_t call = 0; call < (first_only ? 1 : n_t); call++) {
            const float *start = call ? traj + (call - 1) * N : toy_noise, *want = traj + call * N;
            int to = (int)t[call] - 1000 / steps;
            if (to < 0) /* the end, alpha_bar[0], is where timestep 0 is: a pass for nothing, which
                           ours warns of */
                CHECK(check_distance(start, want, N) < 1e-4, "%s: the last pass changes something",
                      name);
            else
                check_one_stride(&config, eta, (double)t[call], to, start,
                                 noise ? noise + call * N : NULL, want,
                                 1e-4 * biggest(traj, n_traj));
        }
    }
    json_decref(golden);
    golden_close(&g);
    free(t), free(traj), free(noise);
}

static void check_index(const char *file)
{
    size_t i;
    json_t *name, *index = json_load_file(file, 0, NULL);
    CHECK(json_array_size(json_object_get(index, "names")) > 0, "%s", file);
    json_array_foreach(json_object_get(index, "names"), i, name)
        check_diffusers(json_string_value(name));
    json_decref(index);
}

/* ---- k-diffusion ----------------------------------------------------------------------------- */

/* Its names for the samplers; what follows an @ in the golden names is an argument. */
static const char *const K_NAMES[][2] = {
    {"euler", "euler"},
    {"euler_ancestral", "euler-a"},
    {"heun", "heun"},
    {"dpm_2", "dpm2"},
    {"dpm_2_ancestral", "dpm2-a"},
    {"lms", "lms"},
    {"dpmpp_2m", "dpmpp-2m"},
    {"dpmpp_2s_ancestral", "dpmpp-2s-a"},
    {"dpmpp_sde", "dpmpp-sde"},
    {"dpmpp_2m_sde", "dpmpp-2m-sde"},
    {"dpmpp_3m_sde", "dpmpp-3m-sde"},
};

static void compare_k_run(const struct golden *g, const char *key, const struct sampler *s,
                          int steps)
{
    size_t n_traj, n_noise, n_sigmas;
    float *traj = golden_get(g, &n_traj, "%s.traj", key),
          *noise = golden_get(g, &n_noise, "%s.noise", key);
    float *sigmas = golden_get(g, &n_sigmas, "%s.model_sigmas", key), x[N], in[N], out[N];
    struct dk_error err = {0};
    struct rows rows = {noise, n_noise / N, 0};
    struct noise_source source = {draw_row, &rows};
    struct sampler_state *state = sampler_state_new(s, N, &err);
    int calls = sampler_calls(s), row = 0;

    CHECK((size_t)calls == n_sigmas && n_traj == (size_t)steps * N,
          "%s: %d calls, the reference makes %zu", key, calls, n_sigmas);
    for (int i = 0; i < N; i++) x[i] = toy_noise[i] * (float)sampler_init_sigma(s);
    double limit = 1e-4 * biggest(x, N), worst = 0, worst_sigma = 0;
    for (int call = 0; call < calls && (size_t)call < n_sigmas; call++) {
        double sigma = sampler_sigma(s, call);
        worst_sigma = fmax(worst_sigma, fabs(sigma - (double)sigmas[call]) / sigma);
        sampler_scale_input(s, call, x, in, N);
        toy_model(in, sampler_timestep(s, call), out);
        CHECK(sampler_step(s, state, call, out, x, N, &source, &err), "%s: %s", key, err.message);
        bool last_of_step = call == calls - 1 || calls == steps || call % 2 == 1;
        if (last_of_step) worst = fmax(worst, check_distance(x, traj + (size_t)row++ * N, N));
    }
    /* the reference subtracts squares in f32 for sigma_down, which costs it digits */
    CHECK(worst_sigma < (strstr(key, "ancestral") ? 1e-2 : 3e-5), "%s: sigmas differ by %g", key,
          worst_sigma);
    CHECK(row == steps && worst <= limit, "%s: %g from the reference, allowed %g", key, worst,
          limit);
    CHECK(rows.next == rows.n_rows, "%s: %zu draws, the reference makes %zu", key, rows.next,
          rows.n_rows);
    sampler_state_free(state);
    free(traj), free(noise), free(sigmas);
}

static void check_k_run(const struct golden *g, json_t *run)
{
    char name[60], key[160];
    const char *full = json_string_value(json_object_get(run, "name"));
    const char *schedule = json_string_value(json_object_get(run, "schedule"));
    const char *prediction = json_string_value(json_object_get(run, "prediction")), *ours = NULL;
    int steps = (int)json_integer_value(json_object_get(run, "n"));
    snprintf(name, sizeof name, "%.*s", (int)strcspn(full, "@"), full);
    snprintf(key, sizeof key, "%s.%s.n%d.%s", full, schedule, steps, prediction);
    for (size_t i = 0; i < sizeof K_NAMES / sizeof *K_NAMES; i++)
        if (strcmp(K_NAMES[i][0], name) == 0) ours = K_NAMES[i][1];

    struct scheduler_config config;
    scheduler_config_default(&config);
    if (strcmp(prediction, "v") == 0) config.prediction = DK_PREDICTS_V;
    if (strstr(full, "@heun")) config.solver.solver_type = DK_SOLVER_HEUN;
    struct sampler_options options = {
        .config = &config, .scheduler = ours, .n_steps = steps, .sigmas = schedule};
    options.eta = strstr(full, "@eta0.5") ? 0.5 : NAN;
    struct dk_error err = {0};
    struct sampler *s = sampler_new(&options, &err);
    CHECK(s, "%s: %s", key, err.message);
    if (s) compare_k_run(g, key, s, steps);
    sampler_free(s);
}

static void check_kdiffusion(void)
{
    struct golden g = golden_open(FOLDER "kdiffusion/kdiffusion.safetensors");
    json_t *run, *golden = json_load_file(FOLDER "kdiffusion/kdiffusion.json", 0, NULL);
    size_t i;
    json_array_foreach(json_object_get(golden, "runs"), i, run) check_k_run(&g, run);
    CHECK(i > 100, "only %zu runs", i);
    json_decref(golden);
    golden_close(&g);
}

static void read_common(void)
{
    struct golden g = golden_open(FOLDER "_common.safetensors");
    size_t n;
    float *c = golden_get(&g, &n, "c"), *noise = golden_get(&g, &n, "noise0"),
          *x0 = golden_get(&g, &n, "x0");
    memcpy(toy_c, c, sizeof toy_c);
    memcpy(toy_noise, noise, sizeof toy_noise);
    memcpy(toy_x0, x0, sizeof toy_x0);
    free(c), free(noise), free(x0);
    golden_close(&g);
}

int main(int argc, char **argv)
{
    read_common();
    if (argc > 1) {
        check_diffusers(argv[1]);
        return check_end("checktrajectories");
    }
    check_index(FOLDER "_index.json");
    check_index(FOLDER "_index_extra.json");
    check_stride("ddim_linspace_eta0.0", 10, false);
    check_stride("ddim_linspace_eta1.0", 4, false);
    check_stride("pndm_linspace", 10, true);
    check_kdiffusion();
    return check_end("checktrajectories");
}
