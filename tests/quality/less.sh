#!/bin/sh
# less.sh - what doing less work costs in quality: a Markdown table of the default model's pictures.
# SPDX-License-Identifier: MIT
# less.sh [MODEL [STEPS]]; $DARKROOM is the program (./darkroom), $OUT a folder for the pictures, which may be used again
# (build/quality). Each row is against the same prompts and seed with all work done; `make quality` runs it.
cd "$(dirname "$0")/../.." || exit 1
: "${DARKROOM:=./darkroom}" "${OUT:=build/quality}"
model=${1:-emoji} steps=${2:-20}
exact="scheduler=ddim,steps=$steps,deepcache=1,tgate=0,tome=0,guidance-from=0,guidance-to=1,vae-tiling=false"
mkdir -p "$OUT" || exit 1
cat >"$OUT/prompts.txt" <<'END'
a red apple on a blue background
a rocket on a blue background
a yellow banana on a black background
a green frog on a white background
a brown dog on a gray background
an orange cat on a white background
a blue whale on a white background
a red car on a yellow background
a purple grape on a green background
a slice of pizza on a red background
a yellow sun on a blue background
a red heart on a pink background
a green tree on a white background
a gray elephant on an orange background
a penguin on a blue background
a cupcake on a purple background
END
head -n 2 "$OUT/prompts.txt" >"$OUT/two.txt"

# rows PROMPTS OPTIONS...: a line of the table for every setting these options make
rows() {
    prompts=$1
    shift
    "$DARKROOM" compare --file "$OUT/$prompts" -m "$model" --scheduler ddim --seed 1 --reference "$exact" -o "$OUT/cells" -q "$@" ||
        exit 1
    awk -F, -v typed="$*" '
        { sub(/\r$/, "") }
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        {
            n = split(typed, word, " ")
            options = ""
            for (i = 1; i <= n; i++) {
                value = ""
                name = substr(word[i], 3)
                if (i < n && word[i + 1] !~ /^--/) value = " " (name in at ? $at[name] : word[i + 1])
                if (name == "steps" && word[i + 1] == steps) { i++; continue }
                options = options (options ? " " : "") word[i] value
                if (value) i++
            }
            psnr = $at["psnr_db"]
            psnr = (psnr >= 120) ? "equal" : sprintf("%.1f", psnr)
            printf("| `%s` | %d | %.3f | %s | %.3f | %.2f |\n", options, $at["unet_passes"], $at["latent_rmse"], psnr,
                $at["ssim"], $at["sharpness_ratio"])
        }' steps="$steps" "$OUT/cells/results.csv"
}

echo "$model, $(wc -l <"$OUT/prompts.txt" | tr -d ' ') prompts, ddim, $steps steps, the model's guidance; mean over pictures"
echo
echo '| options | passes | latent RMSE | PSNR, dB | SSIM | sharpness |'
echo '|---|---|---|---|---|---|'
rows prompts.txt --steps "$steps" --deepcache 2,3,5
rows prompts.txt --steps "$steps" --deepcache 3 --deepcache-branch 2
rows prompts.txt --steps "$steps" --tgate 0.25,0.5,0.75
rows prompts.txt --steps "$steps" --tome 0.25,0.5,0.75
rows prompts.txt --steps "$steps" --deepcache 2 --tgate 0.5 --tome 0.5
rows prompts.txt --steps "$steps" --guidance-to 0.5,0.75
rows prompts.txt --steps "$steps" --guidance-from 0.25
rows prompts.txt --steps "$steps" --guidance-to 0.4 --tgate 0.4
rows prompts.txt --steps $((steps / 2))
steps=4 exact=$(echo "$exact" | sed "s/steps=[0-9]*/steps=4/")
rows two.txt --steps 4 --size 640x640 --vae-tiling
