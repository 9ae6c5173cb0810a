/* config.c - reads the config.json of each network, or guesses it from the tensors. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/config.h"

#include "files/json.h"
#include "pipeline/fields.h"
#include "pipeline/find.h"

#include <stdio.h>
#include <string.h>

#define MAX_CONFIG_BYTES (1u << 20) /* real ones have a few kB */
#define MAX_CONFIG_DEPTH 16
#define MAX_HEADS        1024

/* A setting that is computed only one way. */
struct only {
    const char *key, *allowed;
};

static void check_only(const struct fields *f, const struct only *only, size_t n)
{
    for (size_t i = 0; i < n; i++) fields_only(f, only[i].key, only[i].allowed);
}
#define CHECK_ONLY(f, table) check_only(f, table, sizeof(table) / sizeof *(table))

/* Parses the file and hands it on. */
typedef bool parse_function(const json_t *object, const char *subject, void *out,
                            struct dk_error *err);

static bool read_file(const char *path, parse_function *parse, void *out, struct dk_error *err)
{
    json_t *object = json_object_read(path, MAX_CONFIG_BYTES, MAX_CONFIG_DEPTH, err);
    if (!object) return false;
    bool ok = parse(object, path, out, err);
    json_decref(object);
    return ok;
}

/* ---- U-Net ----------------------------------------------------------------------------------- */

static const struct only UNET_ONLY[] = {
    {"_class_name", "\"UNet2DConditionModel\""},
    {"act_fn", "\"silu\"|\"swish\""},
    {"addition_embed_type", "\"text_time\"|null"},
    {"attention_type", "\"default\"|null"},
    {"center_input_sample", "false|null"},
    {"class_embed_type", "null"},
    {"class_embeddings_concat", "false|null"},
    {"cross_attention_norm", "null"},
    {"downsample_padding", "1|null"},
    {"dual_cross_attention", "false|null"},
    {"encoder_hid_dim", "null"},
    {"encoder_hid_dim_type", "null"},
    {"mid_block_only_cross_attention", "false|null"},
    {"mid_block_scale_factor", "1|1.0|null"},
    {"mid_block_type", "\"UNetMidBlock2DCrossAttn\"|\"UNetMidBlock2D\"|null"},
    {"num_class_embeds", "null"},
    {"only_cross_attention", "false|[false,false,false]|[false,false,false,false]|null"},
    {"resnet_out_scale_factor", "1|1.0|null"},
    {"resnet_skip_time_act", "false|null"},
    {"resnet_time_scale_shift", "\"default\"|null"},
    {"time_embedding_act_fn", "null"},
    {"time_embedding_type", "\"positional\"|null"},
    {"timestep_post_act", "null"},
};

/* down_block_types or up_block_types: which have attention. Absent: all but the coarsest, as in
 * diffusers' default. */
static void read_block_types(const struct fields *f, const char *key, const char *plain,
                             const char *cross, int n, bool reversed, bool *attention)
{
    for (int i = 0; i < n; i++) attention[i] = i + 1 < n;
    int found = fields_length(f, key, UNET_MAX_LEVELS);
    if (found < 0) return;
    if (found != n) fields_fail(f, key, "as many as block_out_channels");
    for (int i = 0; i < n && fields_ok(f); i++) {
        const char *word = fields_word(f, key, (size_t)i);
        int level = reversed ? n - 1 - i : i;
        attention[level] = word && strcmp(word, cross) == 0;
        if (attention[level] || (word && strcmp(word, plain) == 0)) continue;
        dk_fail(f->err, DK_ERROR_UNSUPPORTED,
                "%s: \"%s\" has %.60s, expected %s or %s: other blocks are not supported",
                f->subject, key, word ? word : "something else", plain, cross);
    }
}

/* Lists within the list (SSD-1B: a number a layer) are left to the weights. */
static void read_depth(const struct fields *f, int n, int *depth)
{
    const char *key = "transformer_layers_per_block";
    const json_t *value = fields_value(f, key);
    for (int i = 0; i < n; i++) depth[i] = 1;
    size_t i;
    const json_t *item;
    bool nested = fields_value(f, "reverse_transformer_layers_per_block") != NULL;
    json_array_foreach(value, i, item) nested = nested || json_is_array(item);
    if (nested) {
        for (int level = 0; level < n; level++) depth[level] = 0;
        return;
    }
    fields_ints(f, key, 0, UNET_MAX_DEPTH, n, depth);
}

/* diffusers calls the number of heads attention_head_dim; num_attention_heads overrides it where it
 * is given. */
static void read_heads(const struct fields *f, int n, int *heads)
{
    for (int i = 0; i < n; i++) heads[i] = 8;
    bool named = fields_value(f, "num_attention_heads") != NULL;
    fields_ints(f, named ? "num_attention_heads" : "attention_head_dim", 1, MAX_HEADS, n, heads);
}

/* A number for both sides, or [height, width]. */
static void read_sample_size(const struct fields *f, struct config_unet *out)
{
    int size[2] = {0, 0};
    fields_ints(f, "sample_size", 1, 4096, 2, size);
    out->sample_height = size[0];
    out->sample_width = size[1];
}

static void read_float(const struct fields *f, const char *key, double low, double high, float *out)
{
    double value = (double)*out;
    fields_number(f, key, low, high, &value);
    *out = (float)value;
}

static void read_unet(const struct fields *f, struct config_unet *out)
{
    struct unet_config *net = &out->net;
    CHECK_ONLY(f, UNET_ONLY);
    int n = fields_length(f, "block_out_channels", UNET_MAX_LEVELS);
    net->n_levels = n = n < 0 ? 4 : n;
    for (int i = 0; i < n; i++) net->layers[i] = 2;
    fields_ints(f, "layers_per_block", 1, UNET_MAX_LAYERS - 1, n, net->layers);
    read_block_types(f, "down_block_types", "DownBlock2D", "CrossAttnDownBlock2D", n, false,
                     net->attention);
    read_block_types(f, "up_block_types", "UpBlock2D", "CrossAttnUpBlock2D", n, true,
                     net->up_attention);
    read_depth(f, n, net->depth);
    read_heads(f, n, net->n_heads);
    net->mid_block = !json_is_null(json_object_get(f->object, "mid_block_type"));
    net->n_groups = 32;
    fields_int(f, "norm_num_groups", 1, 4096, &net->n_groups);
    net->norm_eps = 1e-5f;
    read_float(f, "norm_eps", 1e-12, 1.0, &net->norm_eps);
    net->flip_sin_to_cos = true;
    fields_bool(f, "flip_sin_to_cos", &net->flip_sin_to_cos);
    read_float(f, "freq_shift", -1.0, 1.0, &net->freq_shift);
    bool text_time = fields_value(f, "addition_embed_type") != NULL;
    if (text_time) fields_int(f, "addition_time_embed_dim", 2, 1 << 14, &net->added_time_width);
    if (text_time && net->added_time_width == 0)
        fields_fail(f, "addition_time_embed_dim",
                    "a width, since addition_embed_type is text_time");
    fields_int(f, "time_cond_proj_dim", 2, 1 << 14, &net->guidance_width);
    read_sample_size(f, out);
}

bool config_parse_unet(const json_t *object, const char *subject, struct config_unet *out,
                       struct dk_error *err)
{
    struct dk_error own = {.code = DK_OK};
    struct fields f = {.subject = subject, .object = object, .err = err ? err : &own};
    *out = (struct config_unet){0};
    read_unet(&f, out);
    return fields_ok(&f);
}

/* ---- VAE ------------------------------------------------------------------------------------- */

static const struct only VAE_ONLY[] = {
    {"_class_name", "\"AutoencoderKL\""},
    {"act_fn", "\"silu\"|\"swish\""},
    {"in_channels", "3"},
    {"latents_mean", "null"},
    {"latents_std", "null"},
    {"out_channels", "3"},
};

static void check_vae_blocks(const struct fields *f, const char *key, const char *wanted, int n)
{
    int found = fields_length(f, key, VAE_MAX_LEVELS);
    if (found >= 0 && found != n) fields_fail(f, key, "as many as block_out_channels");
    for (int i = 0; i < found && fields_ok(f); i++) {
        const char *word = fields_word(f, key, (size_t)i);
        if (word && strcmp(word, wanted) == 0) continue;
        dk_fail(f->err, DK_ERROR_UNSUPPORTED, "%s: \"%s\" has %.60s, expected %s for each",
                f->subject, key, word ? word : "something else", wanted);
    }
}

static void read_vae(const struct fields *f, struct config_vae *out)
{
    CHECK_ONLY(f, VAE_ONLY);
    int n = fields_length(f, "block_out_channels", VAE_MAX_LEVELS);
    out->net.n_levels = n = n < 0 ? 1 : n;
    check_vae_blocks(f, "down_block_types", "DownEncoderBlock2D", n);
    check_vae_blocks(f, "up_block_types", "UpDecoderBlock2D", n);
    out->net.layers_per_block = 1;
    fields_int(f, "layers_per_block", 1, VAE_MAX_LAYERS - 1, &out->net.layers_per_block);
    out->net.n_groups = 32;
    fields_int(f, "norm_num_groups", 1, 4096, &out->net.n_groups);
    out->scaling_factor = 0.18215;
    fields_number(f, "scaling_factor", 1e-6, 1e6, &out->scaling_factor);
    fields_number(f, "shift_factor", -1e6, 1e6, &out->shift_factor);
    fields_bool(f, "force_upcast", &out->force_upcast);
    fields_int(f, "sample_size", 1, 1 << 16, &out->sample_size);
}

bool config_parse_vae(const json_t *object, const char *subject, struct config_vae *out,
                      struct dk_error *err)
{
    struct dk_error own = {.code = DK_OK};
    struct fields f = {.subject = subject, .object = object, .err = err ? err : &own};
    *out = (struct config_vae){0};
    read_vae(&f, out);
    return fields_ok(&f);
}

/* ---- tiny decoder ---------------------------------------------------------------------------- */

static const struct only TINY_ONLY[] = {
    {"_class_name", "\"AutoencoderTiny\""},
    {"act_fn", "\"relu\""},
    {"in_channels", "3"},
    {"out_channels", "3"},
    {"upsample_fn", "\"nearest\"|null"},
    {"upsampling_scaling_factor", "2"},
};

static bool parse_tiny(const json_t *object, const char *subject, void *user, struct dk_error *err)
{
    struct config_tiny *out = user;
    struct dk_error own = {.code = DK_OK};
    struct fields f = {.subject = subject, .object = object, .err = err ? err : &own};
    *out = (struct config_tiny){.scaling_factor = 1};
    CHECK_ONLY(&f, TINY_ONLY);
    int n = fields_length(&f, "num_decoder_blocks", TINY_MAX_LEVELS);
    out->net.n_levels = n < 0 ? 0 : n;
    if (n > 0) fields_ints(&f, "num_decoder_blocks", 0, TINY_MAX_BLOCKS, n, out->net.n_blocks);
    fields_number(&f, "scaling_factor", 1e-6, 1e6, &out->scaling_factor);
    fields_number(&f, "shift_factor", -1e6, 1e6, &out->shift_factor);
    return fields_ok(&f);
}

bool config_read_tiny(const char *path, struct config_tiny *out, struct dk_error *err)
{
    return read_file(path, parse_tiny, out, err);
}

/* ---- text encoder ---------------------------------------------------------------------------- */

static const struct only CLIP_ONLY[] = {
    {"hidden_act", "\"quick_gelu\"|\"gelu\""},
    {"model_type", "\"clip_text_model\"|\"clip\""},
};

static void read_clip(const struct fields *f, struct config_clip *out)
{
    CHECK_ONLY(f, CLIP_ONLY);
    const char *act = fields_word(f, "hidden_act", 0);
    out->net.act = act && strcmp(act, "gelu") == 0 ? ACT_GELU : ACT_QUICK_GELU;
    out->net.n_heads = 8;
    fields_int(f, "num_attention_heads", 1, MAX_HEADS, &out->net.n_heads);
    out->net.n_layers = 12;
    fields_int(f, "num_hidden_layers", 1, 1024, &out->net.n_layers);
    out->net.norm_eps = 1e-5f;
    read_float(f, "layer_norm_eps", 1e-12, 1.0, &out->net.norm_eps);
    /* 2 was written into many configs by mistake; transformers then takes the largest id, and so do
     * we. */
    int eos = 2;
    fields_int(f, "eos_token_id", 0, 1 << 24, &eos);
    out->net.eos_id = eos == 2 ? -1 : eos;
    out->model_max_length = 77;
    fields_int(f, "max_position_embeddings", 3, 4096, &out->model_max_length);
    const char *class_name = fields_word(f, "architectures", 0);
    out->net.projected = class_name && strstr(class_name, "WithProjection") != NULL;
}

bool config_parse_clip(const json_t *object, const char *subject, struct config_clip *out,
                       struct dk_error *err)
{
    struct dk_error own = {.code = DK_OK};
    const json_t *text = json_object_get(object, "text_config"); /* the config of a whole CLIP */
    struct fields f = {.subject = subject,
                       .object = json_is_object(text) ? text : object,
                       .err = err ? err : &own};
    *out = (struct config_clip){0};
    read_clip(&f, out);
    return fields_ok(&f);
}

/* ---- files ----------------------------------------------------------------------------------- */

static bool parse_unet(const json_t *object, const char *subject, void *out, struct dk_error *err)
{
    return config_parse_unet(object, subject, out, err);
}

static bool parse_vae(const json_t *object, const char *subject, void *out, struct dk_error *err)
{
    return config_parse_vae(object, subject, out, err);
}

static bool parse_clip(const json_t *object, const char *subject, void *out, struct dk_error *err)
{
    return config_parse_clip(object, subject, out, err);
}

bool config_read_unet(const char *path, struct config_unet *out, struct dk_error *err)
{
    return read_file(path, parse_unet, out, err);
}

bool config_read_vae(const char *path, struct config_vae *out, struct dk_error *err)
{
    return read_file(path, parse_vae, out, err);
}

bool config_read_clip(const char *path, struct config_clip *out, struct dk_error *err)
{
    return read_file(path, parse_clip, out, err);
}

/* ---- beside a single file ------------------------------------------------------------------ */

bool config_read_beside(const char *path, json_t **out, struct dk_error *err)
{
    char beside[4096];
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
    int stem = (int)(dot && (!slash || dot > slash) ? (size_t)(dot - path) : strlen(path));
    *out = NULL;
    int length = snprintf(beside, sizeof beside, "%.*s.json", stem, path);
    if (length < 0 || (size_t)length >= sizeof beside || !path_is_file(beside)) return true;
    *out = json_object_read(beside, MAX_CONFIG_BYTES, MAX_CONFIG_DEPTH, err);
    if (!*out) return false;
    if (json_is_object(json_object_get(*out, "unet"))) return true;
    json_decref(*out); /* other programs keep notes of their own beside a model */
    *out = NULL;
    return true;
}

/* One config of a converted file; NULL and *good unchanged where there is none. */
static json_t *metadata_object(const struct weights *weights, const char *key, bool *good,
                               struct dk_error *err)
{
    const char *text = *good ? weights_metadata(weights, key) : NULL;
    if (!text) return NULL;
    json_t *object = json_object_parse(text, strlen(text), MAX_CONFIG_DEPTH, key, err);
    *good = object != NULL;
    return object;
}

bool config_read_metadata(const struct weights *weights, json_t **out, struct dk_error *err)
{
    bool good = true;
    json_t *unet = metadata_object(weights, "unet/config.json", &good, err);
    json_t *vae = metadata_object(weights, "vae/config.json", &good, err);
    json_t *first = metadata_object(weights, "text_encoder/config.json", &good, err);
    json_t *second = metadata_object(weights, "text_encoder_2/config.json", &good, err);
    json_t *scheduler = metadata_object(weights, "scheduler/scheduler_config.json", &good, err);
    bool any = unet || vae || first || second || scheduler;
    /* "o*" leaves out what is NULL, and takes what is not. */
    *out = json_pack("{s:o*, s:o*, s:[o, o], s:o*}", "unet", unet, "vae", vae, "text",
                     first ? first : json_null(), second ? second : json_null(), "scheduler",
                     scheduler);
    if (good && any && !*out) return dk_fail(err, DK_ERROR_MEMORY, "out of memory for a config");
    if (good && any) return true;
    json_decref(*out);
    *out = NULL;
    return good;
}

const json_t *config_beside_part(const json_t *beside, const char *part)
{
    const json_t *text = json_object_get(beside, "text"), *object;
    if (strcmp(part, "text_encoder") == 0)
        object = json_array_get(text, 0);
    else if (strcmp(part, "text_encoder_2") == 0)
        object = json_array_get(text, 1);
    else
        object = json_object_get(beside, part);
    return json_is_object(object) ? object : NULL;
}

/* ---- from the tensors ------------------------------------------------------------------------ */

static int64_t dim_of(const struct weights *weights, const char *name, int i)
{
    const struct weight *w = weights_find(weights, name);
    return w && i < w->rank ? w->dim[i] : 0;
}

/* 32 groups in all released models;
 * what does not divide gets the largest power of two that does. */
static int guess_groups(int64_t channels)
{
    int n = 32;
    while (n > 1 && channels % n != 0) n /= 2;
    return n;
}

/* The first tensor whose name ends so. */
static const struct weight *find_ending(const struct weights *weights, const char *ending)
{
    size_t length = strlen(ending);
    for (size_t i = 0; i < weights_count(weights); i++) {
        const struct weight *w = weights_at(weights, i);
        size_t n = strlen(w->name);
        if (n >= length && strcmp(w->name + n - length, ending) == 0) return w;
    }
    return NULL;
}

bool config_guess_unet(const struct weights *weights, int64_t pooled_width, struct config_unet *out,
                       struct dk_error *err)
{
    *out = (struct config_unet){.net = {.norm_eps = 1e-5f, .flip_sin_to_cos = true}};
    int64_t width = dim_of(weights, "conv_in.weight", 0);
    if (width < 1)
        return dk_fail(err, DK_ERROR_MODEL,
                       "%s: no tensor conv_in.weight: there is no Stable Diffusion U-Net in it",
                       weights_path(weights));
    out->net.n_groups = guess_groups(width);

    /* SD 1 has 8 heads and 1x1 convolutions around its transformers; SD 2 and SDXL heads of 64 and
     * matrices. */
    const struct weight *proj_in = find_ending(weights, ".proj_in.weight");
    if (proj_in && proj_in->rank == 2) out->net.head_width = 64;
    for (int i = 0; i < UNET_MAX_LEVELS; i++) out->net.n_heads[i] = 8;

    int64_t added = dim_of(weights, "add_embedding.linear_1.weight", 1);
    if (added) /* six numbers beside the pooled text, each 256 wide in SDXL */
        out->net.added_time_width =
            pooled_width && added > pooled_width && (added - pooled_width) % 6 == 0
                ? (int)((added - pooled_width) / 6)
                : 256;
    return true;
}

bool config_guess_vae(const struct weights *weights, bool sdxl, struct config_vae *out,
                      struct dk_error *err)
{
    int64_t width = dim_of(weights, "decoder.conv_norm_out.weight", 0);
    if (width < 1)
        return dk_fail(err, DK_ERROR_MODEL,
                       "%s: no tensor decoder.conv_norm_out.weight: there is no VAE in it; give "
                       "one with --vae",
                       weights_path(weights));
    *out = (struct config_vae){.net = {.n_groups = guess_groups(width)},
                               .scaling_factor = sdxl ? 0.13025 : 0.18215,
                               .force_upcast = sdxl};
    return true;
}

bool config_guess_clip(const struct weights *weights, struct config_clip *out, struct dk_error *err)
{
    int64_t width = dim_of(weights, "text_model.embeddings.token_embedding.weight", 1);
    int64_t length = dim_of(weights, "text_model.embeddings.position_embedding.weight", 0);
    if (width < 1 || length < 1 || length > 4096)
        return dk_fail(err, DK_ERROR_MODEL,
                       "%s: no CLIP text encoder in it; give one with --text-encoder",
                       weights_path(weights));
    int n_layers = 0;
    while (n_layers < 1024) {
        char name[96];
        snprintf(name, sizeof name, "text_model.encoder.layers.%d.layer_norm1.weight", n_layers);
        if (!weights_find(weights, name)) break;
        n_layers++;
    }
    /* Heads are 64 wide in all released text encoders; OpenAI's (768) have quick_gelu, OpenCLIP's
     * the exact one. */
    *out = (struct config_clip){.net = {.n_heads = width % 64 == 0 ? (int)(width / 64) : 1,
                                        .act = width <= 768 ? ACT_QUICK_GELU : ACT_GELU,
                                        .norm_eps = 1e-5f,
                                        .n_layers = n_layers,
                                        .eos_id = -1},
                                .model_max_length = (int)length};
    return true;
}
