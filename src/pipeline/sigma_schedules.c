/* sigma_schedules.c - the formulas of the named sigma schedules. */
/* SPDX-License-Identifier: MIT */
#include "pipeline/sigma_schedules.h"

#include "pipeline/registry.h"
#include "pipeline/sigma_tables.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* As numpy's: the last value is exact, where rounding could leave the table. */
double schedule_linspace(double first, double last, int n, int i)
{
    if (n < 2 || i == 0) return first;
    return i == n - 1 ? last : first + (last - first) / (n - 1) * i;
}

/* ---- schedules by formula -------------------------------------------------------------------- */

/* Karras et al. 2022, arXiv:2206.00364, eq. 5. */
static void karras(const struct schedule_range *r, double *out)
{
    double first = pow(r->max, 1 / r->rho), last = pow(r->min, 1 / r->rho);
    for (int i = 0; i < r->n; i++) out[i] = pow(schedule_linspace(first, last, r->n, i), r->rho);
}

/* Even in ln sigma; the even steps in lambda of Lu et al. 2022 ("use_lu_lambdas") are the same. */
static void exponential(const struct schedule_range *r, double *out)
{
    for (int i = 0; i < r->n; i++)
        out[i] = exp(schedule_linspace(log(r->max), log(r->min), r->n, i));
}

/*
 * The regularised incomplete beta function I_x(a, b) by Lentz's continued fraction (DLMF
 * 8.17.22).
 */
static double incomplete_beta(double x, double a, double b)
{
    if (x <= 0 || x >= 1) return x <= 0 ? 0 : 1;
    if (x > (a + 1) / (a + b + 2)) return 1 - incomplete_beta(1 - x, b, a);
    double front = pow(x, a) * pow(1 - x, b) * tgamma(a + b) / (tgamma(a) * tgamma(b)) / a;
    double c = 1, d = 1 / (1 - (a + b) * x / (a + 1)), value = d;
    for (int k = 1; k < 200; k++) {
        double even = k * (b - k) * x / ((a + 2 * k - 1) * (a + 2 * k));
        d = 1 / (1 + even * d);
        c = 1 + even / c;
        value *= c * d;
        double odd = -(a + k) * (a + b + k) * x / ((a + 2 * k) * (a + 2 * k + 1));
        d = 1 / (1 + odd * d);
        c = 1 + odd / c;
        value *= c * d;
        if (fabs(c * d - 1) < 1e-15) break;
    }
    return front * value;
}

static double beta_quantile(double p, double a, double b)
{
    double low = 0, high = 1;
    for (int i = 0; i < 80; i++) {
        double middle = (low + high) / 2;
        if (incomplete_beta(middle, a, b) < p)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

/* Lee et al. 2024, "Beta sampling is all you need", arXiv:2407.12173; alpha = beta = 0.6. */
static void beta(const struct schedule_range *r, double *out)
{
    for (int i = 0; i < r->n; i++) {
        double p = schedule_linspace(1, 0, r->n, i);
        out[i] = r->min + (r->max - r->min) * beta_quantile(p, 0.6, 0.6);
    }
}

/*
 * Sabour et al. 2024, arXiv:2404.14507, appendix: optimal for a Gaussian in the sense of Kullback
 * and Leibler.
 */
static void kl_optimal(const struct schedule_range *r, double *out)
{
    for (int i = 0; i < r->n; i++)
        out[i] = tan(schedule_linspace(atan(r->max), atan(r->min), r->n, i));
}

/* ---- schedules by timestep ------------------------------------------------------------------- */

/* k-diffusion's default ("normal" in ComfyUI): even timesteps, both ends included. */
static void discrete(const struct schedule_range *r, double *out)
{
    for (int i = 0; i < r->n; i++) out[i] = schedule_linspace(r->n_train - 1, 0, r->n, i);
}

/* Even timesteps, the last left out (Stability's sgm). */
static void sgm_uniform(const struct schedule_range *r, double *out)
{
    for (int i = 0; i < r->n; i++) out[i] = schedule_linspace(r->n_train - 1, 0, r->n + 1, i);
}

/* ComfyUI's: every n_train / n-th of the table from the top, cut to whole timesteps. */
static void simple(const struct schedule_range *r, double *out)
{
    for (int i = 0; i < r->n; i++) out[i] = r->n_train - 1 - (int)(i * ((double)r->n_train / r->n));
}

/* ---- schedules by table ---------------------------------------------------------------------- */

/*
 * n + 1 values linear in ln sigma through the table; the last is replaced by the end of the path.
 */
static void through_table(const struct schedule_range *r, double *out, const double *table,
                          int n_table)
{
    for (int i = 0; i < r->n; i++) {
        double place = schedule_linspace(0, n_table - 1, r->n + 1, i);
        int low = (int)place < n_table - 2 ? (int)place : n_table - 2;
        double a = log(table[low]), b = log(table[low + 1]);
        out[i] = exp(a + (b - a) * (place - low));
    }
}

static void ays_sd1(const struct schedule_range *r, double *out)
{
    through_table(r, out, AYS_SD1, 11);
}
static void ays_sdxl(const struct schedule_range *r, double *out)
{
    through_table(r, out, AYS_SDXL, 11);
}
static void gits(const struct schedule_range *r, double *out)
{
    int row = r->n < 2 ? 2 : r->n < GITS_MOST ? r->n : GITS_MOST;
    through_table(r, out, GITS[row - 2], row + 1);
}

/* ---- the names ------------------------------------------------------------------------------- */

static const struct schedule SCHEDULES[] = {
    {"karras", SCHEDULE_FORMULA, karras},
    {"exponential", SCHEDULE_FORMULA, exponential},
    {"beta", SCHEDULE_FORMULA, beta},
    {"kl-optimal", SCHEDULE_FORMULA, kl_optimal},
    {"discrete", SCHEDULE_TIMESTEPS, discrete},
    {"sgm-uniform", SCHEDULE_TIMESTEPS, sgm_uniform},
    {"simple", SCHEDULE_TIMESTEPS, simple},
    {"ays", SCHEDULE_TABLE, ays_sd1}, /* resolve.c takes ays-sdxl for SDXL models */
    {"ays-sdxl", SCHEDULE_TABLE, ays_sdxl},
    {"gits", SCHEDULE_TABLE, gits},
};
/* Other spellings: A1111's, ComfyUI's and stable-diffusion.cpp's. */
static const char *const SCHEDULE_ALIASES[][2] = {
    {"normal", "discrete"},
    {"uniform", "discrete"},
    {"alignyoursteps", "ays"},
    {"ayssd1", "ays"},
    {"alignyourstepssdxl", "ays-sdxl"},
    {"sgm", "sgm-uniform"},
    {"loglinear", "exponential"},
};

const struct schedule *schedule_find(const char *name, struct dk_error *err)
{
    char wanted[64], known[64], list[300] = "";
    registry_fold(name, wanted, sizeof wanted);
    for (size_t i = 0; i < sizeof SCHEDULE_ALIASES / sizeof *SCHEDULE_ALIASES; i++)
        if (strcmp(SCHEDULE_ALIASES[i][0], wanted) == 0)
            registry_fold(SCHEDULE_ALIASES[i][1], wanted, sizeof wanted);
    for (size_t i = 0; i < sizeof SCHEDULES / sizeof *SCHEDULES; i++) {
        registry_fold(SCHEDULES[i].name, known, sizeof known);
        if (strcmp(known, wanted) == 0) return &SCHEDULES[i];
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "",
                 SCHEDULES[i].name);
    }
    dk_fail(err, DK_ERROR_ARGUMENT,
            "sigmas \"%.40s\": no such schedule: give a list of numbers or one of %s", name, list);
    return NULL;
}
