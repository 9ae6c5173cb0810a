/* compare_truth.h - what a picture should show, by the art that the model brings. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_COMPARE_TRUTH_H
#define CLI_COMPARE_TRUTH_H

#include "compare_caption.h"

/*
 * A model's folder may hold references.png (models/train/references.py describes and writes it):
 * the art of every object it was trained on, and the words, colours and layouts of its captions.
 *
 *     prompt ──> object, layout, place, style, colour ──> the true picture of it, of every object
 *     picture ─────────────────────────────────────────────┴──> which is nearest?
 *
 * Both are compared at GRID x GRID pixels after the same low pass (a binomial filter over 3 x 3,
 * twice): the smallest root mean square over all three channels when the true picture is moved by
 * up to SHIFT pixels of the grid, since training moved it about, too. Of two objects side by side
 * each half of the picture is judged alone.
 */
struct truth;

#define TRUTH_NAME "references.png"

/* NULL and no error where the model has no such file. */
struct truth *truth_open(const char *model, struct dk_error *err);
void truth_free(struct truth *truth);

struct truth_answer {
    int background; /* 1: the corners are nearest to the named colour, 0: not; -1: not known */
    size_t rank;    /* of the named object, 1: nearest; of two the worse; 0: the prompt is not
                       understood, or the picture no square */
    const char *nearest[CAPTION_OBJECTS]; /* names; NULL beyond the prompt's objects */
};
void truth_judge(const struct truth *truth, const char *prompt, const struct dk_image *image,
                 struct truth_answer *answer);

#endif
