#!/bin/sh
# smoke - run every stage of the training at tiny size and check that the exported folder draws a picture.
# Says "skipped" and succeeds where torch, or the art and a network to fetch it, is missing.
# SPDX-License-Identifier: MIT
set -eu
PYTHON=${PYTHON:-python3}
cd "$(dirname "$0")"
if ! "$PYTHON" -c "import torch" 2>/dev/null; then
    echo "skipped: torch is not installed"
    exit 0
fi
if ! "$PYTHON" -c "import PIL, numpy, fontTools" 2>/dev/null; then
    echo "skipped: pillow, numpy or fonttools is not installed"
    exit 0
fi
home=$(cd ../.. && pwd)
work=${DR_WORK:-$home/build/train}
mkdir -p "$work"
if ! DR_WORK=$work "$PYTHON" fetch.py; then
    echo "skipped: the art could not be fetched"
    exit 0
fi
small=$work/smoke
rm -rf "$small"
mkdir -p "$small"
ln -s "$(cd "$work" && pwd)/data" "$small/data"
export DR_WORK="$small" PYTHONDONTWRITEBYTECODE=1

run() { echo "- $*"; nice -n 19 "$PYTHON" "$@" > "$small/log" 2>&1 || { cat "$small/log"; exit 1; }; }

run tokenizer.py --captions 500
run vae.py first --samples 32 --batch 2
run vae.py first --samples 64 --batch 2       # must go on from 32
run vae.py fold --count 16
run vae.py grow --samples 16 --batch 2
run vae.py grow --part encoder --samples 16 --batch 2
run vae.py check --count 8
run unet.py cache --count 64
run unet.py train --samples 64 --batch 8
run distil.py --samples 32 --batch 8
run vae.py grow --samples 32 --batch 2 --unet "$small/unet/last.pt" --student "$small/lcm/last.pt"
run tiny_decoder.py train --samples 16 --batch 2
run tiny_decoder.py train --samples 32 --batch 2  # must go on from 16
run tiny_decoder.py check --count 8
run tiny_decoder.py export --folder "$small"
run export.py "$small/model"
run references.py "$small/model"
for again in 1 2; do  # the second time must not write through the links of the first
    run export.py "$small/model-lcm" --unet "$small/lcm/last.pt" --scheduler lcm --beside "$small/model"
done
run sample.py "$small/model" "$small/model.png" --steps 2
run sample.py "$small/model-lcm" "$small/model-lcm.png" --steps 2
run evaluate.py model "$small/model" --count 8 --steps 2
run check_folder.py "$small/model"
run check_folder.py "$small/model-lcm"
echo "smoke: every stage ran, the exported folders are complete"
