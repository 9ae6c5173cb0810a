/* batch_words.c - settings of one job: by name, and as words behind a prompt. */
/* SPDX-License-Identifier: MIT */
#include "batch_words.h"

#include "metadata.h"
#include "say.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

/* ---- by name ------------------------------------------------------------------------------- */

enum tag_meaning {
    TAG_IGNORED, /* has no bearing on the picture */
    TAG_NOTHING, /* understood when it asks for nothing: 0, -1 or false */
    TAG_TIMES,   /* multiplies the number of pictures */
    TAG_SAMPLER, /* A1111's title, which may hold a schedule */
    TAG_REFUSED
};

/* A1111's tags (scripts/prompts_from_file.py) that are no options of ours. */
static const struct tag {
    const char *name;
    enum tag_meaning meaning;
    const char *instead;
} tags[] = {
    {"prompt_for_display", TAG_IGNORED, NULL},
    {"outpath_grids", TAG_IGNORED, NULL},
    {"do_not_save_grid", TAG_IGNORED, NULL},
    {"batch_size", TAG_TIMES, NULL},
    {"n_iter", TAG_TIMES, NULL},
    {"sampler_name", TAG_SAMPLER, NULL},
    {"subseed", TAG_NOTHING, "it mixes in a second noise"},
    {"subseed_strength", TAG_NOTHING, "it mixes in a second noise"},
    {"seed_resize_from_h", TAG_NOTHING, "it cuts the noise from another size"},
    {"seed_resize_from_w", TAG_NOTHING, "it cuts the noise from another size"},
    {"restore_faces", TAG_NOTHING, "there is no such model here"},
    {"tiling", TAG_NOTHING, "seamless pictures are not made here"},
    {"do_not_save_samples", TAG_NOTHING, "a batch is there to save pictures"},
    {"styles", TAG_REFUSED, "write the style's words into the prompt"},
    {"sampler_index", TAG_REFUSED, "name the sampler with sampler_name"},
    {"sd_model", TAG_REFUSED, "one batch uses one model: give --model and split the file"},
    {"outpath_samples", TAG_REFUSED, "a batch has one folder; a template in --name may hold a /"},
};

static const struct tag *find_tag(const char *name)
{
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++)
        if (strcmp(tags[i].name, name) == 0) return &tags[i];
    return NULL;
}

static bool asks_for_nothing(const char *value)
{
    double x;
    return strcmp(value, "false") == 0 || strcmp(value, "False") == 0 ||
           (text_to_number(value, &x) && x <= 0);
}

static bool multiply_count(struct request *request, const char *name, const char *value,
                           struct dk_error *err)
{
    int64_t n;
    if (!text_to_integer(value, &n) || n < 1 || n > 1000000 || n * request->count > 1000000)
        return say_fail(err, DK_ERROR_ARGUMENT,
                        "--%s: found \"%.200s\", expected 1 to 1000000 pictures", name, value);
    char number[24];
    snprintf(number, sizeof number, "%d", (int)n * request->count);
    return option_set(request, option_find("count", 5), number, err);
}

static bool set_sampler(struct request *request, const char *value, struct dk_error *err)
{
    const char *sigmas;
    char *name = metadata_sampler(value, &sigmas);
    bool ok = option_set(request, option_find("scheduler", 9), name, err) &&
              (!sigmas || option_set(request, option_find("sigmas", 6), sigmas, err));
    free(name);
    return ok;
}

static bool set_tag(struct request *request, const struct tag *tag, const char *value,
                    struct dk_error *err)
{
    if (!value) return say_fail(err, DK_ERROR_ARGUMENT, "--%s: needs a value", tag->name);
    switch (tag->meaning) {
    case TAG_IGNORED:
        return true;
    case TAG_TIMES:
        return multiply_count(request, tag->name, value, err);
    case TAG_SAMPLER:
        return set_sampler(request, value, err);
    case TAG_NOTHING:
        if (asks_for_nothing(value)) return true;
        break;
    case TAG_REFUSED:
        break;
    }
    return say_fail(err, DK_ERROR_ARGUMENT, "--%s: found \"%.100s\", which is not supported: %s",
                    tag->name, value, tag->instead);
}

static const struct option *job_option(const char *name, struct dk_error *err)
{
    const struct option *option = option_find(name, strlen(name));
    if (option && option->commands & COMMAND_JOB) return option;
    if (option && option->commands & COMMAND_BATCH)
        say_fail(err, DK_ERROR_ARGUMENT,
                 "--%s: is for the command line of the batch, not for one job", option->name);
    else {
        const char *near = option_nearest(name, COMMAND_JOB);
        say_fail(err, DK_ERROR_ARGUMENT, "--%.100s: unknown option%s%s%s", name,
                 near ? "; did you mean --" : "",
                 near ? near : ", expected a setting of darkroom batch", near ? "?" : "");
    }
    return NULL;
}

bool batch_knows(const char *name)
{
    const struct option *option = option_find(name, strlen(name));
    return find_tag(name) || (option && option->commands & COMMAND_JOB);
}

bool batch_set(struct request *request, const char *name, const char *value, struct dk_error *err)
{
    const struct tag *tag = find_tag(name);
    if (tag) return set_tag(request, tag, value, err);
    const struct option *option = job_option(name, err);
    return option && option_set(request, option, value, err);
}

/* ---- JSON ---------------------------------------------------------------------------------- */

/* An array of numbers and strings as "1,2,3", or NULL. Semicolons where a value holds a comma. Free
 * it. */
static char *join_array(const json_t *array)
{
    size_t i;
    json_t *item;
    bool commas = false, ok = json_array_size(array) > 0;
    json_array_foreach(array, i, item)
    {
        ok = ok && (json_is_number(item) || json_is_string(item));
        commas = commas || (json_is_string(item) && strchr(json_string_value(item), ','));
    }
    char *all = ok ? text_copy("") : NULL;
    json_array_foreach(array, i, item)
    {
        if (!ok) break;
        char *text =
            json_is_string(item) ? text_copy(json_string_value(item)) : metadata_line(item);
        char *longer = text_format("%s%s%s", all, i == 0 ? "" : commas ? ";" : ",", text);
        free(text);
        free(all);
        all = longer;
    }
    if (ok && commas &&
        json_array_size(array) == 1) { /* the separator shows itself only between values */
        char *longer = text_format("%s;", all);
        free(all);
        all = longer;
    }
    return all;
}

static bool set_array(struct request *request, const char *name, const json_t *array,
                      struct dk_error *err)
{
    char *text = join_array(array);
    bool ok = text ? batch_set(request, name, text, err)
                   : say_fail(err, DK_ERROR_ARGUMENT,
                              "--%s: expected an array of numbers or strings", name);
    free(text);
    return ok;
}

static bool set_matrix(struct request *request, const json_t *object, struct dk_error *err)
{
    const char *key;
    json_t *value;
    bool ok = option_set_json(request, option_find("matrix", 6), json_null(), err);
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        char *values = json_is_array(value) ? join_array(value) : NULL;
        char *axis = values ? text_format("%s=%s", key, values) : NULL;
        ok = ok && (axis ? batch_set(request, "matrix", axis, err)
                         : say_fail(err, DK_ERROR_ARGUMENT,
                                    "--matrix: \"%.100s\": expected an array of values", key));
        free(values);
        free(axis);
    }
    return ok;
}

static bool set_member(struct request *request, const char *name, const json_t *value,
                       struct dk_error *err)
{
    if (json_is_array(value) && strcmp(name, "seeds") == 0)
        return set_array(request, name, value, err);
    if (json_is_object(value) && strcmp(name, "matrix") == 0)
        return set_matrix(request, value, err);
    if (find_tag(name)) {
        char *text =
            json_is_string(value) ? text_copy(json_string_value(value)) : metadata_line(value);
        bool ok = batch_set(request, name, text, err);
        free(text);
        return ok;
    }
    const struct option *option = job_option(name, err);
    return option && option_set_json(request, option, value, err);
}

bool batch_set_json(struct request *request, const json_t *object, struct dk_error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        if (!set_member(request, name, value, err)) return false;
    }
    return true;
}

/* ---- words --------------------------------------------------------------------------------- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\v' || c == '\f' || c == '\r' || c == '\n';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* "--" and a letter, at the start of a word. */
static bool begins_option(const char *line, const char *at)
{
    return at[0] == '-' && at[1] == '-' && is_letter(at[2]) && (at == line || is_blank(at[-1]));
}

struct words {
    const char *line, *at;
    char *word;     /* the present one, without its quotes; NULL at the end */
    bool is_option; /* it began with -- outside quotes */
    struct dk_error *err;
};

/* The quote that ends the one at s, if that stands before a blank or the end of the line. */
static const char *closing_quote(const char *s)
{
    for (const char *p = s + 1; *p; p++)
        if (*p == '\'' && (!p[1] || is_blank(p[1]))) return p;
    return NULL;
}

/* Reads to the closing double quote; false when there is none. */
static bool read_quoted(const char **at, FILE *out)
{
    const char *p = *at + 1;
    for (; *p && *p != '"'; p++) {
        if (*p == '\\' && (p[1] == '"' || p[1] == '\\')) p++;
        fputc(*p, out);
    }
    *at = *p ? p + 1 : p;
    return *p == '"';
}

/* Goes to the next word. False for a quote that stays open. */
static bool next_word(struct words *w)
{
    free(w->word);
    w->word = NULL;
    while (is_blank(*w->at)) w->at++;
    if (!*w->at) return true;
    size_t n_bytes;
    const char *start = w->at, *close;
    FILE *out = open_memstream(&w->word, &n_bytes);
    if (!out) return say_fail(w->err, DK_ERROR_MEMORY, "a line: out of memory");
    w->is_option = begins_option(w->line, start);
    bool closed = true;
    while (*w->at && !is_blank(*w->at) && closed) {
        if (*w->at == '\\' && w->at[1]) {
            fputc(w->at[1], out);
            w->at += 2;
        } else if (*w->at == '"') {
            closed = read_quoted(&w->at, out);
        } else if (*w->at == '\'' && w->at == start && (close = closing_quote(start))) {
            fwrite(start + 1, 1, (size_t)(close - start - 1), out);
            w->at = close + 1;
        } else {
            fputc(*w->at++, out);
        }
    }
    fclose(out);
    return closed ||
           say_fail(w->err, DK_ERROR_ARGUMENT,
                    "the double quote at column %zu never closes; write \\\" for the character",
                    (size_t)(strchr(start, '"') - w->line) + 1);
}

/* --prompt and --negative take words up to the next option, with one blank between. */
static char *read_sentence(struct words *w)
{
    char *text = text_copy(w->word);
    while (next_word(w) && w->word && !w->is_option) {
        char *longer = text_format("%s %s", text, w->word);
        free(text);
        text = longer;
    }
    return text;
}

static bool is_sentence(const char *name)
{
    const struct option *option = option_find(name, strlen(name));
    return option && (strcmp(option->name, "prompt") == 0 || strcmp(option->name, "negative") == 0);
}

static bool takes_value(const char *name)
{
    const struct option *option = option_find(name, strlen(name));
    return !option || option_takes_value(option);
}

/* The present word is an option: sets it and moves behind its value. */
static bool read_option(struct words *w, struct request *request)
{
    char *name = text_copy(w->word + 2), *value = NULL, *equals = strchr(name, '=');
    bool ok = true;
    if (equals) {
        *equals = '\0';
        value = text_copy(equals + 1);
        ok = next_word(w);
    } else {
        if (!batch_knows(name))
            ok = batch_set(request, name, NULL, w->err); /* says what is wrong */
        ok = ok && next_word(w);
        if (ok && takes_value(name)) {
            if (!w->word || w->is_option)
                ok = say_fail(w->err, DK_ERROR_ARGUMENT, "--%.100s: needs a value, found %s%.100s",
                              name, w->word ? "the option " : "the end of the line",
                              w->word ? w->word : "");
            else if (is_sentence(name))
                value = read_sentence(w);
            else
                value = text_copy(w->word), ok = next_word(w);
        }
    }
    ok = ok && w->err->code == DK_OK && batch_set(request, name, value, w->err);
    free(name);
    free(value);
    return ok;
}

bool batch_words_apply(const char *line, struct request *request, struct dk_error *err)
{
    const char *options = line;
    while (*options && !begins_option(line, options)) options++;
    const char *start = line, *end = options;
    while (start < end && is_blank(*start)) start++;
    while (end > start && is_blank(end[-1])) end--;
    bool ok = true;
    if (end > start) {
        char *prompt = text_copy_n(start, (size_t)(end - start));
        ok = batch_set(request, "prompt", prompt, err);
        free(prompt);
    }
    struct words w = {line, options, NULL, false, err};
    bool has_prompt = end > start;
    ok = ok && next_word(&w);
    while (ok && w.word) {
        if (!w.is_option)
            ok = say_fail(err, DK_ERROR_ARGUMENT,
                          "found \"%.100s\" behind an option's value, expected another option; the "
                          "prompt stands first",
                          w.word);
        else if (has_prompt && strcmp(w.word, "--prompt") == 0)
            ok = say_fail(err, DK_ERROR_ARGUMENT,
                          "found a prompt twice, before the options and as --prompt");
        else
            ok = read_option(&w, request);
    }
    free(w.word);
    return ok;
}
