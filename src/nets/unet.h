/* unet.h - the conditional denoising U-Net (arXiv:2112.10752; SDXL arXiv:2307.01952). */
/* SPDX-License-Identifier: MIT */
#ifndef NETS_UNET_H
#define NETS_UNET_H

#include "files/weights.h"
#include "ops/ops.h"

#define UNET_MAX_LEVELS 8
#define UNET_MAX_LAYERS 16 /* ResNets a level */
#define UNET_MAX_DEPTH  64 /* transformer blocks a layer */

/*
 * What shapes cannot tell, and what a config promises. Which levels, layers, attentions and
 * transformer blocks exist, and how wide they are, is read from the weights; where the config
 * speaks (n_levels not 0) the weights must agree, so that a file with a whole layer missing is not
 * taken for a smaller network.
 */
struct unet_config {
    int n_levels;                    /* 0: the config says nothing about the layout */
    int layers[UNET_MAX_LEVELS];     /* ResNets of the down block, fine to coarse; up: one more */
    bool attention[UNET_MAX_LEVELS]; /* the level's down block has cross-attention */
    bool up_attention[UNET_MAX_LEVELS]; /* and its up block (numbered as the down block) */
    int depth[UNET_MAX_LEVELS];         /* transformer blocks a layer; 0: as the weights have it */
    bool mid_block;                     /* false: distilled U-Nets without one */

    int n_heads[UNET_MAX_LEVELS]; /* heads at the level; diffusers calls it attention_head_dim */
    int head_width;               /* not 0: heads are width / head_width instead (SD 2, SDXL: 64) */
    int n_groups;                 /* norm_num_groups */
    float norm_eps;
    bool flip_sin_to_cos;
    float freq_shift;
    int added_time_width; /* addition_time_embed_dim of SDXL's text_time embedding; 0: none */
    int guidance_width;   /* time_cond_proj_dim of LCM models; 0: as the weights have it */
};

struct unet;

/* The weights must outlive the network. NULL on failure. */
struct unet *unet_load(const struct unet_config *config, struct weights *weights,
                       struct dk_error *err);
void unet_free(struct unet *unet);

int64_t unet_in_channels(const struct unet *unet);
int64_t unet_out_channels(const struct unet *unet);
int64_t unet_context_width(const struct unet *unet);
/* Width of the pooled text SDXL adds; 0: none. */
int64_t unet_pooled_width(const struct unet *unet);
/* time_cond_proj_dim of LCM models; 0: none. */
int64_t unet_guidance_width(const struct unet *unet);

/*
 * What stays the same over the steps of a run: keys and values of every cross-attention, computed
 * once from the context [n, tokens, width] into arena (which must stay untouched below while the
 * conditioning is in use).
 */
struct unet_conditioning;
struct unet_conditioning *
unet_condition(const struct unet *unet, struct ops *o, struct tensor context,
               struct tensor pooled /* [n, width] or rank 0 */,
               const float *time_ids /* [n, 6] or NULL: SDXL sizes and crop */,
               float guidance /* for LCM models, else ignored */);

/*
 * timestep may be fractional; answer [n, h, w, out], n as in the conditioning. x [k, h, w, in], k a
 * divisor of n: sample i starts from x[i % k], so that both halves of guidance need one latent and
 * share the work up to the first cross-attention. The answer is the same as with x repeated.
 */
struct tensor unet_forward(const struct unet *unet, struct ops *o, struct tensor x, float timestep,
                           const struct unet_conditioning *conditioning);

/*
 * Doing less work, at the price of a slightly different answer:
 *
 *   merge   self-attention at the finest level that has any works on fewer tokens (op_merge_plan)
 *   deep    a call takes what comes up from below skip connection number branch (0: conv_in's,
 *           then the down path's in order) from an earlier call, and computes only what is
 *           above: branch layers down, branch + 1 up (DeepCache, arXiv:2312.00858, section 3.3)
 *   cross   a call takes the answers of all cross-attentions it comes by from earlier calls
 *           (T-GATE, arXiv:2404.02747, section 4)
 *
 * What calls leave for later ones belongs to one run. It lies in the arena, which must stay
 * untouched below while it is in use. Nothing is kept of what is not asked for here.
 */
struct unet_saving {
    double merge; /* share of the tokens, below 1; 0: none */
    bool deep, cross;
    int branch; /* below unet_skips */
};
struct unet_reuse;
/* n samples at most (as in the conditioning) of h x w. NULL on failure. */
struct unet_reuse *unet_reuse_new(const struct unet *unet, struct ops *o,
                                  const struct unet_saving *saving, int64_t n, int64_t h,
                                  int64_t w);
int unet_skips(const struct unet *unet); /* skip connections */

/*
 * unet_forward with that. deep and cross: take them from earlier calls; what is not taken is
 * computed and kept, so a call with neither gives the bytes of unet_forward (but for merge). After
 * a call with both halves of guidance a call with the second alone takes what its own half left.
 * What no earlier call has left for as many samples is computed.
 */
struct tensor unet_forward_reusing(const struct unet *unet, struct ops *o, struct tensor x,
                                   float timestep, const struct unet_conditioning *conditioning,
                                   struct unet_reuse *reuse, bool deep, bool cross);

/*
 * For tests: called with the name and value of intermediate results: conv_in, down.I, down.I.resJ,
 * mid, up.I and so on, tf0.* within the first transformer (attn1, attn2 and ff after their
 * residuals). NULL: none. The library sets none.
 */
typedef void unet_probe(void *user, const char *name, struct tensor value);
void unet_set_probe(struct unet *unet, unet_probe *probe, void *user);

#endif
