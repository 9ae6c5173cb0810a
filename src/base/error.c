/* error.c - errors are values: the first failure is kept, with a sentence. */
/* SPDX-License-Identifier: MIT */
#include "base/error.h"

#include <stdio.h>

bool dk_fail_list(struct dk_error *err, enum dk_code code, const char *format, va_list list)
{
    if (!err || err->code != DK_OK) return false;
    err->code = code;
    /* A sentence longer than the buffer is cut, which vsnprintf does with a terminator. */
    vsnprintf(err->message, sizeof err->message, format, list);
    return false;
}

bool dk_fail(struct dk_error *err, enum dk_code code, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    dk_fail_list(err, code, format, list);
    va_end(list);
    return false;
}
