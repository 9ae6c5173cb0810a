/* output.h - where files go: names from templates, numbers against collisions, early checks. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include "options.h"

/*
 * A template is a path with fields in braces: {index} (from 1), {model} and every setting by its
 * option's name, as {seed}, {steps}, {prompt}, {size}. {index:04} pads with zeros, {prompt:40}
 * keeps 40 characters. {{ and }} are braces. What a field inserts holds no character that is
 * special to a file system: each run of them becomes one dash.
 */

/* Checks the request's output before anything runs: fields, kind of file. */
bool output_check(const struct request *request, struct dk_error *err);

/*
 * The path of picture index (from 1) of request->count; settings must be resolved. An existing
 * folder gets the default name in it; several pictures under one fixed name get "-{index}". Free
 * it.
 */
char *output_name(const struct request *request, const char *model_name, int index,
                  struct dk_error *err);

/* True if a file could be made there: the folder exists and is writable, the name is not that of a
 * device or folder. */
bool output_probe(const char *path, struct dk_error *err);

/* The name of a folder without slashes at its end. Free it. */
char *output_folder(const char *output);

/*
 * Hands out path, then "name-2.ext", "name-3.ext" and so on: the first that write(user, name,
 * overwrite, err) does not find taken. With force the path itself is replaced. Returns the name
 * written, to be freed; NULL on failure.
 */
typedef bool output_writer(void *user, const char *path, bool overwrite, struct dk_error *err);
char *output_write(const char *path, bool force, output_writer *write, void *user,
                   struct dk_error *err);

#endif
