/* compare_truth.c - what a picture should show, where the model brings the art it was trained on. */
/* SPDX-License-Identifier: MIT */
#include "compare_truth.h"

#include "say.h"
#include "text.h"

#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEYWORD     "darkroom-references"
#define SCHEMA      "darkroom-references-1"
#define GRID        64
#define SHIFT       1
#define MAX_OBJECTS 1024
#define MAX_NAMES   8
#define MAX_NAME    80 /* bytes */
#define MAX_COLOURS 64
#define MAX_WORDS   8
#define MAX_PLACES  32
#define MAX_STYLES  8
#define PIXELS      (GRID * GRID)

enum style { STYLE_OWN, STYLE_GRAY, STYLE_SILHOUETTE };
enum layout { PLAIN, LARGE, SMALL, PAIR, TWO, N_LAYOUTS };
static const char *const layout_names[N_LAYOUTS] = {"plain", "large", "small", "pair", "two"};

struct point {
    double x, y;
};
struct layout_data {
    double size;                 /* of an object, in pixels of the canvas */
    struct point at[TRUTH_OBJECTS]; /* centres */
    size_t n_at;
    const char *words[MAX_WORDS]; /* that ask for it: "large" */
    size_t n_words;
};
struct object {
    const char *names[MAX_NAMES], *plurals[MAX_NAMES];
    size_t n_names, n_plurals;
};

struct truth {
    json_t *json; /* owns the words */
    double canvas;
    size_t tile, n_objects;
    struct object *objects;
    float *art; /* [n_objects, tile, tile, 4] premultiplied, 0 to 1 */
    const char *colours[MAX_COLOURS];
    double rgb[MAX_COLOURS][3]; /* 0 to 255 */
    size_t n_colours;
    struct layout_data layouts[N_LAYOUTS];
    const char *places[MAX_PLACES];
    struct point place_at[MAX_PLACES];
    size_t n_places;
    const char *styles[MAX_STYLES];
    enum style style_kinds[MAX_STYLES];
    size_t n_styles;
};

/* ---- reading ------------------------------------------------------------------------------- */

/* NULL when it is not a text of sensible length. */
static const char *word_of(const json_t *value)
{
    const char *text = json_string_value(value);
    return text && *text && strlen(text) <= MAX_NAME ? text : NULL;
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
    json_array_foreach(list, i, item)
    {
        if (*n == most || !(words[*n] = word_of(item))) return false;
        ++*n;
    }
    return true;
}

static bool read_objects(struct truth *t, const json_t *list)
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
        if (!read_words(json_object_get(item, "names"), o->names, MAX_NAMES, &o->n_names) ||
            !read_words(json_object_get(item, "plurals"), o->plurals, MAX_NAMES, &o->n_plurals) ||
            o->n_names < 1)
            return false;
    }
    return true;
}

static bool read_colours(struct truth *t, json_t *object)
{
    const char *name;
    json_t *rgb;
    json_object_foreach(object, name, rgb)
    {
        if (t->n_colours == MAX_COLOURS || json_array_size(rgb) != 3 || !*name ||
            strlen(name) > MAX_NAME)
            return false;
        for (size_t i = 0; i < 3; i++)
            if (!number_of(json_array_get(rgb, i), 0, 255, &t->rgb[t->n_colours][i])) return false;
        t->colours[t->n_colours++] = name;
    }
    return t->n_colours > 0;
}

static bool read_point(const struct truth *t, const json_t *pair, struct point *p)
{
    return json_array_size(pair) == 2 &&
           number_of(json_array_get(pair, 0), -t->canvas, 2 * t->canvas, &p->x) &&
           number_of(json_array_get(pair, 1), -t->canvas, 2 * t->canvas, &p->y);
}

static bool read_layouts(struct truth *t, const json_t *root)
{
    static const size_t wanted[N_LAYOUTS] = {1, 1, 0, 2, 2};
    for (int i = 0; i < N_LAYOUTS; i++) {
        const json_t *own = json_object_get(root, layout_names[i]), *at = json_object_get(own, "at");
        struct layout_data *l = &t->layouts[i];
        l->n_at = json_array_size(at);
        if (!number_of(json_object_get(own, "size"), 1, 4 * t->canvas, &l->size) ||
            l->n_at != wanted[i] ||
            !read_words(json_object_get(own, "words"), l->words, MAX_WORDS, &l->n_words))
            return false;
        for (size_t k = 0; k < l->n_at; k++)
            if (!read_point(t, json_array_get(at, k), &l->at[k])) return false;
    }
    return true;
}

static bool read_places(struct truth *t, json_t *object)
{
    const char *name;
    json_t *pair;
    json_object_foreach(object, name, pair)
    {
        if (t->n_places == MAX_PLACES || !*name || strlen(name) > MAX_NAME ||
            !read_point(t, pair, &t->place_at[t->n_places]))
            return false;
        t->places[t->n_places++] = name;
    }
    return t->n_places > 0;
}

static bool read_styles(struct truth *t, json_t *object)
{
    const char *name;
    json_t *kind;
    json_object_foreach(object, name, kind)
    {
        const char *text = word_of(kind);
        bool gray = text && strcmp(text, "gray") == 0;
        if (t->n_styles == MAX_STYLES || !*name || strlen(name) > MAX_NAME ||
            (!gray && (!text || strcmp(text, "silhouette") != 0)))
            return false;
        t->style_kinds[t->n_styles] = gray ? STYLE_GRAY : STYLE_SILHOUETTE;
        t->styles[t->n_styles++] = name;
    }
    return true;
}

/* The tiles of the sheet: colours above, opacities below. */
static bool read_art(struct truth *t, const json_t *root, const struct dk_image *sheet)
{
    double tile, columns;
    if (!number_of(json_object_get(root, "tile"), 8, 512, &tile) ||
        !number_of(json_object_get(root, "columns"), 1, 64, &columns) || tile != floor(tile) ||
        columns != floor(columns))
        return false;
    size_t side = t->tile = (size_t)tile, across = (size_t)columns;
    size_t rows = (t->n_objects + across - 1) / across, width = side * across;
    if ((size_t)sheet->width_px != width || (size_t)sheet->height_px != 2 * rows * side)
        return false;
    t->art = text_alloc(t->n_objects * side * side * 4 * sizeof *t->art);
    float *out = t->art;
    for (size_t i = 0; i < t->n_objects; i++)
        for (size_t y = 0; y < side; y++)
            for (size_t x = 0; x < side; x++) {
                size_t row = i / across * side + y, column = i % across * side + x;
                const uint8_t *colour = sheet->rgb + 3 * (row * width + column);
                const uint8_t *alpha = colour + 3 * rows * side * width;
                for (int c = 0; c < 3; c++) *out++ = (float)colour[c] / 255;
                *out++ = (float)*alpha / 255;
            }
    return true;
}

static bool read_all(struct truth *t, const struct dk_image *sheet)
{
    const json_t *root = t->json;
    const char *schema = json_string_value(json_object_get(root, "schema"));
    return schema && strcmp(schema, SCHEMA) == 0 &&
           number_of(json_object_get(root, "canvas"), 16, 4096, &t->canvas) &&
           read_objects(t, json_object_get(root, "objects")) &&
           read_colours(t, json_object_get(root, "colours")) && read_layouts(t, root) &&
           read_places(t, json_object_get(json_object_get(root, "small"), "places")) &&
           read_styles(t, json_object_get(root, "styles")) && read_art(t, root, sheet);
}

struct truth *truth_open(const char *model, struct dk_error *err)
{
    char *path = text_format("%s/" TRUTH_NAME, model);
    struct dk_image sheet = {0};
    struct dk_texts texts = {0};
    struct truth *t = NULL;
    if (access(path, F_OK) == 0 && dk_png_read(path, &sheet, &texts, err)) {
        t = text_alloc(sizeof *t);
        *t = (struct truth){.json = NULL};
        for (size_t i = 0; i < texts.n_items && !t->json; i++)
            if (strcmp(texts.items[i].keyword, KEYWORD) == 0)
                t->json = json_loads(texts.items[i].text, JSON_REJECT_DUPLICATES, NULL);
        if (!read_all(t, &sheet)) {
            say_fail(err, DK_ERROR_FORMAT,
                     "%s: found no " SCHEMA " text that fits the picture; take the file that belongs "
                     "to the model, or remove it",
                     path);
            truth_free(t);
            t = NULL;
        }
    }
    dk_image_free(&sheet);
    dk_texts_free(&texts);
    free(path);
    return t;
}

void truth_free(struct truth *t)
{
    if (!t) return;
    json_decref(t->json);
    free(t->objects);
    free(t->art);
    free(t);
}

/* ---- what a prompt asks for ---------------------------------------------------------------- */

struct wish {
    size_t n, objects[TRUTH_OBJECTS];
    enum layout layout;
    struct point at; /* of a small one */
    enum style style;
    size_t colour;
};

/* Takes word off the beginning of text, with the blank behind it; false when it is not there. */
static bool take_first(char *text, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(text, word, n) != 0 || text[n] != ' ') return false;
    memmove(text, text + n + 1, strlen(text + n + 1) + 1);
    return true;
}

/* Takes words off the end, with the blank before them. */
static bool take_last(char *text, const char *words)
{
    size_t n = strlen(text), m = strlen(words);
    if (n <= m || strcmp(text + n - m, words) != 0 || text[n - m - 1] != ' ') return false;
    text[n - m - 1] = '\0';
    return true;
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

/* "on a blue background", "on blue", ", blue background" at the end; TRUTH_NONE: no colour. Of two
 * that fit the longer one is meant: "light blue". */
static size_t take_colour(const struct truth *t, char *text)
{
    static const char *const forms[] = {"on a %s background", "on an %s background", "on %s",
                                        "%s background"};
    size_t best = TRUTH_NONE, best_n = 0, n = strlen(text);
    const char *best_form = NULL;
    for (size_t i = 0; i < t->n_colours; i++)
        for (size_t f = 0; f < 4; f++) {
            char words[MAX_NAME + 32];
            size_t m = (size_t)snprintf(words, sizeof words,
                                        f == 0   ? "on a %s background"
                                        : f == 1 ? "on an %s background"
                                        : f == 2 ? "on %s"
                                                 : "%s background",
                                        t->colours[i]);
            if (m >= n || strcmp(text + n - m, words) != 0 || text[n - m - 1] != ' ' || m <= best_n)
                continue;
            best = i;
            best_n = m;
            best_form = forms[f];
        }
    if (best == TRUTH_NONE) return best;
    text[n - best_n - 1] = '\0';
    n = strlen(text);
    if (best_form == forms[3] && n > 0 && text[n - 1] == ',') text[n - 1] = '\0';
    return best;
}

static size_t find_object(const struct truth *t, const char *name, bool plural)
{
    for (size_t i = 0; i < t->n_objects; i++) {
        const struct object *o = &t->objects[i];
        const char *const *words = plural ? o->plurals : o->names;
        size_t n = plural ? o->n_plurals : o->n_names;
        for (size_t k = 0; k < n; k++)
            if (strcmp(words[k], name) == 0) return i;
    }
    return TRUTH_NONE;
}

/* "a fox", "fox". */
static size_t find_noun(const struct truth *t, const char *text)
{
    char *noun = text_copy(text);
    size_t object = find_object(t, noun, false);
    if (object == TRUTH_NONE && take_article(noun)) object = find_object(t, noun, false);
    free(noun);
    return object;
}

static void take_style(const struct truth *t, char *text, struct wish *wish)
{
    for (size_t i = 0; i < t->n_styles; i++)
        if (take_first(text, t->styles[i])) {
            wish->style = t->style_kinds[i];
            return;
        }
}

/* "two foxes", "two of fox", with "side by side" or not; " and " between two nouns. */
static bool read_several(const struct truth *t, char *text, struct wish *wish)
{
    if (take_first(text, "two")) {
        take_last(text, "side by side");
        bool singular = take_first(text, "of");
        wish->layout = TWO;
        wish->objects[0] = find_object(t, text, !singular);
        wish->n = 1;
        return wish->objects[0] != TRUTH_NONE;
    }
    for (char *p = strstr(text, " and "); p; p = strstr(p + 1, " and ")) {
        char *first = text_copy_n(text, (size_t)(p - text));
        wish->objects[0] = find_noun(t, first);
        wish->objects[1] = find_noun(t, p + 5);
        wish->n = 2;
        wish->layout = PAIR;
        free(first);
        if (wish->objects[0] != TRUTH_NONE && wish->objects[1] != TRUTH_NONE) return true;
    }
    return false;
}

/* "in the top left", "at the left"; a small one without a place is in the middle. */
static bool take_place(const struct truth *t, char *text, struct point *at)
{
    size_t middle = TRUTH_NONE, best = TRUTH_NONE, best_n = 0;
    char words[MAX_NAME + 16], *rest = NULL;
    for (size_t i = 0; i < t->n_places; i++) {
        if (strcmp(t->places[i], "center") == 0) middle = i;
        for (int f = 0; f < 2; f++) {
            snprintf(words, sizeof words, f ? "at the %s" : "in the %s", t->places[i]);
            char *copy = text_copy(text);
            if (take_last(copy, words) && strlen(words) > best_n) {
                best = i;
                best_n = strlen(words);
                free(rest);
                rest = copy;
            } else {
                free(copy);
            }
        }
    }
    if (rest) strcpy(text, rest);
    free(rest);
    if (best == TRUTH_NONE) best = middle;
    if (best != TRUTH_NONE) *at = t->place_at[best];
    return best != TRUTH_NONE;
}

static bool read_single(const struct truth *t, char *text, struct wish *wish)
{
    bool article = take_article(text);
    wish->layout = PLAIN;
    wish->n = 1;
    if (article && take_one_of(text, t->layouts[LARGE].words, t->layouts[LARGE].n_words)) {
        wish->layout = LARGE;
    } else if (article && take_one_of(text, t->layouts[SMALL].words, t->layouts[SMALL].n_words)) {
        wish->layout = SMALL;
        if (!take_place(t, text, &wish->at)) return false;
    }
    take_style(t, text, wish);
    wish->objects[0] = find_noun(t, text);
    return wish->objects[0] != TRUTH_NONE;
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

/* False when it is no caption of the kind the model was trained on. The colour may be known even so. */
static bool read_prompt(const struct truth *t, const char *prompt, struct wish *wish)
{
    char *text = normal(prompt);
    *wish = (struct wish){.n = 0};
    wish->colour = take_colour(t, text);
    char *copy = text_copy(text);
    bool known = read_several(t, copy, wish) || read_single(t, text, wish);
    free(copy);
    if (known && wish->colour == TRUTH_NONE) /* nothing said means white */
        for (size_t i = 0; i < t->n_colours; i++)
            if (strcmp(t->colours[i], "white") == 0) wish->colour = i;
    if (!known) wish->n = 0;
    free(text);
    return known && wish->colour != TRUTH_NONE;
}

/* ---- the background ------------------------------------------------------------------------ */

static int compare_bytes(const void *a, const void *b)
{
    return *(const uint8_t *)a - *(const uint8_t *)b;
}

/* The colour nearest to the median of the four corners. */
static size_t seen_background(const struct truth *t, const struct dk_image *image)
{
    int w = image->width_px, h = image->height_px, side = (w < h ? w : h) / 16;
    if (side < 1) side = 1;
    size_t n = 4 * (size_t)side * (size_t)side, best = 0;
    double nearest = INFINITY, median[3];
    uint8_t *values = text_alloc(n);
    for (int c = 0; c < 3; c++) {
        size_t k = 0;
        for (int i = 0; i < 4; i++)
            for (int y = 0; y < side; y++)
                for (int x = 0; x < side; x++) {
                    int u = i % 2 ? w - 1 - x : x, v = i / 2 ? h - 1 - y : y;
                    values[k++] = image->rgb[3 * ((size_t)v * (size_t)w + (size_t)u) + (size_t)c];
                }
        qsort(values, n, 1, compare_bytes);
        median[c] = (values[n / 2 - 1] + values[n / 2]) / 2.0;
    }
    free(values);
    for (size_t i = 0; i < t->n_colours; i++) {
        double d = 0;
        for (int c = 0; c < 3; c++) d += (t->rgb[i][c] - median[c]) * (t->rgb[i][c] - median[c]);
        if (d < nearest) best = i;
        if (d < nearest) nearest = d;
    }
    return best;
}

/* The colour before the word background, anywhere, in a prompt that is not understood otherwise. */
static size_t named_background(const struct truth *t, const char *prompt)
{
    char *text = normal(prompt), *word = strstr(text, " background");
    size_t best = TRUTH_NONE;
    if (word) {
        word[strlen(" background")] = '\0';
        best = take_colour(t, text);
    }
    free(text);
    return best;
}

/* ---- true pictures -------------------------------------------------------------------------- */

/* What one position of the grid takes of a line of n values. */
struct span {
    int first, n;
    double w[72];
};

/*
 * A line of n values is drawn from at to at + size (grid pixels): the weights of the values under
 * grid pixel i, by a triangle that is as wide as the larger of the two pixels. Beyond the line there
 * is nothing.
 */
static void make_span(struct span *s, int i, double at, double size, int n)
{
    double scale = n / size, reach = scale > 1 ? scale : 1, sum = 0;
    double center = (i + 0.5 - at) * scale - 0.5;
    int most = (int)(sizeof s->w / sizeof s->w[0]);
    s->first = (int)ceil(center - reach);
    s->n = 0;
    for (int k = s->first; k <= center + reach && s->n < most; k++) {
        double w = 1 - fabs(k - center) / reach;
        s->w[s->n++] = w > 0 ? w : 0;
        sum += w > 0 ? w : 0;
    }
    for (int k = 0; k < s->n; k++) s->w[k] = sum > 0 ? s->w[k] / sum : 0;
}

/* rgb [GRID, GRID, 3], 0 to 1: puts one object there, over what is there. */
static void paste(const struct truth *t, float *rgb, size_t object, double size, struct point center,
                  enum style style, double ink)
{
    const float *art = t->art + object * t->tile * t->tile * 4;
    int n = (int)t->tile;
    double unit = GRID / t->canvas, side = size * unit;
    struct span across[GRID];
    for (int x = 0; x < GRID; x++)
        make_span(&across[x], x, center.x * unit - side / 2, side, n);
    for (int y = 0; y < GRID; y++) {
        struct span down;
        make_span(&down, y, center.y * unit - side / 2, side, n);
        if (down.first + down.n <= 0 || down.first >= n) continue;
        for (int x = 0; x < GRID; x++) {
            double v[4] = {0, 0, 0, 0};
            for (int j = 0; j < down.n; j++)
                for (int i = 0; i < across[x].n; i++) {
                    int row = down.first + j, column = across[x].first + i;
                    if (row < 0 || row >= n || column < 0 || column >= n) continue;
                    double w = down.w[j] * across[x].w[i];
                    for (int c = 0; c < 4; c++) v[c] += w * (double)art[(row * n + column) * 4 + c];
                }
            if (style == STYLE_GRAY) v[0] = v[1] = v[2] = .299 * v[0] + .587 * v[1] + .114 * v[2];
            if (style == STYLE_SILHOUETTE) v[0] = v[1] = v[2] = ink * v[3];
            float *out = rgb + (y * GRID + x) * 3;
            for (int c = 0; c < 3; c++) out[c] = (float)((double)out[c] * (1 - v[3]) + v[c]);
        }
    }
}

/* The picture of a wish with another object in its place; of a pair only the slot's half counts. */
static void draw(const struct truth *t, const struct wish *wish, size_t object, size_t slot,
                 float *rgb)
{
    const struct layout_data *l = &t->layouts[wish->layout];
    const double *ground = t->rgb[wish->colour];
    double luma = (.299 * ground[0] + .587 * ground[1] + .114 * ground[2]) / 255;
    double ink = luma > .35 ? .08 : .95; /* data.py: a silhouette is dark on light, else light */
    for (int i = 0; i < PIXELS * 3; i++) rgb[i] = (float)(ground[i % 3] / 255);
    for (size_t k = 0; k < (l->n_at ? l->n_at : 1); k++) {
        if (wish->layout == PAIR && k != slot) continue;
        paste(t, rgb, object, l->size, l->n_at ? l->at[k] : wish->at, wish->style, ink);
    }
}

/* ---- distances ------------------------------------------------------------------------------ */

/* The picture as means over the pixels under each of the grid's. */
static void shrink(const struct dk_image *image, float *rgb)
{
    struct { double from, to; } edge;
    for (int y = 0; y < GRID; y++)
        for (int x = 0; x < GRID; x++) {
            double sum[3] = {0, 0, 0}, area = 0;
            double top = (double)y * image->height_px / GRID,
                   bottom = (double)(y + 1) * image->height_px / GRID;
            edge.from = (double)x * image->width_px / GRID;
            edge.to = (double)(x + 1) * image->width_px / GRID;
            for (int v = (int)top; v < image->height_px && v < bottom; v++)
                for (int u = (int)edge.from; u < image->width_px && u < edge.to; u++) {
                    double w = (fmin(v + 1, bottom) - fmax(v, top)) *
                               (fmin(u + 1, edge.to) - fmax(u, edge.from));
                    const uint8_t *p =
                        image->rgb + 3 * ((size_t)v * (size_t)image->width_px + (size_t)u);
                    for (int c = 0; c < 3; c++) sum[c] += w * p[c];
                    area += w;
                }
            for (int c = 0; c < 3; c++)
                rgb[(y * GRID + x) * 3 + c] = (float)(sum[c] / (area > 0 ? area : 1) / 255);
        }
}

static int inside(int i)
{
    return i < 0 ? 0 : i >= GRID ? GRID - 1 : i;
}

/* 1 2 1 over 4 along rows and columns, twice; the edges repeat. */
static void low_pass(float *rgb)
{
    float *other = text_alloc(PIXELS * 3 * sizeof *other);
    for (int pass = 0; pass < 4; pass++) {
        for (int y = 0; y < GRID; y++)
            for (int x = 0; x < GRID; x++)
                for (int c = 0; c < 3; c++) {
                    int dy = pass % 2, dx = 1 - dy;
                    const float *a = rgb + (inside(y - dy) * GRID + inside(x - dx)) * 3,
                                *b = rgb + (y * GRID + x) * 3,
                                *d = rgb + (inside(y + dy) * GRID + inside(x + dx)) * 3;
                    other[(y * GRID + x) * 3 + c] = (a[c] + 2 * b[c] + d[c]) / 4;
                }
        memcpy(rgb, other, PIXELS * 3 * sizeof *other);
    }
    free(other);
}

/* Mean square over columns from to end - 1, the smallest of all small moves of the second picture. */
static double distance(const float *picture, const float *moved, int from, int end)
{
    double best = INFINITY;
    for (int dy = -SHIFT; dy <= SHIFT; dy++)
        for (int dx = -SHIFT; dx <= SHIFT; dx++) {
            double sum = 0;
            for (int y = 0; y < GRID; y++)
                for (int x = from; x < end; x++) {
                    const float *a = picture + (y * GRID + x) * 3;
                    const float *b = moved + (inside(y + dy) * GRID + inside(x + dx)) * 3;
                    for (int c = 0; c < 3; c++)
                        sum += (double)(a[c] - b[c]) * (double)(a[c] - b[c]);
                }
            if (sum < best) best = sum;
        }
    return best;
}

/* The rank of the wish's object in a slot (1: nearest); *nearest is the object that is. */
static size_t rank_of(const struct truth *t, const struct wish *wish, size_t slot,
                      const float *picture, size_t *nearest)
{
    float *other = text_alloc(PIXELS * 3 * sizeof *other);
    double *distances = text_alloc(t->n_objects * sizeof *distances);
    int from = wish->layout == PAIR && slot == 1 ? GRID / 2 : 0;
    int end = wish->layout == PAIR && slot == 0 ? GRID / 2 : GRID;
    size_t rank = 1;
    *nearest = wish->objects[slot];
    for (size_t i = 0; i < t->n_objects; i++) {
        draw(t, wish, i, slot, other);
        low_pass(other);
        distances[i] = distance(picture, other, from, end);
    }
    for (size_t i = 0; i < t->n_objects; i++) {
        if (distances[i] < distances[wish->objects[slot]]) rank++;
        if (distances[i] < distances[*nearest]) *nearest = i;
    }
    free(distances);
    free(other);
    return rank;
}

void truth_judge(const struct truth *t, const char *prompt, const struct dk_image *image,
                 struct truth_answer *answer)
{
    struct wish wish;
    *answer = (struct truth_answer){.background = -1};
    bool known = read_prompt(t, prompt, &wish);
    size_t colour = known ? wish.colour : named_background(t, prompt);
    if (colour != TRUTH_NONE) answer->background = seen_background(t, image) == colour;
    if (!known) return;
    float *picture = text_alloc(PIXELS * 3 * sizeof *picture);
    shrink(image, picture);
    low_pass(picture);
    for (size_t slot = 0; slot < wish.n; slot++) {
        size_t nearest, rank = rank_of(t, &wish, slot, picture, &nearest);
        answer->nearest[slot] = t->objects[nearest].names[0];
        if (rank > answer->rank) answer->rank = rank;
    }
    free(picture);
}
