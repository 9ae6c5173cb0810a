/* json.h - JSON from files nobody vouches for. */
/* SPDX-License-Identifier: MIT */
#ifndef FILES_JSON_H
#define FILES_JSON_H

#include "base/error.h"

#include <jansson.h>

/*
 * Parses an object: duplicate keys, nesting beyond max_depth, NUL characters and anything after it
 * are refused. subject starts the message ("model/unet/config.json"). NULL on failure; the caller
 * frees with json_decref.
 */
json_t *json_object_parse(const char *text, size_t size_bytes, int max_depth, const char *subject,
                          struct dk_error *err);

/* The same from a file of at most max_bytes. */
json_t *json_object_read(const char *path, size_t max_bytes, int max_depth, struct dk_error *err);

#endif
