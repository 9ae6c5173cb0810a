/* checkorder.c - order of convergence and error on a problem with an exact answer. */
/* SPDX-License-Identifier: MIT */

/*
 * The data are a mixture of Gaussians on a line, so the best denoiser is known in closed form:
 *
 *     D(y, sigma) = sum_k p_k (m_k + s_k^2 / v_k (y - m_k)) / sum_k p_k
 *     p_k = w_k N(y; m_k, v_k),   v_k = s_k^2 + sigma^2
 *
 * and dy/dsigma = (y - D) / sigma can be solved to any accuracy. Every scheduler is driven by
 * this model; what is left is the scheduler's own error.
 */
#include "check.h"

#include "base/rng.h"
#include "pipeline/registry.h"
#include "pipeline/sampler.h"

#include <stdlib.h>
#include <string.h>

/* ---- the problem ----------------------------------------------------------------------------- */

enum { MODES = 3 };
static const double WEIGHT[MODES] = {0.3, 0.5, 0.2}, MEAN[MODES] = {-1.2, 0.3, 1.5},
                    SPREAD[MODES] = {0.3, 0.25, 0.4};

static double denoise(double y, double sigma)
{
    double top = 0, bottom = 0, least = INFINITY, exponent[MODES];
    for (int k = 0; k < MODES; k++) {
        double v = SPREAD[k] * SPREAD[k] + sigma * sigma;
        exponent[k] = (y - MEAN[k]) * (y - MEAN[k]) / (2 * v);
        least = fmin(least, exponent[k]);
    }
    for (int k = 0; k < MODES; k++) {
        double s2 = SPREAD[k] * SPREAD[k], v = s2 + sigma * sigma;
        double p = WEIGHT[k] / sqrt(v) * exp(least - exponent[k]);
        top += p * (MEAN[k] + s2 / v * (y - MEAN[k]));
        bottom += p;
    }
    return top / bottom;
}

/* dy / d ln sigma */
static double slope(double y, double log_sigma)
{
    return y - denoise(y, exp(log_sigma));
}

/* Runge-Kutta of order 4 in ln sigma, far finer than anything tested. */
static double exact_flow(double y, double from, double to, int steps)
{
    double h = log(to / from) / steps;
    for (int i = 0; i < steps; i++) {
        double t = log(from) + h * i;
        double k1 = slope(y, t), k2 = slope(y + h / 2 * k1, t + h / 2),
               k3 = slope(y + h / 2 * k2, t + h / 2);
        y += h / 6 * (k1 + 2 * k2 + 2 * k3 + slope(y + h * k3, t + h));
    }
    return y;
}

static double distribution(double y)
{
    double sum = 0;
    for (int k = 0; k < MODES; k++)
        sum += WEIGHT[k] * 0.5 * erfc((MEAN[k] - y) / (SPREAD[k] * sqrt(2)));
    return sum;
}

static double quantile(double p)
{
    double low = -6, high = 6;
    for (int i = 0; i < 50; i++) {
        double middle = (low + high) / 2;
        if (distribution(middle) < p)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

/* ---- driving a scheduler --------------------------------------------------------------------- */

static void draw(void *user, float *out, size_t n)
{
    rng_normal(user, out, n);
}

/* The model's eps for x at a call; y (may be NULL) becomes x in the exploding form. */
static void ask(const struct sampler *s, int call, const float *x, float *out, double *y, size_t n)
{
    double sigma = sampler_sigma(s, call), scale = sqrt(1 + sigma * sigma);
    sampler_scale_input(s, call, x, out, n);
    for (size_t i = 0; i < n; i++) {
        double place = (double)out[i] * scale;
        if (y) y[i] = place;
        if (out) out[i] = (float)((place - denoise(place, sigma)) / sigma);
    }
}

static void drive(const struct sampler *s, int n_calls, float *x, size_t n)
{
    struct rng rng;
    struct noise_source noise = {draw, &rng};
    struct dk_error err = {0};
    struct sampler_state *state = sampler_state_new(s, n, &err);
    float *out = malloc(n * sizeof *out);
    rng_seed(&rng, RNG_CPU, 11);
    for (int call = 0; call < n_calls; call++) {
        ask(s, call, x, out, NULL, n);
        CHECK(sampler_step(s, state, call, out, x, n, &noise, &err), "%s: %s", sampler_name(s),
              err.message);
    }
    free(out);
    sampler_state_free(state);
}

static struct scheduler_config plain_config(int solver_order)
{
    struct scheduler_config config;
    scheduler_config_default(&config);
    config.set_alpha_to_one = 1;
    config.solver.solver_order = solver_order;
    config.solver.lower_order_final = false; /* the order is that of the steps in the middle */
    return config;
}

/* ---- order ----------------------------------------------------------------------------------- */

static const double FROM = 8, TO = 0.4;

/*
 * n steps from FROM to TO, even in ln sigma, or in sigma. Multistep solvers begin with order 1;
 * so that this does not hide the order they have later, the even steps are preceded by ones that
 * double from about h^2 up to h.
 */
static char *make_list(int n, bool even_in_sigma, int *n_nodes)
{
    double length = log(FROM / TO);
    int ramp = even_in_sigma ? 0 : (int)ceil(log2(n / length));
    if ((n + ramp) % 2) ramp++; /* pairs of steps come out even */
    double h = length / (n + (ramp ? 1 - exp2(-ramp) : 0)), at = 0;
    char *list = malloc((size_t)(n + ramp + 2) * 30), *end = list;
    for (int i = 0; i <= n + ramp; i++) {
        double sigma = even_in_sigma   ? FROM + (TO - FROM) * i / n
                       : i == n + ramp ? TO
                                       : FROM * exp(-at);
        end += sprintf(end, "%s%.17g", i ? "," : "", sigma);
        at += i < ramp ? h * exp2(i - ramp) : h;
    }
    *n_nodes = n + ramp + 1;
    return list;
}

enum { POINTS = 16 };

/* Root mean square error at TO, over POINTS starts. */
static double error_at_end(const char *name, uint32_t flags, int solver_order, int n,
                           bool even_in_sigma)
{
    int n_nodes;
    char *list = make_list(n, even_in_sigma, &n_nodes);
    struct scheduler_config config = plain_config(solver_order);
    struct sampler_options o = {
        .config = &config, .scheduler = name, .sigmas = list, .eta = flags & DK_ETA ? 0 : NAN};
    struct dk_error err = {0};
    struct sampler *s = sampler_new(&o, &err);
    CHECK(s, "%s: %s", name, err.message);
    free(list);
    if (s == NULL) return NAN;
    float x[POINTS], unit[POINTS], one[POINTS];
    double y[POINTS], sum = 0;
    for (int i = 0; i < POINTS; i++) one[i] = 1;
    sampler_scale_input(s, 0, one, unit, POINTS); /* below 1 in the exploding form */
    double to_form = (double)unit[0] < 1 ? 1 : 1 / sqrt(1 + FROM * FROM);
    for (int i = 0; i < POINTS; i++)
        x[i] = (float)(to_form * FROM * (2.0 * i / (POINTS - 1) - 1) * 1.8);
    double start[POINTS];
    for (int i = 0; i < POINTS; i++) start[i] = (double)x[i] / to_form;
    int last = sampler_calls(s) - 1; /* the step from TO to 0 is not taken */
    float scratch[POINTS];
    drive(s, last, x, POINTS);
    ask(s, last, x, scratch, y, POINTS);
    for (int i = 0; i < POINTS; i++) sum += pow(y[i] - exact_flow(start[i], FROM, TO, 2000), 2);
    sampler_free(s);
    return sqrt(sum / POINTS);
}

/* The slope of ln error against ln steps, by the last pair that f32 does not blur. */
static double measure_order(const char *name, uint32_t flags, int solver_order, bool even_in_sigma,
                            double errors[4])
{
    static const int N[] = {16, 32, 64, 128};
    double order = 0;
    for (int i = 0; i < 4; i++) {
        errors[i] = error_at_end(name, flags, solver_order, N[i], even_in_sigma);
        if (i > 0 && (i == 1 || errors[i] > 1e-5)) order = log2(errors[i - 1] / errors[i]);
    }
    return order;
}

static const struct row {
    const char *name;
    int solver_order;   /* 0: the scheduler's own */
    double expected;    /* of the method; UniPC's corrector adds one */
    bool even_in_sigma; /* the grid its weights are made for */
} ROWS[] = {
    {"ddim", 0, 1, false},         {"euler", 0, 1, false},     {"euler-a", 0, 1, false},
    {"euler-ge", 0, 1, false},     {"res-2s", 0, 2, false},    {"heun", 0, 2, false},
    {"dpm2", 0, 2, false},         {"dpm2-a", 0, 2, false},    {"dpmpp-2s", 0, 2, false},
    {"dpmpp-2s-a", 0, 2, false},   {"dpmpp-2m", 0, 2, false},  {"dpmpp-2m", 3, 2, false},
    {"dpmpp-2m-sde", 0, 2, false}, {"dpmpp-sde", 0, 2, false}, {"dpmpp-3m", 0, 3, false},
    {"dpmpp-3m-sde", 0, 2, false}, {"deis", 0, 2, false},      {"deis", 3, 3, false},
    {"unipc", 0, 3, false},        {"unipc", 3, 4, false},     {"sa-solver", 0, 2, false},
    {"lms", 0, 4, false},          {"ipndm", 0, 2, true},      {"pndm", 0, 2, true},
};
enum { N_ROWS = sizeof ROWS / sizeof *ROWS };

static const struct dk_scheduler *find(const char *name)
{
    struct registry_match match;
    return registry_find(name, &match, NULL) ? match.scheduler : NULL;
}

static void check_orders(FILE *table)
{
    if (table)
        fprintf(table, "| scheduler | order, theory | measured | error at 16, 32, 64, 128 steps "
                       "|\n|---|---|---|---|\n");
    for (int i = 0; i < N_ROWS; i++) {
        const struct row *row = &ROWS[i];
        const struct dk_scheduler *s = find(row->name);
        double errors[4], order = measure_order(row->name, s->flags, row->solver_order,
                                                row->even_in_sigma, errors);
        CHECK(order > row->expected - 0.35 && order < row->expected + 1,
              "%s (solver_order %d): measured order %.2f, expected %g", row->name,
              row->solver_order, order, row->expected);
        if (row->solver_order == 0)
            CHECK(s->order <= row->expected, "%s says order %d, measured %.2f", row->name, s->order,
                  order);
        if (!table) continue;
        char note[40] = "";
        if (row->solver_order) snprintf(note, sizeof note, ", solver_order %d", row->solver_order);
        fprintf(table, "| %s%s%s | %g | %.2f | %.1e, %.1e, %.1e, %.1e |\n", row->name, note,
                s->flags & DK_ETA && s->eta > 0 ? ", eta 0" : "", row->expected, order, errors[0],
                errors[1], errors[2], errors[3]);
    }
}

/* ---- error against passes -------------------------------------------------------------------- */

static const int BUDGETS[] = {5, 8, 10, 15, 20, 30, 50};
enum { N_BUDGETS = sizeof BUDGETS / sizeof *BUDGETS, MAX_SCHEDULERS = 64 };

/*
 * A scheduler planned with as many steps as the passes allow; NULL when none fits exactly or
 * nearly.
 */
static struct sampler *fit(const char *name, const struct scheduler_config *config, int passes)
{
    for (int n = passes; n >= 1; n--) {
        struct sampler_options o = {
            .config = config, .scheduler = name, .n_steps = n, .sigmas = "karras", .eta = NAN};
        struct sampler *s = sampler_new(&o, NULL);
        if (s && sampler_calls(s) <= passes && sampler_calls(s) >= passes - 1) return s;
        sampler_free(s);
    }
    return NULL;
}

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

struct samples {
    size_t n;
    float *start;     /* unit normals at the quantiles, in no order */
    double *exact;    /* where the exact flow takes start[i] * sigma_max */
    double *quantile; /* of the data */
};

static double normal_quantile(double p)
{
    double low = -9, high = 9;
    for (int i = 0; i < 50; i++) {
        double middle = (low + high) / 2;
        if (0.5 * erfc(-middle / sqrt(2)) < p)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

static struct samples make_samples(size_t n, double sigma_max)
{
    struct samples s = {n, malloc(n * sizeof *s.start), malloc(n * sizeof *s.exact),
                        malloc(n * sizeof *s.quantile)};
    for (size_t i = 0; i < n; i++) {
        double p = ((double)i + 0.5) / (double)n;
        s.start[i] = (float)normal_quantile(p);
        s.exact[i] = exact_flow((double)s.start[i] * sigma_max, sigma_max, 1e-4, 300);
        s.quantile[i] = quantile(p);
    }
    return s;
}

/*
 * Root mean square distance from the exact flow, and the Wasserstein distance of the samples from
 * the data.
 */
static void measure(const struct sampler *s, const struct samples *samples, double *to_flow,
                    double *to_data)
{
    size_t n = samples->n;
    float *x = malloc(n * sizeof *x);
    double sum = 0, total = 0;
    for (size_t i = 0; i < n; i++) x[i] = samples->start[i] * (float)sampler_init_sigma(s);
    drive(s, sampler_calls(s), x, n);
    for (size_t i = 0; i < n; i++) sum += pow((double)x[i] - samples->exact[i], 2);
    qsort(x, n, sizeof *x, compare_floats);
    for (size_t i = 0; i < n; i++) total += fabs((double)x[i] - samples->quantile[i]);
    *to_flow = sqrt(sum / (double)n);
    *to_data = total / (double)n;
    free(x);
}

struct result {
    const struct dk_scheduler *scheduler;
    bool noisy;
    double to_flow[N_BUDGETS], to_data[N_BUDGETS]; /* NAN: no such number of passes */
};

static bool takes_part(const struct dk_scheduler *s)
{
    return !(s->flags & DK_DISTILLED);
}
static bool is_noisy(const struct dk_scheduler *s)
{
    return (s->flags & DK_STOCHASTIC) && !((s->flags & DK_ETA) && s->eta <= 0);
}

static size_t measure_all(struct result *results, const struct samples *samples)
{
    struct scheduler_config config = plain_config(0);
    size_t n = 0;
    for (size_t i = 0; i < registry_count() && n < MAX_SCHEDULERS; i++) {
        if (!takes_part(registry_at(i))) continue;
        struct result *r = &results[n++];
        *r = (struct result){.scheduler = registry_at(i), .noisy = is_noisy(registry_at(i))};
        for (int b = 0; b < N_BUDGETS; b++) {
            struct sampler *s = fit(r->scheduler->name, &config, BUDGETS[b]);
            r->to_flow[b] = r->to_data[b] = NAN;
            if (s) measure(s, samples, &r->to_flow[b], &r->to_data[b]);
            sampler_free(s);
        }
    }
    return n;
}

static int by_quality(const void *a, const void *b)
{
    const struct result *x = a, *y = b;
    double p = x->to_data[4], q = y->to_data[4]; /* at 20 passes */
    return (p > q) - (p < q);
}

static void print_errors(FILE *file, const struct result *results, size_t n, bool flow)
{
    fprintf(file, "| scheduler |");
    for (int b = 0; b < N_BUDGETS; b++) fprintf(file, " %d |", BUDGETS[b]);
    fprintf(file, "\n|---|");
    for (int b = 0; b < N_BUDGETS; b++) fprintf(file, "---|");
    fprintf(file, "\n");
    for (size_t i = 0; i < n; i++) {
        if (flow && results[i].noisy) continue;
        fprintf(file, "| %s%s |", results[i].scheduler->name,
                !flow && results[i].noisy ? " *" : "");
        for (int b = 0; b < N_BUDGETS; b++) {
            double value = flow ? results[i].to_flow[b] : results[i].to_data[b];
            fprintf(file, isnan(value) ? " - |" : " %.4f |", value);
        }
        fprintf(file, "\n");
    }
}

/* ---- the chart ------------------------------------------------------------------------------- */

static const char *const COLOURS[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd",
                                      "#ff7f0e", "#17becf", "#8c564b", "#e377c2",
                                      "#7f7f7f", "#bcbd22", "#000000", "#4b8b3b"};

/* One panel with its own legend; x is ln passes, y ln error. */
static void draw_panel(FILE *svg, const struct result *results, size_t n, bool noisy, double left,
                       const char *title)
{
    const double width = 330, height = 340, top = 50, low = 1e-4, high = 1;
    double first = log(BUDGETS[0]), last = log(BUDGETS[N_BUDGETS - 1]);
    fprintf(svg, "<text x=\"%g\" y=\"28\" font-weight=\"bold\">%s</text>\n", left, title);
    for (double e = low; e <= high * 1.01; e *= 10) {
        double y = top + height * log(high / e) / log(high / low);
        fprintf(svg,
                "<path d=\"M%g %gh%g\" stroke=\"#ddd\"/><text x=\"%g\" y=\"%g\" "
                "text-anchor=\"end\">%g</text>\n",
                left, y, width, left - 6, y + 4, e);
    }
    for (int b = 0; b < N_BUDGETS; b++) {
        double x = left + width * (log(BUDGETS[b]) - first) / (last - first);
        fprintf(svg,
                "<path d=\"M%g %gv%g\" stroke=\"#eee\"/><text x=\"%g\" y=\"%g\" "
                "text-anchor=\"middle\">%d</text>\n",
                x, top, height, x, top + height + 18, BUDGETS[b]);
    }
    fprintf(svg, "<text x=\"%g\" y=\"%g\" text-anchor=\"middle\">passes of the U-Net</text>\n",
            left + width / 2, top + height + 38);
    int line = 0;
    for (size_t i = 0; i < n; i++) {
        if (results[i].noisy != noisy) continue;
        const char *colour = COLOURS[line % (int)(sizeof COLOURS / sizeof *COLOURS)];
        bool begun = false;
        fprintf(svg, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"1.6\"%s d=\"", colour,
                line % 2 ? " stroke-dasharray=\"5 3\"" : "");
        for (int b = 0; b < N_BUDGETS; b++) {
            double value = noisy ? results[i].to_data[b] : results[i].to_flow[b];
            if (isnan(value)) continue;
            value = fmin(fmax(value, low), high);
            fprintf(svg, "%s%.1f %.1f", begun ? " L" : "M",
                    left + width * (log(BUDGETS[b]) - first) / (last - first),
                    top + height * log(high / value) / log(high / low));
            begun = true;
        }
        fprintf(svg,
                "\"/>\n<path stroke=\"%s\" stroke-width=\"1.6\"%s d=\"M%g %dh24\"/><text x=\"%g\" "
                "y=\"%d\">%s</text>\n",
                colour, line % 2 ? " stroke-dasharray=\"5 3\"" : "", left + width + 12,
                60 + 19 * line, left + width + 42, 64 + 19 * line, results[i].scheduler->name);
        line++;
    }
}

static void draw_chart(const char *path, const struct result *results, size_t n)
{
    FILE *svg = fopen(path, "w");
    if (svg == NULL) return;
    fprintf(svg, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1080\" height=\"440\" "
                 "font-family=\"sans-serif\" "
                 "font-size=\"12\">\n<rect width=\"1080\" height=\"440\" fill=\"#fff\"/>\n");
    draw_panel(svg, results, n, false, 50, "without noise: distance from the exact flow");
    draw_panel(svg, results, n, true, 590, "with noise: distance from the data");
    fprintf(svg, "</svg>\n");
    fclose(svg);
}

/* ---- writing the page ------------------------------------------------------------------------ */

static void print_list(FILE *file)
{
    fprintf(file, "| name | order | passes a step | noise | steps | A1111 | also accepted | when "
                  "|\n|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < registry_count(); i++) {
        const struct dk_scheduler *s = registry_at(i);
        const char *noise = is_noisy(s) ? (s->flags & DK_ETA ? "yes, eta 0 for none" : "yes")
                            : s->flags & DK_ETA ? "with eta"
                                                : "no";
        fprintf(file, "| `%s` | %d | %d | %s | %d to %d | %s | %s | %s |\n", s->name, s->order,
                s->passes_per_step, noise, s->steps_low, s->steps_high, s->title, s->aliases,
                s->summary);
    }
}

/* Copies in to out with what lies between <!-- begin NAME --> and <!-- end --> made anew. */
static bool rewrite(const char *path, const struct result *results, size_t n)
{
    char temporary[500], line[2000];
    snprintf(temporary, sizeof temporary, "%s.new", path);
    FILE *in = fopen(path, "r"), *out = fopen(temporary, "w");
    bool skipping = false;
    while (in && out && fgets(line, sizeof line, in)) {
        if (strncmp(line, "<!-- end", 8) == 0) skipping = false;
        if (!skipping) fputs(line, out);
        if (strncmp(line, "<!-- begin ", 11) != 0) continue;
        skipping = true;
        if (strstr(line, "list")) print_list(out);
        if (strstr(line, "orders")) check_orders(out);
        if (strstr(line, "data")) print_errors(out, results, n, false);
        if (strstr(line, "flow")) print_errors(out, results, n, true);
    }
    if (in) fclose(in);
    return out && fclose(out) == 0 && in && rename(temporary, path) == 0;
}

/* The page names every scheduler there is. */
static void check_page(void)
{
    FILE *file = fopen("docs/schedulers.md", "r");
    char *text = calloc(1, 200000);
    if (file) {
        size_t got = fread(text, 1, 199999, file);
        text[got] = 0;
        fclose(file);
    }
    for (size_t i = 0; i < registry_count(); i++) {
        char name[80];
        snprintf(name, sizeof name, "| `%s` |", registry_at(i)->name);
        CHECK(strstr(text, name),
              "docs/schedulers.md does not list %s: run checkorder --write docs/schedulers.md",
              name);
    }
    free(text);
}

/* Few samples, few passes: the ranking that the page is about, as a test. */
static void check_ranking(void)
{
    struct samples samples = make_samples(400, 14.6146);
    struct scheduler_config config = plain_config(0);
    double flow[4], data;
    static const char *const NAMES[] = {"euler", "dpmpp-2m", "unipc", "heun"};
    for (int i = 0; i < 4; i++) {
        struct sampler *s = fit(NAMES[i], &config, 15);
        measure(s, &samples, &flow[i], &data);
        sampler_free(s);
    }
    CHECK(flow[1] < flow[0] / 3 && flow[2] < flow[0] / 3 && flow[3] < flow[0],
          "15 passes: euler %g, dpmpp-2m %g, unipc %g, heun %g", flow[0], flow[1], flow[2],
          flow[3]);
    /* noise: the distribution is reached although the path is not */
    struct sampler *s = fit("euler-a", &config, 50);
    measure(s, &samples, &flow[0], &data);
    CHECK(data < 0.12 && flow[0] > 0.3,
          "euler-a with 50 passes: %g from the data, %g from the flow", data, flow[0]);
    sampler_free(s);
    free(samples.start), free(samples.exact), free(samples.quantile);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--write") == 0) {
        struct samples samples = make_samples(40000, 14.6146);
        struct result results[MAX_SCHEDULERS];
        size_t n = measure_all(results, &samples);
        char chart[500];
        qsort(results, n, sizeof *results, by_quality);
        snprintf(chart, sizeof chart, "%.*s-error.svg", (int)(strlen(argv[2]) - 3), argv[2]);
        draw_chart(chart, results, n);
        printf("%s: %s\n", argv[2], rewrite(argv[2], results, n) ? "written" : "cannot be written");
        free(samples.start), free(samples.exact), free(samples.quantile);
        return 0;
    }
    check_orders(argc > 1 ? stdout : NULL);
    check_ranking();
    check_page();
    return check_end("checkorder");
}
