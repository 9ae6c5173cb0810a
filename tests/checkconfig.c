/* checkconfig.c - what is read from a network's config.json, refused, and guessed. */
/* SPDX-License-Identifier: MIT */
#include "check.h"
#include "pipeline/config.h"

#include <stdlib.h>
#include <string.h>

static struct dk_error err;

static json_t *parse(const char *text)
{
    err = (struct dk_error){.code = DK_OK};
    json_t *object = json_loads(text, 0, NULL);
    CHECK(object, "test JSON: %s", text);
    return object;
}

static bool unet(const char *text, struct config_unet *out)
{
    json_t *object = parse(text);
    bool ok = config_parse_unet(object, "unet.json", out, &err);
    json_decref(object);
    return ok;
}

static bool vae(const char *text, struct config_vae *out)
{
    json_t *object = parse(text);
    bool ok = config_parse_vae(object, "vae.json", out, &err);
    json_decref(object);
    return ok;
}

static bool clip(const char *text, struct config_clip *out)
{
    json_t *object = parse(text);
    bool ok = config_parse_clip(object, "text.json", out, &err);
    json_decref(object);
    return ok;
}

/* An absent key means what diffusers and transformers take for it. */
static void check_defaults(void)
{
    struct config_unet u;
    CHECK(unet("{}", &u), "%s", err.message);
    CHECK(u.net.n_levels == 4 && u.net.layers[3] == 2 && u.net.n_heads[0] == 8, "layout");
    CHECK(u.net.attention[0] && u.net.attention[2] && !u.net.attention[3], "attention");
    CHECK(u.net.up_attention[0] && !u.net.up_attention[3], "attention of the up blocks");
    CHECK(u.net.n_groups == 32 && fabsf(u.net.norm_eps - 1e-5f) < 1e-12f, "norm");
    CHECK(u.net.flip_sin_to_cos && u.net.freq_shift == 0.0f && u.net.mid_block, "rest");
    CHECK(u.sample_width == 0 && u.net.added_time_width == 0 && u.net.guidance_width == 0, "none");
    struct config_vae v;
    CHECK(vae("{}", &v), "%s", err.message);
    CHECK(v.scaling_factor == 0.18215 && v.shift_factor == 0 && v.net.n_groups == 32, "vae");
    struct config_clip c;
    CHECK(clip("{}", &c), "%s", err.message);
    CHECK(c.net.act == ACT_QUICK_GELU && c.net.n_heads == 8 && c.net.n_layers == 12, "clip");
    CHECK(c.net.eos_id == -1 && c.model_max_length == 77 && !c.net.projected, "clip");
}

static void check_values(void)
{
    struct config_unet u;
    CHECK(unet("{\"block_out_channels\":[320,640,1280],\"attention_head_dim\":[5,10,20],"
               "\"down_block_types\":[\"DownBlock2D\",\"CrossAttnDownBlock2D\","
               "\"CrossAttnDownBlock2D\"],\"up_block_types\":[\"CrossAttnUpBlock2D\","
               "\"CrossAttnUpBlock2D\",\"UpBlock2D\"],\"transformer_layers_per_block\":[1,2,10],"
               "\"addition_embed_type\":\"text_time\",\"addition_time_embed_dim\":256,"
               "\"sample_size\":128,\"time_cond_proj_dim\":256}",
               &u),
          "%s", err.message);
    CHECK(u.net.n_levels == 3 && u.net.n_heads[1] == 10 && u.net.depth[2] == 10, "SDXL");
    CHECK(!u.net.attention[0] && u.net.attention[2] && !u.net.up_attention[0], "SDXL attention");
    CHECK(u.net.added_time_width == 256 && u.net.guidance_width == 256, "SDXL embeddings");
    CHECK(u.sample_width == 128 && u.sample_height == 128, "sample size");

    CHECK(unet("{\"sample_size\":[48,64],\"mid_block_type\":null,\"num_attention_heads\":4,"
               "\"attention_head_dim\":8,\"layers_per_block\":[1,1,2,2]}",
               &u),
          "%s", err.message);
    CHECK(u.sample_height == 48 && u.sample_width == 64, "height comes first");
    CHECK(!u.net.mid_block && u.net.n_heads[2] == 4 && u.net.layers[1] == 1, "distilled");

    CHECK(unet("{\"block_out_channels\":[320,640,1280],\"transformer_layers_per_block\":"
               "[0,[2,2],[4,4]],\"reverse_transformer_layers_per_block\":[[4,4,10],[2,1,1],1],"
               "\"down_block_types\":[\"DownBlock2D\",\"CrossAttnDownBlock2D\","
               "\"CrossAttnDownBlock2D\"],\"up_block_types\":[\"CrossAttnUpBlock2D\","
               "\"CrossAttnUpBlock2D\",\"UpBlock2D\"]}",
               &u),
          "%s", err.message);
    CHECK(u.net.depth[0] == 0 && u.net.depth[2] == 0, "uneven depths are left to the weights");

    struct config_clip c;
    CHECK(clip("{\"hidden_act\":\"gelu\",\"eos_token_id\":999,\"architectures\":"
               "[\"CLIPTextModelWithProjection\"]}",
               &c),
          "%s", err.message);
    CHECK(c.net.act == ACT_GELU && c.net.eos_id == 999 && c.net.projected, "te2");
    CHECK(clip("{\"model_type\":\"clip\",\"text_config\":{\"num_hidden_layers\":23}}", &c), "%s",
          err.message);
    CHECK(c.net.n_layers == 23, "the text part of a whole CLIP");
}

/* Each is one line wrong; the message names file and key. */
static void check_refused(void)
{
    static const struct {
        const char *text, *key;
    } bad_unets[] = {
        {"{\"attention_head_dim\":\"8\"}", "attention_head_dim"},
        {"{\"attention_head_dim\":0}", "attention_head_dim"},
        {"{\"attention_head_dim\":-8}", "attention_head_dim"},
        {"{\"attention_head_dim\":8.5}", "attention_head_dim"},
        {"{\"attention_head_dim\":1e300}", "attention_head_dim"},
        {"{\"attention_head_dim\":9223372036854775807}", "attention_head_dim"},
        {"{\"attention_head_dim\":[8,8]}", "attention_head_dim"},
        {"{\"attention_head_dim\":[8,8,8,8,8]}", "attention_head_dim"},
        {"{\"attention_head_dim\":[8,8,8,[8]]}", "attention_head_dim"},
        {"{\"block_out_channels\":[]}", "block_out_channels"},
        {"{\"block_out_channels\":320}", "block_out_channels"},
        {"{\"block_out_channels\":[1,2,3,4,5,6,7,8,9]}", "block_out_channels"},
        {"{\"layers_per_block\":1000000}", "layers_per_block"},
        {"{\"layers_per_block\":{}}", "layers_per_block"},
        {"{\"norm_num_groups\":0}", "norm_num_groups"},
        {"{\"norm_eps\":0}", "norm_eps"},
        {"{\"norm_eps\":-1}", "norm_eps"},
        {"{\"norm_eps\":\"small\"}", "norm_eps"},
        {"{\"flip_sin_to_cos\":1}", "flip_sin_to_cos"},
        {"{\"sample_size\":0}", "sample_size"},
        {"{\"sample_size\":[64]}", "sample_size"},
        {"{\"down_block_types\":[\"DownBlock2D\"]}", "down_block_types"},
        {"{\"down_block_types\":[1,2,3,4]}", "down_block_types"},
        {"{\"down_block_types\":[\"DownBlock2D\",\"DownBlock2D\",\"DownBlock2D\","
         "\"KDownBlock2D\"]}",
         "down_block_types"},
        {"{\"addition_embed_type\":\"text_time\"}", "addition_time_embed_dim"},
        {"{\"addition_embed_type\":\"text_image\"}", "addition_embed_type"},
        {"{\"class_embed_type\":\"timestep\"}", "class_embed_type"},
        {"{\"num_class_embeds\":1000}", "num_class_embeds"},
        {"{\"only_cross_attention\":[true,true,true,false]}", "only_cross_attention"},
        {"{\"resnet_time_scale_shift\":\"scale_shift\"}", "resnet_time_scale_shift"},
        {"{\"act_fn\":\"mish\"}", "act_fn"},
        {"{\"mid_block_type\":\"UNetMidBlock2DSimpleCrossAttn\"}", "mid_block_type"},
        {"{\"_class_name\":\"FluxTransformer2DModel\"}", "_class_name"},
        {"{\"_class_name\":[[]]}", "_class_name"},
        {"{\"transformer_layers_per_block\":1000}", "transformer_layers_per_block"},
    };
    for (size_t i = 0; i < sizeof bad_unets / sizeof *bad_unets; i++) {
        struct config_unet u;
        CHECK(!unet(bad_unets[i].text, &u) && strstr(err.message, bad_unets[i].key) &&
                  strstr(err.message, "unet.json"),
              "%s: %s", bad_unets[i].text, err.message);
    }
    struct config_vae v;
    CHECK(!vae("{\"scaling_factor\":0}", &v), "scaling factor 0");
    CHECK(!vae("{\"scaling_factor\":null,\"layers_per_block\":0}", &v), "no layers");
    CHECK(!vae("{\"_class_name\":\"AutoencoderTiny\"}", &v), "another class");
    CHECK(!vae("{\"latents_mean\":[0,0,0,0]}", &v), "latents_mean");
    CHECK(!vae("{\"up_block_types\":[\"AttnUpDecoderBlock2D\"]}", &v), "other blocks");
    struct config_clip c;
    CHECK(!clip("{\"hidden_act\":\"relu\"}", &c), "relu");
    CHECK(!clip("{\"model_type\":\"t5\"}", &c), "T5");
    CHECK(!clip("{\"num_attention_heads\":1e9}", &c), "heads");
    CHECK(!clip("{\"max_position_embeddings\":2}", &c), "no room for a word");
    CHECK(!clip("{\"eos_token_id\":-5}", &c), "negative id");
}

/* Files: not there, not JSON, deep JSON. */
static void check_files(void)
{
    const char *build = getenv("BUILD");
    char path[256];
    snprintf(path, sizeof path, "%s/tests/config.json", build ? build : "build");
    struct config_unet u;
    err = (struct dk_error){.code = DK_OK};
    CHECK(!config_read_unet("no/such/config.json", &u, &err) && err.code == DK_ERROR_FILE, "%s",
          err.message);
    FILE *f = fopen(path, "w");
    if (!f) return;
    fputs("{\"a\":", f);
    for (int i = 0; i < 100000; i++) fputc('[', f);
    fclose(f);
    err = (struct dk_error){.code = DK_OK};
    CHECK(!config_read_unet(path, &u, &err) && err.code == DK_ERROR_FORMAT, "%s", err.message);
    CHECK(!config_read_unet(path, &u, NULL), "without an error to fill");
    remove(path);
    err = (struct dk_error){.code = DK_OK};
    CHECK(config_read_unet("models/emoji/unet/config.json", &u, &err), "%s", err.message);
    CHECK(u.net.n_groups == 16 && u.net.n_levels == 3 && u.sample_width == 16, "the default model");
}

int main(void)
{
    check_defaults();
    check_values();
    check_refused();
    check_files();
    return check_end("checkconfig");
}
