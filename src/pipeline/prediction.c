/* prediction.c - what a model's U-Net predicts, and who says so. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/prediction.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define SD2_CONTEXT_WIDTH 1024
#define TRIAL_CELLS       8
#define TRIAL_TOKENS      2
#define TRIAL_VALUE       0.5f
#define TRIAL_TIMESTEP    999
#define TRIAL_LIMIT       (-1.0)

static const char *const names[] = {
    [DK_PREDICTS_EPS] = "epsilon", [DK_PREDICTS_V] = "v_prediction", [DK_PREDICTS_X0] = "sample"};
#define N_NAMES (sizeof names / sizeof *names)

static const char *const sources[] = {
    [PREDICTION_ASSUMED] = "assumed",         [PREDICTION_OPTION] = "option",
    [PREDICTION_CONFIG] = "scheduler config", [PREDICTION_MARKER] = "marker tensor",
    [PREDICTION_METADATA] = "metadata",       [PREDICTION_TRIAL] = "trial of the U-Net",
    [PREDICTION_OPEN] = "not tried yet",
};

const char *prediction_name(const struct dk_model *model)
{
    return names[model->scheduler.prediction];
}

const char *prediction_source_name(const struct dk_model *model)
{
    return sources[model->prediction_source];
}

static void decide(struct dk_model *model, enum dk_prediction prediction,
                   enum prediction_source source)
{
    model->scheduler.prediction = prediction;
    model->prediction_source = source;
}

static bool take_option(struct dk_model *model, const char *option, struct dk_error *err)
{
    for (size_t i = 0; i < N_NAMES; i++) {
        if (strcmp(option, names[i]) != 0) continue;
        decide(model, (enum dk_prediction)i, PREDICTION_OPTION);
        return true;
    }
    return dk_fail(err, DK_ERROR_ARGUMENT,
                   "prediction: \"%s\" is unknown; give epsilon, v_prediction or sample", option);
}

/* ModelSpec (sai_model_spec) has "v" and "epsilon"; other programs write longer forms. */
static bool take_metadata(struct dk_model *model, const struct weights *file)
{
    static const struct {
        const char *key, *text;
        enum dk_prediction prediction;
    } table[] = {
        {"modelspec.prediction_type", "v", DK_PREDICTS_V},
        {"modelspec.prediction_type", "v_prediction", DK_PREDICTS_V},
        {"modelspec.prediction_type", "epsilon", DK_PREDICTS_EPS},
        {"ss_v_parameterization", "True", DK_PREDICTS_V},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const char *text = weights_metadata(file, table[i].key);
        if (!text || strcmp(text, table[i].text) != 0) continue;
        decide(model, table[i].prediction, PREDICTION_METADATA);
        return true;
    }
    return false;
}

/* Marker tensors are kept as "true"; others write such a key with a value, which may be no. */
static bool is_marked(const struct weights *file, const char *key)
{
    const char *text = weights_metadata(file, key);
    return text && (strcasecmp(text, "true") == 0 || strcmp(text, "1") == 0);
}

/* What a file says of itself. */
static bool take_file(struct dk_model *model, const struct weights *file)
{
    if (!file) return false;
    if (!is_marked(file, "v_pred")) return take_metadata(model, file);
    decide(model, DK_PREDICTS_V, PREDICTION_MARKER);
    return true;
}

/* Zero terminal SNR, which asks for v, and is seen only by steps that begin at the very end. */
static void take_zero_snr(struct dk_model *model, const struct weights *file)
{
    if (!file || !is_marked(file, "ztsnr")) return;
    if (model->scheduler.prediction != DK_PREDICTS_V) return;
    model->scheduler.zero_terminal_snr = true;
    if (model->scheduler.spacing == SCHEDULER_UNSET) model->scheduler.spacing = DK_TRAILING;
}

static bool is_sd2(const struct dk_model *model)
{
    return unet_context_width(model->unet) == SD2_CONTEXT_WIDTH &&
           unet_pooled_width(model->unet) == 0 && unet_guidance_width(model->unet) == 0;
}

bool prediction_find(struct dk_model *model, const char *option, bool config_says,
                     const struct weights *own, struct dk_error *err)
{
    const struct weights *file = own ? own : config_says ? NULL : model->checkpoint;
    if (option) {
        if (!take_option(model, option, err)) return false;
    } else if (!take_file(model, own)) {
        if (config_says)
            model->prediction_source = PREDICTION_CONFIG;
        else if (!take_file(model, model->checkpoint))
            model->prediction_source = is_sd2(model) ? PREDICTION_OPEN : PREDICTION_ASSUMED;
    }
    take_zero_snr(model, file);
    return true;
}

static void fill(struct tensor t, int64_t n_first, float value)
{
    int64_t width = t.rank > 0 ? t.dim[t.rank - 1] : 1;
    for (int64_t i = 0; i < tensor_count(t); i++) t.data[i] = i % width < n_first ? value : 0;
}

/* Channels beyond the latent's (an inpainting U-Net's) are zero. The mean of out - x. */
static double run_trial(const struct dk_model *model, struct ops *o)
{
    int64_t n_out = unet_out_channels(model->unet);
    struct tensor context =
        tensor_new3(o->arena, 1, TRIAL_TOKENS, unet_context_width(model->unet), o->err);
    struct tensor x =
        tensor_new4(o->arena, 1, TRIAL_CELLS, TRIAL_CELLS, unet_in_channels(model->unet), o->err);
    fill(context, INT64_MAX, TRIAL_VALUE);
    fill(x, n_out, TRIAL_VALUE);
    const struct unet_conditioning *c =
        unet_condition(model->unet, o, context, (struct tensor){0}, NULL, 0);
    struct tensor out = unet_forward(model->unet, o, x, TRIAL_TIMESTEP, c);
    double sum = 0;
    for (int64_t i = 0; i < tensor_count(out); i++) sum += (double)(out.data[i] - TRIAL_VALUE);
    return out.rank > 0 ? sum / (double)tensor_count(out) : 0;
}

static void warn_of_trial(const struct dk_model *model)
{
    char sentence[1024];
    snprintf(sentence, sizeof sentence,
             "%.800s: cannot tell what the U-Net predicts: its trial gave NaN or infinity; epsilon "
             "is assumed, --prediction says another",
             model->path);
    if (model->warn) model->warn(model->warn_user, sentence);
}

bool prediction_settle(struct dk_model *model, struct dk_error *err)
{
    if (model->prediction_source != PREDICTION_OPEN) return true;
    struct dk_error own = {.code = DK_OK};
    size_t mark = arena_mark(&model->arena);
    struct ops o = model_ops(model, NULL, &own);
    o.cache = NULL; /* its room is for the sizes of the pictures */
    double mean = run_trial(model, &o);
    arena_reset(&model->arena, mark);
    if (own.code != DK_OK) return dk_fail(err, own.code, "%s", own.message);
    if (!isfinite(mean)) { /* NaN is not below the limit, but tells nothing */
        warn_of_trial(model);
        decide(model, DK_PREDICTS_EPS, PREDICTION_ASSUMED);
        return true;
    }
    decide(model, mean < TRIAL_LIMIT ? DK_PREDICTS_V : DK_PREDICTS_EPS, PREDICTION_TRIAL);
    return true;
}

bool dk_model_find_prediction(struct dk_model *model, struct dk_error *err)
{
    return prediction_settle(model, err);
}
