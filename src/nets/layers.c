/* layers.c - what the networks share: small layers read by name, and the residual block. */
/* SPDX-License-Identifier: MIT */
#include "nets/layers.h"

#include <stdio.h>
#include <string.h>

bool layers_fail(const struct weights_reader *r, const char *format, ...)
{
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return dk_fail(r->err, DK_ERROR_MODEL, "%s: %s", weights_path(r->weights), text);
}

/* prefix + name into out; false (and an error) when it does not fit, which no name of a real model
 * does. */
static bool join(const struct weights_reader *r, char *out, const char *format, va_list list)
{
    int head = snprintf(out, LAYERS_MAX_NAME, "%s", r->prefix);
    if (head >= 0 && head < LAYERS_MAX_NAME) {
        int tail = vsnprintf(out + head, (size_t)(LAYERS_MAX_NAME - head), format, list);
        if (tail >= 0 && tail < LAYERS_MAX_NAME - head) return true;
    }
    return layers_fail(r, "the names below \"%.80s\" are longer than any model's", r->prefix);
}

void layers_enter(struct branch *branch, const struct weights_reader *from, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (!join(from, branch->prefix, format, list)) branch->prefix[0] = '\0';
    va_end(list);
    branch->reader = *from;
    branch->reader.prefix = branch->prefix;
}

/* The number that text begins with, followed by a dot; -1: none. Stops growing far above any
 * sensible count. */
static int leading_number(const char *text)
{
    int n = 0;
    const char *c = text;
    for (; *c >= '0' && *c <= '9'; c++)
        if (n < 100000) n = n * 10 + (*c - '0');
    return c > text && *c == '.' ? n : -1;
}

int layers_count(const struct weights_reader *r, int max, const char *format, ...)
{
    char prefix[LAYERS_MAX_NAME];
    va_list list;
    va_start(list, format);
    bool fits = join(r, prefix, format, list);
    va_end(list);
    if (!fits) return 0;
    int count = 0;
    size_t length = strlen(prefix);
    for (size_t i = 0; i < weights_count(r->weights); i++) {
        const char *name = weights_at(r->weights, i)->name;
        if (strncmp(name, prefix, length) != 0) continue;
        int n = leading_number(name + length);
        if (n >= count) count = n + 1;
    }
    if (count <= max) return count;
    layers_fail(r, "tensors up to \"%s%d\", expected at most %d: not a network of this family",
                prefix, count - 1, max);
    return 0;
}

bool layers_any(const struct weights_reader *r, const char *format, ...)
{
    char prefix[LAYERS_MAX_NAME];
    va_list list;
    va_start(list, format);
    bool fits = join(r, prefix, format, list);
    va_end(list);
    size_t length = strlen(prefix);
    for (size_t i = 0; fits && i < weights_count(r->weights); i++)
        if (strncmp(weights_at(r->weights, i)->name, prefix, length) == 0) return true;
    return false;
}

static void check_width(const struct weights_reader *r, const char *name, int64_t width)
{
    if (layers_ok(r) && (width < 1 || width > LAYERS_MAX_CHANNELS))
        layers_fail(r, "%s%s: width %lld, expected 1 to %d: damaged or not a model", r->prefix,
                    name, (long long)width, LAYERS_MAX_CHANNELS);
}

struct norm layers_norm(struct weights_reader *r, const char *name, int64_t channels, int n_groups,
                        float eps)
{
    const int64_t shape[4] = {channels};
    if (n_groups > 0 && channels % n_groups != 0)
        layers_fail(r,
                    "%s%s: %lld channels do not divide into %d groups; is norm_num_groups in "
                    "config.json right?",
                    r->prefix, name, (long long)channels, n_groups);
    return (struct norm){.weight = weights_need(r, shape, "%s.weight", name),
                         .bias = weights_need(r, shape, "%s.bias", name),
                         .n_groups = n_groups,
                         .eps = eps};
}

static struct weight read_bias(struct weights_reader *r, const char *name, int64_t out,
                               enum bias bias)
{
    const int64_t shape[4] = {out};
    if (bias == BIAS_NEEDED) return weights_need(r, shape, "%s.bias", name);
    if (bias == BIAS_MAYBE) return weights_want(r, shape, "%s.bias", name);
    return (struct weight){0};
}

/* The rank a tensor has in the file: matrices come as [out, in] or as [out, in, 1, 1]. */
static int stored_rank(const struct weights_reader *r, const char *name)
{
    char full[LAYERS_MAX_NAME + 32];
    snprintf(full, sizeof full, "%s%s.weight", r->prefix, name);
    const struct weight *w = weights_find(r->weights, full);
    return w ? w->rank : 2;
}

static struct weight read_matrix(struct weights_reader *r, const char *name, int64_t out,
                                 int64_t in)
{
    const int64_t flat[4] = {out, in}, conv[4] = {out, in, 1, 1};
    struct weight w = weights_need(r, stored_rank(r, name) == 4 ? conv : flat, "%s.weight", name);
    check_width(r, name, w.dim[0]);
    check_width(r, name, w.dim[1]);
    return w;
}

struct linear layers_linear(struct weights_reader *r, const char *name, int64_t out, int64_t in,
                            enum bias bias)
{
    struct linear linear = {.weight = read_matrix(r, name, out, in)};
    linear.weight.rank = 2; /* [out, in, 1, 1] is the same memory */
    linear.bias = read_bias(r, name, linear_out(&linear), bias);
    return linear;
}

struct conv layers_conv(struct weights_reader *r, const char *name, int64_t out, int64_t in, int k,
                        enum bias bias)
{
    struct conv conv = {0};
    if (k == 1) {
        conv.weight = read_matrix(r, name, out, in);
        conv.weight.rank = 4;
        conv.weight.dim[2] = conv.weight.dim[3] = 1;
    } else {
        const int64_t shape[4] = {out, in, k, k};
        conv.weight = weights_need(r, shape, "%s.weight", name);
        check_width(r, name, conv_out(&conv));
        check_width(r, name, conv_in(&conv));
    }
    conv.bias = read_bias(r, name, conv_out(&conv), bias);
    return conv;
}

struct resnet layers_resnet(struct weights_reader *r, const struct resnet_shape *shape)
{
    struct resnet t = {0};
    t.norm1 = layers_norm(r, "norm1", shape->in, shape->n_groups, shape->eps);
    t.conv1 = layers_conv(r, "conv1", shape->out, shape->in, 3, BIAS_NEEDED);
    int64_t out = resnet_out(&t);
    if (shape->time_width)
        t.time = layers_linear(r, "time_emb_proj", out, shape->time_width, BIAS_NEEDED);
    t.norm2 = layers_norm(r, "norm2", out, shape->n_groups, shape->eps);
    t.conv2 = layers_conv(r, "conv2", out, out, 3, BIAS_NEEDED);
    if (out != shape->in || weights_has(r, "conv_shortcut.weight"))
        t.shortcut = layers_conv(r, "conv_shortcut", out, shape->in, 1, BIAS_NEEDED);
    return t;
}

/* conv1 of the normalised x, with the time embedding: [n, h, w, out]. */
static struct tensor first_half(const struct resnet *t, struct ops *o, struct tensor x,
                                const struct tensor *shift)
{
    return op_conv(
        o, x,
        &(struct conv_args){
            .conv = &t->conv1, .norm = &t->norm1, .act = ACT_SILU, .per_channel = shift});
}

/* conv2 of the normalised h, plus skip, into y (which may be skip's memory). */
static struct tensor second_half(const struct resnet *t, struct ops *o, struct tensor h,
                                 const struct tensor *skip, const struct tensor *y)
{
    return op_conv(
        o, h,
        &(struct conv_args){
            .conv = &t->conv2, .norm = &t->norm2, .act = ACT_SILU, .residual = skip, .into = y});
}

struct tensor resnet_forward(const struct resnet *t, struct ops *o, struct tensor x,
                             const struct tensor *time)
{
    struct tensor y = tensor_new4(o->arena, x.dim[0], x.dim[1], x.dim[2], resnet_out(t), o->err);
    size_t mark = arena_mark(o->arena);
    struct tensor shift = {0}, skip = x; /* [n, out], [n, h, w, out] */
    if (time) shift = op_linear(o, *time, &(struct linear_args){.linear = &t->time});
    struct tensor h = first_half(t, o, x, time ? &shift : NULL);
    if (weight_exists(&t->shortcut.weight))
        skip = op_conv(o, x, &(struct conv_args){.conv = &t->shortcut, .into = &y});
    y = second_half(t, o, h, &skip, &y);
    arena_reset(o->arena, mark);
    return y;
}

/* Pixels whose shortcut is computed at a time when it replaces its input. */
#define BAND_PIXELS 4096

/*
 * The 1x1 shortcut of x where x lies, out <= in: what is written never reaches what is still to be
 * read. x [1, h, w, in], answer [1, h, w, out].
 */
static struct tensor shortcut_replace(const struct resnet *t, struct ops *o, struct tensor x)
{
    int64_t in = x.dim[3], out = resnet_out(t), pixels = x.dim[1] * x.dim[2];
    for (int64_t at = 0; at < pixels; at += BAND_PIXELS) {
        size_t mark = arena_mark(o->arena);
        int64_t n = pixels - at < BAND_PIXELS ? pixels - at : BAND_PIXELS;
        struct tensor band = {x.data + at * in, 4, {1, 1, n, in}};
        band = op_conv(o, band, &(struct conv_args){.conv = &t->shortcut});
        if (band.rank && !ops_dry(o))
            memmove(x.data + at * out, band.data, (size_t)tensor_count(band) * sizeof *band.data);
        arena_reset(o->arena, mark);
    }
    x.dim[3] = out;
    return x;
}

struct tensor resnet_replace(const struct resnet *t, struct ops *o, size_t mark, struct tensor x)
{
    bool shortcut = weight_exists(&t->shortcut.weight);
    if (shortcut && (resnet_out(t) > x.dim[3] || x.dim[0] != 1))
        return tensor_keep(o->arena, mark, resnet_forward(t, o, x, NULL));
    struct tensor h = first_half(t, o, x, NULL);
    if (shortcut && ops_ok(o)) x = shortcut_replace(t, o, x);
    return tensor_keep(o->arena, mark, second_half(t, o, h, &x, &x));
}
