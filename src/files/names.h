/* names.h - every spelling of tensor names into the diffusers one. */
/* SPDX-License-Identifier: MIT */
#ifndef FILES_NAMES_H
#define FILES_NAMES_H

#include "files/container.h"

/*
 * Renames the tensors of freshly read weights in place, drops what is known not to be needed, and
 * tells what kind of file it is. A checkpoint's names afterwards begin with the part: "unet.",
 * "vae.", "text_encoder.", "text_encoder_2.". Families that are not supported are refused by name.
 */
bool names_translate(struct weights *w, struct dk_error *err);

#endif
