/* tokenizer.c - CLIP's byte-level BPE. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/pieces.h"
#include "pipeline/vocabulary.h"

#include <stdlib.h>
#include <string.h>

#define MAX_TEXT_BYTES ((size_t)64 << 20)

int tokenizer_byte(int order, uint32_t *character)
{
    static const struct {
        int first, count;
    } ranges[] = {{0x21, 94}, {0xA1, 12}, {0xAE, 82}, {0x00, 33}, {0x7F, 34}, {0xAD, 1}};
    const int n_printable = 94 + 12 + 82;
    int rest = order;
    size_t r = 0;
    while (r + 1 < sizeof ranges / sizeof *ranges && rest >= ranges[r].count)
        rest -= ranges[r++].count;
    int byte = ranges[r].first + rest;
    *character = (uint32_t)(order < n_printable ? byte : 0x100 + order - n_printable);
    return byte;
}

void tokenizer_free(struct tokenizer *tokenizer)
{
    if (!tokenizer) return;
    free(tokenizer->merges);
    free(tokenizer->start.text);
    free(tokenizer->end.text);
    free(tokenizer);
}

int32_t tokenizer_start(const struct tokenizer *tokenizer)
{
    return tokenizer->start.id;
}
int32_t tokenizer_end(const struct tokenizer *tokenizer)
{
    return tokenizer->end.id;
}
int64_t tokenizer_vocabulary(const struct tokenizer *tokenizer)
{
    return tokenizer->n_vocabulary;
}
int32_t tokenizer_pad(const struct tokenizer *tokenizer)
{
    return tokenizer->pad;
}

/*
 * The symbols of a piece are a linked list in arrays; candidates for merging wait in a binary heap,
 * smallest rank first, then leftmost. A candidate is (rank << 32 | position of the left symbol).
 * One whose symbols have changed meanwhile is recognised when it comes up, so nothing is ever
 * searched: a piece of n bytes takes n log n.
 */
struct encoder {
    const struct tokenizer *t;
    int32_t *symbol, *next, *previous; /* [capacity]; next and previous are -1 at the ends */
    uint64_t *heap; /* [3 * capacity]: n - 1 pairs at first, at most 2 new ones a merge */
    size_t n_heap, capacity;
    int32_t *ids;
    size_t n_ids, ids_capacity;
};

static bool encoder_reserve(struct encoder *e, size_t n)
{
    if (n <= e->capacity) return true;
    size_t capacity = e->capacity ? e->capacity : 64;
    while (capacity < n) capacity *= 2;
    int32_t *symbol = realloc(e->symbol, 3 * capacity * sizeof *symbol);
    if (symbol) e->symbol = symbol;
    uint64_t *heap = realloc(e->heap, 3 * capacity * sizeof *heap);
    if (heap) e->heap = heap;
    if (!symbol || !heap) return false;
    e->next = symbol + capacity;
    e->previous = symbol + 2 * capacity;
    e->capacity = capacity;
    return true;
}

static void heap_push(struct encoder *e, uint64_t value)
{
    size_t i = e->n_heap++;
    for (; i > 0 && e->heap[(i - 1) / 2] > value; i = (i - 1) / 2)
        e->heap[i] = e->heap[(i - 1) / 2];
    e->heap[i] = value;
}

static uint64_t heap_pop(struct encoder *e)
{
    uint64_t top = e->heap[0], value = e->heap[--e->n_heap];
    size_t i = 0;
    for (size_t child = 1; child < e->n_heap; child = 2 * i + 1) {
        if (child + 1 < e->n_heap && e->heap[child + 1] < e->heap[child]) child++;
        if (value <= e->heap[child]) break;
        e->heap[i] = e->heap[child];
        i = child;
    }
    e->heap[i] = value;
    return top;
}

/* The merge of the symbol at i with the one after it; NULL where there is none. */
static const struct merge *merge_at(const struct encoder *e, int32_t i)
{
    if (i < 0 || e->symbol[i] < 0 || e->next[i] < 0) return NULL;
    const struct merge *merge = merge_find(e->t, e->symbol[i], e->symbol[e->next[i]]);
    return merge->id >= 0 ? merge : NULL;
}

static void candidate_push(struct encoder *e, int32_t i)
{
    const struct merge *merge = merge_at(e, i);
    if (merge) heap_push(e, (uint64_t)merge->rank << 32 | (uint32_t)i);
}

static void merge_apply(struct encoder *e, int32_t i, const struct merge *merge)
{
    int32_t gone = e->next[i], after = e->next[gone];
    e->symbol[i] = merge->id;
    e->symbol[gone] = -1;
    e->next[i] = after;
    if (after >= 0) e->previous[after] = i;
    candidate_push(e, e->previous[i]);
    candidate_push(e, i);
}

static bool id_put(struct encoder *e, int32_t id)
{
    if (e->n_ids == e->ids_capacity) {
        size_t capacity = e->ids_capacity ? 2 * e->ids_capacity : 128;
        int32_t *ids = realloc(e->ids, capacity * sizeof *ids);
        if (!ids) return false;
        e->ids = ids;
        e->ids_capacity = capacity;
    }
    e->ids[e->n_ids++] = id;
    return true;
}

static bool piece_encode(void *user, const unsigned char *bytes, size_t n_bytes,
                         struct dk_error *err)
{
    struct encoder *e = user;
    if (!encoder_reserve(e, n_bytes)) {
        return dk_fail(err, DK_ERROR_MEMORY, "prompt: no memory for a word of %zu bytes", n_bytes);
    }
    int32_t n = (int32_t)n_bytes; /* in range: MAX_TEXT_BYTES, and NFC triples at most */
    for (int32_t i = 0; i < n; i++) {
        e->symbol[i] = e->t->byte_id[i + 1 == n][bytes[i]];
        e->next[i] = i + 1 < n ? i + 1 : -1;
        e->previous[i] = i - 1;
    }
    e->n_heap = 0;
    for (int32_t i = 0; i + 1 < n; i++) candidate_push(e, i);
    while (e->n_heap) {
        uint64_t top = heap_pop(e);
        int32_t i = (int32_t)(top & 0xFFFFFFFFu);
        const struct merge *merge = merge_at(e, i);
        if (merge && (uint64_t)merge->rank == top >> 32) merge_apply(e, i, merge);
    }
    for (int32_t i = 0; i >= 0; i = e->next[i]) {
        if (!id_put(e, e->symbol[i]))
            return dk_fail(err, DK_ERROR_MEMORY, "prompt: no memory for its tokens");
    }
    return true;
}

/* The special token at text, or NULL: the longer one where one begins with the other. */
static const struct special *special_at(const struct tokenizer *t, const char *text, size_t n_bytes)
{
    const struct special *found = NULL;
    const struct special *const specials[] = {&t->start, &t->end};
    for (int i = 0; i < 2; i++) {
        size_t n = specials[i]->n_bytes;
        if (n <= n_bytes && (!found || n > found->n_bytes) &&
            memcmp(text, specials[i]->text, n) == 0) {
            found = specials[i];
        }
    }
    return found;
}

static bool text_encode(struct encoder *e, const char *text, size_t n_bytes, size_t *n_replaced,
                        struct dk_error *err)
{
    size_t begin = 0;
    for (size_t i = 0; i <= n_bytes;) {
        const struct special *special =
            i < n_bytes ? special_at(e->t, text + i, n_bytes - i) : NULL;
        if (!special && i < n_bytes) {
            i++;
            continue;
        }
        if (!pieces_each(text + begin, i - begin, piece_encode, e, n_replaced, err)) return false;
        if (!special) break;
        if (!id_put(e, special->id))
            return dk_fail(err, DK_ERROR_MEMORY, "prompt: no memory for its tokens");
        begin = i += special->n_bytes;
    }
    return true;
}

bool tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t n_bytes,
                      int32_t **ids, size_t *n_ids, size_t *n_replaced, struct dk_error *err)
{
    struct encoder e = {.t = tokenizer};
    size_t replaced = 0;
    *ids = NULL;
    *n_ids = 0;
    if (n_bytes > MAX_TEXT_BYTES) {
        return dk_fail(err, DK_ERROR_ARGUMENT,
                       "prompt: a text of %zu bytes is too long, at most %zu are taken", n_bytes,
                       MAX_TEXT_BYTES);
    }
    bool ok = text_encode(&e, n_bytes ? text : "", n_bytes, &replaced, err);
    if (ok && !e.ids) { /* no token: still something to free() */
        e.ids = malloc(sizeof *e.ids);
        ok = e.ids || dk_fail(err, DK_ERROR_MEMORY, "prompt: no memory for its tokens");
    }
    free(e.symbol);
    free(e.heap);
    if (!ok) {
        free(e.ids);
        return false;
    }
    *ids = e.ids;
    *n_ids = e.n_ids;
    if (n_replaced) *n_replaced = replaced;
    return true;
}
