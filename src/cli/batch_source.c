/* batch_source.c - the file of prompts, read record by record as it comes. */
/* SPDX-License-Identifier: MIT */
#include "batch_source.h"

#include "batch_words.h"
#include "interrupt.h"
#include "say.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_RECORD_BYTES ((size_t)64 << 20)
#define READ_BYTES       ((size_t)64 << 10)

/* ---- bytes and lines ----------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *ending)
{
    size_t n = strlen(text), e = strlen(ending);
    return n > e && strcasecmp(text + n - e, ending) == 0;
}

static void choose_format(struct batch_source *source, const char *path, const char *format)
{
    bool automatic = !format || strcmp(format, "auto") == 0;
    const char *name = automatic ? path : format;
    bool csv = automatic ? ends_with(name, ".csv") : strcmp(name, "csv") == 0;
    bool tsv = automatic ? ends_with(name, ".tsv") : strcmp(name, "tsv") == 0;
    bool json = automatic ? ends_with(name, ".jsonl") || ends_with(name, ".ndjson")
                          : strcmp(name, "jsonl") == 0;
    source->format = csv || tsv  ? SOURCE_TABLE
                     : json      ? SOURCE_JSON
                     : automatic ? SOURCE_AUTO
                                 : SOURCE_TEXT;
    source->delimiter = tsv ? '\t' : csv && !automatic ? ',' : '\0';
}

bool batch_source_open(struct batch_source *source, const char *path, const char *format,
                       struct dk_error *err)
{
    struct stat status;
    bool is_stdin = strcmp(path, "-") == 0;
    *source = (struct batch_source){.name = is_stdin ? "standard input" : path, .file = -1};
    choose_format(source, path, format);
    source->file = is_stdin ? dup(0) : open(path, O_RDONLY | O_CLOEXEC);
    if (source->file < 0)
        return say_fail(err, DK_ERROR_FILE, "%s: cannot read: %s", source->name, strerror(errno));
    if (fstat(source->file, &status) == 0 && S_ISDIR(status.st_mode))
        return say_fail(err, DK_ERROR_FILE, "%s: is a folder, expected a file of prompts",
                        source->name);
    return true;
}

void batch_source_close(struct batch_source *source)
{
    if (source->file >= 0) close(source->file);
    for (size_t i = 0; i < source->n_columns; i++) free(source->columns[i]);
    free(source->columns);
    free(source->buffer);
    *source = (struct batch_source){.file = -1};
}

/* Waits so that a signal is seen even when a pipe stays silent. */
static bool wait_for_bytes(struct batch_source *source, struct dk_error *err)
{
    struct pollfd poll_file = {source->file, POLLIN, 0};
    while (poll(&poll_file, 1, 200) <= 0)
        if (interrupt_seen()) return say_fail(err, DK_ERROR_CANCELLED, "interrupted");
    return true;
}

static bool fill(struct batch_source *source, struct dk_error *err)
{
    if (source->at > 0) {
        memmove(source->buffer, source->buffer + source->at, source->n - source->at);
        source->n -= source->at;
        source->at = 0;
    }
    if (source->n + READ_BYTES > source->capacity) {
        source->capacity = 2 * source->capacity + READ_BYTES;
        char *larger = text_alloc(source->capacity);
        if (source->n > 0) memcpy(larger, source->buffer, source->n);
        free(source->buffer);
        source->buffer = larger;
    }
    if (!wait_for_bytes(source, err)) return false;
    ssize_t n = read(source->file, source->buffer + source->n, READ_BYTES);
    if (n < 0 && errno == EINTR) return true;
    if (n < 0)
        return say_fail(err, DK_ERROR_FILE, "%s: cannot read: %s", source->name, strerror(errno));
    if (n == 0) source->ended = true;
    source->n += (size_t)n;
    return true;
}

/*
 * A line without its end, as a new string; NULL at the end of the file or on failure (err then says
 * so). *has_nul: it holds a NUL byte, so that the string is not the whole line.
 */
static char *read_line(struct batch_source *source, bool *has_nul, struct dk_error *err)
{
    size_t searched = 0;
    char *end = NULL;
    while (!end) {
        size_t left = source->n - source->at;
        if (left > searched)
            end = memchr(source->buffer + source->at + searched, '\n', left - searched);
        searched = left;
        if (end || source->ended) break;
        if (left > MAX_RECORD_BYTES) {
            say_fail(err, DK_ERROR_FORMAT,
                     "%s:%zu: the line has more than %zu bytes, expected prompts", source->name,
                     source->n_lines + 1, MAX_RECORD_BYTES);
            return NULL;
        }
        if (!fill(source, err)) return NULL;
    }
    size_t n = end ? (size_t)(end - source->buffer) - source->at : source->n - source->at;
    if (!end && n == 0) return NULL;
    const char *start = source->buffer + source->at;
    source->at += n + (end != NULL);
    if (source->n_lines++ == 0 && n >= 3 && memcmp(start, "\xEF\xBB\xBF", 3) == 0)
        start += 3, n -= 3;
    if (n > 0 && start[n - 1] == '\r') n--;
    *has_nul = memchr(start, '\0', n) != NULL;
    return text_copy_n(start, n);
}

static bool is_blank_line(const char *line)
{
    return line[strspn(line, " \t\r\v\f")] == '\0';
}

static const char *skip_blanks(const char *text)
{
    return text + strspn(text, " \t\r\v\f");
}

/* ---- tables -------------------------------------------------------------------------------- */

struct fields {
    char **items;
    size_t n_items;
};

static void fields_free(struct fields *fields)
{
    for (size_t i = 0; i < fields->n_items; i++) free(fields->items[i]);
    free(fields->items);
    *fields = (struct fields){NULL, 0};
}

/* Reads the field at *at into field and moves to the delimiter or the end; true if its quote was
 * closed. */
static bool read_field(const char **at, char delimiter, char *field, size_t *n)
{
    const char *p = *at;
    bool open = *p == '"';
    *n = 0;
    if (open) p++;
    for (; *p && (open || *p != delimiter); p++) {
        if (open && *p == '"' && p[1] != '"') {
            open = false;
            continue;
        }
        if (open && *p == '"') p++;
        field[(*n)++] = *p;
    }
    *at = p;
    return !open;
}

/* Splits a record; false when a quote is still open at its end, so that the next line belongs to
 * it. */
static bool split(const char *record, char delimiter, struct fields *fields)
{
    size_t n_items = 1, n;
    for (const char *p = record; *p; p++) n_items += *p == delimiter;
    char *field = text_alloc(strlen(record) + 1);
    fields->items = text_alloc(n_items * sizeof *fields->items);
    fields->n_items = 0;
    bool closed;
    for (const char *p = record;; p++) {
        closed = read_field(&p, delimiter, field, &n);
        fields->items[fields->n_items++] = text_copy_n(field, n);
        if (!*p) break;
    }
    free(field);
    return closed;
}

static bool is_header(const char *line, char delimiter)
{
    struct fields fields;
    bool ok = split(line, delimiter, &fields) && fields.n_items > 1, has_prompt = false;
    for (size_t i = 0; i < fields.n_items; i++) {
        ok = ok && batch_knows(fields.items[i]);
        has_prompt = has_prompt || strcmp(fields.items[i], "prompt") == 0;
    }
    fields_free(&fields);
    return ok && has_prompt;
}

static bool is_object(const char *line)
{
    const char *p = skip_blanks(line);
    if (*p != '{') return false;
    p = skip_blanks(p + 1);
    return *p == '"' || *p == '}'; /* {red|blue} is a prompt */
}

static void recognise(struct batch_source *source, const char *line)
{
    static const char delimiters[] = "\t,;";
    for (const char *d = delimiters; *d && source->format != SOURCE_JSON && !source->delimiter; d++)
        if (is_header(line, *d)) source->delimiter = *d;
    if (source->format == SOURCE_AUTO)
        source->format = source->delimiter ? SOURCE_TABLE
                         : is_object(line) ? SOURCE_JSON
                                           : SOURCE_TEXT;
    if (!source->delimiter) source->delimiter = ',';
}

static enum source_result read_header(struct batch_source *source, const char *line,
                                      struct dk_error *err)
{
    struct fields fields;
    bool ok = split(line, source->delimiter, &fields), has_prompt = false;
    source->columns = fields.items;
    source->n_columns = fields.n_items;
    if (!ok)
        say_fail(err, DK_ERROR_FORMAT, "%s:%zu: a quote in the header never closes", source->name,
                 source->n_lines);
    for (size_t i = 0; ok && i < fields.n_items; i++) {
        has_prompt = has_prompt || strcmp(fields.items[i], "prompt") == 0;
        if (batch_knows(fields.items[i])) continue;
        const char *near = option_nearest(fields.items[i], COMMAND_JOB);
        ok = say_fail(err, DK_ERROR_ARGUMENT,
                      "%s:%zu: column %zu, \"%.100s\": unknown setting%s%s%s", source->name,
                      source->n_lines, i + 1, fields.items[i], near ? "; did you mean " : "",
                      near ? near : "", near ? "?" : "");
    }
    if (ok && !has_prompt)
        ok = say_fail(err, DK_ERROR_ARGUMENT, "%s:%zu: the header has no column \"prompt\"",
                      source->name, source->n_lines);
    return ok ? SOURCE_JOB : SOURCE_BROKEN;
}

/* An empty field leaves the default; a column may be missing at the end of a record. */
static bool apply_fields(const struct batch_source *source, const struct fields *fields,
                         struct request *request, struct dk_error *err)
{
    if (fields->n_items > source->n_columns)
        return say_fail(err, DK_ERROR_ARGUMENT,
                        "found %zu fields, the header names %zu; put quotes around a field that "
                        "holds the separator",
                        fields->n_items, source->n_columns);
    for (size_t i = 0; i < fields->n_items; i++)
        if (fields->items[i][0] && !batch_set(request, source->columns[i], fields->items[i], err))
            return false;
    return true;
}

/* Joins lines until the quotes close. Takes line over. */
static char *whole_record(struct batch_source *source, char *line, struct fields *fields,
                          bool *has_nul, struct dk_error *err)
{
    while (!split(line, source->delimiter, fields)) {
        fields_free(fields);
        bool nul = false;
        char *more = read_line(source, &nul, err);
        if (!more) {
            say_fail(err, DK_ERROR_FORMAT, "a quote opens here and never closes");
            break;
        }
        char *longer = text_format("%s\n%s", line, more);
        *has_nul = *has_nul || nul;
        free(more);
        free(line);
        line = longer;
        if (strlen(line) > MAX_RECORD_BYTES) {
            say_fail(err, DK_ERROR_FORMAT, "a quote opens here and does not close within %zu bytes",
                     MAX_RECORD_BYTES);
            break;
        }
    }
    return line;
}

static bool apply_record(struct batch_source *source, char **line, struct request *request,
                         bool *has_nul, struct dk_error *err)
{
    struct fields fields = {NULL, 0};
    *line = whole_record(source, *line, &fields, has_nul, err);
    bool ok = fields.items && apply_fields(source, &fields, request, err);
    fields_free(&fields);
    return ok;
}

/* ---- jobs ---------------------------------------------------------------------------------- */

static bool apply_object(const char *line, struct request *request, struct dk_error *err)
{
    json_error_t why;
    json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, &why);
    bool ok = object && json_is_object(object);
    if (!object)
        say_fail(err, DK_ERROR_FORMAT, "column %d: not JSON: %.200s", why.column, why.text);
    else if (!ok)
        say_fail(err, DK_ERROR_FORMAT,
                 "found a JSON value that is no object; expected {\"prompt\": ...}");
    ok = ok && batch_set_json(request, object, err);
    json_decref(object);
    return ok;
}

static bool is_comment(const struct batch_source *source, const char *line)
{
    const char *p = skip_blanks(line);
    return source->format == SOURCE_TEXT && (*p == '#' || (p[0] == '/' && p[1] == '/'));
}

static bool apply(struct batch_source *source, char **line, struct request *request, bool has_nul,
                  struct dk_error *err)
{
    request->settings.prompt = NULL;
    bool ok = source->format == SOURCE_TABLE  ? apply_record(source, line, request, &has_nul, err)
              : source->format == SOURCE_JSON ? apply_object(*line, request, err)
                                              : batch_words_apply(*line, request, err);
    if (has_nul) {
        *err = (struct dk_error){0};
        return say_fail(err, DK_ERROR_FORMAT, "holds a NUL byte, expected text");
    }
    return ok &&
           (request->settings.prompt || say_fail(err, DK_ERROR_ARGUMENT, "there is no prompt"));
}

/* UTF-16 as some editors save it: its first two bytes would otherwise become part of a prompt. */
static bool is_utf16(const char *line)
{
    return memcmp(line, "\xFF\xFE", strlen(line) < 2 ? strlen(line) + 1 : 2) == 0 ||
           memcmp(line, "\xFE\xFF", strlen(line) < 2 ? strlen(line) + 1 : 2) == 0;
}

enum source_result batch_source_next(struct batch_source *source, struct request *request,
                                     size_t *line_number, struct dk_error *err)
{
    bool has_nul;
    for (char *line; (line = read_line(source, &has_nul, err)); free(line)) {
        *line_number = source->n_lines;
        if (source->n_lines == 1 && is_utf16(line)) {
            say_fail(err, DK_ERROR_FORMAT, "%s: is UTF-16, expected UTF-8; save it as UTF-8",
                     source->name);
            free(line);
            return SOURCE_BROKEN;
        }
        if (is_blank_line(line) && !has_nul) continue;
        if (source->format == SOURCE_AUTO || (source->format == SOURCE_TABLE && !source->delimiter))
            recognise(source, line);
        if (is_comment(source, line)) continue;
        if (source->format == SOURCE_TABLE && !source->columns) {
            enum source_result header = read_header(source, line, err);
            if (header == SOURCE_JOB) continue;
            free(line);
            return header;
        }
        struct dk_error why = {0};
        bool ok = apply(source, &line, request, has_nul, &why);
        free(line);
        if (ok) return SOURCE_JOB;
        say_fail(err, why.code, "%s:%zu: %.900s", source->name, *line_number, why.message);
        return SOURCE_BAD;
    }
    return err->code == DK_OK ? SOURCE_END : SOURCE_BROKEN;
}
