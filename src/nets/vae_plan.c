/* vae_plan.c - in which steps the decoder works: the least arithmetic within a limit of memory. */
/* SPDX-License-Identifier: MIT */
#include "nets/vae_chain.h"
#include "ops/bands.h"

#include <string.h>

/*
 * Winograd tiles a band, and how much dearer than the whole map that makes the arithmetic: filters
 * are transformed for every band, and threads have less to share.
 */
static const struct band_size {
    int64_t tiles;
    double cost;
} SIZES[] = {{1024, 1.03}, {256, 1.08}, {64, 1.25}};
#define N_SIZES  (int)(sizeof SIZES / sizeof *SIZES)
#define BAND_MIN (2 * CONV_ROW_UNIT)

static int64_t band_rows(const struct vae_link *l, int64_t tiles)
{
    int64_t across = (l->w + CONV_ROW_UNIT - 1) / CONV_ROW_UNIT;
    int64_t rows = (tiles + across - 1) / across * CONV_ROW_UNIT;
    return rows < BAND_MIN ? BAND_MIN : rows;
}

/* Way k of a step: 0 whole, then banded from large to small bands. False: there is no such way. */
static bool take_way(const struct vae_chain *chain, struct vae_step *step, int k, double *work)
{
    int from = step->from, to = step->to;
    double sum = 0, passes = 0;
    for (int i = from + 1; i <= to; i++) {
        if (i > from + 1 && chain->links[i].norm) passes += sum;
        sum += vae_chain_work(chain, i);
    }
    step->band = k == 0 ? 0 : band_rows(&chain->links[to], SIZES[k - 1].tiles);
    *work = k == 0 ? sum : SIZES[k - 1].cost * (sum + passes);
    if (k == 0) return to - from == (chain->links[to].block ? 2 : 1);
    return to - from <= VAE_MAX_RUN;
}

/* What a step needs, its first map included and a picture not. */
static size_t step_bytes(const struct vae_chain *chain, const struct ops *o,
                         const struct vae_step *step)
{
    struct dk_error err = {.code = DK_OK};
    struct arena arena = *o->arena;
    size_t mark = arena_mark(&arena);
    arena.dry = true;
    arena.peak_bytes = mark;
    struct ops dry = {
        .kernels = o->kernels, .arena = &arena, .err = &err, .n_threads = o->n_threads};
    const struct vae_link *first = &chain->links[step->from], *last = &chain->links[step->to];
    struct tensor x = tensor_new4(&arena, 1, first->h, first->w, first->c, &err);
    const struct tensor picture = {x.data, 4, {1, last->h, last->w, last->c}};
    vae_step_run(chain, &dry, step, mark, x, step->to == chain->n ? &picture : NULL);
    return err.code == DK_OK ? arena.peak_bytes - mark : SIZE_MAX;
}

/* The cheapest way to each map. */
struct route {
    double work[VAE_MAX_LINKS + 1]; /* below 0: none yet */
    struct vae_step last[VAE_MAX_LINKS + 1];
};

static void find_route(struct route *route, const struct vae_chain *chain, const struct ops *o,
                       size_t limit_bytes)
{
    route->work[0] = 0;
    for (int to = 1; to <= chain->n; to++) {
        route->work[to] = -1;
        if (!vae_chain_holds(chain, to)) continue;
        for (int from = to - 1; from >= 0; from--) {
            if (!vae_chain_holds(chain, from) || route->work[from] < 0) continue;
            for (int k = 0; k <= N_SIZES; k++) {
                struct vae_step step = {.from = from, .to = to};
                double work;
                if (!take_way(chain, &step, k, &work)) continue;
                work += route->work[from];
                if (route->work[to] >= 0 && work >= route->work[to]) continue;
                if (limit_bytes < SIZE_MAX && step_bytes(chain, o, &step) > limit_bytes) continue;
                route->work[to] = work;
                route->last[to] = step;
            }
        }
    }
}

/* The least memory that any route needs. */
static size_t least_bytes(const struct vae_chain *chain, const struct ops *o)
{
    size_t least[VAE_MAX_LINKS + 1] = {0};
    for (int to = 1; to <= chain->n; to++) {
        least[to] = SIZE_MAX;
        for (int from = to - 1; vae_chain_holds(chain, to) && from >= 0; from--) {
            for (int k = 0; vae_chain_holds(chain, from) && k <= N_SIZES; k++) {
                struct vae_step step = {.from = from, .to = to};
                double work;
                if (least[from] >= least[to] || !take_way(chain, &step, k, &work)) continue;
                size_t bytes = step_bytes(chain, o, &step);
                if (bytes < least[from]) bytes = least[from];
                if (bytes < least[to]) least[to] = bytes;
            }
        }
    }
    return least[chain->n];
}

void vae_plan_find(struct vae_plan *plan, const struct vae_chain *chain, const struct ops *o,
                   size_t limit_bytes)
{
    struct route route;
    find_route(&route, chain, o, limit_bytes);
    if (route.work[chain->n] < 0) find_route(&route, chain, o, least_bytes(chain, o));
    plan->n = 0;
    for (int at = chain->n; at > 0; at = route.last[at].from) plan->n++;
    for (int at = chain->n, i = plan->n; at > 0; at = route.last[at].from)
        plan->steps[--i] = route.last[at];
}
