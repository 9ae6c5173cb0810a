/* identity.h - which model made a picture: a name and a fingerprint of its files. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_IDENTITY_H
#define CLI_IDENTITY_H

#include "options.h"

/*
 * Reading all of a 4 GB file for every picture would cost more than the picture, so a fingerprint
 * samples: SHA-256 over each file's name, its size, its first and last 64 KiB and 64 blocks of 4
 * KiB spread evenly between. Two models that differ by training differ in practically every block.
 * docs/metadata.md has the exact definition. It tells models apart; it does not protect against
 * somebody who wants two to look alike.
 */
#define FINGERPRINT_BYTES 33 /* 32 hexadecimal digits and a NUL */

/* Over the model (a file or a folder) and the parts the request replaces. False when a file cannot
 * be read. */
bool identity_fingerprint(const char *model_path, const struct request *request,
                          char hex[FINGERPRINT_BYTES], struct dk_error *err);

/* The last part of a path without ".safetensors" and the like: what A1111 writes after "Model:".
 * Free it. */
char *identity_name(const char *path);

/*
 * What decides a picture, as one line of JSON: its resolved settings and the model's fingerprint. What is as
 * it is without a word is left out, so that an option to come changes nothing. Free it.
 */
char *identity_of_picture(const struct request *request, const char *fingerprint);

/* 32 hexadecimal digits of SHA-256 over both texts, one behind the other. */
#define IDENTITY_BYTES 33
void identity_hash(const char *text, const char *more, char id[IDENTITY_BYTES]);

#endif
