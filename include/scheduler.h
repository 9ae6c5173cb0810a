/* scheduler.h - what a scheduler is: the contract between darkroom and one solver. */
/* SPDX-License-Identifier: MIT */
#ifndef DK_SCHEDULER_H
#define DK_SCHEDULER_H

/*
 * A picture on its way is a latent
 *
 *     x = alpha x0 + sigma eps,     x0 the clean latent, eps unit normal noise          (1)
 *
 * and a scheduler (elsewhere: sampler, solver) decides where on this path the U-Net is asked, and
 * how to go from one question to the next. Two ways of writing (1) are in use; a scheduler names
 * the one its paper is written in:
 *
 *     variance preserving   alpha = sqrt(alpha_bar[t]), sigma = sqrt(1 - alpha_bar[t])     DDIM
 *     variance exploding    alpha = 1, sigma = sqrt((1 - alpha_bar[t]) / alpha_bar[t])     Euler
 *
 * The work is divided like this:
 *
 *     darkroom                                   the scheduler
 *     N + 1 nodes on the path, from --steps,
 *     --spacing, --sigmas and the config    ->   plan()  turns them into calls of the U-Net,
 *                                                        one or more a step, or refuses
 *     for each call: x to the U-Net, its
 *     answer to x0 and eps                  ->   step()  takes x one call further
 *
 * A scheduler is one constant object, has no memory of its own and includes nothing of darkroom
 * but this file and schedulers/common.h. The same source is a part of the library and, compiled
 * as a shared object, a plugin:
 *
 *     static void step(struct dk_step *s) { ... }
 *     const struct dk_scheduler dk_scheduler_NAME = {DK_SCHEDULER_HEAD, ..., .step = step};
 *     DK_SCHEDULER_PLUGIN(dk_scheduler_NAME)
 *
 * docs/add-a-scheduler.md walks through one.
 */

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Goes up whenever a struct below changes; a plugin of another number is refused. */
#define DK_SCHEDULER_ABI 1

enum dk_prediction { DK_PREDICTS_EPS, DK_PREDICTS_V, DK_PREDICTS_X0 };
enum dk_spacing { DK_LEADING, DK_LINSPACE, DK_TRAILING };
enum dk_solver_type {
    DK_SOLVER_DEFAULT,
    DK_SOLVER_MIDPOINT,
    DK_SOLVER_HEUN,
    DK_SOLVER_BH1,
    DK_SOLVER_BH2
};

/*
 * A place on the path (1). The last node of a plan is the end: sigma 0 as a rule, and never asked
 * for.
 */
struct dk_point {
    double t; /* what the U-Net is told; -1 at the end */
    double alpha, sigma;
};

/* The noise the model was trained with. */
struct dk_noise_model {
    int n_train;             /* 1000 */
    const double *alpha_bar; /* [n_train], falling; the last may be 0 (zero terminal SNR) */
    enum dk_prediction prediction;
    bool edm;          /* Karras et al. 2022: no alpha_bar, any sigma, t = ln(sigma) / 4 */
    double sigma_data; /* of EDM */
};

/* What a model's scheduler_config.json may say to a solver; the names are those of its keys. */
struct dk_solver_options {
    int solver_order; /* 0: the scheduler's own */
    enum dk_solver_type solver_type;
    bool predict_x0;        /* UniPC: the data form (true) or the noise form */
    bool algorithm_eps;     /* algorithm_type "dpmsolver": the noise form of DPM-Solver */
    bool lower_order_final; /* lower orders at the end of a short run */
    bool euler_at_final;    /* the last step by order 1 whatever the length */
    bool skip_prk_steps;    /* PNDM: no Runge-Kutta start */
    bool combine_v;         /* PNDM: slopes of a v model as they are (not a key of diffusers) */
    bool variance_large;    /* DDPM: variance_type "fixed_large" */
    int original_inference_steps; /* LCM, TCD: the grid they were distilled on, 50 */
    double timestep_scaling;      /* LCM: 10 */
    double s_churn, s_noise; /* Karras et al. 2022, algorithm 2 (not diffusers keys): 0 and 1 */
    int predictor_order, corrector_order; /* SA-Solver: 0: its own */
    uint64_t disable_corrector;           /* UniPC: bit i: no correction after step i */
};

/* One call of the U-Net. */
struct dk_call {
    struct dk_point at; /* where x is when it is asked */
    struct dk_point to; /* where its step ends: node[step + 1] as a rule */
    int step, stage; /* what these mean is the scheduler's; stage 0 is the first call of a step */
};

/* A run before it starts: the upper part is given, plan() fills the lower. Read-only afterwards. */
struct dk_plan {
    const struct dk_noise_model *model;
    const struct dk_solver_options *options;
    bool exploding; /* alpha is 1 on this path */
    int n_steps;
    const struct dk_point *node; /* [n_steps + 1] */
    double eta;

    struct dk_call *call; /* [n_calls], room for n_calls_max; add with dk_call_add() */
    int n_calls, n_calls_max;
    char reason[400]; /* why plan() refused: "found, expected, remedy" */
};

/* One call's answer on its way into x. All vectors are [n] and do not overlap. */
struct dk_step {
    const struct dk_plan *plan;
    int call;
    size_t n;
    float *x;         /* in: the latent the U-Net was asked about; out: one call further */
    const float *out; /* what the U-Net said, as it said it */
    const float *x0;  /* the clean latent this implies, clipped where the config asks for it */
    const float *eps; /* the noise this implies */
    float *state; /* [n_vectors * n], the scheduler's memory of this image; zeros before call 0 */
    float *noise; /* filled by dk_noise() */
    void (*draw)(void *user, float *out, size_t n);
    void *user;
};

enum dk_scheduler_flags {
    DK_EXPLODING = 1,  /* written in the variance exploding form */
    DK_ANY_FORM = 2,   /* written for (1) as it stands: right in either form. This or DK_EXPLODING:
                          also for EDM */
    DK_ZERO_ALPHA = 4, /* can start at alpha 0 exactly (zero terminal SNR); others just below it */
    DK_INTEGER_T = 8,  /* spaced timesteps are whole numbers, */
    DK_INTEGER_SIGMA_T = 16, /* and so are those of a config's sigma schedule */
    DK_DROPS_LAST = 32,      /* spaces N + 1 timesteps and drops the last (the DPM-Solver family) */
    DK_FULL_RANGE = 64,      /* a config's sigma schedule spans the training range, not the
                                spacing's */
    DK_ALPHA_END = 128,      /* ends where the config's set_alpha_to_one says, */
    DK_FIRST_ALPHA = 256,    /* and at alpha_bar[0] where it says nothing (PNDM) */
    DK_SIGMA_END = 512,      /* ends where the config's final_sigmas_type says */
    DK_CLIPS = 1024,      /* x0 is clipped to +-1 unless the config says otherwise (DDIM, DDPM) */
    DK_RAW_EPS = 2048,    /* eps stays what the U-Net said when x0 is clipped (DDIM) */
    DK_STOCHASTIC = 4096, /* draws noise; with DK_ETA only if eta is above 0 */
    DK_ETA = 8192,        /* eta means something */
    DK_DISTILLED = 16384  /* for models distilled to few steps; blurs with others */
};

struct dk_scheduler {
    uint32_t abi, size_bytes; /* DK_SCHEDULER_HEAD */
    const char *name;         /* what to type: lower case, digits, hyphens */
    const char *title;        /* what AUTOMATIC1111 calls it, for PNG metadata */
    const char *aliases; /* other accepted names, comma-separated; diffusers' class among them */
    const char *summary; /* one line: when to use it */
    const char *paper;
    int order;           /* of convergence, with eta 0 */
    int passes_per_step; /* calls of the U-Net in a step */
    uint32_t flags;
    int steps_low, steps_high; /* suggested */
    enum dk_spacing spacing;   /* when neither the user nor the config says */
    double eta;                /* default; how much of the step is noise */
    double guidance;           /* suggested scale; 0: the model's */
    int n_vectors;             /* memory an image, in vectors of its size */

    /*
     * NULL, or this scheduler's own timesteps for n steps: t[n], falling. Spacing and sigmas are
     * then refused.
     */
    bool (*timesteps)(struct dk_plan *plan, double *t);
    /* NULL: one call a node. */
    bool (*plan)(struct dk_plan *plan);
    void (*step)(struct dk_step *s);
};

#define DK_SCHEDULER_HEAD                                                                          \
    .abi = DK_SCHEDULER_ABI, .size_bytes = (uint32_t)sizeof(struct dk_scheduler)

/* A plugin is found by this one symbol. In the library the macro is empty. */
#ifdef DK_PLUGIN
#define DK_SCHEDULER_PLUGIN(object)                                                                \
    const struct dk_scheduler *dk_plugin_scheduler(void);                                          \
    const struct dk_scheduler *dk_plugin_scheduler(void)                                           \
    {                                                                                              \
        return &(object);                                                                          \
    }
#else
#define DK_SCHEDULER_PLUGIN(object) extern const struct dk_scheduler object;
#endif

/* ---- arithmetic of (1) ----------------------------------------------------------------------- */

/*
 * Noise to signal, the sigma of Karras et al.: the same number in both forms of the path;
 * infinite at alpha 0.
 */
static inline double dk_sigma(struct dk_point p)
{
    return p.alpha > 0 ? p.sigma / p.alpha : INFINITY;
}

/*
 * lambda = ln(alpha / sigma), the time of DPM-Solver (Lu et al. 2022, section 3.1): rises on the
 * way to the picture.
 */
static inline double dk_lambda(struct dk_point p)
{
    return p.sigma > 0 ? log(p.alpha / p.sigma) : INFINITY;
}

/* The same at a trained timestep. */
static inline double dk_table_sigma(const struct dk_noise_model *m, int t)
{
    double a = m->alpha_bar[t];
    return a > 0 ? sqrt((1 - a) / a) : INFINITY;
}

/*
 * The timestep of a sigma: between two trained ones linear in ln sigma (Karras et al. 2022, via
 * k-diffusion).
 */
static inline double dk_t_of_sigma(const struct dk_noise_model *m, double sigma)
{
    if (m->edm) return log(sigma) / 4;
    int low = 0, high = m->n_train - 1;
    if (sigma <= dk_table_sigma(m, low)) return low;
    if (sigma >= dk_table_sigma(m, high)) return high;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (dk_table_sigma(m, middle) <= sigma)
            low = middle;
        else
            high = middle;
    }
    double a = log(dk_table_sigma(m, low)), b = log(dk_table_sigma(m, high));
    return b > a && isfinite(b) ? low + (log(sigma) - a) / (b - a) : low;
}

/* The point of a noise to signal ratio, in one form of the path or the other. */
static inline struct dk_point dk_point_at(bool exploding, double t, double sigma)
{
    if (exploding) return (struct dk_point){t, 1, sigma};
    if (isinf(sigma)) return (struct dk_point){t, 0, 1};
    double alpha = 1 / sqrt(1 + sigma * sigma);
    return (struct dk_point){t, alpha, sigma * alpha};
}

#endif
