/* scales.c - fp8 weights whose scales lie in tensors beside them. */
/* SPDX-License-Identifier: MIT */
#include "files/scales.h"

#include "kernels/dtype.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum role { NONE, SCALE, QUANT_NOTE, INERT };

static const struct {
    const char *ending;
    enum role role;
} endings[] = {
    {".scale_weight", SCALE}, {".weight_scale", SCALE}, {".scale_input", INERT},
    {".input_scale", INERT},  {".scaled_fp8", INERT},   {".comfy_quant", QUANT_NOTE},
};

static size_t before_ending(const char *name, const char *ending)
{
    size_t n = strlen(name), m = strlen(ending);
    return n > m && strcmp(name + n - m, ending) == 0 ? n - m : 0;
}

/* What a tensor is by its name; *stem becomes the bytes of the layer's name. */
static enum role role_of(const char *name, size_t *stem)
{
    if (strcmp(name, "scaled_fp8") == 0) return INERT;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        *stem = before_ending(name, endings[i].ending);
        if (*stem) return endings[i].role;
    }
    return NONE;
}

bool scales_is_marker(const char *name)
{
    return strcmp(name, "scaled_fp8") == 0 || before_ending(name, ".scaled_fp8") > 0;
}

static bool is_fp8(enum dtype dtype)
{
    return dtype == DTYPE_F8_E4M3 || dtype == DTYPE_F8_E5M2;
}

static bool is_plain_float(enum dtype dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16 || dtype == DTYPE_F64;
}

/* The tensor's one number. */
static bool read_scale(const struct weights *w, const struct weight *scale, float *out,
                       struct dk_error *err)
{
    if (weights_value_count(scale) != 1)
        return dk_fail(err, DK_ERROR_UNSUPPORTED,
                       "%s: tensor %s has %zu values: fp8 weights with a scale for each row or "
                       "block are not read, only with one a tensor; get the model in f16",
                       w->path, scale->name, weights_value_count(scale));
    if (!is_plain_float(scale->dtype))
        return dk_fail(err, DK_ERROR_UNSUPPORTED,
                       "%s: tensor %s is of type %s, expected a scale in f32; get the model in f16",
                       w->path, scale->name, weights_dtype_name(scale->dtype));
    dtype_unpack(scale->dtype, out, scale->data, 1);
    return (*out > 0 && isfinite(*out)) ||
           dk_fail(err, DK_ERROR_FORMAT, "%s: tensor %s is %g, expected a number above 0", w->path,
                   scale->name, (double)*out);
}

/* {"format": "float8_e4m3fn"} as bytes; other formats are packed in other ways. */
static bool check_note(const struct weights *w, const struct weight *note, struct dk_error *err)
{
    static const char wanted[] = "\"float8_";
    const char *text = note->data;
    size_t n = weights_byte_count(note), m = sizeof wanted - 1;
    for (size_t i = 0; i + m <= n; i++)
        if (memcmp(text + i, wanted, m) == 0) return true;
    return dk_fail(err, DK_ERROR_UNSUPPORTED,
                   "%s: tensor %s names a packing other than fp8, which is not read; get the model "
                   "in f16",
                   w->path, note->name);
}

static int by_name(const void *a, const void *b)
{
    const struct weight *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Every tensor, in order of names. Free it. */
static struct weight **sorted(struct weights *w, struct dk_error *err)
{
    struct weight **list = malloc((w->n_items + 1) * sizeof *list);
    if (!list) {
        dk_fail(err, DK_ERROR_MEMORY, "%s: out of memory while reading its tensor list", w->path);
        return NULL;
    }
    for (size_t i = 0; i < w->n_items; i++) list[i] = &w->items[i];
    qsort(list, w->n_items, sizeof *list, by_name);
    return list;
}

/* The weight of the layer whose name is the first stem bytes of a scale's. */
static bool apply(struct weights *w, struct weight **list, const struct weight *scale, size_t stem,
                  struct dk_error *err)
{
    char name[WEIGHTS_MAX_NAME + 16];
    memcpy(name, scale->name, stem); /* names have at most WEIGHTS_MAX_NAME bytes */
    strcpy(name + stem, ".weight");
    struct weight wanted = {.name = name}, *key = &wanted;
    struct weight **found = bsearch(&key, list, w->n_items, sizeof *list, by_name);
    float value;
    if (!found)
        return dk_fail(err, DK_ERROR_FORMAT, "%s: tensor %s scales %s, which is not there", w->path,
                       scale->name, name);
    if (!is_fp8((*found)->dtype) && !is_plain_float((*found)->dtype))
        return dk_fail(err, DK_ERROR_UNSUPPORTED,
                       "%s: tensor %s is of type %s with a scale of its own, which is not read; "
                       "get the model in f16",
                       w->path, name, weights_dtype_name((*found)->dtype));
    if (!read_scale(w, scale, &value, err)) return false;
    if ((*found)->scale > 0)
        return dk_fail(err, DK_ERROR_FORMAT, "%s: tensor %s has two scales", w->path, name);
    (*found)->scale = value;
    return true;
}

bool scales_apply(struct weights *w, struct dk_error *err)
{
    size_t stem = 0, n_kept = 0, n_roles = 0;
    for (size_t i = 0; i < w->n_items; i++) n_roles += role_of(w->items[i].name, &stem) != NONE;
    if (n_roles == 0) return true;
    struct weight **list = sorted(w, err);
    if (!list) return false;
    bool ok = true;
    for (size_t i = 0; ok && i < w->n_items; i++) {
        const struct weight *t = &w->items[i];
        enum role role = role_of(t->name, &stem);
        if (role == SCALE) ok = apply(w, list, t, stem, err);
        if (role == QUANT_NOTE) ok = check_note(w, t, err);
        if (ok && role != NONE) ok = weights_add_ignored(w, t->name, err);
    }
    free(list);
    if (!ok) return false;
    for (size_t i = 0; i < w->n_items; i++)
        if (role_of(w->items[i].name, &stem) == NONE) w->items[n_kept++] = w->items[i];
    w->n_items = n_kept;
    return true;
}
