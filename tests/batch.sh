#!/bin/sh
# batch.sh - a folder of pictures comes out the same whatever happens on the way: kills, neighbours, full disks.
# SPDX-License-Identifier: MIT
. tests/shell.inc

small='--steps 1 --size 8x8 --guidance 1'
seq 24 | sed 's/^/a red thing, number /' >24.txt
# batch FILE FOLDER OPTIONS...
batch() {
    lines=$1 folder=$2
    shift 2
    # shellcheck disable=SC2086
    "$dk" batch "$lines" -o "$folder" $small "$@"
}
# start FILE FOLDER OPTIONS...: beside the script; pid is the program's own, so that it can be killed.
start() {
    lines=$1 folder=$2
    shift 2
    # shellcheck disable=SC2086
    "$dk" batch "$lines" -o "$folder" $small "$@" &
    pid=$!
}
# equal FOLDER FOLDER: the same files with the same bytes; of the manifests, the same done jobs.
done_jobs() { sed -n 's/.*"job":"\([0-9a-f]*\)".*"outcome":"done".*"file":"\([^"]*\)".*"sha256":"\([0-9a-f]*\)".*/\1 \2 \3/p' "$1/manifest.jsonl" | sort; }
equal() {
    if diff -r -x manifest.jsonl "$1" "$2" >differences && [ "$(done_jobs "$1" | sort -u)" = "$(done_jobs "$2" | sort -u)" ]; then
        ok
    else
        bad "$1 and $2 differ ($3)"
        head -n 5 differences
    fi
}
done_twice() { done_jobs "$1" | uniq -d | wc -l; }
starts() { cat "$@" | grep -c '"event":"start"'; }

# An undisturbed run.
ends 0 '24 of 24 done, 0 failed, 0 left; 24 made here' batch 24.txt plain
check 'the names are told' test "$(wc -l <"$out")" = 24
prints '^plain/00001-[0-9]*-a-red-thing,-number-1.png$'
check 'all are there' test "$(ls plain | grep -c '^000')" = 24
check 'a manifest of 24 lines' test "$(wc -l <plain/manifest.jsonl)" = 24
check 'nothing else' test -z "$(find plain -name '.*' ! -name .)"
file=$(ls plain | sed -n 7p)
check 'the hash is right' grep -q "\"file\":\"$file\",.*\"sha256\":\"$(sha256sum <"plain/$file" | cut -d' ' -f1)\"" plain/manifest.jsonl
ends 0 '24 of 24 done, 0 failed, 0 left; 0 made here' batch 24.txt plain
check 'the manifest did not grow' test "$(wc -l <plain/manifest.jsonl)" = 24

# A member of a batch is the picture that render makes alone (ComfyUI#165), for any group and number of threads.
seed=$(echo "$file" | cut -d- -f2)
# shellcheck disable=SC2086
ends 0 '' "$dk" 'a red thing, number 7' --seed "$seed" $small -o alone.png
same alone.png "plain/$file"
ends 0 '' batch 24.txt other --group 1 --threads 1 --json
equal plain other 'alone and one thread'
check 'an event each' test "$(starts "$out")" = 24 -a "$(grep -c '"event":"done".*"eta_s":' "$out")" = 24
check 'the first and the last' sh -c "sed -n 1p '$out' | grep -q '\"event\":\"plan\",\"jobs\":24,' && tail -n 1 '$out' | grep -q '\"event\":\"end\".*\"made\":24,\"status\":0'"

# Killed at any moment and started again: the same folder, nothing done twice.
rm -f events
for pause in 0.05 0.2 0.3 0.35 0.4 0.45 0.5 0.6; do
    start 24.txt killed --json -q >>events 2>>log
    sleep $pause
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
done
ends 0 '24 of 24 done' batch 24.txt killed --json
cat "$out" >>events
equal plain killed 'killed eight times'
check 'none done twice' test "$(done_twice killed)" = 0
check 'only running ones were started twice' test "$(starts events)" -le $((24 + 8 * 8))

# Four processes on one folder, two of them killed.
rm -f events.*
for i in 1 2 3 4; do
    start 24.txt shared --json -q --group 1 --threads 1 >events.$i 2>>log
    eval "pid$i=$pid"
done
sleep 0.5
# shellcheck disable=SC2154
kill -9 $pid1 $pid2
wait $pid1 $pid2 2>/dev/null
wait $pid3 && wait $pid4
check 'the others end well' test $? = 0
equal plain shared 'four processes'
check 'none done twice by four' test "$(done_twice shared)" = 0
check 'four processes started little twice' test "$(starts events.1 events.2 events.3 events.4)" -le $((24 + 2 * 5))

# Only what is missing, damaged or changed.
cp -r plain part
first=$(ls part | sed -n 1p) second=$(ls part | sed -n 2p) third=$(ls part | sed -n 3p)
rm "part/$first"
head -c 100 "plain/$second" >"part/$second"
printf x | dd of="part/$third" bs=1 seek=200 conv=notrunc 2>/dev/null
ends 0 '2 made here' batch 24.txt part
ends 0 '1 made here' batch 24.txt part --verify
equal plain part 'mended'
sed '5s/.*/a blue thing/' 24.txt >changed.txt
ends 0 '1 made here' batch changed.txt part
check 'the old one stays' test "$(ls part | grep -c '^00005')" = 2
sed '1i\a new first line' 24.txt >longer.txt
ends 0 '1 made here' batch longer.txt part

# A manifest that was cut within a line, or holds rubbish.
cp -r plain torn
size=$(wc -c <torn/manifest.jsonl)
truncate -s $((size - 40)) torn/manifest.jsonl
ends 0 '1 made here' batch 24.txt torn
equal plain torn 'a torn line'
check 'the torn line is ended' grep -c . torn/manifest.jsonl >/dev/null
sed -i '3s/.*/rubbish/; 4s/"outcome":"done"/"outcome":7/' torn/manifest.jsonl
printf '{"job":"x","outcome":"done","file":"../x.png","bytes":1,"sha256":"%064d"}\n' 0 >>torn/manifest.jsonl
ends 0 '4 lines are no entries' batch 24.txt torn
equal plain torn 'rubbish lines'
rm torn/manifest.jsonl
ends 0 '24 made here' batch 24.txt torn
equal plain torn 'a lost manifest'

# Done, but cut off before the picture got its name.
cp -r plain unnamed
job=$(sed -n 's/.*"job":"\([0-9a-f]*\)".*"file":"'"$file"'".*/\1/p' unnamed/manifest.jsonl)
mkdir unnamed/.darkroom
mv "unnamed/$file" "unnamed/.darkroom/$job.png"
ends 0 '0 made here' batch 24.txt unnamed
equal plain unnamed 'a picture without its name'

# Files of others are never replaced.
mkdir foreign
echo precious >"foreign/$file"
ends 0 '24 made here' batch 24.txt foreign
check 'the file is as it was' test "$(cat "foreign/$file")" = precious
same "plain/$file" "foreign/${file%.png}-2.png"
ends 0 '0 made here' batch 24.txt foreign

# Claims: of a dead process on this machine, of one that may live elsewhere and is silent, with a time from the future.
head -n 3 24.txt >3.txt
batch 3.txt claims --dry-run --json >plan 2>/dev/null
mkdir -p claims/.darkroom
place="$(hostname) $(cat /proc/sys/kernel/random/boot_id) $(readlink /proc/self/ns/pid)"
sleep 0 & dead=$!
wait $dead
echo "$place $dead 1 1" >"claims/.darkroom/$(sed -n '1s/.*"job":"\([0-9a-f]*\)".*/\1/p' plan).0"
echo "elsewhere other-boot pid:[1] 5 1 1" >"claims/.darkroom/$(sed -n '2s/.*"job":"\([0-9a-f]*\)".*/\1/p' plan).0"
: >"claims/.darkroom/$(sed -n '3s/.*"job":"\([0-9a-f]*\)".*/\1/p' plan).0"
touch -d 2099-01-01 claims/.darkroom/*.0
ends 0 '3 made here' batch 3.txt claims --stale-after 2
check 'the three are there' test "$(ls claims | grep -c '^000')" = 3

# A failing picture: stops, or is recorded and passed over; a second run tries it again.
printf '%s\n' 'a --name a.png' 'b --name a.png/b.png' 'c --name c.png' >failing.txt
ends 3 'failing.txt:2: picture 2: ' batch failing.txt fails --group 1
check 'it is recorded' grep -q '"outcome":"failed".*"error":"' fails/manifest.jsonl
ends 3 'failing.txt:2: picture 2: ' batch failing.txt fails --keep-going
check 'the last is there' test -s fails/c.png
rm fails/a.png
ends 3 'failing.txt:2: picture 2: ' batch failing.txt fails --on-error continue --group 1
printf 'good\nbad --steps x\ngood too\n' >mixed.txt
ends 3 'mixed.txt:2: --steps' batch mixed.txt mixed --keep-going
check 'two of three' test "$(ls mixed | grep -c '^000')" = 2

# Folders that cannot be written to.
ends 1 'is a file' batch 3.txt 3.txt
ends 1 'cannot create' batch 3.txt 3.txt/x
mkdir disk
if mount -t tmpfs -o size=64k none disk 2>/dev/null; then
    ends 3 'o space left' batch 24.txt disk/full
    check 'no half file' sh -c 'for f in disk/full/000*; do cmp -s "$f" "plain/$(basename "$f")" || exit 1; done'
    mount -o remount,size=8m disk
    ends 0 '24 of 24 done' batch 24.txt disk/full
    equal plain disk/full 'after a full disk'
    mount -o remount,ro disk
    ends 1 'ead-only' batch 24.txt disk/new
    rm -rf shadow && cp -r plain shadow
    ends 1 'ead-only' batch longer.txt disk/full
    umount disk
else
    echo 'batch: no tmpfs can be mounted here, so a full and a read-only disk were not tried'
    skipped=$((skipped + 1))
fi
"$dk" batch 24.txt -o gone --steps 30 --size 64x64 >"$out" 2>"$err" &
pid=$!
for _ in $(seq 100); do [ "$(ls gone 2>/dev/null | wc -l)" -ge 2 ] && break; sleep 0.1; done
rm -rf gone
wait $pid
status=$?
check "a removed folder ends the run: $status" test $status = 1 -o $status = 3
check 'and is told' grep -q 'gone.*: .*\(No such file\|no such directory\)' "$err"

# Signals: finished pictures stay, the running one is given up, the next run goes on.
for signal in INT TERM; do
    : >"$out"
    start 24.txt signal --group 1 --json >"$out" 2>"$err"
    for _ in $(seq 500); do grep -q '"event":"start"' "$out" && break; sleep 0.01; done
    kill -$signal $pid
    wait $pid
    check "SIG$signal ends with 130" test $? = 130
    check 'how to go on' grep -q 'run the same command again' "$err"
done
"$dk" batch 3.txt -o slow --steps 1000 --size 64x64 >"$out" 2>"$err" &
pid=$!
sleep 0.5
kill -INT $pid
kill -INT $pid
wait $pid
check 'two signals' test $? = 130
ends 0 '24 of 24 done' batch 24.txt signal
equal plain signal 'after signals'

# Lines from a pipe: each picture is there before the next line is given.
mkfifo pipe
# shellcheck disable=SC2086
"$dk" batch - -o piped $small <pipe >piped.names 2>"$err" &
pid=$!
exec 3>pipe
for i in 1 2 3; do
    sed -n ${i}p 24.txt >&3
    for _ in $(seq 200); do [ "$(wc -l <piped.names)" -ge $i ] && break; sleep 0.05; done
    check "picture $i came before line $((i + 1))" test "$(wc -l <piped.names)" = $i
done
exec 3>&-
wait $pid
check 'the pipe ends well' test $? = 0
same "piped/$(ls piped | sed -n 3p)" "plain/$(ls plain | sed -n 3p)"
printf '{"prompt":"a"}\n{"prompt":}\n{"prompt":"b"}\n' | batch - piped2 >"$out" 2>"$err"
check 'a bad line stops the stream' test $? = 3
check 'and is told with its line' grep -q 'standard input:2: ' "$err"
ends 1 'standard output: cannot write' sh -c "'$dk' batch 3.txt -o full-pipe $small >/dev/full" || true

# GNU parallel: the processes share by their claims, or by shards where it says so.
if command -v parallel >/dev/null; then
    # shellcheck disable=SC2086
    seq 3 | parallel -N0 -j3 "$dk" batch 24.txt -o parallel $small -q --threads 1 >"$out" 2>"$err"
    check 'each picture once' test "$(wc -l <"$out")" = 24
    equal plain parallel 'GNU parallel'
    # shellcheck disable=SC2086,SC1083
    seq 3 | parallel -j3 "$dk" batch 24.txt -o parallel2 $small -q --threads 1 --shard {#}/3 >"$out" 2>"$err"
    equal plain parallel2 'GNU parallel with shards'
else
    skipped=$((skipped + 1))
fi

# Shards in folders of their own, joined.
ends 0 'shard 1 of 2, from --shard' batch 24.txt half-1 --shard 1/2
ends 0 '12 of 12 done' batch 24.txt half-2 --shard 2/2
ends 0 '24 merged, 0 there already, 0 damaged' "$dk" batch merge half-1 half-2 -o joined
equal plain joined 'merged halves'
ends 0 '0 merged, 24 there already' "$dk" batch merge half-1 half-2 -o joined
ends 0 '0 made here' batch 24.txt joined
head -c 50 "half-1/$(ls half-1 | sed -n 1p)" >cut && mv cut "half-1/$(ls half-1 | sed -n 1p)"
ends 3 '23 merged, 0 there already, 1 damaged' "$dk" batch merge half-1 half-2 -o again
ends 1 'expected the folder of a batch' "$dk" batch merge nowhere -o again
ends 2 'batch merge: expected' "$dk" batch merge -o again

# Public reports about prompts and metadata elsewhere, as one batch.
words() { awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) printf "%s ", i % 10 }'; }
cat >reports.jsonl <<EOF
{"name":"1a","prompt":"Un petit chaton très mignon"}
{"name":"1b","prompt":"Twitter’s 😀"}
{"name":"3a","prompt":"web 2.0, portrait, f/2.8, 1.5 m","seed":5}
{"name":"3b","prompt":"web 2.0, portrait, f/2.8, 1.5 m","seed":5,"no-prompt-syntax":true}
{"name":"4","prompt":"[cats:0.3] in a house (a:1.2.3) [a:b:] ((("}
{"name":"5a","prompt":"five words and no more","negative":"$(words 120)","guidance":3}
{"name":"5b","prompt":"$(words 120)","negative":"few","guidance":3}
{"name":"5c","prompt":"$(words 74)","negative":"$(words 76)","guidance":3}
{"name":"5d","prompt":"$(words 75)","negative":"","guidance":3}
{"name":"7","prompt":"テスト, café"}
{"name":"9","prompt":"$(printf '%0300d' 0)/../x"}
EOF
ends 0 '11 made here' batch reports.jsonl reports
batch reports.jsonl bare --no-metadata -q >/dev/null
same bare/3a.png bare/3b.png # numbers outside brackets are text: InvokeAI#2399
check 'UTF-8 goes into iTXt' grep -qa iTXt reports/7.png
check 'Latin-1 is tEXt' sh -c '! grep -qa iTXt reports/1a.png && grep -qa tEXt reports/1a.png'
run "$dk" info reports/1b.png --json
prints '"prompt":"Twitter’s 😀"'
check 'no metadata' sh -c '! grep -qa tEXt bare/7.png && ! grep -qa iTXt bare/7.png'

# Sheets.
printf '%s\n' '{"prompt":"<b>\"bold\" & more</b>\nNegative prompt: line two\nSteps: 5, Sampler: x, Seed: 1","name":"odd, name #1","negative":"grey"}' \
    '{"prompt":"テスト {red|blue}, café"}' >odd.jsonl
ends 0 '2 made here' batch odd.jsonl odd
check 'HTML is escaped' grep -q '&lt;b&gt;&quot;bold&quot; &amp; more&lt;/b&gt;' odd/index.html
check 'links are escaped' grep -q 'href="odd%2C%20name%20%231.png"' odd/index.html
check 'the template is shown' grep -q 'from: テスト {red|blue}' odd/index.html
check 'nothing from outside' sh -c "! grep -q '\(src\|href\)=\"\(http\|/\)' odd/index.html"
run "$dk" info "odd/odd, name #1.png" --json
check 'a prompt of several lines comes back' grep -q '"prompt":"<b>\\"bold\\" & more</b>\\nNegative prompt: line two\\nSteps: 5, Sampler: x, Seed: 1"' "$out"
ends 0 '' "$dk" --from "odd/odd, name #1.png" -o again.png
same again.png "odd/odd, name #1.png"
other=odd/$(ls odd | grep '^00002')
ends 0 '' "$dk" --from "$other" -o again2.png
same again2.png "$other"
cp odd/index.html kept.html && cp odd/contact.png kept.png
ends 0 '' "$dk" sheet odd
same kept.html odd/index.html && same kept.png odd/contact.png
rm odd/manifest.jsonl
ends 0 '' "$dk" sheet odd
check 'without a manifest the pictures speak' grep -q 'テスト' odd/index.html
ends 1 'no such folder' "$dk" sheet nowhere
mkdir none
ends 1 'holds no pictures' "$dk" sheet none
ends 0 '' batch 3.txt nosheet --no-sheet
check 'no sheet was asked for' test ! -e nosheet/index.html
mkdir -p sheetless/index.html
ends 1 'sheetless/index.html' batch 3.txt sheetless
check 'the pictures are there' test "$(ls sheetless | grep -c '^000')" = 3

# Too little memory is no wrong usage: the status that render has for it.
ends 1 'work memory' "$dk" cat --size 8x8 --max-memory 1
ends 1 'work memory' batch 3.txt little --max-memory 1
ends 1 'work memory' batch 3.txt little --max-memory 1 --keep-going
ends 2 'work memory' batch mixed.txt little --max-memory 1
ends 1 'work memory' "$dk" compare cat -o little --size 8x8 --steps 1,2 --max-memory 1

# A claim that is cut short: the reason is that of the write, not of a call before it.
if command -v prlimit >/dev/null; then
    # shellcheck disable=SC2086
    prlimit --fsize=40 "$dk" batch 3.txt -o short $small -q 2>&1 | cat >short.log
    check 'a short write' grep -q 'cannot create: File too large' short.log
else
    skipped=$((skipped + 1))
fi

finish
