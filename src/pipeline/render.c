/* render.c - the denoising loop: settings in, pictures out. */
/* SPDX-License-Identifier: MIT */

/*
 * A group is a run of jobs that share size and schedule. Its latents live as one tensor x [n, h, w,
 * c]; with guidance the U-Net sees [2n, h, w, c], the unconditional half first (Ho and Salimans
 * 2022, arXiv:2207.12598):
 *
 *     out = out_uncond + guidance * (out_cond - out_uncond)
 */
#include "base/rng.h"
#include "base/system.h"
#include "files/image.h"
#include "ops/meter.h"
#include "pipeline/decoder.h"
#include "pipeline/memory.h"
#include "pipeline/model.h"
#include "pipeline/passes.h"
#include "pipeline/preview.h"
#include "pipeline/resolve.h"
#include "pipeline/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Pictures run together: more share each weight that is read, but need the memory of as many
 * latents. */
#define MAX_GROUP 4

struct job_state {
    struct sampler_state *sampler;
    struct rng rng;
    float *planar; /* [c, h, w]: noise as drawn, before it is laid out */
    int64_t h, w, c;
};

struct group {
    struct dk_model *model;
    struct ops ops;
    const struct dk_settings *jobs;
    size_t first, n; /* number of the first job within the whole call, and how many run here */
    struct sampler *sampler;
    bool guided;
    size_t decode_limit_bytes; /* memory_decode_limit */
    int64_t h, w, c;           /* of the latent */
    struct tensor x;           /* [n, h, w, c] */
    struct job_state states[MAX_GROUP];
    struct unet_conditioning *conditioning;
    struct unet_conditioning
        *alone;               /* the prompts without the negatives, for calls without guidance */
    struct pass_plan *plan;   /* what each call computes */
    struct unet_reuse *reuse; /* what calls leave for later ones; NULL: nothing */
    float *extra; /* [h, w, in - c], the further input channels of an inpainting U-Net; else NULL */
    const struct dk_hooks *hooks;
    struct dk_stats *stats;
    struct dk_error *err;
};

static void report(const struct dk_hooks *hooks, enum dk_phase phase, int done, int total,
                   const struct dk_image *preview)
{
    struct dk_progress progress = {phase, done, total, preview};
    if (hooks && hooks->progress) hooks->progress(hooks->user, &progress);
}

/* out [h, w, c] = planar [c, h, w] */
static void lay_out(const struct job_state *s, const float *planar, float *out)
{
    int64_t cells = s->h * s->w;
    for (int64_t i = 0; i < cells; i++)
        for (int64_t c = 0; c < s->c; c++) out[i * s->c + c] = planar[c * cells + i];
}

/* Noise as the reference draws it, [c, h, w], laid out [h, w, c]. */
static void draw_noise(void *user, float *out, size_t n)
{
    struct job_state *s = user;
    rng_normal(&s->rng, s->planar, n);
    lay_out(s, s->planar, out);
}

static bool start_job(struct group *g, size_t k)
{
    struct job_state *s = &g->states[k];
    size_t n = (size_t)(g->h * g->w * g->c);
    s->h = g->h;
    s->w = g->w;
    s->c = g->c;
    s->planar = malloc(n * sizeof *s->planar);
    if (!s->planar)
        return dk_fail(g->err, DK_ERROR_MEMORY, "latent: out of memory for %zu values", n);
    s->sampler = sampler_state_new(g->sampler, n, g->err);
    if (!s->sampler) return false;
    bool nv = g->jobs[k].rng && strcmp(g->jobs[k].rng, "nv") == 0;
    rng_seed(&s->rng, nv ? RNG_NV : RNG_CPU, g->jobs[k].seed);
    float *x = g->x.data + k * n, sigma = (float)sampler_init_sigma(g->sampler);
    if (g->jobs[k].noise)
        lay_out(s, g->jobs[k].noise, x);
    else
        draw_noise(s, x, n);
    for (size_t i = 0; i < n; i++) x[i] *= sigma;
    return true;
}

static struct tensor new_zeros(struct ops *o, int rank, const int64_t *dim)
{
    struct tensor t = tensor_new(o->arena, rank, dim, o->err);
    if (t.rank > 0) memset(t.data, 0, (size_t)tensor_count(t) * sizeof(float));
    return t;
}

/*
 * The texts of all rows into context and pooled, which start as zeros. Only a prompt skips layers:
 * the reference encodes the negative one in full depth.
 */
static bool encode_rows(struct group *g, struct tensor context, struct tensor pooled,
                        size_t n_chunks)
{
    struct text_request requests[2 * MAX_GROUP];
    struct text texts[2 * MAX_GROUP];
    size_t rows[2 * MAX_GROUP], n = 0;
    for (size_t r = 0; r < (size_t)context.dim[0]; r++) {
        bool negative = g->guided && r < g->n;
        const struct dk_settings *job = &g->jobs[r % g->n];
        const char *prompt = negative ? job->negative : job->prompt;
        if (!prompt && g->model->zero_negative) continue;
        requests[n] = (struct text_request){prompt ? prompt : "", job->prompt_syntax,
                                            negative ? 0 : job->clip_skip, n_chunks};
        rows[n++] = r;
    }
    struct ops once = g->ops; /* prompts are remembered, so the cache is left to the U-Net */
    once.cache = NULL;
    if (!text_encode(&g->model->text, &once, requests, n, texts, g->err)) return false;
    size_t row = (size_t)(context.dim[1] * context.dim[2]);
    for (size_t i = 0; i < n; i++) {
        memcpy(context.data + rows[i] * row, texts[i].context, row * sizeof(float));
        if (texts[i].pooled && pooled.rank > 0)
            memcpy(pooled.data + rows[i] * (size_t)pooled.dim[1], texts[i].pooled,
                   (size_t)pooled.dim[1] * sizeof(float));
    }
    return true;
}

/* The rows of the prompts, behind those of the negatives. */
static struct tensor second_half(struct tensor t)
{
    t.data += tensor_count(t) / 2;
    t.dim[0] /= 2;
    return t;
}

/* What the U-Net is told: texts, sizes, guidance. Rows: the negatives first where guided, then the
 * prompts. */
static bool condition(struct group *g, size_t n_chunks)
{
    struct dk_model *model = g->model;
    int64_t rows = (int64_t)(g->guided ? 2 * g->n : g->n);
    int64_t pooled_width = unet_pooled_width(model->unet);
    struct tensor context = new_zeros(
        &g->ops, 3,
        (int64_t[]){rows, (int64_t)n_chunks * text_tokens(&model->text), text_width(&model->text)});
    struct tensor pooled = {0};
    if (pooled_width > 0) pooled = new_zeros(&g->ops, 2, (int64_t[]){rows, pooled_width});
    if (context.rank == 0 || (pooled_width > 0 && pooled.rank == 0)) return false;
    float time_ids[2 * MAX_GROUP]
                  [6]; /* original height and width, crop top and left, target height and width */
    for (size_t r = 0; r < (size_t)rows; r++) {
        const struct dk_settings *job = &g->jobs[r % g->n];
        float h = (float)job->height_px, w = (float)job->width_px;
        float from_h = job->original_height_px ? (float)job->original_height_px : h;
        float from_w = job->original_width_px ? (float)job->original_width_px : w;
        memcpy(time_ids[r],
               (float[6]){from_h, from_w, (float)job->crop_top_px, (float)job->crop_left_px, h, w},
               sizeof time_ids[r]);
    }
    if (!encode_rows(g, context, pooled, n_chunks)) return false;
    if (!op_all_finite(&g->ops, context))
        return dk_fail(g->err, DK_ERROR_NUMERIC,
                       "prompt: the text encoder's output is not finite; the model's text "
                       "encoder is damaged");
    const float *ids = pooled_width > 0 ? &time_ids[0][0] : NULL;
    float guidance = (float)g->jobs[0].guidance;
    g->conditioning = unet_condition(model->unet, &g->ops, context, pooled, ids, guidance);
    bool in_part = g->guided && passes_guided_in_part(&g->jobs[0]);
    if (!g->conditioning || !in_part) return g->conditioning != NULL;
    context = second_half(context);
    if (pooled_width > 0) pooled = second_half(pooled);
    g->alone = unet_condition(model->unet, &g->ops, context, pooled, ids ? ids + g->n * 6 : NULL,
                              guidance);
    return g->alone != NULL;
}

/*
 * An inpainting U-Net without a picture to fill: the mask says "everything", the masked picture is
 * the encoding of mid-grey, as A1111 does for text to image.
 */
static bool fill_extra_channels(struct group *g)
{
    int64_t in = unet_in_channels(g->model->unet), more = in - g->c;
    if (more == 0) return true;
    if (more != g->c + 1)
        return dk_fail(g->err, DK_ERROR_UNSUPPORTED,
                       "unet: it has %lld input channels for a latent of %lld; only "
                       "inpainting models (%lld) take more",
                       (long long)in, (long long)g->c, (long long)(2 * g->c + 1));
    struct ops *o = &g->ops;
    int f = vae_factor(g->model->vae);
    g->extra = calloc((size_t)(g->h * g->w * more), sizeof *g->extra);
    if (!g->extra)
        return dk_fail(g->err, DK_ERROR_MEMORY, "latent: out of memory for the mask channels");
    size_t mark = arena_mark(o->arena);
    struct tensor grey = new_zeros(o, 4, (int64_t[]){1, g->h * f, g->w * f, 3});
    struct tensor moments = vae_encode(g->model->vae, o, grey);
    for (int64_t i = 0; moments.rank > 0 && i < g->h * g->w; i++) {
        float *e = g->extra + i * more;
        e[0] = 1;
        for (int64_t c = 0; c < g->c; c++)
            e[1 + c] = (float)(((double)moments.data[i * 2 * g->c + c] - g->model->shift) *
                               g->model->scaling_factor);
    }
    arena_reset(o->arena, mark);
    return moments.rank > 0;
}

/* Room for what calls leave for later ones, where the jobs ask for any of that. */
static bool make_reuse(struct group *g)
{
    struct unet_saving saving = passes_saving(&g->jobs[0]);
    if (!passes_save(&saving)) return true;
    int64_t rows = (int64_t)(g->guided ? 2 * g->n : g->n);
    g->reuse = unet_reuse_new(g->model->unet, &g->ops, &saving, rows, g->h, g->w);
    return g->reuse != NULL;
}

/* Scaled latents for one call: [n, h, w, in], the same for both halves of guidance. */
static struct tensor unet_input(struct group *g, int call)
{
    int64_t in = unet_in_channels(g->model->unet), cells = g->h * g->w;
    struct tensor input = tensor_new4(g->ops.arena, (int64_t)g->n, g->h, g->w, in, g->err);
    if (input.rank == 0) return input;
    size_t n = (size_t)(cells * g->c), row = (size_t)(cells * in);
    for (size_t k = 0; k < g->n; k++) {
        float *to = input.data + k * row;
        float *scaled = g->states[k].planar; /* free between draws */
        sampler_scale_input(g->sampler, call, g->x.data + k * n, scaled, n);
        for (int64_t i = 0; i < cells; i++) {
            memcpy(to + i * in, scaled + i * g->c, (size_t)g->c * sizeof(float));
            if (g->extra)
                memcpy(to + i * in + g->c, g->extra + i * (in - g->c),
                       (size_t)(in - g->c) * sizeof(float));
        }
    }
    return input;
}

/* Unbiased standard deviation over all of a sample. */
static double deviation(const float *v, size_t n)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) sum += (double)v[i];
    double mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) squares += ((double)v[i] - mean) * ((double)v[i] - mean);
    return sqrt(squares / (double)(n - 1));
}

/* Combines both halves into cond, and rescales against over-exposure (arXiv:2305.08891, equations
 * 14 to 16). */
static void guide(const float *uncond, float *cond, size_t n, double guidance, double rescale)
{
    double before = rescale > 0 ? deviation(cond, n) : 0;
    float scale = (float)guidance;
    for (size_t i = 0; i < n; i++) cond[i] = uncond[i] + scale * (cond[i] - uncond[i]);
    if (rescale <= 0) return;
    double after = deviation(cond, n);
    if (!(after > 0)) return;
    float factor = (float)(rescale * (before / after) + (1 - rescale));
    for (size_t i = 0; i < n; i++) cond[i] *= factor;
}

/* Tells of the call just made; with a preview of the first picture of the group when asked for. */
static void report_call(struct group *g, int call, const float *out)
{
    struct dk_image preview = {0};
    if (g->hooks && g->hooks->preview) {
        float *x0 = g->states[0].planar;
        sampler_predict_x0(g->sampler, call, out, g->x.data, x0, (size_t)(g->h * g->w * g->c));
        if (!preview_make(g->model, &g->ops, x0, g->h, g->w, &preview)) preview.rgb = NULL;
    }
    report(g->hooks, DK_PHASE_DENOISE, call + 1, sampler_calls(g->sampler),
           preview.rgb ? &preview : NULL);
    dk_image_free(&preview);
}

static bool denoise_call(struct group *g, int call)
{
    const struct pass_plan *plan = &g->plan[call];
    bool guided = plan->guided;
    struct tensor input = unet_input(g, call);
    struct tensor out = unet_forward_reusing(
        g->model->unet, &g->ops, input, (float)sampler_timestep(g->sampler, call),
        g->guided && !guided ? g->alone : g->conditioning, g->reuse, plan->deep, plan->cross);
    if (!ops_ok(&g->ops) || out.rank == 0) return false;
    g->stats->unet_passes += (int)out.dim[0];
    if (plan->deep || plan->cross) g->stats->partial_passes += (int)out.dim[0];
    size_t n = (size_t)(g->h * g->w * g->c);
    const float *answer = out.data + (guided ? g->n * n : 0);
    for (size_t k = 0; guided && k < g->n; k++) {
        float *cond = out.data + (g->n + k) * n;
        guide(out.data + k * n, cond, n, g->jobs[k].guidance, g->jobs[k].guidance_rescale);
    }
    if (g->hooks && g->hooks->preview) report_call(g, call, answer);
    for (size_t k = 0; k < g->n; k++) {
        struct noise_source noise = {draw_noise, &g->states[k]};
        if (!sampler_step(g->sampler, g->states[k].sampler, call, answer + k * n, g->x.data + k * n,
                          n, &noise, g->err))
            return false;
    }
    if (!op_all_finite(&g->ops, g->x))
        return dk_fail(g->err, DK_ERROR_NUMERIC,
                       "latent: not finite after call %d of %d (timestep %g); the model or "
                       "its settings are unsound: try another scheduler, fewer guidance, or an "
                       "intact model file",
                       call + 1, sampler_calls(g->sampler), sampler_timestep(g->sampler, call));
    if (!(g->hooks && g->hooks->preview)) report_call(g, call, answer);
    return true;
}

static bool decode(struct group *g, size_t k, struct dk_image *image)
{
    struct ops *o = &g->ops;
    size_t mark = arena_mark(o->arena), n = (size_t)(g->h * g->w * g->c);
    struct decoder_way way = {decoder_is_tiny(&g->jobs[k]), g->jobs[k].vae_tiling,
                              g->decode_limit_bytes};
    struct tensor pixels = decoder_run(g->model, o, g->x.data + k * n, g->h, g->w, way);
    bool good = ops_ok(o) && pixels.rank > 0 &&
                image_from_f32(image, pixels.data, (int)pixels.dim[2], (int)pixels.dim[1], g->err);
    arena_reset(o->arena, mark);
    return good;
}

static void group_free(struct group *g)
{
    for (size_t k = 0; k < g->n; k++) {
        sampler_state_free(g->states[k].sampler);
        free(g->states[k].planar);
    }
    free(g->extra);
    free(g->plan);
    sampler_free(g->sampler);
}

static bool group_run(struct group *g, size_t n_chunks, struct dk_image *images)
{
    const struct dk_settings *job = &g->jobs[0];
    int f = vae_factor(g->model->vae);
    if (g->ops.meter) g->ops.meter->phase = DK_PHASE_TEXT;
    g->h = job->height_px / f;
    g->w = job->width_px / f;
    g->c = g->model->latent_channels;
    double start = system_seconds();
    report(g->hooks, DK_PHASE_TEXT, 0, 1, NULL);
    g->sampler = resolve_sampler(g->model, job, g->err);
    g->x = tensor_new4(g->ops.arena, (int64_t)g->n, g->h, g->w, g->c, g->err);
    if (!g->sampler || g->x.rank == 0) return false;
    g->plan = passes_new(job, g->guided, g->sampler, g->err);
    if (!g->plan) return false;
    for (size_t k = 0; k < g->n; k++)
        if (!start_job(g, k)) return false;
    if (!condition(g, n_chunks) || !fill_extra_channels(g)) return false;
    size_t before_reuse = arena_mark(g->ops.arena);
    if (!make_reuse(g)) return false;
    model_release(g->model, "text_encoder"); /* and the second one */
    report(g->hooks, DK_PHASE_TEXT, 1, 1, NULL);
    double text_end = system_seconds();
    if (g->ops.meter) g->ops.meter->phase = DK_PHASE_DENOISE;
    report(g->hooks, DK_PHASE_DENOISE, 0, sampler_calls(g->sampler), NULL);
    for (int call = 0; call < sampler_calls(g->sampler); call++) {
        size_t mark = arena_mark(g->ops.arena);
        bool good = denoise_call(g, call);
        arena_reset(g->ops.arena, mark);
        if (!good) return false;
    }
    arena_reset(g->ops.arena, before_reuse); /* the decoder may have that room */
    double denoise_end = system_seconds();
    model_release(g->model, "unet");
    for (size_t k = 0; g->hooks && g->hooks->latent && k < g->n; k++)
        g->hooks->latent(g->hooks->user, g->first + k, g->x.data + (int64_t)k * g->h * g->w * g->c,
                         (int)g->h, (int)g->w, (int)g->c);
    if (g->ops.meter) g->ops.meter->phase = DK_PHASE_DECODE;
    report(g->hooks, DK_PHASE_DECODE, 0, 1, NULL);
    for (size_t k = 0; images && k < g->n; k++)
        if (!decode(g, k, &images[k])) return false;
    report(g->hooks, DK_PHASE_DECODE, 1, 1, NULL);
    g->stats->text_s += text_end - start;
    g->stats->denoise_s += denoise_end - text_end;
    g->stats->decode_s += system_seconds() - denoise_end;
    return true;
}

static void report_costs(const struct dk_hooks *hooks, const struct meter *meter)
{
    for (int phase = 0; phase < METER_MAX_PHASES; phase++)
        for (int kind = 0; kind < N_METER_KINDS; kind++) {
            const struct meter_entry *e = &meter->entries[phase][kind];
            struct dk_cost cost = {.phase = (enum dk_phase)phase,
                                   .kind = meter_kind_names[kind],
                                   .n_calls = e->n_calls,
                                   .seconds = e->seconds,
                                   .flop = e->flop,
                                   .bytes = e->bytes};
            if (e->n_calls > 0) hooks->cost(hooks->user, &cost);
        }
}

bool dk_render(struct dk_model *model, const struct dk_settings *jobs, size_t n_jobs,
               struct dk_image *images, const struct dk_hooks *hooks, struct dk_stats *stats,
               struct dk_error *err)
{
    struct dk_error local = {0};
    struct dk_stats unused;
    struct meter meter = {0};
    struct dk_settings *resolved = calloc(n_jobs ? n_jobs : 1, sizeof *resolved);
    if (!err) err = &local;
    if (!stats) stats = &unused;
    *stats = (struct dk_stats){0};
    if (images) memset(images, 0, n_jobs * sizeof *images);
    bool good =
        resolved || dk_fail(err, DK_ERROR_MEMORY, "render: out of memory for %zu jobs", n_jobs);
    for (size_t i = 0; good && i < n_jobs; i++) {
        resolved[i] = jobs[i];
        good = dk_resolve(model, &resolved[i], NULL, err);
    }
    good = good && model_check_weights(model, err);
    for (size_t first = 0; good && first < n_jobs;) {
        struct group g = {.model = model,
                          .jobs = resolved + first,
                          .first = first,
                          .hooks = hooks,
                          .stats = stats,
                          .err = err};
        g.ops = model_ops(model, hooks ? hooks->cancel : NULL, err);
        g.ops.meter = hooks && hooks->cost ? &meter : NULL;
        g.guided = resolve_guided(model, g.jobs);
        size_t n_chunks = 1;
        good = resolve_group(model, g.jobs, n_jobs - first, MAX_GROUP, &g.n, &n_chunks, err);
        struct memory_request request = memory_request_of(g.jobs, g.n, n_chunks, g.guided);
        good = good && memory_fit(model, &request, err);
        g.n = request.n;
        g.decode_limit_bytes = good ? memory_decode_limit(model, &request) : 0;
        size_t mark = arena_mark(&model->arena);
        good = good && group_run(&g, n_chunks, images ? images + first : NULL);
        group_free(&g);
        arena_reset(&model->arena, mark);
        first += g.n;
    }
    if (good && hooks && hooks->cost) report_costs(hooks, &meter);
    for (size_t i = 0; !good && images && i < n_jobs; i++) dk_image_free(&images[i]);
    free(resolved);
    return good;
}
