/* decoder.c - from the latent to pixels: by the VAE, or by a tiny decoder where there is one. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/decoder.h"

#include "pipeline/config.h"
#include "pipeline/find.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART "vae_tiny"

static bool check_fit(const struct dk_model *model, const char *path, struct dk_error *err)
{
    long long found = tiny_latent_channels(model->tiny), wanted = model->latent_channels;
    if (found != wanted)
        return dk_fail(err, DK_ERROR_MODEL,
                       "%s: decodes latents of %lld channels%s, the model has %lld; give the tiny "
                       "decoder of this kind of model",
                       path, found, found == 16 ? ", as TAESD3 and TAEF1 do" : "", wanted);
    if (tiny_factor(model->tiny) != vae_factor(model->vae))
        return dk_fail(err, DK_ERROR_MODEL,
                       "%s: enlarges latents %d times, the model's VAE %d times; give the tiny "
                       "decoder of this kind of model",
                       path, tiny_factor(model->tiny), vae_factor(model->vae));
    return true;
}

static bool open_at(struct dk_model *model, const char *path, struct dk_error *err)
{
    struct config_tiny config = {.scaling_factor = 1};
    struct weights *all = weights_open(path, err);
    if (!all) return false;
    if (!model_add_part(model, PART, all)) {
        weights_close(all);
        return dk_fail(err, DK_ERROR_MODEL, "%s: one part more than a model has", path);
    }
    struct weights *weights = weights_part(all, PART);
    if (!weights)
        return dk_fail(err, DK_ERROR_MODEL,
                       "%s: holds %s, expected a tiny decoder (TAESD or an AutoencoderTiny)", path,
                       weights_kind_name(weights_kind(all)));
    char *beside = find_config(path);
    bool good = !beside || config_read_tiny(beside, &config, err);
    free(beside);
    if (good) model->tiny = tiny_load(&config.net, weights, err);
    model->tiny_scaling_factor = config.scaling_factor;
    model->tiny_shift = config.shift_factor;
    return model->tiny && check_fit(model, path, err);
}

static bool check_finite(struct dk_model *model, struct dk_error *err)
{
    const struct weights *part = model->parts[model->n_parts - 1];
    struct ops o = model_ops(model, NULL, err);
    for (size_t i = 0; i < weights_count(part); i++)
        if (!op_weight_finite(&o, weights_at(part, i)))
            return dk_fail(err, DK_ERROR_NUMERIC, "%s: tensor %s holds NaN or infinity",
                           weights_path_of(part, weights_at(part, i)), weights_at(part, i)->name);
    return true;
}

/*
 * The model's own, which most pictures do without: a damaged one is left out with a warning, and
 * refused only where it is asked for.
 */
static bool open_own(struct dk_model *model, const char *path, struct dk_error *err)
{
    struct dk_error why = {.code = DK_OK};
    if (open_at(model, path, &why) && check_finite(model, &why)) return true;
    if (why.code == DK_ERROR_MEMORY) return dk_fail(err, why.code, "%s", why.message);
    tiny_free(model->tiny);
    model->tiny = NULL;
    if (strcmp(model->part_names[model->n_parts - 1], PART) == 0)
        weights_close(model->parts[--model->n_parts]);
    model->tiny_fault = model_own_string(model, why.message, err);
    if (!model->tiny_fault) return false;
    char sentence[sizeof why.message + 64];
    snprintf(sentence, sizeof sentence, "%s; going on without the tiny decoder", why.message);
    if (model->warn) model->warn(model->warn_user, sentence);
    return true;
}

bool decoder_open(struct dk_model *model, const struct dk_model_options *options,
                  struct dk_error *err)
{
    if (options->taesd_preview_only)
        model->default_decoder = "vae";
    else if (options->taesd)
        model->default_decoder = "tiny";
    if (options->taesd) return open_at(model, options->taesd, err);
    char *own = path_join(model->path, PART);
    if (!own) return dk_fail(err, DK_ERROR_MEMORY, "%s: out of memory", model->path);
    bool good = model->checkpoint || !path_exists(own) || open_own(model, own, err);
    free(own);
    return good;
}

bool decoder_is_tiny(const struct dk_settings *settings)
{
    return settings->decoder && strcmp(settings->decoder, "tiny") == 0;
}

bool decoder_resolve(const struct dk_model *model, struct dk_settings *settings,
                     struct dk_error *err)
{
    /* only --taesd-preview-only makes vae the default in so many words */
    bool previews_only = model->default_decoder && strcmp(model->default_decoder, "vae") == 0;
    if (!settings->decoder) settings->decoder = model->default_decoder;
    if (decoder_is_tiny(settings) && previews_only)
        return dk_fail(err, DK_ERROR_ARGUMENT,
                       "decoder: tiny was asked for, and the tiny decoder for previews only; leave "
                       "out one of --decoder tiny and --taesd-preview-only");
    if (settings->decoder && !decoder_is_tiny(settings) && strcmp(settings->decoder, "vae") != 0)
        return dk_fail(err, DK_ERROR_ARGUMENT, "decoder: \"%s\" is unknown; give vae or tiny",
                       settings->decoder);
    if (decoder_is_tiny(settings) && model->tiny_fault)
        return dk_fail(err, DK_ERROR_MODEL, "%s; give another with --taesd, or use vae",
                       model->tiny_fault);
    if (decoder_is_tiny(settings) && !model->tiny)
        return dk_fail(err, DK_ERROR_ARGUMENT,
                       "decoder: %s has no tiny decoder; give one with --taesd, or use vae",
                       model->path);
    return true;
}

struct tensor decoder_run(const struct dk_model *model, struct ops *o, const float *latent,
                          int64_t h, int64_t w, struct decoder_way way)
{
    double scale = way.tiny ? model->tiny_scaling_factor : model->scaling_factor;
    double shift = way.tiny ? model->tiny_shift : model->shift;
    struct tensor z = tensor_new4(o->arena, 1, h, w, model->latent_channels, o->err);
    for (int64_t i = 0; z.rank > 0 && !ops_dry(o) && i < tensor_count(z); i++)
        z.data[i] = (float)((double)latent[i] / scale + shift);
    int f = vae_factor(model->vae);
    if (way.tiny) return tiny_decode(model->tiny, o, z);
    if (way.tiling) return vae_decode_tiled(model->vae, o, z, VAE_TILE_PX / f, VAE_OVERLAP_PX / f);
    return vae_decode_within(model->vae, o, z, way.limit_bytes ? way.limit_bytes : SIZE_MAX);
}
