/* fields.c - typed fields of a JSON object from a file nobody vouches for. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/fields.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const json_t *fields_value(const struct fields *f, const char *key)
{
    const json_t *value = json_object_get(f->object, key);
    return json_is_null(value) ? NULL : value;
}

static bool refuse(const struct fields *f, enum dk_code code, const char *key, const char *expected)
{
    char *found = json_dumps(json_object_get(f->object, key), JSON_ENCODE_ANY | JSON_COMPACT);
    dk_fail(f->err, code, "%s: \"%s\" is %.80s, expected %s", f->subject, key,
            found ? found : "missing", expected);
    free(found);
    return false;
}

bool fields_fail(const struct fields *f, const char *key, const char *expected)
{
    return refuse(f, DK_ERROR_FORMAT, key, expected);
}

void fields_bool(const struct fields *f, const char *key, bool *out)
{
    const json_t *value = fields_value(f, key);
    if (!value) return;
    if (json_is_boolean(value))
        *out = json_is_true(value);
    else
        fields_fail(f, key, "true or false");
}

/* Whole numbers are also accepted as 8.0, which some writers make of 8. */
static bool whole(const json_t *value, int low, int high, int *out)
{
    double number = json_is_number(value) ? json_number_value(value) : NAN;
    if (!(number >= low && number <= high) || number != floor(number)) return false;
    *out = (int)number;
    return true;
}

void fields_int(const struct fields *f, const char *key, int low, int high, int *out)
{
    const json_t *value = fields_value(f, key);
    if (!value || whole(value, low, high, out)) return;
    char expected[80];
    snprintf(expected, sizeof expected, "a whole number from %d to %d", low, high);
    fields_fail(f, key, expected);
}

void fields_number(const struct fields *f, const char *key, double low, double high, double *out)
{
    const json_t *value = fields_value(f, key);
    if (!value) return;
    double number = json_is_number(value) ? json_number_value(value) : NAN;
    if (number >= low && number <= high) {
        *out = number;
        return;
    }
    char expected[80];
    snprintf(expected, sizeof expected, "a number from %g to %g", low, high);
    fields_fail(f, key, expected);
}

void fields_ints(const struct fields *f, const char *key, int low, int high, int n, int *out)
{
    const json_t *value = fields_value(f, key);
    if (!value) return;
    bool list = json_is_array(value);
    bool fits = !list || json_array_size(value) == (size_t)n;
    for (int i = 0; fits && i < n; i++)
        fits = whole(list ? json_array_get(value, (size_t)i) : value, low, high, &out[i]);
    if (fits) return;
    char expected[120];
    snprintf(expected, sizeof expected, "a whole number from %d to %d or a list of %d", low, high,
             n);
    fields_fail(f, key, expected);
}

int fields_length(const struct fields *f, const char *key, int max)
{
    const json_t *value = fields_value(f, key);
    if (!value) return -1;
    size_t n = json_array_size(value);
    if (json_is_array(value) && n >= 1 && n <= (size_t)max) return (int)n;
    char expected[80];
    snprintf(expected, sizeof expected, "a list of 1 to %d", max);
    fields_fail(f, key, expected);
    return -1;
}

const char *fields_word(const struct fields *f, const char *key, size_t i)
{
    const json_t *value = fields_value(f, key);
    return json_string_value(json_is_array(value) ? json_array_get(value, i)
                             : i == 0             ? value
                                                  : NULL);
}

void fields_only(const struct fields *f, const char *key, const char *allowed)
{
    const json_t *value = json_object_get(f->object, key);
    if (!value) return;
    char *found = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    size_t length = found ? strlen(found) : 0;
    for (const char *at = allowed; found; at++) {
        size_t n = strcspn(at, "|");
        if (n == length && memcmp(at, found, n) == 0) {
            free(found);
            return;
        }
        at += n;
        if (*at == '\0') break;
    }
    free(found);
    char expected[120];
    snprintf(expected, sizeof expected, "%s: networks of another kind are not supported", allowed);
    refuse(f, DK_ERROR_UNSUPPORTED, key, expected);
}
