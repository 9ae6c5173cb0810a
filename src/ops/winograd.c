/* winograd.c - 3x3 convolutions by Winograd's F(4x4, 3x3) (Lavin and Gray, arXiv:1509.09308). */
/* SPDX-License-Identifier: MIT */
#include "ops/internal.h"

#include <omp.h>

/*
 *   x --load--> patch --B^T d B--> V [36][tiles][in] --36 products with U--> M [36][tiles][out]
 * --A^T m A--> y
 *
 * 36 multiplications where direct arithmetic needs 144, with a relative error of 2e-6 to 5e-6. The
 * filters' transforms U [panel][36][in][16] are kept in the cache if they fit, else made anew: that
 * costs a few per cent, less than reading them from memory would when they are large.
 *
 * Large maps are cut into rectangles of tiles, one task each, everything from load to y by one
 * thread. Small maps have too few tiles for that: all of V is made first, then the tasks are panels
 * of output channels, so that filters are read and transformed once for all tiles of all samples; a
 * run of input channels at a time, whose U (600 KB) is multiplied with before it leaves the
 * second-level cache. Both ways do the same arithmetic.
 */

/* Tiles of a task, and panels multiplied between two visits to V. */
#define TASK_TILES 96
#define GROUP      4
/* Maps with fewer tiles a sample than this are small; tiles of a step of theirs. */
#define SMALL_TILES 128
#define STEP_TILES  96

struct wino {
    const struct kernels *kernels;
    const struct conv_plan *c;
    struct pack_job weights;
    size_t tiles_h, tiles_w, n_panels;
    /* Planes are a cache line more than a multiple of the page apart, else they would share the
     * same cache sets. */
    size_t u_plane, panel_floats; /* of U: [in][GEMM_PANEL] and a line, 36 times that */
    size_t v_row;                 /* floats from tile to tile in V */
    const ptrdiff_t *row;
    const struct gemm_run *runs;
    size_t n_runs, run_k; /* run_k: values in the longest */
    float *u;             /* all panels, or NULL: each thread makes the one it needs */
};

bool conv_winograd_suits(const struct conv_plan *c)
{
    return c->side == 3 && c->stride == 1 && !c->args->pad_end_only && c->in % 8 == 0 &&
           c->out % 8 == 0;
}

static size_t m_plane(size_t n_tiles, size_t n_panels)
{
    return n_tiles * n_panels * GEMM_PANEL + LINE;
}

/*
 * M of n_tiles tiles for n_panels panels from V; m [36] planes of [n_tiles][n_panels * 16]. With
 * run, only that run's channels are added, and u holds no others.
 */
static void multiply(const struct wino *w, const float *v, size_t v_plane, size_t n_tiles,
                     const float *u, size_t u_plane, size_t n_panels, const struct gemm_run *run,
                     float *m, float *partial)
{
    size_t ldc = n_panels * GEMM_PANEL;
    struct gemm g = {
        .m = n_tiles,
        .row = w->row,
        .runs = run ? run : w->runs,
        .n_runs = run ? 1 : w->n_runs,
        .panel_stride = w->panel_floats,
        .ldc = ldc,
        .n = ldc,
        .accumulate = run && run->offset > 0,
        .partial = partial,
    };
    for (size_t plane = 0; plane < WINO_PLANES; plane++) {
        g.a = v + plane * v_plane;
        g.b = u + plane * u_plane;
        g.c = m + plane * m_plane(n_tiles, n_panels);
        g.next_b = u + (plane + 1) % WINO_PLANES * u_plane;
        w->kernels->gemm(&g);
    }
}

/* One tile's outputs, channels first_panel * 16 on, from M. */
static void store_tile(const struct wino *w, size_t sample, size_t tile_y, size_t tile_x,
                       size_t first_panel, size_t n_panels, const float *m, size_t plane_stride)
{
    const struct conv_plan *c = w->c;
    size_t channel = first_panel * GEMM_PANEL, y = tile_y * WINO_OUT, x = tile_x * WINO_OUT;
    size_t at = ((sample * c->out_h + y) * c->out_w + x) * c->out + channel;
    struct wino_output out = {
        .m = m,
        .plane_stride = plane_stride,
        .c = min_size(n_panels * GEMM_PANEL, c->out - channel),
        .rows = (int)min_size(WINO_OUT, c->out_h - y),
        .columns = (int)min_size(WINO_OUT, c->out_w - x),
        .y = c->y + at,
        .row_stride = c->out_w * c->out,
        .pixel_stride = c->out,
        .bias = c->bias + sample * c->bias_stride + channel,
        .residual = c->residual ? c->residual + at : NULL,
        .relu = c->args->relu,
    };
    w->kernels->wino_output(&out);
}

/* ---- large maps ---- */

/* How a map is cut into rectangles of tiles, and where a thread's scratch has its parts. */
struct cut {
    size_t tiles_h, tiles_w, blocks_h, blocks_w;
    size_t v_plane, patch_at, v_at, m_at, partial_at, size;
};

/* Fewer tiles a task where many threads would find nothing to do. */
static struct cut cut_map(const struct wino *w, int n_threads)
{
    size_t share = w->c->n * w->tiles_h * w->tiles_w / (2 * (size_t)n_threads);
    size_t tiles_wanted = min_size(max_size(share, TASK_TILES / 4), TASK_TILES);
    /* About as high as wide, so that few pixels are loaded twice; bands of few rows: wider. */
    struct cut cut = {.tiles_w = min_size(w->tiles_w, max_size(12, tiles_wanted / w->tiles_h))};
    cut.blocks_w = ceil_div(w->tiles_w, cut.tiles_w);
    cut.tiles_w = ceil_div(w->tiles_w, cut.blocks_w);
    cut.tiles_h = min_size(max_size(tiles_wanted / cut.tiles_w, 1), w->tiles_h);
    cut.blocks_h = ceil_div(w->tiles_h, cut.tiles_h);
    cut.tiles_h = ceil_div(w->tiles_h, cut.blocks_h);
    size_t tiles = cut.tiles_h * cut.tiles_w, in = w->c->in;
    cut.v_plane = tiles * w->v_row + LINE;
    cut.v_at = round_up((cut.tiles_h * WINO_OUT + 2) * (cut.tiles_w * WINO_OUT + 2) * in, LINE);
    cut.m_at = cut.v_at + WINO_PLANES * cut.v_plane;
    cut.partial_at = cut.m_at + WINO_PLANES * m_plane(tiles, GROUP);
    cut.size = cut.partial_at + tiles * GEMM_PARTIAL;
    return cut;
}

/* A rectangle of tiles of one sample, from x to y. */
static void run_block(const struct wino *w, const struct cut *cut, size_t block, float *scratch)
{
    const struct conv_plan *c = w->c;
    size_t sample = block / (cut->blocks_h * cut->blocks_w),
           in_map = block % (cut->blocks_h * cut->blocks_w);
    size_t top = in_map / cut->blocks_w * cut->tiles_h,
           left = in_map % cut->blocks_w * cut->tiles_w;
    size_t tiles_h = min_size(cut->tiles_h, w->tiles_h - top),
           tiles_w = min_size(cut->tiles_w, w->tiles_w - left);
    size_t columns = tiles_w * WINO_OUT + 2, n_tiles = tiles_h * tiles_w;
    float *patch = scratch, *v = scratch + cut->v_at, *m = scratch + cut->m_at;
    for (size_t i = 0; i < tiles_h * WINO_OUT + 2; i++)
        conv_load(w->kernels, c, sample, (ptrdiff_t)(c->out_first + top * WINO_OUT + i) - 1,
                  (ptrdiff_t)(left * WINO_OUT) - 1, columns, patch + i * columns * c->in, c->in);
    for (size_t t = 0; t < n_tiles; t++) {
        const float *d = patch + (t / tiles_w * columns + t % tiles_w) * WINO_OUT * c->in;
        w->kernels->wino_input(v + t * w->v_row, cut->v_plane, d, columns * c->in, c->in, c->in);
    }
    for (size_t panel = 0; panel < w->n_panels; panel += GROUP) {
        size_t n_panels = min_size(GROUP, w->n_panels - panel), width = n_panels * GEMM_PANEL;
        multiply(w, v, cut->v_plane, n_tiles, w->u + panel * w->panel_floats, w->u_plane, n_panels,
                 NULL, m, scratch + cut->partial_at);
        for (size_t t = 0; t < n_tiles; t++)
            store_tile(w, sample, top + t / tiles_w, left + t % tiles_w, panel, n_panels,
                       m + t * width, m_plane(n_tiles, n_panels));
    }
}

static bool run_large(struct ops *o, struct wino *w, bool u_is_new, int n_threads)
{
    struct cut cut = cut_map(w, n_threads);
    size_t pack_floats = round_up(pack_scratch(&w->weights), LINE),
           n_blocks = w->c->n * cut.blocks_h * cut.blocks_w;
    size_t size = max_size(cut.size, pack_floats);
    float *scratch = ops_floats(o, (size_t)n_threads, size);
    if (!w->u) {
        w->u = ops_floats(o, w->n_panels, w->panel_floats);
        u_is_new = true;
    }
    if (!scratch || !w->u) return false;
    if (ops_dry(o)) return true;
#pragma omp parallel num_threads(n_threads)
    {
        float *own = scratch + (size_t)omp_get_thread_num() * size;
        if (u_is_new) {
#pragma omp for schedule(dynamic)
            for (size_t i = 0; i < w->n_panels; i++)
                pack_winograd(w->kernels, &w->weights, i, 0, w->c->in, own,
                              w->u + i * w->panel_floats, w->u_plane);
        }
#pragma omp for schedule(dynamic) nowait
        for (size_t i = 0; i < n_blocks; i++) run_block(w, &cut, i, own);
    }
    return true;
}

/* ---- small maps ---- */

/* V of tile t (counted over all samples) from the padded input. */
static void transform_tile(const struct wino *w, const float *padded, size_t t, float *v,
                           size_t v_plane)
{
    size_t each = w->tiles_h * w->tiles_w, columns = w->tiles_w * WINO_OUT + 2,
           rows = w->tiles_h * WINO_OUT + 2;
    size_t in_map = t % each, y = in_map / w->tiles_w * WINO_OUT,
           x = in_map % w->tiles_w * WINO_OUT;
    const float *d = padded + ((t / each * rows + y) * columns + x) * w->c->in;
    w->kernels->wino_input(v, v_plane, d, columns * w->c->in, w->c->in, w->c->in);
}

/* What a thread works in; u holds one run of one panel. */
struct own {
    float *pack, *m, *partial, *u;
};

/* M of one panel, run by run. */
static void multiply_panel(const struct wino *w, const float *v, size_t v_plane, size_t n_tiles,
                           size_t panel, bool fill, const struct own *own)
{
    for (size_t r = 0; r < w->n_runs; r++) {
        const struct gemm_run *run = &w->runs[r];
        float *u =
            w->u ? w->u + panel * w->panel_floats + (size_t)run->offset * GEMM_PANEL : own->u;
        size_t u_plane = w->u ? w->u_plane : (w->run_k + 1) * GEMM_PANEL;
        if (fill)
            pack_winograd(w->kernels, &w->weights, panel, (size_t)run->offset, run->k, own->pack, u,
                          u_plane);
        multiply(w, v, v_plane, n_tiles, u, u_plane, 1, run, own->m, own->partial);
    }
}

static bool run_small(struct ops *o, struct wino *w, bool u_is_new, int n_threads)
{
    const struct conv_plan *c = w->c;
    size_t each = w->tiles_h * w->tiles_w, n_tiles = c->n * each,
           step = min_size(n_tiles, STEP_TILES);
    size_t rows = w->tiles_h * WINO_OUT + 2, columns = w->tiles_w * WINO_OUT + 2;
    size_t v_plane = step * w->v_row + LINE, m_floats = WINO_PLANES * m_plane(step, 1);
    size_t pack_floats = round_up(pack_scratch(&w->weights), LINE);
    size_t u_floats = w->u ? 0 : WINO_PLANES * (w->run_k + 1) * GEMM_PANEL;
    size_t size = pack_floats + m_floats + step * GEMM_PARTIAL + u_floats;
    float *padded = ops_floats(o, c->n * rows, columns * c->in),
          *v = ops_floats(o, WINO_PLANES, v_plane);
    float *scratch = ops_floats(o, (size_t)n_threads, size);
    if (!padded || !v || !scratch) return false;
    if (ops_dry(o)) return true;
#pragma omp parallel num_threads(n_threads)
    {
        struct own own = {.pack = scratch + (size_t)omp_get_thread_num() * size};
        own.m = own.pack + pack_floats;
        own.partial = own.m + m_floats;
        own.u = own.partial + step * GEMM_PARTIAL;
#pragma omp for schedule(static)
        for (size_t i = 0; i < c->n * rows; i++)
            conv_load(w->kernels, c, i / rows, (ptrdiff_t)(c->out_first + i % rows) - 1, -1,
                      columns, padded + i * columns * c->in, c->in);
        for (size_t first = 0; first < n_tiles; first += step) {
            size_t count = min_size(step, n_tiles - first);
#pragma omp for schedule(static)
            for (size_t t = 0; t < count; t++)
                transform_tile(w, padded, first + t, v + t * w->v_row, v_plane);
#pragma omp for schedule(dynamic)
            for (size_t panel = 0; panel < w->n_panels; panel++) {
                multiply_panel(w, v, v_plane, count, panel, !w->u || (u_is_new && first == 0),
                               &own);
                for (size_t t = 0; t < count; t++) {
                    size_t in_map = (first + t) % each;
                    store_tile(w, (first + t) / each, in_map / w->tiles_w, in_map % w->tiles_w,
                               panel, 1, own.m + t * GEMM_PANEL, m_plane(count, 1));
                }
            }
        }
    }
    return true;
}

bool conv_winograd(struct ops *o, const struct conv_plan *c)
{
    struct wino w = {
        .kernels = o->kernels,
        .c = c,
        .weights = {&c->args->conv->weight, PACK_WINOGRAD, c->out, c->in, 9},
        .tiles_h = ceil_div(c->out_h, WINO_OUT),
        .tiles_w = ceil_div(c->out_w, WINO_OUT),
        .u_plane = (c->in + 1) * GEMM_PANEL,
        .panel_floats = WINO_PLANES * (c->in + 1) * GEMM_PANEL,
        .v_row = row_stride(c->in),
    };
    if (!pack_fits(o, &w.weights, "conv")) return false;
    w.n_panels = pack_panels(&w.weights);
    bool is_new = false, small = w.tiles_h * w.tiles_w < SMALL_TILES;
    size_t n_rows = max_size(TASK_TILES * 2, STEP_TILES);
    struct gemm_run *runs = (void *)ops_offsets(o, 2 * runs_cut(NULL, 0, c->in));
    ptrdiff_t *row = ops_offsets(o, n_rows);
    if (!runs || !row) return false;
    bool whole = dtype_info(w.weights.weight->dtype)->block_values > RUN_UNIT;
    w.n_runs = whole ? 1 : runs_cut(ops_dry(o) ? NULL : runs, 0, c->in);
    w.run_k = whole ? c->in : runs_longest(c->in);
    if (whole && !ops_dry(o)) runs[0] = (struct gemm_run){0, c->in};
    w.runs = runs;
    for (size_t i = 0; i < n_rows && !ops_dry(o); i++) row[i] = (ptrdiff_t)(i * w.v_row);
    w.row = row;
    size_t u_bytes = w.n_panels * w.panel_floats * sizeof(float);
    if (small || u_bytes <= PACK_CACHE_SMALL_BYTES)
        w.u = pack_cache_get(o->cache, w.weights.weight->data, PACK_WINOGRAD, u_bytes, &is_new);
    double work =
        (double)(c->n * w.tiles_h * w.tiles_w) * WINO_PLANES * (double)c->in * (double)c->out;
    int n_threads = ops_threads(o, work / 8);
    bool done = small ? run_small(o, &w, is_new, n_threads) : run_large(o, &w, is_new, n_threads);
    if (done && is_new && !ops_dry(o))
        pack_cache_filled(o->cache, w.weights.weight->data, PACK_WINOGRAD, u_bytes);
    return done;
}
