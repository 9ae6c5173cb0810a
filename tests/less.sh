#!/bin/sh
# less.sh - the options for doing less work: refused, recorded, read back, in batches and comparisons.
# SPDX-License-Identifier: MIT
. tests/shell.inc
tiny=$root/tests/golden/models/tiny-sd1
is() { if [ "$2" = "$3" ]; then ok; else bad "$1: found \"$2\", expected \"$3\""; fi; }
small() { run "$dk" cat -m "$tiny" --size 64x64 --steps 4 --guidance 5 --seed 3 --quiet "$@"; }
# record KEY FILE: a value of the file's record
record() { "$dk" info "$2" --json | sed -n "s/.*\"$1\":\([^,}]*\)[,}].*/\1/p" | head -n 1; }

# --- one sentence each, before anything is made
for value in 0 -1 1.5 x 1001; do
    ends 2 "^darkroom: --deepcache: found \"$value\", expected a whole number from 1 to 1000$" "$dk" cat --deepcache "$value"
done
ends 2 '^darkroom: --deepcache-branch: found "-1"' "$dk" cat --deepcache-branch -1
for value in 1 0.76 -0.1 nan half; do
    ends 2 "^darkroom: --tome: found \"$value\", expected a number from 0 to 0.75$" "$dk" cat --tome "$value"
done
ends 2 '^darkroom: --tgate: found "-1"' "$dk" cat --tgate -1
ends 2 'tgate: the gate after step 5 is beyond the run of 4; give 1 to 4' \
    "$dk" cat -m "$tiny" --steps 4 --tgate 5 -o x.png
ends 2 'tgate: 1.5 is not possible; give a step' "$dk" cat -m "$tiny" --steps 4 --tgate 1.5 -o x.png
ends 2 'deepcache-branch: 9 is not possible; this model has 9 skip connections: give 0 to 8' \
    "$dk" cat -m "$tiny" --steps 4 --deepcache 2 --deepcache-branch 9 -o x.png
check "nothing was made" [ ! -e x.png ]

# --- recorded, and made again from the record; other spellings are the same option
small -o plain.png
small -o less.png --deepcache 2 --deepcache-branch 1 --tgate 2 --tome 0.5
is "a picture" "$status" 0
check "not the plain one" [ "$(cmp plain.png less.png 2>&1 | wc -c)" -gt 0 ]
is "deepcache" "$(record deepcache less.png)" 2
is "deepcache-branch" "$(record deepcache-branch less.png)" 1
is "tgate" "$(record tgate less.png)" 2
is "tome" "$(record tome less.png)" 0.5
run "$dk" info less.png
prints 'deepcache.* 2$'
run "$dk" --from less.png -o again.png --quiet
same less.png again.png
for threads in 1 2 3 4; do
    run "$dk" --from less.png -o again.png --force --quiet --threads $threads
    same less.png again.png
done
run "$dk" --from less.png -o again.png --force --quiet --deepcache 1 --tgate 0 --tome 0 --deepcache-branch 0
same plain.png again.png
small -o names.png --deepcache 2 --deepcache-level 1 --tgate 0.5 --token-merging-ratio 0.5 --no-metadata
small -o less-bare.png --deepcache 2 --deepcache-branch 1 --tgate 2 --tome 0.5 --no-metadata
same names.png less-bare.png
check "A1111's text" grep -aq 'Token merging ratio: 0.5' less.png
check "which the plain one does not need" [ -z "$(grep -a 'Token merging' plain.png)" ]

# --- lines of a batch, alone or together, also as a matrix
cat >jobs.jsonl <<END
{"prompt":"cat","deepcache":2,"deepcache-branch":1,"tgate":2,"tome":0.5,"name":"less"}
{"prompt":"cat","name":"plain"}
{"prompt":"dog","deepcache":2,"deepcache-branch":1,"tgate":2,"tome":0.5,"name":"dog"}
{"prompt":"cat","matrix":{"tome":[0,0.5]},"name":"m-{index}"}
END
run "$dk" batch jobs.jsonl -m "$tiny" --size 64x64 --steps 4 --guidance 5 --seed 3 -o batch --quiet --no-sheet
is "a batch" "$status" 0
same batch/less.png less.png
same batch/plain.png plain.png
is "a matrix" "$(find batch -name 'm-*.png' | wc -l | tr -d ' ')" 2
ends 2 'tome: found 1, expected\|tome: found "1", expected' "$dk" batch - -m "$tiny" -o bad <<END
{"prompt":"cat","tome":1}
END

# --- an axis of a comparison, measured against the exact picture
run "$dk" compare cat -m "$tiny" --size 32x32 --scheduler ddim --steps 4 --seed 1 --guidance 5 -o axis -q \
    --deepcache 1,2,4 --columns deepcache --reference scheduler=ddim,steps=4,deepcache=1
is "a comparison" "$status" 0
awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    { print $at["deepcache"], ($at["psnr_db"] >= 120), ($at["latent_rmse"] > 0) }' axis/results.csv >found
is "the exact one is exact" "$(tr '\n' ';' <found)" '1 1 0;2 0 1;4 0 1;'

# --- the bench takes them, and counts fewer operations
operations() {
    run "$dk" bench -m "$tiny" --size 64x64 --steps 4 --repeats 1 --json "$@"
    grep -o '"calls":[0-9]*' "$out" | awk -F: '{ n += $2 } END { print n + 0 }'
}
full=$(operations) part=$(operations --deepcache 4 --tgate 1)
check "fewer operations" [ "$part" -gt 0 -a "$part" -lt "$full" ]
finish
