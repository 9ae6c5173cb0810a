/* render.c - the command render: from arguments to files. */
/* SPDX-License-Identifier: MIT */
#include "commands.h"
#include "interrupt.h"
#include "metadata.h"
#include "output.h"
#include "progress.h"
#include "say.h"
#include "text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

struct run {
    struct request *request;
    struct record record; /* of --from; settings NULL without */
    struct dk_model *model;
    char *model_path;
    struct provenance provenance;
    struct progress progress;
    int n_passes;
    double load_s; /* belongs to the first picture */
    int n_made;
};

/* ---- what is asked for --------------------------------------------------------------------- */

/* 32 bits: few digits to type, exact in every JSON reader, and what A1111 takes. */
static bool draw_seed(struct request *request, struct dk_error *err)
{
    uint32_t drawn;
    if (!request->random_seed) return true;
    if (getrandom(&drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn)
        return say_fail(err, DK_ERROR_FILE,
                        "--seed: the system gives no random number: %s; give a seed",
                        strerror(errno));
    request->settings.seed = drawn;
    return true;
}

/* One scheduler's eta means nothing to another: it is taken from the record only together with the
 * scheduler. */
static void forget_eta(struct request *request, const struct record *record)
{
    const char *recorded = json_string_value(json_object_get(record->settings, "scheduler"));
    const char *now = request->settings.scheduler;
    if (request_given(request, "scheduler") && !request_given(request, "eta") && recorded && now &&
        strcmp(now, recorded) != 0)
        request->settings.eta = NAN;
}

/* Reads the record, then the arguments again over it, so that what was typed wins. */
static bool apply_record(struct run *run, struct arguments *arguments, int argc, char **argv,
                         struct dk_error *err)
{
    struct request *request = run->request;
    if (!request->from) return true;
    const char *plugin;
    char *from = text_copy(request->from);
    bool ok = record_read(from, &run->record, err);
    if (ok) {
        request_free(request);
        request_init(request);
        arguments_free(arguments);
        ok = record_apply(&run->record, from, request, &plugin, err) &&
             arguments_read(argc, argv, COMMAND_RENDER, "render", request, arguments, err);
    }
    if (ok && plugin && !request_given(request, "scheduler"))
        ok = say_fail(err, DK_ERROR_ARGUMENT,
                      "%s: was made with the scheduler plugin %.300s, which is a program: "
                      "repeat it as --scheduler if you trust it",
                      from, plugin);
    if (ok) forget_eta(request, &run->record);
    if (ok && !run->record.is_exact)
        say_note("%s: has no record of darkroom's own; A1111's text is followed as far as it goes",
                 from);
    if (ok && run->record.lacking[0])
        say_note("%s: its record lacks %s: expect another picture where that is not given", from,
                 run->record.lacking);
    free(from);
    return ok;
}

static bool read_prompt(struct request *request, const struct arguments *arguments,
                        struct dk_error *err)
{
    if (arguments->n_words == 0) {
        if (request_given(request, "prompt")) request->template = NULL;
        if (request_given(request, "prompt") || request->from) return true;
        return say_fail(err, DK_ERROR_ARGUMENT,
                        "the prompt is missing: darkroom PROMPT; an empty one is written \"\"");
    }
    if (request_given(request, "prompt"))
        return say_fail(err, DK_ERROR_ARGUMENT,
                        "found a prompt twice, as --prompt and as the word \"%.200s\"; leave one "
                        "out",
                        arguments->words[0]);
    request->template = NULL; /* of the picture that --from names */
    char *text = arguments_text(arguments, err);
    bool ok = text && option_set(request, option_find("prompt", 6), text, err);
    free(text);
    return ok;
}

static void say_replaced(const struct request *request)
{
    if (request->n_replaced_bytes == 0) return;
    char *sentence =
        text_format("the text: %zu byte%s not UTF-8 became U+FFFD", request->n_replaced_bytes,
                    request->n_replaced_bytes == 1 ? "" : "s");
    say_warning(sentence);
    free(sentence);
}

/* ---- the model ----------------------------------------------------------------------------- */

static void warn(void *user, const char *sentence)
{
    progress_clear(user);
    say_warning(sentence);
}

static bool open_model(struct run *run, struct dk_error *err)
{
    double start_s = progress_now_s();
    struct dk_progress step = {DK_PHASE_LOAD, 0, 1, NULL};
    progress_report(&run->progress, &step);
    run->request->model_options.warn = warn;
    run->request->model_options.user = &run->progress;
    run->model = model_open(run->request, &run->model_path, err);
    if (!run->model ||
        !identity_fingerprint(run->model_path, run->request, run->provenance.fingerprint, err))
        return false;
    run->provenance.model_name = identity_name(run->model_path);
    step.done = 1;
    progress_report(&run->progress, &step);
    run->load_s = progress_now_s() - start_s;
    return true;
}

/* Says what may keep the picture from coming out the same. */
static void compare_provenance(struct run *run)
{
    const json_t *settings = run->record.settings;
    const char *fingerprint = json_string_value(json_object_get(settings, "model-fingerprint"));
    const char *cpu = json_string_value(json_object_get(settings, "cpu"));
    const char *version = json_string_value(json_object_get(settings, "darkroom"));
    if (!run->record.is_exact) return;
    progress_clear(&run->progress);
    if (fingerprint && *fingerprint && strcmp(fingerprint, run->provenance.fingerprint) != 0)
        say_note("the model is not the one that made %s: expect another picture",
                 run->request->from);
    if (cpu && *cpu && strcmp(cpu, dk_cpu_level()) != 0)
        say_note(
            "%s was made with the %s kernels, these are %s: expect differences in the last bits",
            run->request->from, cpu, dk_cpu_level());
    if (version && *version && strcmp(version, DK_VERSION) != 0)
        say_note("%s was made by darkroom %s, this is %s", run->request->from, version, DK_VERSION);
}

/* ---- what was done ------------------------------------------------------------------------- */

static double milliseconds(double seconds)
{
    return round(seconds * 1e6) / 1e6;
}

static json_t *describe_run(const struct run *run, const char *output)
{
    json_t *object = json_object();
    size_t n_replaced;
    char *name = text_repair(output, strlen(output), &n_replaced);
    json_object_set_new(object, "output", json_string(name));
    options_to_json(run->request, USE_REPORTED, object);
    json_object_set_new(object, "model-name", json_string(run->provenance.model_name));
    json_object_set_new(object, "model-fingerprint", json_string(run->provenance.fingerprint));
    json_object_set_new(object, "cpu", json_string(dk_cpu_level()));
    json_object_set_new(object, "darkroom", json_string(DK_VERSION));
    json_object_set_new(object, "unet_passes", json_integer(run->n_passes));
    free(name);
    return object;
}

static void print_json(json_t *object)
{
    char *line = metadata_line(object);
    puts(line);
    free(line);
    json_decref(object);
}

static void report_json(const struct run *run, const char *output, const struct dk_stats *stats,
                        double total_s)
{
    json_t *object = describe_run(run, output), *seconds = json_object();
    json_object_set_new(seconds, "load", json_real(milliseconds(run->load_s)));
    json_object_set_new(seconds, "text", json_real(milliseconds(stats->text_s)));
    json_object_set_new(seconds, "denoise", json_real(milliseconds(stats->denoise_s)));
    json_object_set_new(seconds, "decode", json_real(milliseconds(stats->decode_s)));
    json_object_set_new(seconds, "total", json_real(milliseconds(total_s)));
    json_object_set_new(object, "unet_passes", json_integer(stats->unet_passes));
    json_object_set_new(object, "partial_passes", json_integer(stats->partial_passes));
    json_object_set_new(object, "seconds", seconds);
    json_object_set_new(object, "peak_rss_bytes", json_integer((json_int_t)progress_peak_bytes()));
    print_json(object);
}

static void report_text(const struct run *run, const struct dk_stats *stats, double total_s)
{
    const struct request *request = run->request;
    char partial[48] = "";
    if (stats->partial_passes > 0)
        snprintf(partial, sizeof partial, " (%d of them in part)", stats->partial_passes);
    if (!request->quiet)
        fprintf(stderr, "seed %llu, %dx%d, %d steps of %s, guidance %g, %d passes%s, %.2f s\n",
                (unsigned long long)request->settings.seed, request->settings.width_px,
                request->settings.height_px, request->settings.n_steps, request->settings.scheduler,
                request->settings.guidance, stats->unet_passes, partial, total_s);
    else if (request->random_seed)
        fprintf(stderr, "seed %llu\n", (unsigned long long)request->settings.seed);
}

static void report_dry(const struct run *run, const char *output)
{
    json_t *object = describe_run(run, output);
    if (run->request->json) {
        print_json(object);
        return;
    }
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        printf("%-18s", key);
        if (json_is_string(value)) {
            text_print_lines(stdout, json_string_value(value), "                  ");
        } else {
            char *text = metadata_line(value);
            fputs(strcmp(text, "null") == 0 ? "-" : text, stdout);
            free(text);
        }
        putchar('\n');
    }
    printf("%-18s%d\n", "pictures", run->request->count);
    json_decref(object);
}

/* ---- making pictures ----------------------------------------------------------------------- */

struct writing {
    const struct dk_image *image;
    const struct dk_text *texts;
    size_t n_texts;
};

static bool write_png(void *user, const char *path, bool overwrite, struct dk_error *err)
{
    const struct writing *w = user;
    return dk_png_write(path, w->image, w->texts, w->n_texts, overwrite, err);
}

/* The name the picture got, or NULL. */
static char *write_picture(const struct run *run, const char *path, const struct dk_image *image,
                           struct dk_error *err)
{
    const struct request *request = run->request;
    if (request->no_metadata)
        return output_write(path, request->force, write_png, &(struct writing){image, NULL, 0},
                            err);
    json_t *record = metadata_record(request, &run->provenance);
    char exact_key[] = "darkroom", parameters_key[] = "parameters";
    struct dk_text texts[] = {{parameters_key, metadata_parameters(request, &run->provenance)},
                              {exact_key, metadata_line(record)}};
    char *name =
        output_write(path, request->force, write_png, &(struct writing){image, texts, 2}, err);
    free(texts[0].text);
    free(texts[1].text);
    json_decref(record);
    return name;
}

/* "NAME.preview.png", or the first numbered one that is free:
 * an existing file is nobody's to lose. */
static char *preview_name(const char *path)
{
    size_t n = strlen(path);
    if (n > 4 && strcmp(path + n - 4, ".png") == 0) n -= 4;
    struct stat status;
    for (int number = 1;; number++) {
        char *name = number == 1 ? text_format("%.*s.preview.png", (int)n, path)
                                 : text_format("%.*s.preview-%d.png", (int)n, path, number);
        if (lstat(name, &status) != 0 || number == 1000) return name;
        free(name);
    }
}

static bool render_image(struct run *run, const char *path, struct dk_image *image,
                         struct dk_stats *stats, struct dk_error *err)
{
    const struct request *request = run->request;
    bool draw =
        request->preview && !request->quiet && run->progress.terminal.colours != COLOURS_NONE;
    char *preview = request->preview && !draw ? preview_name(path) : NULL;
    struct dk_hooks hooks = {.progress = progress_report,
                             .preview = request->preview,
                             .user = &run->progress,
                             .cancel = interrupt_flag()};
    run->progress.draw = draw;
    run->progress.preview = preview;
    interrupt_remove(preview);
    bool ok = dk_render(run->model, &request->settings, 1, image, &hooks, stats, err);
    if (preview) remove(preview);
    interrupt_remove(NULL);
    run->progress.preview = NULL;
    free(preview);
    progress_clear(&run->progress);
    if (ok && interrupt_seen()) {
        dk_image_free(image);
        return say_fail(err, DK_ERROR_CANCELLED, "interrupted");
    }
    return ok;
}

static bool make_picture(struct run *run, int index, struct dk_error *err)
{
    struct request *request = run->request;
    double start_s = progress_now_s() - run->load_s;
    struct dk_image image = {0};
    struct dk_stats stats = {0};
    progress_picture(&run->progress, index, request->count, request->settings.n_steps);
    char *path = output_name(request, run->provenance.model_name, index, err);
    char *name = path && render_image(run, path, &image, &stats, err)
                     ? write_picture(run, path, &image, err)
                     : NULL;
    dk_image_free(&image);
    if (name) {
        double total_s = progress_now_s() - start_s;
        run->n_made++;
        if (strcmp(name, path) != 0)
            say_note("%s exists already, so the picture is in %s", path, name);
        report_text(run, &stats, total_s);
        if (request->json)
            report_json(run, name, &stats, total_s);
        else
            text_print(stdout, name), putchar('\n');
        run->load_s = 0;
    }
    bool ok = name != NULL;
    free(path);
    free(name);
    return ok;
}

static int say_outcome(const struct run *run, const struct dk_error *err)
{
    int status = say_exit_code(err), count = run->request->count;
    if (err->code == DK_ERROR_CANCELLED)
        say_error("interrupted; %d of %d picture%s made", run->n_made, count,
                  count == 1 ? "" : "s");
    else
        say_failure(err);
    return run->n_made > 0 && status != EXIT_INTERRUPTED ? EXIT_PARTLY : status;
}

static int make_pictures(struct run *run)
{
    struct request *request = run->request;
    struct dk_error err = {0};
    uint64_t seed = request->settings.seed;
    for (int i = 0; i < request->count; i++) {
        request->settings.seed = seed + (uint64_t)i; /* 2^64 - 1 is followed by 0 */
        if (!make_picture(run, i + 1, &err)) {
            progress_clear(&run->progress);
            return say_outcome(run, &err);
        }
        if (!say_flush()) return EXIT_FAILED;
    }
    return EXIT_DONE;
}

/* Whether the record alone, without what was typed, is refused by this sentence. */
static bool is_of_record(const struct run *run, const char *sentence)
{
    struct request alone;
    struct dk_error same = {0}, ignored = {0};
    const char *plugin;
    request_init(&alone);
    bool yes = record_apply(&run->record, run->request->from, &alone, &plugin, &ignored) &&
               !dk_resolve(run->model, &alone.settings, NULL, &same) &&
               strcmp(same.message, sentence) == 0;
    request_free(&alone);
    return yes;
}

/* A recorded value that only the model refuses is no wrong usage, and belongs to a picture. */
static bool resolve(struct run *run, struct dk_error *err)
{
    struct request *request = run->request;
    struct dk_error why = {0};
    if (dk_resolve(run->model, &request->settings, &run->n_passes, &why)) return true;
    if (why.code == DK_ERROR_ARGUMENT && request->from && is_of_record(run, why.message))
        return say_fail(err, DK_ERROR_FORMAT, "%s: its record is not usable: %.500s", request->from,
                        why.message);
    return say_fail(err, why.code, "%s", why.message);
}

/* Everything that can be known to fail is tried here; only the pictures remain. */
static bool prepare(struct run *run, char **first_path, struct dk_error *err)
{
    struct request *request = run->request;
    if (!output_check(request, err) || !draw_seed(request, err) || !open_model(run, err))
        return false;
    compare_provenance(run);
    if (!resolve(run, err)) return false;
    *first_path = output_name(request, run->provenance.model_name, 1, err);
    return *first_path && output_probe(*first_path, err);
}

int render_run(struct request *request, struct arguments *arguments, int argc, char **argv)
{
    struct run run = {.request = request};
    struct dk_error err = {0};
    char *first_path = NULL;
    int status;
    bool ok =
        apply_record(&run, arguments, argc, argv, &err) && read_prompt(request, arguments, &err);
    if (ok) say_replaced(request);
    progress_init(&run.progress, request->quiet || request->dry_run);
    interrupt_install();
    ok = ok && prepare(&run, &first_path, &err);
    progress_clear(&run.progress);
    if (!ok) {
        status = interrupt_seen() ? EXIT_INTERRUPTED : say_failure(&err);
    } else if (request->dry_run) {
        report_dry(&run, first_path);
        status = EXIT_DONE;
    } else {
        status = make_pictures(&run);
    }
    dk_model_close(run.model);
    dk_free(run.model_path);
    free(run.provenance.model_name);
    record_free(&run.record);
    free(first_path);
    return status;
}
