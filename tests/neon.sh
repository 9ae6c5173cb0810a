#!/bin/sh
# neon.sh - the ARM kernels, cross-compiled and run in an emulator where both are installed.
# SPDX-License-Identifier: MIT
compiler=aarch64-linux-gnu-gcc
build=${BUILD:-build}/tests/neon
if [ "$(uname -m)" = aarch64 ] || ! command -v $compiler >/dev/null || ! command -v qemu-aarch64 >/dev/null; then
    echo "neon: 0 passed, 0 failed, 1 skipped (needs $compiler and qemu-aarch64)"
    exit 0
fi
mkdir -p "$build"
# the model of AVX-512 is not for here: compilers take long over it
if ! $compiler -std=c11 -O2 -ffp-contract=off -D_DEFAULT_SOURCE -D_POSIX_C_SOURCE=200809L -Iinclude -Isrc -Itests \
    -Dkernels_init_model512=kernels_init_scalar -static -o "$build/checkkernels" tests/checkkernels.c \
    src/kernels/cpu.c src/kernels/dtype.c src/kernels/scalar.c src/kernels/neon.c -lm; then
    echo "neon: 0 passed, 1 failed"
    exit 1
fi
qemu-aarch64 "$build/checkkernels" >"$build/log"
status=$?
grep failed: "$build/log"
sed -n 's/^checkkernels:/neon:/p' "$build/log"
exit $status
