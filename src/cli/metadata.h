/* metadata.h - how a picture was made, written into it and read back. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_METADATA_H
#define CLI_METADATA_H

/*
 *   struct request ─┬─> "darkroom"    exact JSON, settings under their options' names ─> the same
 *                   └─> "parameters"  A1111's text, which other programs understand   ─> about that
 *
 * Both depend on the settings, the model and the kernels alone: no date, no file name, no thread
 * count, so that a picture made again from its own record has the same bytes. docs/metadata.md
 * describes both for users.
 */

#include "identity.h"
#include "options.h"

/* What is known about the model beside the request. */
struct provenance {
    char *model_name;
    char fingerprint[FINGERPRINT_BYTES]; /* "" when it could not be computed */
};

/* The object of the "darkroom" chunk. request->settings must be resolved. A new reference. */
json_t *metadata_record(const struct request *request, const struct provenance *provenance);
/* One line, numbers as short as they can be without losing a bit. Free it. */
char *metadata_line(const json_t *object);
/* The text of the "parameters" chunk. Free it. */
char *metadata_parameters(const struct request *request, const struct provenance *provenance);

/* What a PNG says about itself. */
struct record {
    json_t *settings; /* by option name, "darkroom", "cpu", ... beside them where exact; NULL: there
                         is no record */
    bool is_exact;    /* from our own chunk, not from A1111's text */
    char lacking[80]; /* "seed, steps": what an exact one should say and does not; "": nothing */
    json_t *other; /* keys of A1111's text that are no option of ours: strings; NULL where exact */
    struct dk_texts texts;
    int width_px, height_px;
};
bool record_read(const char *path, struct record *record, struct dk_error *err);
void record_free(struct record *record);

/*
 * Puts the recorded settings into the request as defaults (request->given stays empty). A scheduler
 * that is a plugin is not taken over, because a file must not be able to make the program load
 * code; *plugin then holds its name.
 */
bool record_apply(const struct record *record, const char *path, struct request *request,
                  const char **plugin, struct dk_error *err);

/* Parses A1111's text: object with our option names, and in other the rest. Never fails: what is no
 * settings line is prompt. Exposed for tests. */
void metadata_parse_parameters(const char *text, json_t *settings, json_t *other);

/*
 * Older files of A1111 say "DPM++ 2M Karras" where newer ones have a schedule type of its own: the
 * name alone, to be freed, and our name of the schedule in *sigmas, or NULL.
 */
char *metadata_sampler(const char *title, const char **sigmas);

#endif
