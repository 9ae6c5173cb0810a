/* compare_truth.c - what a picture should show, by the art that the model brings. */
/* SPDX-License-Identifier: MIT */
#include "compare_truth.h"

#include "say.h"
#include "text.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define KEYWORD "darkroom-references"
#define SCHEMA  "darkroom-references-1"
#define GRID    64
#define SHIFT   1
#define PIXELS  (GRID * GRID)

struct truth {
    json_t *json; /* owns the words */
    struct captions captions;
    size_t tile;
    float *art; /* [n_objects, tile, tile, 4] premultiplied, 0 to 1 */
};

/* ---- reading ------------------------------------------------------------------------------- */

/* The tiles of the sheet: colours above, opacities below. */
static bool read_art(struct truth *t, const json_t *root, const struct dk_image *sheet)
{
    double tile = json_number_value(json_object_get(root, "tile")),
           columns = json_number_value(json_object_get(root, "columns"));
    if (!(tile >= 8 && tile <= 512 && columns >= 1 && columns <= 64) || tile != floor(tile) ||
        columns != floor(columns))
        return false;
    size_t side = t->tile = (size_t)tile, across = (size_t)columns;
    size_t rows = (t->captions.n_objects + across - 1) / across, width = side * across;
    if ((size_t)sheet->width_px != width || (size_t)sheet->height_px != 2 * rows * side)
        return false;
    t->art = text_alloc(t->captions.n_objects * side * side * 4 * sizeof *t->art);
    float *out = t->art;
    for (size_t i = 0; i < t->captions.n_objects; i++)
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

static bool read_all(struct truth *t, const struct dk_image *sheet, const char *path,
                     struct dk_error *err)
{
    const json_t *root = t->json;
    const char *schema = json_string_value(json_object_get(root, "schema"));
    if (schema && strcmp(schema, SCHEMA) == 0 && !captions_read(&t->captions, root))
        return say_fail(err, DK_ERROR_FORMAT,
                        "%s: in its " SCHEMA " text \"%s\" is not as expected; take the file that "
                        "belongs to the model, or remove it",
                        path, t->captions.fault);
    if (schema && strcmp(schema, SCHEMA) == 0 && read_art(t, root, sheet)) return true;
    return say_fail(err, DK_ERROR_FORMAT,
                    "%s: found no " SCHEMA " text that fits the picture; take the file that "
                    "belongs to the model, or remove it",
                    path);
}

struct truth *truth_open(const char *model, struct dk_error *err)
{
    char *path = text_format("%s/" TRUTH_NAME, model);
    struct dk_image sheet = {0};
    struct dk_texts texts = {0};
    struct truth *t = NULL;
    struct stat status; /* lstat: a link to nothing is told by the reader */
    if (lstat(path, &status) == 0 && dk_png_read(path, &sheet, &texts, err)) {
        t = text_alloc(sizeof *t);
        *t = (struct truth){.json = NULL};
        for (size_t i = 0; i < texts.n_items && !t->json; i++)
            if (strcmp(texts.items[i].keyword, KEYWORD) == 0)
                t->json = json_loads(texts.items[i].text, JSON_REJECT_DUPLICATES, NULL);
        if (!read_all(t, &sheet, path, err)) {
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
    captions_free(&t->captions);
    free(t->art);
    free(t);
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
    for (size_t i = 0; i < t->captions.n_colours; i++) {
        double d = 0;
        for (int c = 0; c < 3; c++)
            d += (t->captions.rgb[i][c] - median[c]) * (t->captions.rgb[i][c] - median[c]);
        if (d < nearest) best = i;
        if (d < nearest) nearest = d;
    }
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
 * grid pixel i, by a triangle that is as wide as the larger of the two pixels. Beyond the line
 * there is nothing.
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
static void paste(const struct truth *t, float *rgb, size_t object, double size,
                  struct point center, enum style style, double ink)
{
    const float *art = t->art + object * t->tile * t->tile * 4;
    int n = (int)t->tile;
    double unit = GRID / t->captions.canvas, side = size * unit;
    struct span across[GRID];
    for (int x = 0; x < GRID; x++) make_span(&across[x], x, center.x * unit - side / 2, side, n);
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

/* The picture of a caption with another object in its place; of a pair only the slot's half counts.
 */
static void draw(const struct truth *t, const struct caption *caption, size_t object, size_t slot,
                 float *rgb)
{
    const struct layout_data *l = &t->captions.layouts[caption->layout];
    const double *ground = t->captions.rgb[caption->colour];
    double luma = (.299 * ground[0] + .587 * ground[1] + .114 * ground[2]) / 255;
    double ink = luma > .35 ? .08 : .95; /* data.py: a silhouette is dark on light, else light */
    for (int i = 0; i < PIXELS * 3; i++) rgb[i] = (float)(ground[i % 3] / 255);
    for (size_t k = 0; k < (l->n_at ? l->n_at : 1); k++) {
        if (caption->layout == PAIR && k != slot) continue;
        paste(t, rgb, object, l->size, l->n_at ? l->at[k] : caption->at, caption->style, ink);
    }
}

/* ---- distances ------------------------------------------------------------------------------ */

/* The picture as means over the pixels under each of the grid's. */
static void shrink(const struct dk_image *image, float *rgb)
{
    for (int y = 0; y < GRID; y++)
        for (int x = 0; x < GRID; x++) {
            double sum[3] = {0, 0, 0}, area = 0;
            double top = (double)y * image->height_px / GRID,
                   bottom = (double)(y + 1) * image->height_px / GRID,
                   left = (double)x * image->width_px / GRID,
                   right = (double)(x + 1) * image->width_px / GRID;
            for (int v = (int)top; v < image->height_px && v < bottom; v++)
                for (int u = (int)left; u < image->width_px && u < right; u++) {
                    double w =
                        (fmin(v + 1, bottom) - fmax(v, top)) * (fmin(u + 1, right) - fmax(u, left));
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

/* Mean square over columns from to end - 1, the smallest of all small moves of the second picture.
 */
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

/* The rank of the caption's object in a slot (1: nearest); *nearest is the object that is. */
static size_t rank_of(const struct truth *t, const struct caption *caption, size_t slot,
                      const float *picture, size_t *nearest)
{
    float *other = text_alloc(PIXELS * 3 * sizeof *other);
    double *distances = text_alloc(t->captions.n_objects * sizeof *distances);
    int from = caption->layout == PAIR && slot == 1 ? GRID / 2 : 0;
    int end = caption->layout == PAIR && slot == 0 ? GRID / 2 : GRID;
    size_t rank = 1;
    *nearest = caption->objects[slot];
    for (size_t i = 0; i < t->captions.n_objects; i++) {
        draw(t, caption, i, slot, other);
        low_pass(other);
        distances[i] = distance(picture, other, from, end);
    }
    for (size_t i = 0; i < t->captions.n_objects; i++) {
        if (distances[i] < distances[caption->objects[slot]]) rank++;
        if (distances[i] < distances[*nearest]) *nearest = i;
    }
    free(distances);
    free(other);
    return rank;
}

void truth_judge(const struct truth *t, const char *prompt, const struct dk_image *image,
                 struct truth_answer *answer)
{
    struct caption caption;
    *answer = (struct truth_answer){.background = -1};
    bool known = caption_read(&t->captions, prompt, &caption);
    size_t colour = known ? caption.colour : caption_background(&t->captions, prompt);
    if (colour != CAPTION_NONE) answer->background = seen_background(t, image) == colour;
    if (!known || image->width_px != image->height_px) return; /* trained on squares */
    float *picture = text_alloc(PIXELS * 3 * sizeof *picture);
    shrink(image, picture);
    low_pass(picture);
    for (size_t slot = 0; slot < caption.n; slot++) {
        size_t nearest, rank = rank_of(t, &caption, slot, picture, &nearest);
        answer->nearest[slot] = t->captions.objects[nearest].names[0];
        if (rank > answer->rank) answer->rank = rank;
    }
    free(picture);
}
