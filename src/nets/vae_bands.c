/* vae_bands.c - several links of the decoder at once, band by band. */
/* SPDX-License-Identifier: MIT */
#include "nets/vae_chain.h"
#include "ops/bands.h"

#include <string.h>

/*
 * The way of the bands through maps from .. to: how far each map is made (at), how far it will be
 * after this band (aim), and from which row on it is still read in this band (keep). Everything
 * follows from the row numbers, so that what a pass needs is known before it runs. Arrays are by
 * number of the map less from.
 */
struct walk {
    const struct vae_chain *chain;
    int from, to;
    int64_t band;
    int64_t at[VAE_MAX_RUN + 1], aim[VAE_MAX_RUN + 1], keep[VAE_MAX_RUN + 1];
};

static const struct vae_link *link_at(const struct walk *w, int i)
{
    return &w->chain->links[w->from + i];
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Rows of its input that a link reads for its rows at .. end - 1: from here, up to there. */
static int64_t read_from(const struct vae_link *l, int64_t at)
{
    int64_t top = at > 0 ? at - 1 : 0;
    return l->enlarges ? top / 2 : top;
}
static int64_t read_to(const struct vae_link *l, int64_t end)
{
    int64_t bottom = least(end + 1, l->h);
    return l->enlarges ? (bottom - 1) / 2 + 1 : bottom;
}

/* The next band; false when the last map is whole. */
static bool walk_on(struct walk *w)
{
    int last = w->to - w->from;
    memcpy(w->at, w->aim, sizeof w->at);
    if (w->at[last] == link_at(w, last)->h) return false;
    w->aim[last] = least(w->at[last] + w->band, link_at(w, last)->h);
    w->keep[last] = w->at[last];
    for (int i = last - 1; i >= 0; i--) {
        int64_t end = read_to(link_at(w, i + 1), w->aim[i + 1]);
        end = (end + CONV_ROW_UNIT - 1) / CONV_ROW_UNIT * CONV_ROW_UNIT;
        w->aim[i] = least(end, link_at(w, i)->h);
        w->keep[i] = read_from(link_at(w, i + 1), w->at[i + 1]);
        if (i + 2 <= last && link_at(w, i + 2)->block) w->keep[i] = least(w->keep[i], w->at[i + 2]);
    }
    return true;
}

static int64_t row_floats(const struct vae_link *l)
{
    return l->w * l->c;
}

/*
 * How far into the memory of the result the first map must lie, in floats, so that no row of the
 * result is written onto one that is read in the same band or later.
 */
static int64_t find_shift(struct walk w)
{
    int last = w.to - w.from;
    int64_t shift = 0;
    while (walk_on(&w)) {
        int64_t over =
            w.aim[last] * row_floats(link_at(&w, last)) - w.keep[0] * row_floats(link_at(&w, 0));
        if (over > shift) shift = over;
    }
    return (shift + 15) / 16 * 16; /* maps begin at a cache line */
}

/* Rows first .. end - 1 of a map. */
struct window {
    float *data;
    int64_t first, end;
};

/* Memory for the rows that are kept of map 1 and on, below the last one or with it. */
static bool open_windows(struct walk w, struct ops *o, int n, struct window *windows)
{
    int64_t most[VAE_MAX_RUN + 1] = {0};
    while (walk_on(&w))
        for (int i = 1; i <= n; i++)
            if (w.aim[i] - w.keep[i] > most[i]) most[i] = w.aim[i] - w.keep[i];
    for (int i = 1; i <= n; i++) {
        const struct vae_link *l = link_at(&w, i);
        windows[i] =
            (struct window){.data = tensor_new4(o->arena, 1, most[i], l->w, l->c, o->err).data};
        if (!windows[i].data) return false;
    }
    return true;
}

/* Rows at .. aim - 1 of map i; the rest of its window slides up. */
static struct tensor make_room(const struct walk *w, struct ops *o, int i, struct window *window)
{
    const struct vae_link *l = link_at(w, i);
    int64_t row = row_floats(l), gone = w->keep[i] - window->first;
    if (gone > 0) {
        if (!ops_dry(o))
            memmove(window->data, window->data + gone * row,
                    (size_t)((window->end - w->keep[i]) * row) * sizeof(float));
        window->first = w->keep[i];
    }
    window->end = w->aim[i];
    return (struct tensor){
        window->data + (w->at[i] - window->first) * row, 4, {1, w->aim[i] - w->at[i], l->w, l->c}};
}

static struct tensor held(const struct walk *w, int i, const struct window *windows)
{
    const struct vae_link *l = link_at(w, i);
    return (struct tensor){windows[i].data, 4, {1, windows[i].end - windows[i].first, l->w, l->c}};
}

/* What link i adds to its rows at .. aim - 1: those of the map before last, through the shortcut.
 */
static struct tensor skip_rows(const struct walk *w, struct ops *o, int i,
                               const struct window *windows)
{
    const struct vae_link *l = link_at(w, i);
    struct tensor x = held(w, i - 2, windows);
    const struct conv_rows rows = {l->h, windows[i - 2].first, w->at[i], w->aim[i] - w->at[i]};
    if (weight_exists(&l->block->shortcut.weight))
        return op_conv(o, x, &(struct conv_args){.conv = &l->block->shortcut, .rows = &rows});
    x.data += (rows.out_first - rows.first) * row_floats(l);
    x.dim[1] = rows.n_out;
    return x;
}

static void run_link(const struct walk *w, struct ops *o, int i, const struct affine *affine,
                     const struct window *windows, struct tensor into)
{
    const struct vae_link *l = link_at(w, i);
    size_t mark = arena_mark(o->arena);
    struct tensor x = held(w, i - 1, windows), skip = {0};
    const struct conv_rows rows = {link_at(w, i - 1)->h, windows[i - 1].first, w->at[i],
                                   w->aim[i] - w->at[i]};
    struct conv_args args = vae_link_args(l);
    if (l->norm) args.affine = affine;
    args.rows = &rows;
    args.into = &into;
    if (l->block) {
        skip = skip_rows(w, o, i, windows);
        args.residual = &skip;
    }
    op_conv(o, x, &args);
    arena_reset(o->arena, mark);
}

/* In a dry run: this band is as large as the one before it, so it needs the same memory. */
static bool is_repeated(const struct walk *w, const struct walk *before)
{
    bool same = true;
    for (int i = 0; same && i <= w->to - w->from; i++)
        same = w->aim[i] - w->at[i] == before->aim[i] - before->at[i] &&
               w->at[i] - w->keep[i] == before->at[i] - before->keep[i];
    return same;
}

/*
 * All bands from map from of the walk, which is x, to map to. That goes to y if y is given, else
 * only into the sums.
 */
static void run_pass(struct walk w, struct ops *o, struct tensor x, const struct affine *affines,
                     const struct tensor *y, struct norm_sums *sums)
{
    size_t mark = arena_mark(o->arena);
    int last = w.to - w.from;
    struct window windows[VAE_MAX_RUN + 1] = {{x.data, 0, x.dim[1]}};
    if (!open_windows(w, o, y ? last - 1 : last, windows)) return;
    if (y) windows[last] = (struct window){.data = y->data};
    struct walk before = w;
    while (walk_on(&w) && ops_ok(o)) {
        if (ops_dry(o) && is_repeated(&w, &before)) continue;
        before = w;
        if (y) w.keep[last] = 0;
        for (int i = 1; i <= last; i++) {
            if (w.aim[i] == w.at[i]) continue;
            struct tensor rows = make_room(&w, o, i, &windows[i]);
            run_link(&w, o, i, &affines[i], windows, rows);
            if (sums && i == last) op_sums_add(o, sums, rows);
        }
    }
    arena_reset(o->arena, mark);
}

/* Where the result goes: over x, which moves as far as it must; or into. */
static struct tensor place_result(const struct walk *w, struct ops *o, size_t mark,
                                  struct tensor *x, const struct tensor *into)
{
    const struct vae_link *l = link_at(w, w->to - w->from);
    struct tensor y = {NULL, 4, {1, l->h, l->w, l->c}};
    if (into) return *into;
    int64_t shift = find_shift(*w), floats = shift + tensor_count(*x);
    if (floats < tensor_count(y)) floats = tensor_count(y);
    arena_reset(o->arena, mark);
    y.data = tensor_new(o->arena, 1, &floats, o->err).data;
    if (!y.data) return (struct tensor){0};
    if (!ops_dry(o)) memmove(y.data + shift, x->data, (size_t)tensor_count(*x) * sizeof *x->data);
    x->data = y.data + shift;
    return y;
}

/* Rows of map i a band, of a pass that ends there. */
static int64_t band_at(const struct walk *w, int i)
{
    int64_t band = w->band * link_at(w, i)->h / link_at(w, w->to - w->from)->h;
    return band < CONV_ROW_UNIT ? CONV_ROW_UNIT : band / CONV_ROW_UNIT * CONV_ROW_UNIT;
}

struct tensor vae_bands_run(const struct vae_chain *chain, struct ops *o,
                            const struct vae_step *step, size_t mark, struct tensor x,
                            const struct tensor *into)
{
    struct walk whole = {.chain = chain, .from = step->from, .to = step->to, .band = step->band};
    struct affine affines[VAE_MAX_RUN + 1] = {{NULL, NULL}};
    if (!ops_ok(o) || x.rank == 0) return (struct tensor){0};
    struct tensor y = place_result(&whole, o, mark, &x, into);
    if (y.rank == 0) return y;
    for (int i = 1; i <= step->to - step->from; i++) {
        const struct norm *norm = link_at(&whole, i)->norm;
        if (norm && i == 1) affines[i] = op_norm_affine(o, x, norm);
        if (!norm || i == 1) continue;
        struct norm_sums sums;
        struct walk part = whole;
        part.to = step->from + i - 1;
        part.band = band_at(&whole, i - 1);
        if (!op_sums_new(o, 1, (size_t)link_at(&whole, i - 1)->c, &sums)) break;
        run_pass(part, o, x, affines, NULL, &sums);
        affines[i] = op_sums_affine(o, &sums, norm);
    }
    run_pass(whole, o, x, affines, &y, NULL);
    if (!ops_ok(o)) return (struct tensor){0};
    if (into) return y;
    arena_reset(o->arena, mark);
    return tensor_new4(o->arena, y.dim[0], y.dim[1], y.dim[2], y.dim[3], o->err);
}
