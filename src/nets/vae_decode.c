/* vae_decode.c - from the latent to the picture. */
/* SPDX-License-Identifier: MIT */
#include "nets/vae_chain.h"

static void add_link(struct vae_chain *chain, struct vae_link link)
{
    const struct vae_link *before = &chain->links[chain->n];
    link.h = link.enlarges ? 2 * before->h : before->h;
    link.w = link.enlarges ? 2 * before->w : before->w;
    link.c = conv_out(link.conv);
    chain->links[++chain->n] = link;
}

void vae_chain_lay(struct vae_chain *chain, const struct vae *vae, int64_t h, int64_t w)
{
    const struct vae_half *d = &vae->decoder;
    chain->n = 0;
    chain->links[0] = (struct vae_link){.level = -1, .h = h, .w = w, .c = conv_out(&d->in)};
    for (int i = 0; i < d->n_levels; i++) {
        const struct vae_level *level = &d->levels[i];
        for (int j = 0; j < level->n_resnets; j++) {
            const struct resnet *t = &level->resnets[j];
            add_link(chain, (struct vae_link){.conv = &t->conv1, .norm = &t->norm1, .level = -1});
            add_link(chain, (struct vae_link){
                                .conv = &t->conv2, .norm = &t->norm2, .block = t, .level = -1});
        }
        if (weight_exists(&level->resize.weight))
            add_link(chain, (struct vae_link){.conv = &level->resize, .enlarges = true});
        chain->links[chain->n].level = i;
    }
    add_link(chain, (struct vae_link){.conv = &d->out, .norm = &d->norm_out, .level = -1});
}

bool vae_chain_holds(const struct vae_chain *chain, int i)
{
    return i == chain->n || !chain->links[i + 1].block;
}

double vae_chain_work(const struct vae_chain *chain, int i)
{
    const struct vae_link *l = &chain->links[i];
    double in = 9 * (double)chain->links[i - 1].c;
    if (l->block && weight_exists(&l->block->shortcut.weight)) in += (double)chain->links[i - 2].c;
    return (double)l->h * (double)l->w * (double)l->c * in;
}

struct conv_args vae_link_args(const struct vae_link *link)
{
    return (struct conv_args){.conv = link->conv,
                              .act = link->norm ? ACT_SILU : ACT_NONE,
                              .up_h = link->enlarges ? link->h : 0,
                              .up_w = link->enlarges ? link->w : 0};
}

/* A ResNet, or a single link. */
static struct tensor run_whole(const struct vae_link *link, struct ops *o, size_t mark,
                               struct tensor x, const struct tensor *into)
{
    if (link->block) return resnet_replace(link->block, o, mark, x);
    struct conv_args args = vae_link_args(link);
    args.norm = link->norm;
    args.into = into;
    struct tensor y = op_conv(o, x, &args);
    return into ? y : tensor_keep(o->arena, mark, y);
}

struct tensor vae_step_run(const struct vae_chain *chain, struct ops *o,
                           const struct vae_step *step, size_t mark, struct tensor x,
                           const struct tensor *into)
{
    if (step->band) return vae_bands_run(chain, o, step, mark, x, into);
    return run_whole(&chain->links[step->to], o, mark, x, into);
}

/* z [1, h, w, latent] to y [1, h * f, w * f, 3]; the arena is used up to limit_bytes at most, if
 * that is possible. */
static void decode_one(const struct vae *vae, struct ops *o, struct tensor z, struct tensor y,
                       size_t limit_bytes)
{
    const struct vae_half *d = &vae->decoder;
    struct vae_chain chain;
    struct vae_plan plan;
    size_t mark = arena_mark(o->arena);
    struct tensor x = z;
    if (weight_exists(&vae->post_quant.weight))
        x = op_conv(o, x, &(struct conv_args){.conv = &vae->post_quant});
    vae_show(vae, x, "post_quant", -1);
    x = tensor_keep(o->arena, mark, op_conv(o, x, &(struct conv_args){.conv = &d->in}));
    vae_show(vae, x, "conv_in", -1);
    x = vae_mid_forward(vae, &d->mid, o, mark, x);
    if (x.rank == 0) return;
    vae_chain_lay(&chain, vae, x.dim[1], x.dim[2]);
    vae_plan_find(&plan, &chain, o, limit_bytes > mark ? limit_bytes - mark : 0);
    for (int i = 0; i < plan.n && ops_ok(o); i++) {
        int to = plan.steps[i].to, level = chain.links[to].level;
        x = vae_step_run(&chain, o, &plan.steps[i], mark, x, to == chain.n ? &y : NULL);
        if (level >= 0) vae_show(vae, x, "up", level);
    }
}

struct tensor vae_decode_within(const struct vae *vae, struct ops *o, struct tensor z,
                                size_t limit_bytes)
{
    if (!ops_ok(o) || z.rank == 0) return (struct tensor){0};
    int64_t f = vae_factor(vae);
    struct tensor y = tensor_new4(o->arena, z.dim[0], z.dim[1] * f, z.dim[2] * f,
                                  conv_out(&vae->decoder.out), o->err);
    for (int64_t i = 0; i < z.dim[0] && ops_ok(o); i++) {
        size_t mark = arena_mark(o->arena);
        struct tensor one = z, picture = y;
        one.dim[0] = picture.dim[0] = 1;
        one.data += i * tensor_count(one);
        picture.data += i * tensor_count(picture);
        decode_one(vae, o, one, picture, limit_bytes);
        arena_reset(o->arena, mark);
    }
    return ops_ok(o) ? y : (struct tensor){0};
}

struct tensor vae_decode(const struct vae *vae, struct ops *o, struct tensor z)
{
    return vae_decode_within(vae, o, z, SIZE_MAX);
}
