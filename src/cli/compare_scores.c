/* compare_scores.c - the CLIP scores of a comparison's pictures, each computed once. */
/* SPDX-License-Identifier: MIT */
#include "compare_scores.h"

#include "compare_store.h"
#include "identity.h"
#include "interrupt.h"
#include "sha256.h"
#include "text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SAVE_EVERY 32 /* new scores; a killed run loses as many at most */

struct scores {
    struct dk_clip *clip;
    char fingerprint[FINGERPRINT_BYTES];
    char *folder, *name;
    json_t *known;
    size_t n_new, n_scored;
    void (*tell)(void *user, size_t n_scored);
    void *user;
};

/* Weights that are not numbers are better found now than after all pictures. */
static bool try_out(struct dk_clip *clip, struct dk_error *err)
{
    uint8_t gray[3 * 8 * 8];
    struct dk_image image = {8, 8, gray};
    double score;
    memset(gray, 128, sizeof gray);
    return dk_clip_score(clip, &image, "", false, interrupt_flag(), &score, err);
}

struct scores *scores_open(const struct request *request, void (*tell)(void *user, size_t n_scored),
                           void *user, struct dk_error *err)
{
    struct dk_model_options options = {.n_threads = request->model_options.n_threads,
                                       .max_memory_bytes = request->model_options.max_memory_bytes};
    struct request bare;
    struct scores *s = text_alloc(sizeof *s);
    *s = (struct scores){.tell = tell, .user = user, .known = json_object()};
    request_init(&bare);
    s->clip = dk_clip_open(request->compare.clip, &options, err);
    if (s->clip && try_out(s->clip, err) &&
        identity_fingerprint(request->compare.clip, &bare, s->fingerprint, err))
        return s;
    scores_close(s);
    return NULL;
}

void scores_use_folder(struct scores *s, const char *folder)
{
    size_t n = 0;
    s->folder = text_copy(folder);
    s->name = text_format(STORE_NAME "/clip-%s.json", s->fingerprint);
    char *text = store_read(folder, s->name, &n);
    json_t *known = text ? json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL) : NULL;
    free(text);
    if (json_is_object(known)) {
        json_decref(s->known);
        s->known = known;
    } else {
        json_decref(known);
    }
}

/* A score that cannot be kept is computed again by the next run: no error. */
static void save(struct scores *s)
{
    char *text = s->n_new > 0 && s->folder
                     ? json_dumps(s->known, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17))
                     : NULL;
    struct dk_error ignored = {0};
    if (text) store_write(s->folder, s->name, text, strlen(text), &ignored);
    free(text);
    s->n_new = 0;
}

void scores_close(struct scores *s)
{
    if (!s) return;
    save(s);
    dk_clip_close(s->clip);
    json_decref(s->known);
    free(s->folder);
    free(s->name);
    free(s);
}

static void key_of(const struct dk_settings *settings, const struct dk_image *image, char hex[65])
{
    struct sha256 sha;
    const int facts[] = {image->width_px, image->height_px, settings->prompt_syntax};
    sha256_start(&sha);
    sha256_add(&sha, facts, sizeof facts);
    sha256_add(&sha, settings->prompt, strlen(settings->prompt) + 1);
    sha256_add(&sha, image->rgb, 3 * (size_t)image->width_px * (size_t)image->height_px);
    sha256_finish(&sha, hex);
}

bool scores_of(struct scores *s, const struct dk_settings *settings, const struct dk_image *image,
               double *score, struct dk_error *err)
{
    char key[65];
    key_of(settings, image, key);
    const json_t *known = json_object_get(s->known, key);
    *score = json_is_number(known) ? json_number_value(known) : NAN;
    if (*score >= 0 && *score <= 100) return true;
    *score = NAN;
    s->tell(s->user, s->n_scored++);
    if (!dk_clip_score(s->clip, image, settings->prompt, settings->prompt_syntax, interrupt_flag(),
                       score, err))
        return false;
    json_object_set_new(s->known, key, json_real(*score));
    if (++s->n_new >= SAVE_EVERY) save(s);
    return true;
}
