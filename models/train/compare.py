"""compare - does the C program draw the same pictures as the training code?

Runs the program for some prompts and seeds, draws the same here (same starting latent: both use torch's CPU
noise), and prints the PSNR of each pair. Fails below 45 dB.
usage: compare.py PROGRAM FOLDER [--steps 25] [--guidance 1.25]
SPDX-License-Identifier: MIT
"""
import argparse
import os
import subprocess
import sys
import tempfile

import hogwild  # first: it sets the number of threads
import numpy as np
from PIL import Image

from evaluate import picture_psnr
from sample import GRID, Model
from settings import GUIDANCE

LIMIT_DB = 45


def draw_with(program, folder, prompt, args, seed, path):
    command = [program, prompt, "--model", folder, "--steps", str(args.steps), "--seed", str(seed),
               "--guidance", str(args.guidance), "--scheduler", args.scheduler, "--output", path]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return np.asarray(Image.open(path).convert("RGB"))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("program")
    p.add_argument("folder")
    p.add_argument("--steps", type=int, default=25)
    p.add_argument("--guidance", type=float, default=GUIDANCE)
    p.add_argument("--scheduler", default="ddim")
    p.add_argument("--count", type=int, default=4)
    args = p.parse_args()
    model, worst = Model(args.folder), float("inf")
    with tempfile.TemporaryDirectory() as scratch:
        for seed, prompt in enumerate(GRID[:args.count]):
            ours = draw_with(args.program, args.folder, prompt, args, seed,
                             os.path.join(scratch, "%d.png" % seed)).astype(np.float32) / 255
            theirs = model.draw([prompt], args.steps, args.guidance, seed)[0][0].astype(np.float32) / 255
            value = picture_psnr(ours, theirs) if ours.shape == theirs.shape else 0
            print("%6.2f dB  %s" % (value, prompt), flush=True)
            worst = min(worst, value)
    if worst < LIMIT_DB:
        sys.exit("the pictures differ: %.2f dB, %d are required" % (worst, LIMIT_DB))


if __name__ == "__main__":
    main()
