/* merge.c - token merging (arXiv:2210.09461, for diffusion arXiv:2303.17604). */
/* SPDX-License-Identifier: MIT */
#include "ops/internal.h"
#include "ops/meter.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* Tokens whose likeness to a panel of receivers is worked out at once. */
#define ROWS 48
/* Channels a task adds up: merging is cut by channels, so that each sum has one order. */
#define CHANNELS 64

/* A token that may be merged, the receiver most like it and how like it is. */
struct candidate {
    float likeness;
    int32_t token, receiver;
};

/* The grid of one sample and what is shared by all samples. */
struct grid {
    const struct kernels *kernels;
    size_t tokens, c, width;
    size_t n_receivers, n_givers;
    int32_t *receivers; /* [n_receivers] tokens at even rows and columns */
    ptrdiff_t *givers;  /* [n_givers] where the others' rows start, floats from the sample's */
    size_t n_runs;
    struct gemm_run *runs;
};

/* The most alike first; of equals the one that comes first. */
static int by_likeness(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->likeness != y->likeness) return x->likeness < y->likeness ? 1 : -1;
    return (x->token > y->token) - (x->token < y->token);
}

static float inverse_length(const float *x, size_t c)
{
    double sum = 0;
    for (size_t j = 0; j < c; j++) sum += (double)x[j] * (double)x[j];
    return sum > 0 ? (float)(1 / sqrt(sum)) : 0;
}

/* Sixteen receivers of a sample, each of length 1, as a panel [c][GEMM_PANEL]. */
static void pack_receivers(const struct grid *g, const float *x, size_t first, float *rows,
                           float *panel)
{
    size_t n = min_size(GEMM_PANEL, g->n_receivers - first);
    for (size_t i = 0; i < n; i++) {
        const float *row = x + (size_t)g->receivers[first + i] * g->c;
        g->kernels->scale(rows + i * g->c, row, inverse_length(row, g->c), g->c);
    }
    g->kernels->pack(panel, rows, g->c, n, g->c);
}

/* For m tokens the receiver with the largest cosine. scratch [2][ROWS][GEMM_PANEL]. */
static void find_receivers(const struct grid *g, const float *x, const float *panels, size_t first,
                           size_t m, float *scratch, struct candidate *found)
{
    for (size_t i = 0; i < m; i++)
        found[i] = (struct candidate){.likeness = -INFINITY,
                                      .token = (int32_t)(g->givers[first + i] / (ptrdiff_t)g->c),
                                      .receiver = g->receivers[0]};
    struct gemm gemm = {
        .m = m,
        .a = x,
        .row = g->givers + first,
        .runs = g->runs,
        .n_runs = g->n_runs,
        .c = scratch,
        .ldc = GEMM_PANEL,
        .partial = scratch + ROWS * GEMM_PANEL,
    };
    for (size_t p = 0; p < g->n_receivers; p += GEMM_PANEL) {
        gemm.n = min_size(GEMM_PANEL, g->n_receivers - p);
        gemm.b = panels + p * g->c;
        g->kernels->gemm(&gemm);
        for (size_t i = 0; i < m; i++)
            for (size_t j = 0; j < gemm.n; j++)
                if (scratch[i * GEMM_PANEL + j] > found[i].likeness) {
                    found[i].likeness = scratch[i * GEMM_PANEL + j];
                    found[i].receiver = g->receivers[p + j];
                }
    }
    for (size_t i = 0; i < m; i++) {
        float likeness = found[i].likeness * inverse_length(x + g->givers[first + i], g->c);
        found[i].likeness = isnan(likeness) ? -INFINITY : likeness; /* so that there is an order */
    }
}

/* From the candidates of one sample to the place of every token. All arrays of the sample. */
static void give_places(const struct grid *g, struct candidate *found, size_t n_merged,
                        int32_t *place, float *share)
{
    qsort(found, g->n_givers, sizeof *found, by_likeness);
    for (size_t i = 0; i < g->tokens; i++) place[i] = 0;
    for (size_t i = 0; i < n_merged; i++) place[found[i].token] = -1;
    int32_t next = 0;
    for (size_t i = 0; i < g->tokens; i++)
        if (place[i] == 0) {
            share[next] = 1;
            place[i] = next++;
        }
    for (size_t i = 0; i < n_merged; i++) {
        int32_t at = place[found[i].receiver];
        place[found[i].token] = at;
        share[at]++;
    }
    for (int32_t i = 0; i < next; i++) share[i] = 1 / share[i];
}

static bool lay_out_grid(struct ops *o, struct grid *g)
{
    g->receivers = (void *)ops_floats(o, g->n_receivers, 1);
    g->givers = ops_offsets(o, g->n_givers);
    g->n_runs = runs_cut(NULL, 0, g->c);
    g->runs = (void *)ops_offsets(o, 2 * g->n_runs);
    if (!g->receivers || !g->givers || !g->runs) return false;
    if (ops_dry(o)) return true;
    runs_cut(g->runs, 0, g->c);
    size_t n_receivers = 0, n_givers = 0;
    for (size_t i = 0; i < g->tokens; i++) {
        if (i / g->width % 2 == 0 && i % g->width % 2 == 0)
            g->receivers[n_receivers++] = (int32_t)i;
        else
            g->givers[n_givers++] = (ptrdiff_t)(i * g->c);
    }
    return true;
}

struct merge op_merge_plan(struct ops *o, struct tensor x, int64_t height, double ratio)
{
    struct merge none = {0};
    double start_s = meter_start(o);
    if (!ops_ok(o) || x.rank == 0) return none;
    if (x.rank != 3 || height < 1 || x.dim[1] % height != 0 || x.dim[1] > INT32_MAX ||
        !(ratio >= 0 && ratio < 1)) {
        ops_fail(o, DK_ERROR_ARGUMENT, "merge: %g of tokens %s in %lld rows", ratio,
                 shape_text(x.rank, x.dim).text, (long long)height);
        return none;
    }
    size_t n = (size_t)x.dim[0];
    struct grid g = {.kernels = o->kernels,
                     .tokens = (size_t)x.dim[1],
                     .c = (size_t)x.dim[2],
                     .width = (size_t)(x.dim[1] / height)};
    g.n_receivers = ceil_div((size_t)height, 2) * ceil_div(g.width, 2);
    g.n_givers = g.tokens - g.n_receivers;
    size_t n_merged = min_size((size_t)(ratio * (double)g.tokens), g.n_givers);
    struct merge m = {.n = x.dim[0], .tokens = x.dim[1], .kept = x.dim[1] - (int64_t)n_merged};
    if (n_merged == 0) return m;
    m.place = (void *)ops_floats(o, n, g.tokens);
    m.share = ops_floats(o, n, (size_t)m.kept);
    size_t mark = arena_mark(o->arena);
    if (!m.place || !m.share || !lay_out_grid(o, &g)) return none;
    size_t n_panels = ceil_div(g.n_receivers, GEMM_PANEL), panel = g.c * GEMM_PANEL;
    size_t n_blocks = ceil_div(g.n_givers, ROWS);
    size_t own_floats = max_size(GEMM_PANEL * g.c, 2 * ROWS * GEMM_PANEL);
    int n_threads = ops_threads(o, (double)(n * g.n_givers) * (double)(g.n_receivers * g.c) / 8);
    float *panels = ops_floats(o, n * n_panels, panel);
    float *scratch = ops_floats(o, (size_t)n_threads, own_floats);
    struct candidate *found = (void *)ops_floats(o, n * g.n_givers, 3);
    if (!panels || !scratch || !found) return none;
    if (ops_dry(o)) {
        arena_reset(o->arena, mark);
        return m;
    }
#pragma omp parallel num_threads(n_threads)
    {
        float *own = scratch + (size_t)omp_get_thread_num() * own_floats;
#pragma omp for schedule(dynamic)
        for (size_t i = 0; i < n * n_panels; i++)
            pack_receivers(&g, x.data + i / n_panels * g.tokens * g.c, i % n_panels * GEMM_PANEL,
                           own, panels + i * panel);
#pragma omp for schedule(dynamic)
        for (size_t i = 0; i < n * n_blocks; i++) {
            size_t sample = i / n_blocks, first = i % n_blocks * ROWS;
            find_receivers(&g, x.data + sample * g.tokens * g.c, panels + sample * n_panels * panel,
                           first, min_size(ROWS, g.n_givers - first), own,
                           found + sample * g.n_givers + first);
        }
#pragma omp for schedule(dynamic)
        for (size_t i = 0; i < n; i++)
            give_places(&g, found + i * g.n_givers, n_merged, m.place + i * g.tokens,
                        m.share + i * (size_t)m.kept);
    }
    arena_reset(o->arena, mark);
    meter_stop(o, METER_MERGE, start_s,
               2 * (double)(n * g.n_givers) * (double)(g.n_receivers * g.c),
               4 * (double)tensor_count(x));
    return m;
}

/* The plan is of these tokens. */
static bool plan_fits(struct ops *o, const struct merge *m, struct tensor x, int64_t tokens)
{
    if (!ops_ok(o) || x.rank == 0 || m->n == 0) return false;
    if (x.rank == 3 && x.dim[0] == m->n && x.dim[1] == tokens) return true;
    return dk_fail(o->err, DK_ERROR_ARGUMENT, "merge: tokens %s, expected %lld times %lld",
                   shape_text(x.rank, x.dim).text, (long long)m->n, (long long)tokens);
}

struct tensor op_merge(struct ops *o, struct tensor x, const struct merge *m)
{
    struct tensor none = {0};
    double start_s = meter_start(o);
    if (!plan_fits(o, m, x, m->tokens)) return none;
    if (m->kept == m->tokens) return x;
    struct tensor y = tensor_new3(o->arena, m->n, m->kept, x.dim[2], o->err);
    if (y.rank == 0 || ops_dry(o)) return y;
    size_t n = (size_t)m->n, tokens = (size_t)m->tokens, kept = (size_t)m->kept;
    size_t c = (size_t)x.dim[2], n_cuts = ceil_div(c, CHANNELS);
#pragma omp parallel for num_threads(ops_threads(o, (double)(n * tokens) * (double)c))             \
    schedule(static)
    for (size_t i = 0; i < n * n_cuts; i++) {
        size_t sample = i / n_cuts, from = i % n_cuts * CHANNELS;
        size_t width = min_size(CHANNELS, c - from);
        const int32_t *place = m->place + sample * tokens;
        const float *share = m->share + sample * kept, *in = x.data + sample * tokens * c + from;
        float *out = y.data + sample * kept * c + from;
        for (size_t t = 0; t < kept; t++) memset(out + t * c, 0, width * sizeof *out);
        for (size_t t = 0; t < tokens; t++) {
            float *sum = out + (size_t)place[t] * c;
            o->kernels->add(sum, sum, in + t * c, width);
        }
        for (size_t t = 0; t < kept; t++)
            if (share[t] != 1) o->kernels->scale(out + t * c, out + t * c, share[t], width);
    }
    meter_stop(o, METER_MERGE, start_s, (double)tensor_count(x),
               4 * ((double)tensor_count(x) + (double)tensor_count(y)));
    return y;
}

struct tensor op_unmerge(struct ops *o, struct tensor y, const struct merge *m, struct tensor x)
{
    struct tensor none = {0};
    double start_s = meter_start(o);
    if (!plan_fits(o, m, x, m->tokens) || !plan_fits(o, m, y, m->kept)) return none;
    if (m->kept == m->tokens) return op_add_to(o, x, y);
    if (y.dim[2] != x.dim[2])
        return ops_fail(o, DK_ERROR_ARGUMENT, "merge: %s does not fit %s",
                        shape_text(3, y.dim).text, shape_text(3, x.dim).text);
    size_t tokens = (size_t)m->tokens, kept = (size_t)m->kept, c = (size_t)x.dim[2];
    size_t rows = ops_dry(o) ? 0 : (size_t)m->n * tokens;
#pragma omp parallel for num_threads(ops_threads(o, (double)rows *(double)c)) schedule(static)
    for (size_t i = 0; i < rows; i++)
        o->kernels->add(x.data + i * c, x.data + i * c,
                        y.data + (i / tokens * kept + (size_t)m->place[i]) * c, c);
    meter_stop(o, METER_MERGE, start_s, (double)tensor_count(x),
               4 * (2 * (double)tensor_count(x) + (double)tensor_count(y)));
    return x;
}
