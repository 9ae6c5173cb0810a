/* dynamic.h - one template, many prompts. */
/* SPDX-License-Identifier: MIT */
#ifndef PIPELINE_DYNAMIC_H
#define PIPELINE_DYNAMIC_H

#include "base/error.h"

/*
 * The public functions are dk_expand_prompt and dk_expand_all (include/darkroom.h). The language,
 * after sd-dynamic-prompts:
 *
 *     template  = { character | escape | choice | wildcard }
 *     escape    = "\{" "\}" "\|" "\_"   the character; every other backslash is left to prompt.c
 *     choice    = "{" [ count "$$" [ separator "$$" ] ] option { "|" option } "}"
 *     count     = N | N "-" M | N "-" | "-" M    how many different options; without it: one
 *     option    = [ weight "::" ] template       may be empty; weight 1 without, 0: never
 *     wildcard  = "__" name "__"                 one line of name.txt in the folder of wildcards
 *
 * Without a count the option stands as it was written, spaces included. With one, the options
 * picked are trimmed, empty ones are left out and the others joined with the separator (", " unless
 * given); a count before a single wildcard picks from its lines. Lines are options: weights and
 * nesting work, blank ones and those beginning with # are none. name is made of one or more parts
 * with "/" between; none begins with a dot, and the file must lie in the folder.
 *
 * Choices come from splitmix64, seeded with the picture's seed and read from left to right: at each
 * choice, first the count if it is a range, then for each option in turn the pick and what is
 * chosen within it. A pick of n > 1 takes one output, u = (output >> 11) / 2^53, and is the first
 * option whose summed weight is above u times the total. This never changes: a seed that once gave
 * a prompt always will.
 */

#define DYNAMIC_MAX_DEPTH          64 /* choices and wildcards in each other */
#define DYNAMIC_MAX_PROMPT_BYTES   ((size_t)1 << 20)
#define DYNAMIC_MAX_ALL_BYTES      ((size_t)1 << 28) /* of all prompts of one template */
#define DYNAMIC_MAX_WILDCARD_BYTES ((size_t)1 << 24)
/* For one prompt: a unit for each option looked at and this much for each choice. */
#define DYNAMIC_MAX_WORK    ((size_t)1 << 24)
#define DYNAMIC_CHOICE_WORK ((size_t)1 << 8)

#endif
