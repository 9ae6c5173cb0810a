/* memory.c - how much work memory a run needs, told before it starts. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/memory.h"

#include "base/system.h"
#include "pipeline/decoder.h"
#include "pipeline/passes.h"

/* As text.c calls the encoders, one after the other. */
static void lay_out_text(const struct dk_model *model, struct ops *o, size_t n_chunks)
{
    for (int i = 0; i < model->text.n_items; i++) {
        size_t mark = arena_mark(o->arena);
        struct clip_output out;
        clip_forward(model->text.items[i].clip, o, NULL, (int64_t)n_chunks,
                     text_tokens(&model->text), 0, true, i == 1, &out);
        arena_reset(o->arena, mark);
    }
}

struct memory_request memory_request_of(const struct dk_settings *job, size_t n, size_t n_chunks,
                                        bool guided)
{
    return (struct memory_request){
        .n = n,
        .n_chunks = n_chunks,
        .guided = guided,
        .guided_in_part = guided && passes_guided_in_part(job),
        .vae_tiling = job->vae_tiling,
        .tiny_decoder = decoder_is_tiny(job),
        .width_px = job->width_px,
        .height_px = job->height_px,
        .saving = passes_saving(job),
    };
}

/* One call of each kind: the first computes all, later ones take what they can. */
static void lay_out_calls(const struct dk_model *model, struct ops *o,
                          const struct memory_request *r, const struct unet_conditioning *c)
{
    int f = vae_factor(model->vae);
    int64_t n = (int64_t)r->n, h = r->height_px / f, w = r->width_px / f;
    struct unet_reuse *reuse = NULL;
    if (passes_save(&r->saving))
        reuse = unet_reuse_new(model->unet, o, &r->saving, r->guided ? 2 * n : n, h, w);
    for (int kind = 0; kind < (reuse ? 4 : 1); kind++) {
        size_t mark = arena_mark(o->arena);
        struct tensor x = tensor_new4(o->arena, n, h, w, unet_in_channels(model->unet), o->err);
        unet_forward_reusing(model->unet, o, x, 0.0f, c, reuse, kind & 1, kind & 2);
        arena_reset(o->arena, mark);
    }
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* As render.c goes through a group, up to the decoder. */
static void lay_out_latents(const struct dk_model *model, struct ops *o,
                            const struct memory_request *r)
{
    int f = vae_factor(model->vae);
    int64_t n = (int64_t)r->n, rows = r->guided ? 2 * n : n, h = r->height_px / f;
    int64_t w = r->width_px / f, in = unet_in_channels(model->unet);
    int64_t tokens = (int64_t)r->n_chunks * text_tokens(&model->text);
    int64_t pooled_width = unet_pooled_width(model->unet);
    tensor_new4(o->arena, n, h, w, model->latent_channels, o->err); /* the latents */
    struct tensor context = tensor_new3(o->arena, rows, tokens, text_width(&model->text), o->err);
    struct tensor pooled = {0};
    if (pooled_width) pooled = tensor_new(o->arena, 2, (int64_t[]){rows, pooled_width}, o->err);
    lay_out_text(model, o, (size_t)rows * r->n_chunks);
    static const float ids[1]; /* not read */
    const struct unet_conditioning *c = unet_condition(model->unet, o, context, pooled, ids, 1.0f);
    if (r->guided_in_part) {
        context.dim[0] = pooled.dim[0] = n;
        unet_condition(model->unet, o, context, pooled, ids, 1.0f);
    }
    size_t mark = arena_mark(o->arena);
    if (in > model->latent_channels && vae_has_encoder(model->vae))
        vae_encode(model->vae, o, tensor_new4(o->arena, 1, h * f, w * f, 3, o->err));
    arena_reset(o->arena, mark);
    lay_out_calls(model, o, r, c);
    arena_reset(o->arena, mark);
}

static void lay_out_decode(const struct dk_model *model, struct ops *o,
                           const struct memory_request *r, size_t limit_bytes)
{
    int f = vae_factor(model->vae);
    decoder_run(model, o, NULL, r->height_px / f, r->width_px / f,
                (struct decoder_way){r->tiny_decoder, r->vae_tiling, limit_bytes});
}

/* Operations that only count memory. */
struct dry_run {
    struct arena arena;
    struct dk_error err;
    struct ops ops;
};

static bool dry_open(struct dry_run *d, const struct dk_model *model)
{
    *d = (struct dry_run){.err = {.code = DK_OK}};
    if (!arena_open(&d->arena, 0, &d->err)) return false;
    d->arena.dry = true;
    d->ops = (struct ops){.kernels = model->kernels,
                          .arena = &d->arena,
                          .err = &d->err,
                          .n_threads = model->n_threads};
    return true;
}

/* The most that was needed at a time. */
static size_t dry_close(struct dry_run *d)
{
    size_t bytes = d->err.code == DK_OK ? d->arena.peak_bytes : SIZE_MAX;
    arena_close(&d->arena);
    return bytes;
}

/* How far the arena may be filled by the decoder when the rest of a run fills it so far. */
static size_t limit_beside(const struct dk_model *model, size_t other_bytes)
{
    if (model->max_memory_bytes) return model->max_memory_bytes;
    size_t share = system_memory_bytes() / MEMORY_DECODE_SHARE;
    return larger(larger(MEMORY_DECODE_MIN, share), other_bytes);
}

size_t memory_work_bytes(const struct dk_model *model, const struct memory_request *request)
{
    struct dry_run d;
    if (!dry_open(&d, model)) return SIZE_MAX;
    lay_out_latents(model, &d.ops, request);
    lay_out_decode(model, &d.ops, request, limit_beside(model, d.arena.peak_bytes));
    return dry_close(&d);
}

/* Clearly within the least limit, so that the rest of the run need not be looked at: most pictures
 * are small, and are to start at once. */
static bool decodes_in_little(const struct dk_model *model, const struct memory_request *r)
{
    struct dry_run d;
    if (!dry_open(&d, model)) return false;
    lay_out_decode(model, &d.ops, r, 0);
    return dry_close(&d) <= MEMORY_DECODE_MIN / 2;
}

size_t memory_decode_limit(const struct dk_model *model, const struct memory_request *request)
{
    struct dry_run d;
    if (model->max_memory_bytes) return model->max_memory_bytes;
    if (decodes_in_little(model, request) || !dry_open(&d, model)) return 0;
    lay_out_latents(model, &d.ops, request);
    size_t limit = limit_beside(model, d.arena.peak_bytes);
    dry_close(&d);
    return limit;
}

static size_t largest_part_bytes(const struct dk_model *model)
{
    size_t largest = 0;
    for (size_t i = 0; i < model->n_parts; i++) {
        size_t bytes = weights_total_bytes(model->parts[i]);
        if (bytes > largest) largest = bytes;
    }
    return largest;
}

/* Whether it would fit if the decoder worked in tiles. */
static bool tiles_help(const struct dk_model *model, const struct memory_request *request)
{
    struct memory_request tiled = *request;
    tiled.vae_tiling = true;
    return !request->vae_tiling && memory_work_bytes(model, &tiled) <= model->max_memory_bytes;
}

/* The limit to give, in MiB, that leaves so much for work memory. */
static size_t limit_mib(size_t work_bytes)
{
    size_t cache = work_bytes / (MEMORY_CACHE_SHARE - 1) + 1;
    if (cache > MEMORY_CACHE_BYTES) cache = MEMORY_CACHE_BYTES;
    return ((work_bytes + cache) >> 20) + 1;
}

bool memory_fit(struct dk_model *model, struct memory_request *request, struct dk_error *err)
{
    size_t limit = model->max_memory_bytes;
    if (limit == 0) return true;
    for (;; request->n--) {
        size_t bytes = memory_work_bytes(model, request);
        if (bytes <= limit) {
            model->stream_weights = largest_part_bytes(model) > limit - bytes;
            return true;
        }
        if (request->n > 1) continue;
        return dk_fail(err, DK_ERROR_MEMORY,
                       "%dx%d: its work memory needs a limit of %zuM or more, found %.4gM; give "
                       "that%s or choose a smaller size",
                       request->width_px, request->height_px, limit_mib(bytes),
                       (double)model->limit_bytes / (1 << 20),
                       tiles_help(model, request) ? ", decode in tiles" : "");
    }
}
