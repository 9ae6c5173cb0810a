"""evaluate - measure an exported model on the fixed list of prompts.tsv.

  evaluate.py prompts                       write prompts.tsv, prompts-styled.tsv anew (only when the
                                            vocabulary changed)
  evaluate.py real FOLDER                   the measures on true pictures, and on them after the VAE
  evaluate.py model FOLDER [--steps 1,2,4]  the measures on the model's pictures
  evaluate.py table RESULTS                 what --json wrote, as the model card's table

Half of the 200 prompts name a combination no training picture showed (see vocabulary.is_held_out).
background  share of pictures whose four corners have the named colour (nearest of 13)
top1, top5  share whose nearest reference in the VAE's latent space is the named object, of all objects in
            the asked layout and colour; of a pair both halves must be right
place, size share of small pictures whose object is nearest to the named of nine places; share of small,
            plain and large ones whose object's extent is nearest to the asked of the three sizes
order       share of pairs whose left half is nearer to the first named object than to the second, and
            whose right half is not
speckle     standard deviation within the background, away from the object, 0..255
sharpness   mean gradient where the object is, divided by that of the true composite
psnr, ssim  against the best-matching true composite (27 sizes and positions)
kid         kernel distance (cubic polynomial, unbiased) between the latents of real and generated pictures
SPDX-License-Identifier: MIT
"""
import argparse
import json
import os
import random
import time

import hogwild  # first: it sets the number of threads
import numpy as np
import torch

from data import SIZE_PX, SIZES, Source, centers, sheet, styled, to_tensor
from sample import Model
from settings import GUIDANCE
from vae import psnr
from vocabulary import COLORS, OBJECTS, PLACES, is_held_out, with_article

HERE = os.path.dirname(os.path.abspath(__file__))
PROMPTS = os.path.join(HERE, "prompts.tsv")
STYLED = os.path.join(HERE, "prompts-styled.tsv")
HALF = [("plain", 48), ("large", 12), ("small", 20), ("pair", 20)]  # per half of the list
CORNER_PX = 8


# ---- the list ----------------------------------------------------------------------------------------

def draw_prompt(rng, layout, held_out):
    """-> keys, colour, place; held out in exactly one respect, or in none"""
    colors = [c for c in COLORS if c != "white"]
    while True:
        keys, color, place = rng.sample(list(OBJECTS), 2), rng.choice(colors), rng.choice(PLACES[:8])
        keys = keys[:2 if layout == "pair" else 1]
        about_color = any(is_held_out(k, color) for k in keys)
        about_layout = (layout == "pair" and is_held_out(keys[0], "and", keys[1])) or \
            (layout == "small" and is_held_out(keys[0], "small", place))
        wanted = about_layout if layout in ("pair", "small") else about_color
        other = about_color if layout in ("pair", "small") else False
        if wanted == held_out and not other:
            return keys, color, place if layout == "small" else "center"


def write_prompts():
    rng, lines, seen = random.Random(2024), [], set()
    for held_out in (False, True):
        for layout, count in HALF:
            while count:
                keys, color, place = draw_prompt(rng, layout, held_out)
                nouns = [OBJECTS[k][0] for k in keys]
                text = {"plain": with_article(nouns[0]), "large": "a large " + nouns[0],
                        "small": "a small %s in the %s" % (nouns[0], place),
                        "pair": " and ".join(map(with_article, nouns))}[layout]
                text += " on %s background" % with_article(color)
                if text not in seen:
                    seen.add(text)
                    lines.append("\t".join(["unseen" if held_out else "seen", layout,
                                            "+".join(keys), color, place, text]))
                    count -= 1
    with open(PROMPTS, "w") as f:
        f.write("\n".join(lines) + "\n")


def write_styled():
    """Forty more: plain and large ones in the two styles that are not the art's own"""
    rng, lines = random.Random(2025), []
    for i in range(40):
        layout, style = ("plain", "large")[i % 4 == 3], ("black and white", "silhouette")[i % 2]
        (key,), color, _ = draw_prompt(rng, layout, False)
        noun = styled(OBJECTS[key][0], style)
        text = "a large " + noun if layout == "large" else with_article(noun)
        lines.append("\t".join(["seen", layout, key, color, "center",
                                text + " on %s background" % with_article(color), style]))
    with open(STYLED, "w") as f:
        f.write("\n".join(lines) + "\n")


class Prompt:
    def __init__(self, line):
        self.group, self.layout, keys, self.color, self.place, self.text, self.style = \
            (line + "\t").split("\t")[:7]
        self.keys = keys.split("+")


def read_prompts(path, count=None):
    with open(path) as f:
        prompts = [Prompt(line) for line in f.read().strip().split("\n")]
    if count and count < len(prompts):
        prompts = [prompts[i] for i in np.linspace(0, len(prompts) - 1, count).astype(int)]
    return prompts


# ---- true pictures -------------------------------------------------------------------------------------

class Truth:
    """Composites without jitter, or with a chosen one."""

    def __init__(self):
        self.source = Source(0, train=False)

    def picture(self, p, objects=None, grow=0, dx=0, dy=0, color=None):
        """float [128, 128, 3]; objects overrides the prompt's, None in a slot leaves it empty"""
        rgb = np.array(COLORS[p.color], np.float32) / 255 if color is None else color
        canvas = np.tile(rgb, (SIZE_PX, SIZE_PX, 1)).astype(np.float32)
        objects = [self.source.keys.index(k) for k in p.keys] if objects is None else objects
        for obj, (x, y) in zip(objects, centers(p.layout, p.place)):
            if obj is not None:
                self.source.paste(canvas, obj, SIZES[p.layout] + grow, x + dx, y + dy, p.style)
        return canvas

    def mask(self, p):
        """bool [128, 128], True where the prompt's objects are"""
        a = self.picture(p, color=np.zeros(3))
        b = self.picture(p, color=np.ones(3))
        return (b - a).mean(2) < 0.9

    def candidates(self, p):
        """The 27 composites a training picture of this prompt may have been, about."""
        step = 3 if p.layout == "large" else 2
        return [self.picture(p, grow=g, dx=dx, dy=dy) for g in (-step, 0, step)
                for dx in (-1, 0, 1) for dy in (-1, 0, 1)]


def dilate(mask, radius):
    out = mask.copy()
    for _ in range(radius):
        grown = out.copy()
        grown[1:] |= out[:-1]
        grown[:-1] |= out[1:]
        grown[:, 1:] |= out[:, :-1]
        grown[:, :-1] |= out[:, 1:]
        out = grown
    return out


# ---- measures on one picture, float [128, 128, 3] in [0, 1] --------------------------------------------

def shrink(picture):
    """[128, 128, 3] -> [32, 32, 3]"""
    return picture.reshape(32, 4, 32, 4, 3).mean((1, 3))


def corner_color(picture):
    k = CORNER_PX
    corners = [picture[:k, :k], picture[:k, -k:], picture[-k:, :k], picture[-k:, -k:]]
    return np.median(np.concatenate([c.reshape(-1, 3) for c in corners]), 0)


def nearest_color(rgb):
    names = list(COLORS)
    distance = [((np.array(COLORS[n]) / 255 - rgb) ** 2).sum() for n in names]
    return names[int(np.argmin(distance))]


def box(image, k=7):
    """Mean over k x k windows, [h, w] -> [h - k + 1, w - k + 1]"""
    s = np.pad(image.astype(np.float64).cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    return (s[k:, k:] - s[:-k, k:] - s[k:, :-k] + s[:-k, :-k]) / k ** 2


def ssim(a, b):
    """Wang et al. 2004 on grey values, 7 x 7 uniform windows"""
    a, b = a.mean(2), b.mean(2)
    ma, mb = box(a), box(b)
    va, vb, cov = box(a * a) - ma ** 2, box(b * b) - mb ** 2, box(a * b) - ma * mb
    c1, c2 = .01 ** 2, .03 ** 2
    return float(((2 * ma * mb + c1) * (2 * cov + c2) /
                  ((ma ** 2 + mb ** 2 + c1) * (va + vb + c2))).mean())


def picture_psnr(a, b):
    return float(-10 * np.log10(((a - b) ** 2).mean() + 1e-10))


def edge_strength(picture, mask):
    gy = np.abs(np.diff(picture, axis=0))[:, :-1].mean(2)
    gx = np.abs(np.diff(picture, axis=1))[:-1].mean(2)
    return float((gx + gy)[mask[:-1, :-1]].mean())


def object_box(picture):
    """-> centre x, y and extent of what differs from the corners"""
    far = np.abs(picture - corner_color(picture)).max(2) > 0.2
    if far.sum() < 20:
        return None
    ys, xs = np.where(far)
    (x0, x1), (y0, y1) = np.percentile(xs, [1, 99]), np.percentile(ys, [1, 99])
    return (x0 + x1) / 2, (y0 + y1) / 2, max(x1 - x0, y1 - y0)


def place_is_right(p, picture):
    found = object_box(picture)
    if found is None:
        return False
    def distance(place):
        x, y = centers("small", place)[0]
        return (x - found[0]) ** 2 + (y - found[1]) ** 2
    return min(PLACES, key=distance) == p.place


def size_is_right(p, truth, picture):
    """The extent is nearest to that of the true composite in the asked of three sizes."""
    found = object_box(picture)
    if found is None:
        return False
    extents = {}
    for layout in ("small", "plain", "large"):
        q = Prompt("\t".join(["", layout, p.keys[0], p.color, p.place, ""]))
        true = object_box(truth.picture(q))
        extents[layout] = true[2] if true else 1
    return min(extents, key=lambda k: abs(np.log((found[2] + 1) / (extents[k] + 1)))) == p.layout


# ---- measures that need the VAE ------------------------------------------------------------------------

@torch.no_grad()
def encode(model, pictures):
    """float [n, 128, 128, 3] -> scaled latents [n, 4, 16, 16]"""
    out = []
    for i in range(0, len(pictures), 16):
        x = torch.from_numpy(np.stack(pictures[i:i + 16])).permute(0, 3, 1, 2).float() * 2 - 1
        out.append(model.vae.encode(x)[0] * model.scaling)
    return torch.cat(out)


class References:
    """Which object is a picture nearest to, in the VAE's latent space, in the asked layout, colour and place?

    Only the named object and the NEAREST others by 32 x 32 pixels are encoded: the rest cannot win, and
    encoding all would take ten times as long."""
    NEAREST = 10

    def __init__(self, model, truth):
        self.model, self.truth, self.latents, self.sprites = model, truth, {}, {}

    def objects(self, slot, i, p):
        return [i] if p.layout != "pair" else [i, None] if slot == 0 else [None, i]

    def pixels(self, p, slot):
        """[objects, 32, 32, 3] on the asked colour, from renderings over black and over white"""
        def renderings(color):
            return np.stack([shrink(self.truth.picture(p, self.objects(slot, i, p), color=color))
                             for i in range(len(self.truth.source.keys))])
        if p.style:  # a silhouette's ink depends on the ground
            return renderings(None)
        key = (p.layout, p.place, slot)
        if key not in self.sprites:
            self.sprites[key] = [renderings(np.full(3, ground)) for ground in (0, 1)]
        black, white = self.sprites[key]
        return black + (white - black) * (np.array(COLORS[p.color], np.float32) / 255)

    def encoded(self, p, slot, chosen):
        keys = [(p.layout, p.style, p.color, p.place, slot, i) for i in chosen]
        new = [k for k in keys if k not in self.latents]
        if new:
            z = encode(self.model, [self.truth.picture(p, self.objects(slot, k[-1], p)) for k in new])
            self.latents.update(zip(new, z))
        return torch.stack([self.latents[k] for k in keys])

    def rank(self, p, picture, latent):
        """Place of the named object among all, 0 is best; of a pair the worse one"""
        ranks, small = [], shrink(picture)
        for slot, key in enumerate(p.keys):
            own, part = self.truth.source.keys.index(key), slice(0, 2)
            if p.layout == "pair":
                part = slice(0, 1) if slot == 0 else slice(1, 2)
            columns = slice(part.start * 16, part.stop * 16)
            by_pixels = ((self.pixels(p, slot) - small)[:, :, columns] ** 2).sum((1, 2, 3))
            chosen = [own] + [i for i in np.argsort(by_pixels)[:self.NEAREST].tolist() if i != own]
            columns = slice(part.start * 8, part.stop * 8)
            distance = ((self.encoded(p, slot, chosen) - latent)[..., columns] ** 2).sum((1, 2, 3))
            ranks.append(int((distance < distance[0]).sum()))
        return max(ranks)

    def is_in_order(self, p, latent):
        """Of the two named objects, is the left half nearer to the first and the right half to the second?"""
        own = [self.truth.source.keys.index(key) for key in p.keys]
        for slot, columns in enumerate((slice(0, 8), slice(8, 16))):
            distance = ((self.encoded(p, slot, own) - latent)[..., columns] ** 2).sum((1, 2, 3))
            if distance.argmin() != slot:
                return False
        return True


def kernel_distance(a, b):
    """Unbiased squared MMD of two sets of n vectors, kernel (x y / d + 1)^3.

    a[i] and b[i] show the same prompt, so the cross term leaves out its diagonal as the others do."""
    a, b = a.flatten(1).double(), b.flatten(1).double()
    def mean(x, y):
        k = (x @ y.T / x.shape[1] + 1) ** 3
        return float((k.sum() - k.diag().sum()) / (len(k) * (len(k) - 1)))
    return mean(a, a) + mean(b, b) - 2 * mean(a, b)


# ---- all together ----------------------------------------------------------------------------------------

class Judge:
    def __init__(self, model, prompts):
        self.truth, self.prompts = Truth(), prompts
        self.references = References(model, self.truth)
        self.model = model
        self.candidates = [self.truth.candidates(p) for p in prompts]
        rng = random.Random(7)
        self.real = encode(model, [rng.choice(c) for c in self.candidates])

    def judge_one(self, p, picture, latent, candidates):
        mask = self.truth.mask(p)
        background = ~dilate(mask, 7)
        best = max(candidates, key=lambda c: picture_psnr(picture, c))
        rank = self.references.rank(p, picture, latent)
        row = dict(group=p.group, layout=p.layout, top1=rank == 0, top5=rank < 5,
                   background=nearest_color(corner_color(picture)) == p.color,
                   sharpness=edge_strength(picture, mask) / edge_strength(best, mask),
                   psnr=picture_psnr(picture, best), ssim=ssim(picture, best))
        if background.sum() > 200:
            row["speckle"] = float(picture[background].std(0).mean() * 255)
        if p.layout == "small":
            row["place"] = place_is_right(p, picture)
        if p.layout == "pair":
            row["order"] = self.references.is_in_order(p, latent)
        else:
            row["size"] = size_is_right(p, self.truth, picture)
        return row

    def judge(self, pixels):
        """uint8 [n, 128, 128, 3] in the order of the prompts -> {measure: mean}"""
        pictures = [x.astype(np.float32) / 255 for x in pixels]
        latents = encode(self.model, pictures)
        rows = [self.judge_one(p, x, z, c) for p, x, z, c in
                zip(self.prompts, pictures, latents, self.candidates)]
        def mean(name, keep=lambda r: True):
            values = [r[name] for r in rows if name in r and keep(r)]
            return float(np.mean(values)) if values else float("nan")
        names = ["background", "top1", "top5", "place", "size", "order", "speckle", "sharpness", "psnr",
                 "ssim"]
        out = {n: mean(n) for n in names}
        for group in ("seen", "unseen"):
            for n in ("top1", "top5"):
                out[n + "_" + group] = mean(n, lambda r: r["group"] == group)
        for layout, _ in HALF:
            out["top1_" + layout] = mean("top1", lambda r: r["layout"] == layout)
        out["kid"] = kernel_distance(self.real, latents)
        return out


def show(label, r):
    percent = ["background", "top1_seen", "top5_seen", "top1_unseen", "top5_unseen", "top1_plain",
               "top1_large", "top1_small", "top1_pair", "place", "size", "order"]
    print(label + "  " + "  ".join("%s %.0f %%" % (k, 100 * r[k]) for k in percent))
    print(" " * len(label) + "  " + "  ".join("%s %.3f" % (k, r[k]) for k in
                                              ["speckle", "sharpness", "psnr", "ssim", "kid"]), flush=True)


ROWS = [("prompts", "%d"), ("background", "%"), ("top1_seen", "%"), ("top1_unseen", "%"), ("top5_seen", "%"),
        ("top5_unseen", "%"), ("top1_plain", "%"), ("top1_large", "%"), ("top1_small", "%"),
        ("top1_pair", "%"), ("order", "%"), ("place", "%"), ("size", "%"), ("speckle", "%.2f"),
        ("sharpness", "%.2f"), ("psnr", "%.1f"), ("ssim", "%.2f"), ("kid", "%.3f")]


def print_table(path):
    """The last result of each folder and label is a column."""
    with open(path) as f:
        results = [json.loads(line) for line in f]
    columns = {("" if r["label"] in ("true", "vae") else r["folder"] + " ") + r["label"]: r for r in results}
    print("| measure | " + " | ".join(columns) + " |\n" + "| --- " * (len(columns) + 1) + "|")
    for name, shape in ROWS:
        cells = ["%.0f %%" % (100 * r[name]) if shape == "%" else shape % r[name] for r in columns.values()]
        print("| " + " | ".join([name] + cells) + " |")


def evaluate_real(model, judge):
    """The ceiling: true pictures, and the same after the VAE. Then the VAE's PSNR on fresh ones."""
    rng = random.Random(99)
    true = np.stack([(np.clip(rng.choice(c), 0, 1) * 255 + .5).astype(np.uint8)
                     for c in judge.candidates])
    yield "true", judge.judge(true)
    z = encode(model, [x.astype(np.float32) / 255 for x in true])
    yield "vae", judge.judge(model.decode(z))
    source = Source(4242)
    x = to_tensor([source.sample()[0] for _ in range(128)])
    with torch.no_grad():
        y = torch.cat([model.vae.decode(model.vae.encode(q)[0]) for q in x.split(8)])
    print("VAE on 128 fresh pictures: %.2f dB" % psnr(y, x))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("what", choices=["prompts", "real", "model", "table"])
    p.add_argument("folder", nargs="?", help="table: the file of results")
    p.add_argument("--steps", default="1,2,4,8,25,50")
    p.add_argument("--guidance", type=float, default=GUIDANCE)
    p.add_argument("--prompts", default=PROMPTS, help="the list; prompts-styled.tsv has the styles")
    p.add_argument("--count", type=int, help="only so many of the prompts, evenly spread")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--with-real", action="store_true", help="model: measure true pictures first")
    p.add_argument("--json", help="append the results to this file, one JSON object a line")
    p.add_argument("--sheet", help="picture of the first steps' results")
    args = p.parse_args()
    if args.what == "prompts":
        write_prompts()
        return write_styled()
    if args.what == "table":
        return print_table(args.folder)
    prompts, model = read_prompts(args.prompts, args.count), Model(args.folder)
    judge = Judge(model, prompts)

    def results():
        if args.what == "real" or args.with_real:
            yield from evaluate_real(model, judge)
        if args.what == "real":
            return
        for steps in map(int, args.steps.split(",")):
            began = time.process_time()
            pixels, _ = model.draw([q.text for q in prompts], steps, args.guidance, args.seed)
            if args.sheet:
                sheet(pixels, 16).save(args.sheet)
            spent = time.process_time() - began
            result = judge.judge(pixels)
            result["cpu_s_per_picture"] = spent / len(prompts)
            yield "%d steps" % steps, result

    for label, result in results():
        show(label, result)
        if args.json:
            with open(args.json, "a") as f:
                f.write(json.dumps(dict(folder=os.path.basename(os.path.normpath(args.folder)),
                                        label=label, prompts=len(prompts), **result)) + "\n")


if __name__ == "__main__":
    main()
