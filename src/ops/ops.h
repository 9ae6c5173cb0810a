/* ops.h - whole-tensor operations on a device; the only place with threads. */
/* SPDX-License-Identifier: MIT */
#ifndef OPS_OPS_H
#define OPS_OPS_H

/*
 * The networks are written with these operations only. An operation takes its arguments by value,
 * allocates its result in o->arena, and records the first failure in *o->err; from then on every
 * operation returns a rank-0 tensor at once, so that network code has no error branches.
 * Cancellation is checked at the start of each operation.
 *
 * What is fused is said by the network (a convolution is told which norm precedes it and which
 * residual follows); how is the business of the implementation, and every fusion gives the numbers
 * of the plain sequence up to rounding.
 *
 * Determinism: work is split by output element and every sum runs in one order. Each sample of a
 * batch is computed with arithmetic that does not depend on the batch size, the other samples or
 * the number of threads: choices of algorithm (Winograd or direct, blocking along k) look at one
 * sample's shape only.
 */

#include "base/arena.h"
#include "base/error.h"
#include "base/tensor.h"
#include "kernels/act.h" /* enum act */

struct kernels;    /* kernels/kernels.h */
struct pack_cache; /* weights transformed once and kept: ops/cache.h */
struct meter;      /* what operations cost: ops/meter.h */
struct affine;     /* a norm whose statistics are known: ops/bands.h */
struct conv_rows;  /* some rows of a map: ops/bands.h */

struct ops {
    const struct kernels *kernels;
    struct arena *arena;
    struct dk_error *err;
    const volatile int *cancel; /* may be NULL */
    struct pack_cache *cache;   /* may be NULL: nothing is kept */
    int n_threads;
    struct meter *meter; /* may be NULL: nothing is counted */
    bool stream; /* weights do not fit in memory: give each one's pages back after its use */
};

/*
 * True where memory is only laid out (arena.h): results and scratch are allocated as in a run, but
 * neither read nor written, so that the arena's peak tells what a run will need at most. Takes
 * milliseconds.
 */
static inline bool ops_dry(const struct ops *o)
{
    return o->arena->dry;
}

/* GroupNorm over [h, w, c / n_groups] or LayerNorm over c (n_groups 0), then act. weight and bias
 * are [c]. */
struct norm {
    struct weight weight, bias;
    int n_groups;
    float eps;
};

struct linear {
    struct weight weight /* [out, in] or [out, in, 1, 1] */, bias /* [out], may not exist */;
};
struct conv {
    struct weight weight /* [out, in, k, k], k 1 or 3 */, bias /* [out], may not exist */;
};

/* True while everything has succeeded and nobody has cancelled (which is then recorded). */
bool ops_ok(struct ops *o);

/* act(norm(x)). x [n, h, w, c] or [n, tokens, c]. */
struct tensor op_norm(struct ops *o, struct tensor x, const struct norm *norm, enum act act);

/*
 * y = act(norm(x) * W^T + b) + residual. x [..., in], y [..., out].
 *
 * into, here and in convolutions: the result is written there instead of into new memory. It has
 * the result's shape, may be the residual itself (y += ...), and must not overlap the input.
 */
struct linear_args {
    const struct linear *linear;
    const struct norm *norm;       /* LayerNorm before the product, or NULL */
    enum act act;                  /* after the bias */
    const struct tensor *residual; /* [..., out] added at the end, or NULL */
    const struct tensor *into;     /* [..., out], or NULL */
    bool geglu; /* linear has 2 * out rows: y = first half * gelu(second half) (arXiv:2002.05202) */
};
struct tensor op_linear(struct ops *o, struct tensor x, const struct linear_args *args);

/*
 * y = conv(act(norm(up(x)))) + bias + per_channel + residual. x [n, h, w, in], y [n, h', w', out].
 * 3x3: padding 1 on all sides, or with pad_end_only 0 before and 1 after (the VAE encoder's stride
 * 2). 1x1: none. up_h, up_w not 0: the input is first enlarged to that size by nearest neighbour
 * (source floor(i * in / out)). With norm, act is applied to the normalised input (the
 * pre-activation of a ResNet); padding is zero after act. relu: at last y = max(y, 0).
 */
struct conv_args {
    const struct conv *conv;
    const struct norm *norm; /* GroupNorm before the convolution, or NULL */
    enum act act;            /* after norm, before the convolution */
    int stride;              /* 0 means 1 */
    bool pad_end_only;
    int64_t up_h, up_w;
    const struct tensor *per_channel; /* [n, out], the time embedding, or NULL */
    const struct tensor *residual;    /* [n, h', w', out], or NULL */
    const struct tensor *into;        /* [n, h', w', out], or NULL */
    const struct affine *affine;      /* in place of norm, one with known statistics; or NULL */
    const struct conv_rows *rows;     /* x and the result are rows of larger maps, or NULL */
    bool relu;
};
struct tensor op_conv(struct ops *o, struct tensor x, const struct conv_args *args);

/*
 * softmax(q k^T / sqrt(d)) v for each head, d = c / n_heads. q [n, tq, c], k and v [n, tk, c],
 * answer [n, tq, c]. causal: token i sees tokens 0..i (tq = tk). The tq * tk matrix is never
 * stored.
 */
struct tensor op_attention(struct ops *o, struct tensor q, struct tensor k, struct tensor v,
                           int n_heads, bool causal);

/*
 * Token merging: of tokens that lie in a grid, those at even rows and columns receive; of the
 * others, those most like a receiver (by their cosine) are averaged into the one they are most like
 * (arXiv:2303.17604, section 4, with a fixed receiver in each 2 x 2 tokens in place of a random
 * one). Plan, then:  y = op_merge(x);  ... work on fewer tokens ...;  x = op_unmerge(y, x).
 */
struct merge {
    int64_t n, tokens, kept; /* kept: tokens of a sample that are left; tokens: nothing merges */
    int32_t *place;          /* [n, tokens] which of the kept ones holds it */
    float *share;            /* [n, kept] 1 / how many tokens it holds */
};
/* x [n, tokens, c] in so many rows; ratio of its tokens merge, as far as there are any to. The plan
 * lies in the arena. n 0 on failure. */
struct merge op_merge_plan(struct ops *o, struct tensor x, int64_t height, double ratio);
/* The means: [n, kept, c]; x itself where nothing merges. */
struct tensor op_merge(struct ops *o, struct tensor x, const struct merge *merge);
/* x += y [n, kept, c] at every token it holds, where x lies; the answer is x. */
struct tensor op_unmerge(struct ops *o, struct tensor y, const struct merge *merge,
                         struct tensor x);

struct tensor op_add(struct ops *o, struct tensor a, struct tensor b);
/* x += y, where x lies; the answer is x. */
struct tensor op_add_to(struct ops *o, struct tensor x, struct tensor y);
struct tensor op_act(struct ops *o, struct tensor x, enum act act);
struct tensor op_concat(struct ops *o, struct tensor a,
                        struct tensor b); /* along the last dimension */

/* Rows of table [vocabulary, c] at ids[n * tokens], plus positions [tokens.., c]: [n, tokens, c].
 * ids are checked. */
struct tensor op_embed(struct ops *o, const struct weight *table, const struct weight *positions,
                       const int32_t *ids, int64_t n, int64_t tokens);

/*
 * Sinusoids of n values: [n, width] with frequency i exp(-ln(10000) * i / (half - shift)), half =
 * width / 2, angles times scale; cos first then sin when flip (the U-Net's timesteps), sin first
 * otherwise (LCM's guidance).
 */
struct tensor op_sinusoids(struct ops *o, const float *values, int64_t n, int64_t width, bool flip,
                           float shift);

/* The same data under another shape (counts must agree). */
struct tensor op_reshape(struct ops *o, struct tensor x, int rank, const int64_t *dim);

/* True if every value is finite; false is not an error by itself. */
bool op_all_finite(struct ops *o, struct tensor x);
bool op_weight_finite(struct ops *o, const struct weight *w);

#endif
