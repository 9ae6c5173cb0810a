#!/bin/sh
# batch-array.sh - a batch as a Slurm array: every task makes its share of one file of prompts in one folder.
# SPDX-License-Identifier: MIT
#
#   sbatch samples/slurm/batch-array.sh prompts.txt /shared/pictures --steps 8
#   sbatch --array=1-16 --cpus-per-task=8 samples/slurm/batch-array.sh prompts.txt /shared/pictures
#
# The folder must be the same for all nodes. darkroom reads from SLURM_ARRAY_TASK_* which share is its own. Submit the
# same again after a failure: only what is missing is made. With --shard none the tasks divide the work by claims
# instead: then a slow or lost node holds nothing up, and any number of tasks, also from other jobs, may help.
#SBATCH --job-name=darkroom
#SBATCH --array=1-4
#SBATCH --cpus-per-task=1
#SBATCH --output=darkroom-%A_%a.log
#SBATCH --requeue
set -eu
[ $# -ge 2 ] || {
    echo "usage: sbatch $0 PROMPTS FOLDER [OPTIONS OF darkroom batch]" >&2
    exit 2
}
prompts=$1 folder=$2
shift 2
exec "${DARKROOM:-darkroom}" batch "$prompts" -o "$folder" --threads "${SLURM_CPUS_PER_TASK:-0}" "$@"
