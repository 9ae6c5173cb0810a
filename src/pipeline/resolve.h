/* resolve.h - settings: what is open is filled in, what cannot work is refused. */
/* SPDX-License-Identifier: MIT */
#ifndef PIPELINE_RESOLVE_H
#define PIPELINE_RESOLVE_H

#include "pipeline/model.h"
#include "pipeline/sampler.h"

/* The sampler these resolved settings ask for; the caller frees it. NULL on failure. */
struct sampler *resolve_sampler(const struct dk_model *model, const struct dk_settings *job,
                                struct dk_error *err);

/* True if both halves of classifier-free guidance run: the scale is above 1 and not given to the
 * U-Net as a number. */
bool resolve_guided(const struct dk_model *model, const struct dk_settings *job);

#define RESOLVE_MAX_SIDE_PX 16384 /* of a picture */

/*
 * How many of the jobs, from the first on, can run as one group (at most max), and how many chunks
 * of text it takes. Only jobs that need the same number of chunks run together: padding would
 * change the picture.
 */
bool resolve_group(const struct dk_model *model, const struct dk_settings *jobs, size_t n_jobs,
                   size_t max, size_t *n_group, size_t *n_chunks, struct dk_error *err);

#endif
