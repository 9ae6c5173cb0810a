/* checktruth.c - which object a picture shows, by the art that a model brings. */
/* SPDX-License-Identifier: MIT */
#include "check.h"
#include "compare_truth.h"
#include "scratch.h"

#include <jansson.h>
#include <string.h>
#include <unistd.h>

#define MODEL "models/emoji"
#define SIDE  128

static struct dk_image sheet;
static json_t *facts;

/* The model's own file; its text as JSON. */
static bool read_file(void)
{
    struct dk_texts texts;
    struct dk_error err = {0};
    if (!dk_png_read(MODEL "/" TRUTH_NAME, &sheet, &texts, &err)) {
        printf("%s\n", err.message);
        return false;
    }
    for (size_t i = 0; i < texts.n_items; i++)
        if (strcmp(texts.items[i].keyword, "darkroom-references") == 0)
            facts = json_loads(texts.items[i].text, 0, NULL);
    dk_texts_free(&texts);
    return facts != NULL;
}

static int fact(const char *name)
{
    return (int)json_integer_value(json_object_get(facts, name));
}

/* The object's number by its first name. */
static int object_of(const char *name)
{
    size_t i;
    const json_t *item;
    json_array_foreach(json_object_get(facts, "objects"), i, item)
    {
        const json_t *names = json_object_get(item, "names");
        if (strcmp(json_string_value(json_array_get(names, 0)), name) == 0) return (int)i;
    }
    CHECK(false, "no object %s", name);
    return 0;
}

static struct dk_image ground(int r, int g, int b)
{
    struct dk_image image = {SIDE, SIDE, malloc(3 * SIDE * SIDE)};
    const int rgb[] = {r, g, b};
    if (!image.rgb) exit(1);
    for (int i = 0; i < 3 * SIDE * SIDE; i++) image.rgb[i] = (uint8_t)rgb[i % 3];
    return image;
}

/* Puts an object there, size pixels wide around (cx, cy), by the nearest pixels of its tile. */
static void paste(struct dk_image *image, int object, int size, int cx, int cy, bool gray)
{
    int tile = fact("tile"), columns = fact("columns");
    for (int y = 0; y < size; y++)
        for (int x = 0; x < size; x++) {
            int v = cy - size / 2 + y, u = cx - size / 2 + x;
            if (u < 0 || v < 0 || u >= SIDE || v >= SIDE) continue;
            int row = object / columns * tile + y * tile / size,
                column = object % columns * tile + x * tile / size;
            const uint8_t *art = sheet.rgb + 3 * (row * sheet.width_px + column);
            int alpha = art[3 * sheet.height_px / 2 * sheet.width_px];
            uint8_t *out = image->rgb + 3 * (v * SIDE + u);
            for (int c = 0; c < 3; c++) {
                int value = gray ? (299 * art[0] + 587 * art[1] + 114 * art[2]) / 1000 : art[c];
                out[c] = (uint8_t)(out[c] * (255 - alpha) / 255 + value);
            }
        }
}

/* rank and background as expected: rank 0 is not understood, -1 any but the first. */
static void expect(const struct truth *t, const struct dk_image *image, const char *prompt,
                   int rank, int background)
{
    struct truth_answer answer;
    truth_judge(t, prompt, image, &answer);
    CHECK(rank < 0 ? answer.rank > 1 : (int)answer.rank == rank, "\"%s\": rank %zu, nearest %s",
          prompt, answer.rank, answer.nearest[0] ? answer.nearest[0] : "-");
    CHECK(answer.background == background, "\"%s\": background %d", prompt, answer.background);
    CHECK((answer.nearest[0] != NULL) == (answer.rank > 0), "\"%s\"", prompt);
}

static void check_objects(const struct truth *t)
{
    size_t i;
    const json_t *item;
    json_array_foreach(json_object_get(facts, "objects"), i, item)
    {
        const json_t *names = json_object_get(item, "names"), *name;
        size_t k;
        struct dk_image image = ground(150, 205, 245);
        paste(&image, (int)i, 104, 65, 63, false);
        json_array_foreach(names, k, name)
        {
            char prompt[128];
            snprintf(prompt, sizeof prompt, "a %s on a light blue background",
                     json_string_value(name));
            expect(t, &image, prompt, 1, 1);
        }
        dk_image_free(&image);
    }
    CHECK(i >= 54, "%zu objects", i);
}

static void check_prompts(const struct truth *t)
{
    struct dk_image image = ground(35, 85, 200);
    int fox = object_of("fox"), cat = object_of("cat face");
    paste(&image, fox, 106, 64, 64, false);
    expect(t, &image, "a fox on a blue background", 1, 1);
    expect(t, &image, "  A  fox on\ta Blue background. ", 1, 1);
    expect(t, &image, "a fox, blue background", 1, 1);
    expect(t, &image, "fox on blue", 1, 1);
    expect(t, &image, "a fox face on a light blue background", 1, 0);
    expect(t, &image, "a cat on a blue background", -1, 1);
    expect(t, &image, "a castle on a blue background", 0, 1);
    expect(t, &image, "a castle on a light blue background at night", 0, 0);
    expect(t, &image, "a castle", 0, -1);
    expect(t, &image, "a background", 0, -1);
    expect(t, &image, "on a blue background", 0, 1);
    expect(t, &image, "", 0, -1);
    expect(t, &image, " and ", 0, -1);
    expect(t, &image, "two", 0, -1);
    expect(t, &image, "a small fox in the moon on a blue background", 0, 1);
    char *endless = malloc(100001);
    memset(endless, 'a', 100000);
    endless[100000] = 0;
    expect(t, &image, endless, 0, -1);
    free(endless);
    dk_image_free(&image);

    image = ground(255, 255, 255);
    paste(&image, fox, 106, 64, 64, false);
    expect(t, &image, "a fox", 1, 1); /* nothing said means white */
    expect(t, &image, "fox face on a white background", 1, 1);
    dk_image_free(&image);

    image = ground(255, 255, 255);
    paste(&image, fox, 58, 34, 94, false);
    expect(t, &image, "a small fox in the bottom left", 1, 1);
    expect(t, &image, "a tiny fox at the bottom left on white", 1, 1);
    expect(t, &image, "a little cat in the bottom left", -1, 1);
    dk_image_free(&image);

    image = ground(255, 255, 255);
    paste(&image, cat, 147, 64, 64, false);
    expect(t, &image, "a huge cat", 1, 1);
    expect(t, &image, "a big fox on a white background", -1, 1);
    dk_image_free(&image);

    image = ground(60, 160, 70);
    paste(&image, fox, 59, 33, 64, false);
    paste(&image, cat, 59, 95, 64, false);
    expect(t, &image, "a fox and a cat on a green background", 1, 1);
    expect(t, &image, "a cat and a fox on a green background", -1, 1);
    expect(t, &image, "a fox and a dog on a green background", -1, 1);
    dk_image_free(&image);

    image = ground(60, 160, 70);
    paste(&image, fox, 59, 33, 64, false);
    paste(&image, fox, 59, 95, 64, false);
    expect(t, &image, "two foxes side by side on a green background", 1, 1);
    expect(t, &image, "two of fox, green background", 1, 1);
    expect(t, &image, "two cats on green", -1, 1);
    dk_image_free(&image);

    image = ground(255, 255, 255);
    paste(&image, fox, 106, 64, 64, true);
    expect(t, &image, "a black and white fox", 1, 1);
    dk_image_free(&image);

    image = (struct dk_image){7, 300, calloc(3, 7 * 300)};
    expect(t, &image, "a fox on a black background", 0, 1);
    dk_image_free(&image);
}

/* ---- files that are damaged ------------------------------------------------------------------ */

static void write_file(const json_t *text, const struct dk_image *image)
{
    char *words = json_dumps(text, JSON_ENCODE_ANY);
    struct dk_text chunk = {(char[]){"darkroom-references"}, words};
    struct dk_error err = {0};
    CHECK(dk_png_write(in(TRUTH_NAME).s, image, &chunk, 1, true, &err), "%s", err.message);
    free(words);
}

static void expect_file(bool good, const char *what)
{
    struct dk_error err = {0};
    struct truth *t = truth_open(folder, &err);
    CHECK((t != NULL) == good && (good || strstr(err.message, TRUTH_NAME)), "%s: %s", what,
          err.message);
    truth_free(t);
}

/* Every value in turn, at every depth, becomes something else; nothing may crash, and what is
 * needed must be missed. */
static void spoil(json_t *root, json_t *at, size_t *n)
{
    json_t *const others[] = {json_null(),     json_integer(-1), json_real(1e300),
                              json_string(""), json_array(),     json_object()};
    size_t count = json_is_object(at) ? json_object_size(at) : json_array_size(at);
    for (size_t i = 0; i < count && i < 6; i++) {
        void *it = json_is_object(at) ? json_object_iter(at) : NULL;
        for (size_t k = 0; it && k < i; k++) it = json_object_iter_next(at, it);
        const char *key = it ? json_object_iter_key(it) : NULL;
        json_t *kept = json_incref(key ? json_object_get(at, key) : json_array_get(at, i));
        if (json_is_object(kept) || json_is_array(kept)) spoil(root, kept, n);
        for (size_t k = 0; k < 6; k++) {
            struct dk_error err = {0};
            if (key)
                json_object_set(at, key, others[k]);
            else
                json_array_set(at, i, others[k]);
            write_file(root, &sheet);
            struct truth *t = truth_open(folder, &err);
            struct truth_answer answer;
            struct dk_image image = ground(0, 0, 0);
            if (t && *n % 16 == 0)
                truth_judge(t, "a small fox in the left on red", &image, &answer);
            dk_image_free(&image);
            truth_free(t);
            ++*n;
        }
        if (key)
            json_object_set(at, key, kept);
        else
            json_array_set(at, i, kept);
        json_decref(kept);
    }
    for (size_t k = 0; k < 6; k++) json_decref(others[k]);
}

static void without(const char *key)
{
    json_t *copy = json_copy(facts);
    json_object_del(copy, key);
    write_file(copy, &sheet);
    expect_file(strcmp(key, "styles") == 0, key);
    json_decref(copy);
}

/* Another type where a list or an object belongs; the key is told. */
static void check_types(void)
{
    static const char *const keys[] = {"styles", "objects"};
    for (size_t i = 0; i < 2; i++) {
        json_t *copy = json_deep_copy(facts),
               *first = json_array_get(json_object_get(copy, "objects"), 0);
        struct dk_error err = {0};
        if (i == 0)
            json_object_set_new(copy, keys[i], json_string("gray"));
        else
            json_object_set_new(first, "plurals", json_string("foxes"));
        write_file(copy, &sheet);
        expect_file(false, keys[i]);
        CHECK(!truth_open(folder, &err) && strstr(err.message, keys[i]), "%s: %s", keys[i],
              err.message);
        json_decref(copy);
    }
}

static void check_damage(void)
{
    static const char *const keys[] = {"schema", "canvas", "tile",  "columns", "objects", "colours",
                                       "plain",  "large",  "small", "pair",    "two",     "styles"};
    struct dk_image small = {8, 8, calloc(3, 64)};
    size_t n = 0;
    scratch_open("checktruth");
    struct dk_error err = {0};
    CHECK(!truth_open(folder, &err) && err.code == DK_OK, "no file: %s", err.message);
    CHECK(symlink("gone", in(TRUTH_NAME).s) == 0, "no link");
    CHECK(!truth_open(folder, &err) && strstr(err.message, "is a link to gone"), "%s", err.message);
    CHECK(unlink(in(TRUTH_NAME).s) == 0, "the link stays");
    err = (struct dk_error){0};
    write_file(facts, &sheet);
    expect_file(true, "a copy");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) without(keys[i]);
    check_types();
    write_file(facts, &small);
    expect_file(false, "a picture of another size");
    write_file(json_null(), &sheet);
    expect_file(false, "null");
    CHECK(dk_png_write(in(TRUTH_NAME).s, &small, NULL, 0, true, &err), "%s", err.message);
    expect_file(false, "no text");
    FILE *out = fopen(in(TRUTH_NAME).s, "wb");
    if (!out) exit(1);
    fputs("\x89PNG", out);
    fclose(out);
    expect_file(false, "no PNG");
    json_t *copy = json_deep_copy(facts);
    json_object_set_new(copy, "objects", json_array());
    json_array_append(json_object_get(copy, "objects"),
                      json_array_get(json_object_get(facts, "objects"), 0));
    json_object_set_new(copy, "columns", json_integer(1));
    json_object_set_new(copy, "tile", json_integer(8));
    struct dk_image two = {8, 16, calloc(3, 8 * 16)};
    struct dk_image kept = sheet;
    sheet = two; /* so that each of many files is small */
    write_file(copy, &sheet);
    expect_file(true, "one object");
    spoil(copy, copy, &n);
    CHECK(n > 200, "%zu files", n);
    sheet = kept;
    dk_image_free(&two);
    dk_image_free(&small);
    json_decref(copy);
    scratch_close();
}

int main(void)
{
    if (!read_file()) {
        CHECK(false, "no " MODEL "/" TRUTH_NAME);
        return check_end("checktruth");
    }
    struct dk_error err = {0};
    struct truth *t = truth_open(MODEL, &err);
    CHECK(t, "%s", err.message);
    if (t) check_objects(t);
    if (t) check_prompts(t);
    check_damage();
    truth_free(t);
    dk_image_free(&sheet);
    json_decref(facts);
    return check_end("checktruth");
}
