/* batch_shard.c - the part of a batch that is this process's. */
/* SPDX-License-Identifier: MIT */
#include "batch_shard.h"

#include "say.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

#define MAX_SHARDS 1000000

static bool read_text(const char *text, struct shard *shard, struct dk_error *err)
{
    char index[24] = "";
    const char *slash = strchr(text, '/');
    uint64_t i = 0, n = 0;
    if (slash && (size_t)(slash - text) < sizeof index) memcpy(index, text, (size_t)(slash - text));
    if (!text_to_uint64(index, &i) || !text_to_uint64(slash + 1, &n) || i < 1 || i > n ||
        n > MAX_SHARDS)
        return say_fail(
            err, DK_ERROR_ARGUMENT,
            "--shard: found \"%.100s\", expected I/N with I from 1 to N, as 2/4, or none", text);
    *shard = (struct shard){(size_t)i - 1, (size_t)n, "--shard"};
    return true;
}

static bool number(const char *name, uint64_t *value)
{
    const char *text = getenv(name);
    return text && text_to_uint64(text, value);
}

/* An array may be any list, as 1,5,9-11; only with even steps do the numbers say how many come
 * before. */
static bool read_slurm(struct shard *shard, struct dk_error *err)
{
    uint64_t id, min, max, count, step = 1;
    if (!number("SLURM_ARRAY_TASK_ID", &id)) return true;
    if (!number("SLURM_ARRAY_TASK_MIN", &min) || !number("SLURM_ARRAY_TASK_MAX", &max) ||
        !number("SLURM_ARRAY_TASK_COUNT", &count))
        return say_fail(err, DK_ERROR_ARGUMENT,
                        "SLURM_ARRAY_TASK_ID is set without _MIN, _MAX and _COUNT; give --shard");
    number("SLURM_ARRAY_TASK_STEP", &step);
    if (step < 1 || id < min || id > max || count < 1 || count > MAX_SHARDS ||
        (id - min) % step != 0 || (max - min) / step + 1 != count)
        return say_fail(err, DK_ERROR_ARGUMENT,
                        "the Slurm array's numbers have no even steps, so its %llu tasks cannot be "
                        "told apart; give "
                        "--shard I/N, or --shard none to share by claims",
                        (unsigned long long)count);
    *shard = (struct shard){(size_t)((id - min) / step), (size_t)count, "the Slurm array"};
    return true;
}

static void read_ranks(struct shard *shard)
{
    static const char *const names[][2] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                           {"PMI_RANK", "PMI_SIZE"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        uint64_t rank, size;
        if (!number(names[i][0], &rank) || !number(names[i][1], &size) || size < 1 ||
            rank >= size || size > MAX_SHARDS)
            continue;
        shard->index = shard->index * (size_t)size + (size_t)rank;
        shard->count *= (size_t)size;
        if (size > 1) shard->source = shard->source ? "the Slurm array and MPI" : "MPI";
        return;
    }
}

bool shard_find(const char *text, struct shard *shard, struct dk_error *err)
{
    *shard = (struct shard){0, 1, NULL};
    if (text && strcmp(text, "none") == 0) return true;
    if (text) return read_text(text, shard, err);
    if (!read_slurm(shard, err)) return false;
    read_ranks(shard);
    return true;
}
