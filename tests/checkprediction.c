/* checkprediction.c - what a model predicts: who says so, and the trial where nobody does. */
/* SPDX-License-Identifier: MIT */
#include "check.h"
#include "files/header.h"
#include "files/json.h"
#include "pipeline/model.h"
#include "scratch.h"

#include <string.h>
#include <unistd.h>

#define GOLDEN "tests/golden/models/"
#define WIDTH  1024 /* of the text encoder and the context, as in SD 2 */
#define BASE   64   /* channels of the U-Net: one head of 64 */
#define TIME   (4 * BASE)

#define MAX_TENSORS 256

/* ---- a file in the shape of SD 2 ------------------------------------------------------------- */

/*
 * A U-Net of one level and OpenCLIP's tower of two layers, in the spelling of a CompVis checkpoint.
 * All weights are zero, so that what comes out of the U-Net is the bias of its last convolution.
 */
struct shaped {
    struct header_tensor tensors[MAX_TENSORS];
    size_t n;
    char names[MAX_TENSORS][192];
};

static void add(struct shaped *s, const char *prefix, const char *name, int64_t a, int64_t b,
                int64_t c)
{
    if (s->n == MAX_TENSORS) exit(1);
    struct header_tensor *t = &s->tensors[s->n];
    snprintf(s->names[s->n], sizeof s->names[0], "%s%s", prefix, name);
    *t =
        (struct header_tensor){.name = s->names[s->n++], .dtype = DTYPE_F32, .rank = 1, .dim = {a}};
    size_t values = (size_t)a;
    if (b) t->rank = 2, t->dim[1] = b, values *= (size_t)b;
    if (c) t->rank = 4, t->dim[2] = t->dim[3] = c, values *= (size_t)(c * c);
    if (values >= WIDTH * BASE) t->dtype = DTYPE_F8_E4M3; /* to be small */
    t->size_bytes = values * (t->dtype == DTYPE_F32 ? 4 : 1);
}

/* NAME.weight [out, in, side, side] and NAME.bias [out]; in 0: a norm. */
static void layer(struct shaped *s, const char *prefix, const char *name, int64_t out,
                  int64_t in_width, int64_t side)
{
    char full[96];
    snprintf(full, sizeof full, "%s.weight", name);
    add(s, prefix, full, out, in_width, side);
    snprintf(full, sizeof full, "%s.bias", name);
    add(s, prefix, full, out, 0, 0);
}

static void matrix(struct shaped *s, const char *prefix, const char *name, int64_t out,
                   int64_t in_width)
{
    char full[96];
    snprintf(full, sizeof full, "%s.weight", name);
    add(s, prefix, full, out, in_width, 0);
}

static void resnet(struct shaped *s, const char *prefix, int64_t channels)
{
    layer(s, prefix, "in_layers.0", channels, 0, 0);
    layer(s, prefix, "in_layers.2", BASE, channels, 3);
    layer(s, prefix, "emb_layers.1", BASE, TIME, 0);
    layer(s, prefix, "out_layers.0", BASE, 0, 0);
    layer(s, prefix, "out_layers.3", BASE, BASE, 3);
    if (channels != BASE) layer(s, prefix, "skip_connection", BASE, channels, 1);
}

static void transformer(struct shaped *s, const char *prefix)
{
    layer(s, prefix, "norm", BASE, 0, 0);
    layer(s, prefix, "proj_in", BASE, BASE, 0);
    for (int i = 1; i <= 2; i++) {
        char name[64];
        snprintf(name, sizeof name, "transformer_blocks.0.norm%d", i);
        layer(s, prefix, name, BASE, 0, 0);
        for (int k = 0; k < 3; k++) {
            snprintf(name, sizeof name, "transformer_blocks.0.attn%d.to_%c", i, "qkv"[k]);
            matrix(s, prefix, name, BASE, i == 2 && k > 0 ? WIDTH : BASE);
        }
        snprintf(name, sizeof name, "transformer_blocks.0.attn%d.to_out.0", i);
        layer(s, prefix, name, BASE, BASE, 0);
    }
    layer(s, prefix, "transformer_blocks.0.norm3", BASE, 0, 0);
    layer(s, prefix, "transformer_blocks.0.ff.net.0.proj", 8 * BASE, BASE, 0);
    layer(s, prefix, "transformer_blocks.0.ff.net.2", BASE, 4 * BASE, 0);
    layer(s, prefix, "proj_out", BASE, BASE, 0);
}

#define UNET "model.diffusion_model."
#define TEXT "cond_stage_model.model."

static void shape_unet(struct shaped *s, int64_t in_channels)
{
    layer(s, UNET, "time_embed.0", TIME, BASE, 0);
    layer(s, UNET, "time_embed.2", TIME, TIME, 0);
    layer(s, UNET, "input_blocks.0.0", BASE, in_channels, 3);
    resnet(s, UNET "input_blocks.1.0.", BASE);
    transformer(s, UNET "input_blocks.1.1.");
    resnet(s, UNET "middle_block.0.", BASE);
    transformer(s, UNET "middle_block.1.");
    resnet(s, UNET "middle_block.2.", BASE);
    for (int i = 0; i < 2; i++) {
        resnet(s, i ? UNET "output_blocks.1.0." : UNET "output_blocks.0.0.", 2 * BASE);
        transformer(s, i ? UNET "output_blocks.1.1." : UNET "output_blocks.0.1.");
    }
    layer(s, UNET, "out.0", BASE, 0, 0);
    layer(s, UNET, "out.2", 4, BASE, 3);
}

static void shape_text(struct shaped *s)
{
    matrix(s, TEXT, "token_embedding", 1000, WIDTH);
    add(s, TEXT, "positional_embedding", 77, WIDTH, 0);
    layer(s, TEXT, "ln_final", WIDTH, 0, 0);
    for (int i = 0; i < 2; i++) { /* the last one is left out, as SD 2 does */
        const char *prefix = i ? TEXT "transformer.resblocks.1." : TEXT "transformer.resblocks.0.";
        layer(s, prefix, "ln_1", WIDTH, 0, 0);
        layer(s, prefix, "ln_2", WIDTH, 0, 0);
        add(s, prefix, "attn.in_proj_weight", 3 * WIDTH, WIDTH, 0);
        add(s, prefix, "attn.in_proj_bias", 3 * WIDTH, 0, 0);
        layer(s, prefix, "attn.out_proj", WIDTH, WIDTH, 0);
        layer(s, prefix, "mlp.c_fc", WIDTH, WIDTH, 0);
        layer(s, prefix, "mlp.c_proj", WIDTH, WIDTH, 0);
    }
}

/* marker: names of tensors of one value; metadata: a key and a text. */
static struct path put_shaped(const char *file, int64_t in_channels, float bias,
                              const char *const *markers, const struct dk_text *metadata)
{
    static struct shaped s;
    struct header header;
    struct dk_error err = {0};
    s.n = 0;
    shape_unet(&s, in_channels);
    shape_text(&s);
    for (; markers && *markers; markers++) add(&s, "", *markers, 1, 0, 0);
    struct path path = in(file);
    FILE *f = fopen(path.s, "wb");
    if (!f || !header_safetensors(&header, s.tensors, s.n, metadata, metadata ? 1 : 0, &err))
        exit(1);
    size_t at = header.n_bytes, end = header.n_bytes;
    for (size_t i = 0; i < s.n; i++) {
        if (strcmp(s.names[i], UNET "out.2.bias") == 0) at = end;
        end += s.tensors[i].size_bytes;
    }
    const float biases[4] = {bias, bias, bias, bias};
    bool ok = fwrite(header.bytes, header.n_bytes, 1, f) == 1 &&
              fseek(f, (long)at, SEEK_SET) == 0 && fwrite(biases, sizeof biases, 1, f) == 1 &&
              fflush(f) == 0 && ftruncate(fileno(f), (off_t)end) == 0;
    if (fclose(f) != 0 || !ok) exit(1);
    free(header.bytes);
    return path;
}

/* ---- opening --------------------------------------------------------------------------------- */

static struct dk_model *opened(const char *path, const struct dk_model_options *options)
{
    struct dk_error err = {0};
    struct dk_model *model = dk_model_open(path, options, &err);
    CHECK(model, "%s: %s", path, err.message);
    return model;
}

/* The shapes lack a VAE. */
static struct dk_model_options with_vae(const char *prediction)
{
    return (struct dk_model_options){.vae = GOLDEN "tiny-sd2/vae", .prediction = prediction};
}

static void predicts(const struct dk_model *model, const char *prediction, const char *source,
                     const char *what)
{
    struct dk_model_info info;
    dk_model_get_info(model, &info);
    CHECK(strcmp(info.prediction, prediction) == 0, "%s: %s", what, info.prediction);
    CHECK(strcmp(info.prediction_source, source) == 0, "%s: %s", what, info.prediction_source);
    CHECK(info.prediction_known == (strcmp(source, "not tried yet") != 0), "%s", what);
}

static void check_file(const char *path, const char *option, const char *prediction,
                       const char *source, const char *what)
{
    struct dk_model_options options = with_vae(option);
    struct dk_model *model = opened(path, &options);
    if (!model) return;
    struct dk_error err = {0};
    bool is_trial = strcmp(source, "trial of the U-Net") == 0;
    predicts(model, is_trial ? "epsilon" : prediction, is_trial ? "not tried yet" : source, what);
    CHECK(dk_model_find_prediction(model, &err), "%s: %s", what, err.message);
    predicts(model, prediction, source, what);
    dk_model_close(model);
}

/* What comes out lies bias - 0.5 above what went in. */
static void check_trial(void)
{
    struct path v = put_shaped("v.safetensors", 4, -0.6f, NULL, NULL);
    struct path eps = put_shaped("eps.safetensors", 4, -0.4f, NULL, NULL);
    struct path inpaint = put_shaped("inpaint.safetensors", 9, -0.6f, NULL, NULL);
    check_file(v.s, NULL, "v_prediction", "trial of the U-Net", "1.1 below");
    check_file(eps.s, NULL, "epsilon", "trial of the U-Net", "0.9 below");
    check_file(inpaint.s, NULL, "v_prediction", "trial of the U-Net", "nine channels");
    check_file(v.s, "epsilon", "epsilon", "option", "epsilon is asked for");
    check_file(eps.s, "sample", "sample", "option", "sample is asked for");
    struct dk_model_options options = with_vae(NULL);
    struct dk_model *model = opened(v.s, &options);
    if (!model) return;
    struct dk_settings settings;
    struct dk_error err = {0};
    dk_settings_default(&settings);
    CHECK(strcmp(model->family->name, "sd2") == 0, "family %s", model->family->name);
    CHECK(dk_resolve(model, &settings, NULL, &err), "%s", err.message);
    predicts(model, "v_prediction", "trial of the U-Net", "settings are resolved");
    dk_model_close(model);
}

static void keep_warning(void *user, const char *sentence)
{
    snprintf(user, 500, "%s", sentence);
}

/* Neither prediction answers NaN or infinity: that is told, and epsilon no more than assumed. */
static void check_no_answer(void)
{
    const float biases[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 3; i++) {
        char warning[500] = "";
        struct path path = put_shaped("nan.safetensors", 4, biases[i], NULL, NULL);
        struct dk_model_options options = with_vae(NULL);
        options.tokenizer = GOLDEN "tiny-sd2/tokenizer";
        options.warn = keep_warning;
        options.user = warning;
        struct dk_model *model = opened(path.s, &options);
        struct dk_error err = {0};
        if (!model) return;
        CHECK(dk_model_find_prediction(model, &err), "%s", err.message);
        predicts(model, "epsilon", "assumed", "a U-Net that answers no number");
        CHECK(strstr(warning, "nan.safetensors: cannot tell") && strstr(warning, "--prediction"),
              "%g: %s", (double)biases[i], warning);
        dk_model_close(model);
    }
}

static void check_said(void)
{
    static const char *const markers[] = {"v_pred", "ztsnr", NULL};
    char key[] = "modelspec.prediction_type", v[] = "v", eps[] = "epsilon", other[] = "flow";
    struct dk_text says_v = {key, v}, says_eps = {key, eps}, says_other = {key, other};
    char marker[] = "v_pred", yes[] = "True", no[] = "false";
    struct dk_text says_yes = {marker, yes}, says_no = {marker, no};
    check_file(put_shaped("a.safetensors", 4, -0.4f, markers, NULL).s, NULL, "v_prediction",
               "marker tensor", "a marker");
    check_file(put_shaped("a.safetensors", 4, -0.4f, NULL, &says_yes).s, NULL, "v_prediction",
               "marker tensor", "a marker's name among the metadata");
    check_file(put_shaped("a.safetensors", 4, -0.4f, NULL, &says_no).s, NULL, "epsilon",
               "trial of the U-Net", "the same that says no");
    check_file(put_shaped("a.safetensors", 4, -0.6f, NULL, &says_eps).s, NULL, "epsilon",
               "metadata", "metadata say epsilon");
    check_file(put_shaped("a.safetensors", 4, -0.4f, NULL, &says_v).s, NULL, "v_prediction",
               "metadata", "metadata say v");
    check_file(put_shaped("a.safetensors", 4, -0.6f, NULL, &says_other).s, NULL, "v_prediction",
               "trial of the U-Net", "metadata say what is unknown");
    struct path file = put_shaped("beside.safetensors", 4, -0.6f, NULL, NULL);
    static const char beside[] =
        "{\"unet\":{\"attention_head_dim\":1,\"block_out_channels\":[64],\"layers_per_block\":1,"
        "\"down_block_types\":[\"CrossAttnDownBlock2D\"],\"up_block_types\":"
        "[\"CrossAttnUpBlock2D\"]},\"scheduler\":{\"prediction_type\":\"epsilon\"}}";
    FILE *f = fopen(in("beside.json").s, "wb");
    if (!f || fputs(beside, f) < 0 || fclose(f) != 0) exit(1);
    check_file(file.s, NULL, "epsilon", "scheduler config", "a config beside the file");
}

/* A U-Net given beside the model: its own marker counts, not the model's config. */
static void check_given_unet(void)
{
    static const char *const markers[] = {"v_pred", NULL};
    struct path base = put_shaped("base.safetensors", 4, -0.4f, NULL, NULL);
    struct path other = put_shaped("other.safetensors", 4, -0.4f, markers, NULL);
    struct dk_model_options options = with_vae(NULL);
    options.unet = other.s;
    struct dk_model *model = opened(base.s, &options);
    if (model) predicts(model, "v_prediction", "marker tensor", "another U-Net");
    dk_model_close(model);
}

/* ---- the golden models ----------------------------------------------------------------------- */

/* A copy of a single file with entries put into its header, and of the configs beside it but the
 * scheduler's. */
static struct path copied(const char *model, const char *entries)
{
    char from[256];
    struct path to = in("copy.safetensors");
    struct dk_error err = {0};
    snprintf(from, sizeof from, GOLDEN "%s.ldm.json", model);
    json_t *beside = json_object_read(from, 1 << 20, 16, &err);
    if (!beside || json_object_del(beside, "scheduler") != 0 ||
        json_dump_file(beside, in("copy.json").s, 0) != 0)
        exit(1);
    json_decref(beside);
    snprintf(from, sizeof from, GOLDEN "%s.ldm.safetensors", model);
    FILE *f = fopen(from, "rb"), *g = fopen(to.s, "wb");
    unsigned char start[9], buffer[4096];
    if (!f || !g || fread(start, 9, 1, f) != 1) exit(1);
    size_t n_header = 0, n_more = strlen(entries), n;
    for (int i = 7; i >= 0; i--) n_header = n_header << 8 | start[i];
    n_header += n_more;
    for (int i = 0; i < 8; i++) start[i] = (unsigned char)(n_header >> 8 * i & 0xff);
    if (fwrite(start, 9, 1, g) != 1 || (n_more && fwrite(entries, n_more, 1, g) != 1)) exit(1);
    while ((n = fread(buffer, 1, sizeof buffer, f)) > 0)
        if (fwrite(buffer, 1, n, g) != n) exit(1);
    fclose(f);
    if (fclose(g) != 0) exit(1);
    return to;
}

#define V_PRED "\"v_pred\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
#define ZTSNR  "\"ztsnr\":{\"dtype\":\"F16\",\"shape\":[0],\"data_offsets\":[0,0]},"

static void check_golden(void)
{
    struct dk_model *model = opened(GOLDEN "tiny-sd2.ldm.safetensors", NULL);
    if (model) predicts(model, "v_prediction", "scheduler config", "tiny-sd2 and its configs");
    dk_model_close(model);
    model = opened(copied("tiny-sd2", "").s, NULL);
    if (model) predicts(model, "epsilon", "assumed", "tiny-sd2, of no known shape");
    dk_model_close(model);
    model = opened(copied("tiny-sd2", V_PRED).s, NULL);
    if (model) predicts(model, "v_prediction", "marker tensor", "tiny-sd2 with a marker");
    CHECK(!model || !model->scheduler.zero_terminal_snr, "zero terminal SNR out of nowhere");
    dk_model_close(model);
    model = opened(copied("tiny-sdxl", V_PRED ZTSNR).s, NULL);
    if (!model) return;
    predicts(model, "v_prediction", "marker tensor", "tiny-sdxl with both markers");
    CHECK(model->scheduler.zero_terminal_snr && model->scheduler.spacing == DK_TRAILING,
          "zero terminal SNR");
    double *timesteps, *sigmas;
    size_t n;
    struct dk_settings settings;
    struct dk_error err = {0};
    dk_settings_default(&settings);
    CHECK(dk_scheduler_plan(model, &settings, &timesteps, &sigmas, &n, &err), "%s", err.message);
    if (err.code == DK_OK) {
        CHECK(timesteps[0] == 999 && sigmas[0] > 1000, "begins at %g, sigma %g", timesteps[0],
              sigmas[0]);
        dk_free(timesteps);
        dk_free(sigmas);
    }
    dk_model_close(model);
}

/* The marker of zero terminal SNR counts wherever v is predicted, also when the option says so. */
static void check_zero_snr(void)
{
    static const char *const options[] = {"v_prediction", "epsilon"};
    struct path file = copied("tiny-sdxl", ZTSNR);
    for (int i = 0; i < 2; i++) {
        struct dk_model *model =
            opened(file.s, &(struct dk_model_options){.prediction = options[i]});
        if (!model) continue;
        predicts(model, options[i], "option", "tiny-sdxl by the option");
        CHECK(model->scheduler.zero_terminal_snr == (i == 0), "zero terminal SNR with %s",
              options[i]);
        dk_model_close(model);
    }
}

/* The scheduler of the Turbo models and that of models for zero terminal SNR have the same spacing.
 */
static void check_turbo(void)
{
    static const struct {
        const char *more, *family;
    } cases[] = {{"", "sd-turbo"},
                 {",\"prediction_type\":\"v_prediction\"", "sd2"},
                 {",\"rescale_betas_zero_snr\":true", "sd2"}};
    struct path file = put_shaped("turbo.safetensors", 4, 0, NULL, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FILE *f = fopen(in("turbo.json").s, "wb");
        if (!f ||
            fprintf(f,
                    "{\"unet\":{\"attention_head_dim\":1,\"block_out_channels\":[64],"
                    "\"layers_per_block\":1,\"down_block_types\":[\"CrossAttnDownBlock2D\"],"
                    "\"up_block_types\":[\"CrossAttnUpBlock2D\"]},\"scheduler\":"
                    "{\"_class_name\":\"EulerDiscreteScheduler\",\"timestep_spacing\":"
                    "\"trailing\"%s}}",
                    cases[i].more) < 0 ||
            fclose(f) != 0)
            exit(1);
        struct dk_model_options options = with_vae(NULL);
        struct dk_model *model = opened(file.s, &options);
        if (model)
            CHECK(strcmp(model->family->name, cases[i].family) == 0, "%s: %s", cases[i].more,
                  model->family->name);
        dk_model_close(model);
    }
}

int main(void)
{
    if (!scratch_open("prediction")) return 1;
    check_trial();
    check_no_answer();
    check_said();
    check_given_unet();
    check_golden();
    check_zero_snr();
    check_turbo();
    if (!scratch_close()) return 1;
    return check_end("prediction");
}
