/* info.c - the command info: how a picture was made, what a model is. */
/* SPDX-License-Identifier: MIT */
#include "commands.h"
#include "metadata.h"
#include "say.h"
#include "text.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- pictures ------------------------------------------------------------------------------ */

static void print_value(const char *key, const json_t *value)
{
    int n_letters = (int)strlen(key);
    text_print(stdout, key);
    printf("%*s", n_letters < 17 ? 18 - n_letters : 1, "");
    if (json_is_string(value)) {
        text_print_lines(stdout, json_string_value(value), "                  ");
    } else {
        char *line = metadata_line(value);
        text_print(stdout, line);
        free(line);
    }
    putchar('\n');
}

static void print_object(json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) if (!json_is_null(value)) print_value(key, value);
}

static void print_record(const char *path, const struct record *record)
{
    printf("%-18s", "file");
    text_print(stdout, path);
    printf("\n%-18s%dx%d pixels\n", "picture", record->width_px, record->height_px);
    if (record->settings) {
        printf("%-18s%s%s\n", "record",
               record->lacking[0] ? "incomplete: it lacks "
               : record->is_exact ? "exact: darkroom --from makes this picture again"
                                  : "A1111's text: darkroom --from comes near",
               record->lacking);
        print_object(record->settings);
    }
    if (record->other) print_object(record->other);
    for (size_t i = 0; i < record->texts.n_items; i++) {
        const struct dk_text *text = &record->texts.items[i];
        if (strcmp(text->keyword, "darkroom") == 0 ||
            (strcmp(text->keyword, "parameters") == 0 && record->settings))
            continue;
        printf("%-18s", "text chunk");
        text_print(stdout, text->keyword);
        printf(", %zu bytes\n", strlen(text->text));
    }
    if (!record->settings) printf("%-18snone that darkroom can read\n", "record");
}

static json_t *texts_to_json(const struct dk_texts *texts)
{
    json_t *object = json_object();
    for (size_t i = 0; i < texts->n_items; i++)
        json_object_set_new(object, texts->items[i].keyword, json_string(texts->items[i].text));
    return object;
}

/* The record's own keys first, so that "seed", "steps", ...
 * are where --json of render has them. */
static void print_record_json(const char *path, const struct record *record)
{
    json_t *object = record->settings ? json_deep_copy(record->settings) : json_object();
    char size[32];
    size_t n_replaced;
    char *name = text_repair(path, strlen(path), &n_replaced);
    snprintf(size, sizeof size, "%dx%d", record->width_px, record->height_px);
    json_object_set_new(object, "file", json_string(name));
    json_object_set_new(object, "picture", json_string(size));
    json_object_set_new(object, "record",
                        !record->settings
                            ? json_null()
                            : json_string(record->is_exact ? "darkroom" : "parameters"));
    if (record->lacking[0]) json_object_set_new(object, "lacking", json_string(record->lacking));
    if (record->other) json_object_set(object, "other", record->other);
    json_object_set_new(object, "texts", texts_to_json(&record->texts));
    char *line = metadata_line(object);
    puts(line);
    free(line);
    free(name);
    json_decref(object);
}

/* All options but --json are about models. */
static bool check_picture(const struct request *request, const char *path, struct dk_error *err)
{
    for (size_t i = 0; option_at(i); i++)
        if (request->given[i] && strcmp(option_at(i)->name, "json") != 0)
            return say_fail(err, DK_ERROR_ARGUMENT,
                            "--%s: is for models, and %s is a picture; leave it out",
                            option_at(i)->name, path);
    return true;
}

static int info_picture(const struct request *request, const char *path)
{
    struct record record;
    struct dk_error err = {0};
    if (!check_picture(request, path, &err)) return say_failure(&err);
    if (!record_read(path, &record, &err)) return say_failure(&err);
    if (request->json)
        print_record_json(path, &record);
    else
        print_record(path, &record);
    record_free(&record);
    return EXIT_DONE;
}

/* ---- models -------------------------------------------------------------------------------- */

static void print_prediction(const struct dk_model_info *info)
{
    printf("%-18s%s (%s)\n", "prediction", info->prediction, info->prediction_source);
}

/* Without the prediction where a trial of the U-Net is still to tell it. */
static void print_model_info(const struct dk_model_info *info, const char *size,
                             const char *fingerprint, bool open)
{
    printf("%-18s", "model");
    text_print(stdout, info->path);
    printf("\n%-18s%s\n", "family", info->family);
    if (!open) print_prediction(info);
    printf("%-18s%s\n", "scheduler", info->scheduler);
    printf("%-18s%dx%d, multiples of %d\n", "size", info->native_width_px, info->native_height_px,
           info->size_multiple_px);
    printf("%-18s%d\n%-18s%g\n", "steps", info->n_steps, "guidance", info->guidance);
    printf("%-18s%d\n", "context tokens", info->context_tokens);
    printf("%-18s%.1f MB at %s\n", "work memory", (double)info->work_bytes / 1e6, size);
    printf("%-18s%s\n", "fingerprint", fingerprint);
    for (size_t i = 0; i < info->n_parts; i++) {
        const struct dk_part_info *part = &info->parts[i];
        printf("%-18s%zu tensors, %.2f M parameters, %.1f MB, %s\n", part->name, part->n_tensors,
               (double)part->n_parameters / 1e6, (double)part->size_bytes / 1e6, part->dtypes);
    }
}

static json_t *part_to_json(const struct dk_part_info *part)
{
    json_t *row = json_object();
    json_object_set_new(row, "name", json_string(part->name));
    json_object_set_new(row, "tensors", json_integer((json_int_t)part->n_tensors));
    json_object_set_new(row, "parameters", json_integer((json_int_t)part->n_parameters));
    json_object_set_new(row, "bytes", json_integer((json_int_t)part->size_bytes));
    json_object_set_new(row, "dtypes", json_string(part->dtypes));
    return row;
}

static void print_model_json(const struct dk_model_info *info, const char *work_size,
                             const char *fingerprint, const char *refusal)
{
    json_t *object = json_object(), *parts = json_array();
    size_t n_replaced;
    char *path = text_repair(info->path, strlen(info->path), &n_replaced);
    char size[32];
    snprintf(size, sizeof size, "%dx%d", info->native_width_px, info->native_height_px);
    for (size_t i = 0; i < info->n_parts; i++)
        json_array_append_new(parts, part_to_json(&info->parts[i]));
    json_object_set_new(object, "model", json_string(path));
    json_object_set_new(object, "family", json_string(info->family));
    json_object_set_new(object, "prediction", json_string(info->prediction));
    json_object_set_new(object, "prediction-source", json_string(info->prediction_source));
    json_object_set_new(object, "scheduler", json_string(info->scheduler));
    json_object_set_new(object, "size", json_string(size));
    json_object_set_new(object, "size-multiple", json_integer(info->size_multiple_px));
    json_object_set_new(object, "steps", json_integer(info->n_steps));
    json_object_set_new(object, "guidance", json_real(info->guidance));
    json_object_set_new(object, "context-tokens", json_integer(info->context_tokens));
    json_object_set_new(object, "work-bytes", json_integer((json_int_t)info->work_bytes));
    json_object_set_new(object, "work-size", json_string(work_size));
    json_object_set_new(object, "refusal", *refusal ? json_string(refusal) : json_null());
    json_object_set_new(object, "model-fingerprint", json_string(fingerprint));
    json_object_set_new(object, "parts", parts);
    char *line = metadata_line(object);
    puts(line);
    free(line);
    free(path);
    json_decref(object);
}

/* The work memory is that of --size and --decoder where they are given; size is its text. */
static bool get_info(const struct dk_model *model, const struct dk_settings *settings,
                     struct dk_model_info *info, char *size, size_t size_bytes,
                     struct dk_error *err)
{
    dk_model_get_info(model, info);
    int width_px = settings->width_px ? settings->width_px : info->native_width_px;
    int height_px = settings->height_px ? settings->height_px : info->native_height_px;
    snprintf(size, size_bytes, "%dx%d", width_px, height_px);
    return dk_model_work_bytes(model, settings, &info->work_bytes, err);
}

/* What render would say of --max-memory, or nothing. */
static bool check_limit(struct dk_model *model, const struct request *request,
                        struct dk_error *refusal, struct dk_error *err)
{
    struct dk_settings settings = request->settings;
    if (!request->model_options.max_memory_bytes || dk_resolve(model, &settings, NULL, refusal) ||
        refusal->code == DK_ERROR_MEMORY)
        return true;
    return say_fail(err, refusal->code, "%s", refusal->message);
}

static int info_model(struct request *request)
{
    struct dk_error err = {0};
    char *path = NULL, fingerprint[FINGERPRINT_BYTES];
    struct dk_model *model = model_open(request, &path, &err);
    bool ok = model && identity_fingerprint(path, request, fingerprint, &err);
    struct dk_model_info info = {0};
    char size[32] = "";
    ok = ok && get_info(model, &request->settings, &info, size, sizeof size, &err);
    bool open = ok && !info.prediction_known;
    if (ok && !request->json) print_model_info(&info, size, fingerprint, open);
    if (open) { /* takes a second, for which the other lines need not wait */
        fflush(stdout);
        ok = dk_model_find_prediction(model, &err) &&
             get_info(model, &request->settings, &info, size, sizeof size, &err);
        if (ok && !request->json) print_prediction(&info);
    }
    struct dk_error refusal = {0};
    ok = ok && check_limit(model, request, &refusal, &err);
    if (ok && !request->json && request->model_options.max_memory_bytes)
        printf("%-18s%s\n", "limit", refusal.message[0] ? refusal.message : "can be kept");
    if (ok && request->json) print_model_json(&info, size, fingerprint, refusal.message);
    dk_model_close(model);
    dk_free(path);
    return ok ? EXIT_DONE : say_failure(&err);
}

/* ---- which of both ------------------------------------------------------------------------- */

/* Anything that is no regular file is left to the model reader (folders) or refused (pipes would
 * block). */
static bool looks_like_png(const char *path)
{
    char start[8] = "";
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool yes = file >= 0 && read(file, start, sizeof start) == sizeof start &&
               memcmp(start, "\x89PNG\r\n\x1A\n", 8) == 0;
    if (file >= 0) close(file);
    return yes;
}

int info_run(struct request *request, struct arguments *arguments, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    if (request->model && arguments->n_words == 0) return info_model(request);
    if (arguments->n_words != 1 || request->model) {
        say_error("info: found %zu names, expected one picture or model: darkroom info FILE|MODEL",
                  arguments->n_words);
        return EXIT_USAGE;
    }
    const char *name = arguments->words[0];
    struct stat status;
    if (stat(name, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
        say_error("%s: is a device or pipe, expected a PNG file or a model", name);
        return EXIT_FAILED;
    }
    if (looks_like_png(name)) return info_picture(request, name);
    request->model = name;
    return info_model(request);
}
