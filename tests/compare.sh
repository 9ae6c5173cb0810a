#!/bin/sh
# compare.sh - darkroom compare: cells, references, tables, repetition.
# SPDX-License-Identifier: MIT
. tests/shell.inc
tiny=$root/tests/golden/models/tiny-sd1

# column NAME FILE: the values of a column of a CSV without quoted fields.
column() { awk -F, -v name="$1" '{ sub(/\r$/, "") } NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) k = i; next } { print $k }' "$2"; }
# measured FILE: the table without what a clock decides, sorted.
measured() {
    awk -F, '{ sub(/\r$/, "") }
        NR == 1 { for (i = 1; i <= NF; i++) drop[i] = $i ~ /^(text_s|denoise_s|decode_s|seconds|pareto)/ }
        { line = ""; for (i = 1; i <= NF; i++) if (!drop[i]) line = line "," $i; print line }' "$1" | sort
}
is() { if [ "$2" = "$3" ]; then ok; else bad "$1: found \"$2\", expected \"$3\""; fi; }
# in_place is empty or "exec": a run in the background is then the program itself, which can be killed by $!
in_place=
small() { $in_place "$dk" compare "$@" -m "$tiny" --size 32x32 --guidance 1 --tolerance 0.05; }

# --- what is refused, before anything is made
ends 2 'prompt is missing' "$dk" compare -o x
ends 2 'no folder was given' "$dk" compare cat
ends 2 '^darkroom: --steps: found "0"' "$dk" compare cat -o x --steps 4,0
ends 2 'nosuch' "$dk" compare cat -o x -m "$tiny" --schedulers nosuch,ddim
ends 2 'a comparison can be repeated' "$dk" compare cat -o x --seed random
ends 2 '^darkroom: --rows: "eta"' "$dk" compare cat -o x --rows eta
ends 2 'found one option twice' "$dk" compare cat -o x --rows seed --columns seeds
ends 2 '^darkroom: --target: found "psnr"' "$dk" compare cat -o x --target psnr
ends 2 '^darkroom: --reference: found "steps"' "$dk" compare cat -o x --reference steps
ends 1 'holds no comparison' "$dk" compare cat -o x --add
check "nothing was made" [ ! -e x ]

# --- a plan
run small "a <b> & \"c\"" --steps 1,3 --schedulers ddim,euler --seeds 1..3 -o plan --dry-run
is "dry run" "$status" 0
prints ' scheduler euler .* steps 3 .* 3 passes$'
prints '^4 settings, 12 cells, 0 finished, 3 references; '
check "a dry run makes no folder" [ ! -e plan ]

# --- a matrix; its table, files and labels
run small "a <b> & \"c\"" --steps 1,3 --schedulers ddim,euler --seeds 1..3 -o a --json
is "a comparison" "$status" 0
cp "$out" events
is "cells made" "$(grep -c '"event":"cell".*"reference":false' events)" 12
check "an end" grep -q '"event":"end","status":0' events
for file in results.csv results.json chart.svg chart.png sheet.png report.html; do check "file" [ -s "a/$file" ]; done
is "rows" "$(column steps a/results.csv | tr '\n' ' ')" '1 3 1 3 '
is "schedulers" "$(column scheduler a/results.csv | tr '\n' ' ')" 'ddim ddim euler euler '
is "pictures" "$(column pictures a/results.csv | tr '\n' ' ')" '3 3 3 3 '
is "references" "$(grep -c '"converged": true' a/results.json)" 3
grep -o 'change_rmse": [0-9.e-]*' a/results.json | tail -n 1 | awk '{ exit !($2 > 0 && $2 < 0.05) }'
is "the last change is below the tolerance" $? 0
check "prompts are escaped" grep -q 'a &lt;b&gt; &amp; &quot;c&quot;' a/report.html
check "and nowhere bare" [ -z "$(grep -o '<b> & "c"' a/report.html)" ]
check "nothing from elsewhere" [ -z "$(grep -oE '(src|href)="(https?:|//)' a/report.html)" ]

# Every cell, made again from its own record, is the same file, and its name tells what it is.
for scheduler in ddim euler; do
    for steps in 1 3; do
        for seed in 1 2 3; do
            for cell in "a/cells/$scheduler-$steps-$seed"-*.png; do
                "$dk" --from "$cell" -q --force -o again.png >/dev/null 2>&1
                same "$cell" again.png
                "$dk" info "$cell" --json >"$out"
                is "label" "$(field scheduler)-$(field steps)-$(field seed)" "$scheduler-$steps-$seed"
            done
        done
    done
done

# --- nothing is made twice; more can be added
cp a/results.json before.json
run small "a <b> & \"c\"" --steps 1,3 --schedulers ddim,euler --seeds 1..3 -o a --json
is "again" "$status $(grep -c '"event":"cell".*"reference":false' "$out")" '0 0'
same a/results.json before.json
measured a/results.csv >a.table
run small --add --steps 2 -o a --json
is "added" "$status $(grep -c '"event":"cell".*"reference":false' "$out")" '0 6'
is "rows with the new steps" "$(column steps a/results.csv | tr '\n' ' ')" '1 3 2 1 3 2 '

# --- the order and the number of threads do not matter
run small "a <b> & \"c\"" --seeds 3,1,2 --schedulers euler,ddim --steps 3,1 --threads 1 -o b -q
measured b/results.csv >b.table
is "lines of the table" "$(wc -l <a.table)" 5
# sums in another order may differ in the last digit
awk -F, 'NR == FNR { row[$4 "," $6] = $0; next }
    { n = split(row[$4 "," $6], r, ","); if (n != NF) bad = 1
      for (i = 7; i <= NF; i++) if (r[i] != $i && (r[i] - $i > 1e-4 || $i - r[i] > 1e-4)) bad = 1 } END { exit bad }' a.table b.table
is "the same numbers" $? 0
for cell in b/cells/*; do same "$cell" "a/cells/$(basename "$cell")"; done

# --- killed and started again
in_place=exec
small "a <b> & \"c\"" --steps 1,3 --schedulers ddim,euler --seeds 1..3 -o k -q >/dev/null 2>&1 &
pid=$!
in_place=
tries=0
while [ "$(ls k/cells 2>/dev/null | wc -l)" -lt 5 ] && [ $tries -lt 300 ]; do sleep 0.1; tries=$((tries + 1)); done
kill -9 $pid
wait $pid 2>/dev/null
is "killed half way" "$([ -e k/results.csv ] && echo yes)" ''
echo rest >k/cells/.darkroom-1-1.tmp
printf x >>"$(ls k/cells/*.png | head -n 1)"
run small "a <b> & \"c\"" --steps 1,3 --schedulers ddim,euler --seeds 1..3 -o k -q
is "started again" "$status" 0
is "the same files" "$(ls -A k/cells)" "$(ls -A b/cells)"
for cell in b/cells/*; do same "$cell" "k/cells/$(basename "$cell")"; done

# --- asked to stop; in the foreground timeout sends one signal, else two, and the second ends the program at once
run timeout --foreground -s INT 2 "$dk" compare cat -m "$tiny" --size 64x64 --steps 400,500 --seeds 1..40 --schedulers heun -o s -q
is "asked to stop" "$(grep -c 'interrupted; run the same command again' "$err")" 1
check "no results of half a matrix" [ ! -e s/results.csv ]
is "no temporary files" "$(find s -name '.darkroom-*.tmp' | wc -l)" 0

# --- other references, several axes, gaps
run small cat --steps 2 --schedulers ddim,lcm --seeds 1..2 --reference ddpm-4 --guidance 1 -o r -q
is "a scheduler that draws noise as the reference" "$status" 0
check "statistics" [ "$(grep -c '"compared_by": "statistics"' r/results.json)" -eq 2 ]
is "no PSNR" "$(column psnr_db r/results.csv | tr -d '\n')" ''
run small cat --steps 2 --schedulers ddim,lcm --seeds 1..2 --reference ddpm-4 --guidance 1 -o r
prints '^Noise is drawn on the way'
is "no heading without an answer" "$(grep -c 'Within' "$out" r/report.html | tr '\n' ' ')" "$out:0 r/report.html:0 "
reference=$(ls r/cells/ddpm-4-1-*.png)
run small cat --steps 1,2 --schedulers ddim --seed 1 --reference "$reference" --rows seed --target ssim=0.1,psnr=90 -o f
is "a picture as the reference" "$status" 0
prints 'Within SSIM 0.1 '
prints '^  fewest steps.*: darkroom cat .*--steps [12]'
is "no latent to compare with" "$(column latent_rmse f/results.csv | tr -d '\n')" ''
ends 2 'has 32x32 pixels, the cells 64x64' "$dk" compare cat -m "$tiny" --size 64x64 -o g --reference "$reference"
run small cat dog --steps 2,3 --schedulers ddim --timesteps 'own;900,400' --seed 1 --pages timesteps --columns prompt \
    --rows steps -o p -q
is "gaps" "$status" 0
is "impossible cells are told" "$(grep -c '"state": "refused"' p/results.json)" 2
is "possible settings" "$(column pictures p/results.csv | tr '\n' ' ')" '2 2 2 '

# --- what saves work is a way of solving: the reference does without
run small cat --steps 4 --schedulers ddim --seed 1 --deepcache 1,2 --tome 0,0.5 --tgate 0,2 -o w --dry-run
prints '^8 settings, 8 cells, 0 finished, 1 references; '

# --- labels differ where they end
run small cat --steps 1 --schedulers ddim --seed 1 --guidance-rescale 0,0.5 --deepcache-branch 0,1 -o l
is "names in full" "$(sed -n 's/^\(ddim, .*[01]\)  *1  *1 .*/\1/p' "$out" | sort -u | wc -l)" 4

# --- the CLIP score
clip=$root/tests/golden/clip/tiny
ends 1 'nosuch-clip' "$dk" compare cat -m "$tiny" -o c --clip nosuch-clip
ends 1 'holds a U-Net, expected a CLIP' "$dk" compare cat -m "$tiny" -o c --clip "$tiny/unet"
ends 1 'there is no vision tower' "$dk" compare cat -m "$tiny" -o c --clip "$tiny/text_encoder"
check "nothing was made" [ ! -e c ]
run small "a photo of a cat, highly detailed" "" --steps 1,2 --schedulers ddim --seeds 1,2 -o c --clip "$clip"
is "scores" "$status" 0
prints ' clip'
is "a score for each setting" "$(column clip_score c/results.csv | awk '$1 >= 0 && $1 <= 100 && $1 != ""' | wc -l)" 2
is "with its deviation" "$(column clip_score_sd c/results.csv | awk '$1 > 0' | wc -l)" 2
is "the name of the CLIP" "$(grep -c '^ "clip": "tiny"' c/results.json)" 1
is "a score for each picture and reference" "$(grep -c '"clip_score": [0-9]' c/results.json)" 12
check "a column in the report" grep -q '>CLIP</button>' c/report.html
check "under the pictures" grep -q '<br>CLIP [0-9]' c/report.html
known=$(ls c/.compare/clip-*.json)
is "scores are kept" "$(grep -o '":' "$known" | wc -l)" 12
cp c/results.json before.json
sed 's/:[0-9][0-9.e-]*\([,}]\)/:7\1/' "$known" >changed && cp changed "$known"
run small "a photo of a cat, highly detailed" "" --steps 1,2 --schedulers ddim --seeds 1,2 -o c --clip "$clip" -q
is "a kept score is not computed again" "$(grep -c '"clip_score": 7.0' c/results.json)" 1
echo '{"broken' >"$known"
run small "a photo of a cat, highly detailed" "" --steps 1,2 --schedulers ddim --seeds 1,2 -o c --clip "$clip" -q --threads 1
is "broken ones are" "$status" 0
same c/results.json before.json
cp -r c cc
run small --add --steps 3 -o cc -q
is "more steps are scored by the same CLIP" "$(column clip_score cc/results.csv | awk '$1 > 0' | wc -l)" 3
sed 's|"clip":"[^"]*"|"clip":"/nowhere/clip"|' cc/.compare/axes.json >changed && cp changed cc/.compare/axes.json
ends 1 'the CLIP of this comparison: give --clip' small --add --steps 3 -o cc
run small "a photo of a cat, highly detailed" "" --steps 1,2 --schedulers ddim --seeds 1,2 -o c -q
is "without a CLIP" "$(column clip_score c/results.csv | tr -d '\n')" ''

# --- several models as an axis: other native sizes, one file that takes the other's place
other=$root/tests/golden/models/tiny-sd2
run "$dk" compare cat -m "$tiny" -m "$other" --steps 1,2 --schedulers ddim --seeds 1,2 --guidance 1 --size 32x32 --tolerance 0.5 -o m
is "two models" "$status" 0
is "a line for each" "$(wc -l <m/results.csv)" 5
is "with their pictures" "$(column pictures m/results.csv | tr '\n' ' ')" '2 2 2 2 '
is "both are named" "$(grep -c '"fingerprint"' m/results.json)" 2
is "references of both" "$(grep -c '"converged": true' m/results.json)" 4
is "pages" "$(grep -o '<h3>[^<]*</h3>' m/report.html | sort -u | wc -l)" 4
for cell in m/cells/ddim-2-1-*.png; do
    "$dk" --from "$cell" -q --force -o again.png >/dev/null 2>&1
    same "$cell" again.png
done
cp "$out" table
run "$dk" compare cat -m "$tiny" -m "$other" --steps 1,2 --schedulers ddim --seeds 1,2 --guidance 1 --size 32x32 --tolerance 0.5 -o m --json
is "nothing is made twice" "$(grep -c '"event":"cell".*"reference":false' "$out")" 0
is "told by their last names" "$(grep -o '<h3>cat, model tiny-sd[12], seed [12]</h3>' m/report.html | sort -u | wc -l)" 4
check "in the table too" grep -q '^ddim, tiny-sd1  *1 ' table
mkdir -p wide/unet
ln -s "$other"/* wide/ 2>/dev/null
ln -s "$other"/unet/*.safetensors wide/unet/
sed 's/"sample_size": [0-9]*/"sample_size": 6/' "$other/unet/config.json" >wide/unet/config.json
run "$dk" compare cat -m "$tiny" -m wide --rows model --steps 1 --schedulers ddim --seed 1 --guidance 1 --tolerance 0.5 -o n --clip "$clip"
is "models as rows, each of its own size" "$status" 0
is "native sizes" "$(for cell in n/cells/ddim-1-1-*.png; do "$dk" info "$cell" | sed -n 's/^size  *//p'; done | sort | tr '\n' ' ')" '48x48 64x64 '
is "and no common one" "$(column psnr_db n/results.csv | awk '$1 > 0' | wc -l)" 2

# --- with the default model, errors fall with the steps
run "$dk" compare "a red apple on a blue background" --size 32x32 --guidance 1 --seed 5 --steps 2,4,8,16 \
    --schedulers ddim,euler,dpmpp-2m --tolerance 0.02 -o e -q
is "the default model" "$status" 0
column latent_rmse e/results.csv | awk '(NR - 1) % 4 && $1 >= last { bad = 1 } { last = $1 } END { exit bad || NR != 12 }'
is "errors fall with steps" $? 0
is "its backgrounds are looked at" "$(column background e/results.csv | grep -c '^[01]$')" 12
is "and its objects" "$(column nearest_rank e/results.csv | awk '$1 >= 1 && $1 <= 54' | wc -l)" 12
check "the nearest is named" grep -q '"nearest_objects"' e/results.json
check "in the report" grep -q '>nearest</button>' e/report.html
run small "a red apple on a blue background" --steps 1 --schedulers ddim --seed 1 -o o -q
is "other models have none" "$(column background o/results.csv)$(column nearest o/results.csv)" ''
mkdir spoiled
ln -s "$tiny"/* spoiled/
cp a/sheet.png spoiled/references.png
ends 1 'references.png: found no darkroom-references-1' "$dk" compare cat -m spoiled -o q
finish
