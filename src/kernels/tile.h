/* tile.h - the matrix product around an instruction set's tiles of sums in registers. */
/* SPDX-License-Identifier: MIT */
#ifndef KERNELS_TILE_H
#define KERNELS_TILE_H

/*
 * Comes after lanes.h. The includer defines TILE_ROWS and TILE_PANELS, so many rows times panels at
 * most, and
 *
 *   v_load_split(p, n)   LANES floats, from the ninth on those 8 further; n lanes are needed
 *   START POINT MULTIPLY ADVANCE KEEP STORE FINISH   what a tile does with row i, see DEFINE_TILE
 *   tiles_of(g)          the tiles for g's panels by how many rows they take
 */
#include "kernels/lanes.h"

/* Values of k between two visits to a tile of C: the panel's share (20 KB) stays in the first-level
 * cache meanwhile. */
#define BLOCK_K 320

enum tile_end {
    END_KEEP,  /* sums go to partial: more blocks follow, or finish_rows */
    END_STORE, /* into c as they are */
    END_FINISH /* with bias and residual into c */
};

/* A block of runs: what is added to every tile before the next block. */
struct block {
    const struct gemm_run *runs;
    size_t n_runs;
    const float *b;
    const float *from; /* what sums start from, from_stride floats from row to row; NULL: 0 */
    size_t from_stride;
    size_t n_sums;         /* of a row */
    size_t partial_stride; /* floats from row to row */
    enum tile_end end;
};

typedef void tile(const struct gemm *g, const struct block *block, size_t row);
static tile *const *tiles_of(const struct gemm *g);

#define ROWS_1(X)  X(0)
#define ROWS_2(X)  ROWS_1(X) X(1)
#define ROWS_3(X)  ROWS_2(X) X(2)
#define ROWS_4(X)  ROWS_3(X) X(3)
#define ROWS_5(X)  ROWS_4(X) X(4)
#define ROWS_6(X)  ROWS_5(X) X(5)
#define ROWS_7(X)  ROWS_6(X) X(6)
#define ROWS_8(X)  ROWS_7(X) X(7)
#define ROWS_9(X)  ROWS_8(X) X(8)
#define ROWS_10(X) ROWS_9(X) X(9)
#define ROWS_11(X) ROWS_10(X) X(10)
#define ROWS_12(X) ROWS_11(X) X(11)

#define EIGHT_STEPS(step, n)                                                                       \
    step(n, 0);                                                                                    \
    step(n, 1);                                                                                    \
    step(n, 2);                                                                                    \
    step(n, 3);                                                                                    \
    step(n, 4);                                                                                    \
    step(n, 5);                                                                                    \
    step(n, 6);                                                                                    \
    step(n, 7);

/*
 * A tile of n rows: all sums in registers over the runs of a block; step(n, at) multiplies value at
 * of the rows with the panels' row b + at. Written with one variable a register: compilers keep
 * arrays of vectors in memory here, which costs half the speed. Eight steps a turn, because the end
 * of the loop is then predicted.
 */
#define DEFINE_TILE(name, n, step)                                                                 \
    static void name(const struct gemm *g, const struct block *block, size_t row)                  \
    {                                                                                              \
        const float *b = block->b, *beside = b + g->panel_stride;                                  \
        (void)beside; /* of the next panel, for sets that take two */                              \
        ROWS_##n(START);                                                                           \
        for (size_t r = 0; r < block->n_runs; r++) {                                               \
            ROWS_##n(POINT);                                                                       \
            size_t k = block->runs[r].k;                                                           \
            for (; k >= 8; k -= 8) {                                                               \
                enum { unroll = 8 };                                                               \
                EIGHT_STEPS(step, n)                                                               \
                b += unroll * GEMM_PANEL, beside += unroll * GEMM_PANEL;                           \
                ROWS_##n(ADVANCE);                                                                 \
            }                                                                                      \
            for (; k > 0; k--) {                                                                   \
                enum { unroll = 1 };                                                               \
                step(n, 0);                                                                        \
                b += unroll * GEMM_PANEL, beside += unroll * GEMM_PANEL;                           \
                ROWS_##n(ADVANCE);                                                                 \
            }                                                                                      \
        }                                                                                          \
        if (block->end == END_KEEP) {                                                              \
            ROWS_##n(KEEP);                                                                        \
        } else if (block->end == END_STORE) {                                                      \
            ROWS_##n(STORE);                                                                       \
        } else {                                                                                   \
            ROWS_##n(FINISH);                                                                      \
        }                                                                                          \
    }
#define POINT(i)   const float *a##i = g->a + g->row[row + i] + block->runs[r].offset;
#define ADVANCE(i) a##i += unroll;

/* The values of a panel or two from sums, at floats into them. */
static inline vec with_bias(const struct gemm *g, const float *sums, size_t at, size_t lanes)
{
    vec v = v_load_split(sums + at, lanes);
    return g->bias ? v_add(v, v_load_split(g->bias + at, lanes)) : v;
}

/* LANES columns of some rows (at most 4) of partial: values times gelu of their gates. */
static inline void finish_geglu(const struct gemm *g, size_t stride, size_t row, size_t column,
                                size_t rows)
{
    size_t lanes = g->n - column < LANES ? g->n - column : LANES, at = column / 8 * GEMM_PANEL;
    const float *sums = g->partial + row * stride;
    at += column % 8;
    vec gates[4];
    for (size_t i = 0; i < rows; i++) gates[i] = with_bias(g, sums + i * stride, at + 8, lanes);
    gelu_some(gates, rows);
    for (size_t i = 0; i < rows; i++) {
        size_t place = (row + i) * g->ldc + column;
        vec v = v_mul(with_bias(g, sums + i * stride, at, lanes), gates[i]);
        if (g->residual) v = v_add(v, load_lanes(g->residual + place, lanes));
        store_lanes(g->c + place, v, lanes);
    }
}

static inline void finish_act(const struct gemm *g, size_t stride, size_t row, size_t column)
{
    size_t lanes = g->n - column < LANES ? g->n - column : LANES;
    size_t place = row * g->ldc + column;
    vec v = v_load(g->partial + row * stride + column);
    if (g->bias) v = v_add(v, v_load(g->bias + column));
    v = v_act(v, g->act);
    if (g->residual) v = v_add(v, load_lanes(g->residual + place, lanes));
    store_lanes(g->c + place, v, lanes);
}

/* What is done to sums beyond bias and residual on whole vectors, once all rows have them. */
static void finish_rows(const struct gemm *g, size_t stride)
{
    for (size_t column = 0; column < g->n; column += LANES) {
        size_t row = 0;
        for (; g->geglu && row + 4 <= g->m; row += 4) finish_geglu(g, stride, row, column, 4);
        for (; g->geglu && row < g->m; row++) finish_geglu(g, stride, row, column, 1);
        for (; row < g->m; row++) finish_act(g, stride, row, column);
    }
}

/* Asks for one share of the next block of b, so that it is near when its turn comes. */
static void fetch(const float *b, size_t k, size_t share, size_t n_shares)
{
    size_t end = k * (share + 1) / n_shares;
    for (size_t i = k * share / n_shares; i < end; i++) v_fetch(b + i * GEMM_PANEL);
}

/* The product of the panels that a tile takes. */
static void gemm_tiles(const struct gemm *g)
{
    size_t width = gemm_width(g), n_panels = (g->n + width - 1) / width,
           n_tiles = (g->m + TILE_ROWS - 1) / TILE_ROWS;
    bool finish_later = g->geglu || g->act != ACT_NONE || g->n % LANES != 0;
    bool plain = !g->bias && !g->residual && g->n == n_panels * GEMM_PANEL;
    struct block block = {
        .b = g->b,
        .from = g->accumulate ? g->c : NULL,
        .from_stride = g->ldc,
        .n_sums = g->geglu ? n_panels * GEMM_PANEL : g->n,
        .partial_stride = n_panels * GEMM_PANEL,
    };
    tile *const *tiles = tiles_of(g);
    for (size_t r = 0; r < g->n_runs; r += block.n_runs) {
        size_t k = 0;
        block.runs = g->runs + r;
        block.n_runs = 0;
        do k += g->runs[r + block.n_runs++].k;
        while (r + block.n_runs < g->n_runs && k + g->runs[r + block.n_runs].k <= BLOCK_K);
        bool last = r + block.n_runs == g->n_runs;
        block.end = !last || finish_later ? END_KEEP : plain ? END_STORE : END_FINISH;
        const float *next = last ? g->next_b : block.b + k * GEMM_PANEL;
        for (size_t t = 0, row = 0; t < n_tiles; t++, row += TILE_ROWS) {
            for (size_t i = 0; next && i < n_panels; i++)
                fetch(next + i * g->panel_stride, k, t, n_tiles);
            tiles[g->m - row < TILE_ROWS ? g->m - row : TILE_ROWS](g, &block, row);
        }
        block.b += k * GEMM_PANEL;
        block.from = g->partial;
        block.from_stride = block.partial_stride;
    }
    if (finish_later) finish_rows(g, block.partial_stride);
}

static void gemm(const struct gemm *g)
{
    for (size_t i = 0; i * gemm_width(g) < g->n; i += TILE_PANELS) {
        struct gemm part = gemm_panels(g, i, TILE_PANELS);
        gemm_tiles(&part);
    }
}

/* Everything in this header and lanes.h, and what each set has of its own. */
#define KERNELS_OF_THIS_SET(k)                                                                     \
    do {                                                                                           \
        (k)->burn = burn;                                                                          \
        (k)->unpack = unpack;                                                                      \
        (k)->pack = pack;                                                                          \
        (k)->gemm = gemm;                                                                          \
        (k)->affine_act = affine_act;                                                              \
        (k)->act = act_row;                                                                        \
        (k)->add = add_rows;                                                                       \
        (k)->all_finite = all_finite;                                                              \
        (k)->moments = moments;                                                                    \
        (k)->layer_norm = layer_norm;                                                              \
        (k)->softmax = softmax;                                                                    \
        (k)->scale = scale_row;                                                                    \
        (k)->wino_input = wino_input;                                                              \
        (k)->wino_weight = wino_weight;                                                            \
        (k)->wino_output = wino_output;                                                            \
    } while (0)

#endif
