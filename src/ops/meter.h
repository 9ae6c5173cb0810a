/* meter.h - what operations cost: calls, seconds, arithmetic and bytes, by phase and kind. */
/* SPDX-License-Identifier: MIT */
#ifndef OPS_METER_H
#define OPS_METER_H

/*
 * Arithmetic is counted as the plain formula needs it (a multiplication and an addition are two),
 * whatever the algorithm does: a Winograd convolution shows more than the machine can do directly.
 * Bytes are what must move at least: inputs, weights in their own type, and the result, once each.
 * What is fused into a convolution or product (norms, activations, residuals) is part of its time
 * and not counted as arithmetic.
 */

#include "ops/ops.h"

#include <stddef.h>

enum meter_kind {
    METER_CONV_3,
    METER_CONV_1,
    METER_LINEAR,
    METER_ATTENTION,
    METER_NORM,
    METER_MERGE, /* token merging */
    N_METER_KINDS
};
extern const char *const meter_kind_names[N_METER_KINDS];

#define METER_MAX_PHASES 4
struct meter_entry {
    size_t n_calls;
    double seconds, flop, bytes;
};
struct meter {
    int phase; /* where the next operation is counted, below METER_MAX_PHASES; set by whoever runs
                  the networks */
    struct meter_entry entries[METER_MAX_PHASES][N_METER_KINDS];
};

/* An operation calls start first and stop when it has succeeded;
 * both do nothing without a meter. */
double meter_start(const struct ops *o);
void meter_stop(const struct ops *o, enum meter_kind kind, double start_s, double flop,
                double bytes);
double meter_weight_bytes(const struct weight *w);

/* What the machine can do: multiplications and additions a second in registers, bytes a second from
 * memory. */
double meter_peak_flops(const struct kernels *kernels, int n_threads);
/* 0 when memory for the measurement is not to be had. */
double meter_peak_bandwidth(int n_threads);

#endif
