/* text.c - from a prompt to what conditions the U-Net. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/text.h"

#include "pipeline/prompt.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CACHE_ENTRIES 64 /* a batch alternates between few texts; a context of SDXL is 0.6 MB */

struct cache_entry {
    char *prompt;
    bool syntax;
    int clip_skip;
    size_t n_chunks;
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

/* Encoder i over the prompt: its columns of context [n_chunks * tokens, width], and pooled if it is
 * the second. */
static bool encode_one(struct text_encoders *e, int i, struct ops *o, struct cache_entry *entry,
                       int64_t column, struct dk_error *err)
{
    struct prompt parsed;
    if (!parse(e, i, entry->prompt, entry->syntax, &parsed, err)) return false;
    bool good = prompt_pad(&parsed, entry->n_chunks, err);
    bool two = e->n_items > 1, pool = i == 1;
    struct clip_output out = {0};
    if (good)
        good = clip_forward(e->items[i].clip, o, parsed.ids, (int64_t)parsed.n_chunks,
                            text_tokens(e), entry->clip_skip + (two ? 1 : 0), !two, pool, &out);
    if (good) {
        if (parsed.weighted) apply_weights(out.hidden, parsed.weights);
        int64_t width = out.hidden.dim[2], rows = out.hidden.dim[0] * out.hidden.dim[1];
        for (int64_t r = 0; r < rows; r++)
            memcpy(entry->context + r * text_width(e) + column, out.hidden.data + r * width,
                   (size_t)width * sizeof(float));
        if (pool)
            memcpy(entry->pooled, out.pooled.data, (size_t)text_pooled_width(e) * sizeof(float));
    }
    prompt_free(&parsed);
    return good;
}

static bool encode(struct text_encoders *e, struct ops *o, struct cache_entry *entry,
                   struct dk_error *err)
{
    size_t values = entry->n_chunks * (size_t)text_tokens(e) * (size_t)text_width(e);
    entry->context = calloc(values, sizeof(float));
    if (text_pooled_width(e) > 0)
        entry->pooled = calloc((size_t)text_pooled_width(e), sizeof(float));
    if (!entry->context || (text_pooled_width(e) > 0 && !entry->pooled))
        return dk_fail(err, DK_ERROR_MEMORY, "prompt: out of memory for %zu chunks of text",
                       entry->n_chunks);
    int64_t column = 0;
    for (int i = 0; i < e->n_items; i++) {
        size_t mark = arena_mark(o->arena);
        bool good = encode_one(e, i, o, entry, column, err);
        arena_reset(o->arena, mark);
        if (!good) return false;
        column += clip_width(e->items[i].clip);
    }
    return true;
}

static struct cache_entry *cache_find(struct text_cache *cache, const char *prompt, bool syntax,
                                      int clip_skip, size_t n_chunks)
{
    for (int i = 0; i < CACHE_ENTRIES; i++) {
        struct cache_entry *entry = &cache->entries[i];
        if (entry->prompt && entry->syntax == syntax && entry->clip_skip == clip_skip &&
            entry->n_chunks == n_chunks && strcmp(entry->prompt, prompt) == 0)
            return entry;
    }
    return NULL;
}

/* The entry least recently used, emptied. */
static struct cache_entry *cache_evict(struct text_cache *cache)
{
    struct cache_entry *oldest = &cache->entries[0];
    for (int i = 1; i < CACHE_ENTRIES; i++)
        if (cache->entries[i].last_use < oldest->last_use) oldest = &cache->entries[i];
    entry_free(oldest);
    return oldest;
}

bool text_encode(struct text_encoders *e, struct ops *o, const char *prompt, bool syntax,
                 int clip_skip, size_t n_chunks, struct text *text, struct dk_error *err)
{
    if (!e->cache) e->cache = calloc(1, sizeof *e->cache);
    if (!e->cache) return dk_fail(err, DK_ERROR_MEMORY, "prompt: out of memory");
    struct cache_entry *entry = cache_find(e->cache, prompt, syntax, clip_skip, n_chunks);
    if (!entry) {
        entry = cache_evict(e->cache);
        entry->prompt = strdup(prompt);
        entry->syntax = syntax;
        entry->clip_skip = clip_skip;
        entry->n_chunks = n_chunks;
        if (!entry->prompt || !encode(e, o, entry, err)) {
            entry_free(entry);
            return dk_fail(err, DK_ERROR_MEMORY, "prompt: out of memory");
        }
    }
    entry->last_use = ++e->cache->clock;
    *text = (struct text){entry->context, entry->pooled, n_chunks};
    return true;
}
