"""sheets - the sample pictures of the model card, drawn with the exported folders.

usage: sheets.py TEACHER [STUDENT] [--out ../../samples]
  model-64-prompts.png   the first 64 prompts of sheet.txt, as a newcomer gets them
  model-steps.png        eight prompts, teacher and student, at 1, 2, 4, 8, 25 and 50 steps
SPDX-License-Identifier: MIT
"""
import argparse
import json
import os

import hogwild  # noqa: F401  first: it sets the number of threads
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from data import sheet
from sample import Model

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = [1, 2, 4, 8, 25, 50]
SHOWN = ["a fox on a purple background", "a large strawberry on a light blue background",
         "a small robot in the top left on an orange background",
         "a cat face and a dog face on a blue background", "two red apples on a green background",
         "a silhouette of a rocket on a pink background", "a sailboat on a teal background",
         "a sunflower and a cactus"]


def load(folder):
    with open(os.path.join(folder, "darkroom.json")) as f:
        return Model(folder), json.load(f)


def labelled(rows, labels, width=92):
    """rows of pictures uint8 [n, 128, 128, 3], a label in front of each row"""
    picture = sheet(np.concatenate(rows), len(rows[0]))
    out = Image.new("RGB", (picture.width + width, picture.height), "white")
    out.paste(picture, (width, 0))
    pen = ImageDraw.Draw(out)
    for i, label in enumerate(labels):
        pen.text((6, i * 128 + 54), label, fill="black", font=ImageFont.load_default())
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("teacher")
    p.add_argument("student", nargs="?")
    p.add_argument("--out", default=os.path.join(HERE, "../../samples"))
    args = p.parse_args()
    with open(os.path.join(HERE, "sheet.txt")) as f:
        prompts = f.read().strip().split("\n")[:64]
    models = [("teacher", *load(args.teacher))] + ([("student", *load(args.student))] if args.student else [])
    _, teacher, settings = models[0]
    pixels, _ = teacher.draw(prompts, settings["steps"], settings["guidance"])
    sheet(pixels, 8).save(os.path.join(args.out, "model-64-prompts.png"), optimize=True)
    rows, labels = [], []
    for name, model, settings in models:
        for steps in STEPS:
            rows.append(model.draw(SHOWN, steps, settings["guidance"])[0])
            labels.append("%s\n%d step%s" % (name, steps, "s" * (steps > 1)))
    labelled(rows, labels).save(os.path.join(args.out, "model-steps.png"), optimize=True)


if __name__ == "__main__":
    main()
