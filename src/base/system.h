/* system.h - what the operating system tells: the time and the processors. */
/* SPDX-License-Identifier: MIT */
#ifndef BASE_SYSTEM_H
#define BASE_SYSTEM_H

#include <stddef.h>

/* Gives the whole pages within mapped file memory back to the system; touching them reads the file again. */
void system_release(const void *mapped, size_t size_bytes);

/* Memory of this machine, or what the control group allows if that is less; 0: unknown. */
size_t system_memory_bytes(void);

/* Seconds of a clock that never goes back. */
double system_seconds(void);

/* Physical cores this process may run on: hyperthreads share one multiplier and only slow each
 * other. At least 1. */
int system_cores(void);

#endif
