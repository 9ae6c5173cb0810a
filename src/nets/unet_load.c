/* unet_load.c - reads a U-Net from named tensors and checks that its parts fit. */
/* SPDX-License-Identifier: MIT */
#include "nets/unet_parts.h"

#include <stdlib.h>

struct loading {
    struct unet *unet;
    const struct unet_config *config;
    int64_t skips[MAX_SKIPS]; /* widths of what the down path stores, in order */
    int n_skips;
};

static int heads_at(const struct loading *l, const struct weights_reader *r, int level,
                    int64_t width)
{
    int64_t heads =
        l->config->head_width ? width / l->config->head_width : l->config->n_heads[level];
    if (!layers_ok(r)) return 1;
    if (heads >= 1 && heads <= width && width % heads == 0) return (int)heads;
    layers_fail(r, "%s: %lld channels do not divide into %lld heads%s", r->prefix, (long long)width,
                (long long)heads,
                l->config->n_levels ? "; is attention_head_dim of the config right?"
                                    : ", which are guessed for want of a config; give the model as "
                                      "a folder with unet/config.json");
    return 1;
}

static struct attention read_attention(struct weights_reader *r, int64_t c, int64_t memory_width,
                                       int n_heads)
{
    struct attention a = {.n_heads = n_heads};
    a.q = layers_linear(r, "to_q", c, c, BIAS_MAYBE);
    a.k = layers_linear(r, "to_k", c, memory_width, BIAS_MAYBE);
    a.v = layers_linear(r, "to_v", c, linear_in(&a.k), BIAS_MAYBE);
    a.out = layers_linear(r, "to_out.0", c, c, BIAS_NEEDED);
    return a;
}

static struct block read_block(struct loading *l, struct weights_reader *r, int64_t c, int n_heads)
{
    struct unet *u = l->unet;
    struct block b = {0};
    struct branch in;
    layers_enter(&in, r, "attn1.");
    b.self = read_attention(&in.reader, c, c, n_heads);
    layers_enter(&in, r, "attn2.");
    b.cross =
        read_attention(&in.reader, c, u->context_width ? u->context_width : LAYERS_ANY, n_heads);
    b.cross.memory = u->n_memories++;
    u->context_width = linear_in(&b.cross.k);
    b.self.norm = layers_norm(r, "norm1", c, 0, LAYER_NORM_EPS);
    b.cross.norm = layers_norm(r, "norm2", c, 0, LAYER_NORM_EPS);
    b.norm3 = layers_norm(r, "norm3", c, 0, LAYER_NORM_EPS);
    b.geglu = layers_linear(r, "ff.net.0.proj", LAYERS_ANY, c, BIAS_NEEDED);
    if (linear_out(&b.geglu) % 2 != 0)
        layers_fail(r, "%sff.net.0.proj: %lld rows, expected an even number", r->prefix,
                    (long long)linear_out(&b.geglu));
    b.ff = layers_linear(r, "ff.net.2", c, linear_out(&b.geglu) / 2, BIAS_NEEDED);
    return b;
}

static void read_transformer(struct loading *l, struct weights_reader *r, struct transformer *t,
                             int64_t c, int level)
{
    int n_heads = heads_at(l, r, level, c);
    t->norm = layers_norm(r, "norm", c, l->config->n_groups, TRANSFORMER_EPS);
    t->proj_in = layers_conv(r, "proj_in", c, c, 1, BIAS_NEEDED);
    t->proj_out = layers_linear(r, "proj_out", c, c, BIAS_NEEDED);
    int n = layers_count(r, UNET_MAX_DEPTH, "transformer_blocks.");
    if (n == 0)
        layers_fail(r, "%stransformer_blocks.0: missing, expected at least one block", r->prefix);
    int wanted = l->config->n_levels ? l->config->depth[level] : 0;
    if (layers_ok(r) && wanted && wanted != n)
        layers_fail(
            r,
            "%stransformer_blocks: %d in the file, %d in config.json: one of the two is incomplete",
            r->prefix, n, wanted);
    if (!layers_ok(r)) return;
    t->blocks = calloc((size_t)n, sizeof *t->blocks);
    if (!t->blocks) {
        dk_fail(r->err, DK_ERROR_MEMORY, "out of memory while reading the U-Net");
        return;
    }
    t->n_blocks = n;
    for (int i = 0; i < n; i++) {
        struct branch in;
        layers_enter(&in, r, "transformer_blocks.%d.", i);
        t->blocks[i] = read_block(l, &in.reader, c, n_heads);
    }
    if (!l->unet->first) l->unet->first = &t->blocks[0];
}

/* One layer of a level: resnets.J and, where the names have it, attentions.J. Returns the width it
 * gives. */
static int64_t read_layer(struct loading *l, struct weights_reader *r, struct layer *layer, int j,
                          int64_t in, int level)
{
    struct branch branch;
    layers_enter(&branch, r, "resnets.%d.", j);
    const struct resnet_shape shape = {.in = in,
                                       .out = LAYERS_ANY,
                                       .time_width = linear_out(&l->unet->time2),
                                       .n_groups = l->config->n_groups,
                                       .eps = l->config->norm_eps};
    layer->resnet = layers_resnet(&branch.reader, &shape);
    int64_t out = resnet_out(&layer->resnet);
    if (!layers_any(r, "attentions.%d.", j)) return out;
    layers_enter(&branch, r, "attentions.%d.", j);
    read_transformer(l, &branch.reader, &layer->attention, out, level);
    return out;
}

/* The config says whether a block has attention; each of its layers then does. */
static void check_attention(const struct loading *l, const struct weights_reader *r,
                            const struct level *level, bool wanted)
{
    if (!l->config->n_levels || !layers_ok(r)) return;
    for (int j = 0; j < level->n_layers; j++) {
        bool found = level->layers[j].attention.n_blocks > 0;
        if (found == wanted) continue;
        layers_fail(r,
                    "%sattentions.%d: %s the file but %s the block type in config.json: one of the "
                    "two is wrong",
                    r->prefix, j, found ? "in" : "not in", wanted ? "named by" : "not named by");
        return;
    }
}

static void check_layers(const struct weights_reader *r, int found, int wanted)
{
    if (layers_ok(r) && found != wanted)
        layers_fail(r,
                    "%sresnets: %d in the file, expected %d: the file is incomplete or its "
                    "config.json is wrong",
                    r->prefix, found, wanted);
}

static int64_t read_down(struct loading *l, struct weights_reader *root, int i, int64_t width)
{
    struct level *level = &l->unet->down[i];
    struct branch in;
    layers_enter(&in, root, "down_blocks.%d.", i);
    struct weights_reader *r = &in.reader;
    level->n_layers = layers_count(r, UNET_MAX_LAYERS, "resnets.");
    if (level->n_layers == 0)
        layers_fail(r, "%sresnets.0: missing, expected at least one", r->prefix);
    if (l->config->n_levels) check_layers(r, level->n_layers, l->config->layers[i]);
    for (int j = 0; j < level->n_layers && layers_ok(r); j++)
        l->skips[l->n_skips++] = width = read_layer(l, r, &level->layers[j], j, width, i);
    check_attention(l, r, level, l->config->attention[i]);
    if (i + 1 == l->unet->n_levels) return width;
    level->resize = layers_conv(r, "downsamplers.0.conv", width, width, 3, BIAS_NEEDED);
    if (layers_ok(r)) l->skips[l->n_skips++] = width;
    return width;
}

static int64_t read_mid(struct loading *l, struct weights_reader *root, int64_t width)
{
    struct level *mid = &l->unet->mid;
    struct branch in;
    layers_enter(&in, root, "mid_block.");
    struct weights_reader *r = &in.reader;
    mid->n_layers = layers_count(r, UNET_MAX_LAYERS, "resnets.");
    if (layers_ok(r) && l->config->n_levels && l->config->mid_block != (mid->n_layers > 0))
        layers_fail(r, "mid_block: %s the file but %s config.json: one of the two is wrong",
                    mid->n_layers ? "in" : "not in", l->config->mid_block ? "in" : "not in");
    for (int j = 0; j < mid->n_layers && layers_ok(r); j++)
        width = read_layer(l, r, &mid->layers[j], j, width, l->unet->n_levels - 1);
    return width;
}

/* Up block i belongs to level n_levels - 1 - i and consumes what that level's down block stored,
 * newest first. */
static int64_t read_up(struct loading *l, struct weights_reader *root, int i, int64_t width)
{
    int at = l->unet->n_levels - 1 - i;
    struct level *level = &l->unet->up[i];
    struct branch in;
    layers_enter(&in, root, "up_blocks.%d.", i);
    struct weights_reader *r = &in.reader;
    level->n_layers = layers_count(r, UNET_MAX_LAYERS, "resnets.");
    check_layers(r, level->n_layers, l->unet->down[at].n_layers + 1);
    for (int j = 0; j < level->n_layers && layers_ok(r); j++)
        width = read_layer(l, r, &level->layers[j], j, width + l->skips[--l->n_skips], at);
    check_attention(l, r, level, l->config->up_attention[at]);
    if (i + 1 < l->unet->n_levels)
        level->resize = layers_conv(r, "upsamplers.0.conv", width, width, 3, BIAS_NEEDED);
    return width;
}

/* SDXL's embedding of the pooled text and the six sizes. */
static void read_added(struct loading *l, struct weights_reader *r)
{
    struct unet *u = l->unet;
    int64_t ids_width = (int64_t)N_TIME_IDS * u->added_time_width;
    u->added1 = layers_linear(r, "add_embedding.linear_1", LAYERS_ANY, LAYERS_ANY, BIAS_NEEDED);
    u->added2 = layers_linear(r, "add_embedding.linear_2", linear_out(&u->time2),
                              linear_out(&u->added1), BIAS_NEEDED);
    if (layers_ok(r) && (u->added_time_width < 2 || linear_in(&u->added1) <= ids_width))
        layers_fail(r, "add_embedding.linear_1: %lld inputs, expected more than 6 times %d, %s",
                    (long long)linear_in(&u->added1), u->added_time_width,
                    "which is addition_time_embed_dim in config.json");
}

static void read_embeddings(struct loading *l, struct weights_reader *r, int64_t width)
{
    struct unet *u = l->unet;
    u->time1 = layers_linear(r, "time_embedding.linear_1", LAYERS_ANY, width, BIAS_NEEDED);
    int64_t inner = linear_out(&u->time1);
    u->time2 = layers_linear(r, "time_embedding.linear_2", LAYERS_ANY, inner, BIAS_NEEDED);
    int guidance = l->config->guidance_width;
    if (guidance || layers_any(r, "time_embedding.cond_proj."))
        u->guidance = layers_linear(r, "time_embedding.cond_proj", width,
                                    guidance ? guidance : LAYERS_ANY, BIAS_NONE);
    if ((l->config->n_levels && u->added_time_width) || layers_any(r, "add_embedding."))
        read_added(l, r);
}

/* Branches that would change the answer and are not computed here. */
static void refuse_unknown(const struct weights_reader *r)
{
    static const char *const refused[][2] = {
        {"class_embedding.", "a class-conditional U-Net (upscaler or unCLIP)"},
        {"encoder_hid_proj.",
         "a U-Net with a projection of the encoder's states (Kandinsky, IP-Adapter)"},
        {"position_net.", "a GLIGEN U-Net"},
        {"down_blocks.0.motion_modules.", "an AnimateDiff motion U-Net"},
        {"controlnet_cond_embedding.", "a ControlNet, not a U-Net"},
        {"down_blocks.0.temp_", "a video U-Net"},
        {"transformer_in.", "a video U-Net"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (layers_any(r, "%s", refused[i][0])) {
            dk_fail(r->err, DK_ERROR_UNSUPPORTED,
                    "%s: %s, which is not supported; give a Stable Diffusion U-Net",
                    weights_path(r->weights), refused[i][1]);
            return;
        }
}

/* Marks the transformers of the finest level that has any. */
static void find_finest(struct unet *u)
{
    bool found = false;
    for (int i = 0; i < u->n_levels && !found; i++)
        for (int up = 0; up < 2; up++) {
            struct level *level = up ? &u->up[u->n_levels - 1 - i] : &u->down[i];
            for (int j = 0; j < level->n_layers; j++) {
                struct transformer *t = &level->layers[j].attention;
                t->finest = t->n_blocks > 0;
                found |= t->finest;
            }
        }
}

static void read_unet(struct loading *l, struct weights_reader *r)
{
    struct unet *u = l->unet;
    refuse_unknown(r);
    u->conv_in = layers_conv(r, "conv_in", LAYERS_ANY, LAYERS_ANY, 3, BIAS_NEEDED);
    int64_t width = conv_out(&u->conv_in);
    read_embeddings(l, r, width);

    u->n_levels = layers_count(r, UNET_MAX_LEVELS, "down_blocks.");
    int wanted = l->config->n_levels ? l->config->n_levels : u->n_levels;
    int n_up = layers_count(r, UNET_MAX_LEVELS, "up_blocks.");
    if (layers_ok(r) && (u->n_levels == 0 || u->n_levels != wanted || n_up != wanted))
        layers_fail(
            r,
            "%d down blocks and %d up blocks, expected %d of each: the file is incomplete or its "
            "config.json is wrong",
            u->n_levels, n_up, wanted > 0 ? wanted : 1);

    l->skips[l->n_skips++] = width;
    for (int i = 0; i < u->n_levels && layers_ok(r); i++) width = read_down(l, r, i, width);
    u->n_skips = l->n_skips;
    if (layers_ok(r)) width = read_mid(l, r, width);
    for (int i = 0; i < u->n_levels && layers_ok(r); i++) width = read_up(l, r, i, width);
    if (layers_ok(r)) {
        find_finest(u);
        u->norm_out =
            layers_norm(r, "conv_norm_out", width, l->config->n_groups, l->config->norm_eps);
        u->conv_out = layers_conv(r, "conv_out", LAYERS_ANY, width, 3, BIAS_NEEDED);
    }
}

struct unet *unet_load(const struct unet_config *config, struct weights *weights,
                       struct dk_error *err)
{
    struct dk_error own = {.code = DK_OK};
    struct weights_reader r = {.weights = weights, .prefix = "", .err = err ? err : &own};
    struct unet *unet = calloc(1, sizeof *unet);
    if (!unet) {
        dk_fail(r.err, DK_ERROR_MEMORY, "out of memory while reading the U-Net");
        return NULL;
    }
    struct loading l = {.unet = unet, .config = config};
    unet->added_time_width = config->added_time_width;
    unet->flip_sin_to_cos = config->flip_sin_to_cos;
    unet->freq_shift = config->freq_shift;
    if (config->n_groups < 1)
        layers_fail(&r, "norm_num_groups is %d, expected at least 1", config->n_groups);
    read_unet(&l, &r);
    if (layers_ok(&r)) return unet;
    unet_free(unet);
    return NULL;
}

static void level_free(struct level *level)
{
    for (int j = 0; j < UNET_MAX_LAYERS; j++) free(level->layers[j].attention.blocks);
}

void unet_free(struct unet *unet)
{
    if (!unet) return;
    for (int i = 0; i < UNET_MAX_LEVELS; i++) {
        level_free(&unet->down[i]);
        level_free(&unet->up[i]);
    }
    level_free(&unet->mid);
    free(unet);
}
