/* meter.c - what operations cost: calls, seconds, arithmetic and bytes, by phase and kind. */
/* SPDX-License-Identifier: MIT */
#include "ops/meter.h"

#include "base/system.h"
#include "kernels/dtype.h"
#include "kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

const char *const meter_kind_names[N_METER_KINDS] = {"conv 3x3",  "conv 1x1", "linear",
                                                     "attention", "norm",     "merge"};

double meter_start(const struct ops *o)
{
    return o->meter ? system_seconds() : 0;
}

void meter_stop(const struct ops *o, enum meter_kind kind, double start_s, double flop,
                double bytes)
{
    if (!o->meter) return;
    struct meter_entry *entry = &o->meter->entries[o->meter->phase][kind];
    entry->n_calls++;
    entry->seconds += system_seconds() - start_s;
    entry->flop += flop;
    entry->bytes += bytes;
}

double meter_weight_bytes(const struct weight *w)
{
    if (!weight_exists(w) || w->rank < 1) return 0;
    double rows = 1, k = (double)w->dim[w->rank - 1];
    for (int i = 0; i + 1 < w->rank; i++) rows *= (double)w->dim[i];
    return rows * (double)dtype_row_bytes(w->dtype, (size_t)k);
}

double meter_peak_flops(const struct kernels *kernels, int n_threads)
{
    const size_t rounds = 20000000;
    double best = 0;
    if (!kernels->burn) return 0;
    for (int attempt = 0; attempt < 3; attempt++) {
        double flop = 0, start_s = system_seconds();
#pragma omp parallel num_threads(n_threads) reduction(+ : flop)
        flop += kernels->burn(rounds);
        double rate = flop / (system_seconds() - start_s);
        if (rate > best) best = rate;
    }
    return best;
}

/* Copies between two arrays well beyond any cache;
 * each byte copied is read once and written once. */
double meter_peak_bandwidth(int n_threads)
{
    const size_t n_bytes = (size_t)128 << 20, n_blocks = 1024, block = n_bytes / n_blocks;
    char *from = malloc(n_bytes), *to = malloc(n_bytes);
    double best = 0;
    if (from && to) {
        memset(from, 1, n_bytes);
        memset(to, 2, n_bytes);
        for (int attempt = 0; attempt < 4; attempt++) {
            double start_s = system_seconds();
#pragma omp parallel for num_threads(n_threads) schedule(static)
            for (size_t i = 0; i < n_blocks; i++) memcpy(to + i * block, from + i * block, block);
            double rate = 2 * (double)n_bytes / (system_seconds() - start_s);
            if (rate > best) best = rate;
        }
    }
    free(from);
    free(to);
    return best;
}
