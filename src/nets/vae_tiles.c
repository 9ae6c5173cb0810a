/* vae_tiles.c - decoding in overlapping tiles, for pictures too large to be decoded at once. */
/* SPDX-License-Identifier: MIT */
#include "nets/vae.h"

/* One tile's place in the latent, and how far its sides fade into the neighbours, in pixels. */
struct span {
    int64_t first, n;      /* latent cells */
    int64_t before, after; /* 0 at the picture's own edges */
};

/* Tiles along a side of n cells; at least one. */
static int64_t count_spans(int64_t n, int64_t tile, int64_t overlap)
{
    return n <= tile ? 1 : (n - overlap + (tile - overlap) - 1) / (tile - overlap);
}

/* Tile i of count: evenly spread, the last one ends where the side ends. */
static struct span span_at(int64_t i, int64_t count, int64_t n, int64_t tile, int64_t factor)
{
    struct span s = {.n = n < tile ? n : tile};
    if (count == 1) return s;
    s.first = i * (n - tile) / (count - 1);
    int64_t previous = i > 0 ? (i - 1) * (n - tile) / (count - 1) + tile : s.first;
    int64_t next = i + 1 < count ? (i + 1) * (n - tile) / (count - 1) : s.first + tile;
    s.before = (previous - s.first) * factor;
    s.after = (s.first + tile - next) * factor;
    return s;
}

/* A tile's weight at pixel at of its n: rises over the overlap and falls again. */
static float weight_at(const struct span *s, int64_t at, int64_t factor)
{
    int64_t from_end = s->n * factor - 1 - at;
    float w = 1;
    if (at < s->before) w *= ((float)at + 0.5f) / (float)s->before;
    if (from_end < s->after) w *= ((float)from_end + 0.5f) / (float)s->after;
    return w;
}

/* The tile's part of sample i of z [n, h, w, c] as a tensor of its own. */
static struct tensor cut_out(struct ops *o, struct tensor z, int64_t i, const struct span *rows,
                             const struct span *columns)
{
    int64_t c = z.dim[3];
    struct tensor t = tensor_new4(o->arena, 1, rows->n, columns->n, c, o->err);
    for (int64_t at = 0; at < tensor_count(t) && !ops_dry(o); at++) {
        int64_t y = at / c / columns->n + rows->first, x = at / c % columns->n + columns->first;
        t.data[at] = z.data[((i * z.dim[1] + y) * z.dim[2] + x) * c + at % c];
    }
    return t;
}

/*
 * sum[h, w, c] += weight * tile, total[h, w] += weight. Every pixel gets its tiles in order, so the
 * sums are the same in every run.
 */
static void add_tile(struct tensor sum, float *total, struct tensor tile, const struct span *rows,
                     const struct span *columns, int64_t factor)
{
    int64_t width = sum.dim[2], c = sum.dim[3];
    for (int64_t y = 0; y < tile.dim[1]; y++)
        for (int64_t x = 0; x < tile.dim[2]; x++) {
            float w = weight_at(rows, y, factor) * weight_at(columns, x, factor);
            int64_t at = (rows->first * factor + y) * width + columns->first * factor + x;
            const float *from = tile.data + (y * tile.dim[2] + x) * c;
            for (int64_t k = 0; k < c; k++) sum.data[at * c + k] += w * from[k];
            total[at] += w;
        }
}

static void decode_tiles(const struct vae *vae, struct ops *o, struct tensor z, int64_t i,
                         struct tensor y, int64_t tile, int64_t overlap)
{
    int64_t f = vae_factor(vae), pixels = y.dim[1] * y.dim[2], c = y.dim[3];
    int64_t n_rows = count_spans(z.dim[1], tile, overlap);
    int64_t n_columns = count_spans(z.dim[2], tile, overlap);
    struct tensor total = tensor_new(o->arena, 1, &pixels, o->err);
    if (total.rank == 0) return;
    if (ops_dry(o)) n_rows = n_columns = pixels = 1; /* all tiles need the same memory */
    for (int64_t p = 0; p < pixels; p++) total.data[p] = 0;
    for (int64_t p = 0; p < pixels * c; p++) y.data[p] = 0;
    for (int64_t t = 0; t < n_rows * n_columns && ops_ok(o); t++) {
        struct span rows = span_at(t / n_columns, n_rows, z.dim[1], tile, f);
        struct span columns = span_at(t % n_columns, n_columns, z.dim[2], tile, f);
        size_t mark = arena_mark(o->arena);
        struct tensor picture = vae_decode(vae, o, cut_out(o, z, i, &rows, &columns));
        if (picture.rank) add_tile(y, total.data, picture, &rows, &columns, f);
        arena_reset(o->arena, mark);
    }
    for (int64_t p = 0; p < pixels * c; p++) y.data[p] /= total.data[p / c];
}

struct tensor vae_decode_tiled(const struct vae *vae, struct ops *o, struct tensor z, int64_t tile,
                               int64_t overlap)
{
    if (overlap < 0) overlap = 0;
    if (tile < 2 * overlap + 1) tile = 2 * overlap + 1;
    if (z.rank == 0 || (z.dim[1] <= tile && z.dim[2] <= tile)) return vae_decode(vae, o, z);
    int64_t f = vae_factor(vae);
    struct tensor y = tensor_new4(o->arena, z.dim[0], z.dim[1] * f, z.dim[2] * f, 3, o->err);
    for (int64_t i = 0; i < z.dim[0] && ops_ok(o); i++) {
        size_t mark = arena_mark(o->arena);
        struct tensor one = y;
        one.dim[0] = 1;
        one.data += i * (tensor_count(y) / y.dim[0]);
        decode_tiles(vae, o, z, i, one, tile, overlap);
        arena_reset(o->arena, mark);
    }
    return ops_ok(o) ? y : (struct tensor){0};
}
