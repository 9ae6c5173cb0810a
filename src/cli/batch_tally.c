/* batch_tally.c - a number for each of many strings. */
/* SPDX-License-Identifier: MIT */
#include "batch_tally.h"

#include "text.h"

#include <stdlib.h>
#include <string.h>

struct tally_slot {
    char *key;
    size_t number;
};

/* FNV-1a. Keys are prompts and file names of the user's own;
 * nobody gains by making them collide. */
static size_t hash(const char *key)
{
    uint64_t h = 14695981039346656037u;
    for (; *key; key++) h = (h ^ (unsigned char)*key) * 1099511628211u;
    return (size_t)(h ^ (h >> 32));
}

static struct tally_slot *find(struct tally_slot *slots, size_t n_slots, const char *key)
{
    size_t i = hash(key) & (n_slots - 1);
    while (slots[i].key && strcmp(slots[i].key, key) != 0) i = (i + 1) & (n_slots - 1);
    return &slots[i];
}

static void grow(struct tally *tally)
{
    size_t n_slots = tally->n_slots ? 2 * tally->n_slots : 256;
    struct tally_slot *slots = text_alloc(n_slots * sizeof *slots);
    for (size_t i = 0; i < tally->n_slots; i++)
        if (tally->slots[i].key) *find(slots, n_slots, tally->slots[i].key) = tally->slots[i];
    free(tally->slots);
    tally->slots = slots;
    tally->n_slots = n_slots;
}

size_t *tally_at(struct tally *tally, const char *key)
{
    if (2 * tally->n_used >= tally->n_slots) grow(tally);
    struct tally_slot *slot = find(tally->slots, tally->n_slots, key);
    if (!slot->key) {
        slot->key = text_copy(key);
        tally->n_used++;
    }
    return &slot->number;
}

size_t tally_get(const struct tally *tally, const char *key)
{
    return tally->n_slots ? find(tally->slots, tally->n_slots, key)->number : 0;
}

void tally_free(struct tally *tally)
{
    for (size_t i = 0; i < tally->n_slots; i++) free(tally->slots[i].key);
    free(tally->slots);
    *tally = (struct tally){NULL, 0, 0};
}
