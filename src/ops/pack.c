/* pack.c - weights from the mapped file into the panels the kernels multiply with. */
/* SPDX-License-Identifier: MIT */
#include "ops/internal.h"

#include <string.h>

/* Values of one row unpacked at a time: a multiple of every block size, and 16 such rows fit the
 * first-level cache. */
#define PIECE 256
/* Input channels of a 3x3 filter at a time: 288 values, or 2304 where blocks hold 256. */
#define CHANNELS       RUN_UNIT
#define CHANNELS_LARGE 256

size_t pack_panels(const struct pack_job *job)
{
    return job->kind == PACK_GEGLU ? ceil_div(job->n / 2, GEMM_PANEL / 2)
                                   : ceil_div(job->n, GEMM_PANEL);
}

static size_t row_values(const struct pack_job *job)
{
    return job->k * job->taps;
}

bool pack_fits(struct ops *o, const struct pack_job *job, const char *op)
{
    const struct weight *w = job->weight;
    const struct dtype_info *info = dtype_info(w->dtype);
    bool dims = job->n > 0 && job->k > 0 && job->k <= SIZE_MAX / 4096 / job->taps &&
                job->n <= SIZE_MAX / 4096 / (job->k * job->taps);
    if (!dims || !info || dtype_row_bytes(w->dtype, row_values(job)) == 0)
        return dk_fail(o->err, DK_ERROR_MODEL,
                       "%s: %s of shape %s and type %s cannot be multiplied with", op,
                       w->name ? w->name : "weight", shape_text(w->rank, w->dim).text,
                       info ? info->name : "unknown");
    return true;
}

/* The weight row behind column j of a panel, or n if there is none. */
static size_t column_row(const struct pack_job *job, size_t panel, size_t j)
{
    if (job->kind != PACK_GEGLU) return panel * GEMM_PANEL + j;
    size_t half = job->n / 2, i = panel * (GEMM_PANEL / 2) + j % (GEMM_PANEL / 2);
    if (i >= half) return job->n;
    return j < GEMM_PANEL / 2 ? i : half + i;
}

bool bias_in_panels(struct ops *o, const struct weight *bias, const struct pack_job *job,
                    const char *op, float *out)
{
    size_t n_panels = pack_panels(job);
    if (!ops_dry(o)) memset(out, 0, n_panels * GEMM_PANEL * sizeof(float));
    if (!weight_exists(bias)) return true;
    size_t mark = arena_mark(o->arena);
    const float *values = ops_vector(o, bias, job->n, op);
    if (!values) return false;
    for (size_t i = 0; i < n_panels * GEMM_PANEL && !ops_dry(o); i++) {
        size_t row = column_row(job, i / GEMM_PANEL, i % GEMM_PANEL);
        if (row < job->n) out[i] = values[row];
    }
    arena_reset(o->arena, mark);
    return true;
}

static size_t channels_at_once(const struct pack_job *job)
{
    return dtype_info(job->weight->dtype)->block_values > CHANNELS ? CHANNELS_LARGE : CHANNELS;
}

size_t pack_scratch(const struct pack_job *job)
{
    if (job->taps == 1) return GEMM_PANEL * PIECE;
    return 2 * GEMM_PANEL * channels_at_once(job) * job->taps;
}

/* rows [GEMM_PANEL][ld] = count values of the panel's weight rows from first on. */
static void unpack_rows(const struct kernels *kernels, const struct pack_job *job, size_t panel,
                        size_t first, size_t count, float *rows, size_t ld)
{
    const struct weight *w = job->weight;
    size_t row_bytes = dtype_row_bytes(w->dtype, row_values(job)),
           skip = dtype_row_bytes(w->dtype, first);
    for (size_t j = 0; j < GEMM_PANEL; j++) {
        size_t row = column_row(job, panel, j);
        if (row < job->n)
            weight_row(kernels, w, row * row_bytes + skip, rows + j * ld, count);
        else
            memset(rows + j * ld, 0, count * sizeof(float));
    }
}

void pack_panel(const struct kernels *kernels, const struct pack_job *job, size_t panel,
                float *scratch, float *out)
{
    if (job->taps == 1) {
        for (size_t i = 0; i < job->k; i += PIECE) {
            size_t count = min_size(PIECE, job->k - i);
            unpack_rows(kernels, job, panel, i, count, scratch, PIECE);
            kernels->pack(out + i * GEMM_PANEL, scratch, PIECE, GEMM_PANEL, count);
        }
        return;
    }
    /* File order is [channel][tap]; the product runs over taps first. */
    size_t channels = channels_at_once(job), ld = channels * job->taps;
    float *lines = scratch + GEMM_PANEL * ld;
    for (size_t c = 0; c < job->k; c += channels) {
        size_t count = min_size(channels, job->k - c);
        unpack_rows(kernels, job, panel, c * job->taps, count * job->taps, scratch, ld);
        kernels->pack(lines, scratch, ld, GEMM_PANEL, count * job->taps);
        /* Taps outside: writing 9 places a multiple of the page apart in turn takes three times as
         * long. */
        for (size_t t = 0; t < job->taps; t++) {
            for (size_t i = 0; i < count; i++)
                memcpy(out + (t * job->k + c + i) * GEMM_PANEL,
                       lines + (i * job->taps + t) * GEMM_PANEL, GEMM_PANEL * sizeof(float));
        }
    }
}

void pack_winograd(const struct kernels *kernels, const struct pack_job *job, size_t panel,
                   size_t first, size_t n, float *scratch, float *out, size_t plane_stride)
{
    size_t channels = channels_at_once(job), ld = channels * job->taps;
    float *lines = scratch + GEMM_PANEL * ld;
    for (size_t c = 0; c < n; c += channels) {
        size_t count = min_size(channels, n - c);
        unpack_rows(kernels, job, panel, (first + c) * job->taps, count * job->taps, scratch, ld);
        kernels->pack(lines, scratch, ld, GEMM_PANEL, count * job->taps);
        for (size_t i = 0; i < count; i++)
            kernels->wino_weight(out + (c + i) * GEMM_PANEL, plane_stride,
                                 lines + i * job->taps * GEMM_PANEL, GEMM_PANEL);
    }
}
