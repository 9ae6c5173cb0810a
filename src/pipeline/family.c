/* family.c - the table of model families. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/family.h"

#include <stddef.h>

#define CLIP_VOCABULARY 49408

/*
 * Widths: SD 1.x arXiv:2112.10752 and its v1-inference.yaml, SD 2.x v2-inference.yaml, SDXL
 * arXiv:2307.01952. Steps and guidance are those of the reference pipelines' own examples. A
 * distilled model is told by its guidance embedding (LCM, arXiv:2310.04378); Turbo checkpoints
 * (arXiv:2311.17042) have the shapes of their parents and are told by their scheduler config: Euler
 * on a trailing grid.
 */
static const struct family families[] = {
    {.name = "sd1-lcm",
     .traits = {.context_width = 768, .guidance_width = 256, .vocabulary = CLIP_VOCABULARY},
     .native_px = 512,
     .n_steps = 4,
     .guidance = 8.5},
    {.name = "sdxl-lcm",
     .traits = {.context_width = 2048, .pooled_width = 1280, .guidance_width = 256},
     .native_px = 1024,
     .n_steps = 4,
     .guidance = 8.0,
     .zero_negative = true},
    {.name = "sd-turbo",
     .traits = {.context_width = 1024, .one_step = true},
     .native_px = 512,
     .n_steps = 1,
     .guidance = 0},
    {.name = "sdxl-turbo",
     .traits = {.context_width = 2048, .pooled_width = 1280, .one_step = true},
     .native_px = 512,
     .n_steps = 1,
     .guidance = 0,
     .zero_negative = true},
    {.name = "sd1",
     .traits = {.context_width = 768, .vocabulary = CLIP_VOCABULARY},
     .native_px = 512,
     .n_steps = 20,
     .guidance = 7.5},
    {.name = "sd2",
     .traits = {.context_width = 1024},
     .native_px = 512,
     .n_steps = 20,
     .guidance = 7.5},
    {.name = "sdxl",
     .traits = {.context_width = 2048, .pooled_width = 1280},
     .native_px = 1024,
     .n_steps = 20,
     .guidance = 5.0,
     .zero_negative = true},
    {.name = "custom", .native_px = 512, .n_steps = 20, .guidance = 7.5},
};

static bool fits(int64_t wanted, int64_t found)
{
    return wanted == 0 || wanted == found;
}

const struct family *family_find(const struct family_traits *traits)
{
    size_t n = sizeof families / sizeof families[0];
    for (size_t i = 0; i + 1 < n; i++) {
        const struct family_traits *t = &families[i].traits;
        if (fits(t->context_width, traits->context_width) &&
            fits(t->pooled_width, traits->pooled_width) &&
            fits(t->guidance_width, traits->guidance_width) &&
            fits(t->vocabulary, traits->vocabulary) && (!t->one_step || traits->one_step))
            return &families[i];
    }
    return &families[n - 1];
}
