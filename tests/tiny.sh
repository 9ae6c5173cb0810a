#!/bin/sh
# tiny.sh - tiny decoders on the command line: recorded, made again, compared, refused.
# SPDX-License-Identifier: MIT
. tests/shell.inc

tiny=$root/tests/golden/tiny/vae_tiny
cat='a cat on a red background'
common='--seed 3 --steps 2'

# The picture is another one; its record has all it takes to make it again.
# shellcheck disable=SC2086
{
    ends 0 '' "$dk" "$cat" $common -o vae.png
    ends 0 '' "$dk" "$cat" $common --taesd "$tiny" -o tiny.png
    ends 0 '' "$dk" "$cat" $common --tae "$root/tests/golden/tiny/taesd_decoder.safetensors" --no-metadata -o other.png
    ends 0 '' "$dk" "$cat" $common --taesd "$tiny" --no-metadata --threads 1 -o one.png
}
check 'another picture' sh -c '! cmp -s vae.png tiny.png'
same other.png one.png
run "$dk" info tiny.png --json
prints '"decoder": *"tiny"'
prints '"taesd": *"[^"]*vae_tiny"'
run "$dk" info vae.png --json
prints '"decoder": *null'
ends 0 '' "$dk" --from tiny.png -o again.png
same tiny.png again.png
ends 0 '' "$dk" --from tiny.png --decoder vae --no-metadata -o back.png
ends 0 '' "$dk" --from vae.png --no-metadata -o plain.png
same back.png plain.png

# For previews only: the picture is the VAE's.
# shellcheck disable=SC2086
ends 0 '' "$dk" "$cat" $common --taesd "$tiny" --taesd-preview-only --preview --no-metadata -o preview.png
same preview.png plain.png

# The same in batches and comparisons, as a setting of each picture.
printf '%s --decoder tiny\n%s --decoder vae\n' "$cat" "$cat" >lines.txt
# shellcheck disable=SC2086
ends 0 '' "$dk" batch lines.txt $common --taesd "$tiny" -o shots
check 'both were made' test "$(find shots -name '*.png' ! -name 'contact*' | wc -l)" -eq 2

# What a model lacks is said; the default model may bring a tiny decoder of its own.
if [ -d "$root/models/emoji/vae_tiny" ]; then
    # shellcheck disable=SC2086
    ends 0 '' "$dk" "$cat" $common --decoder tiny -o own.png
else
    # shellcheck disable=SC2086
    ends 2 'no tiny decoder; give one with --taesd' "$dk" "$cat" $common --decoder tiny -o own.png
fi
ends 2 'expected one of vae|tiny' "$dk" "$cat" --decoder big
ends 1 'expected a tiny decoder' "$dk" "$cat" --taesd "$root/models/emoji/vae" --dry-run
ends 1 'TAESD3' "$dk" "$cat" --taesd "$root/tests/golden/tiny/sixteen.safetensors" --dry-run

finish
