#!/bin/sh
# make.sh - makes this folder again: the comparison, and the README with the numbers it gave.
# SPDX-License-Identifier: MIT
# usage: samples/compare/make.sh [FOLDER]      needs a quiet machine for some minutes; FOLDER: build/samples-compare
set -e
cd "$(dirname "$0")/../.."
folder=${1:-build/samples-compare}
here=samples/compare
set -- "a rocket on a blue background" --steps 1,2,4,8,16,32 --schedulers ddim,euler,dpmpp-2m,unipc,lcm --seeds 1,2
./darkroom compare "$@" -o "$folder"
cp "$folder/sheet.png" "$folder/chart.svg" "$folder/results.csv" $here/

# column NAME: its values, scheduler and steps before each.
column() {
    awk -F, -v name="$1" '{ sub(/\r$/, "") }
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        { print $at["scheduler"], $at["steps"], $at[name] }' $here/results.csv
}
# fewest NAME SCHEDULER: "8 steps", the fewest for which the column is true.
fewest() {
    column "$1" | awk -v s="$2" '$1 == s && $3 == "true" && (!n || $2 < n) { n = $2 } END { print n ? n " step" (n > 1 ? "s" : "") : "not reached" }'
}
row() {
    printf '| %s |' "$1"
    for scheduler in ddim euler dpmpp-2m unipc; do printf ' %s |' "$(fewest "$2" $scheduler)"; done
    echo
}
steps=$(grep -o '"steps": [0-9]*, *"unet_passes"\|"steps": [0-9]*' "$folder/results.json" | sed 's/[^0-9]//g' | sort -n | tail -n 1)
share=$(column nearest | awk '{ n++; sum += $3 } END { printf "%.0f %%", 100 * sum / n }')
cat >$here/README.md <<END
# A comparison

How few steps are enough for the default model, and with which scheduler?

\`\`\`sh
darkroom compare "a rocket on a blue background" --steps 1,2,4,8,16,32 \\
    --schedulers ddim,euler,dpmpp-2m,unipc,lcm --seeds 1,2 -o which
\`\`\`

60 pictures and two references (converged at $steps steps at most). Here are the sheet, the chart and the table that it left; the
folder also holds \`report.html\` and every picture. \`lcm\` draws noise on its way, so only its statistics can be compared. Of
all pictures, $share are nearer to a rocket than to any of the model's other objects.

| within | ddim | euler | dpmpp-2m | unipc |
|---|---|---|---|---|
$(row 'PSNR 30 dB' within_psnr_30_db)
$(row 'SSIM 0.95' within_ssim_0.95)

![error against steps and seconds](chart.svg)

![the pictures](sheet.png)

[results.csv](results.csv); what its columns are stands in [docs/compare.md](../../docs/compare.md). This folder is made by
[make.sh](make.sh).
END
sed -n '/^| /p' $here/README.md
