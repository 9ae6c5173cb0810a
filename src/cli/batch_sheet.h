/* batch_sheet.h - the contact sheet: all pictures of a folder on one page. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_BATCH_SHEET_H
#define CLI_BATCH_SHEET_H

#include "batch_manifest.h"

/*
 * FOLDER/index.html shows the pictures with prompt, seed and settings, by their index, without
 * anything from outside the folder; FOLDER/contact.png (contact-2.png, ...) is the same as a
 * picture. Neither holds a date or a path: the same pictures make the same sheet. A sheet of other
 * pictures is replaced, one of the same is left alone.
 */
bool sheet_write(const char *folder, const struct manifest *manifest, struct dk_error *err);

#endif
