/* batch_tally.h - a number for each of many strings. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_BATCH_TALLY_H
#define CLI_BATCH_TALLY_H

#include <stddef.h>

/* A hash table with open addressing; zero-initialise. Counts uses of a name, or holds positions. */
struct tally {
    struct tally_slot *slots;
    size_t n_slots, n_used;
};
/* The number that belongs to the key, 0 at first; the pointer is good until the next call. */
size_t *tally_at(struct tally *tally, const char *key);
/* The number, 0 for an unknown key. */
size_t tally_get(const struct tally *tally, const char *key);
void tally_free(struct tally *tally);

#endif
