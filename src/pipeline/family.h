/* family.h - the table of model families: what a row of numbers does not carry in its files. */
/* SPDX-License-Identifier: MIT */
#ifndef PIPELINE_FAMILY_H
#define PIPELINE_FAMILY_H

#include <stdbool.h>
#include <stdint.h>

/* What a family is recognised by: numbers of the networks, not names of files. */
struct family_traits {
    int64_t context_width;  /* of the U-Net */
    int64_t pooled_width;   /* 0: no added text embedding */
    int64_t guidance_width; /* time_cond_proj_dim; 0: none */
    int64_t vocabulary;     /* of the first text encoder */
    bool one_step;          /* the scheduler config is the few-step one of the Turbo models */
};

struct family {
    const char *name;
    struct family_traits traits; /* 0 or false matches anything */
    int native_px;               /* where no config says */
    int n_steps;                 /* defaults of the family's own examples */
    double guidance;
    bool zero_negative; /* an absent negative prompt is a zero context, not the encoding of "" */
};

/* The first row that fits; the last row fits everything. */
const struct family *family_find(const struct family_traits *traits);

#endif
