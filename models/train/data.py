"""data - pictures with captions, composed from emoji art over named background colours.

Source(seed).sample() draws a 128 x 128 picture, its caption and what is in it. Nothing is stored but the
art: pictures are cheap (4 ms) and their number has no end.
Layouts, in pixels of the 128: plain (104-108 wide, centred), large (144-150), small (57-60, one of nine
places), pair (two objects side by side), two (the same object twice).
Styles: as the art has it, black and white, or a silhouette.
SPDX-License-Identifier: MIT
"""
import io
import json
import os
import random

import numpy as np
from PIL import Image

from settings import DATA_DIR
from vocabulary import COLORS, OBJECTS, PLACES, is_held_out, plural, with_article

SIZE_PX = 128
FONT = "deb/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf"
CLDR = "deb/usr/share/unicode/cldr/common/annotations/en.xml"
EMOJI_JSON = "emoji/emoji.json"

LAYOUTS = {"plain": .42, "large": .06, "small": .22, "pair": .20, "two": .10}  # shares of the samples
SIZES = {"plain": 106, "large": 147, "small": 58.5, "pair": 59, "two": 59}  # width of an object, pixels
STYLES = {"": .84, "black and white": .08, "silhouette": .08}  # of the layouts with one object
COLOR_PHRASES = [" on %a background", " on %a background", " on %s", ", %s background"]


def load_sprites():
    """-> {short name: uint8 [128, 136, 4]}, the bitmaps of the font's CBDT table"""
    from fontTools.ttLib import TTFont
    font = TTFont(os.path.join(DATA_DIR, FONT))
    glyph_of = font.getBestCmap()
    bitmaps = font["CBDT"].strikeData[0]
    with open(os.path.join(DATA_DIR, EMOJI_JSON)) as f:
        code_of = {e["short_name"]: e["unified"] for e in json.load(f)}
    sprites = {}
    for key in OBJECTS:
        code = int(code_of[key].replace("-FE0F", ""), 16)
        picture = Image.open(io.BytesIO(bitmaps[glyph_of[code]].imageData)).convert("RGBA")
        assert picture.size == (136, 128), (key, picture.size)
        sprites[key] = np.asarray(picture)
    return sprites


def square_premultiplied(rgba):
    """uint8 [128, 136, 4] -> float32 [136, 136, 4]; premultiplied, or resizing leaves dark fringes"""
    x = rgba.astype(np.float32) / 255
    x[..., :3] *= x[..., 3:]
    out = np.zeros((136, 136, 4), np.float32)
    out[4:132] = x
    return out


def centers(layout, place="center"):
    """Where the objects of a layout lie: [(x, y)], from left to right"""
    if layout in ("pair", "two"):
        return [(33, 64), (95, 64)]
    if layout == "small":
        return [(34 if "left" in place else 94 if "right" in place else 64,
                 34 if "top" in place else 94 if "bottom" in place else 64)]
    return [(64, 64)]


def styled(noun, style):
    """How a caption names an object in a style"""
    if style == "silhouette":
        return "silhouette of " + with_article(noun)
    return style + " " + noun if style else noun


def restyle(sprite, style, ground):
    """premultiplied float [h, w, 4] -> the same in another style, to lie on the colour ground"""
    alpha, luma = sprite[..., 3:], np.array([.299, .587, .114], np.float32)
    if style == "black and white":
        return np.concatenate([np.repeat(sprite[..., :3] @ luma[:, None], 3, -1), alpha], -1)
    if style == "silhouette":
        ink = .08 if ground @ luma > .35 else .95
        return np.concatenate([np.repeat(alpha * ink, 3, -1), alpha], -1)
    return sprite


class Source:
    """A seeded, endless source of samples. train=True leaves out the held-out combinations."""

    def __init__(self, seed=0, train=True):
        self.keys = list(OBJECTS)
        sprites = load_sprites()
        self.sprites = [square_premultiplied(sprites[k]) for k in self.keys]
        self.random = random.Random(seed)
        self.train = train

    def forbidden(self, *words):
        return self.train and is_held_out(*words)

    def near(self, value, jitter):
        return value + self.random.uniform(-jitter, jitter)

    def name(self, key):
        names = OBJECTS[key]
        if len(names) == 1 or self.random.random() < 0.6:
            return names[0]
        return self.random.choice(names[1:])

    def paste(self, canvas, obj, size, cx, cy, style=""):
        """Put object number obj, size pixels wide, on canvas [128, 128, 3] around (cx, cy)."""
        size = int(round(size))
        filter_ = Image.LANCZOS if size < 136 else Image.BICUBIC
        planes = [Image.fromarray(self.sprites[obj][..., c], "F").resize((size, size), filter_)
                  for c in range(4)]
        sprite = np.clip(np.stack([np.asarray(p) for p in planes], -1), 0, 1)
        sprite = restyle(sprite, style, canvas[0, 0])
        x0, y0 = int(round(cx - size / 2)), int(round(cy - size / 2))
        xa, ya = max(x0, 0), max(y0, 0)
        xb, yb = min(x0 + size, SIZE_PX), min(y0 + size, SIZE_PX)
        sprite = sprite[ya - y0:yb - y0, xa - x0:xb - x0]
        canvas[ya:yb, xa:xb] = canvas[ya:yb, xa:xb] * (1 - sprite[..., 3:]) + sprite[..., :3]

    def canvas(self, color):
        rgb = np.array(COLORS[color], np.float32) / 255
        if color != "white":
            rgb = np.clip([self.near(c, .02) for c in rgb], 0, 1)
        return np.tile(rgb.astype(np.float32), (SIZE_PX, SIZE_PX, 1))

    def pick_color(self, keys):
        while True:
            color = "white" if self.random.random() < .3 else self.random.choice(list(COLORS))
            if color == "white" or not any(self.forbidden(k, color) for k in keys):
                return color

    def draw(self, layout, keys, color, place="center", style=""):
        """-> float32 [128, 128, 3] in [0, 1]"""
        canvas, near = self.canvas(color), self.near
        jitter = {"plain": 2, "large": 3}.get(layout, 1.5)
        size = near(SIZES[layout], jitter)
        for slot, (x, y) in enumerate(centers(layout, place)):
            if layout == "pair" and slot:
                size = near(SIZES[layout], jitter)  # two of the same are of one size
            self.paste(canvas, self.keys.index(keys[slot % len(keys)]), size, near(x, 1), near(y, 1), style)
        return canvas

    def describe(self, layout, keys, color, place="center", style=""):
        pick = self.random.choice
        noun = styled(self.name(keys[0]), style)
        if layout == "plain":
            text = with_article(noun)
        elif layout == "large":
            text = pick(["a large ", "a big ", "a huge "]) + noun
        elif layout == "small":
            text = pick(["a small ", "a tiny ", "a little "]) + noun
            if place != "center":
                text += pick([" in the ", " at the "]) + place
            elif self.random.random() < .5:
                text += " in the center"
        elif layout == "pair":
            text = with_article(noun) + " and " + with_article(self.name(keys[1]))
        else:
            text = "two of " + noun if self.random.random() < .2 else "two " + plural(noun)
            text += pick([" side by side", ""])
        if color != "white" or self.random.random() < .35:  # no colour said means white
            phrase = pick(COLOR_PHRASES)
            text += phrase.replace("%a", with_article(color)).replace("%s", color)
        return text

    def pick(self, key=None):
        """-> layout, keys, color, place, style: something training may show"""
        layout = self.random.choices(list(LAYOUTS), LAYOUTS.values())[0]
        keys = [key or self.random.choice(self.keys)]
        if layout == "pair":
            others = [k for k in self.keys
                      if k != keys[0] and not self.forbidden(keys[0], "and", k)]
            keys.append(self.random.choice(others))
        places = [p for p in PLACES if not self.forbidden(keys[0], "small", p)]
        style = "" if layout in ("pair", "two") else self.random.choices(list(STYLES), STYLES.values())[0]
        return layout, keys, self.pick_color(keys), self.random.choice(places), style

    def sample(self, key=None):
        """-> uint8 [128, 128, 3], caption"""
        what = self.pick(key)
        picture = self.draw(*what)
        return (np.clip(picture, 0, 1) * 255 + .5).astype(np.uint8), self.describe(*what)


def halve(pictures):
    """[n, c, 2h, 2w] -> [n, c, h, w] by averaging 2 x 2 blocks (torch or numpy)"""
    n, c, h, w = pictures.shape
    return pictures.reshape(n, c, h // 2, 2, w // 2, 2).mean((3, 5))


def to_tensor(pictures):
    """list of uint8 [h, w, 3] -> float [n, 3, h, w] in [-1, 1]"""
    import torch
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 127.5 - 1


def to_pixels(x):
    """float [n, 3, h, w] in [-1, 1] -> uint8 [n, h, w, 3]"""
    return ((x.clamp(-1, 1) + 1) * 127.5 + .5).byte().permute(0, 2, 3, 1).contiguous().numpy()


def sheet(pictures, columns):
    """uint8 [n, h, w, 3] -> one PIL image, row by row, the last one filled up with white"""
    missing = -len(pictures) % columns
    pictures = list(pictures) + [np.full_like(pictures[0], 255)] * missing
    rows = [np.concatenate(list(pictures[i:i + columns]), 1)
            for i in range(0, len(pictures), columns)]
    return Image.fromarray(np.concatenate(rows, 0))
