#!/bin/sh
# plugins.sh - schedulers as shared objects: what is built loads and works, what is not one is refused with a sentence.
# SPDX-License-Identifier: MIT
build=${BUILD:-build}
check=$build/tests/checkschedulers
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "failed: $*"; }

# Every scheduler of ours, built as a plugin, passes what it passes inside the library; so does the sample.
for name in euler unipc pndm lcm restart ralston; do
    if "$check" "$build/plugins/$name.so" >"$work/log" 2>&1; then ok; else bad "$name.so: $(tail -n 3 "$work/log")"; fi
done
count=$(ls "$build"/plugins/*.so | wc -l)
sources=$(ls schedulers/*.c samples/schedulers/*.c | wc -l)
if [ "$count" -ge "$sources" ]; then ok; else bad "$count plugins of $sources sources"; fi

# plugin NAME: compiles stdin to $work/NAME.so
plugin() {
    ${CC:-cc} -std=c11 -shared -fPIC -DDK_PLUGIN -Iinclude -Ischedulers -x c -o "$work/$1.so" - -lm || bad "$1: does not compile"
}
# refused NAME PART: loading it must fail with PART in the sentence
refused() {
    if "$check" "$work/$1.so" >"$work/log" 2>&1; then bad "$1: accepted"
    elif grep -q -- "$2" "$work/log"; then ok
    else bad "$1: \"$(head -n 1 "$work/log")\" does not say \"$2\""; fi
}
body='static void step(struct dk_step *s) { dk_copy(s->x, s->x0, s->n); }'
fields='.name = "x", .title = "X", .aliases = "", .summary = "a test", .paper = "none", .order = 1, .passes_per_step = 1'

plugin good <<END
#include "common.h"
$body
const struct dk_scheduler dk_scheduler_x = {DK_SCHEDULER_HEAD, $fields, .step = step};
DK_SCHEDULER_PLUGIN(dk_scheduler_x)
END
if "$check" "$work/good.so" >"$work/log" 2>&1; then ok; else bad "good: $(tail -n 2 "$work/log")"; fi

plugin abi <<END
#include "common.h"
$body
const struct dk_scheduler dk_scheduler_x = {.abi = 99, .size_bytes = sizeof(struct dk_scheduler), $fields, .step = step};
DK_SCHEDULER_PLUGIN(dk_scheduler_x)
END
refused abi "ABI 99"

plugin size <<END
#include "common.h"
$body
const struct dk_scheduler dk_scheduler_x = {.abi = DK_SCHEDULER_ABI, .size_bytes = 8, $fields, .step = step};
DK_SCHEDULER_PLUGIN(dk_scheduler_x)
END
refused size "has 8 bytes"

plugin nostep <<END
#include "common.h"
const struct dk_scheduler dk_scheduler_x = {DK_SCHEDULER_HEAD, $fields};
DK_SCHEDULER_PLUGIN(dk_scheduler_x)
END
refused nostep "no step"

plugin null <<END
#include <stddef.h>
const void *dk_plugin_scheduler(void);
const void *dk_plugin_scheduler(void) { return NULL; }
END
refused null "gives nothing"

plugin other <<END
int nothing_of_ours;
END
refused other "has no dk_plugin_scheduler"

sed 's/"ddim"/"ddim-of-mine"/' schedulers/ddim.c | plugin namesake
refused namesake 'name of one of ours'

echo "not a library" >"$work/text.so"
refused text "cannot be loaded"
refused missing "cannot be loaded"

# The program: a path is loaded, a bare name never is, and a plugin's picture is made.
if [ -x "${DARKROOM:-}" ]; then
    run() { "$DARKROOM" "$@" -m models/emoji >"$work/out" 2>"$work/log"; }
    if run schedulers show "$build/plugins/ralston.so" --steps 3 && grep -q '5 passes' "$work/out"; then ok
    else bad "show: $(cat "$work/log")"; fi
    if run schedulers show ralston.so --steps 3; then bad "a bare name is loaded"
    elif grep -q 'no such name' "$work/log"; then ok; else bad "bare: $(cat "$work/log")"; fi
    if run schedulers show "$work/abi.so" --steps 3; then bad "another ABI is loaded"
    elif grep -q 'ABI 99' "$work/log"; then ok; else bad "abi: $(cat "$work/log")"; fi
    if run "a red apple" --scheduler "$build/plugins/ralston.so" --steps 2 --guidance 1 --seed 1 -o "$work/a.png" &&
        [ -s "$work/a.png" ]; then ok; else bad "no picture: $(cat "$work/log")"; fi
    # AYS has a table for each kind of model.
    for kind in sd1:850.013 sdxl:844.888; do
        "$DARKROOM" schedulers show euler --steps 10 --sigmas ays -m tests/golden/models/tiny-${kind%:*} >"$work/out" 2>&1
        if grep -q " ${kind#*:} " "$work/out"; then ok; else bad "ays for $kind: $(head -n 4 "$work/out")"; fi
    done
    # Noise: the same bytes with any number of threads, and alone or in a run of two.
    for name in euler-a dpmpp-sde; do
        for threads in 1 2 4; do
            run "a red apple" --scheduler $name --steps 2 --guidance 1 --seed 5 --threads $threads --no-metadata \
                -o "$work/$name-$threads.png" || bad "$name: $(cat "$work/log")"
        done
        if cmp -s "$work/$name-1.png" "$work/$name-2.png" && cmp -s "$work/$name-1.png" "$work/$name-4.png"; then ok
        else bad "$name: other bytes with other threads"; fi
        run "a red apple" --scheduler $name --steps 2 --guidance 1 --seed 4 --count 2 --no-metadata -o "$work/$name-{seed}.png"
        if cmp -s "$work/$name-1.png" "$work/$name-5.png"; then ok
        else bad "$name: seed 5 as the second of two is another picture: $(ls "$work") $(cat "$work/log")"; fi
    done
fi

echo "plugins: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
