"""vae - train the autoencoder: first the 64 pixel one that defines the latents, then the 128 pixel one.

  vae.py first   train VAE64_CONFIG (factor 4) on halved pictures                     -> vae64/last.pt
  vae.py fold    give its latents mean 0 and deviation 1 / SCALING_FACTOR             -> vae64.pt
  vae.py grow    widen it, add a level (factor 8), train it on the full 128 pixels;
                 its encoder must give the old latents, so the U-Net never notices    -> vae/last.pt
  vae.py check   reconstruct fresh pictures: PSNR, and a sheet to look at
SPDX-License-Identifier: MIT
"""
import argparse
import os
import random

import hogwild  # first: it sets the number of threads
import numpy as np
import torch
import torch.nn.functional as F

from data import Source, halve, sheet, to_pixels, to_tensor
from nets import AutoencoderKL, count_parameters
from settings import GUIDANCE, SCALING_FACTOR, VAE64_CONFIG, VAE_CONFIG, WORK_DIR


# ---- starting points ---------------------------------------------------------------------------------

@torch.no_grad()
def identity_init(net):
    """Start as "average each f x f block, paint it back".

    From a random start a small deep VAE learns one direction (brightness) first and sticks there for
    thousands of pictures; from here it starts near 18 dB with all colours.
    - Channels 0, 1 are the constants +-sqrt(c): with one group, GroupNorm then begins as a nearly fixed
      scale and does not remove a picture's mean colour or contrast.
    - Channels 2..7 carry +R -R +G -G +B -B: silu(a) - silu(-a) = a, so they pass SiLU unharmed.
    - Residual branches (conv2, to_out) start at zero; what remains is random."""
    for name, m in net.named_modules():
        if name.endswith("to_out.0"):
            m.weight.zero_()
            m.bias.zero_()
        if not isinstance(m, torch.nn.Conv2d):
            continue
        c = m.out_channels
        m.bias.zero_()
        if name.endswith("conv2"):
            m.weight.zero_()
        elif name.endswith("conv1"):
            torch.nn.init.kaiming_normal_(m.weight, nonlinearity="relu")
            m.weight[:2] = 0
            m.weight[:, :2] = 0
            m.bias[0], m.bias[1] = c ** .5, -c ** .5
        elif name.endswith("conv_out"):
            m.weight *= 0.3
            m.weight[:, :2] = 0
            m.weight[:3] = 0
            for k in range(3):
                m.weight[k, 2 + 2 * k, 1, 1], m.weight[k, 3 + 2 * k, 1, 1] = 1.7, -1.7
        elif name.endswith("quant_conv"):
            latent = m.in_channels if "post" in name else m.in_channels // 2
            m.weight.zero_()
            for k in range(latent):
                m.weight[k, k] = 1
            if "post" not in name:
                m.bias[latent:] = -5
        else:  # conv_in, resamplers, shortcuts: the bare path
            torch.nn.init.kaiming_normal_(m.weight, nonlinearity="linear")
            m.weight[:8] = 0
            if name.endswith("conv_in"):
                for k in range(3):
                    m.weight[2 + 2 * k, k, 1, 1], m.weight[3 + 2 * k, k, 1, 1] = 1, -1
            else:
                m.weight[:, :2] = 0
                for k in range(2, 8):
                    if "downsamplers" in name:
                        m.weight[k, k, :2, :2] = 0.25
                    else:
                        m.weight[k, k, m.kernel_size[0] // 2, m.kernel_size[0] // 2] = 1
            m.bias[0], m.bias[1] = c ** .5, -c ** .5


def twice(w, inputs=True, noise=0.5):
    """Weights of a layer whose channels are all doubled: the outputs repeat, the inputs share the work.

    The two shares differ by random amounts that cancel while the doubled inputs are equal: the function
    stays the same and the copies can part."""
    w = torch.cat([w, w])
    if not inputs:
        return w
    delta = torch.randn_like(w) * w.std() * noise * 0.5
    return torch.cat([w / 2 + delta, w / 2 - delta], 1)


@torch.no_grad()
def grow(small):
    """AutoencoderKL of VAE64_CONFIG -> one of VAE_CONFIG that begins as the same function, at 128 pixels.

    All old levels become twice as wide (GroupNorm with one group does not notice repeated channels) and
    move one level inwards; a new outermost level halves the picture on the way in and enlarges it on
    the way out, both nearly exactly."""
    big = AutoencoderKL(VAE_CONFIG)
    old, new = small.state_dict(), big.state_dict()

    def copy(name, target=None, inputs=True, outputs=True):
        target = target or name
        w, b = old[name + ".weight"], old[name + ".bias"]
        if w.dim() == 1:
            new[target + ".weight"], new[target + ".bias"] = torch.cat([w, w]), torch.cat([b, b])
        elif outputs:
            new[target + ".weight"], new[target + ".bias"] = twice(w, inputs), torch.cat([b, b])
        else:  # doubled inputs, the old outputs
            new[target + ".weight"], new[target + ".bias"] = torch.cat([w / 2, w / 2], 1), b

    for name in {k.rsplit(".", 1)[0] for k in old}:
        if name.startswith("decoder.mid_block") or name.startswith("encoder.mid_block"):
            copy(name)
            if name.endswith("to_q"):  # twice as many terms in q k, scaled by sqrt(2) less
                for p in (".weight", ".bias"):
                    new[name + p] /= 2 ** .5
        elif name.startswith("decoder.up_blocks"):
            copy(name)
        elif name.startswith("encoder.down_blocks"):
            level = int(name.split(".")[2])
            copy(name, name.replace("blocks.%d" % level, "blocks.%d" % (level + 1)))
    copy("decoder.conv_in", inputs=False)
    for name in ("quant_conv", "post_quant_conv", "decoder.conv_norm_out", "decoder.conv_out"):
        for p in (".weight", ".bias"):
            new[name + p] = old[name + p]
    copy("encoder.conv_norm_out")
    copy("encoder.conv_out", outputs=False)

    # The decoder's new last level: [1 2 1] / 4 after doubling is bilinear, then the mean of the copies.
    blur = torch.tensor([1., 2., 1.]) / 4
    up = new["decoder.up_blocks.2.upsamplers.0.conv.weight"]
    up.zero_()
    up[torch.arange(32), torch.arange(32)] = blur[:, None] * blur[None]
    new["decoder.up_blocks.2.upsamplers.0.conv.bias"].zero_()
    mean = new["decoder.up_blocks.3.resnets.0.conv_shortcut.weight"]
    mean.zero_()
    for k in range(16):
        mean[k, k] = mean[k, k + 16] = 0.5
    new["decoder.up_blocks.3.resnets.0.conv_shortcut.bias"].zero_()

    # The encoder's new first level: the old conv_in looked at means of 2 x 2 pixels. Channels hold each
    # colour as it is and from one pixel to the left, above, and both; the stride 2 convolution picks its
    # taps from them.
    conv = new["encoder.conv_in.weight"].zero_()
    down = new["encoder.down_blocks.0.downsamplers.0.conv.weight"].zero_()
    new["encoder.conv_in.bias"].zero_()
    new["encoder.down_blocks.0.downsamplers.0.conv.bias"] = old["encoder.conv_in.bias"]
    taps = {-1: [(1, 0, 1.)], 0: [(0, 0, .5), (0, 1, .5)], 1: [(0, 2, 1.)]}  # (shifted?, tap, weight)
    kernel = old["encoder.conv_in.weight"]
    for color in range(3):
        for sy in (0, 1):
            for sx in (0, 1):
                conv[4 * color + 2 * sy + sx, color, 1 - sy, 1 - sx] = 1
        for dy in taps:
            for dx in taps:
                for sy, ty, wy in taps[dy]:
                    for sx, tx, wx in taps[dx]:
                        down[:, 4 * color + 2 * sy + sx, ty, tx] += \
                            kernel[:, color, dy + 1, dx + 1] * wy * wx
    # level 1 receives the old conv_in's 16 channels once and doubles them
    name = "encoder.down_blocks.1.resnets.0."
    for k in ("norm1.weight", "norm1.bias"):
        new[name + k] = old["encoder.down_blocks.0.resnets.0." + k]
    w = old["encoder.down_blocks.0.resnets.0.conv1.weight"]
    new[name + "conv1.weight"] = torch.cat([w, w])
    eye = torch.eye(16)[:, :, None, None]
    new[name + "conv_shortcut.weight"] = torch.cat([eye, eye])
    new[name + "conv_shortcut.bias"] = torch.zeros(32)

    for name in ("decoder.up_blocks.3.resnets.0.", "decoder.up_blocks.3.resnets.1.",
                 "encoder.down_blocks.0.resnets.0."):
        new[name + "conv2.weight"].zero_()
        new[name + "conv2.bias"].zero_()
    big.load_state_dict(new)
    return big


@torch.no_grad()
def fold(net, n=256):
    """Fold each latent channel's mean and deviation into quant_conv, so that SCALING_FACTOR suits."""
    source, means = Source(31337), []
    for _ in range(n // 8):
        x = halve(to_tensor([source.sample()[0] for _ in range(8)]))
        means.append(net.encode(x)[0])
    z = torch.cat(means)
    mu, k = z.mean((0, 2, 3)), 1 / (z.std((0, 2, 3)) * SCALING_FACTOR)
    q, post, latent = net.quant_conv, net.post_quant_conv, len(mu)
    q.weight[:latent] *= k[:, None, None, None]
    q.bias[:latent] = (q.bias[:latent] - mu) * k
    q.bias[latent:] += 2 * torch.log(k)
    post.bias += (post.weight[:, :, 0, 0] * mu[None]).sum(1)
    post.weight /= k[None, :, None, None]


# ---- losses and training -----------------------------------------------------------------------------

def gradients(x):
    return x[..., 1:] - x[..., :-1], x[..., 1:, :] - x[..., :-1, :]


def picture_loss(y, x, w_l2, w_l1, w_gradient):
    """Squares keep colours right, absolute values keep edges sharp, gradients keep both clean."""
    loss = w_l2 * F.mse_loss(y, x) + w_l1 * F.l1_loss(y, x)
    for a, b in zip(gradients(y), gradients(x)):
        loss = loss + w_gradient * F.l1_loss(a, b)
    return loss


def psnr(y, x):
    """Mean over pictures in [-1, 1], dB."""
    mse = ((y.clamp(-1, 1) - x) ** 2).mean((1, 2, 3)) / 4
    return float((-10 * torch.log10(mse + 1e-10)).mean())


def train_first(args):
    net = AutoencoderKL(VAE64_CONFIG)
    identity_init(net)
    trainer = hogwild.Trainer(args.out, dict(vae=net), args.lr, args.batch, weight_decay=0, warmup=50,
                              configs=dict(vae=VAE64_CONFIG), decay_share=1, shape="cosine")
    trainer.resume()

    def make_loss(rank):
        source = Source(args.seed + rank + 2 * int(trainer.samples))

        def loss_of(done):
            x = halve(to_tensor([source.sample()[0] for _ in range(args.batch)]))
            mean, log_variance = net.encode(x)
            y = net.decode(mean + torch.randn_like(mean) * (0.5 * log_variance).exp())
            kl = 0.5 * (mean ** 2 + log_variance.exp() - 1 - log_variance).mean()
            ramp = min(1.0, max(0.0, (done - .05) / .1))  # from nothing, L1 sticks at the median colour
            loss = picture_loss(y, x, 2, .5 * ramp, .25 * ramp) + 1e-4 * kl
            return loss, dict(psnr=psnr(y.detach(), x), kl=float(kl))
        return loss_of

    trainer.run(make_loss, args.samples, args.processes)


def train_grow(args):
    """The decoder sees latents with noise, as a U-Net's are never quite clean: it learns to draw the clean
    picture that is nearest. (Noise in units of the latents' own deviation; a third of them stay clean.)
    With --unet most latents are noised further and denoised by that U-Net, or drawn by it from nothing but the
    caption: its own faults, to be forgiven. Of pictures drawn so only the background is known: it is flat."""
    small = load_vae(args.small, VAE64_CONFIG)
    net = grow(small)
    print("%.2f M parameters" % (count_parameters(net) / 1e6), flush=True)
    parts = dict(decoder=[net.decoder, net.post_quant_conv], encoder=[net.encoder, net.quant_conv])
    net.requires_grad_(False)
    for part in parts[args.part]:
        part.requires_grad_(True)
    if os.path.exists(args.part_from or ""):  # the other half, trained by its own run
        own = [k for k, p in net.named_parameters() if not p.requires_grad]
        other = torch.load(args.part_from)["average"]["vae"]
        net.load_state_dict({k: other[k] if k in own else v for k, v in net.state_dict().items()})
    trainer = hogwild.Trainer(args.out, dict(vae=net), args.lr, args.batch, weight_decay=0, warmup=50,
                              ema=0.995, configs=dict(vae=VAE_CONFIG), decay_share=.5)
    trainer.resume(args.resume)

    spoil, imagine = denoisers(args.unet, args.student) if args.unet else (None, None)

    def decoder_loss(x, z, captions):
        sigma, kind = (torch.rand(len(z), 1, 1, 1) * 1.5 - .5).clamp(min=0) * args.noise, random.random()
        if spoil and kind < args.imagined:
            y = net.decode(imagine(z, captions))
            loss = args.flat * unevenness(y, flat_part(x))
            return loss, dict(psnr=np.nan, unevenness=127.5 * float(loss) / args.flat)
        if spoil and kind < .8:
            z = spoil(z, captions)
            sigma *= .2
        y = net.decode(z + sigma * torch.randn_like(z) / SCALING_FACTOR)
        return picture_loss(y, x, 1, 1, .5), dict(psnr=psnr(y.detach(), x), unevenness=np.nan)

    def encoder_loss(x, z, captions):
        mean, log_variance = net.encode(x)
        error = ((mean - z) * SCALING_FACTOR)
        return (error ** 2).mean() + error.abs().mean() + 1e-3 * (log_variance + 5).abs().mean(), \
            dict(latent_error=float((error.detach() ** 2).mean() ** .5))

    def make_loss(rank):
        source = Source(args.seed + rank + 2 * int(trainer.samples))

        def loss_of(done):
            pictures, captions = zip(*(source.sample() for _ in range(args.batch)))
            x = to_tensor(pictures)
            with torch.no_grad():
                z = small.encode(halve(x))[0]
            return (decoder_loss if args.part == "decoder" else encoder_loss)(x, z, captions)
        return loss_of

    trainer.run(make_loss, args.samples, args.processes, log_every=25)


def flat_part(x):
    """bool [n, 1, h, w]: where composed pictures [n, 3, h, w] are of the ground's colour and 7 pixels from
    anything else"""
    out = []
    for picture in x:
        edge = torch.cat([picture[:, 0], picture[:, -1], picture[:, :, 0], picture[:, :, -1]], 1)
        colors, counts = edge.unique(dim=1, return_counts=True)
        out.append((picture != colors[:, counts.argmax(), None, None]).any(0, keepdim=True))
    return F.max_pool2d(torch.stack(out).float(), 15, 1, 7) == 0


def unevenness(y, where):
    """Standard deviation of pictures [n, c, h, w] in their part of [n, 1, h, w], mean over n and c"""
    n = where.sum((2, 3)).clamp(min=1)
    mean = (y * where).sum((2, 3)) / n
    variance = ((y - mean[:, :, None, None]) ** 2 * where).sum((2, 3)) / n
    return (variance + 1e-6).sqrt().mean()


def denoisers(path, student_path=None):
    """-> two functions (latents, captions) -> latents. The first: as the U-Net of a checkpoint leaves them, two
    DDIM steps after noise of t = 30 to 300. The second: as it makes them from noise alone, in 3 to 25 steps, with
    guidance every other time; or, every other time, as its student does in 1 to 8 steps.
    (unet.py imports this file, hence the imports here.)"""
    from distil import consistency
    from sample import lcm_timesteps, trailing
    from tokenizer import Tokenizer
    from unet import alpha_bars, column, from_v, load_nets
    unet, text, _ = load_nets(path)
    student = load_nets(student_path)[0] if student_path else None
    tokenizer, alpha_bar = Tokenizer(), alpha_bars()

    def context_of(captions):
        return text(torch.tensor([tokenizer(c) for c in captions]))

    @torch.no_grad()
    def denoise(x0, captions, timesteps, guidance=1.0):
        """timesteps: a list of [n]"""
        context, empty, eps = context_of(captions), context_of([""] * len(captions)), torch.randn_like(x0)
        for t in timesteps:
            a = column(alpha_bar[t])
            x = a.sqrt() * x0 + (1 - a).sqrt() * eps
            v = unet(x, t, context)
            if guidance != 1:
                without = unet(x, t, empty)
                v = without + guidance * (v - without)
            x0, eps = from_v(x, v, a)
        return x0

    @torch.no_grad()
    def denoise_as_student(x0, captions, timesteps):
        context = context_of(captions)
        for t in timesteps:
            a = column(alpha_bar[t])
            x = a.sqrt() * x0 + (1 - a).sqrt() * torch.randn_like(x0)
            x0 = consistency(student, x, t, context, alpha_bar)
        return x0

    def spoil(z, captions):
        t = torch.randint(30, 300, (len(z),))
        return denoise(z * SCALING_FACTOR, captions, (t, t // 3)) / SCALING_FACTOR

    def imagine(z, captions):
        nothing = torch.zeros_like(z)
        if student and random.random() < .5:
            times = [torch.full((len(z),), t) for t in lcm_timesteps(random.randint(1, 8))]
            return denoise_as_student(nothing, captions, times) / SCALING_FACTOR
        times = [torch.full((len(z),), t) for t in trailing(random.randint(3, 25))]
        return denoise(nothing, captions, times, random.choice((1.0, GUIDANCE))) / SCALING_FACTOR
    return spoil, imagine


def load_vae(path, config, average=True):
    net = AutoencoderKL(config)
    z = torch.load(path, map_location="cpu")
    net.load_state_dict(z["average" if average else "nets"]["vae"])
    return net.eval().requires_grad_(False)


@torch.no_grad()
def check(args):
    """PSNR on fresh pictures, from the VAE's own latents and with noise on them."""
    config = torch.load(args.vae)["configs"]["vae"]
    net = load_vae(args.vae, config)
    halved = len(config["block_out_channels"]) == 3
    source, rows = Source(4242), {}
    sheets = []
    for i in range(args.count // 8):
        x = to_tensor([source.sample()[0] for _ in range(8)])
        x = halve(x) if halved else x
        z = net.encode(x)[0]
        for noise in (0, .15, .3):
            y = net.decode(z + noise / SCALING_FACTOR * torch.randn_like(z))
            rows.setdefault(noise, []).append(psnr(y, x))
            if i == 0:
                sheets += [x] * (noise == 0) + [y]
    print("  ".join("noise %.2f: %.2f dB" % (k, np.mean(v)) for k, v in rows.items()))
    sheet(to_pixels(torch.cat(sheets)), 8).save(args.sheet)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("stage", choices=["first", "fold", "grow", "check"])
    p.add_argument("--out", help="folder of the run")
    p.add_argument("--small", default=os.path.join(WORK_DIR, "vae64.pt"))
    p.add_argument("--vae", default=os.path.join(WORK_DIR, "vae/last.pt"), help="check: which one")
    p.add_argument("--part", default="decoder", choices=["decoder", "encoder"], help="grow: what to train")
    p.add_argument("--part-from", help="grow: take the other part from this checkpoint")
    p.add_argument("--resume", help="begin with this checkpoint")
    p.add_argument("--samples", type=int, default=50000, help="pictures to see in all")
    p.add_argument("--batch", type=int, default=4, help="pictures per process and update")
    p.add_argument("--noise", type=float, default=.35, help="grow: most noise on the latents")
    p.add_argument("--unet", help="grow: a checkpoint; most latents pass through this U-Net")
    p.add_argument("--student", help="grow: with --unet, a distilled checkpoint that draws half of those")
    p.add_argument("--imagined", type=float, default=.45,
                   help="grow: with --unet, share of latents it draws from the caption alone")
    p.add_argument("--flat", type=float, default=5, help="grow: weight of their backgrounds' unevenness")
    p.add_argument("--lr", type=float, default=2e-4)
    p.add_argument("--seed", type=int, default=1000)
    p.add_argument("--processes", type=int, default=2)
    p.add_argument("--count", type=int, default=256, help="fold, check: pictures")
    p.add_argument("--sheet", default=os.path.join(WORK_DIR, "vae.png"))
    args = p.parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    if args.stage == "first":
        args.out = args.out or os.path.join(WORK_DIR, "vae64")
        train_first(args)
    elif args.stage == "fold":
        net = load_vae(os.path.join(WORK_DIR, "vae64/last.pt"), VAE64_CONFIG)
        fold(net, args.count)
        hogwild.save_atomically(args.small, dict(configs=dict(vae=VAE64_CONFIG),
                                                 average=dict(vae=net.state_dict())))
    elif args.stage == "grow":
        args.out = args.out or os.path.join(WORK_DIR, "vae" if args.part == "decoder" else "vae-encoder")
        train_grow(args)
    else:
        check(args)


if __name__ == "__main__":
    main()
