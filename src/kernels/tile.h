/* tile.h - the matrix product around an instruction set's tiles of sums in registers. */
/* SPDX-License-Identifier: MIT */
#ifndef KERNELS_TILE_H
#define KERNELS_TILE_H

/*
 * The includer defines the primitives that lanes.h tells of, TILE_ROWS (6 or 12), so many rows a
 * tile has at most, and
 *
 *   v_load_split(p, n)   LANES floats, from the ninth on those 8 further; n lanes are needed
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
    size_t n_sums; /* of a row */
    enum tile_end end;
};

typedef void tile(const struct gemm *g, const struct block *block, size_t row);

/* Panels that a tile of two vectors a row takes. */
enum { TILE_PANELS = 2 * LANES / GEMM_PANEL };

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

/* The sums of a row to start with: of two vectors the first is whole. */
static inline vec start_one(const struct block *block, size_t row)
{
    if (!block->from) return v_set(0);
    return load_lanes(block->from + row * block->from_stride,
                      block->n_sums < LANES ? block->n_sums : LANES);
}

static inline void start_two(const struct block *block, size_t row, vec *left, vec *right)
{
    *left = *right = v_set(0);
    if (!block->from) return;
    const float *from = block->from + row * block->from_stride;
    *left = v_load(from);
    *right = load_lanes(from + LANES, block->n_sums - LANES);
}

/* Bias and residual of LANES columns. */
static inline void finish(const struct gemm *g, size_t row, size_t column, vec v)
{
    size_t at = row * g->ldc + column;
    if (g->bias) v = v_add(v, v_load(g->bias + column));
    v_store(g->c + at, g->residual ? v_add(v, v_load(g->residual + at)) : v);
}

/* What a tile does with row i. Its sums are left, and right if it has two vectors; in partial they
 * lie side by side, row after row. */
#define POINT(i)        const float *a##i = g->a + g->row[row + i] + block->runs[r].offset;
#define ADVANCE(i)      a##i += unroll;
#define START_ONE(i)    vec left##i = start_one(block, row + i);
#define MULTIPLY_ONE(i) left##i = v_fma(v_set(a##i[at]), b0, left##i);
#define KEEP_ONE(i)     v_store(g->partial + (row + i) * LANES, left##i);
#define STORE_ONE(i)    v_store(g->c + (row + i) * g->ldc, left##i);
#define FINISH_ONE(i)   finish(g, row + i, 0, left##i);
#define START_TWO(i)                                                                               \
    vec left##i, right##i;                                                                         \
    start_two(block, row + i, &left##i, &right##i);
#define MULTIPLY_TWO(i)                                                                            \
    value = v_set(a##i[at]);                                                                       \
    left##i = v_fma(value, b0, left##i);                                                           \
    right##i = v_fma(value, b1, right##i);
#define KEEP_TWO(i)                                                                                \
    v_store(g->partial + (row + i) * 2 * LANES, left##i);                                          \
    v_store(g->partial + (row + i) * 2 * LANES + LANES, right##i);
#define STORE_TWO(i)                                                                               \
    STORE_ONE(i)                                                                                   \
    v_store(g->c + (row + i) * g->ldc + LANES, right##i);
#define FINISH_TWO(i)                                                                              \
    FINISH_ONE(i)                                                                                  \
    finish(g, row + i, LANES, right##i);

/* Multiplies value step of the rows with row step of b. Its second vector lies in the same panel,
 * or in the next where a panel is one vector. */
#define STEP_ONE(n, step)                                                                          \
    do {                                                                                           \
        enum { at = step };                                                                        \
        vec b0 = v_load(b + at * GEMM_PANEL);                                                      \
        ROWS_##n(MULTIPLY_ONE);                                                                    \
    } while (0)
#define STEP_TWO(n, step)                                                                          \
    do {                                                                                           \
        enum { at = step };                                                                        \
        vec value, b0 = v_load(b + at * GEMM_PANEL),                                               \
                   b1 = v_load((TILE_PANELS == 1 ? b + LANES : beside) + at * GEMM_PANEL);         \
        ROWS_##n(MULTIPLY_TWO);                                                                    \
    } while (0)

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
 * A tile of n rows: all sums in registers over the runs of a block. Written with one variable a
 * register: compilers keep arrays of vectors in memory here, which costs half the speed. Eight
 * steps a turn, because the end of the loop is then predicted.
 */
#define DEFINE_TILE(vectors, n)                                                                    \
    static void tile_##vectors##_##n(const struct gemm *g, const struct block *block, size_t row)  \
    {                                                                                              \
        const float *b = block->b, *beside = b + g->panel_stride;                                  \
        (void)beside; /* read only where a panel is one vector */                                  \
        ROWS_##n(START_##vectors);                                                                 \
        for (size_t r = 0; r < block->n_runs; r++) {                                               \
            ROWS_##n(POINT);                                                                       \
            size_t k = block->runs[r].k;                                                           \
            for (; k >= 8; k -= 8) {                                                               \
                enum { unroll = 8 };                                                               \
                EIGHT_STEPS(STEP_##vectors, n)                                                     \
                b += unroll * GEMM_PANEL, beside += unroll * GEMM_PANEL;                           \
                ROWS_##n(ADVANCE);                                                                 \
            }                                                                                      \
            for (; k > 0; k--) {                                                                   \
                enum { unroll = 1 };                                                               \
                STEP_##vectors(n, 0);                                                              \
                b += unroll * GEMM_PANEL, beside += unroll * GEMM_PANEL;                           \
                ROWS_##n(ADVANCE);                                                                 \
            }                                                                                      \
        }                                                                                          \
        if (block->end == END_KEEP) {                                                              \
            ROWS_##n(KEEP_##vectors);                                                              \
        } else if (block->end == END_STORE) {                                                      \
            ROWS_##n(STORE_##vectors);                                                             \
        } else {                                                                                   \
            ROWS_##n(FINISH_##vectors);                                                            \
        }                                                                                          \
    }
#define DEFINE_TILES(n)                                                                            \
    DEFINE_TILE(ONE, n)                                                                            \
    DEFINE_TILE(TWO, n)

DEFINE_TILES(1)
DEFINE_TILES(2)
DEFINE_TILES(3)
DEFINE_TILES(4)
DEFINE_TILES(5)
DEFINE_TILES(6)
#if TILE_ROWS == 12
DEFINE_TILES(7)
DEFINE_TILES(8)
DEFINE_TILES(9)
DEFINE_TILES(10)
DEFINE_TILES(11)
DEFINE_TILES(12)
#define MORE_TILES(v) , v##_7, v##_8, v##_9, v##_10, v##_11, v##_12
#else
#define MORE_TILES(v)
#endif
#define TILES_OF(v)                                                                                \
    {                                                                                              \
        NULL, v##_1, v##_2, v##_3, v##_4, v##_5, v##_6 MORE_TILES(v)                               \
    }

/* By how many rows there are. */
static tile *const tiles_one[] = TILES_OF(tile_ONE), *const tiles_two[] = TILES_OF(tile_TWO);

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
    };
    bool two = block.n_sums > LANES;
    tile *const *tiles = two ? tiles_two : tiles_one;
    size_t partial_stride = two ? 2 * LANES : LANES;
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
        block.from_stride = partial_stride;
    }
    if (finish_later) finish_rows(g, partial_stride);
}

static void gemm(const struct gemm *g)
{
    for (size_t i = 0; i * gemm_width(g) < g->n; i += TILE_PANELS) {
        struct gemm part = gemm_panels(g, i, TILE_PANELS);
        gemm_tiles(&part);
    }
}

/* ---- the machine's best ---- */

#define BURN_START(i) vec low##i = v_set(i), high##i = v_set(i + 0.5f);
#define BURN(i)                                                                                    \
    low##i = v_fma(low##i, x, y);                                                                  \
    high##i = v_fma(high##i, x, y);
#define BURN_SUM(i) x = v_add(x, v_add(low##i, high##i));

static double burn(size_t rounds)
{
    vec x = v_set(0.999f), y = v_set(0.001f);
    ROWS_6(BURN_START);
    for (size_t r = 0; r < rounds; r++) {
        ROWS_6(BURN);
    }
    ROWS_6(BURN_SUM);
    return v_highest(x) >= 0 ? 2.0 * LANES * 12 * (double)rounds : 0;
}

/* Everything in this header and lanes.h. */
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
