/* system.c - what the operating system tells. */
/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* sched_getaffinity */
#include "base/system.h"

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

void system_release(const void *mapped, size_t size_bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = ((uintptr_t)mapped + page - 1) / page * page;
    uintptr_t last = ((uintptr_t)mapped + size_bytes) / page * page;
    if (last > first) madvise((void *)first, last - first, MADV_DONTNEED);
}

size_t system_memory_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    size_t bytes = pages > 0 && page > 0 ? (size_t)pages * (size_t)page : 0;
    FILE *file = fopen("/sys/fs/cgroup/memory.max", "r"); /* a number, or "max" */
    unsigned long long allowed = 0;
    if (file) {
        if (fscanf(file, "%llu", &allowed) == 1 && (bytes == 0 || allowed < bytes))
            bytes = (size_t)allowed;
        fclose(file);
    }
    return bytes;
}

double system_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The lowest-numbered processor that shares a core with this one; itself where the system does not
 * tell. */
static int first_sibling(int cpu)
{
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *file = fopen(path, "r");
    int first = cpu;
    if (file) {
        if (fscanf(file, "%d", &first) != 1) first = cpu;
        fclose(file);
    }
    return first;
}

int system_cores(void)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        long n = sysconf(_SC_NPROCESSORS_ONLN);
        return n > 0 ? (int)n : 1;
    }
    cpu_set_t cores;
    CPU_ZERO(&cores);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed)) continue;
        int first = first_sibling((int)cpu);
        CPU_SET(first >= 0 && first < CPU_SETSIZE ? (size_t)first : cpu, &cores);
    }
    int n = CPU_COUNT(&cores);
    return n > 0 ? n : 1;
}
