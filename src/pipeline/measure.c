/* measure.c - what the machine can do, to compare with what was done. */
/* SPDX-License-Identifier: MIT */
#include "ops/meter.h"
#include "pipeline/model.h"

void dk_machine_measure(const struct dk_model *model, struct dk_machine *machine)
{
    machine->n_threads = model->n_threads;
    machine->flops = meter_peak_flops(model->kernels, model->n_threads);
    machine->bytes_per_second = meter_peak_bandwidth(model->n_threads);
}
