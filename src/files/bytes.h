/* bytes.h - reading numbers from a byte range without ever leaving it. */
/* SPDX-License-Identifier: MIT */
#ifndef FILES_BYTES_H
#define FILES_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A place in a byte range. Reading beyond the end gives zeros, stays where it is and sets failed,
 * so that a reader may take several numbers and look once.
 */
struct bytes {
    const unsigned char *data;
    size_t size_bytes, at;
    bool failed;
};

/* The next n bytes, which are passed over; NULL (and failed) if there are fewer. */
static inline const unsigned char *bytes_take(struct bytes *b, uint64_t n)
{
    if (b->failed || n > b->size_bytes - b->at) {
        b->failed = true;
        return NULL;
    }
    const unsigned char *p = b->data + b->at;
    b->at += (size_t)n;
    return p;
}

/* Little-endian unsigned number of n bytes, 1 to 8. */
static inline uint64_t bytes_number(struct bytes *b, int n)
{
    const unsigned char *p = bytes_take(b, (uint64_t)n);
    uint64_t value = 0;
    for (int i = n - 1; p && i >= 0; i--) value = value << 8 | p[i];
    return value;
}

static inline uint32_t bytes_u32(struct bytes *b)
{
    return (uint32_t)bytes_number(b, 4);
}

static inline uint64_t bytes_u64(struct bytes *b)
{
    return bytes_number(b, 8);
}

#endif
