"""tiny_decoder - a small decoder after TAESD, for previews and the fastest path, trained on the same pictures.

  tiny_decoder.py train    scaled latents, some with noise, to the true pictures        -> tiny/last.pt
  tiny_decoder.py check    PSNR and seconds, beside the VAE's decoder, on the same fresh latents
  tiny_decoder.py export   -> FOLDER/vae_tiny, AutoencoderTiny in the diffusers layout (export.py does it too)

Stop it by a file named stop in its folder and start it again: it goes on. --processes 2 doubles the speed on
two cores (about 17 pictures a CPU-second). plan.json in its folder may end the run sooner, with the decay.

The latents are those the U-Net is trained on: means of the first autoencoder's encoder, times SCALING_FACTOR.
SPDX-License-Identifier: MIT
"""
import argparse
import os
import random
import time

import hogwild  # first: it sets the number of threads
import numpy as np
import torch

import vae
from data import Source, halve, sheet, to_pixels, to_tensor
from export import export_tiny
from nets import AutoencoderTiny, TinyBlock, count_parameters
from settings import SCALING_FACTOR, TINY_CONFIG, VAE64_CONFIG, WORK_DIR


@torch.no_grad()
def bare_path_init(net):
    """Start as "enlarge bilinearly what the first convolution saw".

    Channels 2k and 2k + 1 carry latent channel k and its negative, so nothing is lost to ReLU; blocks add
    nothing at first, and what is not negative passes their ReLU unharmed; [1 2 1] / 4 after doubling is
    bilinear. Colours are then one linear map away, and depth is learned where it pays."""
    layers, latent = net.decoder.layers, net.config["latent_channels"]
    first, last = layers[0], layers[-1]
    torch.nn.init.kaiming_normal_(first.weight, nonlinearity="relu")
    first.bias.zero_()
    first.weight[:2 * latent] = 0
    for k in range(latent):
        first.weight[2 * k, k, 1, 1], first.weight[2 * k + 1, k, 1, 1] = 1, -1
    blur = torch.tensor([1., 2., 1.]) / 4
    for layer in layers:
        if isinstance(layer, TinyBlock):
            for conv in layer.conv[::2]:
                torch.nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
                conv.bias.zero_()
            layer.conv[4].weight.zero_()
        elif isinstance(layer, torch.nn.Conv2d) and layer.bias is None:
            each = torch.arange(layer.out_channels)
            torch.nn.init.normal_(layer.weight, std=.02)
            layer.weight[each, each] += blur[:, None] * blur[None]
    last.weight *= .1
    last.bias.fill_(.5)


def encode(encoder, x):
    with torch.no_grad():
        return encoder.encode(halve(x))[0] * SCALING_FACTOR


def train(args):
    config = dict(TINY_CONFIG)
    encoder, net = vae.load_vae(args.small, VAE64_CONFIG), AutoencoderTiny(config)
    bare_path_init(net)
    print("%.3f M parameters" % (count_parameters(net) / 1e6), flush=True)
    trainer = hogwild.Trainer(args.out, dict(tiny=net), args.lr, args.batch, weight_decay=0, ema=.995,
                              warmup=100, configs=dict(tiny=config), decay_share=1, shape="cosine")
    trainer.resume()

    def make_loss(rank):
        source = Source(args.seed + rank + 2 * int(trainer.samples))

        def loss_of(done):
            x = to_tensor([source.sample()[0] for _ in range(args.batch)])
            z = encode(encoder, x)
            sigma = (torch.rand(args.batch, 1, 1, 1) * 1.5 - .5).clamp(min=0) * args.noise
            y = net.decode(z + sigma * torch.randn_like(z))
            return vae.picture_loss(y, x, 1, 1, .5), dict(psnr=vae.psnr(y.detach(), x))
        return loss_of

    trainer.run(make_loss, args.samples, args.processes, log_every=100)


def load_tiny(path):
    z = torch.load(path, map_location="cpu")
    net = AutoencoderTiny(z["configs"]["tiny"])
    net.load_state_dict(z["average"]["tiny"])
    return net.eval().requires_grad_(False)


@torch.no_grad()
def check(args):
    encoder = vae.load_vae(args.small, VAE64_CONFIG)
    big = vae.load_vae(args.vae, torch.load(args.vae, map_location="cpu")["configs"]["vae"])
    tiny, source, sheets = load_tiny(os.path.join(args.out, "last.pt")), Source(4242), []
    decoders = dict(tiny=tiny.decode, vae=lambda z: big.decode(z / SCALING_FACTOR))
    psnrs, seconds = {}, dict.fromkeys(decoders, 0)
    for i in range(args.count // 8):
        x = to_tensor([source.sample()[0] for _ in range(8)])
        z = encode(encoder, x)
        for noise in (0, .15, .3):
            noisy = z + noise * torch.randn_like(z)
            for name, decode in decoders.items():
                began = time.process_time()
                y = decode(noisy)
                seconds[name] += time.process_time() - began
                psnrs.setdefault((name, noise), []).append(vae.psnr(y, x))
                if i == 0 and noise == 0:
                    sheets += [y] if sheets else [x, y]
    for name in decoders:
        print("%-5s %s  %.4f CPU-seconds a picture" % (name, "  ".join(
            "noise %.2f: %.2f dB" % (n, np.mean(v)) for (who, n), v in psnrs.items() if who == name),
            seconds[name] / (len(psnrs) / 2 * len(psnrs[name, 0]) * 8)))
    sheet(to_pixels(torch.cat(sheets)), 8).save(args.sheet)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("stage", choices=["train", "check", "export"])
    p.add_argument("--out", default=os.path.join(WORK_DIR, "tiny"), help="folder of the run")
    p.add_argument("--small", default=os.path.join(WORK_DIR, "vae64.pt"))
    p.add_argument("--vae", default=os.path.join(WORK_DIR, "vae/last.pt"), help="check: to compare with")
    p.add_argument("--samples", type=int, default=22000, help="pictures to see in all")
    p.add_argument("--batch", type=int, default=4, help="pictures per process and update")
    p.add_argument("--noise", type=float, default=.35, help="most noise on the latents")
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--seed", type=int, default=3000)
    p.add_argument("--processes", type=int, default=1)
    p.add_argument("--count", type=int, default=256, help="check: pictures")
    p.add_argument("--sheet", default=os.path.join(WORK_DIR, "tiny.png"))
    p.add_argument("--folder", default=WORK_DIR, help="export: vae_tiny is written into it")
    args = p.parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    if args.stage == "train":
        train(args)
    elif args.stage == "check":
        check(args)
    else:
        export_tiny(args.folder, os.path.join(args.out, "last.pt"))


if __name__ == "__main__":
    main()
