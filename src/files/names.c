/* names.c - every spelling of tensor names into the diffusers one. */
/* SPDX-License-Identifier: MIT */
#include "files/names.h"
#include "files/scales.h"
#include "kernels/dtype.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * A spelling is told from a tensor's prefix; what follows it is rewritten by the rules of that
 * spelling:
 *
 *     model.diffusion_model.input_blocks.4.0.in_layers.2.weight      CompVis (LDM), also of
 * ComfyUI, A1111, sd.cpp unet.                 down_blocks.1.resnets.0.conv1.weight     diffusers
 */
enum spelling {
    SPELLING_DIFFUSERS,
    SPELLING_LDM_UNET,
    SPELLING_LDM_VAE,
    SPELLING_TAESD,
    SPELLING_TRANSFORMERS,
    SPELLING_OPENCLIP
};

#define MAX_BLOCKS 64 /* of a CompVis U-Net on either side; SDXL and SD 1 have 12 */

static const struct prefix {
    const char *prefix, *part;
    enum spelling spelling;
} prefixes[] = {
    {"model.diffusion_model.", "unet.", SPELLING_LDM_UNET},
    {"first_stage_model.", "vae.", SPELLING_LDM_VAE},
    {"cond_stage_model.transformer.", "text_encoder.", SPELLING_TRANSFORMERS},
    {"cond_stage_model.model.", "text_encoder.", SPELLING_OPENCLIP},
    {"cond_stage_model.1.transformer.", "text_encoder_2.",
     SPELLING_TRANSFORMERS}, /* sd.cpp's SDXL */
    {"cond_stage_model.1.model.", "text_encoder_2.", SPELLING_OPENCLIP},
    {"conditioner.embedders.0.transformer.", "text_encoder.", SPELLING_TRANSFORMERS},
    {"conditioner.embedders.0.model.", "text_encoder.", SPELLING_OPENCLIP}, /* SD-Turbo */
    {"conditioner.embedders.1.model.", "text_encoder_2.", SPELLING_OPENCLIP},
    {"unet.", "unet.", SPELLING_DIFFUSERS},
    {"vae.", "vae.", SPELLING_DIFFUSERS},
    {"text_encoder.", "text_encoder.", SPELLING_TRANSFORMERS},
    {"text_encoder_2.", "text_encoder_2.", SPELLING_TRANSFORMERS},
    {"te.1.", "text_encoder_2.", SPELLING_TRANSFORMERS}, /* sd.cpp, of diffusers folders */
    {"te.", "text_encoder.", SPELLING_TRANSFORMERS},
};

/* Files that are one network: a tensor that gives it away. */
static const struct anchor {
    const char *name;
    enum weights_kind kind;
    enum spelling spelling;
} anchors[] = {
    {"unet.conv_in.weight", WEIGHTS_CHECKPOINT, SPELLING_DIFFUSERS},
    {"vae.decoder.conv_in.weight", WEIGHTS_CHECKPOINT, SPELLING_DIFFUSERS},
    {"text_encoder.text_model.embeddings.token_embedding.weight", WEIGHTS_CHECKPOINT,
     SPELLING_DIFFUSERS},
    {"te.text_model.embeddings.token_embedding.weight", WEIGHTS_CHECKPOINT, SPELLING_DIFFUSERS},
    {"controlnet_cond_embedding.conv_in.weight", WEIGHTS_CONTROLNET, SPELLING_DIFFUSERS},
    {"input_hint_block.0.weight", WEIGHTS_CONTROLNET, SPELLING_DIFFUSERS},
    {"control_model.input_hint_block.0.weight", WEIGHTS_CONTROLNET, SPELLING_DIFFUSERS},
    {"input_blocks.0.0.weight", WEIGHTS_UNET, SPELLING_LDM_UNET},
    {"time_embedding.linear_1.weight", WEIGHTS_UNET, SPELLING_DIFFUSERS},
    {"decoder.mid.block_1.norm1.weight", WEIGHTS_VAE, SPELLING_LDM_VAE},
    {"encoder.mid.block_1.norm1.weight", WEIGHTS_VAE, SPELLING_LDM_VAE},
    {"decoder.mid_block.resnets.0.norm1.weight", WEIGHTS_VAE, SPELLING_DIFFUSERS},
    {"encoder.mid_block.resnets.0.norm1.weight", WEIGHTS_VAE, SPELLING_DIFFUSERS},
    {"decoder.layers.0.weight", WEIGHTS_TINY, SPELLING_DIFFUSERS},
    {"encoder.layers.0.weight", WEIGHTS_TINY, SPELLING_DIFFUSERS},
    {"3.conv.0.weight", WEIGHTS_TINY, SPELLING_TAESD},
    {"decoder.3.conv.0.weight", WEIGHTS_TINY, SPELLING_TAESD},
    {"taesd_decoder.3.conv.0.weight", WEIGHTS_TINY, SPELLING_TAESD},
    {"text_model.embeddings.token_embedding.weight", WEIGHTS_TEXT_ENCODER, SPELLING_TRANSFORMERS},
    {"transformer.resblocks.0.ln_1.weight", WEIGHTS_TEXT_ENCODER, SPELLING_OPENCLIP},
    {"emb_params", WEIGHTS_EMBEDDING, SPELLING_DIFFUSERS},
    {"clip_g", WEIGHTS_EMBEDDING, SPELLING_DIFFUSERS},
};

/* Families that are not done here, by a piece of a name only they have. The first that matches is
 * told. */
static const struct foreign {
    const char *piece, *family;
} foreigners[] = {
    {"distilled_guidance_layer.", "Chroma"},
    {"txt_in.individual_token_refiner.", "HunyuanVideo"},
    {"single_transformer_blocks.", "FLUX"},
    {"double_blocks.", "FLUX"},
    {"joint_blocks.", "Stable Diffusion 3"},
    {".attn.add_q_proj.", "Stable Diffusion 3"},
    {".img_mlp.", "Qwen-Image"},
    {"adaln_single.", "PixArt"},
    {"caption_projection.", "PixArt"},
    {"cap_embedder.", "Lumina"},
    {"patchify_proj.", "LTX-Video"},
    {"time_stack.", "Stable Video Diffusion"},
    {"motion_modules.", "AnimateDiff"},
    {"noise_augmentor.", "Stable unCLIP"},
    {"clip_txt_mapper.", "Stable Cascade"},
    {"clip_txt_pooled_mapper.", "Stable Cascade"},
    {"encoder_hid_proj.", "DeepFloyd IF or Kandinsky"},
    {"add_embedding.image_norm.", "Kandinsky"},
    {"edm_mean", "Playground v2.5"},
    {"edm_vpred.", "CosXL (EDM)"},
    {"blocks.0.cross_attn.norm_q.", "Wan"},
};

/* Beginnings of the names of what a checkpoint carries and no picture needs. */
static const char *const needless[] = {
    "model_ema.",
    "betas",
    "alphas_cumprod",
    "sqrt_",
    "log_one_minus_",
    "posterior_",
    "lvlb_weights",
    "denoiser.",
    "first_stage_model.loss.",
    "embedding_manager",
    "logvar",
    "loss.",
    "cond_stage_model.logit_scale",
    "cond_stage_model.transformer.vision_model.",
    "model_ema_",
    "global_step",
    "scale_factor",
    "edm_",
};

struct pair {
    const char *from, *to;
};

static const struct pair ldm_unet[] = {
    {"input_blocks.0.0.", "conv_in."},
    {"time_embed.0.", "time_embedding.linear_1."},
    {"time_embed.2.", "time_embedding.linear_2."},
    {"time_embed.cond_proj.", "time_embedding.cond_proj."},
    {"time_embedding.cond_proj.", "time_embedding.cond_proj."},
    {"label_emb.0.0.", "add_embedding.linear_1."},
    {"label_emb.0.2.", "add_embedding.linear_2."},
    {"out.0.", "conv_norm_out."},
    {"out.2.", "conv_out."},
};
static const struct pair ldm_resnet[] = {
    {"in_layers.0.", "norm1."},          {"in_layers.2.", "conv1."},
    {"emb_layers.1.", "time_emb_proj."}, {"out_layers.0.", "norm2."},
    {"out_layers.3.", "conv2."},         {"skip_connection.", "conv_shortcut."},
};
static const struct pair ldm_vae[] = {
    {"mid.block_1.", "mid_block.resnets.0."},
    {"mid.block_2.", "mid_block.resnets.1."},
    {"mid.attn_1.norm.", "mid_block.attentions.0.group_norm."},
    {"mid.attn_1.q.", "mid_block.attentions.0.to_q."},
    {"mid.attn_1.k.", "mid_block.attentions.0.to_k."},
    {"mid.attn_1.v.", "mid_block.attentions.0.to_v."},
    {"mid.attn_1.proj_out.", "mid_block.attentions.0.to_out.0."},
    {"mid.attn_1.", "mid_block.attentions.0."}, /* sd.cpp's mixture: to_q and so on already */
    {"norm_out.", "conv_norm_out."},
};
/* diffusers before 0.17 */
static const struct pair old_attention[] = {
    {"mid_block.attentions.0.query.", "mid_block.attentions.0.to_q."},
    {"mid_block.attentions.0.key.", "mid_block.attentions.0.to_k."},
    {"mid_block.attentions.0.value.", "mid_block.attentions.0.to_v."},
    {"mid_block.attentions.0.proj_attn.", "mid_block.attentions.0.to_out.0."},
};
static const struct pair openclip[] = {
    {"token_embedding.", "text_model.embeddings.token_embedding."},
    {"positional_embedding", "text_model.embeddings.position_embedding.weight"},
    {"ln_final.", "text_model.final_layer_norm."},
};
static const struct pair openclip_layer[] = {
    {"ln_1.", "layer_norm1."},
    {"ln_2.", "layer_norm2."},
    {"attn.out_proj.", "self_attn.out_proj."},
    {"mlp.c_fc.", "mlp.fc1."},
    {"mlp.c_proj.", "mlp.fc2."},
};
/* The same of the vision tower, after "visual.". */
static const struct pair openclip_vision[] = {
    {"conv1.weight", "embeddings.patch_embedding.weight"},
    {"class_embedding", "embeddings.class_embedding"},
    {"positional_embedding", "embeddings.position_embedding.weight"},
    {"ln_pre.", "pre_layrnorm."}, /* spelled so in transformers */
    {"ln_post.", "post_layernorm."},
};
/* Query, key and value stacked by rows, as OpenCLIP and sd.cpp spell them. */
static const struct pair stacked[] = {
    {"attn.in_proj_weight", "weight"},
    {"attn.in_proj_bias", "bias"},
    {"self_attn.in_proj.weight", "weight"},
    {"self_attn.in_proj.bias", "bias"},
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

struct name {
    char s[WEIGHTS_MAX_NAME + 128];
};

/* What counting the blocks of a CompVis file tells; see count_blocks. */
struct plan {
    bool is_downsample[MAX_BLOCKS], is_upsampled[MAX_BLOCKS], is_mid_resnet[MAX_BLOCKS];
    int down_level[MAX_BLOCKS], down_index[MAX_BLOCKS], up_level[MAX_BLOCKS], up_index[MAX_BLOCKS];
    int n_vae_up;
    int n_layers[2];  /* of the text encoders, to find the last one */
    int64_t width[2]; /* of the text encoders */
    bool drop_last;   /* SD 2: see last_layer_dropped */
};

struct job {
    struct weights *w;
    struct plan plan;
    struct dk_error *err;
};

static void append(struct name *out, const char *text)
{
    size_t n = strlen(out->s), room = sizeof out->s - 1 - n, length = strlen(text);
    memcpy(out->s + n, text, (length < room ? length : room) + 1);
    out->s[sizeof out->s - 1] = 0;
}

/* out becomes a, b and c end to end. */
static void join(struct name *out, const char *a, const char *b, const char *c)
{
    out->s[0] = 0;
    append(out, a);
    append(out, b);
    append(out, c);
}

/* If text begins with prefix, what follows; else NULL. */
static const char *after(const char *text, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(text, prefix, n) == 0 ? text + n : NULL;
}

/* Reads a small number and the dot behind it; *rest becomes what follows. -1 when there is none. */
static int number(const char *text, const char **rest)
{
    int value = 0, digits = 0;
    for (; text[digits] >= '0' && text[digits] <= '9' && digits < 4; digits++)
        value = 10 * value + (text[digits] - '0');
    if (digits == 0 || text[digits] != '.') return -1;
    *rest = text + digits + 1;
    return value;
}

/* after() for a numbered block: prefix, number below MAX_BLOCKS, dot. */
static const char *block(const char *text, const char *prefix, int *index)
{
    const char *rest = after(text, prefix);
    *index = rest ? number(rest, &rest) : -1;
    return *index >= 0 && *index < MAX_BLOCKS ? rest : NULL;
}

/* Replaces the beginning of text by the table; false where no line fits. */
static bool replaced(struct name *out, const char *start, const char *text,
                     const struct pair *table, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *rest = after(text, table[i].from);
        if (!rest) continue;
        join(out, start, table[i].to, rest);
        return true;
    }
    return false;
}

/* ---- counting -------------------------------------------------------------------------------- */

static const struct prefix *prefix_of(const char *name)
{
    for (size_t i = 0; i < COUNT(prefixes); i++)
        if (after(name, prefixes[i].prefix)) return &prefixes[i];
    return NULL;
}

static void count_unet(struct plan *plan, const char *name)
{
    int i, slot;
    const char *rest = block(name, "input_blocks.", &i);
    if (rest && after(rest, "0.op.")) plan->is_downsample[i] = true;
    rest = block(name, "output_blocks.", &i);
    if (rest && (slot = number(rest, &rest)) > 0 && after(rest, "conv."))
        plan->is_upsampled[i] = true;
    rest = block(name, "middle_block.", &i);
    if (rest && after(rest, "in_layers.")) plan->is_mid_resnet[i] = true;
}

static void count_text(struct plan *plan, int encoder, const struct weight *w, const char *name)
{
    int layer;
    if (!block(name, "transformer.resblocks.", &layer))
        block(name, "text_model.encoder.layers.", &layer);
    if (layer >= plan->n_layers[encoder]) plan->n_layers[encoder] = layer + 1;
    if (strstr(name, "token_embedding.weight") && w->rank == 2) plan->width[encoder] = w->dim[1];
}

/*
 * A CompVis U-Net numbers its blocks through. A level ends with a downsampler, which is a block of
 * its own on the way down, and with an upsampler, which is the last slot of its last block on the
 * way up. So names alone tell the levels, whatever the number of layers.
 */
static void number_levels(struct plan *plan)
{
    for (int i = 1, level = 0, index = 0; i < MAX_BLOCKS; i++) {
        plan->down_level[i] = level;
        plan->down_index[i] = index++;
        if (plan->is_downsample[i]) level++, index = 0;
    }
    for (int i = 0, level = 0, index = 0; i < MAX_BLOCKS; i++) {
        plan->up_level[i] = level;
        plan->up_index[i] = index++;
        if (plan->is_upsampled[i]) level++, index = 0;
    }
}

/*
 * SD 2 uses the last but one layer of its OpenCLIP tower, and diffusers' conversion leaves the last
 * one out. A single file has it. By spelling, or (sd.cpp rewrites it) by ViT-H's numbers.
 */
static bool last_layer_dropped(const struct plan *plan, bool has_openclip, bool has_rewritten)
{
    return has_openclip || (has_rewritten && plan->n_layers[0] == 24 && plan->width[0] == 1024);
}

static void count_blocks(struct plan *plan, const struct weights *w, const struct anchor *anchor)
{
    bool has_openclip = false, has_rewritten = false;
    for (size_t i = 0; i < w->n_items; i++) {
        const struct prefix *p = w->kind == WEIGHTS_CHECKPOINT ? prefix_of(w->items[i].name) : NULL;
        enum spelling spelling = p ? p->spelling : anchor ? anchor->spelling : SPELLING_DIFFUSERS;
        const char *name = w->items[i].name + (p ? strlen(p->prefix) : 0);
        int encoder = p && strcmp(p->part, "text_encoder_2.") == 0, level;
        if (spelling == SPELLING_LDM_UNET) count_unet(plan, name);
        if (spelling == SPELLING_LDM_VAE && block(name, "decoder.up.", &level) &&
            level >= plan->n_vae_up)
            plan->n_vae_up = level + 1;
        if (spelling >= SPELLING_TRANSFORMERS) count_text(plan, encoder, &w->items[i], name);
        if (p && spelling == SPELLING_OPENCLIP && encoder == 0) has_openclip = true;
        if (p && strcmp(p->prefix, "cond_stage_model.transformer.") == 0) has_rewritten = true;
    }
    number_levels(plan);
    plan->drop_last =
        w->kind == WEIGHTS_CHECKPOINT && last_layer_dropped(plan, has_openclip, has_rewritten);
}

/* ---- one tensor ------------------------------------------------------------------------------ */

static bool add(struct job *job, struct weight weight, const char *part, const char *name)
{
    struct name full;
    join(&full, part, name, "");
    weight.name = weights_own_name(job->w, full.s, strlen(full.s), NULL, job->err);
    return weight.name && weights_add(job->w, &weight, job->err);
}

static bool ignore(struct job *job, const struct weight *weight)
{
    return weights_add_ignored(job->w, weight->name, job->err);
}

static bool add_unet(struct job *job, const struct weight *weight, const char *part,
                     const char *name)
{
    const struct plan *plan = &job->plan;
    struct name start, out;
    int i, slot = -1;
    const char *rest;
    if (replaced(&out, "", name, ldm_unet, COUNT(ldm_unet))) return add(job, *weight, part, out.s);
    if ((rest = block(name, "input_blocks.", &i))) {
        slot = number(rest, &rest);
        if (slot == 0 && after(rest, "op."))
            snprintf(start.s, sizeof start.s, "down_blocks.%d.downsamplers.0.",
                     plan->down_level[i]);
        else
            snprintf(start.s, sizeof start.s, "down_blocks.%d.%s.%d.", plan->down_level[i],
                     slot == 0 ? "resnets" : "attentions", plan->down_index[i]);
    } else if ((rest = block(name, "output_blocks.", &i))) {
        slot = number(rest, &rest);
        if (slot > 0 && after(rest, "conv."))
            snprintf(start.s, sizeof start.s, "up_blocks.%d.upsamplers.0.", plan->up_level[i]);
        else
            snprintf(start.s, sizeof start.s, "up_blocks.%d.%s.%d.", plan->up_level[i],
                     slot == 0 ? "resnets" : "attentions", plan->up_index[i]);
    } else if ((rest = block(name, "middle_block.", &i))) {
        int before = 0;
        for (int k = 0; k < i; k++) before += plan->is_mid_resnet[k] == plan->is_mid_resnet[i];
        snprintf(start.s, sizeof start.s, "mid_block.%s.%d.",
                 plan->is_mid_resnet[i] ? "resnets" : "attentions", before);
    } else {
        return add(job, *weight, part, name);
    }
    static const struct pair downsample[] = {{"op.", "conv."}};
    if (slot < 0 && !after(name, "middle_block.")) return add(job, *weight, part, name);
    if (!replaced(&out, start.s, rest, ldm_resnet, COUNT(ldm_resnet)) &&
        !replaced(&out, start.s, rest, downsample, COUNT(downsample)))
        join(&out, start.s, rest, "");
    return add(job, *weight, part, out.s);
}

/* A 1x1 convolution as the linear layer it is. */
static struct weight flat(const struct weight *weight)
{
    struct weight w = *weight;
    if (w.rank == 4 && w.dim[2] == 1 && w.dim[3] == 1) w.rank = 2;
    return w;
}

/* One side of a VAE, "encoder." or "decoder."; side is that. */
static bool add_vae_side(struct job *job, const struct weight *weight, const char *part,
                         const char *side, const char *name)
{
    struct name out, start;
    if (after(name, "mid.attn_1.") && replaced(&out, side, name, ldm_vae, COUNT(ldm_vae)))
        return add(job, flat(weight), part, out.s);
    if (replaced(&out, side, name, ldm_vae, COUNT(ldm_vae))) return add(job, *weight, part, out.s);
    int level, index;
    const char *rest = block(name, "down.", &level);
    const char *direction = "down";
    if (!rest && (rest = block(name, "up.", &level))) {
        direction = "up";
        level = job->plan.n_vae_up - 1 -
                level; /* counted from the picture's side there, from the latent's here */
    }
    const char *inner = rest ? block(rest, "block.", &index) : NULL;
    static const struct pair shortcut[] = {{"nin_shortcut.", "conv_shortcut."}, {"", ""}};
    static const struct pair sampler[] = {
        {"downsample.", "downsamplers.0."}, {"upsample.", "upsamplers.0."}, {"", ""}};
    if (inner) {
        snprintf(start.s, sizeof start.s, "%s%s_blocks.%d.resnets.%d.", side, direction, level,
                 index);
        replaced(&out, start.s, inner, shortcut, COUNT(shortcut));
    } else if (rest) {
        snprintf(start.s, sizeof start.s, "%s%s_blocks.%d.", side, direction, level);
        replaced(&out, start.s, rest, sampler, COUNT(sampler));
    } else {
        join(&out, side, name, "");
    }
    return add(job, *weight, part, out.s);
}

static bool add_vae(struct job *job, const struct weight *weight, const char *part,
                    const char *name)
{
    const char *rest;
    if ((rest = after(name, "encoder."))) return add_vae_side(job, weight, part, "encoder.", rest);
    if ((rest = after(name, "decoder."))) return add_vae_side(job, weight, part, "decoder.", rest);
    if (after(name, "loss.") || after(name, "model_ema.")) return ignore(job, weight);
    return add(job, *weight, part, name);
}

/*
 * TAESD numbers the clamp in front as layer 0, diffusers does not count it. A decoder's file has the
 * numbers alone; one with both halves calls them "decoder." or, for ComfyUI, "taesd_decoder.". An
 * encoder's file looks alike but for a tensor 0.
 */
static bool add_taesd(struct job *job, const struct weight *weight, const char *part,
                      const char *name)
{
    const char *rest = after(name, "taesd_decoder.");
    if (!rest) rest = after(name, "decoder.");
    if (!rest) rest = name;
    int layer = number(rest, &rest);
    if (layer < 1) return ignore(job, weight);
    struct name start, out;
    snprintf(start.s, sizeof start.s, "decoder.layers.%d.", layer - 1);
    join(&out, start.s, rest, "");
    return add(job, *weight, part, out.s);
}

static bool add_diffusers(struct job *job, const struct weight *weight, const char *part,
                          const char *name)
{
    struct name out;
    const char *side = after(name, "encoder.")   ? "encoder."
                       : after(name, "decoder.") ? "decoder."
                                                 : "";
    if (side[0] && replaced(&out, side, name + strlen(side), old_attention, COUNT(old_attention)))
        return add(job, flat(weight), part, out.s);
    return add(job, *weight, part, name);
}

/* The three parts of a stacked projection as views: rows 0 to c of c columns are the query's, and
 * so on. */
static bool add_stacked(struct job *job, const struct weight *weight, const char *part,
                        const char *tower, int layer, const char *kind)
{
    static const char *const projections[] = {"q", "k", "v"};
    struct weight w = *weight;
    if (w.rank < 1 || w.dim[0] % 3 != 0 || (w.rank == 1 && weights_dtype_block(w.dtype) > 1))
        return dk_fail(job->err, DK_ERROR_FORMAT,
                       "%s: tensor %s cannot be split into query, key and value", job->w->path,
                       weight->name);
    w.dim[0] /= 3;
    size_t size_bytes = weights_byte_count(&w);
    for (size_t i = 0; i < COUNT(projections); i++) {
        struct name name;
        snprintf(name.s, sizeof name.s, "%s.encoder.layers.%d.self_attn.%s_proj.%s", tower, layer,
                 projections[i], kind);
        w.data = (const unsigned char *)weight->data + i * size_bytes;
        if (!add(job, w, part, name.s)) return false;
    }
    return true;
}

/* The values of a matrix in blocks, column by column, as f32. */
static bool transpose_blocks(float *out, const struct weight *w)
{
    size_t rows = (size_t)w->dim[0], columns = (size_t)w->dim[1];
    size_t row_bytes = dtype_row_bytes(w->dtype, columns);
    float *row = malloc(columns * sizeof *row);
    for (size_t r = 0; row && r < rows; r++) {
        dtype_unpack(w->dtype, row, (const unsigned char *)w->data + r * row_bytes, columns);
        for (size_t c = 0; c < columns; c++) out[c * rows + r] = row[c];
    }
    bool ok = row != NULL;
    free(row);
    return ok;
}

static void transpose_plain(unsigned char *out, const struct weight *w)
{
    size_t rows = (size_t)w->dim[0], columns = (size_t)w->dim[1];
    size_t bytes = (size_t)weights_dtype_bytes(w->dtype);
    const unsigned char *from = w->data;
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++)
            memcpy(out + (c * rows + r) * bytes, from + (r * columns + c) * bytes, bytes);
}

/*
 * OpenCLIP's projection is [width, projection], transformers' [projection, width]: the one copy
 * made here. Blocks lie along rows, so a quantised one (of stable-diffusion.cpp) becomes f32.
 */
static bool add_transposed(struct job *job, const struct weight *weight, const char *part,
                           const char *name)
{
    struct weight w = *weight;
    if (w.rank != 2)
        return dk_fail(job->err, DK_ERROR_FORMAT, "%s: tensor %s has %d dimensions, expected 2",
                       job->w->path, weight->name, w.rank);
    bool in_blocks = weights_dtype_block(w.dtype) > 1;
    if (in_blocks) w.dtype = DTYPE_F32;
    w.dim[0] = weight->dim[1];
    w.dim[1] = weight->dim[0];
    void *copy = weights_own(job->w, weights_byte_count(&w), job->err);
    if (!copy) return false;
    if (!in_blocks)
        transpose_plain(copy, weight);
    else if (!transpose_blocks(copy, weight))
        return dk_fail(job->err, DK_ERROR_MEMORY, "%s: out of memory for %s", job->w->path,
                       weight->name);
    w.data = copy;
    return add(job, w, part, name);
}

/* A layer's tensor of a tower ("text_model"): name is what follows the number. */
static bool add_layer(struct job *job, const struct weight *weight, const char *part,
                      const char *tower, int layer, const char *name)
{
    for (size_t i = 0; i < COUNT(stacked); i++)
        if (strcmp(name, stacked[i].from) == 0)
            return add_stacked(job, weight, part, tower, layer, stacked[i].to);
    struct name start, out;
    snprintf(start.s, sizeof start.s, "%s.encoder.layers.%d.", tower, layer);
    if (!replaced(&out, start.s, name, openclip_layer, COUNT(openclip_layer)))
        join(&out, start.s, name, "");
    return add(job, *weight, part, out.s);
}

/* name is what follows "visual.". */
static bool add_vision(struct job *job, const struct weight *weight, const char *name)
{
    struct name out;
    int layer;
    const char *rest = block(name, "transformer.resblocks.", &layer);
    if (rest) return add_layer(job, weight, "", "vision_model", layer, rest);
    if (strcmp(name, "proj") == 0)
        return add_transposed(job, weight, "", "visual_projection.weight");
    if (replaced(&out, "vision_model.", name, openclip_vision, COUNT(openclip_vision)))
        return add(job, *weight, "", out.s);
    return ignore(job, weight);
}

static bool add_text(struct job *job, const struct weight *weight, const char *part,
                     const char *name)
{
    bool is_cut = job->plan.drop_last && strcmp(part, "text_encoder.") == 0;
    struct name out;
    int layer;
    const char *rest = block(name, "transformer.resblocks.", &layer);
    if (!rest) rest = block(name, "text_model.encoder.layers.", &layer);
    if (!rest) rest = block(name, "encoder.layers.", &layer); /* transformers before 4.0 */
    if (rest)
        return is_cut && layer == job->plan.n_layers[0] - 1
                   ? ignore(job, weight)
                   : add_layer(job, weight, part, "text_model", layer, rest);
    if (strstr(name, "position_ids")) return ignore(job, weight);
    if (job->w->keeps_vision && after(name, "visual."))
        return add_vision(job, weight, after(name, "visual."));
    if (job->w->keeps_vision && (after(name, "vision_model.") || after(name, "visual_projection.")))
        return add(job, *weight, part, name);
    static const char *const unused[] = {"visual.", "vision_model.", "visual_projection.",
                                         "logit_scale", "attn_mask"};
    for (size_t i = 0; i < COUNT(unused); i++)
        if (after(name, unused[i])) return ignore(job, weight);
    if (strcmp(name, "text_projection") == 0 || strcmp(name, "text_model.text_projection") == 0) {
        if (is_cut) return ignore(job, weight); /* SD 2 has no use */
        return add_transposed(job, weight, part, "text_projection.weight");
    }
    if (after(name, "embeddings.") || after(name, "final_layer_norm.")) {
        join(&out, "text_model.", name, "");
        return add(job, *weight, part, out.s);
    }
    if (replaced(&out, "", name, openclip, COUNT(openclip))) return add(job, *weight, part, out.s);
    return add(job, *weight, part, name);
}

static bool add_spelled(struct job *job, const struct weight *weight, enum spelling spelling,
                        const char *part, const char *name)
{
    switch (spelling) {
    case SPELLING_LDM_UNET:
        return add_unet(job, weight, part, name);
    case SPELLING_LDM_VAE:
        return add_vae(job, weight, part, name);
    case SPELLING_TAESD:
        return add_taesd(job, weight, part, name);
    case SPELLING_TRANSFORMERS:
    case SPELLING_OPENCLIP:
        return add_text(job, weight, part, name);
    case SPELLING_DIFFUSERS:
        break;
    }
    return add_diffusers(job, weight, part, name);
}

static bool add_translated(struct job *job, const struct weight *weight,
                           const struct anchor *anchor)
{
    if (weights_is_marker(weight->name))
        return weights_add_metadata(job->w, weight->name, "true", job->err) && ignore(job, weight);
    if (job->w->kind != WEIGHTS_CHECKPOINT)
        return add_spelled(job, weight, anchor->spelling, "", weight->name);
    for (size_t i = 0; i < COUNT(needless); i++)
        if (after(weight->name, needless[i])) return ignore(job, weight);
    const struct prefix *p = prefix_of(weight->name);
    if (!p) return weights_add(job->w, weight, job->err);
    return add_spelled(job, weight, p->spelling, p->part, weight->name + strlen(p->prefix));
}

/* ---- a file ---------------------------------------------------------------------------------- */

static bool has(const struct weights *w, const char *name)
{
    for (size_t i = 0; i < w->n_items; i++)
        if (strcmp(w->items[i].name, name) == 0) return true;
    return false;
}

/* Values that mean nothing without others beside them, in ways that are not read here. */
static bool refuse_packed(const struct weights *w, struct dk_error *err)
{
    static const struct pair packings[] = {
        {".weight_scale_2", "nvfp4"},
        {".quant_state.", "the 4-bit types of bitsandbytes"},
        {".qzeros", "GPTQ"},
        {".qweight", "GPTQ, AWQ or SVDQuant"},
    };
    for (size_t i = 0; i < w->n_items; i++)
        for (size_t k = 0; k < COUNT(packings); k++)
            if (strstr(w->items[i].name, packings[k].from))
                return dk_fail(err, DK_ERROR_UNSUPPORTED,
                               "%s: tensor %s: weights in %s are not read; get the model in f16",
                               weights_path_of(w, &w->items[i]), w->items[i].name, packings[k].to);
    return true;
}

static bool refuse_foreign(const struct weights *w, struct dk_error *err)
{
    const char *family = NULL;
    for (size_t f = 0; f < COUNT(foreigners) && !family; f++)
        for (size_t i = 0; i < w->n_items && !family; i++)
            if (strstr(w->items[i].name, foreigners[f].piece)) family = foreigners[f].family;
    if (has(w, "conditioner.embedders.0.model.ln_final.weight") &&
        has(w, "model.diffusion_model.label_emb.0.0.weight"))
        family = "SDXL refiner";
    if (!family) return true;
    return dk_fail(
        err, DK_ERROR_UNSUPPORTED,
        "%s: is a %s model, which is not supported; use a Stable Diffusion 1, 2 or XL model",
        w->path, family);
}

/* LoRAs come in many spellings, all with these pieces; their names are matched against the model
 * later, not here. */
static bool is_lora(const struct weights *w)
{
    static const char *const pieces[] = {".lora_down.", ".lora_A.",   ".lora.down.",
                                         "_lora.down.", ".hada_w1_a", ".lokr_w1"};
    for (size_t i = 0; i < w->n_items; i++)
        for (size_t k = 0; k < COUNT(pieces); k++)
            if (strstr(w->items[i].name, pieces[k])) return true;
    return false;
}

/* NULL for a CompVis checkpoint and for what is unknown; w->kind tells those apart. */
static const struct anchor *find_kind(struct weights *w)
{
    static const char *const checkpoint[] = {"model.diffusion_model.", "first_stage_model.",
                                             "cond_stage_model.", "conditioner.embedders."};
    w->kind = is_lora(w) ? WEIGHTS_LORA : WEIGHTS_UNKNOWN;
    if (w->kind == WEIGHTS_LORA) return NULL;
    for (size_t a = 0; a < COUNT(anchors); a++) {
        if (!has(w, anchors[a].name)) continue;
        w->kind = anchors[a].kind;
        return &anchors[a];
    }
    for (size_t i = 0; i < w->n_items; i++)
        for (size_t k = 0; k < COUNT(checkpoint); k++)
            if (after(w->items[i].name, checkpoint[k])) w->kind = WEIGHTS_CHECKPOINT;
    return NULL;
}

bool names_translate(struct weights *w, struct dk_error *err)
{
    if (!refuse_foreign(w, err) || !refuse_packed(w, err) || !scales_apply(w, err)) return false;
    const struct anchor *anchor = find_kind(w);
    bool known = w->kind == WEIGHTS_CHECKPOINT || w->kind == WEIGHTS_UNET ||
                 w->kind == WEIGHTS_VAE || w->kind == WEIGHTS_TINY ||
                 w->kind == WEIGHTS_TEXT_ENCODER;
    if (!known) return true;
    struct job job = {.w = w, .err = err};
    count_blocks(&job.plan, w, anchor);
    struct weight *old = w->items;
    size_t n_old = w->n_items;
    w->items = NULL;
    w->n_items = 0;
    bool ok = true;
    for (size_t i = 0; ok && i < n_old; i++) ok = add_translated(&job, &old[i], anchor);
    free(old);
    return ok;
}
