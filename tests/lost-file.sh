#!/bin/sh
# lost-file.sh - a model file that is cut short while it is in use ends the program with a sentence.
# SPDX-License-Identifier: MIT
. tests/shell.inc

check "a single file" "$dk" convert "$root"/tests/golden/models/tiny-sd1 model.safetensors --quiet >/dev/null
mkfifo lines
"$dk" batch - -m model.safetensors --steps 1 --width 64 --height 64 -o pictures <lines >"$out" 2>"$err" &
pid=$!
exec 3>lines
echo "a cat" >&3
waited=0
while [ -z "$(ls pictures/*.png 2>/dev/null)" ] && [ $waited -lt 300 ]; do
    sleep 0.2
    waited=$((waited + 1))
done
check "the first picture" [ -n "$(ls pictures/*.png 2>/dev/null)" ]
truncate -s 4096 model.safetensors
echo "a dog" >&3
exec 3>&-
wait $pid
status=$?
check "status 1, not a signal: $status" [ $status -eq 1 ]
check "the file is named" grep -q "/model.safetensors: a part that was there is gone" "$err"
check "one sentence" [ "$(grep -c "darkroom: /" "$err")" -eq 1 ]
check "the first picture is whole" "$dk" info pictures/*.png >/dev/null
rm -f model.safetensors lines

# What has no name yet goes too. The signal is sent, for a file cannot be cut short at the right moment.
mkdir converted
for attempt in 1 2 3 4 5; do
    "$dk" convert "$root"/models/emoji converted/$attempt.gguf --dtype q4_k --quiet >"$out" 2>"$err" &
    pid=$!
    waited=0
    while [ -z "$(ls -A converted | grep '^\.darkroom-')" ] && kill -0 $pid 2>/dev/null && [ $waited -lt 500 ]; do
        sleep 0.01
        waited=$((waited + 1))
    done
    kill -BUS $pid 2>/dev/null
    wait $pid
    status=$?
    [ $status -ne 0 ] && break
done
check "status 1 again: $status" [ $status -eq 1 ]
check "no temporary file stays" [ -z "$(ls -A converted | grep '^\.darkroom-')" ]
finish
