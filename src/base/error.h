/* error.h - errors are values: the first failure is kept, with a sentence. */
/* SPDX-License-Identifier: MIT */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include "darkroom.h"

#include <stdarg.h>

/*
 * Records the failure if none is recorded yet (err may be NULL) and returns false, so that a function can end with
 *     return dk_fail(err, DK_ERROR_FILE, "%s: cannot open: %s", path, strerror(errno));
 */
bool dk_fail(struct dk_error *err, enum dk_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The same for callers that hold a va_list already. */
bool dk_fail_list(struct dk_error *err, enum dk_code code, const char *format, va_list list);

#endif
