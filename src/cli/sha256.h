/* sha256.h - SHA-256 (FIPS 180-4), for fingerprints. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_SHA256_H
#define CLI_SHA256_H

#include <stddef.h>
#include <stdint.h>

struct sha256 {
    uint32_t state[8];
    uint64_t n_bytes;
    unsigned char block[64];
};
void sha256_start(struct sha256 *sha);
void sha256_add(struct sha256 *sha, const void *bytes, size_t n_bytes);
/* hex receives 64 digits and a NUL. */
void sha256_finish(struct sha256 *sha, char hex[65]);

#endif
