#!/bin/sh
# run.sh BUILD PROGRAM - runs every test program and script; the last line is "N passed, N failed".
# SPDX-License-Identifier: MIT
# A test is an executable that prints "name: N passed, N failed" as its last line (", N skipped" may follow).
cd "$(dirname "$0")/.." || exit 1
build=$1
# the program may lie in another build folder, from which no models/ is found
export DARKROOM="$2" BUILD="$build" DARKROOM_MODELS="$PWD/models"
# idle threads sleep instead of spinning: the machine may be shared
export OMP_WAIT_POLICY=passive
passed=0 failed=0
for test in "$build"/tests/check* tests/*.sh; do
    case $test in
    *.d | tests/run.sh) continue ;;
    esac
    [ -x "$test" ] || continue
    log=$build/tests/$(basename "$test").log
    "$test" >"$log" 2>&1
    status=$?
    cat "$log"
    counts=$(sed -n 's/^[a-z0-9_. -]*: \([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed.*/\1 \2/p' "$log" | tail -n 1)
    # shellcheck disable=SC2086
    set -- ${counts:-0 0}
    passed=$((passed + $1)) failed=$((failed + $2))
    if [ "$status" -ne 0 ] && [ "$2" -eq 0 ] || [ -z "$counts" ]; then
        echo "$test: ended with status $status and no count"
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
