/* compare_scores.h - the CLIP scores of a comparison's pictures, each computed once. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_COMPARE_SCORES_H
#define CLI_COMPARE_SCORES_H

#include "options.h"

/*
 * A large CLIP needs a second for a picture, so scores are kept in FOLDER/.compare/clip-HASH.json,
 * where HASH is of the CLIP's files: {"HASH of prompt and picture": score}. What is in there and
 * not a number from 0 to 100 is computed again.
 */
struct scores;

/* The CLIP of --clip, opened. tell is called before each score that is computed, with how many
 * were. */
struct scores *scores_open(const struct request *request, void (*tell)(void *user, size_t n_scored),
                           void *user, struct dk_error *err);
/* Where finished scores are kept, once there is such a folder. */
void scores_use_folder(struct scores *scores, const char *folder);
/* Keeps what was computed. */
void scores_close(struct scores *scores);

/* *score of a picture and its prompt. */
bool scores_of(struct scores *scores, const struct dk_settings *settings,
               const struct dk_image *image, double *score, struct dk_error *err);

#endif
