/* text.c - from a prompt to what conditions the U-Net. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/text.h"

#include "pipeline/prompt.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CACHE_ENTRIES 64 /* a batch alternates between few texts; a context of SDXL is 0.6 MB */

struct cache_entry {
    char *prompt; /* NULL: a free place */
    struct text_request key;
    float *context, *pooled;
    unsigned long last_use;
};

struct text_cache {
    struct cache_entry entries[CACHE_ENTRIES];
    unsigned long clock;
};

int64_t text_width(const struct text_encoders *e)
{
    int64_t width = 0;
    for (int i = 0; i < e->n_items; i++) width += clip_width(e->items[i].clip);
    return width;
}

int64_t text_tokens(const struct text_encoders *e)
{
    return clip_tokens(e->items[0].clip);
}

int64_t text_pooled_width(const struct text_encoders *e)
{
    return e->n_items > 1 ? clip_projection(e->items[1].clip) : 0;
}

static void entry_free(struct cache_entry *entry)
{
    free(entry->prompt);
    free(entry->context);
    free(entry->pooled);
    *entry = (struct cache_entry){0};
}

void text_encoders_close(struct text_encoders *e)
{
    for (int i = 0; e->cache && i < CACHE_ENTRIES; i++) entry_free(&e->cache->entries[i]);
    free(e->cache);
    for (int i = 0; i < e->n_items; i++) {
        clip_free(e->items[i].clip);
        tokenizer_free(e->items[i].tokenizer);
    }
    *e = (struct text_encoders){0};
}

static bool parse(const struct text_encoders *e, int i, const char *prompt, bool syntax,
                  struct prompt *out, struct dk_error *err)
{
    return prompt_chunks(e->items[i].tokenizer, prompt, strlen(prompt), syntax, text_tokens(e),
                         e->items[i].pad_id, out, err);
}

bool text_count_chunks(const struct text_encoders *e, const char *prompt, bool syntax,
                       size_t *n_chunks, void (*warn)(void *user, const char *sentence), void *user,
                       struct dk_error *err)
{
    *n_chunks = 1;
    for (int i = 0; i < e->n_items; i++) {
        struct prompt parsed;
        if (!parse(e, i, prompt, syntax, &parsed, err)) return false;
        if (parsed.n_chunks > *n_chunks) *n_chunks = parsed.n_chunks;
        for (size_t j = 0; warn && i == 0 && j < parsed.n_warnings; j++)
            warn(user, parsed.warnings[j]);
        prompt_free(&parsed);
    }
    return true;
}

/* hidden [n_chunks, tokens, width] times the weights of its tokens, each chunk's mean kept. */
static void apply_weights(struct tensor hidden, const float *weights)
{
    int64_t tokens = hidden.dim[1], width = hidden.dim[2];
    for (int64_t chunk = 0; chunk < hidden.dim[0]; chunk++) {
        float *state = hidden.data + chunk * tokens * width;
        const float *w = weights + chunk * tokens;
        double before = 0, after = 0;
        for (int64_t t = 0; t < tokens; t++) {
            double sum = 0;
            for (int64_t c = 0; c < width; c++) sum += (double)state[t * width + c];
            before += sum;
            after += sum * (double)w[t];
            for (int64_t c = 0; c < width; c++) state[t * width + c] *= w[t];
        }
        float scale = (float)(before / after);
        if (!isfinite(scale)) continue; /* a mean of zero cannot be kept */
        for (int64_t j = 0; j < tokens * width; j++) state[j] *= scale;
    }
}

/* The tokens of a text by encoder i, padded to its chunks.
 * Free with prompt_free, also on failure. */
static bool tokens_of(const struct text_encoders *e, int i, const struct cache_entry *entry,
                      struct prompt *out, struct dk_error *err)
{
    *out = (struct prompt){0};
    return parse(e, i, entry->key.prompt, entry->key.syntax, out, err) &&
           prompt_pad(out, entry->key.n_chunks, err);
}

/* One text's part of the output of encoder i: its columns of context, and pooled if it is the
 * second. */
static void keep_output(const struct text_encoders *e, int i, struct cache_entry *entry,
                        struct tensor hidden, const float *pooled, int64_t column)
{
    int64_t width = hidden.dim[2], rows = hidden.dim[0] * hidden.dim[1];
    for (int64_t r = 0; r < rows; r++)
        memcpy(entry->context + r * text_width(e) + column, hidden.data + r * width,
               (size_t)width * sizeof(float));
    if (i == 1) memcpy(entry->pooled, pooled, (size_t)text_pooled_width(e) * sizeof(float));
}

/* Encoder i over n texts of as many chunks and as deep as the first, in one pass. */
static bool run_encoder(struct text_encoders *e, int i, struct ops *o, struct cache_entry **entries,
                        size_t n, int64_t column, struct dk_error *err)
{
    size_t n_chunks = entries[0]->key.n_chunks, row = n_chunks * (size_t)text_tokens(e);
    struct prompt prompts[TEXT_MAX_TOGETHER] = {{0}};
    int32_t *ids = malloc(n * row * sizeof *ids);
    bool good = ids || dk_fail(err, DK_ERROR_MEMORY, "prompt: out of memory for %zu texts", n);
    for (size_t k = 0; good && k < n; k++) {
        good = tokens_of(e, i, entries[k], &prompts[k], err);
        if (good) memcpy(ids + k * row, prompts[k].ids, row * sizeof *ids);
    }
    bool two = e->n_items > 1;
    struct clip_output out = {0};
    good = good && clip_forward(e->items[i].clip, o, ids, (int64_t)(n * n_chunks), text_tokens(e),
                                entries[0]->key.clip_skip + (two ? 1 : 0), !two, i == 1, &out);
    for (size_t k = 0; good && k < n; k++) {
        struct tensor hidden = out.hidden; /* [n_chunks, tokens, width] of this text */
        hidden.dim[0] = (int64_t)n_chunks;
        hidden.data += (int64_t)(k * row) * hidden.dim[2];
        const float *pooled =
            i == 1 ? out.pooled.data + (int64_t)(k * n_chunks) * out.pooled.dim[1] : NULL;
        if (prompts[k].weighted) apply_weights(hidden, prompts[k].weights);
        keep_output(e, i, entries[k], hidden, pooled, column);
    }
    for (size_t k = 0; k < n; k++) prompt_free(&prompts[k]);
    free(ids);
    return good;
}

static bool encode(struct text_encoders *e, struct ops *o, struct cache_entry **entries, size_t n,
                   struct dk_error *err)
{
    size_t values = entries[0]->key.n_chunks * (size_t)text_tokens(e) * (size_t)text_width(e);
    for (size_t k = 0; k < n; k++) {
        entries[k]->context = calloc(values, sizeof(float));
        if (text_pooled_width(e) > 0)
            entries[k]->pooled = calloc((size_t)text_pooled_width(e), sizeof(float));
        if (!entries[k]->context || (text_pooled_width(e) > 0 && !entries[k]->pooled))
            return dk_fail(err, DK_ERROR_MEMORY, "prompt: out of memory for %zu chunks of text",
                           entries[0]->key.n_chunks);
    }
    int64_t column = 0;
    for (int i = 0; i < e->n_items; i++) {
        size_t mark = arena_mark(o->arena);
        bool good = run_encoder(e, i, o, entries, n, column, err);
        arena_reset(o->arena, mark);
        if (!good) return false;
        column += clip_width(e->items[i].clip);
    }
    return true;
}

static bool same_key(const struct text_request *a, const struct text_request *b)
{
    return a->syntax == b->syntax && a->clip_skip == b->clip_skip && a->n_chunks == b->n_chunks &&
           strcmp(a->prompt, b->prompt) == 0;
}

/* The entry of this text; a new one has no context yet. NULL when memory is out. */
static struct cache_entry *cache_entry(struct text_cache *cache, const struct text_request *key)
{
    struct cache_entry *oldest = &cache->entries[0];
    for (int i = 0; i < CACHE_ENTRIES; i++) {
        struct cache_entry *entry = &cache->entries[i];
        if (entry->prompt && same_key(&entry->key, key)) return entry;
        if (entry->last_use < oldest->last_use) oldest = entry;
    }
    entry_free(oldest);
    oldest->prompt = strdup(key->prompt);
    oldest->key = *key;
    oldest->key.prompt = oldest->prompt;
    return oldest->prompt ? oldest : NULL;
}

/* Takes from fresh[0 .. *n) those that can run with the last one; the others move down. */
static size_t take_alike(struct cache_entry **fresh, size_t *n, struct cache_entry **alike)
{
    const struct text_request *key = &fresh[*n - 1]->key;
    size_t n_alike = 0, n_left = 0;
    for (size_t k = 0; k < *n; k++) {
        bool fits =
            fresh[k]->key.clip_skip == key->clip_skip && fresh[k]->key.n_chunks == key->n_chunks;
        if (fits)
            alike[n_alike++] = fresh[k];
        else
            fresh[n_left++] = fresh[k];
    }
    *n = n_left;
    return n_alike;
}

bool text_encode(struct text_encoders *e, struct ops *o, const struct text_request *requests,
                 size_t n, struct text *texts, struct dk_error *err)
{
    struct cache_entry *entries[TEXT_MAX_TOGETHER], *fresh[TEXT_MAX_TOGETHER],
        *alike[TEXT_MAX_TOGETHER];
    size_t n_fresh = 0;
    if (!e->cache) e->cache = calloc(1, sizeof *e->cache);
    bool good = e->cache != NULL;
    for (size_t k = 0; good && k < n; k++) {
        entries[k] = cache_entry(e->cache, &requests[k]);
        good = entries[k] != NULL;
        if (!good) break;
        bool seen = entries[k]->context != NULL;
        for (size_t j = 0; j < n_fresh; j++) seen = seen || fresh[j] == entries[k];
        if (!seen) fresh[n_fresh++] = entries[k];
        entries[k]->last_use = ++e->cache->clock;
    }
    while (good && n_fresh > 0) {
        size_t n_alike = take_alike(fresh, &n_fresh, alike);
        good = encode(e, o, alike, n_alike, err);
        for (size_t k = 0; !good && k < n_alike; k++) entry_free(alike[k]);
    }
    for (size_t k = 0; !good && k < n_fresh; k++) entry_free(fresh[k]);
    if (!good) return dk_fail(err, DK_ERROR_MEMORY, "prompt: out of memory");
    for (size_t k = 0; k < n; k++)
        texts[k] = (struct text){entries[k]->context, entries[k]->pooled, requests[k].n_chunks};
    return true;
}
