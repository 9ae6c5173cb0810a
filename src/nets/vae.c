/* vae.c - the autoencoder between pixels and latents (arXiv:2112.10752, app. G). */
/* SPDX-License-Identifier: MIT */
#include "nets/vae_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EPS 1e-6f /* of every GroupNorm here */

/* ---- loading --------------------------------------------------------------------------------- */

/* diffusers renamed the four matrices in 0.15;
 * LDM files have the short names as 1x1 convolutions. */
static const char *const SPELLINGS[][5] = {
    {"to_q", "to_k", "to_v", "to_out.0", "group_norm"},
    {"query", "key", "value", "proj_attn", "group_norm"},
    {"q", "k", "v", "proj_out", "norm"},
};

static struct vae_attention read_attention(struct weights_reader *r, int64_t c, int n_groups)
{
    int s = 0;
    for (int i = 0; i < 3; i++)
        if (weights_has(r, "%s.weight", SPELLINGS[i][0])) s = i;
    const char *const *names = SPELLINGS[s];
    return (struct vae_attention){.norm = layers_norm(r, names[4], c, n_groups, EPS),
                                  .q = layers_linear(r, names[0], c, c, BIAS_NEEDED),
                                  .k = layers_linear(r, names[1], c, c, BIAS_NEEDED),
                                  .v = layers_linear(r, names[2], c, c, BIAS_NEEDED),
                                  .out = layers_linear(r, names[3], c, c, BIAS_NEEDED)};
}

static struct resnet read_resnet(struct weights_reader *from, const char *branch, int j, int64_t in,
                                 int64_t out, int n_groups)
{
    struct branch b;
    layers_enter(&b, from, "%s.%d.", branch, j);
    return layers_resnet(
        &b.reader, &(struct resnet_shape){.in = in, .out = out, .n_groups = n_groups, .eps = EPS});
}

static void read_mid(struct weights_reader *from, struct vae_mid *mid, int64_t c, int n_groups)
{
    struct branch b;
    layers_enter(&b, from, "mid_block.");
    mid->first = read_resnet(&b.reader, "resnets", 0, c, c, n_groups);
    mid->second = read_resnet(&b.reader, "resnets", 1, c, c, n_groups);
    mid->has_attention = layers_any(&b.reader, "attentions.0.");
    if (!mid->has_attention) return;
    layers_enter(&b, from, "mid_block.attentions.0.");
    mid->attention = read_attention(&b.reader, c, n_groups);
}

/* down_blocks.N or up_blocks.N, each with a resize but the last. Returns the width after them. */
static int64_t read_levels(struct weights_reader *r, struct vae_half *half, const char *blocks,
                           const char *resize, int64_t c, int n_layers, int n_groups)
{
    for (int i = 0; i < half->n_levels && layers_ok(r); i++) {
        struct vae_level *level = &half->levels[i];
        struct branch b;
        layers_enter(&b, r, "%s.%d.", blocks, i);
        level->n_resnets = layers_count(&b.reader, VAE_MAX_LAYERS, "resnets.");
        if (layers_ok(r) && (level->n_resnets == 0 || (n_layers && level->n_resnets != n_layers)))
            layers_fail(r,
                        "%sresnets: %d in the file, expected %d: the file is incomplete or its "
                        "config.json is wrong",
                        b.prefix, level->n_resnets, n_layers ? n_layers : 1);
        for (int j = 0; j < level->n_resnets; j++) {
            level->resnets[j] = read_resnet(&b.reader, "resnets", j, c, LAYERS_ANY, n_groups);
            c = resnet_out(&level->resnets[j]);
            if (!layers_ok(r)) return 0;
        }
        if (i + 1 < half->n_levels)
            level->resize = layers_conv(&b.reader, resize, c, c, 3, BIAS_NEEDED);
    }
    return c;
}

static int count_levels(const struct weights_reader *r, const char *blocks, int wanted)
{
    int n = layers_count(r, VAE_MAX_LEVELS, "%s.", blocks);
    if (layers_ok(r) && (n == 0 || (wanted && n != wanted)))
        layers_fail(
            r,
            "%s%s: %d in the file, expected %d: the file is incomplete or its config.json is wrong",
            r->prefix, blocks, n, wanted ? wanted : 1);
    return n;
}

static void read_decoder(struct vae *vae, const struct vae_config *config,
                         struct weights_reader *root)
{
    struct vae_half *half = &vae->decoder;
    struct branch b;
    layers_enter(&b, root, "decoder.");
    struct weights_reader *r = &b.reader;
    if (layers_any(root, "post_quant_conv."))
        vae->post_quant =
            layers_conv(root, "post_quant_conv", LAYERS_ANY, LAYERS_ANY, 1, BIAS_NEEDED);
    half->in = layers_conv(r, "conv_in", LAYERS_ANY, LAYERS_ANY, 3, BIAS_NEEDED);
    if (layers_ok(r) && weight_exists(&vae->post_quant.weight) &&
        conv_out(&vae->post_quant) != conv_in(&half->in))
        layers_fail(r, "post_quant_conv gives %lld channels, decoder.conv_in takes %lld",
                    (long long)conv_out(&vae->post_quant), (long long)conv_in(&half->in));
    int64_t c = conv_out(&half->in);
    half->n_levels = count_levels(r, "up_blocks", config->n_levels);
    read_mid(r, &half->mid, c, config->n_groups);
    c = read_levels(r, half, "up_blocks", "upsamplers.0.conv", c,
                    config->layers_per_block ? config->layers_per_block + 1 : 0, config->n_groups);
    if (!layers_ok(r)) return;
    half->norm_out = layers_norm(r, "conv_norm_out", c, config->n_groups, EPS);
    half->out = layers_conv(r, "conv_out", 3, c, 3, BIAS_NEEDED);
}

static void read_encoder(struct vae *vae, const struct vae_config *config,
                         struct weights_reader *root)
{
    struct vae_half *half = &vae->encoder;
    struct branch b;
    layers_enter(&b, root, "encoder.");
    struct weights_reader *r = &b.reader;
    half->in = layers_conv(r, "conv_in", LAYERS_ANY, 3, 3, BIAS_NEEDED);
    int64_t c = conv_out(&half->in);
    half->n_levels = count_levels(r, "down_blocks", vae->decoder.n_levels);
    c = read_levels(r, half, "down_blocks", "downsamplers.0.conv", c, config->layers_per_block,
                    config->n_groups);
    if (!layers_ok(r)) return;
    read_mid(r, &half->mid, c, config->n_groups);
    half->norm_out = layers_norm(r, "conv_norm_out", c, config->n_groups, EPS);
    int64_t moments = 2 * vae_latent_channels(vae);
    bool quant = layers_any(root, "quant_conv.");
    half->out = layers_conv(r, "conv_out", quant ? LAYERS_ANY : moments, c, 3, BIAS_NEEDED);
    if (quant)
        vae->quant = layers_conv(root, "quant_conv", moments, conv_out(&half->out), 1, BIAS_NEEDED);
}

struct vae *vae_load(const struct vae_config *config, struct weights *weights, struct dk_error *err)
{
    struct dk_error own = {.code = DK_OK};
    struct weights_reader r = {.weights = weights, .prefix = "", .err = err ? err : &own};
    struct vae *vae = calloc(1, sizeof *vae);
    if (!vae) {
        dk_fail(r.err, DK_ERROR_MEMORY, "out of memory while reading the VAE");
        return NULL;
    }
    if (config->n_groups < 1)
        layers_fail(&r, "norm_num_groups is %d, expected at least 1", config->n_groups);
    read_decoder(vae, config, &r);
    if (layers_ok(&r) && layers_any(&r, "encoder.")) read_encoder(vae, config, &r);
    if (layers_ok(&r)) return vae;
    vae_free(vae);
    return NULL;
}

void vae_free(struct vae *vae)
{
    free(vae);
}

int vae_factor(const struct vae *vae)
{
    return 1 << (vae->decoder.n_levels - 1);
}
int64_t vae_latent_channels(const struct vae *vae)
{
    return conv_in(weight_exists(&vae->post_quant.weight) ? &vae->post_quant : &vae->decoder.in);
}
bool vae_has_encoder(const struct vae *vae)
{
    return vae->encoder.n_levels > 0;
}

void vae_set_probe(struct vae *vae, vae_probe *probe, void *user)
{
    vae->probe = probe;
    vae->probe_user = user;
}

void vae_show(const struct vae *vae, struct tensor value, const char *name, int i)
{
    if (!vae->probe) return;
    char text[64];
    snprintf(text, sizeof text, i >= 0 ? "%s.%d" : "%s", name, i);
    vae->probe(vae->probe_user, text, value);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* x [n, h, w, c] += W_out softmax(q k^T) v over all cells, where x lies. */
static struct tensor attention_forward(const struct vae_attention *a, struct ops *o,
                                       struct tensor x)
{
    int64_t n = x.dim[0], height = x.dim[1], width = x.dim[2], c = x.dim[3];
    const int64_t tokens[] = {n, height * width, c};
    size_t mark = arena_mark(o->arena);
    struct tensor h = op_reshape(o, op_norm(o, x, &a->norm, ACT_NONE), 3, tokens);
    struct tensor q = op_linear(o, h, &(struct linear_args){.linear = &a->q});
    struct tensor k = op_linear(o, h, &(struct linear_args){.linear = &a->k});
    struct tensor v = op_linear(o, h, &(struct linear_args){.linear = &a->v});
    h = op_attention(o, q, k, v, 1, false);
    h = op_reshape(o, h, 4, (const int64_t[]){n, height, width, c});
    x = op_linear(o, h, &(struct linear_args){.linear = &a->out, .residual = &x, .into = &x});
    arena_reset(o->arena, mark);
    return x;
}

struct tensor vae_mid_forward(const struct vae *vae, const struct vae_mid *mid, struct ops *o,
                              size_t mark, struct tensor x)
{
    x = resnet_replace(&mid->first, o, mark, x);
    vae_show(vae, x, "mid.res0", -1);
    if (mid->has_attention) x = attention_forward(&mid->attention, o, x);
    vae_show(vae, x, "mid.attn", -1);
    x = resnet_replace(&mid->second, o, mark, x);
    vae_show(vae, x, "mid", -1);
    return x;
}

struct tensor vae_encode(const struct vae *vae, struct ops *o, struct tensor x)
{
    const struct vae_half *e = &vae->encoder;
    if (!vae_has_encoder(vae)) {
        dk_fail(o->err, DK_ERROR_MODEL,
                "the VAE has no encoder, which pictures as input need: give one with --vae");
        return (struct tensor){0};
    }
    size_t mark = arena_mark(o->arena);
    x = op_conv(o, x, &(struct conv_args){.conv = &e->in});
    for (int i = 0; i < e->n_levels; i++) {
        const struct vae_level *level = &e->levels[i];
        for (int j = 0; j < level->n_resnets; j++)
            x = resnet_replace(&level->resnets[j], o, mark, x);
        if (weight_exists(&level->resize.weight)) {
            /* Padding only right and below, or the picture shifts. */
            const struct conv_args halve = {
                .conv = &level->resize, .stride = 2, .pad_end_only = true};
            x = tensor_keep(o->arena, mark, op_conv(o, x, &halve));
        }
        vae_show(vae, x, "down", i);
    }
    x = vae_mid_forward(vae, &e->mid, o, mark, x);
    x = op_conv(o, x, &(struct conv_args){.conv = &e->out, .norm = &e->norm_out, .act = ACT_SILU});
    if (weight_exists(&vae->quant.weight))
        x = op_conv(o, x, &(struct conv_args){.conv = &vae->quant});
    return tensor_keep(o->arena, mark, x); /* [n, h / f, w / f, 2 * latent] */
}
