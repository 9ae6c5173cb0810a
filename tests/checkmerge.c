/* checkmerge.c - token merging against the paper's definition in plain loops. */
/* SPDX-License-Identifier: MIT */
#include "check.h"
#include "kernels/kernels.h"
#include "ops/ops.h"

#include <stdlib.h>
#include <string.h>

#define TOLERANCE 2e-5

struct world {
    struct arena arena;
    struct kernels kernels;
    struct dk_error err;
    struct ops ops;
    uint32_t state;
};

static float deviate(struct world *w)
{
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        w->state = w->state * 1664525u + 1013904223u;
        sum += (double)(w->state >> 8) / 16777216.0 - 0.5;
    }
    return (float)(sum * 1.7);
}

static struct tensor tokens_new(struct world *w, int64_t n, int64_t tokens, int64_t c)
{
    struct tensor t = tensor_new3(&w->arena, n, tokens, c, &w->err);
    for (int64_t i = 0; i < tensor_count(t); i++) t.data[i] = deviate(w);
    return t;
}

static double cosine(const float *a, const float *b, int64_t c)
{
    double ab = 0, aa = 0, bb = 0;
    for (int64_t j = 0; j < c; j++) {
        ab += (double)a[j] * (double)b[j];
        aa += (double)a[j] * (double)a[j];
        bb += (double)b[j] * (double)b[j];
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

static bool receives(int64_t token, int64_t width)
{
    return token / width % 2 == 0 && token % width % 2 == 0;
}

/*
 * The definition: receivers stay; of the others r = floor(ratio * tokens) merge, none of them less
 * like its receiver than one that stays is like its own, each into the one it is most like.
 */
static void check_places(const struct merge *m, const float *x, const int32_t *place, int64_t width,
                         int64_t c)
{
    double least = 2, most = -2, worst = 0;
    int64_t n_merged = 0, next = 0;
    for (int64_t i = 0; i < m->tokens; i++) {
        double best = -2;
        int64_t receiver = -1;
        for (int64_t k = 0; k < m->tokens; k++) {
            double likeness = receives(k, width) ? cosine(x + i * c, x + k * c, c) : -2;
            if (likeness > best) best = likeness;
            if (receives(k, width) && place[k] == place[i]) receiver = k;
        }
        bool stays = receives(i, width) || receiver < 0;
        if (stays) CHECK(place[i] == next++, "token %d is at %d", (int)i, (int)place[i]);
        if (receives(i, width)) {
            CHECK(receiver == i, "receivers %d and %d are one", (int)i, (int)receiver);
        } else if (stays) {
            if (best > most) most = best;
        } else {
            n_merged++;
            double found = cosine(x + i * c, x + receiver * c, c);
            if (found < least) least = found;
            if (best - found > worst) worst = best - found;
        }
    }
    CHECK(next == m->kept && n_merged == m->tokens - m->kept, "%d kept and %d merged of %d",
          (int)next, (int)n_merged, (int)m->tokens);
    CHECK(worst < TOLERANCE, "a token is %g nearer to another receiver", worst);
    CHECK(n_merged == 0 || most - least < TOLERANCE, "one that stays is %g more alike",
          most - least);
}

static void check_grid(struct world *w, int64_t n, int64_t height, int64_t width, int64_t c,
                       double ratio)
{
    size_t mark = arena_mark(&w->arena);
    int64_t tokens = height * width, most = tokens - (height + 1) / 2 * ((width + 1) / 2);
    int64_t merged =
        (int64_t)(ratio * (double)tokens) < most ? (int64_t)(ratio * (double)tokens) : most;
    struct tensor x = tokens_new(w, n, tokens, c), h = tokens_new(w, n, tokens, c), first = {0};
    for (int threads = 1; threads <= 4; threads++) {
        w->ops.n_threads = threads;
        struct merge m = op_merge_plan(&w->ops, x, height, ratio);
        CHECK(m.n == n && m.tokens == tokens && m.kept == tokens - merged, "%d of %d kept: %s",
              (int)m.kept, (int)tokens, w->err.message);
        struct tensor y = op_merge(&w->ops, h, &m);
        CHECK(y.rank == 3 && y.dim[1] == m.kept, "%s", w->err.message);
        if (y.rank == 0) return;
        if (threads == 1 && merged > 0)
            for (int64_t i = 0; i < n; i++)
                check_places(&m, x.data + i * tokens * c, m.place + i * tokens, width, c);
        double worst = 0;
        for (int64_t i = 0; i < n * m.kept && merged > 0; i++) /* each kept token is a mean */
            for (int64_t j = 0; j < c; j++) {
                double sum = 0, count = 0;
                for (int64_t t = 0; t < tokens; t++)
                    if (m.place[i / m.kept * tokens + t] == i % m.kept) {
                        sum += (double)h.data[(i / m.kept * tokens + t) * c + j];
                        count++;
                    }
                worst = fmax(worst, fabs(sum / count - (double)y.data[i * c + j]));
            }
        CHECK(worst < TOLERANCE, "means off by %g", worst);
        struct tensor z = tokens_new(w, n, tokens, c), want = z;
        want = tensor_new3(&w->arena, n, tokens, c, &w->err);
        for (int64_t i = 0; i < n * tokens; i++)
            for (int64_t j = 0; j < c; j++) {
                int64_t at = merged ? i / tokens * m.kept + m.place[i] : i;
                want.data[i * c + j] = z.data[i * c + j] + y.data[at * c + j];
            }
        struct tensor answer = op_unmerge(&w->ops, y, &m, z);
        CHECK(answer.data == z.data &&
                  check_distance(z.data, want.data, (size_t)tensor_count(z)) == 0,
              "not what was merged is added");
        size_t bytes = (size_t)tensor_count(y) * sizeof *y.data;
        if (threads == 1)
            first = y;
        else
            CHECK(memcmp(first.data, y.data, bytes) == 0, "%d threads give other bytes", threads);
        if (n > 1 && threads == 2) { /* the last sample alone */
            struct tensor last = x;
            last.data += (n - 1) * tokens * c;
            last.dim[0] = 1;
            struct merge alone = op_merge_plan(&w->ops, last, height, ratio);
            CHECK(merged == 0 || memcmp(alone.place, m.place + (n - 1) * tokens,
                                        (size_t)tokens * sizeof *m.place) == 0,
                  "a sample alone merges otherwise");
        }
    }
    arena_reset(&w->arena, mark);
}

/* What a plan allocates is told by a dry run. */
static void check_dry(struct world *w)
{
    size_t mark = arena_mark(&w->arena), peaks[2];
    for (int dry = 0; dry < 2; dry++) {
        struct tensor x = tokens_new(w, 2, 64, 40);
        w->arena.dry = dry == 1;
        w->arena.peak_bytes = 0;
        struct merge m = op_merge_plan(&w->ops, x, 8, 0.5);
        op_unmerge(&w->ops, op_merge(&w->ops, x, &m), &m, x);
        peaks[dry] = w->arena.peak_bytes;
        w->arena.dry = false;
        arena_reset(&w->arena, mark);
    }
    CHECK(peaks[0] == peaks[1] && peaks[0] > 0, "needed %zu bytes, told %zu", peaks[0], peaks[1]);
}

/* Equal tokens, zeros and NaN: always a plan whose places are in range. */
static void check_degenerate(struct world *w)
{
    static const float values[] = {0, 1, NAN, INFINITY};
    size_t mark = arena_mark(&w->arena);
    for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
        struct tensor x = tokens_new(w, 1, 36, 24);
        for (int64_t i = 0; i < tensor_count(x); i++)
            if (k < 2 || i % 5 == 0) x.data[i] = values[k];
        struct merge m = op_merge_plan(&w->ops, x, 6, 0.5);
        bool fits = m.n == 1 && m.kept == 18;
        for (int64_t i = 0; fits && i < 36; i++) fits = m.place[i] >= 0 && m.place[i] < m.kept;
        CHECK(fits, "values of %g", (double)values[k]);
        if (k < 2) CHECK(fits && m.place[1] == 0, "of equal tokens the first merge first");
        arena_reset(&w->arena, mark);
    }
}

static void check_refusals(struct world *w)
{
    size_t mark = arena_mark(&w->arena);
    struct tensor x = tokens_new(w, 1, 12, 4);
    static const struct {
        int64_t height;
        double ratio;
    } bad[] = {{5, 0.5}, {0, 0.5}, {3, 1}, {3, -0.1}, {3, NAN}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(op_merge_plan(&w->ops, x, bad[i].height, bad[i].ratio).n == 0 &&
                  strstr(w->err.message, "merge"),
              "%zu was accepted: %s", i, w->err.message);
        w->err = (struct dk_error){.code = DK_OK};
    }
    struct merge m = op_merge_plan(&w->ops, x, 3, 0.5);
    struct tensor other = tokens_new(w, 1, 11, 4);
    CHECK(op_merge(&w->ops, other, &m).rank == 0, "tokens of another grid were merged");
    w->err = (struct dk_error){.code = DK_OK};
    CHECK(op_unmerge(&w->ops, x, &m, x).rank == 0, "tokens that are not merged were spread");
    w->err = (struct dk_error){.code = DK_OK};
    arena_reset(&w->arena, mark);
}

static void check_all(struct world *w)
{
    static const double ratios[] = {0, 0.1, 0.5, 0.75};
    for (size_t i = 0; i < sizeof ratios / sizeof *ratios; i++) {
        check_grid(w, 1, 8, 8, 40, ratios[i]);
        check_grid(w, 2, 6, 10, 320, ratios[i]); /* two runs along k, panels not full */
        check_grid(w, 3, 5, 7, 24, ratios[i]);   /* odd sides: more receivers than a quarter */
        check_grid(w, 1, 1, 9, 8, ratios[i]);
    }
    check_grid(w, 1, 1, 1, 8, 0.5);
    check_dry(w);
    check_degenerate(w);
    check_refusals(w);
}

int main(void)
{
    struct world w = {.state = 1};
    if (!arena_open(&w.arena, 0, &w.err)) return 1;
    w.ops = (struct ops){.kernels = &w.kernels, .arena = &w.arena, .err = &w.err, .n_threads = 2};
    static const unsigned flags[] = {KERNELS_SCALAR, 0};
    for (size_t i = 0; i < 2; i++) {
        kernels_init(&w.kernels, flags[i]);
        check_all(&w);
    }
    arena_close(&w.arena);
    return check_end("checkmerge");
}
