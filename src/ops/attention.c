/* attention.c - softmax(q k^T / sqrt(d)) v in tiles (arXiv:2205.14135). */
/* SPDX-License-Identifier: MIT */
#include "ops/internal.h"
#include "ops/meter.h"

#include <math.h>
#include <omp.h>
#include <string.h>

/* Queries of a task and keys of a tile: their scores (96 KB) stay in the second-level cache. */
#define QUERIES 48
#define KEYS    512
#define SCORES  (KEYS + LINE) /* floats from row to row: see row_stride */

struct attention {
    const struct kernels *kernels;
    size_t n, tq, tk, c, n_heads, d;
    size_t k_panels, d_panels; /* panels of 16 keys; of 16 channels of a head */
    size_t k_size, v_size;     /* floats of packed k and v a head */
    bool causal;
    float scale;
    const float *q, *k, *v;
    float *y;
    float *k_packed;                /* [n * n_heads][k_panels][d][16] */
    float *v_packed;                /* [n * n_heads][d_panels][k_panels * 16][16] */
    const ptrdiff_t *q_row, *s_row; /* [QUERIES] */
};

static void pack_head(const struct attention *t, size_t head)
{
    size_t start = head / t->n_heads * t->tk * t->c + head % t->n_heads * t->d;
    float *k = t->k_packed + head * t->k_size, *v = t->v_packed + head * t->v_size;
    size_t rows = t->k_panels * GEMM_PANEL;
    for (size_t i = 0; i < t->k_panels; i++)
        t->kernels->pack(k + i * t->d * GEMM_PANEL, t->k + start + i * GEMM_PANEL * t->c, t->c,
                         min_size(GEMM_PANEL, t->tk - i * GEMM_PANEL), t->d);
    memset(v, 0, t->v_size * sizeof(float));
    for (size_t p = 0; p < t->d_panels; p++) {
        size_t width = min_size(GEMM_PANEL, t->d - p * GEMM_PANEL) * sizeof(float);
        for (size_t i = 0; i < t->tk; i++)
            memcpy(v + (p * rows + i) * GEMM_PANEL, t->v + start + i * t->c + p * GEMM_PANEL,
                   width);
    }
}

/* What a thread works in: scores, output rows, running maxima and sums. */
struct tile {
    float *s, *out, *max, *sum, *partial;
};

#define TILE_FLOATS(d_panels) (QUERIES * (SCORES + (d_panels)*GEMM_PANEL + 2 * LINE + GEMM_PARTIAL))

static struct tile tile_at(float *scratch, size_t d_panels)
{
    struct tile t = {.s = scratch};
    t.out = t.s + QUERIES * SCORES;
    t.max = t.out + QUERIES * d_panels * GEMM_PANEL;
    t.sum = t.max + QUERIES * LINE;
    t.partial = t.sum + QUERIES * LINE;
    return t;
}

/* Queries first .. first + m - 1 of one head against keys from k0 on: brings out, max and sum up to
 * date. */
static void add_keys(const struct attention *t, const struct tile *tile, size_t head, size_t first,
                     size_t m, size_t k0)
{
    size_t n_keys = min_size(KEYS, t->tk - k0), padded = round_up(n_keys, GEMM_PANEL);
    size_t out_width = t->d_panels * GEMM_PANEL;
    struct gemm_run q_run = {0, t->d}, s_run = {0, padded};
    struct gemm g = {
        .m = m,
        .a = t->q + (head / t->n_heads * t->tq + first) * t->c + head % t->n_heads * t->d,
        .row = t->q_row,
        .runs = &q_run,
        .n_runs = 1,
        .b = t->k_packed + head * t->k_size + k0 * t->d,
        .panel_stride = t->d * GEMM_PANEL,
        .c = tile->s,
        .ldc = SCORES,
        .n = padded,
        .partial = tile->partial,
    };
    t->kernels->gemm(&g);
    for (size_t i = 0; i < m; i++) {
        size_t seen = n_keys;
        if (t->causal) seen = first + i + 1 > k0 ? min_size(n_keys, first + i + 1 - k0) : 0;
        float factor = t->kernels->softmax(tile->s + i * SCORES, seen, padded, t->scale,
                                           &tile->max[i], &tile->sum[i]);
        float *out = tile->out + i * out_width;
        if (k0 > 0 && factor != 1.0f) t->kernels->scale(out, out, factor, out_width);
    }
    g.a = tile->s, g.row = t->s_row, g.runs = &s_run;
    g.b = t->v_packed + head * t->v_size + k0 * GEMM_PANEL;
    g.panel_stride = t->k_panels * GEMM_PANEL * GEMM_PANEL;
    g.c = tile->out, g.ldc = out_width, g.n = t->d, g.accumulate = k0 > 0;
    t->kernels->gemm(&g);
}

static void run_task(const struct attention *t, const struct tile *tile, size_t head, size_t first)
{
    size_t m = min_size(QUERIES, t->tq - first),
           n_keys = t->causal ? min_size(t->tk, first + m) : t->tk;
    for (size_t i = 0; i < m; i++) tile->max[i] = -INFINITY, tile->sum[i] = 0;
    for (size_t k0 = 0; k0 < n_keys; k0 += KEYS) add_keys(t, tile, head, first, m, k0);
    float *y = t->y + (head / t->n_heads * t->tq + first) * t->c + head % t->n_heads * t->d;
    for (size_t i = 0; i < m; i++)
        t->kernels->scale(y + i * t->c, tile->out + i * t->d_panels * GEMM_PANEL,
                          1.0f / tile->sum[i], t->d);
}

static bool check_shapes(struct ops *o, struct tensor q, struct tensor k, struct tensor v,
                         int n_heads, bool causal)
{
    if (q.rank != 3 || k.rank != 3 || v.rank != 3 || n_heads < 1 || q.dim[2] % n_heads != 0 ||
        k.dim[0] != q.dim[0] || v.dim[0] != q.dim[0] || k.dim[2] != q.dim[2] ||
        v.dim[2] != q.dim[2] || k.dim[1] != v.dim[1] || (causal && q.dim[1] != k.dim[1]))
        return dk_fail(o->err, DK_ERROR_MODEL, "attention: q %s, k %s, v %s with %d heads%s",
                       shape_text(q.rank, q.dim).text, shape_text(k.rank, k.dim).text,
                       shape_text(v.rank, v.dim).text, n_heads, causal ? ", causal" : "");
    return true;
}

struct tensor op_attention(struct ops *o, struct tensor q, struct tensor k, struct tensor v,
                           int n_heads, bool causal)
{
    struct tensor none = {0};
    double start_s = meter_start(o);
    if (!ops_ok(o) || q.rank == 0 || k.rank == 0 || v.rank == 0 ||
        !check_shapes(o, q, k, v, n_heads, causal))
        return none;
    struct tensor y = tensor_new(o->arena, 3, q.dim, o->err);
    size_t mark = arena_mark(o->arena);
    struct attention t = {
        .kernels = o->kernels,
        .n = (size_t)q.dim[0],
        .tq = (size_t)q.dim[1],
        .tk = (size_t)k.dim[1],
        .c = (size_t)q.dim[2],
        .n_heads = (size_t)n_heads,
        .causal = causal,
        .q = q.data,
        .k = k.data,
        .v = v.data,
        .y = y.data,
    };
    t.d = t.c / t.n_heads;
    t.scale = 1.0f / sqrtf((float)t.d);
    t.k_panels = ceil_div(t.tk, GEMM_PANEL), t.d_panels = ceil_div(t.d, GEMM_PANEL);
    t.k_size = t.k_panels * GEMM_PANEL * t.d,
    t.v_size = t.d_panels * t.k_panels * GEMM_PANEL * GEMM_PANEL;
    size_t heads = t.n * t.n_heads, blocks = ceil_div(t.tq, QUERIES);
    int n_threads = ops_threads(o, (double)(heads * t.tq) * (double)t.tk * (double)t.d / 4);
    size_t tile_floats = TILE_FLOATS(t.d_panels);
    t.k_packed = ops_floats(o, heads, t.k_size);
    t.v_packed = ops_floats(o, heads, t.v_size);
    float *scratch = ops_floats(o, (size_t)n_threads, tile_floats);
    ptrdiff_t *rows = ops_offsets(o, 2 * QUERIES);
    if (y.rank == 0 || !t.k_packed || !t.v_packed || !scratch || !rows) return none;
    if (ops_dry(o)) {
        arena_reset(o->arena, mark);
        return y;
    }
    for (size_t i = 0; i < QUERIES; i++)
        rows[i] = (ptrdiff_t)(i * t.c), rows[QUERIES + i] = (ptrdiff_t)(i * SCORES);
    t.q_row = rows, t.s_row = rows + QUERIES;
#pragma omp parallel num_threads(n_threads)
    {
        struct tile tile =
            tile_at(scratch + (size_t)omp_get_thread_num() * tile_floats, t.d_panels);
#pragma omp for schedule(dynamic)
        for (size_t i = 0; i < heads; i++) pack_head(&t, i);
#pragma omp for schedule(dynamic) nowait
        for (size_t i = 0; i < heads * blocks; i++)
            run_task(&t, &tile, i / blocks, i % blocks * QUERIES);
    }
    arena_reset(o->arena, mark);
    meter_stop(o, METER_ATTENTION, start_s, 4 * (double)(t.n * t.tq) * (double)t.tk * (double)t.c,
               8 * (double)(t.n * t.c) * (double)(t.tq + t.tk));
    return y;
}
