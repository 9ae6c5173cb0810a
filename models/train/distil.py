"""distil - latent consistency distillation: a student that needs 1 to 8 steps.

Luo et al. 2023 (arXiv:2310.04378) on the cached latents, with classifier-free guidance of a fixed scale
folded in: the student needs one pass per step where the teacher needs two.
  x at t_{k+1}  --teacher, one guided DDIM step-->  x at t_k
  loss = pseudo-Huber(student(x, t_{k+1}), slow average of the student(x at t_k, t_k))
on the 50 timesteps 19, 39 .. 999 that the LCM scheduler uses. The student begins as the teacher.
SPDX-License-Identifier: MIT
"""
import argparse
import os

import hogwild  # first: it sets the number of threads
import torch

from sample import boundary
from settings import GUIDANCE, TEXT_CONFIG, UNET_CONFIG, WORK_DIR
from unet import LATENTS, alpha_bars, column, empty_caption, from_v, load_cache, load_nets

GRID_STEPS = 50


def consistency(net, x, t, context, alpha_bar):
    """-> the clean latent that (x, t) leads to, in one pass"""
    v = net(x, t, context)
    a = column(alpha_bar[t])
    c_skip, c_out = (column(c) for c in boundary(t.float()))
    return c_skip * x + c_out * from_v(x, v, a)[0]


def train(args):
    latents, ids = load_cache(args.latents)
    teacher, text, checkpoint = load_nets(args.teacher)
    student, _, _ = load_nets(args.teacher)
    student.requires_grad_(True)
    target = load_nets(args.teacher)[0]
    trainer = hogwild.Trainer(args.out, dict(unet=student, text=text), args.lr, args.batch,
                              weight_decay=0, ema=0.99, warmup=20, decay_share=.4,
                              configs=dict(unet=UNET_CONFIG, text=TEXT_CONFIG))
    trainer.resume()
    alpha_bar = alpha_bars()
    grid = torch.arange(1, GRID_STEPS + 1) * (1000 // GRID_STEPS) - 1
    empty = text(empty_caption()[None]).detach()

    @torch.no_grad()
    def teacher_step(x, t, next_t, context):
        n = len(x)
        v = teacher(torch.cat([x, x]), torch.cat([t, t]),
                    torch.cat([context, empty.expand(n, -1, -1)]))
        with_text, without = v.chunk(2)
        v = without + args.guidance * (with_text - without)
        a, b = column(alpha_bar[t]), column(alpha_bar[next_t.clamp(min=0)])
        b = torch.where(column(next_t) < 0, torch.ones_like(b), b)
        x0, eps = from_v(x, v, a)
        return b.sqrt() * x0 + (1 - b).sqrt() * eps

    def make_loss(rank):
        def loss_of(done):
            i = torch.randint(0, len(latents), (args.batch,))
            x0, tokens = latents[i].float(), ids[i].long()
            with torch.no_grad():
                context = text(tokens)
            u = (torch.arange(args.batch) + torch.rand(args.batch)) / args.batch
            k = (u * GRID_STEPS).long()[torch.randperm(args.batch)]
            skip = args.skip
            t, next_k = grid[k], k - skip
            next_t = torch.where(next_k >= 0, grid[next_k.clamp(min=0)], torch.full_like(t, -1))
            a = column(alpha_bar[t])
            x = a.sqrt() * x0 + (1 - a).sqrt() * torch.randn_like(x0)
            nearer = teacher_step(x, t, next_t, context)
            with torch.no_grad():
                target.load_state_dict(trainer.average["unet"])
                goal = consistency(target, nearer, next_t.clamp(min=0), context, alpha_bar)
                goal = torch.where(column(next_t) < 0, nearer, goal)
            answer = consistency(student, x, t, context, alpha_bar)
            c = .001
            loss = (((answer - goal) ** 2 + c ** 2).sqrt() - c).mean()
            return loss, dict(error=float(((answer.detach() - goal) ** 2).mean()))
        return loss_of

    trainer.run(make_loss, args.samples, args.processes, log_every=10)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--teacher", default=os.path.join(WORK_DIR, "unet/last.pt"))
    p.add_argument("--latents", default=LATENTS)
    p.add_argument("--out", default=os.path.join(WORK_DIR, "lcm"))
    p.add_argument("--samples", type=int, default=30000)
    p.add_argument("--batch", type=int, default=16, help="samples per process and update")
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--guidance", type=float, default=GUIDANCE)
    p.add_argument("--skip", type=int, default=5, help="timesteps of the grid per teacher step")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--processes", type=int, default=2)
    args = p.parse_args()
    torch.manual_seed(args.seed)
    train(args)


if __name__ == "__main__":
    main()
