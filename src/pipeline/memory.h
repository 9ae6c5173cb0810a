/* memory.h - how much work memory a run needs, told before it starts. */
/* SPDX-License-Identifier: MIT */
#ifndef PIPELINE_MEMORY_H
#define PIPELINE_MEMORY_H

#include "pipeline/model.h"

/* Transformed weights kept between calls; of a limit, one part in so many at most goes to them. */
#define MEMORY_CACHE_BYTES ((size_t)512 << 20)
#define MEMORY_CACHE_SHARE 8

/* Pictures made together: n of them, with both halves of guidance or one, n_chunks of text each. */
struct memory_request {
    size_t n, n_chunks;
    bool guided, vae_tiling, tiny_decoder;
    bool guided_in_part; /* some calls ask for the prompts alone */
    int width_px, height_px;
    struct unet_saving saving; /* what calls leave for later ones */
};
struct memory_request memory_request_of(const struct dk_settings *job, size_t n, size_t n_chunks,
                                        bool guided);

/*
 * Peak of the arena over text, U-Net and decode, weights and their cache not counted: everything is
 * laid out in a dry arena. SIZE_MAX when it cannot be addressed.
 */
size_t memory_work_bytes(const struct dk_model *model, const struct memory_request *request);

/*
 * Lowers request->n until it fits into the model's limit. False (DK_ERROR_MEMORY, with the bytes
 * needed) when not even one picture does.
 */
bool memory_fit(struct dk_model *model, struct memory_request *request, struct dk_error *err);

/*
 * How far the decoder may fill the arena (decoder_way); 0: any. Where no limit was given, decoding
 * still works in bands of rows (vae_chain.h) rather than take more memory than the U-Net did or
 * than this, whichever is more: an eighth of the machine's, but not below 1 GB. The picture is the
 * same.
 */
#define MEMORY_DECODE_MIN   ((size_t)1 << 30)
#define MEMORY_DECODE_SHARE 8
size_t memory_decode_limit(const struct dk_model *model, const struct memory_request *request);

#endif
