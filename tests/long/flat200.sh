#!/bin/sh
# flat200.sh - 200 pictures in one process: memory does not grow, time per picture does not drift.
# SPDX-License-Identifier: MIT
# N, STEPS, SIZE and MODEL in the environment change what is made. Takes minutes; make check-long runs it.
cd "$(dirname "$0")/../.." || exit 1
: "${BUILD:=build}" "${DARKROOM:=darkroom}"
. tests/shell.inc
n=${N:-200} steps=${STEPS:-4} size=${SIZE:-64x64} model=${MODEL:-$root/models/emoji}
awk -v n="$n" 'BEGIN { split("cat dog house rocket tree boat apple fish hat car", b, " ");
    for (i = 1; i <= n; i++) printf "a red %s and a blue %s, number %d\n", b[1 + i % 10], b[1 + int(i / 10) % 10], i }' >prompts.txt

# No sheet at the end: it is not one of the pictures.
"$dk" batch prompts.txt -o pictures -m "$model" --steps "$steps" --size "$size" --seed 1 --no-sheet -q >names 2>log &
pid=$!
watch $pid pictures 0.2
wait $pid
check 'the batch' test $? = 0
check 'all pictures' test "$(wc -l <pictures/manifest.jsonl)" = "$n"

# The most of the last quarter against the most of the second: the first still fills caches.
awk -v n="$n" '{ q = int(4 * $1 / n) } q == 1 && $2 > second { second = $2 } q == 3 && $2 > last { last = $2 }
    END { printf "memory: %d KiB in the second quarter, %d KiB in the last, %d samples\n", second, last, NR
          exit !(second > 0 && last > 0 && last - second <= 2048) }' memory
check 'memory stays flat' test $? = 0

# Seconds of the work on each picture; a median is not moved by a few that were disturbed.
sed -n 's/.*"denoise":\([0-9.e-]*\),"decode":\([0-9.e-]*\)}.*/\1 \2/p' pictures/manifest.jsonl | awk '{ print $1 + $2 }' >seconds
median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
quarter=$((n / 4))
first=$(head -n $quarter seconds | median) last=$(tail -n $quarter seconds | median)
whole=$(sort -n seconds | awk '{ v[NR] = $1 } END { print v[int(1 + NR / 10)] " " v[int(NR - NR / 10)] }')
# Where the slow tenth takes half as long again as the quick tenth, the machine had other work.
verdict=$(echo "$first $last $whole" | awk '{ print($2 <= 1.05 * $1 ? "steady" : ($4 > 1.5 * $3) ? "busy" : "drift") }')
echo "time: median $first s in the first quarter, $last s in the last; tenth and ninetieth percentile $whole s"
case $verdict in
busy) echo 'time: the machine was busy with other work, so a drift cannot be told' && skipped=1 ;;
*) check 'time per picture does not drift' test "$verdict" = steady ;;
esac
finish
