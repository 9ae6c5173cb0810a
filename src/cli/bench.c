/* bench.c - the command bench: where a model's time goes on this machine. */
/* SPDX-License-Identifier: MIT */
#include "bench.h"

#include "commands.h"
#include "identity.h"
#include "interrupt.h"
#include "metadata.h"
#include "output.h"
#include "plot.h"
#include "progress.h"
#include "say.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

const char *const bench_phase_names[BENCH_PHASES] = {"load", "text", "denoise", "decode"};

/* ---- measuring ----------------------------------------------------------------------------- */

static void add_cost(void *user, const struct dk_cost *cost)
{
    struct bench *bench = user;
    struct bench_phase *phase = &bench->phases[cost->phase];
    size_t i = 0;
    while (i < phase->n_costs && strcmp(phase->costs[i].kind, cost->kind) != 0) i++;
    if (i == BENCH_KINDS) return;
    struct dk_cost *sum = &phase->costs[i];
    if (i == phase->n_costs) {
        *sum = (struct dk_cost){.phase = cost->phase, .kind = cost->kind};
        phase->n_costs++;
    }
    sum->n_calls += cost->n_calls;
    sum->seconds += cost->seconds;
    sum->flop += cost->flop;
    sum->bytes += cost->bytes;
}

static bool run_once(struct dk_model *model, const struct dk_settings *settings,
                     struct bench *bench, struct dk_error *err)
{
    struct dk_image image = {0};
    struct dk_stats stats;
    struct dk_hooks hooks = {
        .cost = bench ? add_cost : NULL, .user = bench, .cancel = interrupt_flag()};
    bool ok = dk_render(model, settings, 1, &image, &hooks, &stats, err);
    dk_image_free(&image);
    if (ok && bench) {
        bench->phases[DK_PHASE_TEXT].seconds += stats.text_s;
        bench->phases[DK_PHASE_DENOISE].seconds += stats.denoise_s;
        bench->phases[DK_PHASE_DECODE].seconds += stats.decode_s;
    }
    return ok;
}

static void take_mean(struct bench *bench, int n_repeats)
{
    double n = n_repeats;
    for (int p = 0; p < BENCH_PHASES; p++) {
        struct bench_phase *phase = &bench->phases[p];
        phase->seconds /= n;
        for (size_t i = 0; i < phase->n_costs; i++) {
            phase->costs[i].n_calls /= (size_t)n_repeats;
            phase->costs[i].seconds /= n;
            phase->costs[i].flop /= n;
            phase->costs[i].bytes /= n;
        }
    }
}

/* Each picture has a prompt of its own, because texts encoded before are remembered. */
static bool measure(struct dk_model *model, struct dk_settings settings, const char *prompt,
                    int n_repeats, struct bench *bench, struct dk_error *err)
{
    double start_s = progress_now_s();
    settings.prompt = prompt;
    if (!run_once(model, &settings, NULL, err)) return false;
    bench->first_s = progress_now_s() - start_s;
    start_s = progress_now_s();
    for (int i = 0; i < n_repeats; i++) {
        char *text = text_format("%s, %d", prompt, i + 1);
        settings.prompt = text;
        settings.seed = (uint64_t)i;
        bool ok = run_once(model, &settings, bench, err);
        free(text);
        if (!ok) return false;
    }
    bench->mean_s = (progress_now_s() - start_s) / n_repeats;
    take_mean(bench, n_repeats);
    return true;
}

/* ---- telling ------------------------------------------------------------------------------- */

static double share(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

static void print_row(const struct bench *bench, const char *phase, const char *kind,
                      const struct dk_cost *cost)
{
    double flops = share(cost->flop, cost->seconds), rate = share(cost->bytes, cost->seconds);
    printf("%-8s %-10s %6zu %9.4f %6.1f%%", phase, kind, cost->n_calls, cost->seconds,
           100 * share(cost->seconds, bench->mean_s));
    if (cost->flop > 0)
        printf(" %9.2f %9.1f %7.0f%% %8.2f %9.0f%%", cost->flop / 1e9, flops / 1e9,
               100 * share(flops, bench->machine.flops), rate / 1e9,
               100 * share(rate, bench->machine.bytes_per_second));
    putchar('\n');
}

/* All operations of a phase, and what its time is spent on beside them. */
static struct dk_cost phase_total(const struct bench_phase *phase, double *rest_s)
{
    struct dk_cost total = {.seconds = phase->seconds};
    *rest_s = phase->seconds;
    for (size_t i = 0; i < phase->n_costs; i++) {
        total.n_calls += phase->costs[i].n_calls;
        total.flop += phase->costs[i].flop;
        total.bytes += phase->costs[i].bytes;
        *rest_s -= phase->costs[i].seconds;
    }
    if (*rest_s < 0) *rest_s = 0;
    return total;
}

static void print_table(const struct bench *bench)
{
    printf("%s, %dx%d, %d steps, %d passes, %d threads, %s kernels\n", bench->model_name,
           bench->width_px, bench->height_px, bench->n_steps, bench->n_passes,
           bench->machine.n_threads, dk_cpu_level());
    printf("this machine: %.1f GFLOP/s in registers, %.1f GB/s from and to memory\n",
           bench->machine.flops / 1e9, bench->machine.bytes_per_second / 1e9);
    printf("a picture: %.3f s (the first %.3f s), at most %.1f MB resident\n\n", bench->mean_s,
           bench->first_s, (double)progress_peak_bytes() / 1e6);
    printf("%-8s %-10s %6s %9s %7s %9s %9s %8s %8s %10s\n", "phase", "operation", "calls",
           "seconds", "of all", "GFLOP", "GFLOP/s", "of peak", "GB/s", "of memory");
    for (int p = DK_PHASE_TEXT; p < BENCH_PHASES; p++) {
        const struct bench_phase *phase = &bench->phases[p];
        double rest_s;
        struct dk_cost total = phase_total(phase, &rest_s), rest = {.seconds = rest_s};
        for (size_t i = 0; i < phase->n_costs; i++)
            print_row(bench, bench_phase_names[p], phase->costs[i].kind, &phase->costs[i]);
        print_row(bench, bench_phase_names[p], "rest", &rest);
        print_row(bench, bench_phase_names[p], "all", &total);
    }
    puts(
        "\nGFLOP are counted as the plain formulas need them: a Winograd convolution may show more "
        "than 100%.");
}

static json_t *cost_to_json(const struct bench *bench, const struct dk_cost *cost)
{
    double flops = share(cost->flop, cost->seconds), rate = share(cost->bytes, cost->seconds);
    json_t *row = json_object();
    json_object_set_new(row, "calls", json_integer((json_int_t)cost->n_calls));
    json_object_set_new(row, "seconds", json_real(cost->seconds));
    json_object_set_new(row, "gflop", json_real(cost->flop / 1e9));
    json_object_set_new(row, "gflops", json_real(flops / 1e9));
    json_object_set_new(row, "of_peak", json_real(share(flops, bench->machine.flops)));
    json_object_set_new(row, "gbytes", json_real(cost->bytes / 1e9));
    json_object_set_new(row, "gbytes_per_second", json_real(rate / 1e9));
    json_object_set_new(row, "of_bandwidth",
                        json_real(share(rate, bench->machine.bytes_per_second)));
    return row;
}

static json_t *phase_to_json(const struct bench *bench, int p)
{
    const struct bench_phase *phase = &bench->phases[p];
    double rest_s;
    struct dk_cost total = phase_total(phase, &rest_s);
    json_t *row = cost_to_json(bench, &total), *operations = json_array();
    for (size_t i = 0; i < phase->n_costs; i++) {
        json_t *operation = cost_to_json(bench, &phase->costs[i]);
        json_object_set_new(operation, "operation", json_string(phase->costs[i].kind));
        json_array_append_new(operations, operation);
    }
    json_object_set_new(row, "phase", json_string(bench_phase_names[p]));
    json_object_set_new(row, "rest_seconds", json_real(rest_s));
    json_object_set_new(row, "operations", operations);
    return row;
}

static void print_json(const struct bench *bench, const struct request *request,
                       const struct dk_settings *settings)
{
    char size[32];
    json_t *object = json_object(), *phases = json_array();
    snprintf(size, sizeof size, "%dx%d", bench->width_px, bench->height_px);
    for (int p = DK_PHASE_TEXT; p < BENCH_PHASES; p++)
        json_array_append_new(phases, phase_to_json(bench, p));
    json_object_set_new(object, "model-name", json_string(bench->model_name));
    json_object_set_new(object, "size", json_string(size));
    json_object_set_new(object, "steps", json_integer(bench->n_steps));
    json_object_set_new(object, "scheduler", json_string(settings->scheduler));
    json_object_set_new(object, "guidance", json_real(settings->guidance));
    json_object_set_new(object, "unet_passes", json_integer(bench->n_passes));
    json_object_set_new(object, "threads", json_integer(bench->machine.n_threads));
    json_object_set_new(object, "cpu", json_string(dk_cpu_level()));
    json_object_set_new(object, "darkroom", json_string(DK_VERSION));
    json_object_set_new(object, "peak_gflops", json_real(bench->machine.flops / 1e9));
    json_object_set_new(object, "peak_gbytes_per_second",
                        json_real(bench->machine.bytes_per_second / 1e9));
    json_object_set_new(object, "repeats", json_integer(request->n_repeats));
    json_object_set_new(object, "seconds", json_real(bench->mean_s));
    json_object_set_new(object, "first_seconds", json_real(bench->first_s));
    json_object_set_new(object, "peak_rss_bytes", json_integer((json_int_t)progress_peak_bytes()));
    json_object_set_new(object, "phases", phases);
    char *line = metadata_line(object);
    puts(line);
    free(line);
    json_decref(object);
}

/* ---- the command --------------------------------------------------------------------------- */

static bool write_plot(void *user, const char *path, bool overwrite, struct dk_error *err)
{
    return bench_plot(user, path, overwrite, err);
}

static bool plot(const struct request *request, struct bench *bench, struct dk_error *err)
{
    if (!request->plot) return true;
    char *name = output_write(request->plot, request->force, write_plot, bench, err);
    if (name) say_note("the chart is in %s", name);
    free(name);
    return name != NULL;
}

static bool bench_model(struct request *request, const char *prompt, struct dk_error *err)
{
    char *path = NULL, *name = NULL;
    struct bench bench = {0};
    struct dk_settings settings = request->settings;
    settings.prompt = prompt;
    struct dk_model *model = model_open(request, &path, err);
    bool ok = model && dk_resolve(model, &settings, &bench.n_passes, err);
    if (ok) {
        bench.model_name = name = identity_name(path);
        bench.width_px = settings.width_px;
        bench.height_px = settings.height_px;
        bench.n_steps = settings.n_steps;
        dk_machine_measure(model, &bench.machine);
        ok = measure(model, settings, prompt, request->n_repeats, &bench, err) &&
             plot(request, &bench, err);
    }
    if (ok && request->json)
        print_json(&bench, request, &settings);
    else if (ok)
        print_table(&bench);
    dk_model_close(model);
    dk_free(path);
    free(name);
    return ok;
}

int bench_run(struct request *request, struct arguments *arguments, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    struct dk_error err = {0};
    size_t n_replaced;
    if (request->plot && (!plot_check(request->plot, &err) || !output_probe(request->plot, &err)))
        return say_failure(&err);
    char *words = arguments_text(arguments, &err);
    if (!words) return say_failure(&err);
    char *prompt = text_repair(*words ? words : "a cat on a red background",
                               strlen(*words ? words : "a cat on a red background"), &n_replaced);
    interrupt_install();
    bool ok = bench_model(request, prompt, &err);
    free(prompt);
    free(words);
    return ok ? EXIT_DONE : say_failure(&err);
}
