/* model_info.c - what a model is: family, sizes, parts, and the memory a picture needs. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/decoder.h"
#include "pipeline/memory.h"
#include "pipeline/prediction.h"
#include "pipeline/resolve.h"

#include <stdio.h>

static void describe_part(const char *name, const struct weights *weights,
                          struct dk_part_info *part)
{
    size_t counts[N_DTYPES] = {0}, used = 0;
    *part = (struct dk_part_info){.name = name,
                                  .n_tensors = weights_count(weights),
                                  .size_bytes = weights_total_bytes(weights)};
    for (size_t i = 0; i < part->n_tensors; i++) {
        const struct weight *w = weights_at(weights, i);
        counts[w->dtype]++;
        part->n_parameters += weights_value_count(w);
    }
    for (int d = 0; d < N_DTYPES; d++)
        if (counts[d] > 0 && used < sizeof part->dtypes)
            used +=
                (size_t)snprintf(part->dtypes + used, sizeof part->dtypes - used, "%s%s %zu",
                                 used ? ", " : "", weights_dtype_name((enum dtype)d), counts[d]);
}

static size_t work_bytes(const struct dk_model *model, const struct dk_settings *job)
{
    const struct memory_request request = memory_request_of(job, 1, 1, model->guidance > 1);
    return memory_work_bytes(model, &request);
}

bool dk_model_work_bytes(const struct dk_model *model, const struct dk_settings *settings,
                         size_t *n_bytes, struct dk_error *err)
{
    struct dk_settings job = *settings;
    if (job.width_px == 0) job.width_px = model->native_width_px;
    if (job.height_px == 0) job.height_px = model->native_height_px;
    int multiple = vae_factor(model->vae), width_px = job.width_px, height_px = job.height_px;
    if (width_px < 1 || height_px < 1 || width_px > RESOLVE_MAX_SIDE_PX ||
        height_px > RESOLVE_MAX_SIDE_PX || width_px % multiple != 0 || height_px % multiple != 0)
        return dk_fail(err, DK_ERROR_ARGUMENT,
                       "size: %dx%d is not possible with this model; both sides must be multiples "
                       "of %d up to %d",
                       width_px, height_px, multiple, RESOLVE_MAX_SIDE_PX);
    if (!decoder_resolve(model, &job, err)) return false;
    *n_bytes = work_bytes(model, &job);
    return true;
}

void dk_model_get_info(const struct dk_model *model, struct dk_model_info *info)
{
    *info = (struct dk_model_info){
        .path = model->path,
        .family = model->family->name,
        .prediction = prediction_name(model),
        .prediction_known = model->prediction_source != PREDICTION_OPEN,
        .prediction_source = prediction_source_name(model),
        .scheduler =
            model->default_scheduler ? model->default_scheduler : model->scheduler.class_name,
        .native_width_px = model->native_width_px,
        .native_height_px = model->native_height_px,
        .size_multiple_px = vae_factor(model->vae),
        .n_steps = model->n_steps,
        .guidance = model->guidance,
        .context_tokens = (int)text_tokens(&model->text),
        .n_parts = model->n_parts,
    };
    struct dk_settings job;
    dk_settings_default(&job);
    job.width_px = model->native_width_px;
    job.height_px = model->native_height_px;
    job.decoder = model->default_decoder;
    info->work_bytes = work_bytes(model, &job);
    for (size_t i = 0; i < model->n_parts; i++)
        describe_part(model->part_names[i], model->parts[i], &info->parts[i]);
}
