/* json.c - JSON from files nobody vouches for. */
/* SPDX-License-Identifier: MIT */
#include "files/json.h"

#include "files/map.h"

/* How deep brackets nest outside strings: jansson recurses, so depth is bounded before. */
static int nesting(const char *text, size_t size_bytes)
{
    int depth = 0, deepest = 0;
    bool in_string = false;
    for (size_t i = 0; i < size_bytes; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > deepest) deepest = depth;
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return deepest;
}

json_t *json_object_parse(const char *text, size_t size_bytes, int max_depth, const char *subject,
                          struct dk_error *err)
{
    int depth = nesting(text, size_bytes);
    if (depth > max_depth) {
        dk_fail(err, DK_ERROR_FORMAT, "%s: the JSON nests %d levels deep, expected at most %d",
                subject, depth, max_depth);
        return NULL;
    }
    json_error_t why;
    json_t *root = json_loadb(text, size_bytes, JSON_REJECT_DUPLICATES, &why);
    /* jansson says nothing at all where it got no memory for a value. */
    bool no_memory =
        !root && (json_error_code(&why) == json_error_out_of_memory || why.text[0] == 0);
    if (no_memory) {
        dk_fail(err, DK_ERROR_MEMORY, "%s: out of memory while reading its JSON", subject);
        return NULL;
    }
    if (!root) {
        dk_fail(err, DK_ERROR_FORMAT,
                "%s: the JSON is damaged at line %d, column %d: %s; copy or download it again",
                subject, why.line, why.column, why.text);
        return NULL;
    }
    if (!json_is_object(root)) {
        json_decref(root);
        dk_fail(err, DK_ERROR_FORMAT, "%s: the JSON is not an object; is it the right file?",
                subject);
        return NULL;
    }
    return root;
}

json_t *json_object_read(const char *path, size_t max_bytes, int max_depth, struct dk_error *err)
{
    struct map map;
    if (!map_open(&map, path, err)) return NULL;
    json_t *root = NULL;
    if (map.size_bytes > max_bytes)
        dk_fail(err, DK_ERROR_FORMAT,
                "%s: %zu bytes of JSON, expected at most %zu; is it the right file?", path,
                map.size_bytes, max_bytes);
    else
        root = json_object_parse((const char *)map.data, map.size_bytes, max_depth, path, err);
    map_close(&map);
    return root;
}
