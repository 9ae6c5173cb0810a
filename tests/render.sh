#!/bin/sh
# render.sh - pictures made by the program: same bytes, names, interrupts, exit codes.
# SPDX-License-Identifier: MIT
. tests/shell.inc

cat='a cat on a red background'

# The same command gives the same bytes, whatever the number of threads.
for threads in 1 2 4; do
    ends 0 'seed 3, 128x128, 2 steps' "$dk" "$cat" --seed 3 --steps 2 --threads $threads -o threads-$threads.png
    prints "^threads-$threads.png$"
done
same threads-1.png threads-2.png
same threads-1.png threads-4.png

# A picture of a run is the picture of its own seed; seeds wrap at 2^64.
ends 0 'seed 0' "$dk" "$cat" --seed 18446744073709551614 --count 3 --steps 2 -o run.png
ends 0 '' "$dk" "$cat" --seed 18446744073709551615 --steps 2 -o own-2.png
ends 0 '' "$dk" "$cat" --seed 0 --steps 2 -o own-3.png
same run-2.png own-2.png
same run-3.png own-3.png
check 'different seeds differ' sh -c '! cmp -s run-1.png run-2.png'

# From its own record, from any folder, the same bytes; a record made from a record too.
ends 0 '' "$dk" "line one
Negative prompt: it's (a:1.2), \"quoted\"
テスト, café 😀" --negative 'dark, low
res' --seed 5 --steps 3 --scheduler euler --guidance 4.1 --rng nv --size 32x64 -o odd.png
ends 0 '' "$dk" --from odd.png -o again.png
same odd.png again.png
ends 0 '' "$dk" --from again.png --threads 1 -o again-2.png
same odd.png again-2.png
ends 0 'seed 6' "$dk" --from odd.png --seed 6 -o other.png
check 'another seed is another picture' sh -c '! cmp -s odd.png other.png'
run "$dk" --from odd.png --scheduler ddim --dry-run --json
prints '"scheduler":"ddim".*"guidance":4.1,'
run "$dk" --from odd.png dog --dry-run --json
prints '"prompt":"dog","negative":"dark, low\\nres"'
ends 0 '' "$dk" --from odd.png --no-metadata -o plain.png
ends 1 'holds no settings' "$dk" --from plain.png
run "$dk" info plain.png && prints 'record  *none'
run "$dk" info odd.png --json && prints '"seed":5,' && prints '"record":"darkroom"'

# Numbers outside brackets are text: prompt syntax changes nothing (InvokeAI#37).
ends 0 '' "$dk" 'portrait, web 2.0, f/2.8, 1.5 m' --seed 1 --steps 1 --no-metadata -o syntax.png
ends 0 '' "$dk" 'portrait, web 2.0, f/2.8, 1.5 m' --seed 1 --steps 1 --no-metadata --no-prompt-syntax -o text.png
same syntax.png text.png
ends 0 '' "$dk" 'a (cat:1.5)' --seed 1 --steps 1 --no-metadata -o weighted.png
ends 0 '' "$dk" 'a (cat:1.5)' --seed 1 --steps 1 --no-metadata --no-prompt-syntax -o literal.png
check 'a weight does something' sh -c '! cmp -s weighted.png literal.png'

# Prompt and negative may differ in length by any number of chunks (stable-diffusion-webui#11057).
long=$(seq -s ' ' 120)
ends 0 '' "$dk" 'five words in this prompt' --negative "$long" --seed 1 --steps 1 -o lengths.png --force
ends 0 '' "$dk" "$long" --negative 'five words in this one' --seed 1 --steps 1 -o lengths.png --force
for words in 29 30 31; do
    ends 0 '' "$dk" "$(yes cat | head -n $words | tr '\n' ' ')" --negative '' --seed 1 --steps 1 -o lengths.png --force
done

# An existing file stays; --force replaces it.
cp odd.png before.png
ends 0 'odd.png exists already, so the picture is in odd-2.png' "$dk" dog --seed 1 --steps 1 -o odd.png
prints '^odd-2.png$'
ends 0 'odd-3.png' "$dk" dog --seed 2 --steps 1 -o odd.png
same odd.png before.png
ends 0 '' "$dk" dog --seed 1 --steps 1 --force -o odd.png
same odd.png odd-2.png
"$dk" dog --seed 4 --steps 1 -q -o race.png >race.1 & first=$!
"$dk" dog --seed 5 --steps 1 -q -o race.png >race.2
wait $first
check 'two processes get two names' test "$(sort -u race.1 race.2 | grep -c '^race')" = 2
check 'and both files are there' test -s race.png -a -s race-2.png

# The default name, the seed that was drawn, and what --json tells.
ends 0 '^seed [0-9]' "$dk" dog --steps 1 --quiet
check 'it is in the name' test -s "darkroom-$(sed -n 's/^seed //p' "$err").png"
run "$dk" dog --steps 2 --count 2 --seed 8 --json -o 'j-{seed}.png'
check 'an object a picture' test "$(wc -l <"$out")" = 2
prints '^{"output":"j-8.png",.*"seed":8,.*"unet_passes":4,"partial_passes":0,"seconds":{"load":[0-9.e-]*,"text":[0-9.e-]*,"denoise":[0-9.e-]*,"decode":[0-9.e-]*,"total":[0-9.e-]*},"peak_rss_bytes":[0-9]*}$'
prints '^{"output":"j-9.png",.*"seed":9,'
ends 0 ' 8 passes (4 of them in part), ' "$dk" dog --steps 4 --guidance 2 --seed 1 --deepcache 2 -o partial.png
run "$dk" dog --steps 1 --guidance 1 --json --quiet
check 'no unconditional pass' test "$(field unet_passes)" = 1
check 'quiet' test "$(wc -l <"$err")" = 1

# Odd prompts and sizes end in a picture or a sentence.
awk 'BEGIN { for (i = 0; i < 1706; i++) printf "a cat " }' >in
cjk=$(awk 'BEGIN { for (i = 0; i < 400; i++) printf "猫 " }')
for prompt in '' ' ' '((((' '[cats:0.3] in a house' '(a:1.2.3)' 'web 2.0, f/2.8' '\(' '🤖👩‍👩‍👧' "$cjk"; do
    ends 0 'seed 1,' "$dk" "$prompt" --seed 1 --steps 1 -o "prompt.png" --force
done
ends 0 '' sh -c "'$dk' - --seed 1 --steps 1 -o long.png <in"
run "$dk" info long.png --json
check 'a prompt of 10 kB is kept' test "$(field prompt | wc -c)" = 10237
head -c 10240 /dev/zero | tr '\0' x >in
ends 2 'prompt: .*shorten it' sh -c "'$dk' - --seed 1 --steps 1 <in"
ends 0 '' "$dk" "$(printf 'bad \377 byte')" --seed 1 --steps 1 -o bad.png
run "$dk" info bad.png && prints 'bad � byte'
for size in 8x8 8x128 104x40; do ends 0 ", $size, " "$dk" dog --seed 1 --steps 1 --size $size -o size.png --force; done
ends 2 'size' "$dk" dog --size 2x2
ends 2 'size' "$dk" dog --size 65536x65536

# A converted model keeps every bit of f16, there and back.
for file in model.safetensors model.gguf; do
    ends 0 '' "$dk" convert emoji $file --quiet
    prints "^$file$"
    run "$dk" info $file && prints '^unet  *326 tensors, 11.01 M parameters, 22.0 MB, f16 326$'
done
ends 0 '' "$dk" convert model.gguf back.safetensors
same model.safetensors back.safetensors
ends 0 '' "$dk" dog --seed 1 --steps 1 --no-metadata -o folder.png
ends 0 '' "$dk" dog -m model.safetensors --seed 1 --steps 1 --no-metadata -o safetensors.png
ends 0 '' "$dk" dog -m model.gguf --seed 1 --steps 1 --no-metadata -o gguf.png
same folder.png safetensors.png
same folder.png gguf.png
ends 1 'exists already; choose another name, or --force' "$dk" convert emoji model.gguf
ends 0 '' "$dk" convert model.gguf model.gguf.2.gguf --dtype q8_0 --json
prints '{"output":"model.gguf.2.gguf","bytes":[1-9]'
ends 2 'expected f32, f16 or bf16' "$dk" convert emoji x.safetensors --dtype q8_0
ends 2 'expected a model and a file' "$dk" convert emoji
ends 1 'no such folder "missing"; create it or choose another name' "$dk" convert emoji missing/x.gguf
check 'nothing half written' test ! -e x.safetensors

# One picture made, the next one's folder missing: partly done.
mkdir only-1
ends 3 'no such' "$dk" dog --seed 1 --steps 1 --count 3 -o 'only-{index}/x.png'
check 'the first is there' test -s only-1/x.png

# A failing standard output stops the run after the picture in hand.
# A file beyond ulimit -f is a failure with a sentence, not a signal, and leaves nothing.
mkdir limited
ends 1 'limited/x.png: cannot write: File too large' sh -c "ulimit -f 1 && '$dk' dog --steps 1 --seed 1 -q -o limited/x.png"
check 'nothing is left' test -z "$(ls -A limited)"

if [ -c /dev/full ]; then
    ends 1 'standard output: cannot write: No space' sh -c "'$dk' dog --steps 1 --seed 1 --count 3 --json -o full.png >/dev/full"
    check 'one picture was made' test -s full-1.png -a ! -e full-2.png
fi

# Signals: status 130, no file, whatever the moment.
mkdir quiet-place
cd quiet-place || exit 1
interrupted() { # interrupted SIGNALS PATTERN ARGUMENTS...: sends the signals once stderr matches
    signals=$1 pattern=$2
    shift 2
    "$dk" dog --seed 1 --steps 1000 -o slow.png "$@" >"$out" 2>"$err" &
    pid=$!
    for _ in $(seq 600); do
        grep -q "$pattern" "$err" && break
        [ -n "$(ls)" ] && [ "$pattern" = preview ] && break
        sleep 0.05
    done
    for signal in $signals; do kill -"$signal" $pid; done
    wait $pid
    status=$?
    if [ $status -eq 130 ]; then ok; else bad "$signals after $pattern: status $status"; sed 's/^/    /' "$err"; fi
    check "$signals after $pattern: no file" test -z "$(ls -A)"
    rm -f slow*.png .*slow*.png
}
interrupted INT text
check 'it says so' grep -q 'interrupted; 0 of 1 picture made' "$err"
interrupted TERM text --threads 1
# under nohup the program goes on at a HUP, as it should
if [ "$(exec 2>/dev/null; sh -c 'kill -HUP $$; echo ignored'; :)" = ignored ]; then
    echo "render: HUP is ignored here, as under nohup: its interrupt is not tested"
    skipped=$((skipped + 1))
else
    interrupted HUP text
fi
interrupted 'INT INT' text
interrupted INT preview --preview
interrupted 'INT TERM' preview --preview
interrupted INT load
cd ..

# On a terminal: one line rewritten, colours unless NO_COLOR, plain lines for TERM=dumb.
if script -qec true /dev/null >/dev/null 2>&1; then
    on_terminal() { script -qec "'$dk' dog --seed 1 --steps 2 --force -o tty.png $*" tty.log </dev/null >/dev/null; }
    escape=$(printf '\033')
    TERM=xterm on_terminal
    check 'the line is rewritten' grep -q "$escape\[K" tty.log
    check 'in colour' grep -q "$escape\[36m" tty.log
    TERM=xterm NO_COLOR=1 on_terminal
    check 'NO_COLOR: still rewritten' grep -q "$escape\[K" tty.log
    check 'NO_COLOR: no colour' sh -c "! grep -q '$escape\[[0-9;]*m' tty.log"
    TERM=dumb on_terminal
    check 'TERM=dumb: no escapes' sh -c "! grep -q '$escape' tty.log"
    TERM=xterm COLORTERM=truecolor on_terminal --preview
    check 'a preview is drawn' grep -q '38;2;[0-9;]*m.*▀' tty.log
    check 'and no preview file' test -z "$(ls ./*.preview*.png 2>/dev/null)"
else
    echo "render: no script(1) here: progress on a terminal is not tested"
    skipped=$((skipped + 1))
fi
run "$dk" dog --seed 1 --steps 4 --force -o plain.png
check 'plain lines elsewhere' sh -c "grep -q '^load ' '$err' && grep -q '^text ' '$err' && grep -q '^denoise step 4/4' '$err' && grep -q '^decode ' '$err'"
check 'no escapes elsewhere' sh -c "! grep -q '$(printf '\033')' '$err'"

finish
