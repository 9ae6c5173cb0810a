/* metadata.c - how a picture was made, written into it and read back. */
/* SPDX-License-Identifier: MIT */
#include "metadata.h"

#include "say.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

/* ---- the exact record ---------------------------------------------------------------------- */

json_t *metadata_record(const struct request *request, const struct provenance *provenance)
{
    json_t *record = json_object();
    json_object_set_new(record, "darkroom", json_string(DK_VERSION));
    options_to_json(request, USE_RECORDED, record);
    if (request->template) json_object_set_new(record, "template", json_string(request->template));
    json_object_set_new(record, "model-name", json_string(provenance->model_name));
    json_object_set_new(record, "model-fingerprint",
                        provenance->fingerprint[0] ? json_string(provenance->fingerprint)
                                                   : json_null());
    json_object_set_new(record, "cpu", json_string(dk_cpu_level()));
    return record;
}

/* jansson prints every real with the same number of digits: take the fewest that read back as the
 * same object. */
char *metadata_line(const json_t *object)
{
    for (size_t digits = 6;; digits++) {
        char *line =
            json_dumps(object, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits));
        json_t *again = line ? json_loads(line, JSON_DECODE_ANY, NULL) : NULL;
        bool same = again && json_equal(again, object);
        json_decref(again);
        if (same || digits == 17) return line ? line : text_copy("{}");
        free(line);
    }
}

/* ---- A1111's text, written ----------------------------------------------------------------- */

/* Our name of a noise schedule and A1111's; NULL: the model's own, which A1111 calls by several
 * names. */
static const struct {
    const char *ours, *theirs;
} schedule_types[] = {
    {"karras", "Karras"},
    {"exponential", "Exponential"},
    {"beta", "Beta"},
    {"simple", "Simple"},
    {"sgm-uniform", "SGM Uniform"},
    {"kl-optimal", "KL Optimal"},
    {"ays", "Align Your Steps"},
    {"gits", "Align Your Steps GITS"},
    {NULL, "Automatic"},
    {NULL, "Uniform"},
    {NULL, "Normal"},
    {NULL, "DDIM"},
};
#define N_SCHEDULE_TYPES (sizeof schedule_types / sizeof schedule_types[0])

static const char *schedule_type(const char *sigmas)
{
    for (size_t i = 0; i < N_SCHEDULE_TYPES; i++)
        if (schedule_types[i].ours && strcmp(schedule_types[i].ours, sigmas) == 0)
            return schedule_types[i].theirs;
    return sigmas;
}

/* A1111's name of a scheduler, or its own name without folders. */
static const char *sampler_title(const char *scheduler)
{
    struct dk_scheduler_info info;
    for (size_t i = 0; dk_scheduler_get(i, &info); i++)
        if (strcmp(info.name, scheduler) == 0 && info.title) return info.title;
    const char *slash = strrchr(scheduler, '/');
    return slash ? slash + 1 : scheduler;
}

/* Quoted as JSON where the plain form could not be read back. */
static void put_item(FILE *out, bool first, const char *key, const char *value)
{
    size_t n = strlen(value);
    if (n == 0) return;
    bool plain = !strpbrk(value, ",:\n\r\"") && value[0] != ' ' && value[n - 1] != ' ';
    char *quoted = NULL;
    if (!plain) {
        json_t *string = json_string(value);
        quoted = json_dumps(string, JSON_ENCODE_ANY);
        json_decref(string);
    }
    fprintf(out, "%s%s: %s", first ? "" : ", ", key, quoted ? quoted : value);
    free(quoted);
}

static void put_number(FILE *out, const char *key, double value)
{
    char digits[32];
    put_item(out, false, key, text_from_number(value, digits));
}

char *metadata_parameters(const struct request *request, const struct provenance *provenance)
{
    const struct dk_settings *s = &request->settings;
    char *text = NULL, number[32];
    size_t n_bytes;
    FILE *out = open_memstream(&text, &n_bytes);
    if (!out) return text_copy("");
    fputs(s->prompt ? s->prompt : "", out);
    if (s->negative && *s->negative) fprintf(out, "\nNegative prompt: %s", s->negative);
    fputc('\n', out);
    snprintf(number, sizeof number, "%d", s->n_steps);
    put_item(out, true, "Steps", number);
    put_item(out, false, "Sampler", sampler_title(s->scheduler ? s->scheduler : ""));
    if (s->sigmas) put_item(out, false, "Schedule type", schedule_type(s->sigmas));
    put_number(out, "CFG scale", s->guidance);
    snprintf(number, sizeof number, "%llu", (unsigned long long)s->seed);
    put_item(out, false, "Seed", number);
    snprintf(number, sizeof number, "%dx%d", s->width_px, s->height_px);
    put_item(out, false, "Size", number);
    put_item(out, false, "Model", provenance->model_name);
    /* A1111 counts the layer that is used from the end, from 1; we count the layers left out. */
    if (s->clip_skip > 0) put_number(out, "Clip skip", s->clip_skip + 1);
    /* Must be a function of the resolved settings alone; 0 and 1 are the defaults of DDIM and the
     * ancestral ones. */
    if (s->eta > 0 && s->eta != 1) put_number(out, "Eta", s->eta);
    if (s->tome > 0) put_number(out, "Token merging ratio", s->tome);
    put_item(out, false, "RNG", s->rng && strcmp(s->rng, "nv") == 0 ? "NV" : "CPU");
    put_item(out, false, "Version", "darkroom " DK_VERSION);
    return fclose(out) == 0 ? text : text_copy("");
}

/* ---- A1111's text, read -------------------------------------------------------------------- */

struct span {
    const char *start;
    size_t n;
};

static struct span strip(struct span s)
{
    while (s.n > 0 && strchr(" \t\r\n\v\f", s.start[0])) s.start++, s.n--;
    while (s.n > 0 && strchr(" \t\r\n\v\f", s.start[s.n - 1])) s.n--;
    return s;
}

static char *span_text(struct span s)
{
    return text_copy_n(s.start, s.n);
}

/* Letters, digits and underscore; every byte of a non-ASCII character counts as a letter. */
static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           (c & 0x80);
}

static bool is_key(char c)
{
    return is_word(c) || c == ' ' || c == '-' || c == '/';
}

/* The end of a JSON string that starts at s[0] == '"' and holds at least one character; NULL when
 * it has none. */
static const char *string_end(const char *s, const char *end)
{
    const char *p = s + 1;
    while (p < end && *p != '"') p += *p == '\\' ? 2 : 1;
    return p < end && p > s + 1 ? p + 1 : NULL;
}

/*
 * The next "key: value" of a settings line, as A1111's pattern finds it: a key of two or more
 * characters from its alphabet, a colon, a JSON string or anything up to a comma. *at moves behind
 * it. False when there is no more. A run of key characters without a colon behind it cannot hold a
 * key anywhere, so it is skipped whole: linear time.
 */
static bool next_item(const char **at, const char *end, struct span *key, struct span *value)
{
    for (const char *p = *at; p < end;) {
        if (!is_word(*p)) {
            p++;
            continue;
        }
        const char *stop = p;
        while (stop < end && is_key(*stop)) stop++;
        if (stop == end || *stop != ':' || stop - p < 2) {
            p = stop;
            continue;
        }
        *key = (struct span){p, (size_t)(stop - p)};
        for (p = stop + 1; p < end && (*p == ' ' || *p == '\t'); p++) {}
        const char *close = p < end && *p == '"' ? string_end(p, end) : NULL;
        if (!close || (close < end && *close != ',')) {
            close = p;
            while (close < end && *close != ',') close++;
        }
        *value = (struct span){p, (size_t)(close - p)};
        *at = close < end ? close + 1 : end;
        return true;
    }
    return false;
}

static size_t count_items(struct span line)
{
    const char *at = line.start;
    struct span key, value;
    size_t n = 0;
    while (n < 3 && next_item(&at, line.start + line.n, &key, &value)) n++;
    return n;
}

/* The value without its quotes and escapes, if it has any. */
static char *unquote(struct span value)
{
    if (value.n >= 2 && value.start[0] == '"' && value.start[value.n - 1] == '"') {
        json_t *string = json_loadb(value.start, value.n, JSON_DECODE_ANY, NULL);
        char *text = json_is_string(string) ? text_copy(json_string_value(string)) : NULL;
        json_decref(string);
        if (text) return text;
    }
    return span_text(strip(value));
}

/* The text as the option's own JSON type, or as a string where it does not fit; what is wrong is
 * told on use. */
static json_t *typed(const struct option *option, const char *text)
{
    struct request scratch;
    struct dk_error ignored = {0};
    request_init(&scratch);
    json_t *value = option_set(&scratch, option, text, &ignored) ? option_get(&scratch, option)
                                                                 : json_string(text);
    request_free(&scratch);
    return value;
}

static void put_setting(json_t *settings, const char *name, const char *text)
{
    const struct option *option = option_find(name, strlen(name));
    if (option) json_object_set_new(settings, option->name, typed(option, text));
}

static void put_clip_skip(json_t *settings, const char *text)
{
    int64_t n;
    char number[24];
    if (!text_to_integer(text, &n) || n < 1 || n > 1000) return;
    snprintf(number, sizeof number, "%d", (int)n - 1);
    put_setting(settings, "clip-skip", number);
}

static bool ends_with(const char *text, const char *ending)
{
    size_t n = strlen(text), e = strlen(ending);
    return n > e && strcmp(text + n - e, ending) == 0;
}

char *metadata_sampler(const char *title, const char **sigmas)
{
    char *name = text_copy(title);
    *sigmas = NULL;
    for (size_t i = 0; i < N_SCHEDULE_TYPES; i++) {
        char *ending = text_format(" %s", schedule_types[i].theirs);
        if (schedule_types[i].ours && ends_with(name, ending)) {
            name[strlen(name) - strlen(ending)] = '\0';
            *sigmas = schedule_types[i].ours;
        }
        free(ending);
    }
    return name;
}

static void put_sampler(json_t *settings, const char *text)
{
    const char *sigmas;
    char *name = metadata_sampler(text, &sigmas);
    if (sigmas) put_setting(settings, "sigmas", sigmas);
    put_setting(settings, "scheduler", name);
    free(name);
}

static void put_schedule_type(json_t *settings, const char *text)
{
    for (size_t i = 0; i < N_SCHEDULE_TYPES; i++)
        if (strcmp(schedule_types[i].theirs, text) == 0) {
            if (schedule_types[i].ours) put_setting(settings, "sigmas", schedule_types[i].ours);
            return;
        }
    put_setting(settings, "sigmas", text);
}

/* A1111 takes more than can merge and merges what can; the option does not. */
static void put_merging(json_t *settings, const char *text)
{
    double ratio;
    put_setting(settings, "tome", text_to_number(text, &ratio) && ratio > 0.75 ? "0.75" : text);
}

static void put_rng(json_t *settings, const char *text)
{
    put_setting(settings, "rng", strcmp(text, "CPU") == 0 ? "cpu" : "nv");
}

static void put_parameter(json_t *settings, json_t *other, const char *key, const char *value)
{
    static const struct {
        const char *theirs, *ours;
        void (*put)(json_t *settings, const char *text);
    } known[] = {
        {"Steps", "steps", NULL},
        {"Sampler", NULL, put_sampler},
        {"CFG scale", "guidance", NULL},
        {"Schedule type", NULL, put_schedule_type},
        {"Seed", "seed", NULL},
        {"Clip skip", NULL, put_clip_skip},
        {"Size", "size", NULL},
        {"RNG", NULL, put_rng},
        {"Model", "model", NULL},
        {"Eta", "eta", NULL},
        {"Token merging ratio", NULL, put_merging},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(known[i].theirs, key) != 0) continue;
        if (known[i].put)
            known[i].put(settings, value);
        else
            put_setting(settings, known[i].ours, value);
        return;
    }
    json_object_set_new(other, key, json_string(value));
}

static void put_settings_line(struct span line, json_t *settings, json_t *other)
{
    const char *at = line.start;
    struct span key, value;
    put_setting(settings, "rng", "nv"); /* A1111 says nothing when the noise came from the GPU */
    while (next_item(&at, line.start + line.n, &key, &value)) {
        char *key_text = span_text(strip(key)), *value_text = unquote(value);
        put_parameter(settings, other, key_text, value_text);
        free(key_text);
        free(value_text);
    }
}

/* Every line is stripped; the first that begins with "Negative prompt:" and all after it are
 * negative. */
static void put_prompts(struct span lines, json_t *settings)
{
    static const char mark[] = "Negative prompt:";
    char *texts[2] = {text_alloc(lines.n + 2), text_alloc(lines.n + 2)};
    size_t used[2] = {0, 0};
    bool started[2] = {false, false};
    int part = 0;
    for (const char *p = lines.start, *end = lines.start + lines.n; p < end;) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        if (!stop) stop = end;
        struct span line = strip((struct span){p, (size_t)(stop - p)});
        if (part == 0 && line.n >= sizeof mark - 1 &&
            memcmp(line.start, mark, sizeof mark - 1) == 0) {
            part = 1;
            line = strip((struct span){line.start + sizeof mark - 1, line.n - (sizeof mark - 1)});
        }
        if (started[part]) texts[part][used[part]++] = '\n';
        memcpy(texts[part] + used[part], line.start, line.n);
        used[part] += line.n;
        started[part] = true;
        p = stop < end ? stop + 1 : end;
    }
    put_setting(settings, "prompt", texts[0]);
    if (part == 1) put_setting(settings, "negative", texts[1]);
    free(texts[0]);
    free(texts[1]);
}

void metadata_parse_parameters(const char *text, json_t *settings, json_t *other)
{
    struct span all = strip((struct span){text, strlen(text)});
    const char *last = all.start + all.n;
    while (last > all.start && last[-1] != '\n') last--;
    struct span line = strip((struct span){last, (size_t)(all.start + all.n - last)});
    bool has_settings = count_items(line) >= 3;
    put_prompts(has_settings ? (struct span){all.start, (size_t)(last - all.start)} : all,
                settings);
    if (has_settings) put_settings_line(line, settings, other);
}

/* ---- records ------------------------------------------------------------------------------- */

static const char *find_text(const struct dk_texts *texts, const char *keyword)
{
    for (size_t i = 0; i < texts->n_items; i++)
        if (strcmp(texts->items[i].keyword, keyword) == 0) return texts->items[i].text;
    return NULL;
}

/* What every record has said since the first version. A null counts: as the model has it. */
static void find_lacking(struct record *record)
{
    static const char *const needed[] = {"prompt",    "seed",     "size", "steps",
                                         "scheduler", "guidance", "model"};
    size_t n = 0;
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        if (!json_object_get(record->settings, needed[i]))
            n += (size_t)snprintf(record->lacking + n, sizeof record->lacking - n, "%s%s",
                                  n ? ", " : "", needed[i]);
}

bool record_read(const char *path, struct record *record, struct dk_error *err)
{
    memset(record, 0, sizeof *record);
    struct dk_image image = {0};
    if (!dk_png_read(path, &image, &record->texts, err)) return false;
    record->width_px = image.width_px;
    record->height_px = image.height_px;
    dk_image_free(&image);
    const char *exact = find_text(&record->texts, "darkroom"),
               *parameters = find_text(&record->texts, "parameters");
    if (exact) {
        json_error_t why;
        record->settings = json_loads(exact, JSON_REJECT_DUPLICATES, &why);
        if (json_is_object(record->settings)) {
            record->is_exact = true;
            find_lacking(record);
            return true;
        }
        bool broken = !record->settings;
        record_free(record);
        return say_fail(err, DK_ERROR_FORMAT, "%s: its darkroom chunk is not a JSON object%s%.200s",
                        path, broken ? ": " : "", broken ? why.text : "");
    }
    if (parameters && parameters[strspn(parameters, " \t\r\n")] != '{') {
        record->settings = json_object();
        record->other = json_object();
        metadata_parse_parameters(parameters, record->settings, record->other);
    }
    return true;
}

void record_free(struct record *record)
{
    json_decref(record->settings);
    json_decref(record->other);
    dk_texts_free(&record->texts);
    memset(record, 0, sizeof *record);
}

bool record_apply(const struct record *record, const char *path, struct request *request,
                  const char **plugin, struct dk_error *err)
{
    const char *key;
    json_t *value;
    *plugin = NULL;
    if (!record->settings)
        return say_fail(err, DK_ERROR_FORMAT,
                        "%s: holds no settings: neither a darkroom nor a parameters chunk", path);
    json_object_foreach(record->settings, key, value)
    {
        const struct option *option = option_find(key, strlen(key));
        if (!option || option->use != USE_RECORDED) continue;
        const char *text = json_string_value(value);
        if (strcmp(option->name, "scheduler") == 0 && text && strchr(text, '/')) {
            *plugin = request_keep(request, text);
            continue;
        }
        struct dk_error why = {0};
        if (!option_set_json(request, option, value, &why))
            return say_fail(err, DK_ERROR_FORMAT, "%s: its record is not usable: %.500s", path,
                            why.message);
    }
    const char *template = json_string_value(json_object_get(record->settings, "template"));
    if (record->is_exact && template) request->template = request_keep(request, template);
    memset(request->given, 0, sizeof request->given);
    return true;
}
