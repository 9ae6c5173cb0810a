/* batch_words.h - settings of one job: by name, and as words behind a prompt. */
/* SPDX-License-Identifier: MIT */
#ifndef CLI_BATCH_WORDS_H
#define CLI_BATCH_WORDS_H

#include "options.h"

/*
 * A line of text is
 *     prompt { --option [value] }
 * The prompt is everything before the first "--" that begins a word and is followed by a letter, as
 * it stands: quotes and apostrophes are characters. Behind it there are words. A double quote
 * encloses blanks, a single quote does where it begins a word and another one ends a word ("it's"
 * needs no care), and a backslash takes away the next character's meaning (within double quotes
 * only that of " and \). --prompt and --negative take all words up to the next option.
 *
 * That is also the form that A1111's "prompts from file" reads, where every line begins with --.
 * Its tags that are not options here are understood as far as darkroom can do what they say, and
 * refused otherwise.
 */
bool batch_words_apply(const char *line, struct request *request, struct dk_error *err);

/* One setting by its name; value is NULL for a flag without one. */
bool batch_set(struct request *request, const char *name, const char *value, struct dk_error *err);
/* Members of a JSON object; "seeds" may be an array and "matrix" an object of arrays. */
bool batch_set_json(struct request *request, const json_t *object, struct dk_error *err);
/* True if batch_set knows the name. */
bool batch_knows(const char *name);

#endif
