/* picture.h - a small picture of a model, for tests that compare two files of the same weights. */
/* SPDX-License-Identifier: MIT */
#ifndef TESTS_PICTURE_H
#define TESTS_PICTURE_H

#include "check.h"
#include "darkroom.h"

/* 64x64 pixels in two steps, to be freed with dk_image_free; a failure is counted. */
static inline bool picture_of(const char *model_path, struct dk_image *image)
{
    struct dk_error err = {0};
    struct dk_settings s;
    dk_settings_default(&s);
    s.prompt = "a house";
    s.n_steps = 2;
    s.width_px = s.height_px = 64;
    struct dk_model *model = dk_model_open(model_path, NULL, &err);
    bool ok = model && dk_render(model, &s, 1, image, NULL, NULL, &err);
    CHECK(ok, "%s: %s", model_path, err.message);
    dk_model_close(model);
    return ok;
}

#endif
