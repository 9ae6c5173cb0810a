/* compare_caption.c - what a prompt asks for, in the words of a model's captions. */
/* SPDX-License-Identifier: MIT */
#include "compare_caption.h"

#include "text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OBJECTS   1024
#define LENGTH(array) (sizeof(array) / sizeof *(array))

static const char *const layout_names[N_LAYOUTS] = {"plain", "large", "small", "pair", "two"};

/* ---- reading the words --------------------------------------------------------------------- */

/* NULL when it is not a text of sensible length. */
static const char *word_of(const json_t *value)
{
    const char *text = json_string_value(value);
    return text && *text && strlen(text) <= CAPTION_WORD ? text : NULL;
}

/* True if the value is a number within the limits. */
static bool number_of(const json_t *value, double low, double high, double *out)
{
    *out = json_number_value(value);
    return json_is_number(value) && *out >= low && *out <= high;
}

static bool read_words(const json_t *list, const char **words, size_t most, size_t *n)
{
    size_t i;
    const json_t *item;
    *n = 0;
    if (list && !json_is_array(list)) return false;
    json_array_foreach(list, i, item)
    {
        if (*n == most || !(words[*n] = word_of(item))) return false;
        ++*n;
    }
    return true;
}

static bool read_objects(struct captions *t, const json_t *list)
{
    size_t i;
    const json_t *item;
    t->n_objects = json_array_size(list);
    if (t->n_objects < 1 || t->n_objects > MAX_OBJECTS) return false;
    t->objects = text_alloc(t->n_objects * sizeof *t->objects);
    json_array_foreach(list, i, item)
    {
        struct object *o = &t->objects[i];
        *o = (struct object){.n_names = 0};
        if (!read_words(json_object_get(item, "names"), o->names, CAPTION_NAMES, &o->n_names) ||
            !read_words(json_object_get(item, "plurals"), o->plurals, CAPTION_NAMES,
                        &o->n_plurals) ||
            o->n_names < 1)
            return false;
    }
    return true;
}

static bool read_colours(struct captions *t, json_t *object)
{
    const char *name;
    json_t *rgb;
    json_object_foreach(object, name, rgb)
    {
        if (t->n_colours == LENGTH(t->colours) || json_array_size(rgb) != 3 || !*name ||
            strlen(name) > CAPTION_WORD)
            return false;
        for (size_t i = 0; i < 3; i++)
            if (!number_of(json_array_get(rgb, i), 0, 255, &t->rgb[t->n_colours][i])) return false;
        t->colours[t->n_colours++] = name;
    }
    return t->n_colours > 0;
}

static bool read_point(const struct captions *t, const json_t *pair, struct point *p)
{
    return json_array_size(pair) == 2 &&
           number_of(json_array_get(pair, 0), -t->canvas, 2 * t->canvas, &p->x) &&
           number_of(json_array_get(pair, 1), -t->canvas, 2 * t->canvas, &p->y);
}

static bool read_layouts(struct captions *t, const json_t *root)
{
    static const size_t wanted[N_LAYOUTS] = {1, 1, 0, 2, 2};
    for (int i = 0; i < N_LAYOUTS; i++) {
        const json_t *own = json_object_get(root, layout_names[i]),
                     *at = json_object_get(own, "at");
        struct layout_data *l = &t->layouts[i];
        t->fault = layout_names[i];
        l->n_at = json_array_size(at);
        if (!number_of(json_object_get(own, "size"), 1, 4 * t->canvas, &l->size) ||
            (at && !json_is_array(at)) || l->n_at != wanted[i] ||
            !read_words(json_object_get(own, "words"), l->words, LENGTH(l->words), &l->n_words))
            return false;
        for (size_t k = 0; k < l->n_at; k++)
            if (!read_point(t, json_array_get(at, k), &l->at[k])) return false;
    }
    return true;
}

static bool read_places(struct captions *t, json_t *object)
{
    const char *name;
    json_t *pair;
    json_object_foreach(object, name, pair)
    {
        if (t->n_places == LENGTH(t->places) || !*name || strlen(name) > CAPTION_WORD ||
            !read_point(t, pair, &t->place_at[t->n_places]))
            return false;
        t->places[t->n_places++] = name;
    }
    return t->n_places > 0;
}

static bool read_styles(struct captions *t, json_t *object)
{
    const char *name;
    json_t *kind;
    if (object && !json_is_object(object)) return false;
    json_object_foreach(object, name, kind)
    {
        const char *text = word_of(kind);
        bool gray = text && strcmp(text, "gray") == 0;
        if (t->n_styles == LENGTH(t->styles) || !*name || strlen(name) > CAPTION_WORD ||
            (!gray && (!text || strcmp(text, "silhouette") != 0)))
            return false;
        t->style_kinds[t->n_styles] = gray ? STYLE_GRAY : STYLE_SILHOUETTE;
        t->styles[t->n_styles++] = name;
    }
    return true;
}

bool captions_read(struct captions *t, const json_t *root)
{
    *t = (struct captions){.objects = NULL};
    t->fault = !number_of(json_object_get(root, "canvas"), 16, 4096, &t->canvas) ? "canvas"
               : !read_objects(t, json_object_get(root, "objects"))              ? "objects"
               : !read_colours(t, json_object_get(root, "colours"))              ? "colours"
               : !read_layouts(t, root)                                          ? t->fault
               : !read_places(t, json_object_get(json_object_get(root, "small"), "places"))
                   ? "small.places"
               : !read_styles(t, json_object_get(root, "styles")) ? "styles"
                                                                  : NULL;
    return !t->fault;
}

void captions_free(struct captions *t)
{
    free(t->objects);
    t->objects = NULL;
}

/* ---- reading a prompt ---------------------------------------------------------------------- */

/* Takes word off the beginning of text, with the blank behind it; false when it is not there. */
static bool take_first(char *text, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(text, word, n) != 0 || text[n] != ' ') return false;
    memmove(text, text + n + 1, strlen(text + n + 1) + 1);
    return true;
}

/* Where words at the end of text begin, with a blank before them; NULL: they are not there. */
static char *find_last(char *text, const char *words)
{
    size_t n = strlen(text), m = strlen(words);
    if (n <= m || strcmp(text + n - m, words) != 0 || text[n - m - 1] != ' ') return NULL;
    return text + n - m;
}

/* Takes words off the end, with the blank before them. */
static void take_last(char *text, const char *words)
{
    char *at = find_last(text, words);
    if (at) at[-1] = '\0';
}

static bool take_article(char *text)
{
    return take_first(text, "a") || take_first(text, "an");
}

static bool take_one_of(char *text, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (take_first(text, words[i])) return true;
    return false;
}

/* "on a blue background", "on blue", ", blue background" at the end; CAPTION_NONE: no colour. Of
 * two that fit the longer one is meant: "light blue". */
static size_t take_colour(const struct captions *t, char *text)
{
    static const struct {
        const char *before, *after;
    } forms[] = {
        {"on a ", " background"}, {"on an ", " background"}, {"on ", ""}, {"", " background"}};
    size_t best = CAPTION_NONE;
    char *first = text + strlen(text);
    bool bare = false;
    for (size_t i = 0; i < t->n_colours; i++)
        for (size_t f = 0; f < LENGTH(forms); f++) {
            char words[CAPTION_WORD + 32];
            snprintf(words, sizeof words, "%s%s%s", forms[f].before, t->colours[i], forms[f].after);
            char *at = find_last(text, words);
            if (!at || at >= first) continue;
            best = i;
            first = at;
            bare = !*forms[f].before;
        }
    if (best == CAPTION_NONE) return best;
    first[-1] = '\0';
    if (bare && first - 1 > text && first[-2] == ',') first[-2] = '\0';
    return best;
}

static size_t find_object(const struct captions *t, const char *name, bool plural)
{
    for (size_t i = 0; i < t->n_objects; i++) {
        const struct object *o = &t->objects[i];
        const char *const *words = plural ? o->plurals : o->names;
        size_t n = plural ? o->n_plurals : o->n_names;
        for (size_t k = 0; k < n; k++)
            if (strcmp(words[k], name) == 0) return i;
    }
    return CAPTION_NONE;
}

/* "a fox", "fox". */
static size_t find_noun(const struct captions *t, const char *text)
{
    char *noun = text_copy(text);
    size_t object = find_object(t, noun, false);
    if (object == CAPTION_NONE && take_article(noun)) object = find_object(t, noun, false);
    free(noun);
    return object;
}

static void take_style(const struct captions *t, char *text, struct caption *caption)
{
    for (size_t i = 0; i < t->n_styles; i++)
        if (take_first(text, t->styles[i])) {
            caption->style = t->style_kinds[i];
            return;
        }
}

/* "two foxes", "two of fox", with "side by side" or not; " and " between two nouns. */
static bool read_several(const struct captions *t, char *text, struct caption *caption)
{
    if (take_first(text, "two")) {
        take_last(text, "side by side");
        bool singular = take_first(text, "of");
        caption->layout = TWO;
        caption->objects[0] = find_object(t, text, !singular);
        caption->n = 1;
        return caption->objects[0] != CAPTION_NONE;
    }
    for (char *p = strstr(text, " and "); p; p = strstr(p + 1, " and ")) {
        char *first = text_copy_n(text, (size_t)(p - text));
        caption->objects[0] = find_noun(t, first);
        caption->objects[1] = find_noun(t, p + 5);
        caption->n = 2;
        caption->layout = PAIR;
        free(first);
        if (caption->objects[0] != CAPTION_NONE && caption->objects[1] != CAPTION_NONE) return true;
    }
    return false;
}

/* "in the top left", "at the left"; a small one without a place is in the middle. */
static bool take_place(const struct captions *t, char *text, struct point *at)
{
    size_t middle = CAPTION_NONE, best = CAPTION_NONE;
    char *first = text + strlen(text);
    for (size_t i = 0; i < t->n_places; i++) {
        if (strcmp(t->places[i], "center") == 0) middle = i;
        for (int f = 0; f < 2; f++) {
            char words[CAPTION_WORD + 16];
            snprintf(words, sizeof words, f ? "at the %s" : "in the %s", t->places[i]);
            char *found = find_last(text, words);
            if (!found || found >= first) continue;
            best = i;
            first = found;
        }
    }
    if (best != CAPTION_NONE)
        first[-1] = '\0';
    else
        best = middle;
    if (best != CAPTION_NONE) *at = t->place_at[best];
    return best != CAPTION_NONE;
}

static bool read_single(const struct captions *t, char *text, struct caption *caption)
{
    bool article = take_article(text);
    caption->layout = PLAIN;
    caption->n = 1;
    if (article && take_one_of(text, t->layouts[LARGE].words, t->layouts[LARGE].n_words)) {
        caption->layout = LARGE;
    } else if (article && take_one_of(text, t->layouts[SMALL].words, t->layouts[SMALL].n_words)) {
        caption->layout = SMALL;
        if (!take_place(t, text, &caption->at)) return false;
    }
    take_style(t, text, caption);
    caption->objects[0] = find_noun(t, text);
    return caption->objects[0] != CAPTION_NONE;
}

/* Lower case, one blank between words, none at the ends, no full stop. */
static char *normal(const char *prompt)
{
    char *text = text_copy(prompt), *out = text;
    for (const char *p = prompt; *p; p++) {
        if (!isspace((unsigned char)*p))
            *out++ = (char)tolower((unsigned char)*p);
        else if (out > text && out[-1] != ' ')
            *out++ = ' ';
    }
    while (out > text && (out[-1] == ' ' || out[-1] == '.')) out--;
    *out = '\0';
    return text;
}

bool caption_read(const struct captions *t, const char *prompt, struct caption *caption)
{
    char *text = normal(prompt);
    *caption = (struct caption){.n = 0};
    caption->colour = take_colour(t, text);
    char *copy = text_copy(text);
    bool known = read_several(t, copy, caption) || read_single(t, text, caption);
    free(copy);
    if (known && caption->colour == CAPTION_NONE) /* nothing said means white */
        for (size_t i = 0; i < t->n_colours; i++)
            if (strcmp(t->colours[i], "white") == 0) caption->colour = i;
    if (!known) caption->n = 0;
    free(text);
    return known && caption->colour != CAPTION_NONE;
}

size_t caption_background(const struct captions *t, const char *prompt)
{
    char *text = normal(prompt), *word = strstr(text, " background");
    size_t best = CAPTION_NONE;
    if (word) {
        word[strlen(" background")] = '\0';
        best = take_colour(t, text);
    }
    free(text);
    return best;
}
