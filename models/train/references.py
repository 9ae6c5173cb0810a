"""references - the art and the words of the vocabulary as one small file beside the exported model.

darkroom compare takes it to tell which object a picture is nearest to, and whether the background has the
colour that the prompt names. It depends on vocabulary.py and data.py alone, not on weights: written by
`make export`, the same whenever the vocabulary is.

REFERENCES.png: a sheet of TILE x TILE tiles, COLUMNS in a row, in the order of the objects: first all as
premultiplied RGB on black, below them all opacities as grey. The text chunk "darkroom-references" says the
rest as JSON: names and plurals, colours, layouts (sizes and centres in pixels of the canvas), styles.
usage: references.py FOLDER
SPDX-License-Identifier: MIT
"""
import argparse
import json
import os

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from data import SIZE_PX, SIZES, centers, load_sprites, square_premultiplied
from vocabulary import COLORS, OBJECTS, PLACES, plural

NAME, KEYWORD, SCHEMA = "references.png", "darkroom-references", "darkroom-references-1"
TILE, COLUMNS = 56, 9  # objects of plain pictures are 53 wide where pictures are compared
LIMIT_KB = 300


def shrunk(sprite):
    """float [136, 136, 4] premultiplied -> uint8 [TILE, TILE, 4]"""
    planes = [np.asarray(Image.fromarray(sprite[..., c], "F").resize((TILE, TILE), Image.LANCZOS))
              for c in range(4)]
    out = np.clip(np.stack(planes, -1), 0, 1)
    return (np.minimum(out, out[..., 3:]) * 255 + .5).astype(np.uint8)


def sheet(tiles):
    """uint8 [n, TILE, TILE, 3] -> [rows * TILE, COLUMNS * TILE, 3]"""
    rows = -(-len(tiles) // COLUMNS)
    out = np.zeros((rows, COLUMNS, TILE, TILE, 3), np.uint8)
    out.reshape(-1, TILE, TILE, 3)[:len(tiles)] = tiles
    return out.transpose(0, 2, 1, 3, 4).reshape(rows * TILE, COLUMNS * TILE, 3)


def plurals(noun):
    """As captions have it, and as English has it."""
    if noun.endswith(("s", "x", "sh", "ch")):
        english = noun + "es"
    elif noun.endswith("y") and noun[-2] not in "aeiou":
        english = noun[:-1] + "ies"
    else:
        english = noun + "s"
    return sorted({plural(noun), english})


def describe():
    """What captions say (data.Source.describe) and what they mean (data.Source.draw, without jitter)."""
    def layout(name, **more):
        at = {} if name == "small" else {"at": centers(name)}
        return {"size": round(SIZES[name]), **at, **more}
    return {
        "schema": SCHEMA, "canvas": SIZE_PX, "tile": TILE, "columns": COLUMNS,
        "objects": [{"key": key, "names": names, "plurals": [p for n in names for p in plurals(n)]}
                    for key, names in OBJECTS.items()],
        "colours": {name: list(rgb) for name, rgb in COLORS.items()},
        "plain": layout("plain"),
        "large": layout("large", words=["large", "big", "huge"]),
        "small": layout("small", words=["small", "tiny", "little"],
                        places={name: centers("small", name)[0] for name in PLACES}),
        "pair": layout("pair"),
        "two": layout("two"),
        "styles": {"black and white": "gray", "silhouette of": "silhouette"},
    }


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("folder")
    args = p.parse_args()
    sprites = load_sprites()
    tiles = np.stack([shrunk(square_premultiplied(sprites[key])) for key in OBJECTS])
    pixels = np.concatenate([sheet(tiles[..., :3]), sheet(np.repeat(tiles[..., 3:], 3, -1))], 0)
    text = PngInfo()
    text.add_itxt(KEYWORD, json.dumps(describe(), separators=(",", ":")))
    path = os.path.join(args.folder, NAME)
    Image.fromarray(pixels).save(path, optimize=True, pnginfo=text)
    size = os.path.getsize(path) / 1e3
    print("%s: %d objects, %.0f kB" % (path, len(tiles), size))
    if size > LIMIT_KB:
        raise SystemExit("%s: more than %d kB; make the tiles smaller" % (path, LIMIT_KB))


if __name__ == "__main__":
    main()
