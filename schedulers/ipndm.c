/* ipndm.c - iPNDM: PLMS without its extra call. */
/* SPDX-License-Identifier: MIT */

/*
 * Zhang and Chen 2022, arXiv:2204.13902, section 4 ("improved PNDM").
 *
 * The slopes d = (x - x0) / sigma of the last steps, combined with the weights of Adams and
 * Bashforth for even steps:
 *
 *     x' = x + (sigma' - sigma) E
 *     E  = d,  (3 d - d1) / 2,  (23 d - 16 d1 + 5 d2) / 12,  (55 d - 59 d1 + 37 d2 - 9 d3) / 24
 *
 * The orders rise with the first four steps, so N steps are N calls. On uneven grids the weights
 * are not quite right and the order is 2; lms.c has the right ones. When to use it: 10 to 20
 * steps, Karras or polynomial schedules.
 */
#include "common.h"

enum { RING = 4 };

static void step(struct dk_step *s)
{
    static const double WEIGHTS[4][4] = {{1},
                                         {3 / 2.0, -1 / 2.0},
                                         {23 / 12.0, -16 / 12.0, 5 / 12.0},
                                         {55 / 24.0, -59 / 24.0, 37 / 24.0, -9 / 24.0}};
    int order = dk_this_call(s)->step < RING ? dk_this_call(s)->step + 1 : RING;
    double h = dk_next(s).sigma - dk_here(s).sigma;
    dk_keep(s, RING, s->eps);
    for (int j = 0; j < order; j++)
        dk_add(s->x, h * WEIGHTS[order - 1][j], dk_past(s, RING, j), s->n);
}

const struct dk_scheduler dk_scheduler_ipndm = {
    DK_SCHEDULER_HEAD,
    .name = "ipndm",
    .title = "iPNDM",
    .aliases = "IPNDMScheduler",
    .summary = "PLMS without its extra pass; 10 to 20 steps",
    .paper = "Zhang and Chen 2022, arXiv:2204.13902",
    .order = 2,
    .passes_per_step = 1,
    .flags = DK_EXPLODING,
    .steps_low = 10,
    .steps_high = 20,
    .spacing = DK_LINSPACE,
    .n_vectors = RING,
    .step = step,
};
DK_SCHEDULER_PLUGIN(dk_scheduler_ipndm)
