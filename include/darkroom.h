/* darkroom.h - the public interface of darkroom: prompt in, picture out. */
/* SPDX-License-Identifier: MIT */
#ifndef DARKROOM_H
#define DARKROOM_H

/*
 * The path of a picture: dk_model_open() maps the weights, dk_resolve() fills every setting left
 * open and refuses what cannot work, dk_render() makes the pictures, dk_png_write() stores one with
 * its text chunks.
 *
 * Rules that hold for every function here:
 *  - What can fail returns bool (true is success) or NULL, and fills *err; err may be NULL.
 *    The first failure wins.
 *  - Nothing prints, exits, installs a signal handler or touches the network.
 *  - Strings are UTF-8 and stay the caller's.
 *    What a function allocates has a matching free function.
 *  - A model may be used by one thread at a time. Different models are independent.
 *  - The same settings give the same bytes, whatever the number of threads and whatever else is
 *    in the batch.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DK_VERSION "0.1.0"

/* ---- errors -------------------------------------------------------------------------------- */

enum dk_code {
    DK_OK,
    DK_ERROR_ARGUMENT,    /* a setting or parameter that cannot work */
    DK_ERROR_FILE,        /* the operating system refused: open, read, write, space */
    DK_ERROR_FORMAT,      /* a file that is damaged, hostile or of another kind */
    DK_ERROR_MODEL,       /* a model that lacks a part or whose parts do not fit together */
    DK_ERROR_UNSUPPORTED, /* understood, but not done here */
    DK_ERROR_MEMORY,      /* out of memory or above the limit given */
    DK_ERROR_NUMERIC,     /* NaN or infinity in weights, latent or picture */
    DK_ERROR_CANCELLED    /* the caller asked to stop */
};

/* message is one sentence: subject, what was found, what was expected, what to do.
 * Lower case, no final period. */
struct dk_error {
    enum dk_code code;
    char message[1024];
};

/* ---- pictures ------------------------------------------------------------------------------ */

/* 8-bit sRGB, rows from the top, 3 bytes a pixel, no padding. */
struct dk_image {
    int width_px, height_px;
    uint8_t *rgb; /* [height_px * width_px * 3], owned; free with dk_image_free */
};
void dk_image_free(struct dk_image *image);

/* One text chunk of a PNG file: keyword 1 to 79 Latin-1 characters, text any UTF-8. */
struct dk_text {
    char *keyword;
    char *text;
};
struct dk_texts {
    struct dk_text *items;
    size_t n_items;
};
void dk_texts_free(struct dk_texts *texts);

/*
 * Writes a PNG file: to a temporary name in the same folder, synced, then renamed. An existing file
 * is replaced only when overwrite is true; otherwise the call fails with DK_ERROR_FILE and nothing
 * changes. Text that is not Latin-1 becomes iTXt, the rest tEXt.
 */
bool dk_png_write(const char *path, const struct dk_image *image, const struct dk_text *texts,
                  size_t n_texts, bool overwrite, struct dk_error *err);

/* Reads a PNG (image may be NULL) and its tEXt, zTXt and iTXt chunks (texts may be NULL).
 * Both are freed by the caller. */
bool dk_png_read(const char *path, struct dk_image *image, struct dk_texts *texts,
                 struct dk_error *err);

/* ---- models -------------------------------------------------------------------------------- */

struct dk_model;

/* Zero-initialise; every field has a meaning at zero.
 * Paths are NULL where the model's own part is to be used. */
struct dk_model_options {
    int n_threads;            /* 0: the number of physical cores */
    const char *unet;         /* a file or folder that replaces the U-Net */
    const char *vae;          /* the same for the VAE */
    const char *taesd;        /* a tiny decoder to use in place of the VAE's; NULL: the model's own,
                                 if it has one, for previews */
    bool taesd_preview_only;  /* the tiny decoder given makes previews only */
    const char *text_encoder; /* the same for the (first) text encoder */
    const char *tokenizer;    /* a folder with vocab.json and merges.txt */
    const char *prediction;   /* "epsilon", "v_prediction", "sample"; NULL: what the model says */
    const char *data_dir;     /* where models/clip/ lies; NULL: where dk_model_find looks */
    size_t max_memory_bytes;  /* limit for work memory and prepared weights, not for the
                                 process as a whole; 0: none */
    bool scalar_kernels;      /* the reference kernels, for comparison */
    void (*warn)(void *user, const char *sentence); /* may be NULL */
    void *user;
};

/* Opens a diffusers folder or a single file. Weights are mapped, not read. NULL on failure. */
struct dk_model *dk_model_open(const char *path, const struct dk_model_options *options,
                               struct dk_error *err);
void dk_model_close(struct dk_model *model);

#define DK_MAX_PARTS 8
struct dk_part_info {
    const char *name; /* "unet", "vae", "text_encoder", "text_encoder_2", ... */
    size_t n_tensors, n_parameters, size_bytes;
    char dtypes[64]; /* "f16 686, f32 2" */
};
struct dk_model_info {
    const char *path;
    const char *family;     /* "sd1", "sd2", "sdxl", "custom", ... */
    const char *prediction; /* "epsilon", "v_prediction", "sample" */
    bool prediction_known;         /* false: a trial will tell, see dk_model_find_prediction */
    const char *prediction_source; /* by what it is known: "scheduler config", "marker tensor",
                                      "metadata", "trial of the U-Net", "option", "assumed" */
    const char *scheduler;  /* the scheduler rendered with by default */
    int native_width_px, native_height_px;
    int size_multiple_px; /* width and height must be multiples of this */
    int n_steps;          /* the default number of steps */
    double guidance;      /* the default guidance scale */
    int context_tokens;   /* tokens in one chunk, start and end included */
    size_t n_parts;
    struct dk_part_info parts[DK_MAX_PARTS];
    size_t work_bytes; /* expected work memory at the native size, weights not counted */
};
/* The strings live as long as the model. */
void dk_model_get_info(const struct dk_model *model, struct dk_model_info *info);
/*
 * SD 2 exists with both predictions in one shape. Where nothing in the files says which, this asks
 * the U-Net by one small call, which reads all of its weights; once, and dk_resolve does it by
 * itself.
 */
bool dk_model_find_prediction(struct dk_model *model, struct dk_error *err);
struct dk_settings;
/* The work memory expected for one picture with these settings, of which size, decoder and what
 * saves work count; what dk_model_info has is for the defaults. */
bool dk_model_work_bytes(const struct dk_model *model, const struct dk_settings *settings,
                         size_t *n_bytes, struct dk_error *err);

/*
 * Finds the default model or a named one: a path as it is; else NAME under the models folder beside
 * the program, in the install prefix, in $DARKROOM_MODELS. name NULL means the default model. Free
 * the answer with dk_free.
 */
char *dk_model_find(const char *name, struct dk_error *err);
/* The models in the folders searched: calls each once a model and returns how many there are. */
size_t dk_model_list(void (*each)(void *user, const char *name, const char *path), void *user);

/* ---- rendering ----------------------------------------------------------------------------- */

/*
 * What to render. Start from dk_settings_default(); a field left at its default is filled from the
 * model by dk_resolve(). Strings are the caller's and must outlive the call.
 */
struct dk_settings {
    const char *prompt;      /* UTF-8, may be empty */
    const char *negative;    /* "" or NULL: none */
    bool prompt_syntax;      /* (word:1.2), [word], BREAK; false: plain text */
    int width_px, height_px; /* 0: native */
    int n_steps;             /* 0: the model's default */
    const char *scheduler;   /* NULL: the model's default; a name, an alias or ./plugin.so */
    const char *spacing;     /* NULL: as the model's config; "leading", "linspace", "trailing" */
    const char *sigmas; /* NULL: as the model's config; a schedule's name or a list with commas */
    const char *timesteps; /* NULL: planned; else a list with commas, from noise to picture */
    double guidance;       /* NAN: the model's default; 1 or less: no unconditional pass */
    /* Guidance only in this part of the run, as fractions of its calls (arXiv:2404.07724):
     * the others need one pass. */
    double guidance_from, guidance_to; /* 0 and 1: the whole run */
    double guidance_rescale;           /* 0: none (arXiv:2305.08891, eq. 15-16) */
    /*
     * Doing less work for nearly the same picture; all three may be combined. A call is one
     * question to the U-Net at one timestep, of which a step has one or (heun, dpm2) two.
     */
    int deepcache; /* deep features are computed in every n-th call (arXiv:2312.00858); 1: in all */
    int deepcache_branch; /* the skip connection above which all is computed; 0: the finest */
    double tgate; /* cross-attention is computed in the first steps only (arXiv:2404.02747): so
                     many, or below 1 that fraction of them; 0: in all */
    double tome;  /* share of tokens that self-attention merges at the finest level that has any
                     (arXiv:2303.17604): 0 to 0.75 */
    double eta;                        /* NAN: the scheduler's default */
    int clip_skip;   /* layers of the text encoder to leave out at its end; 0: none */
    bool vae_tiling; /* decode in blended tiles: less memory, not quite the same picture */
    /* "vae", or "tiny": rougher and several times faster. NULL: the VAE; with a tiny decoder given
     * to dk_model_open (and not for previews only) that one. */
    const char *decoder;
    const char *rng; /* NULL or "cpu": torch's CPU generator; "nv": Philox as on CUDA */
    uint64_t seed;
    const float *noise; /* NULL, or the unit noise [c, h, w] to start from */
    /* SDXL's size conditioning; 0: the picture's own size and no crop */
    int original_width_px, original_height_px, crop_left_px, crop_top_px;
};
void dk_settings_default(struct dk_settings *settings);

/*
 * Fills what is open in *settings from the model and checks everything: sizes, steps, scheduler,
 * schedule, prompt. Strings it sets live as long as the model. *n_passes (may be NULL) becomes the
 * number of U-Net passes one picture needs, counting conditional and unconditional as two.
 */
bool dk_resolve(struct dk_model *model, struct dk_settings *settings, int *n_passes,
                struct dk_error *err);

enum dk_phase { DK_PHASE_LOAD, DK_PHASE_TEXT, DK_PHASE_DENOISE, DK_PHASE_DECODE };
struct dk_progress {
    enum dk_phase phase;
    int done, total; /* model calls within DENOISE; 0 of 1 and 1 of 1 for the other phases */
    const struct dk_image *preview; /* rough, perhaps smaller, of the present latent; or NULL */
};
/*
 * What one kind of operation cost in a run. Arithmetic is what the plain formula needs, a
 * multiplication and an addition being two, whatever the algorithm saves; bytes are inputs, weights
 * and results, once each.
 */
struct dk_cost {
    enum dk_phase phase;
    const char *kind; /* "conv 3x3", "conv 1x1", "linear", "attention", "norm" */
    size_t n_calls;
    double seconds, flop, bytes;
};
struct dk_hooks {
    void (*progress)(void *user, const struct dk_progress *progress); /* may be NULL */
    bool preview;                                                     /* ask for preview pictures */
    /* A finished latent [h, w, c] before it is decoded, as the VAE's scaling factor leaves it;
     * may be NULL. */
    void (*latent)(void *user, size_t job, const float *latent, int h, int w, int c);
    /* Called at the end for every kind of operation that ran, phase by phase; measuring costs
     * next to nothing. May be NULL. */
    void (*cost)(void *user, const struct dk_cost *cost);
    void *user;
    const volatile int *cancel; /* the run ends within one layer once this is not 0; may be NULL */
};

struct dk_stats {
    int unet_passes;
    int partial_passes; /* of these, how many took features of earlier ones (deepcache, tgate) */
    double text_s, denoise_s, decode_s;
};

/*
 * Renders n_jobs pictures. Jobs that agree in size and schedule may run together. Every picture is
 * the same as if it were made alone. hooks and stats may be NULL; images NULL leaves the decoding
 * out (hooks->latent gets the latents). On failure no image is left allocated.
 */
bool dk_render(struct dk_model *model, const struct dk_settings *jobs, size_t n_jobs,
               struct dk_image *images, const struct dk_hooks *hooks, struct dk_stats *stats,
               struct dk_error *err);

/* ---- converting ---------------------------------------------------------------------------- */

/* Zero-initialise; every field has a meaning at zero. */
struct dk_convert_options {
    const char *format; /* NULL: as the output's name ends; "safetensors" or "gguf" */
    const char *dtype;  /* NULL: as they are; f32, f16, bf16, for GGUF also q8_0, q4_0, q4_k */
    bool overwrite;
    void (*progress)(void *user, size_t done_bytes, size_t total_bytes); /* may be NULL */
    void *user;
    const volatile int *cancel; /* the conversion stops once this is not 0; may be NULL */
};

/*
 * Writes the model at in (a folder, or a file of any kind that can be read) as one file with names
 * as diffusers has them: those of several parts begin with "unet.", "vae.", "text_encoder.",
 * "text_encoder_2.". What the file says beside the tensors is kept, and so are a folder's configs
 * and a tokenizer other than CLIP's own, as text under their paths ("unet/config.json"): the one
 * file renders what the folder does. Integers stay what they are. With quantised types, matrices
 * are quantised and the rest becomes f16.
 */
bool dk_convert(const char *in, const char *out, const struct dk_convert_options *options,
                struct dk_error *err);

/* ---- text ---------------------------------------------------------------------------------- */

/* Token ids of a text with start and end token, not padded or cut. Free *ids with dk_free. */
bool dk_tokenize(struct dk_model *model, const char *text, size_t text_bytes, int32_t **ids,
                 size_t *n_ids, struct dk_error *err);

/*
 * Dynamic prompts: {a|b}, weights {2::a|b}, counts {2$$a|b|c}, ranges and separators
 * {2-3$$ and $$a|b|c}, nesting, and __animals__ for a line of animals.txt in the folder wildcards
 * (NULL: there is none). \{ \} \| \_ are the characters. The seed fixes the choices, for ever.
 * Free *prompt with dk_free.
 */
bool dk_expand_prompt(const char *text, const char *wildcards, uint64_t seed, char **prompt,
                      struct dk_error *err);

/*
 * Every combination, at most limit of them, in the order of a number whose last digit is the last
 * choice; options of weight 0 are left out, and a count gives every selection in every order.
 * *complete (may be NULL) tells whether these are all. Free with dk_prompts_free.
 */
bool dk_expand_all(const char *text, const char *wildcards, size_t limit, char ***prompts,
                   size_t *n_prompts, bool *complete, struct dk_error *err);
void dk_prompts_free(char **prompts, size_t n_prompts);

/* ---- schedulers ---------------------------------------------------------------------------- */

struct dk_scheduler_info {
    const char *name;    /* what to type */
    const char *title;   /* what A1111 calls it */
    const char *summary; /* one line */
    const char *paper;
    const char *aliases; /* other accepted names, comma-separated */
    int order;           /* order of convergence */
    int passes_per_step;
    bool stochastic;           /* draws noise on the way, with its own eta */
    bool takes_eta;            /* draws noise exactly when eta is above 0 */
    int steps_low, steps_high; /* suggested */
};
size_t dk_scheduler_count(void);
bool dk_scheduler_get(size_t index, struct dk_scheduler_info *info);

/* The calls a scheduler would make with these settings: timestep and sigma of each.
 * Free both with dk_free. */
bool dk_scheduler_plan(struct dk_model *model, const struct dk_settings *settings,
                       double **timesteps, double **sigmas, size_t *n_calls, struct dk_error *err);

/* ---- measuring ----------------------------------------------------------------------------- */

/* Of one picture against another; src/pipeline/metrics.h has the definitions and their sources. */
struct dk_metrics {
    double psnr_db; /* over all channels; INFINITY for equal pictures */
    double ssim;    /* of the luminance, -1 to 1 */
    double ms_ssim; /* of the luminance, 0 to 1 */
    int n_scales;   /* that ms_ssim is made of: 5, fewer where a side is below 176 pixels */
};
/* Both pictures must have the same size. */
bool dk_metrics_compare(const struct dk_image *a, const struct dk_image *b,
                        struct dk_metrics *metrics, struct dk_error *err);
/* Root of the mean squared difference, as between two latents. */
double dk_metrics_rmse(const float *a, const float *b, size_t n);
/* Root mean square of the luminance's gradient, in levels (0 to 255) a pixel: a blur lowers it. */
double dk_metrics_sharpness(const struct dk_image *image);
/* Standard deviation of the luminance, in levels. */
double dk_metrics_contrast(const struct dk_image *image);

/*
 * The CLIP score: how well a picture fits a text by a CLIP with both towers (arXiv:2103.00020), a
 * folder or a file as transformers or OpenCLIP write it, mapped as a model is. Of the options
 * n_threads, data_dir, max_memory_bytes (of work memory) and scalar_kernels count. NULL on failure.
 */
struct dk_clip;
struct dk_clip *dk_clip_open(const char *path, const struct dk_model_options *options,
                             struct dk_error *err);
void dk_clip_close(struct dk_clip *clip);
/*
 * 100 max(cosine, 0) of the two embeddings, so 0 to 100, and about 20 to 35 where a picture fits
 * (Hessel et al. 2021, arXiv:2104.08718, have 2.5 in place of 100). A text of more tokens than the
 * CLIP takes counts up to there; with prompt_syntax its brackets are read as in a prompt, and the
 * weights dropped. *cancel as in dk_hooks; may be NULL.
 */
bool dk_clip_score(struct dk_clip *clip, const struct dk_image *image, const char *text,
                   bool prompt_syntax, const volatile int *cancel, double *score,
                   struct dk_error *err);

/* ---- the machine --------------------------------------------------------------------------- */

/* What the machine can do with the model's kernels and threads; measuring takes about a second. */
struct dk_machine {
    int n_threads;
    double flops;            /* multiplications and additions a second, in registers */
    double bytes_per_second; /* read and written by a copy far beyond the caches */
};
void dk_machine_measure(const struct dk_model *model, struct dk_machine *machine);

/* ---- the rest ------------------------------------------------------------------------------ */

void dk_free(void *pointer);
/* "avx2" and the like: the kernel set in use, which is part of what a picture's bytes depend on. */
const char *dk_cpu_level(void);

#ifdef __cplusplus
}
#endif
#endif
