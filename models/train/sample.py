"""sample - draw pictures with an exported folder, in the training code.

Model(folder) loads it; ddim() is the teacher's sampler, lcm() the student's. The starting latent of
picture i is torch's normal noise for seed + i, as in the program (--seed): the two can be compared.
usage: sample.py FOLDER OUT.png [--prompts FILE] [--steps 25] [--guidance 1.25] [--lcm]
SPDX-License-Identifier: MIT
"""
import argparse
import json

import hogwild  # first: it sets the number of threads
import numpy as np
import torch

from data import sheet, to_pixels
from export import load_safetensors
from nets import AutoencoderKL, CLIPTextModel, UNet2DConditionModel
from settings import GUIDANCE
from tokenizer import Tokenizer
from unet import alpha_bars, from_v


def trailing(steps, train_steps=1000):
    return (np.round(np.arange(train_steps, 0, -train_steps / steps)).astype(int) - 1).tolist()


def lcm_timesteps(steps, original=50, train_steps=1000):
    """diffusers' LCMScheduler: every so many-th of the 50 training timesteps 19, 39 .. 999"""
    stride = train_steps // original
    origin = (np.arange(1, original + 1) * stride - 1)[::-1]
    return origin[np.floor(np.linspace(0, original, steps, endpoint=False)).astype(int)].tolist()


class Model:
    def __init__(self, folder):
        def config(part):
            with open("%s/%s/config.json" % (folder, part)) as f:
                return json.load(f)

        def load(net, name):
            net.load_state_dict(load_safetensors("%s/%s" % (folder, name)))
            return net.eval().requires_grad_(False)

        self.unet = load(UNet2DConditionModel(config("unet")),
                         "unet/diffusion_pytorch_model.safetensors")
        self.text = load(CLIPTextModel(config("text_encoder")), "text_encoder/model.safetensors")
        self.vae = load(AutoencoderKL(config("vae")), "vae/diffusion_pytorch_model.safetensors")
        self.tokenizer = Tokenizer(folder + "/tokenizer", self.text.config["max_position_embeddings"])
        self.scaling = self.vae.config["scaling_factor"]
        with open(folder + "/scheduler/scheduler_config.json") as f:
            self.scheduler = json.load(f)
        self.is_lcm = self.scheduler["_class_name"] == "LCMScheduler"
        self.alpha_bar = alpha_bars()

    def context(self, prompts):
        return self.text(torch.tensor([self.tokenizer(p) for p in prompts]))

    def noise(self, n, seed):
        c, size = self.unet.config["in_channels"], self.unet.config["sample_size"]
        return torch.stack([torch.randn(c, size, size, generator=torch.Generator().manual_seed(
            seed + i)) for i in range(n)])

    def predict(self, x, t, context, empty, guidance):
        """-> x0 and eps, from v, with classifier-free guidance unless it is 1"""
        n = len(x)
        if guidance == 1:
            v = self.unet(x, torch.full((n,), t), context)
        else:
            v = self.unet(torch.cat([x, x]), torch.full((2 * n,), t), torch.cat([context, empty]))
            with_text, without = v.chunk(2)
            v = without + guidance * (with_text - without)
        return from_v(x, v, self.alpha_bar[t])

    @torch.no_grad()
    def ddim(self, prompts, steps=25, guidance=GUIDANCE, seed=0, x=None):
        """-> scaled latents [n, 4, h, w]"""
        context, empty = self.context(prompts), self.context([""] * len(prompts))
        x = self.noise(len(prompts), seed) if x is None else x
        times = trailing(steps)
        last = 1 if self.scheduler["set_alpha_to_one"] else self.alpha_bar[0]
        alpha_bars_after = [self.alpha_bar[t] for t in times[1:]] + [torch.tensor(float(last))]
        for t, a in zip(times, alpha_bars_after):
            x0, eps = self.predict(x, t, context, empty, guidance)
            x = a.sqrt() * x0 + (1 - a).sqrt() * eps
        return x

    @torch.no_grad()
    def lcm(self, prompts, steps=4, seed=0, x=None):
        """-> scaled latents; the guidance is inside the student. Fresh noise between the steps."""
        context = self.context(prompts)
        x = self.noise(len(prompts), seed) if x is None else x
        times = lcm_timesteps(steps)
        generator = torch.Generator().manual_seed(seed + 10 ** 6)
        for i, t in enumerate(times):
            x0, _ = self.predict(x, t, context, None, 1)
            c_skip, c_out = boundary(torch.tensor(float(t)))
            x0 = c_skip * x + c_out * x0
            if i + 1 == len(times):
                return x0
            a = self.alpha_bar[times[i + 1]]
            x = a.sqrt() * x0 + (1 - a).sqrt() * torch.randn(x0.shape, generator=generator)

    def draw(self, prompts, steps, guidance=GUIDANCE, seed=0, lcm=None, batch=16):
        """-> pixels uint8 [n, h, w, 3] and latents"""
        lcm = self.is_lcm if lcm is None else lcm
        latents = []
        for i in range(0, len(prompts), batch):
            part = prompts[i:i + batch]
            latents.append(self.lcm(part, steps, seed + i) if lcm
                           else self.ddim(part, steps, guidance, seed + i))
        latents = torch.cat(latents)
        return self.decode(latents), latents

    @torch.no_grad()
    def decode(self, latents):
        return np.concatenate([to_pixels(self.vae.decode(z / self.scaling)) for z in latents.split(8)])


def boundary(t, sigma_data=.5, scaling=10.0):
    """LCM's c_skip, c_out: at t = 0 the answer is the input itself"""
    s = t * scaling
    return sigma_data ** 2 / (s ** 2 + sigma_data ** 2), s / (s ** 2 + sigma_data ** 2) ** .5


GRID = """a red apple
a cat face on a blue background
a slice of pizza on a green background
a panda on a pink background
a rocket on a black background
a small butterfly in the top left on a yellow background
a large strawberry
a robot on an orange background
a fox and a mushroom on a light blue background
two bananas side by side
a smiling face with sunglasses on purple
a sailboat on a teal background
a house, red background
a tiny snowman in the bottom right on a blue background
a unicorn on a white background
a whale and a crown on a pink background""".split("\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("folder")
    p.add_argument("out")
    p.add_argument("--prompts", help="a file, one prompt a line; otherwise 16 built-in ones")
    p.add_argument("--steps", type=int, default=25)
    p.add_argument("--guidance", type=float, default=GUIDANCE)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--columns", type=int, default=8)
    args = p.parse_args()
    prompts = open(args.prompts).read().strip().split("\n") if args.prompts else GRID
    pixels, _ = Model(args.folder).draw(prompts, args.steps, args.guidance, args.seed)
    sheet(pixels, args.columns).save(args.out, optimize=True)


if __name__ == "__main__":
    main()
