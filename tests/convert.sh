#!/bin/sh
# convert.sh - a converted model renders the same bytes as what it was made of.
# SPDX-License-Identifier: MIT
. tests/shell.inc

# picture MODEL FILE: renders two steps with everything the model says by itself.
picture() { "$dk" "a red heart" -m "$1" --steps 2 --seed 3 -o "$2" --no-metadata --quiet --force; }

for model in "$root"/models/emoji "$root"/tests/golden/models/tiny-sd1 "$root"/tests/golden/models/tiny-sd2 \
    "$root"/tests/golden/models/tiny-sdxl "$root"/tests/golden/models/tiny-sdxl.ldm.safetensors; do
    name=$(basename "$model")
    picture "$model" "$name.png" >"$out" 2>"$err" || bad "$name renders"
    check "$name to safetensors" "$dk" convert "$model" "$name.one.safetensors" --quiet >/dev/null
    check "$name to GGUF" "$dk" convert "$name.one.safetensors" "$name.gguf" --dtype f16 --quiet >/dev/null
    check "$name back" "$dk" convert "$name.gguf" "$name.back.safetensors" --quiet >/dev/null
    for file in "$name.one.safetensors" "$name.gguf" "$name.back.safetensors"; do
        picture "$file" other.png >"$out" 2>"$err" || bad "$file renders"
        check "$file gives the same picture" cmp -s "$name.png" other.png
    done
done
check "quantised" "$dk" convert tiny-sd1.gguf quantised.gguf --dtype q8_0 --quiet >/dev/null
check "quantised renders" picture quantised.gguf quantised.png >/dev/null
ends 1 "exists already" "$dk" convert tiny-sd1.gguf quantised.gguf --dtype q8_0
ends 2 "safetensors cannot hold q8_0" "$dk" convert tiny-sd1.gguf other.safetensors --dtype q8_0
rm -f ./*.safetensors ./*.gguf
finish
