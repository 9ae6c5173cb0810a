/* model.h - an opened model: its networks, its text encoders, its numbers. */
/* SPDX-License-Identifier: MIT */
#ifndef PIPELINE_MODEL_H
#define PIPELINE_MODEL_H

#include "nets/tiny.h"
#include "nets/unet.h"
#include "nets/vae.h"
#include "pipeline/family.h"
#include "pipeline/scheduler_config.h"
#include "pipeline/text.h"

#include <jansson.h>

/* By what the prediction of a model is known; see prediction.h. */
enum prediction_source {
    PREDICTION_ASSUMED,
    PREDICTION_OPTION,
    PREDICTION_CONFIG,
    PREDICTION_MARKER,
    PREDICTION_METADATA,
    PREDICTION_TRIAL,
    PREDICTION_OPEN /* a trial will tell, when it is needed */
};

struct dk_model {
    char *path;
    void (*warn)(void *user, const char *sentence); /* may be NULL */
    void *warn_user;

    json_t *beside;             /* what is written beside a single file (config.h), or NULL */
    struct weights *checkpoint; /* a single file, of which the parts are views; else NULL */
    struct weights *parts[DK_MAX_PARTS];
    const char *part_names[DK_MAX_PARTS];
    size_t n_parts;

    struct unet *unet;
    struct vae *vae;
    struct tiny *tiny; /* decodes rougher and faster: decoder.h; NULL: there is none */
    const char *tiny_fault; /* why the model's own one is left out; NULL: it is not */
    struct text_encoders text;
    struct scheduler_config scheduler;
    enum prediction_source prediction_source; /* of scheduler.prediction */
    const struct family *family;

    int64_t latent_channels;
    double scaling_factor, shift; /* latents are (z - shift) * scaling_factor */
    double tiny_scaling_factor, tiny_shift; /* the same for the tiny decoder: 1 and 0 */
    const char *default_decoder; /* of the options; NULL: nobody said, which is the VAE */
    int native_width_px, native_height_px;
    int n_steps;
    double guidance;
    bool zero_negative;
    const char *default_scheduler; /* the name rendered with when nothing is asked */

    struct kernels *kernels;
    struct pack_cache *cache;
    struct arena arena;
    int n_threads;
    size_t limit_bytes;       /* as given; 0: none was */
    size_t max_memory_bytes;  /* what of it is for work memory; 0: no limit was given */
    bool stream_weights;      /* a limit was given that work memory and the largest part exceed: memory_fit */
    bool weights_checked; /* no NaN or infinity in any weight in use */
    float *preview_map;   /* [latent_channels + 1, 3], fitted when first asked for */
    char **strings;       /* what dk_resolve handed out, freed with the model */
    size_t n_strings;
};

/* The kernels, which the caller frees, and the number of threads that the options ask for. */
bool model_choose_device(const struct dk_model_options *options, struct kernels **kernels,
                         int *n_threads, struct dk_error *err);

/* Weights that are the model's from now on; false when it has as many parts as it can. */
bool model_add_part(struct dk_model *model, const char *name, struct weights *weights);

/* Operations that record their failure in err and stop when *cancel is not 0. */
struct ops model_ops(struct dk_model *model, const volatile int *cancel, struct dk_error *err);

/* Refuses a model with NaN or infinity in its weights, naming the tensor. Looks once, then
 * remembers. */
bool model_check_weights(struct dk_model *model, struct dk_error *err);

/* Gives the pages of a large part ("text_encoder", "unet") back while another part works. */
void model_release(const struct dk_model *model, const char *part);

/* A copy of text that lives as long as the model; NULL and an error when memory is out. */
const char *model_own_string(struct dk_model *model, const char *text, struct dk_error *err);

#endif
