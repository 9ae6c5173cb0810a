/* checkfull.c - full-size checkpoints, where there are any: DARKROOM_FULL names their folder. */
/* SPDX-License-Identifier: MIT */

/*
 * The folder may hold sd15, sd21 and sdxl.safetensors in the layout of the original checkpoints;
 * the weights may be random. Each is opened as a user would, every tensor must have its use, and a
 * small picture must come out of it.
 */

#include "check.h"
#include "pipeline/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

struct full {
    const char *file, *family;
    int64_t context_width;
    int native_px;
    size_t most_bytes; /* the whole process at 512x512 with guidance */
};

static const struct full models[] = {
    {"sd15.safetensors", "sd1", 768, 512, (size_t)3500 << 20},
    {"sd21.safetensors", "sd2", 1024, 512, (size_t)4000 << 20},
    {"sdxl.safetensors", "sdxl", 2048, 1024, (size_t)8000 << 20},
};

static int n_skipped;

static void check_picture(struct dk_model *model, const struct full *full)
{
    struct dk_error err = {.code = DK_OK};
    struct dk_settings s;
    struct dk_image image = {0};
    dk_settings_default(&s);
    s.prompt = "a lighthouse";
    s.negative = "fog";
    s.width_px = 64;
    s.height_px = 72; /* 8 x 9 cells: odd on the way down */
    s.n_steps = 1;
    CHECK(dk_render(model, &s, 1, &image, NULL, NULL, &err), "%s: %s", full->file, err.message);
    CHECK(image.width_px == 64 && image.height_px == 72, "%s: size", full->file);
    dk_image_free(&image);
}

static void check_full(const char *folder, const struct full *full)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, full->file);
    FILE *f = fopen(path, "rb");
    if (!f) {
        n_skipped++;
        printf("%s: not there, skipped\n", path);
        return;
    }
    fclose(f);
    struct dk_error err = {.code = DK_OK};
    struct dk_model *model = dk_model_open(path, NULL, &err);
    CHECK(model, "%s", err.message);
    if (!model) return;
    struct dk_model_info info;
    dk_model_get_info(model, &info);
    CHECK(strcmp(info.family, full->family) == 0, "%s is taken for %s", full->file, info.family);
    CHECK(unet_context_width(model->unet) == full->context_width, "%s: context", full->file);
    CHECK(info.native_width_px == full->native_px, "%s: native size %d", full->file,
          info.native_width_px);
    size_t bytes = (size_t)512 << 20; /* packed weights kept, at most */
    for (size_t i = 0; i < model->n_parts; i++) {
        CHECK(weights_unused(model->parts[i], NULL, NULL) == 0, "%s: %zu tensors of %s unused",
              full->file, weights_unused(model->parts[i], NULL, NULL), model->part_names[i]);
        bytes += info.parts[i].size_bytes;
    }
    const struct memory_request request = {
        .n = 1, .n_chunks = 1, .guided = true, .width_px = 512, .height_px = 512};
    bytes += memory_work_bytes(model, &request);
    CHECK(bytes < full->most_bytes, "%s: needs %zu MB at 512x512, allowed %zu", full->file,
          bytes >> 20, full->most_bytes >> 20);
    check_picture(model, full);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    CHECK((size_t)usage.ru_maxrss * 1024 < full->most_bytes, "%s: %ld MB resident", full->file,
          usage.ru_maxrss >> 10);
    dk_model_close(model);
}

int main(void)
{
    const char *folder = getenv("DARKROOM_FULL");
    if (!folder)
        n_skipped = (int)(sizeof models / sizeof *models);
    else
        for (size_t i = 0; i < sizeof models / sizeof *models; i++) check_full(folder, &models[i]);
    printf("checkfull: %d passed, %d failed, %d skipped%s\n", check_passed, check_failed, n_skipped,
           folder ? "" : " (DARKROOM_FULL names no folder of full-size checkpoints)");
    return check_failed != 0;
}
