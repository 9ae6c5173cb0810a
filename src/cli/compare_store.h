/* compare_store.h - the folder of a comparison: finished cells, kept for the next run. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_COMPARE_STORE_H
#define CLI_COMPARE_STORE_H

#include "compare_plan.h"

/*
 *     FOLDER/cells/NAME.png      the picture, with its metadata
 *     FOLDER/.compare/ID.latent  its latent before decoding, [h, w, c] floats of this machine
 *     FOLDER/.compare/ID.json    passes, seconds, hashes of both: last, so the cell is finished
 *     FOLDER/.compare/axes.json  what was varied, for --add
 *
 * Every file appears whole under its name. A cell counts as finished only when both hashes are
 * right.
 */
#define STORE_NAME ".compare"

bool store_open(const char *folder, struct dk_error *err);
/* Removes temporary files that a killed run left behind. Only while nobody else works here. */
void store_sweep(const char *folder);

/* Fills outcome and state of a cell that is finished. */
bool store_load(const char *folder, struct cell *cell);
/* latent holds outcome.h * w * c floats. */
bool store_save(const char *folder, struct cell *cell, const struct provenance *provenance,
                const struct dk_image *image, const float *latent, struct dk_error *err);
/* Of a finished cell; to be freed. */
float *store_latent(const char *folder, const struct cell *cell, struct dk_error *err);
bool store_picture(const char *folder, const struct cell *cell, struct dk_image *image,
                   struct dk_error *err);

/* Writes FOLDER/NAME, replacing what is there. */
bool store_write(const char *folder, const char *name, const void *bytes, size_t n,
                 struct dk_error *err);
/* A new string; NULL when there is no such file. */
char *store_read(const char *folder, const char *name, size_t *n_bytes);

#endif
