/* resolve.c - settings are filled in and checked before anything runs. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/resolve.h"

#include "files/image.h"
#include "pipeline/decoder.h"
#include "pipeline/memory.h"
#include "pipeline/passes.h"
#include "pipeline/prediction.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CLIP_SKIP 64

void dk_settings_default(struct dk_settings *settings)
{
    *settings = (struct dk_settings){.prompt = "",
                                     .prompt_syntax = true,
                                     .guidance = NAN,
                                     .guidance_to = 1,
                                     .deepcache = 1,
                                     .eta = NAN};
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* "ays" is the table of the kind of model: SDXL, which has pooled text, has its own. */
static const char *sigmas_of(const struct dk_model *model, const char *sigmas)
{
    bool xl = unet_pooled_width(model->unet) > 0;
    return sigmas && xl && strcmp(sigmas, "ays") == 0 ? "ays-sdxl" : sigmas;
}

static struct sampler_options sampler_options_of(const struct dk_model *model,
                                                 const struct dk_settings *job)
{
    return (struct sampler_options){
        .config = &model->scheduler,
        .scheduler = job->scheduler ? job->scheduler : model->default_scheduler,
        .n_steps = job->n_steps,
        .eta = job->eta,
        .spacing = job->spacing,
        .sigmas = sigmas_of(model, job->sigmas),
        .timesteps = job->timesteps,
    };
}

struct sampler *resolve_sampler(const struct dk_model *model, const struct dk_settings *job,
                                struct dk_error *err)
{
    struct sampler_options options = sampler_options_of(model, job);
    return sampler_new(&options, err);
}

bool resolve_guided(const struct dk_model *model, const struct dk_settings *job)
{
    return job->guidance > 1 && unet_guidance_width(model->unet) == 0;
}

/* One side: a multiple of what the VAE needs,
 * or an error that names the nearest sizes that work. */
static bool check_side(const char *name, int px, int multiple, struct dk_error *err)
{
    if (px < multiple || px > RESOLVE_MAX_SIDE_PX)
        return dk_fail(err, DK_ERROR_ARGUMENT,
                       "size: a %s of %d pixels is not possible with this model; choose "
                       "between %d and %d",
                       name, px, multiple, RESOLVE_MAX_SIDE_PX / multiple * multiple);
    if (px % multiple != 0)
        return dk_fail(err, DK_ERROR_ARGUMENT,
                       "size: the %s of %d pixels is not a multiple of %d, which this model "
                       "needs; the nearest that work are %d and %d",
                       name, px, multiple, px / multiple * multiple,
                       (px / multiple + 1) * multiple);
    return true;
}

static bool check_numbers(const struct dk_model *model, const struct dk_settings *s,
                          struct dk_error *err)
{
    if (!check_side("width", s->width_px, vae_factor(model->vae), err) ||
        !check_side("height", s->height_px, vae_factor(model->vae), err))
        return false;
    if ((long long)s->width_px * s->height_px > IMAGE_MAX_PIXELS)
        return dk_fail(err, DK_ERROR_ARGUMENT,
                       "size: %dx%d is %.0f million pixels, more than a picture file holds here; "
                       "stay below %d million",
                       s->width_px, s->height_px, (double)s->width_px * s->height_px / 1e6,
                       IMAGE_MAX_PIXELS / 1000000);
    if (s->n_steps < 1)
        return dk_fail(err, DK_ERROR_ARGUMENT, "steps: %d is not possible; give 1 or more",
                       s->n_steps);
    if (!(s->guidance >= 0 && s->guidance <= 1000))
        return dk_fail(err, DK_ERROR_ARGUMENT, "guidance: %g is not possible; give 0 to 1000",
                       s->guidance);
    if (!(s->guidance_from >= 0 && s->guidance_from < s->guidance_to && s->guidance_to <= 1))
        return dk_fail(
            err, DK_ERROR_ARGUMENT,
            "guidance: a part of the run from %g to %g is not possible; give 0 to 1, the first "
            "below the second",
            s->guidance_from, s->guidance_to);
    if (!(s->guidance_rescale >= 0 && s->guidance_rescale <= 1))
        return dk_fail(err, DK_ERROR_ARGUMENT, "guidance-rescale: %g is not possible; give 0 to 1",
                       s->guidance_rescale);
    int layers = clip_layers(model->text.items[0].clip),
        most = layers - (model->text.n_items > 1 ? 2 : 1);
    if (s->clip_skip < 0 || s->clip_skip > most)
        return dk_fail(err, DK_ERROR_ARGUMENT,
                       "clip-skip: %d is not possible; the text encoder has %d layers: give 0 "
                       "to %d",
                       s->clip_skip, layers, most);
    if (!passes_check(model, s, err)) return false;
    if (s->rng && strcmp(s->rng, "cpu") != 0 && strcmp(s->rng, "nv") != 0)
        return dk_fail(err, DK_ERROR_ARGUMENT, "rng: \"%s\" is unknown; give cpu or nv", s->rng);
    return true;
}

/* Steps and guidance where nobody said: the model's, or those its kind of scheduler is made for. */
static void fill_from_scheduler(const struct dk_model *model, struct dk_settings *s)
{
    struct sampler_options options = sampler_options_of(model, s);
    if (s->n_steps == 0) s->n_steps = sampler_default_steps(&options, model->n_steps);
    if (!isnan(s->guidance)) return;
    bool embedded = unet_guidance_width(model->unet) > 0; /* the scale is an input: no suggestion */
    s->guidance = embedded ? model->guidance : sampler_default_guidance(&options, model->guidance);
}

/* One sentence for each pairing that is known to blur. */
static void warn_of_pairing(const struct dk_model *model, const struct dk_settings *s,
                            const struct sampler *sampler)
{
    char sentence[300] = "";
    bool lcm = unet_guidance_width(model->unet) > 0, guided = resolve_guided(model, s);
    if (!model->warn) return;
    if (sampler_warning(sampler)) model->warn(model->warn_user, sampler_warning(sampler));
    if (lcm && !sampler_distilled(sampler))
        snprintf(sentence, sizeof sentence,
                 "scheduler %s: this model was distilled for the timesteps of lcm and will blur on "
                 "others: use --scheduler lcm",
                 sampler_name(sampler));
    else if (guided && sampler_distilled(sampler) && s->guidance > 2)
        snprintf(sentence, sizeof sentence,
                 "guidance %g: models for scheduler %s are made to do without and will burn out: "
                 "use --guidance %g",
                 s->guidance, sampler_name(sampler), sampler_guidance(sampler));
    else if (guided && model->guidance <= 1)
        snprintf(sentence, sizeof sentence,
                 "guidance %g: this model was distilled to do without and will blur: use "
                 "--guidance 1",
                 s->guidance);
    if (sentence[0]) model->warn(model->warn_user, sentence);
}

bool dk_resolve(struct dk_model *model, struct dk_settings *s, int *n_passes, struct dk_error *err)
{
    /* What is filled in already has been here before, and was warned of then. */
    bool open = s->n_steps == 0 || isnan(s->guidance) || isnan(s->eta) || !s->scheduler;
    if (!s->prompt) s->prompt = "";
    if (s->width_px == 0) s->width_px = model->native_width_px;
    if (s->height_px == 0) s->height_px = model->native_height_px;
    fill_from_scheduler(model, s);
    if (!s->rng) s->rng = "cpu";
    if (!check_numbers(model, s, err) || !decoder_resolve(model, s, err) ||
        !prediction_settle(model, err))
        return false;
    struct sampler *sampler = resolve_sampler(model, s, err);
    if (!sampler) return false;
    bool guided = resolve_guided(model, s);
    struct pass_plan *plan = n_passes ? passes_new(s, guided, sampler, err) : NULL;
    int calls = sampler_calls(sampler);
    if (open) warn_of_pairing(model, s, sampler);
    if (isnan(s->eta)) s->eta = sampler_eta(sampler);
    if (!s->scheduler) s->scheduler = model_own_string(model, sampler_name(sampler), err);
    sampler_free(sampler);
    if (n_passes) *n_passes = calls;
    for (int call = 0; plan && call < calls; call++) *n_passes += plan[call].guided;
    free(plan);
    if (!s->scheduler || (n_passes && !plan)) return false;
    struct memory_request request = memory_request_of(s, 1, 1, guided);
    return memory_fit(model, &request, err);
}

static bool count_chunks(const struct dk_model *model, const struct dk_settings *s, bool warn,
                         size_t *n, struct dk_error *err)
{
    size_t negative = 1;
    if (!text_count_chunks(&model->text, s->prompt, s->prompt_syntax, n, warn ? model->warn : NULL,
                           model->warn_user, err))
        return false;
    if (resolve_guided(model, s) && s->negative &&
        !text_count_chunks(&model->text, s->negative, s->prompt_syntax, &negative,
                           warn ? model->warn : NULL, model->warn_user, err))
        return false;
    if (negative > *n) *n = negative;
    return true;
}

static bool run_together(const struct dk_model *model, const struct dk_settings *a,
                         const struct dk_settings *b)
{
    return a->width_px == b->width_px && a->height_px == b->height_px && a->n_steps == b->n_steps &&
           same_text(a->scheduler, b->scheduler) && same_text(a->spacing, b->spacing) &&
           same_text(a->sigmas, b->sigmas) && same_text(a->timesteps, b->timesteps) &&
           a->guidance_from == b->guidance_from && a->guidance_to == b->guidance_to &&
           a->deepcache == b->deepcache && a->deepcache_branch == b->deepcache_branch &&
           a->tgate == b->tgate && a->tome == b->tome && a->eta == b->eta &&
           a->vae_tiling == b->vae_tiling && decoder_is_tiny(a) == decoder_is_tiny(b) &&
           resolve_guided(model, a) == resolve_guided(model, b) &&
           (unet_guidance_width(model->unet) == 0 || a->guidance == b->guidance);
}

bool resolve_group(const struct dk_model *model, const struct dk_settings *jobs, size_t n_jobs,
                   size_t max, size_t *n_group, size_t *n_chunks, struct dk_error *err)
{
    *n_group = 0;
    *n_chunks = 1;
    while (*n_group < n_jobs && *n_group < max) {
        const struct dk_settings *job = &jobs[*n_group];
        size_t chunks;
        if (*n_group > 0 && !run_together(model, &jobs[0], job)) break;
        if (!count_chunks(model, job, true, &chunks, err)) return false;
        if (*n_group > 0 && chunks != *n_chunks) break;
        *n_chunks = chunks;
        (*n_group)++;
    }
    return true;
}

bool dk_scheduler_plan(struct dk_model *model, const struct dk_settings *settings,
                       double **timesteps, double **sigmas, size_t *n_calls, struct dk_error *err)
{
    struct dk_settings resolved = *settings;
    *timesteps = *sigmas = NULL;
    if (!dk_resolve(model, &resolved, NULL, err)) return false;
    struct sampler *sampler = resolve_sampler(model, &resolved, err);
    if (!sampler) return false;
    size_t n = (size_t)sampler_calls(sampler);
    *timesteps = malloc(n * sizeof **timesteps);
    *sigmas = malloc(n * sizeof **sigmas);
    *n_calls = n;
    bool good = *timesteps && *sigmas;
    for (size_t i = 0; good && i < n; i++) {
        (*timesteps)[i] = sampler_timestep(sampler, (int)i);
        (*sigmas)[i] = sampler_sigma(sampler, (int)i);
    }
    sampler_free(sampler);
    if (good) return true;
    free(*timesteps);
    free(*sigmas);
    *timesteps = *sigmas = NULL;
    return dk_fail(err, DK_ERROR_MEMORY, "scheduler: out of memory for %zu calls", n);
}
