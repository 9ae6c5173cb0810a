/* linear.c - y = act(norm(x) W^T + b) + residual. */
/* SPDX-License-Identifier: MIT */
#include "ops/internal.h"
#include "ops/meter.h"

static bool check_shapes(struct ops *o, struct tensor x, const struct linear_args *args)
{
    const struct weight *w = &args->linear->weight, *bias = &args->linear->bias;
    const char *name = w->name ? w->name : "weight";
    bool is_matrix = w->rank == 2 || (w->rank == 4 && w->dim[2] == 1 && w->dim[3] == 1);
    if (!weight_exists(w) || !is_matrix || w->dim[0] < 1 || w->dim[1] != x.dim[x.rank - 1])
        return dk_fail(o->err, DK_ERROR_MODEL, "linear: %s has shape %s, the input %s", name,
                       shape_text(w->rank, w->dim).text, shape_text(x.rank, x.dim).text);
    if (args->geglu && w->dim[0] % 2 != 0)
        return dk_fail(o->err, DK_ERROR_MODEL,
                       "linear: %s has %lld rows, GEGLU needs an even number", name,
                       (long long)w->dim[0]);
    if (weight_exists(bias) && (bias->rank != 1 || bias->dim[0] != w->dim[0]))
        return dk_fail(o->err, DK_ERROR_MODEL,
                       "linear: the bias of %s has shape %s, expected [%lld]", name,
                       shape_text(bias->rank, bias->dim).text, (long long)w->dim[0]);
    return true;
}

static bool residual_fits(struct ops *o, const struct tensor *residual, struct tensor y,
                          const char *op)
{
    if (!residual) return true;
    bool fits = residual->rank == y.rank;
    for (int i = 0; fits && i < y.rank; i++) fits = residual->dim[i] == y.dim[i];
    if (!fits && residual->rank != 0)
        return dk_fail(o->err, DK_ERROR_MODEL, "%s: the residual has shape %s, the result %s", op,
                       shape_text(residual->rank, residual->dim).text,
                       shape_text(y.rank, y.dim).text);
    return fits;
}

struct tensor op_linear(struct ops *o, struct tensor x, const struct linear_args *args)
{
    struct tensor none = {0};
    double start_s = meter_start(o);
    if (!ops_ok(o) || x.rank == 0 || !check_shapes(o, x, args)) return none;
    const struct weight *w = &args->linear->weight;
    size_t k = (size_t)w->dim[1], m = (size_t)tensor_count(x) / k;
    struct tensor y = x;
    y.dim[x.rank - 1] = args->geglu ? w->dim[0] / 2 : w->dim[0];
    if (!residual_fits(o, args->residual, y, "linear")) return none;
    y = ops_result(o, y.rank, y.dim, args->into, "linear");
    size_t mark = arena_mark(o->arena);
    struct product p = {
        .weights = {w, args->geglu ? PACK_GEGLU : PACK_PANELS, (size_t)w->dim[0], k, 1},
        .n_samples = 1,
        .m = m,
        .a = x.data,
        .act = args->act,
        .residual = args->residual ? args->residual->data : NULL,
        .y = y.data,
        .n_out = (size_t)y.dim[y.rank - 1],
    };
    ptrdiff_t *row = ops_offsets(o, m);
    float *bias = ops_floats(o, pack_panels(&p.weights), GEMM_PANEL);
    struct gemm_run *runs = (void *)ops_offsets(o, 2 * runs_cut(NULL, 0, k));
    if (y.rank == 0 || !row || !bias || !runs) return none;
    if (args->norm) {
        if (args->norm->n_groups != 0)
            return ops_fail(o, DK_ERROR_ARGUMENT, "linear: expects a LayerNorm before it");
        float *normed = ops_floats(o, m, k);
        if (!normed || !layer_norm_rows(o, x, args->norm, normed)) return none;
        p.a = normed;
    }
    for (size_t i = 0; i < m && !ops_dry(o); i++) row[i] = (ptrdiff_t)(i * k);
    p.row = row;
    p.n_runs = runs_cut(ops_dry(o) ? NULL : runs, 0, k);
    p.runs = runs;
    if (weight_exists(&args->linear->bias)) {
        if (!bias_in_panels(o, &args->linear->bias, &p.weights, "linear", bias)) return none;
        p.bias = bias;
    }
    if (!product_run(o, &p, "linear")) return none;
    arena_reset(o->arena, mark);
    ops_let_go(o, w);
    meter_stop(o, METER_LINEAR, start_s, 2 * (double)m * (double)k * (double)w->dim[0],
               4 * ((double)tensor_count(x) + (double)tensor_count(y)) + meter_weight_bytes(w));
    return y;
}
