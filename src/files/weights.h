/* weights.h - named tensors of a model, whatever container they come from. */
/* SPDX-License-Identifier: MIT */
#ifndef FILES_WEIGHTS_H
#define FILES_WEIGHTS_H

/*
 *   safetensors file ─┐
 *   shards + index   ─┼─> struct weights: name -> struct weight (mapped, never copied)
 *   gguf, ckpt       ─┘
 *
 * Names are the diffusers ones. Everything about every tensor (dtype, shape, offsets, product,
 * overlap) is checked against the file while opening, so that whoever holds a struct weight may
 * read all of it.
 */

#include "base/error.h"
#include "base/tensor.h"

struct weights;

/* path: one file, or a folder holding one file, shards with an index, or an fp16 variant. NULL on
 * failure. */
struct weights *weights_open(const char *path, struct dk_error *err);
/* The same for a CLIP of which both towers are wanted: weights_open leaves the vision tower's tensors
 * out. They are named as in transformers ("vision_model.", "visual_projection."). */
struct weights *weights_open_clip(const char *path, struct dk_error *err);
void weights_close(struct weights *weights);

size_t weights_count(const struct weights *weights);
const struct weight *weights_at(const struct weights *weights, size_t index);
const struct weight *weights_find(const struct weights *weights, const char *name);
/* The path it was opened with, for messages. */
const char *weights_path(const struct weights *weights);
/* The file that one of its tensors lies in, which may be a shard in the folder; likewise. */
const char *weights_path_of(const struct weights *weights, const struct weight *weight);

/* What the names say the tensors are. */
enum weights_kind {
    WEIGHTS_UNKNOWN,
    WEIGHTS_CHECKPOINT, /* several networks; names are "unet.conv_in.weight" and so on: see
                           weights_part */
    WEIGHTS_UNET,
    WEIGHTS_VAE,
    WEIGHTS_TINY, /* a tiny autoencoder: nets/tiny.h */
    WEIGHTS_TEXT_ENCODER,
    WEIGHTS_LORA,
    WEIGHTS_CONTROLNET,
    WEIGHTS_EMBEDDING, /* textual inversion */
    N_WEIGHTS_KINDS
};
enum weights_kind weights_kind(const struct weights *weights);
const char *weights_kind_name(enum weights_kind kind); /* "a LoRA" and the like, for messages */

/*
 * One network of a checkpoint as weights of its own, names without the prefix: part is "unet",
 * "vae", "vae_tiny", "text_encoder" or "text_encoder_2". NULL when there is none. A file that is that network
 * alone is its own part, so -m checkpoint and --vae file need no distinction. An SD 2 text encoder
 * comes without OpenCLIP's last layer, which SD 2 leaves out. The answer lives as long as weights.
 */
struct weights *weights_part(struct weights *weights, const char *part);

/* Text the file carries beside the tensors ("modelspec.title"), in file order. NULL where there is
 * none. */
size_t weights_metadata_count(const struct weights *weights);
const struct dk_text *weights_metadata_at(const struct weights *weights, size_t index);
const char *weights_metadata(const struct weights *weights, const char *key);

/* Calls each for every tensor that is known not to be needed (EMA copies, training buffers);
 * returns how many. */
size_t weights_ignored(const struct weights *weights, void (*each)(void *user, const char *name),
                       void *user);

/* Facts of a dtype: its name, how many values a block holds (1 for plain types) and its bytes. */
const char *weights_dtype_name(enum dtype dtype);
int weights_dtype_block(enum dtype dtype);
int weights_dtype_bytes(enum dtype dtype);
/* Values and bytes of one tensor. */
size_t weights_value_count(const struct weight *weight);
size_t weights_byte_count(const struct weight *weight);
/* Bytes of all tensors together. */
size_t weights_total_bytes(const struct weights *weights);

/*
 * Finding tensors while a network is built. Names are printf-formatted after prefix. The first
 * failure stays in err, later calls return empty weights, so a loader reads as a list of what it
 * needs and is checked once at the end. Every tensor handed out is remembered: weights_unused()
 * tells what a file has beyond that.
 */
struct weights_reader {
    struct weights *weights;
    const char *prefix; /* "" or "text_model." and the like */
    struct dk_error *err;
};
/*
 * Shape as up to 4 dims, -1 matches any size, ends at the first 0. A wrong or missing one is an
 * error naming it. Ones at the end do not count: a 1x1 convolution is found as a linear layer and
 * the other way round, in the shape asked for.
 */
struct weight weights_need(struct weights_reader *r, const int64_t shape[4], const char *format,
                           ...) __attribute__((format(printf, 3, 4)));
/* As weights_need, but an absent tensor gives an empty weight and is no error (a wrong shape still
 * is). */
struct weight weights_want(struct weights_reader *r, const int64_t shape[4], const char *format,
                           ...) __attribute__((format(printf, 3, 4)));
bool weights_has(const struct weights_reader *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * Lets the system take back the memory of these tensors while they are not in use; whoever touches
 * one later reads it from the file again. Tensors that are not mapped stay.
 */
void weights_release(const struct weights *weights);

/* Calls each for every tensor nobody has asked for. */
size_t weights_unused(const struct weights *weights, void (*each)(void *user, const char *name),
                      void *user);

#endif
