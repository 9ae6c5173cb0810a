/* config.h - what a model says about its networks: config.json, or the tensors alone. */
/* SPDX-License-Identifier: MIT */
#ifndef PIPELINE_CONFIG_H
#define PIPELINE_CONFIG_H

/*
 * The keys and their defaults are those of diffusers and transformers. Values are checked for type
 * and range; a setting that would make another network of it than is computed here is refused by
 * name. Keys that the tensors answer (widths, channels) are read only where the pipeline wants to
 * compare.
 *
 * A single file has no config.json: config_guess_* tell from names and shapes what can be told, and
 * the rest by what the released models of that shape have.
 */

#include "nets/clip.h"
#include "nets/tiny.h"
#include "nets/unet.h"
#include "nets/vae.h"

#include <jansson.h>

struct config_unet {
    struct unet_config net;
    int sample_width, sample_height; /* latent cells of the native size; 0: not said */
};

struct config_vae {
    struct vae_config net;
    double scaling_factor, shift_factor; /* latents are (z - shift) * scaling */
    bool force_upcast;                   /* overflows f16: without meaning here, for information */
    int sample_size;                     /* pixels; 0: not said */
};

struct config_tiny {
    struct tiny_config net;
    double scaling_factor, shift_factor; /* 1 and 0: the latents are taken as the U-Net has them */
};

struct config_clip {
    struct clip_config net;
    int model_max_length; /* max_position_embeddings */
};

/* Each fills *out from a config.json. False on failure. */
bool config_read_unet(const char *path, struct config_unet *out, struct dk_error *err);
bool config_read_vae(const char *path, struct config_vae *out, struct dk_error *err);
bool config_read_tiny(const char *path, struct config_tiny *out, struct dk_error *err);
bool config_read_clip(const char *path, struct config_clip *out, struct dk_error *err);

/* The same from an object; subject starts the messages. */
bool config_parse_unet(const json_t *object, const char *subject, struct config_unet *out,
                       struct dk_error *err);
bool config_parse_vae(const json_t *object, const char *subject, struct config_vae *out,
                      struct dk_error *err);
bool config_parse_clip(const json_t *object, const char *subject, struct config_clip *out,
                       struct dk_error *err);

/*
 * A single file may have FILE.json in place of its ending beside it, with what tensors cannot tell:
 * {"unet": {...}, "vae": {...}, "text": [{...}, ...], "scheduler": {...}}, each as in a
 * config.json. *out is NULL if there is none, or one of another kind; freed with json_decref. False
 * on failure.
 */
bool config_read_beside(const char *path, json_t **out, struct dk_error *err);
/* The same from what dk_convert put into the file: "unet/config.json" and so on as metadata. */
bool config_read_metadata(const struct weights *weights, json_t **out, struct dk_error *err);
/* Its object for a part ("unet", "text_encoder_2", "scheduler"); NULL: there is none. */
const json_t *config_beside_part(const json_t *beside, const char *part);

/*
 * From the tensors alone. pooled_width: what the second text encoder gives, 0 when there is one
 * encoder. SD 2 leaves out OpenCLIP's last layer; the weights come without it from any file.
 */
bool config_guess_unet(const struct weights *weights, int64_t pooled_width, struct config_unet *out,
                       struct dk_error *err);
bool config_guess_vae(const struct weights *weights, bool sdxl, struct config_vae *out,
                      struct dk_error *err);
bool config_guess_clip(const struct weights *weights, struct config_clip *out,
                       struct dk_error *err);

#endif
