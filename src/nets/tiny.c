/* tiny.c - a small decoder of latents: TAESD and what is trained after it. */
/* SPDX-License-Identifier: MIT */
#include "nets/tiny.h"

#include "nets/layers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LAYERS (TINY_MAX_LEVELS * (TINY_MAX_BLOCKS + 2) + 2)

struct tiny_block {
    struct conv conv[3];
    struct conv skip; /* 1x1 without a bias, where the width changes */
};

/* All but the first begin with the convolution of the enlarged map before. */
struct tiny_level {
    struct conv up;
    struct tiny_block blocks[TINY_MAX_BLOCKS];
    int n_blocks;
};

struct tiny {
    struct conv in, out;
    struct tiny_level levels[TINY_MAX_LEVELS];
    int n_levels;
};

/* ---- loading --------------------------------------------------------------------------------- */

static struct tiny_block read_block(const struct weights_reader *from, int index, int64_t in)
{
    struct branch b;
    struct tiny_block block = {0};
    layers_enter(&b, from, "%d.", index);
    block.conv[0] = layers_conv(&b.reader, "conv.0", LAYERS_ANY, in, 3, BIAS_NEEDED);
    int64_t c = conv_out(&block.conv[0]);
    block.conv[1] = layers_conv(&b.reader, "conv.2", c, c, 3, BIAS_NEEDED);
    block.conv[2] = layers_conv(&b.reader, "conv.4", c, c, 3, BIAS_NEEDED);
    if (c != in) block.skip = layers_conv(&b.reader, "skip", c, in, 1, BIAS_NONE);
    return block;
}

static struct conv read_conv(struct weights_reader *r, int index, int64_t in, enum bias bias)
{
    char name[16];
    snprintf(name, sizeof name, "%d", index);
    return layers_conv(r, name, LAYERS_ANY, in, 3, bias);
}

/* Blocks from layer *index on. Returns the width after them. */
static int64_t read_blocks(struct weights_reader *r, struct tiny_level *level, int *index,
                           int64_t c)
{
    for (; layers_ok(r) && layers_any(r, "%d.conv.", *index); (*index)++) {
        if (level->n_blocks == TINY_MAX_BLOCKS) {
            layers_fail(r, "more than %d blocks up to %s%d: not a network of this family",
                        TINY_MAX_BLOCKS, r->prefix, *index);
            return 0;
        }
        struct tiny_block *block = &level->blocks[level->n_blocks++];
        *block = read_block(r, *index, c);
        c = conv_out(&block->conv[2]);
    }
    return c;
}

/*
 * The layers are numbered through, those without weights (ReLU, the enlarging) too: behind the
 * blocks of a level stands a number with nothing under it and then a convolution, or, at the end,
 * the last convolution at once.
 */
static void read_layers(struct tiny *t, struct weights_reader *r, int n_layers)
{
    int index = 2;
    t->in = read_conv(r, 0, LAYERS_ANY, BIAS_NEEDED);
    int64_t c = read_blocks(r, &t->levels[0], &index, conv_out(&t->in));
    for (t->n_levels = 1; layers_ok(r) && index + 1 < n_layers; t->n_levels++) {
        if (t->n_levels == TINY_MAX_LEVELS) {
            layers_fail(r, "more than %d levels: not a network of this family", TINY_MAX_LEVELS);
            return;
        }
        struct tiny_level *level = &t->levels[t->n_levels];
        level->up = read_conv(r, index + 1, c, BIAS_NONE);
        index += 2;
        c = read_blocks(r, level, &index, conv_out(&level->up));
    }
    t->out = read_conv(r, index, c, BIAS_NEEDED);
    if (layers_ok(r) && conv_out(&t->out) != 3)
        layers_fail(r,
                    "%s%d.weight gives %lld channels, expected 3: the file is incomplete or not "
                    "a decoder of pictures",
                    r->prefix, index, (long long)conv_out(&t->out));
}

static void check_config(const struct tiny *t, const struct tiny_config *config,
                         const struct weights_reader *r)
{
    if (config->n_levels && config->n_levels != t->n_levels)
        layers_fail(r, "%d levels in the file, %d in num_decoder_blocks of its config.json",
                    t->n_levels, config->n_levels);
    for (int i = 0; i < config->n_levels && layers_ok(r); i++)
        if (config->n_blocks[i] != t->levels[i].n_blocks)
            layers_fail(r,
                        "level %d has %d blocks in the file, %d in num_decoder_blocks of its "
                        "config.json",
                        i, t->levels[i].n_blocks, config->n_blocks[i]);
}

/* What is left over belongs to another network (TAESD's relatives have norms and pools). */
static void count_name(void *user, const char *name)
{
    const char **first = user;
    if (!*first && strncmp(name, "decoder.", 8) == 0) *first = name;
}

struct tiny *tiny_load(const struct tiny_config *config, struct weights *weights,
                       struct dk_error *err)
{
    struct dk_error own = {.code = DK_OK};
    struct weights_reader root = {.weights = weights, .prefix = "", .err = err ? err : &own};
    struct branch b;
    struct tiny *t = calloc(1, sizeof *t);
    if (!t) {
        dk_fail(root.err, DK_ERROR_MEMORY, "out of memory while reading the tiny decoder");
        return NULL;
    }
    layers_enter(&b, &root, "decoder.layers.");
    if (!layers_any(&root, "decoder.layers.0.weight"))
        layers_fail(&root,
                    "the first layer of a tiny decoder is not in it; give the decoder's file, "
                    "not the encoder's");
    int n_layers = layers_count(&b.reader, MAX_LAYERS, "%s", "");
    const char *more = NULL;
    if (layers_ok(&root)) read_layers(t, &b.reader, n_layers);
    if (layers_ok(&root)) check_config(t, config, &root);
    if (layers_ok(&root)) weights_unused(weights, count_name, &more);
    if (more) layers_fail(&root, "tensor %s has no place in a tiny decoder of this kind", more);
    if (layers_ok(&root)) return t;
    tiny_free(t);
    return NULL;
}

void tiny_free(struct tiny *tiny)
{
    free(tiny);
}

int tiny_factor(const struct tiny *tiny)
{
    return 1 << (tiny->n_levels - 1);
}

int64_t tiny_latent_channels(const struct tiny *tiny)
{
    return conv_in(&tiny->in);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* The block's answer takes the place of x, the arena's last allocation, made at mark. */
static struct tensor block_replace(const struct tiny_block *b, struct ops *o, size_t mark,
                                   struct tensor x)
{
    struct tensor sum = x;
    size_t before = arena_mark(o->arena);
    if (weight_exists(&b->skip.weight)) {
        sum = op_conv(o, x, &(struct conv_args){.conv = &b->skip});
        before = arena_mark(o->arena);
    }
    struct tensor h = op_conv(o, x, &(struct conv_args){.conv = &b->conv[0], .relu = true});
    h = op_conv(o, h, &(struct conv_args){.conv = &b->conv[1], .relu = true});
    sum = op_conv(
        o, h,
        &(struct conv_args){.conv = &b->conv[2], .residual = &sum, .into = &sum, .relu = true});
    arena_reset(o->arena, before);
    return weight_exists(&b->skip.weight) ? tensor_keep(o->arena, mark, sum) : sum;
}

static struct tensor level_replace(const struct tiny_level *level, struct ops *o, size_t mark,
                                   struct tensor x)
{
    for (int i = 0; i < level->n_blocks; i++) x = block_replace(&level->blocks[i], o, mark, x);
    return x;
}

/* Rows first to last - 1 of a map [1, h, w, c], where they lie. */
struct span {
    int64_t first, last;
};

static struct tensor rows_of(struct tensor x, struct span rows)
{
    if (x.rank == 0) return x;
    x.data += rows.first * x.dim[2] * x.dim[3];
    x.dim[1] = rows.last - rows.first;
    return x;
}

/*
 * Rows of the map before a level from which its rows can be had: each convolution reaches one row
 * further, the first one into the enlarged map.
 */
static struct span rows_before(const struct tiny_level *level, struct span rows, int64_t height)
{
    int64_t reach = 3 * level->n_blocks + 1;
    int64_t first = (rows.first - reach) / 2, last = (rows.last + reach + 1) / 2;
    return (struct span){rows.first > reach ? first : 0, last < height ? last : height};
}

static struct tensor enlarge(const struct tiny_level *level, struct ops *o, struct tensor x)
{
    return op_conv(
        o, x, &(struct conv_args){.conv = &level->up, .up_h = 2 * x.dim[1], .up_w = 2 * x.dim[2]});
}

/*
 * Rows of the picture from x, the map before level first, which stays. Rows at the edges of a band
 * are wrong (there are zeros beyond them) and creep inwards by one a convolution; they never reach
 * those asked for. y [1, all rows, w * f, 3].
 */
static void draw_rows(const struct tiny *t, struct ops *o, struct tensor x, int first,
                      struct span rows, struct tensor y)
{
    struct span around = {rows.first > 0 ? rows.first - 1 : 0,
                          rows.last < y.dim[1] ? rows.last + 1 : y.dim[1]};
    struct span need[TINY_MAX_LEVELS + 1];
    need[t->n_levels] = around;
    for (int i = t->n_levels - 1; i >= first; i--)
        need[i] = rows_before(&t->levels[i], need[i + 1], x.dim[1] << (i - first));
    size_t mark = arena_mark(o->arena);
    struct tensor part = x;
    int64_t top = 0; /* the row of the whole map that part begins with */
    for (int i = first; i < t->n_levels && ops_ok(o); i++) {
        struct span in_part = {need[i].first - top, need[i].last - top};
        part = tensor_keep(o->arena, mark, enlarge(&t->levels[i], o, rows_of(part, in_part)));
        part = level_replace(&t->levels[i], o, mark, part);
        top = 2 * need[i].first;
    }
    struct span in_part = {around.first - top, around.last - top};
    struct tensor picture =
        op_conv(o, rows_of(part, in_part), &(struct conv_args){.conv = &t->out});
    if (picture.rank > 0 && !ops_dry(o)) {
        int64_t row = y.dim[2] * 3, n = (rows.last - rows.first) * row;
        const float *from = picture.data + (rows.first - around.first) * row;
        float *to = y.data + rows.first * row;
        for (int64_t i = 0; i < n; i++) to[i] = from[i] * 2 - 1;
    }
    arena_reset(o->arena, mark);
}

/* 3 tanh(z / 3): latents beyond what was seen in training do no harm. */
static struct tensor clamp(struct ops *o, struct tensor z)
{
    struct tensor x = tensor_new4(o->arena, z.dim[0], z.dim[1], z.dim[2], z.dim[3], o->err);
    for (int64_t i = 0; x.rank > 0 && !ops_dry(o) && i < tensor_count(z); i++)
        x.data[i] = tanhf(z.data[i] / 3) * 3;
    return x;
}

static void decode_one(const struct tiny *t, struct ops *o, struct tensor z, int first,
                       int64_t n_rows, struct tensor y)
{
    size_t mark = arena_mark(o->arena);
    struct tensor x = op_conv(o, clamp(o, z), &(struct conv_args){.conv = &t->in, .relu = true});
    x = level_replace(&t->levels[0], o, mark, tensor_keep(o->arena, mark, x));
    for (int i = 1; i < first && ops_ok(o); i++) {
        x = tensor_keep(o->arena, mark, enlarge(&t->levels[i], o, x));
        x = level_replace(&t->levels[i], o, mark, x);
    }
    for (int64_t top = 0; top < y.dim[1] && ops_ok(o); top += n_rows) {
        struct span rows = {top, top + n_rows < y.dim[1] ? top + n_rows : y.dim[1]};
        draw_rows(t, o, x, first, rows, y);
    }
    arena_reset(o->arena, mark);
}

struct tensor tiny_decode_bands(const struct tiny *t, struct ops *o, struct tensor z, int first,
                                int64_t n_rows)
{
    if (z.rank == 0) return z;
    int64_t f = tiny_factor(t);
    struct tensor y = tensor_new4(o->arena, z.dim[0], z.dim[1] * f, z.dim[2] * f, 3, o->err);
    if (first < 1) first = 1;
    if (first > t->n_levels) first = t->n_levels;
    if (n_rows < 1) n_rows = 1;
    for (int64_t i = 0; i < z.dim[0] && ops_ok(o); i++) {
        struct tensor one = z, picture = y;
        one.dim[0] = picture.dim[0] = 1;
        if (!ops_dry(o)) {
            one.data += i * tensor_count(one);
            picture.data += i * tensor_count(picture);
        }
        decode_one(t, o, one, first, n_rows, picture);
    }
    return ops_ok(o) ? y : (struct tensor){0};
}

/* Three maps of a level are held at once. TAESD's last ones of 512 x 512 pixels have 67 MB each. */
#define WHOLE_BYTES  ((int64_t)16 << 20)  /* of a map of pixels; up to this there is one band */
#define SOURCE_BYTES ((int64_t)128 << 20) /* of the map from which bands are made */
#define LEAST_ROWS   96 /* a dozen rows around a band are computed for nothing else */

static int64_t map_bytes(const struct tiny *t, struct tensor z, int level)
{
    const struct tiny_level *l = &t->levels[level];
    int64_t c = l->n_blocks > 0 ? conv_out(&l->blocks[0].conv[0])
                : level > 0     ? conv_out(&l->up)
                                : conv_out(&t->in);
    return (z.dim[1] << level) * (z.dim[2] << level) * c * (int64_t)sizeof(float);
}

struct tensor tiny_decode(const struct tiny *t, struct ops *o, struct tensor z)
{
    if (z.rank == 0) return z;
    int first = t->n_levels - 1;
    int64_t n_rows = z.dim[1] << first, bytes = map_bytes(t, z, first);
    if (bytes <= WHOLE_BYTES) return tiny_decode_bands(t, o, z, t->n_levels, n_rows);
    while (first > 1 && map_bytes(t, z, first - 1) > SOURCE_BYTES) first--;
    int64_t rows = n_rows * WHOLE_BYTES / bytes / 8 * 8;
    return tiny_decode_bands(t, o, z, first, rows > LEAST_ROWS ? rows : LEAST_ROWS);
}
