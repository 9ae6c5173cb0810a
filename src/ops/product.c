/* product.c - rows of activations times packed weights: linear layers, convolutions. */
/* SPDX-License-Identifier: MIT */
#include "ops/internal.h"

#include <omp.h>
#include <string.h>

/* Packed weights in scratch at one time, floats (8 MB): within the last-level cache of most
 * machines. */
#define CHUNK_FLOATS ((size_t)2 << 20)
/* Floats of A that a task should touch (a share of the second-level cache), and its rows, multiples
 * of the tile's 6. */
#define TASK_FLOATS   ((size_t)96 << 10)
#define TASK_ROWS_MIN 24
#define TASK_ROWS_MAX 96
/* Tasks a thread, so that the last one to finish does not keep the others waiting long. */
#define TASKS_PER_THREAD 12

size_t runs_longest(size_t length)
{
    size_t n = ceil_div(length, RUN_MAX);
    return min_size(round_up(ceil_div(length, n), RUN_UNIT), length);
}

size_t runs_cut(struct gemm_run *runs, ptrdiff_t offset, size_t length)
{
    size_t step = runs_longest(length), n = ceil_div(length, step);
    for (size_t i = 0; runs && i < n; i++)
        runs[i] =
            (struct gemm_run){offset + (ptrdiff_t)(i * step), min_size(step, length - i * step)};
    return n;
}

/* How the work on one chunk of panels is cut: rows a task, panels a task. */
struct cut {
    size_t rows, panels, n_row_blocks, n_panel_blocks;
};

static struct cut cut_tasks(const struct product *p, size_t k, size_t n_panels, int n_threads)
{
    struct cut c;
    size_t rows = TASK_FLOATS / k / 6 * 6;
    rows = min_size(max_size(rows, TASK_ROWS_MIN), TASK_ROWS_MAX);
    c.n_row_blocks = ceil_div(p->m, rows);
    c.rows = round_up(ceil_div(p->m, c.n_row_blocks), 6);
    c.n_row_blocks = ceil_div(p->m, c.rows);
    size_t wanted = n_threads > 1 ? ceil_div((size_t)n_threads * TASKS_PER_THREAD,
                                             c.n_row_blocks * p->n_samples)
                                  : 1;
    c.panels = ceil_div(n_panels, min_size(wanted, n_panels));
    c.n_panel_blocks = ceil_div(n_panels, c.panels);
    return c;
}

/* What a thread works in. */
struct own {
    float *partial; /* [TASK_ROWS_MAX][GEMM_PARTIAL] */
    float *rows;    /* [TASK_ROWS_MAX][row_stride(k)], where rows of A are copied if they lie badly;
                       else NULL */
    ptrdiff_t *row;
};

/* Rows of A that are whole and lie row_stride apart are used where they are. */
static bool needs_copy(const struct product *p)
{
    return p->weights.taps == 1 && row_stride(p->weights.k) != p->weights.k;
}

/* One task: block of rows times block of panels. */
static void run_task(const struct ops *o, const struct product *p, const struct cut *cut,
                     size_t task, const float *panels, size_t k, size_t first_panel,
                     size_t n_panels, const struct own *own)
{
    size_t panel_block = task % cut->n_panel_blocks, rest = task / cut->n_panel_blocks;
    size_t sample = rest / cut->n_row_blocks, row = rest % cut->n_row_blocks * cut->rows;
    size_t width = p->weights.kind == PACK_GEGLU ? GEMM_PANEL / 2 : GEMM_PANEL;
    size_t first = panel_block * cut->panels, count = min_size(n_panels - first, cut->panels);
    size_t column = (first_panel + first) * width, at = (sample * p->m + row) * p->n_out + column;
    struct gemm g = {
        .m = min_size(cut->rows, p->m - row),
        .a = p->a + sample * p->a_stride,
        .row = p->row + row,
        .runs = p->runs,
        .n_runs = p->n_runs,
        .b = panels + first * k * GEMM_PANEL,
        .panel_stride = k * GEMM_PANEL,
        .c = p->y + at,
        .ldc = p->n_out,
        .n = min_size(count * width, p->n_out - column),
        .bias = p->bias ? p->bias + sample * p->bias_stride + (first_panel + first) * GEMM_PANEL
                        : NULL,
        .act = p->act,
        .geglu = p->weights.kind == PACK_GEGLU,
        .residual = p->residual ? p->residual + at : NULL,
        .partial = own->partial,
        .next_b = panels + first * k * GEMM_PANEL,
    };
    if (own->rows) {
        for (size_t i = 0; i < g.m; i++)
            memcpy(own->rows + own->row[i], g.a + g.row[i], k * sizeof(float));
        g.a = own->rows;
        g.row = own->row;
    }
    o->kernels->gemm(&g);
}

/* Where packed panels live for this call. */
struct panel_store {
    float *data;
    size_t chunk; /* panels held at once */
    size_t cache_bytes;
    bool filled, is_new; /* is_new: lies in the cache, to be filled now */
};

static struct panel_store find_store(struct ops *o, const struct product *p, size_t panel_floats,
                                     size_t n_panels)
{
    struct panel_store s = {.chunk = n_panels,
                            .cache_bytes = n_panels * panel_floats * sizeof(float)};
    if (p->m <= PACK_CACHE_MAX_ROWS || s.cache_bytes <= PACK_CACHE_SMALL_BYTES)
        s.data = pack_cache_get(o->cache, p->weights.weight->data, p->weights.kind, s.cache_bytes,
                                &s.is_new);
    s.filled = s.data && !s.is_new;
    if (!s.data) {
        s.chunk = min_size(n_panels, max_size(CHUNK_FLOATS / panel_floats, 8));
        s.data = ops_floats(o, s.chunk, panel_floats);
    }
    return s;
}

bool product_run(struct ops *o, const struct product *p, const char *op)
{
    if (!pack_fits(o, &p->weights, op)) return false;
    size_t mark = arena_mark(o->arena);
    size_t k = p->weights.k * p->weights.taps, panel_floats = k * GEMM_PANEL,
           n_panels = pack_panels(&p->weights);
    double work = (double)(p->n_samples * p->m) * (double)k * (double)(n_panels * GEMM_PANEL);
    int n_threads = ops_threads(o, work / 8);
    size_t copy_floats = needs_copy(p) ? min_size(p->m, TASK_ROWS_MAX) * row_stride(k) : 0;
    size_t scratch_floats =
        max_size(pack_scratch(&p->weights), copy_floats) + TASK_ROWS_MAX * GEMM_PARTIAL;
    float *scratch = ops_floats(o, (size_t)n_threads, scratch_floats);
    ptrdiff_t *row = ops_offsets(o, TASK_ROWS_MAX);
    struct panel_store store = find_store(o, p, panel_floats, n_panels);
    if (!scratch || !row || !store.data) return false;
    if (ops_dry(o)) {
        arena_reset(o->arena, mark);
        return true;
    }
    for (size_t i = 0; i < TASK_ROWS_MAX; i++) row[i] = (ptrdiff_t)(i * row_stride(k));
    for (size_t first = 0; first < n_panels; first += store.chunk) {
        size_t count = min_size(store.chunk, n_panels - first);
        struct cut cut = cut_tasks(p, k, count, n_threads);
        size_t n_tasks = p->n_samples * cut.n_row_blocks * cut.n_panel_blocks;
#pragma omp parallel num_threads(n_threads)
        {
            float *at = scratch + (size_t)omp_get_thread_num() * scratch_floats;
            struct own own = {at, copy_floats ? at + TASK_ROWS_MAX * GEMM_PARTIAL : NULL, row};
            if (!store.filled) {
#pragma omp for schedule(dynamic)
                for (size_t i = 0; i < count; i++)
                    pack_panel(o->kernels, &p->weights, first + i, at,
                               store.data + i * panel_floats);
            }
#pragma omp for schedule(dynamic) nowait
            for (size_t i = 0; i < n_tasks; i++)
                run_task(o, p, &cut, i, store.data, k, first, count, &own);
        }
    }
    if (store.is_new)
        pack_cache_filled(o->cache, p->weights.weight->data, p->weights.kind, store.cache_bytes);
    arena_reset(o->arena, mark);
    return true;
}
