"""tiny_decoder - a TAESD-like decoder for previews and the fastest path, trained on the same pictures.

scaled latent [n, 4, 16, 16] -> picture in [0, 1] [n, 3, 128, 128]; tensor names as in madebyollin/taesd's
taesd_decoder.safetensors. The latents come from the VAE's encoder, with some noise on them.
SPDX-License-Identifier: MIT
"""
import argparse
import os

import hogwild  # first: it sets the number of threads
import torch

import vae
from data import Source, halve, to_tensor
from nets import TinyDecoder, count_parameters
from settings import SCALING_FACTOR, VAE64_CONFIG, WORK_DIR


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--small", default=os.path.join(WORK_DIR, "vae64.pt"))
    p.add_argument("--out", default=os.path.join(WORK_DIR, "tiny"))
    p.add_argument("--samples", type=int, default=20000)
    p.add_argument("--batch", type=int, default=4, help="pictures per process and update")
    p.add_argument("--noise", type=float, default=.35)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--channels", type=int, default=16)
    p.add_argument("--seed", type=int, default=3000)
    p.add_argument("--processes", type=int, default=2)
    args = p.parse_args()
    torch.manual_seed(args.seed)
    encoder, net = vae.load_vae(args.small, VAE64_CONFIG), TinyDecoder(args.channels)
    print("%.2f M parameters" % (count_parameters(net) / 1e6), flush=True)
    trainer = hogwild.Trainer(args.out, dict(tiny=net), args.lr, args.batch, weight_decay=0, ema=.995,
                              warmup=50, decay_share=.5)
    trainer.resume()

    def make_loss(rank):
        source = Source(args.seed + rank + 2 * int(trainer.samples))

        def loss_of(done):
            x = to_tensor([source.sample()[0] for _ in range(args.batch)])
            with torch.no_grad():
                z = encoder.encode(halve(x))[0] * SCALING_FACTOR
            sigma = (torch.rand(args.batch, 1, 1, 1) * 1.5 - .5).clamp(min=0) * args.noise
            y = net(z + sigma * torch.randn_like(z)) * 2 - 1
            return vae.picture_loss(y, x, 1, 1, .5), dict(psnr=vae.psnr(y.detach(), x))
        return loss_of

    trainer.run(make_loss, args.samples, args.processes)


if __name__ == "__main__":
    main()
