#!/bin/sh
# batch1000.sh - a batch of 1,000 pictures, killed twenty times, shared by four processes; with figures.
# SPDX-License-Identifier: MIT
# N, STEPS, SIZE and KILLS in the environment change the amount. Takes minutes; make check-long runs it.
cd "$(dirname "$0")/../.." || exit 1
. tests/shell.inc
n=${N:-1000} steps=${STEPS:-4} size=${SIZE:-64x64} kills=${KILLS:-20}
cp -r "$root/models/emoji" model # training may replace the model meanwhile
awk -v n="$n" 'BEGIN { srand(1); split("red blue green tiny old happy round wet", a, " "); split("cat dog house rocket tree boat apple fish hat car", b, " ");
    for (i = 1; i <= n; i++) printf "a %s %s with a %s %s, number %d\n", a[1 + int(8 * rand())], b[1 + int(10 * rand())], a[1 + int(8 * rand())], b[1 + int(10 * rand())], i }' >prompts.txt
start() {
    folder=$1
    shift
    "$dk" batch prompts.txt -o "$folder" -m model --steps "$steps" --size "$size" --json -q "$@" &
    pid=$!
}
done_jobs() { sed -n 's/.*"job":"\([0-9a-f]*\)".*"outcome":"done".*"file":"\([^"]*\)".*"sha256":"\([0-9a-f]*\)".*/\1 \2 \3/p' "$1/manifest.jsonl" | sort; }
equal() {
    diff -rq -x manifest.jsonl plain "$1" >differences && [ "$(done_jobs plain)" = "$(done_jobs "$1")" ] && return
    head -n 5 differences
    false
}
random() { awk -v seed="$1" -v low="$2" -v high="$3" 'BEGIN { srand(seed); rand(); printf "%.3f", low + (high - low) * rand() }'; }
seconds() { date +%s.%N; }

began=$(seconds)
start plain >plain.events 2>log
watch $pid plain 0.5
wait $pid
check 'the undisturbed run' test $? = 0
took=$(echo "$(seconds) $began" | awk '{ print $1 - $2 }')
check 'all pictures' test "$(wc -l <plain/manifest.jsonl)" = "$n"
sed -n 's/.*"text":\([0-9.e-]*\),"denoise":\([0-9.e-]*\),"decode":\([0-9.e-]*\)}.*/\1 \2 \3/p' plain/manifest.jsonl |
    awk -v took="$took" -v n="$n" '{ t += $1; d += $2; v += $3 }
    END { printf "%d pictures in %.1f s: text %.1f, denoise %.1f, decode %.1f; denoise and decode are %.3f of it, with text %.3f; %.1f pictures/min\n", n, took, t, d, v, (d + v) / took, (t + d + v) / took, 60 * n / took }'
# The contact sheet at the end takes some megabytes of its own; they are told and not counted.
awk -v n="$n" '$1 >= n / 10 && !early { early = $2 } $1 >= n / 10 && $1 < n && $2 > most { most = $2 } $2 > sheet { sheet = $2 }
    END { printf "memory: %d KiB after a tenth, at most %d KiB while rendering, %d KiB with the sheet\n", early, most, sheet; exit !(most <= 1.02 * early) }' memory
check 'memory stays flat' test $? = 0

i=0
while [ $i -lt "$kills" ]; do
    start killed >>killed.events 2>>log
    sleep "$(random $i 0.2 "$(echo "$took $kills" | awk '{ print 1.4 * $1 / $2 }')")"
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    i=$((i + 1))
done
start killed >>killed.events 2>>log
wait $pid
check 'the last run' test $? = 0
check 'killed: the same folder' equal killed
check 'killed: nothing done twice' test -z "$(done_jobs killed | uniq -d)"
again=$(($(grep -c '"event":"start"' killed.events) - n))
echo "killed $kills times: $again pictures were begun again"
check 'killed: only running ones were begun again' test $again -le $((2 * kills))

for p in 1 2 3 4; do
    start four --threads 1 >four.$p 2>>log
    eval "pid$p=$pid"
done
sleep "$(echo "$took" | awk '{ print $1 / 3 }')"
# shellcheck disable=SC2154
kill -9 $pid1 $pid3
wait $pid1 $pid3 2>/dev/null
wait $pid2
check 'one of four' test $? = 0
# shellcheck disable=SC2154
wait $pid4
check 'another of four' test $? = 0
check 'four: the same folder' equal four
check 'four: nothing done twice' test -z "$(done_jobs four | uniq -d)"
again=$(($(cat four.? | grep -c '"event":"start"') - n))
echo "four processes, two killed: $again pictures were begun again"
check 'four: only running ones were begun again' test $again -le 4
finish
