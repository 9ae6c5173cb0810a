/* registry.h - the schedulers there are, and the many names people know them by. */
/* SPDX-License-Identifier: MIT */
#ifndef PIPELINE_REGISTRY_H
#define PIPELINE_REGISTRY_H

/*
 * The folder schedulers/ is the registry: the build writes one line a file into registry.inc.
 * Names are compared by their letters and digits only ("DPM++ 2M", "dpm++2m" and "dpmpp_2m" are
 * one), and a name may end in a schedule or spacing as in A1111's lists ("DPM++ 2M Karras",
 * "ddim_trailing").
 */

#include "base/error.h"
#include "scheduler.h"

size_t registry_count(void);
const struct dk_scheduler *registry_at(size_t index);

/*
 * What a name means. sigmas and spacing are those its ending asks for, or NULL; likewise a solver
 * type.
 */
struct registry_match {
    const struct dk_scheduler *scheduler;
    const char *sigmas, *spacing;
    enum dk_solver_type solver_type;
};
/* False with the nearest names in the message when there is none. */
bool registry_find(const char *name, struct registry_match *match, struct dk_error *err);

/*
 * Lower-case letters and digits of text, "++" as "pp"; out is cut to its capacity. For comparing
 * names.
 */
void registry_fold(const char *text, char *out, size_t capacity);

/*
 * Loads a shared object and checks that it is a scheduler of this ABI; *handle is for
 * registry_unload(). path must contain a slash: nothing is searched for, nothing is loaded by
 * accident.
 */
const struct dk_scheduler *registry_load(const char *path, void **handle, struct dk_error *err);
void registry_unload(void *handle);

#endif
