/* decimal.h - numbers in prompts, whatever the locale. */
/* SPDX-License-Identifier: MIT */
#ifndef PIPELINE_DECIMAL_H
#define PIPELINE_DECIMAL_H

/*
 * Reads digits and dots up to limit; returns where they end. *value is NAN when they are no number
 * ("1.2.3", "."), and at most 1e30. Up to 15 digits it is the double nearest to what stands there.
 */
const char *decimal_read(const char *text, const char *limit, double *value);

#endif
