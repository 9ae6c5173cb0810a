"""unet - cache latents with their captions, then train the U-Net and the token embeddings on them.

  unet.py cache   encode composed pictures                                       -> latents.npz
  unet.py train   v-prediction with the caption dropped for one sample in ten    -> unet/last.pt

The text encoder stays at its random start except for the token embeddings. Trained jointly from the usual
start it collapsed (the outputs for different captions differed by 0.1 %) and prompts were ignored. Once
prompts work, --text-lr trains the rest of it too.
SPDX-License-Identifier: MIT
"""
import argparse
import os

import hogwild  # first: it sets the number of threads
import numpy as np
import torch

import vae
from data import Source, halve, to_tensor
from nets import CLIPTextModel, UNet2DConditionModel, count_parameters
from settings import (BETA_END, BETA_START, CONTEXT, SCALING_FACTOR, TEXT_CONFIG, TRAIN_STEPS,
                      UNET_CONFIG, VAE64_CONFIG, VOCABULARY, WORK_DIR)
from tokenizer import Tokenizer

LATENTS = os.path.join(WORK_DIR, "latents.npz")


def alpha_bars():
    """[1000], the "scaled_linear" schedule"""
    beta = torch.linspace(BETA_START ** .5, BETA_END ** .5, TRAIN_STEPS, dtype=torch.float64) ** 2
    return torch.cumprod(1 - beta, 0).float()


# ---- cache -------------------------------------------------------------------------------------------

def cache(args):
    """Latents [n, 4, 16, 16] as f16 means, token ids [n, CONTEXT]; the objects take turns."""
    encoder, tokenizer = vae.load_vae(args.small, VAE64_CONFIG), Tokenizer()
    latents = torch.zeros(args.count, 4, 16, 16, dtype=torch.half).share_memory_()
    ids = torch.zeros(args.count, CONTEXT, dtype=torch.int16).share_memory_()
    chunk = 8

    def job(rank):
        source = Source(args.seed + rank)
        for i in range(rank * chunk, args.count, args.processes * chunk):
            n = min(chunk, args.count - i)
            rows = [source.sample(source.keys[(i + k) % len(source.keys)]) for k in range(n)]
            with torch.no_grad():
                z = encoder.encode(halve(to_tensor([picture for picture, _ in rows])))[0]
            latents[i:i + n] = (z * SCALING_FACTOR).half()
            ids[i:i + n] = torch.tensor([tokenizer(text) for _, text in rows], dtype=torch.int16)

    hogwild.launch(job, args.processes)
    np.savez(args.latents, lat=latents.numpy(), ids=ids.numpy())
    x = latents.float()
    print("%d latents, mean %.3f, deviation %.3f" % (args.count, x.mean(), x.std()))


def load_cache(path):
    z = np.load(path)
    latents, ids = torch.from_numpy(z["lat"]), torch.from_numpy(z["ids"].astype(np.int32))
    return latents.share_memory_(), ids.share_memory_()


# ---- starting point ------------------------------------------------------------------------------------

@torch.no_grad()
def init_nets(unet, text):
    """Large embeddings and quiet residual branches keep the identity of the tokens in front; the last layer
    of every residual branch of the U-Net starts at zero."""
    m = text.text_model
    torch.nn.init.normal_(m.embeddings.token_embedding.weight, std=0.5)
    torch.nn.init.normal_(m.embeddings.position_embedding.weight, std=0.2)
    for name, layer in text.named_modules():
        if isinstance(layer, torch.nn.Linear):
            gain = 0.1 if name.endswith(("out_proj", "fc2")) else 1.0
            torch.nn.init.xavier_uniform_(layer.weight, gain)
            layer.bias.zero_()
    for name, layer in unet.named_modules():
        if ".attn2.to_" in name and isinstance(layer, torch.nn.Linear):
            torch.nn.init.xavier_uniform_(layer.weight)
        if name.endswith(("conv2", "proj_out", "conv_out")):
            layer.weight.zero_()
            layer.bias.zero_()


def make_nets(whole_text=False):
    unet, text = UNet2DConditionModel(UNET_CONFIG), CLIPTextModel(TEXT_CONFIG)
    init_nets(unet, text)
    for name, p in text.named_parameters():
        p.requires_grad_(whole_text or "token_embedding" in name)
    return unet, text


def load_nets(path, average=True):
    """-> U-Net and text encoder of a checkpoint, for sampling"""
    z = torch.load(path, map_location="cpu")
    nets = z["average" if average else "nets"]
    unet, text = UNet2DConditionModel(z["configs"]["unet"]), CLIPTextModel(z["configs"]["text"])
    unet.load_state_dict(nets["unet"])
    text.load_state_dict(nets["text"])
    return unet.eval().requires_grad_(False), text.eval().requires_grad_(False), z


# ---- training ------------------------------------------------------------------------------------------

def draw_timesteps(n, share_high):
    """[n] stratified timesteps, a given share of them in the noisiest 40 % (0.4 is uniform)"""
    u = (torch.arange(n) + torch.rand(n)) / n
    high = 600 + 400 * u / share_high
    low = 600 * (u - share_high) / (1 - share_high)
    return torch.where(u < share_high, high, low).long().clamp(0, 999)[torch.randperm(n)]


def empty_caption():
    ids = torch.full((CONTEXT,), VOCABULARY - 1)
    ids[0] = VOCABULARY - 2
    return ids


def column(values):
    return values[:, None, None, None]


def from_v(x, v, alpha_bar):
    """-> the clean latent and the noise that v-prediction finds in x"""
    a = alpha_bar
    return a.sqrt() * x - (1 - a).sqrt() * v, a.sqrt() * v + (1 - a).sqrt() * x


def train(args):
    latents, ids = load_cache(args.latents)
    unet, text = make_nets(args.text_lr > 0)
    print("U-Net %.2f M, text encoder %.2f M parameters, %d latents" % (
        count_parameters(unet) / 1e6, count_parameters(text) / 1e6, len(latents)), flush=True)
    trainer = hogwild.Trainer(args.out, dict(unet=unet, text=text), args.lr, args.batch,
                              ema=args.ema, configs=dict(unet=UNET_CONFIG, text=TEXT_CONFIG),
                              scale={"text." + k: args.text_lr for k, _ in text.named_parameters()
                                     if "token_embedding" not in k})
    trainer.resume(args.resume)
    alpha_bar = alpha_bars()
    snr = alpha_bar / (1 - alpha_bar)
    weight = (snr + 1).clamp(max=args.snr) / (snr + 1)  # min-SNR for v (Hang et al. 2023)
    empty = empty_caption()

    def make_loss(rank):
        def loss_of(done):
            i = torch.randint(0, len(latents), (args.batch,))
            x0, tokens = latents[i].float(), ids[i].long()
            tokens[torch.rand(args.batch) < args.drop] = empty
            t = draw_timesteps(args.batch, args.share_high)
            eps = torch.randn_like(x0)
            a, s = column(alpha_bar[t].sqrt()), column((1 - alpha_bar[t]).sqrt())
            v = unet(a * x0 + s * eps, t, text(tokens))
            error = ((v - (a * eps - s * x0)) ** 2).mean((1, 2, 3))
            by_quarter = {"v%d" % q: float(error[t // 250 == q].mean()) for q in range(4)}
            return (error * weight[t]).mean(), by_quarter
        return loss_of

    trainer.run(make_loss, args.samples, args.processes)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("stage", choices=["cache", "train"])
    p.add_argument("--small", default=os.path.join(WORK_DIR, "vae64.pt"))
    p.add_argument("--latents", default=LATENTS)
    p.add_argument("--count", type=int, default=24000, help="cache: how many latents")
    p.add_argument("--out", default=os.path.join(WORK_DIR, "unet"))
    p.add_argument("--resume", help="begin with this checkpoint")
    p.add_argument("--samples", type=int, default=600000, help="samples to see in all")
    p.add_argument("--batch", type=int, default=16, help="samples per process and update")
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--ema", type=float, default=.999, help="per update")
    p.add_argument("--drop", type=float, default=.1, help="share of captions left out")
    p.add_argument("--share-high", type=float, default=.42, help="share of timesteps above 600")
    p.add_argument("--snr", type=float, default=5, help="more weighs the cleaner timesteps more")
    p.add_argument("--text-lr", type=float, default=0,
                   help="train the whole text encoder at this share of the learning rate")
    p.add_argument("--seed", type=int, default=500000)
    p.add_argument("--processes", type=int, default=2)
    args = p.parse_args()
    torch.manual_seed(args.seed)
    if args.stage == "cache":
        cache(args)
    else:
        train(args)


if __name__ == "__main__":
    main()
