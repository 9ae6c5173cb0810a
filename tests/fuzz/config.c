/* config.c - fuzz target: the JSON files of a model folder. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/config.h"

#include "files/json.h"
#include "fuzz.h"
#include "pipeline/scheduler_config.h"

/* The first byte chooses the file, the rest is its content. */
static void fuzz_config(const uint8_t *data, size_t size_bytes)
{
    if (size_bytes == 0) return;
    struct map map = fuzz_map(data + 1, size_bytes - 1);
    const char *text = (const char *)map.data;
    struct dk_error err = {0};
    json_t *json =
        data[0] % 4 ? json_object_parse(text, map.size_bytes, 64, "config.json", &err) : NULL;
    if (data[0] % 4 == 0) {
        struct scheduler_config *scheduler = calloc(1, sizeof *scheduler);
        double alpha_bar[SCHEDULER_MAX_TRAIN];
        if (!scheduler) abort();
        if (fuzz_said(scheduler_config_parse("s", text, map.size_bytes, scheduler, &err), &err))
            scheduler_config_alpha_bar(scheduler, alpha_bar);
        free(scheduler);
    } else if (!json) {
        fuzz_said(false, &err);
    } else if (data[0] % 4 == 1) {
        struct config_unet unet;
        fuzz_said(config_parse_unet(json, "unet", &unet, &err), &err);
    } else if (data[0] % 4 == 2) {
        struct config_vae vae;
        fuzz_said(config_parse_vae(json, "vae", &vae, &err), &err);
    } else {
        struct config_clip clip;
        fuzz_said(config_parse_clip(json, "clip", &clip, &err), &err);
    }
    json_decref(json);
    fuzz_unmap(map);
}
