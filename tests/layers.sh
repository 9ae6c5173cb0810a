#!/bin/sh
# layers.sh - includes point only downwards: the floor plan of the sources, checked.
# SPDX-License-Identifier: MIT
# Each line of the plan: a folder, then what its files may include (folders, or single headers).
# Beyond the plan of the conventions: the pipeline fills the table of kernels when it opens a model,
# kernels/cpu.c answers the public dk_cpu_level, and the readers of files ask kernels/dtype.h what a
# type's bytes are.
plan='
include     include
schedulers  scheduler.h common.h
src/base    base darkroom.h
src/kernels kernels base/tensor.h darkroom.h
src/ops     ops kernels base
src/files   files base kernels/dtype.h darkroom.h
src/nets    nets ops files/weights.h base
src/pipeline pipeline nets files ops kernels/kernels.h base include
src/cli     cli include
'
passed=0 failed=0

# allowed HEADER WORDS...: HEADER is one of the words, or lies in a folder that is one of them.
allowed() {
    header=$1
    shift
    for word; do
        case $word in
        include) case $header in darkroom.h | scheduler.h) return 0 ;; esac ;;
        *) case $header in "$word" | "$word"/*) return 0 ;; esac ;;
        esac
    done
    return 1
}

while read -r folder words; do
    [ -n "$folder" ] || continue
    for file in "$folder"/*.[ch]; do
        [ -e "$file" ] || continue
        ok=true
        for header in $(sed -n 's/^ *# *include *"\([^"]*\)".*/\1/p' "$file"); do
            # A header without a folder is the file's own neighbour, or generated.
            [ -e "$folder/$header" ] && continue
            case $header in *.inc) continue ;; esac
            # shellcheck disable=SC2086
            allowed "$header" $words && continue
            echo "$file: includes \"$header\", which $folder may not: it may include $words"
            ok=false
        done
        if $ok; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
    done
done <<EOF
$plan
EOF

# A folder that is not in the plan would escape the check.
for folder in src/*/; do
    folder=${folder%/}
    case $plan in
    *"$folder "*) passed=$((passed + 1)) ;;
    *)
        echo "$folder: not in the floor plan"
        failed=$((failed + 1))
        ;;
    esac
done

# Intrinsics stay in kernels/, threads in ops/, platforms in base/ and kernels/cpu.c.
forbid() {
    pattern=$1 why=$2
    shift 2
    # shellcheck disable=SC2068
    found=$(grep -lE "$pattern" $@ 2>/dev/null)
    if [ -z "$found" ]; then
        passed=$((passed + 1))
    else
        echo "$found: $why"
        failed=$((failed + 1))
    fi
}
forbid 'immintrin\.h|arm_neon\.h|_mm(256|512)?_[a-z]' 'intrinsics belong into src/kernels' \
    src/base/*.[ch] src/ops/*.[ch] src/files/*.[ch] src/nets/*.[ch] src/pipeline/*.[ch] src/cli/*.[ch]
forbid '#pragma omp|pthread_create' 'threads belong into src/ops' \
    src/base/*.[ch] src/kernels/*.[ch] src/files/*.[ch] src/nets/*.[ch] src/pipeline/*.[ch]
forbid '^ *# *if(def|ndef)? .*(__linux__|_WIN32|__APPLE__|__x86_64__|__aarch64__)' \
    'platforms belong into src/base and src/kernels' \
    src/ops/*.[ch] src/files/*.[ch] src/nets/*.[ch] src/pipeline/*.[ch]
forbid '(^|[^a-z_.>])(exit|abort|printf|puts|perror)\(' 'the library never prints and never exits' \
    src/base/*.c src/kernels/*.c src/ops/*.c src/files/*.c src/nets/*.c src/pipeline/*.c

echo "layers: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
