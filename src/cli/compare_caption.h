/* compare_caption.h - what a prompt asks for, in the words of a model's captions. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_COMPARE_CAPTION_H
#define CLI_COMPARE_CAPTION_H

#include "darkroom.h"

#include <jansson.h>

/*
 * The words and layouts of the model's references.png (compare_truth.h), checked while reading:
 *
 *     "a small fox in the top left on a blue background"
 *        layout  object      place        colour
 */
#define CAPTION_OBJECTS 2  /* of one prompt, at most */
#define CAPTION_WORD    80 /* bytes */
#define CAPTION_NAMES   16 /* of an object; of their plurals */
#define CAPTION_NONE    ((size_t)-1)

enum style { STYLE_OWN, STYLE_GRAY, STYLE_SILHOUETTE };
enum layout { PLAIN, LARGE, SMALL, PAIR, TWO, N_LAYOUTS };

struct point {
    double x, y; /* pixels of the canvas */
};
struct layout_data {
    double size;                      /* of an object */
    struct point at[CAPTION_OBJECTS]; /* centres */
    size_t n_at;                      /* 0: where the prompt says */
    const char *words[8];             /* that ask for it: "large" */
    size_t n_words;
};
struct object {
    const char *names[CAPTION_NAMES], *plurals[CAPTION_NAMES];
    size_t n_names, n_plurals;
};

struct captions {
    double canvas; /* side of the pictures trained on */
    struct object *objects;
    size_t n_objects;
    const char *colours[64];
    double rgb[64][3]; /* 0 to 255 */
    size_t n_colours;
    struct layout_data layouts[N_LAYOUTS];
    const char *places[32];
    struct point place_at[32];
    size_t n_places;
    const char *styles[8];
    enum style style_kinds[8];
    size_t n_styles;
    const char *fault; /* the key of the text that is not as expected; NULL: none */
};

/* False when root is not such a text. The words stay root's; free what was read either way. */
bool captions_read(struct captions *captions, const json_t *root);
void captions_free(struct captions *captions);

struct caption {
    size_t n, objects[CAPTION_OBJECTS];
    enum layout layout;
    struct point at; /* of a small one */
    enum style style;
    size_t colour;
};
/* False when the prompt is no caption of the kind the model was trained on; nothing named is white.
 */
bool caption_read(const struct captions *captions, const char *prompt, struct caption *caption);
/* The colour before the word background, anywhere in the prompt; CAPTION_NONE: there is none. */
size_t caption_background(const struct captions *captions, const char *prompt);

#endif
