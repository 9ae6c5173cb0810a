/* png.c - fuzz target: PNG files and their text chunks. */
/* SPDX-License-Identifier: MIT */
#include "files/png.h"
#include "fuzz.h"

static void fuzz_png(const uint8_t *data, size_t size_bytes)
{
    struct dk_error err = {0};
    struct dk_image image;
    struct dk_texts texts;
    struct map map = fuzz_map(data, size_bytes);
    bool ok = fuzz_said(png_read_map("picture.png", &map, &image, &texts, &err), &err);
    if (ok != (image.rgb != NULL)) abort();
    for (size_t i = 0; i < texts.n_items; i++)
        if (strlen(texts.items[i].keyword) == 0 || !texts.items[i].text) abort();
    dk_image_free(&image);
    dk_texts_free(&texts);
    fuzz_unmap(map);
}
