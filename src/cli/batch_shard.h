/* batch_shard.h - the part of a batch that is this process's. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_BATCH_SHARD_H
#define CLI_BATCH_SHARD_H

#include "darkroom.h"

/*
 * Job k (from 0) belongs to shard k % n. Without --shard the environment decides: a Slurm array
 * (SLURM_ARRAY_TASK_ID, _MIN, _STEP, _COUNT), then MPI ranks (OMPI_COMM_WORLD_RANK and _SIZE, or
 * PMI_RANK and PMI_SIZE); both together multiply. GNU parallel is no reason to divide, since
 * "parallel darkroom batch ::: a.txt b.txt" has other work for each: there, processes on one folder
 * share by their claims, or --shard {#}/{##} is said.
 */
struct shard {
    size_t index, count; /* index from 0; count 1: everything */
    const char *source;  /* what said so, or NULL */
};
/* text is the option's value, or NULL. */
bool shard_find(const char *text, struct shard *shard, struct dk_error *err);

#endif
