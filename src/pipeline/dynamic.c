/* dynamic.c - one template, many prompts. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/dynamic.h"

#include "files/map.h"
#include "pipeline/decimal.h"
#include "pipeline/excerpt.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAME_BYTES 200
#define NO_MAXIMUM     ((size_t)1 << 40)

struct option {
    const char *text; /* not terminated */
    size_t n_bytes;
    double weight;
};

struct options {
    struct option *items;
    size_t n_items, capacity;
};

/* A wildcard file that has been read: its options point into the map. */
struct wildcard {
    char *name;
    struct map map;
    struct options lines;
};

/* One choice of an enumeration: value of n. */
struct digit {
    size_t value, n;
};

struct expansion {
    const char *folder; /* of wildcards; may be NULL */
    struct wildcard *wildcards;
    size_t n_wildcards;
    char *text; /* the prompt so far */
    size_t n_bytes, capacity;
    size_t work;
    bool enumerate;
    uint64_t state;       /* of the generator, when not enumerating */
    struct digit *digits; /* of the number whose next value is the next prompt, when enumerating */
    size_t n_digits, digits_capacity, at_digit;
    struct dk_error *err;
};

static bool expand(struct expansion *x, const char *text, size_t n_bytes, int depth);

static bool no_memory(struct expansion *x)
{
    return dk_fail(x->err, DK_ERROR_MEMORY, "template: no memory to expand it");
}

static bool put(struct expansion *x, const char *text, size_t n_bytes)
{
    if (x->n_bytes + n_bytes > DYNAMIC_MAX_PROMPT_BYTES) {
        return dk_fail(x->err, DK_ERROR_ARGUMENT,
                       "template: it makes a prompt of more than %zu bytes",
                       DYNAMIC_MAX_PROMPT_BYTES);
    }
    if (x->n_bytes + n_bytes + 1 > x->capacity) {
        size_t capacity = x->capacity ? x->capacity : 256;
        while (capacity < x->n_bytes + n_bytes + 1) capacity *= 2;
        char *longer = realloc(x->text, capacity);
        if (!longer) return no_memory(x);
        x->text = longer;
        x->capacity = capacity;
    }
    memcpy(x->text + x->n_bytes, text, n_bytes);
    x->n_bytes += n_bytes;
    x->text[x->n_bytes] = '\0';
    return true;
}

/* ---- choosing ---- */

/* splitmix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators"). */
static uint64_t draw(uint64_t *state)
{
    uint64_t x = *state += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static bool next_digit(struct expansion *x, size_t n, size_t *chosen)
{
    if (x->at_digit == x->n_digits) {
        if (x->n_digits == x->digits_capacity) {
            size_t capacity = x->digits_capacity ? 2 * x->digits_capacity : 16;
            struct digit *digits = realloc(x->digits, capacity * sizeof *digits);
            if (!digits) return no_memory(x);
            x->digits = digits;
            x->digits_capacity = capacity;
        }
        x->digits[x->n_digits++] = (struct digit){0, n};
    }
    *chosen = x->digits[x->at_digit++].value;
    return true;
}

/* One of n, n at least 1; options NULL: all alike. */
static bool choose(struct expansion *x, const struct option *options, size_t n, size_t *chosen)
{
    x->work += n + DYNAMIC_CHOICE_WORK;
    if (x->work > DYNAMIC_MAX_WORK) {
        return dk_fail(x->err, DK_ERROR_ARGUMENT,
                       "template: one prompt takes more than %zu choices: "
                       "do its wildcards lead back to themselves?",
                       DYNAMIC_MAX_WORK / DYNAMIC_CHOICE_WORK);
    }
    *chosen = 0;
    if (n == 1) return true;
    if (x->enumerate) return next_digit(x, n, chosen);
    double u = (double)(draw(&x->state) >> 11) * 0x1p-53, total = 0, sum = 0;
    for (size_t i = 0; i < n; i++) total += options ? options[i].weight : 1;
    for (*chosen = 0; *chosen + 1 < n; ++*chosen) {
        sum += options ? options[*chosen].weight : 1;
        if (sum > u * total) break;
    }
    return true;
}

/* The enumeration's next prompt; false when there was the last one. */
static bool next_number(struct expansion *x)
{
    while (x->n_digits) {
        struct digit *last = &x->digits[x->n_digits - 1];
        if (++last->value < last->n) return true;
        x->n_digits--;
    }
    return false;
}

/* ---- reading ---- */

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static void trim(const char **text, size_t *n_bytes)
{
    while (*n_bytes && is_blank(**text)) ++*text, --*n_bytes;
    while (*n_bytes && is_blank((*text)[*n_bytes - 1])) --*n_bytes;
}

/* Where the thing at text[i] ends that is to be skipped as one: an escape, or a character. */
static size_t skip(const char *text, size_t n_bytes, size_t i)
{
    return text[i] == '\\' && i + 1 < n_bytes ? i + 2 : i + 1;
}

/*
 * The place of what (a '|' or "$$") directly in text from i on, not within braces; n_bytes if there
 * is none.
 */
static size_t find_here(const char *text, size_t n_bytes, size_t i, const char *what)
{
    size_t n_what = strlen(what), level = 0;
    for (; i < n_bytes; i = skip(text, n_bytes, i)) {
        if (level == 0 && n_bytes - i >= n_what && memcmp(text + i, what, n_what) == 0) return i;
        if (text[i] == '{') level++;
        if (text[i] == '}' && level) level--;
    }
    return n_bytes;
}

static bool option_add(struct expansion *x, struct options *options, const char *text,
                       size_t n_bytes)
{
    if (options->n_items == options->capacity) {
        size_t capacity = options->capacity ? 2 * options->capacity : 8;
        struct option *items = realloc(options->items, capacity * sizeof *items);
        if (!items) return no_memory(x);
        options->items = items;
        options->capacity = capacity;
    }
    struct option *option = &options->items[options->n_items++];
    *option = (struct option){text, n_bytes, 1};
    const char *limit = text + n_bytes, *s = text;
    double weight;
    while (s < limit && is_blank(*s)) s++;
    const char *end = decimal_read(s, limit, &weight);
    if (end == s) return true;
    while (end < limit && is_blank(*end)) end++;
    if (limit - end < 2 || end[0] != ':' || end[1] != ':') return true;
    if (isnan(weight)) {
        return dk_fail(x->err, DK_ERROR_ARGUMENT,
                       "template: \"%s\" has no number before the \"::\"",
                       excerpt(text, n_bytes).text);
    }
    *option = (struct option){end + 2, (size_t)(limit - end - 2), weight};
    return true;
}

/* "2$$", "1-3$$", "2-$$", "-3$$" at the start of text; returns its length or 0. */
static size_t count_read(const char *text, size_t n_bytes, size_t *low, size_t *high)
{
    size_t value[2] = {0, 0}, n_digits[2] = {0, 0}, i = 0;
    int side = 0;
    for (; i < n_bytes; i++) {
        if (text[i] >= '0' && text[i] <= '9' && n_digits[side] < 9) {
            value[side] = 10 * value[side] + (size_t)(text[i] - '0');
            n_digits[side]++;
        } else if (text[i] == '-' && side == 0) {
            side = 1;
        } else if (!is_blank(text[i])) {
            break;
        }
    }
    if (n_bytes - i < 2 || text[i] != '$' || text[i + 1] != '$' || (!n_digits[0] && !n_digits[1]))
        return 0;
    *low = value[0];
    *high = side == 0 ? value[0] : n_digits[1] ? value[1] : NO_MAXIMUM;
    return i + 2;
}

/* ---- wildcards ---- */

static bool is_name_byte(unsigned char c)
{
    return c > ' ' && c != 0x7F && !strchr("{}|$,;:()[]<>\"'`?\\", c);
}

/* Bytes of "__name__" at text, or 0 if that is not what stands there. */
static size_t wildcard_here(const char *text, size_t n_bytes)
{
    if (n_bytes < 5 || text[0] != '_' || text[1] != '_' || text[2] == '_') return 0;
    for (size_t i = 2; i < n_bytes && is_name_byte((unsigned char)text[i]); i++) {
        if (i + 1 < n_bytes && text[i] == '_' && text[i + 1] == '_') return i + 2;
        if (i > 2 + MAX_NAME_BYTES) break;
    }
    return 0;
}

/*
 * Each part between slashes begins with neither a dot nor another slash, and none is empty: nothing
 * leads upwards.
 */
static bool name_is_safe(const char *name)
{
    for (const char *part = name;; part = strchr(part, '/') + 1) {
        if (!*part || *part == '.' || *part == '/') return false;
        if (!strchr(part, '/')) return !strchr(name, '*');
    }
}

/* Maps folder/name.txt, which must lie in the folder after all symbolic links are followed. */
static bool wildcard_map(struct expansion *x, const char *name, struct map *map)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/%s.txt", x->folder, name);
    if (n < 0 || (size_t)n >= sizeof path) {
        return dk_fail(x->err, DK_ERROR_FILE, "template: the path of __%s__ is too long", name);
    }
    char *folder = realpath(x->folder, NULL), *file = realpath(path, NULL);
    bool ok = true;
    if (!folder || !file) {
        ok = dk_fail(x->err, DK_ERROR_FILE, "%s: no wildcard file for __%s__: %s", path, name,
                     strerror(errno));
    } else {
        size_t n_folder = strlen(folder);
        while (n_folder && folder[n_folder - 1] == '/') n_folder--;
        if (strncmp(folder, file, n_folder) != 0 || file[n_folder] != '/') {
            ok = dk_fail(x->err, DK_ERROR_ARGUMENT,
                         "%s: the file of __%s__ lies outside the folder of wildcards", path, name);
        }
    }
    ok = ok && map_open(map, file, x->err);
    free(folder);
    free(file);
    if (ok && map->size_bytes > DYNAMIC_MAX_WILDCARD_BYTES) {
        map_close(map);
        return dk_fail(x->err, DK_ERROR_FORMAT,
                       "%s: a wildcard file of %zu bytes, at most %zu are read", path,
                       map->size_bytes, DYNAMIC_MAX_WILDCARD_BYTES);
    }
    return ok;
}

static bool wildcard_lines(struct expansion *x, struct wildcard *w)
{
    const char *text = (const char *)w->map.data;
    size_t n = w->map.size_bytes, i = n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    while (i < n) {
        const char *newline = memchr(text + i, '\n', n - i), *line = text + i;
        size_t length = newline ? (size_t)(newline - line) : n - i;
        i += length + 1;
        trim(&line, &length);
        if (length && *line != '#' && !option_add(x, &w->lines, line, length)) return false;
    }
    return w->lines.n_items ||
           dk_fail(x->err, DK_ERROR_FORMAT, "%s/%s.txt: the wildcard file has no line to choose",
                   x->folder, w->name);
}

static const struct options *wildcard_open(struct expansion *x, const char *text, size_t n_bytes)
{
    char name[MAX_NAME_BYTES + 8];
    snprintf(name, sizeof name, "%.*s", (int)n_bytes - 4, text + 2);
    for (size_t i = 0; i < x->n_wildcards; i++) {
        if (strcmp(x->wildcards[i].name, name) == 0) return &x->wildcards[i].lines;
    }
    if (!x->folder) {
        dk_fail(x->err, DK_ERROR_ARGUMENT,
                "template: __%s__ needs a folder of wildcard files; name one with --wildcards, or "
                "write \\__%s__ for the words",
                name, name);
        return NULL;
    }
    if (!name_is_safe(name)) {
        dk_fail(x->err, DK_ERROR_ARGUMENT,
                "template: __%s__ is not a file name within the folder of wildcards", name);
        return NULL;
    }
    struct wildcard *more = realloc(x->wildcards, (x->n_wildcards + 1) * sizeof *more);
    if (more) x->wildcards = more;
    struct wildcard w = {.name = malloc(sizeof name)};
    if (!more || !w.name) {
        free(w.name);
        no_memory(x);
        return NULL;
    }
    memcpy(w.name, name, sizeof name);
    bool ok = wildcard_map(x, name, &w.map);
    if (!ok) {
        free(w.name);
        return NULL;
    }
    ok = wildcard_lines(x, &w);
    more[x->n_wildcards++] = w; /* also when it is no good: freed with the others */
    return ok ? &more[x->n_wildcards - 1].lines : NULL;
}

/* ---- expanding ---- */

struct pick {
    size_t low, high;      /* how many */
    const char *separator; /* NULL: one option as it stands */
    size_t separator_bytes;
};

/*
 * Expands one option behind what is there; joined ones trimmed, with the separator where both sides
 * hold something.
 */
static bool option_expand(struct expansion *x, const struct option *option, const struct pick *pick,
                          size_t begin, int depth)
{
    size_t before = x->n_bytes;
    if (!pick->separator) return expand(x, option->text, option->n_bytes, depth);
    if (before > begin && !put(x, pick->separator, pick->separator_bytes)) return false;
    size_t at = x->n_bytes;
    if (!expand(x, option->text, option->n_bytes, depth)) return false;
    const char *text = x->text + at;
    size_t n = x->n_bytes - at;
    if (n) trim(&text, &n);
    if (!n) {
        x->n_bytes = before;
        return true;
    }
    memmove(x->text + at, text, n);
    x->n_bytes = at + n;
    return true;
}

static bool pick_expand(struct expansion *x, const struct options *options, struct pick pick,
                        int depth)
{
    struct option *left = malloc(options->n_items * sizeof *left);
    if (!left) return no_memory(x);
    size_t n = 0, more = 0, begin = x->n_bytes;
    for (size_t i = 0; i < options->n_items; i++) {
        if (options->items[i].weight > 0) left[n++] = options->items[i];
    }
    if (pick.high > n) pick.high = n;
    bool ok = true;
    if (pick.low > n || !n) {
        ok = dk_fail(x->err, DK_ERROR_ARGUMENT,
                     "template: a choice asks for %zu options, %zu have a weight above 0", pick.low,
                     n);
    } else if (pick.low > pick.high) {
        ok = dk_fail(x->err, DK_ERROR_ARGUMENT, "template: a choice asks for %zu to %zu options",
                     pick.low, pick.high);
    }
    ok = ok && choose(x, NULL, pick.high - pick.low + 1, &more);
    for (size_t i = 0; ok && i < pick.low + more; i++) {
        size_t chosen = 0;
        ok = choose(x, left, n, &chosen) && option_expand(x, &left[chosen], &pick, begin, depth);
        memmove(left + chosen, left + chosen + 1, (--n - chosen) * sizeof *left);
    }
    free(left);
    return ok;
}

/* text is what stands between the braces. */
static bool choice_expand(struct expansion *x, const char *text, size_t n_bytes, int depth)
{
    struct pick pick = {1, 1, NULL, 0};
    size_t n_count = count_read(text, n_bytes, &pick.low, &pick.high);
    text += n_count;
    n_bytes -= n_count;
    if (n_count) {
        size_t dollars = find_here(text, n_bytes, 0, "$$"),
               given = dollars < find_here(text, n_bytes, 0, "|");
        pick.separator = given ? text : ", ";
        pick.separator_bytes = given ? dollars : 2;
        text += given ? dollars + 2 : 0;
        n_bytes -= given ? dollars + 2 : 0;
        const char *name = text;
        size_t n_name = n_bytes;
        trim(&name, &n_name);
        if (n_name && wildcard_here(name, n_name) == n_name) {
            const struct options *lines = wildcard_open(x, name, n_name);
            return lines && pick_expand(x, lines, pick, depth);
        }
    }
    struct options options = {0};
    bool ok = true;
    for (size_t i = 0; ok && i <= n_bytes;) {
        size_t bar = find_here(text, n_bytes, i, "|");
        ok = option_add(x, &options, text + i, bar - i);
        i = bar + 1;
    }
    ok = ok && pick_expand(x, &options, pick, depth);
    free(options.items);
    return ok;
}

/*
 * What begins at text[i] with a brace, an underscore, a dollar or a backslash; *end is where it
 * ends.
 */
static bool special_expand(struct expansion *x, const char *text, size_t n_bytes, size_t i,
                           size_t *end, int depth)
{
    const char *here = text + i;
    size_t n = n_bytes - i;
    *end = i + 1;
    if (*here == '\\') {
        *end = skip(text, n_bytes, i);
        if (n > 1 && here[1] && strchr("{}|_", here[1])) return put(x, here + 1, 1);
        return put(x, here, *end - i);
    }
    if (*here == '$' && n > 1 && here[1] == '{') {
        return dk_fail(x->err, DK_ERROR_UNSUPPORTED,
                       "template: variables are not supported: \"%s\"; write $\\{ for the text",
                       excerpt(here, n).text);
    }
    if (*here == '_') {
        size_t n_name = wildcard_here(here, n);
        if (!n_name) return put(x, here, 1);
        *end = i + n_name;
        const struct options *lines = wildcard_open(x, here, n_name);
        return lines && pick_expand(x, lines, (struct pick){1, 1, NULL, 0}, depth + 1);
    }
    if (*here == '{') {
        size_t close = find_here(here, n, 1, "}");
        if (close == n) {
            return dk_fail(x->err, DK_ERROR_ARGUMENT,
                           "template: the brace of \"%s\" is never closed; write \\{ for the text",
                           excerpt(here, n).text);
        }
        *end = i + close + 1;
        return choice_expand(x, here + 1, close - 1, depth + 1);
    }
    return put(x, here, 1);
}

static bool expand(struct expansion *x, const char *text, size_t n_bytes, int depth)
{
    if (depth > DYNAMIC_MAX_DEPTH) {
        return dk_fail(x->err, DK_ERROR_ARGUMENT,
                       "template: choices and wildcards more than %d deep in each other at \"%s\": "
                       "does one lead back to itself?",
                       DYNAMIC_MAX_DEPTH, excerpt(text, n_bytes).text);
    }
    for (size_t i = 0; i < n_bytes;) {
        size_t plain = i;
        while (i < n_bytes && text[i] && !strchr("\\${_", text[i])) i++;
        if (i > plain && !put(x, text + plain, i - plain)) return false;
        if (i < n_bytes && !text[i]) {
            i++; /* a NUL in a wildcard file is left out: prompts are C strings */
        } else if (i < n_bytes && !special_expand(x, text, n_bytes, i, &i, depth)) {
            return false;
        }
    }
    return true;
}

/* ---- the public functions ---- */

static void expansion_free(struct expansion *x)
{
    for (size_t i = 0; i < x->n_wildcards; i++) {
        map_close(&x->wildcards[i].map);
        free(x->wildcards[i].lines.items);
        free(x->wildcards[i].name);
    }
    free(x->wildcards);
    free(x->digits);
    free(x->text);
}

/* One prompt by the generator or the digits as they are; *prompt is the caller's. */
static bool expand_once(struct expansion *x, const char *text, char **prompt)
{
    x->n_bytes = x->work = x->at_digit = 0;
    if (!put(x, "", 0) || !expand(x, text, strlen(text), 0)) return false;
    x->text[x->n_bytes] = '\0'; /* trimming may have taken it back */
    *prompt = x->text;
    x->text = NULL;
    x->capacity = 0;
    return true;
}

bool dk_expand_prompt(const char *text, const char *wildcards, uint64_t seed, char **prompt,
                      struct dk_error *err)
{
    struct expansion x = {.folder = wildcards, .state = seed, .err = err};
    *prompt = NULL;
    bool ok = expand_once(&x, text, prompt);
    expansion_free(&x);
    return ok;
}

bool dk_expand_all(const char *text, const char *wildcards, size_t limit, char ***prompts,
                   size_t *n_prompts, bool *complete, struct dk_error *err)
{
    struct expansion x = {.folder = wildcards, .enumerate = true, .err = err};
    char **list = NULL;
    size_t n = 0, capacity = 0, n_bytes = 0;
    bool ok = true, more = true;
    while (ok && more && n < limit) {
        if (n == capacity) {
            capacity = capacity ? 2 * capacity : 16;
            char **longer = realloc(list, capacity * sizeof *list);
            ok = longer || no_memory(&x);
            if (longer) list = longer;
        }
        ok = ok && expand_once(&x, text, &list[n]);
        if (!ok) break;
        n_bytes += x.n_bytes;
        n++;
        more = next_number(&x);
        if (n_bytes > DYNAMIC_MAX_ALL_BYTES) {
            ok = dk_fail(err, DK_ERROR_ARGUMENT,
                         "template: its first %zu prompts have more than %zu bytes", n,
                         DYNAMIC_MAX_ALL_BYTES);
        }
    }
    expansion_free(&x);
    *prompts = NULL;
    *n_prompts = 0;
    if (!ok) {
        dk_prompts_free(list, n);
        return false;
    }
    *prompts = list;
    *n_prompts = n;
    if (complete) *complete = !more;
    return true;
}

void dk_prompts_free(char **prompts, size_t n_prompts)
{
    for (size_t i = 0; i < n_prompts; i++) free(prompts[i]);
    free(prompts);
}
