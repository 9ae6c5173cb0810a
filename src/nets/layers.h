/* layers.h - what the networks share: small layers read by name, and the residual block. */
/* SPDX-License-Identifier: MIT */
#ifndef NETS_LAYERS_H
#define NETS_LAYERS_H

/*
 * A network is read as a tree: layers_enter() gives a reader for one branch of the names, the
 * layers_* functions read the leaves. Which branches exist is told by the names (layers_count), so
 * that distilled networks need no table. All sizes are checked here, once; a forward pass can then
 * not meet a shape it does not expect.
 */

#include "files/weights.h"
#include "ops/ops.h"

#define LAYERS_ANY (-1) /* a dimension that the file decides */
#define LAYERS_MAX_CHANNELS                                                                        \
    (1 << 17) /* wider is a hostile file: products of a few dimensions stay far below 2^63 */
#define LAYERS_MAX_NAME 192

/* A branch of the names: its text holds the prefix that reader points to. */
struct branch {
    struct weights_reader reader;
    char prefix[LAYERS_MAX_NAME];
};
void layers_enter(struct branch *branch, const struct weights_reader *from, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * How many numbered children a branch has: 1 + the largest N of names that begin with prefix and
 * "N."; an error above max. A gap is found later, as a missing tensor.
 */
int layers_count(const struct weights_reader *r, int max, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* True if any name begins with this text. */
bool layers_any(const struct weights_reader *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* GroupNorm (n_groups must divide channels) or LayerNorm (n_groups 0) of this many channels. */
struct norm layers_norm(struct weights_reader *r, const char *name, int64_t channels, int n_groups,
                        float eps);

enum bias { BIAS_NONE, BIAS_MAYBE, BIAS_NEEDED };
/* [out, in], or [out, in, 1, 1] as 1x1 convolutions are stored. out or in may be LAYERS_ANY. */
struct linear layers_linear(struct weights_reader *r, const char *name, int64_t out, int64_t in,
                            enum bias bias);
/* [out, in, k, k]; k 1 also reads [out, in]. */
struct conv layers_conv(struct weights_reader *r, const char *name, int64_t out, int64_t in, int k,
                        enum bias bias);

/* Widths of what was read; 0 after a failure. */
static inline int64_t linear_out(const struct linear *l)
{
    return l->weight.dim[0];
}
static inline int64_t linear_in(const struct linear *l)
{
    return l->weight.dim[1];
}
static inline int64_t conv_out(const struct conv *c)
{
    return c->weight.dim[0];
}
static inline int64_t conv_in(const struct conv *c)
{
    return c->weight.dim[1];
}

/*
 * ResNet block: x -> norm1, silu, conv1, + time, norm2, silu, conv2, + shortcut(x).
 * shortcut exists where the width changes; time only in the U-Net.
 */
struct resnet {
    struct norm norm1, norm2;
    struct conv conv1, conv2, shortcut;
    struct linear time; /* [out, 4 * width of the first level] */
};
struct resnet_shape {
    int64_t in, out;    /* out may be LAYERS_ANY */
    int64_t time_width; /* 0: no time embedding */
    int n_groups;
    float eps;
};
struct resnet layers_resnet(struct weights_reader *r, const struct resnet_shape *shape);
static inline int64_t resnet_out(const struct resnet *resnet)
{
    return conv_out(&resnet->conv1);
}

/*
 * x [n, h, w, in], time [n, time_width] after its activation, or NULL: [n, h, w, out] in new
 * memory. Nothing else stays in the arena.
 */
struct tensor resnet_forward(const struct resnet *resnet, struct ops *o, struct tensor x,
                             const struct tensor *time);

/*
 * The same without time, for maps too large to have twice: the result takes the place of x, which
 * was the arena's last allocation, made at mark.
 */
struct tensor resnet_replace(const struct resnet *resnet, struct ops *o, size_t mark,
                             struct tensor x);

/* Fails for the network being read; r->err holds the first failure. Always false. */
bool layers_fail(const struct weights_reader *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static inline bool layers_ok(const struct weights_reader *r)
{
    return r->err->code == DK_OK;
}

#endif
