#!/bin/sh
# cli.sh - commands, options, messages and exit codes; almost nothing is rendered here.
# SPDX-License-Identifier: MIT
. tests/shell.inc

# Usage errors: status 2, a sentence that says what is wrong, and the nearest thing that exists.
ends 2 'usage: darkroom' "$dk"
ends 2 'did you mean --steps?' "$dk" cat --stpes 4
ends 2 'did you mean --guidance?' "$dk" cat --guidence=3
ends 2 'did you mean --scheduler?' "$dk" cat --sched euler
ends 2 'unknown option; see darkroom help render' "$dk" cat --xylophone
ends 2 'unknown option' "$dk" cat -z
ends 2 'words that start with a dash go behind --' "$dk" -5 degrees
ends 2 'did you mean "darkroom render"' "$dk" rendr
ends 2 'did you mean "darkroom render"' "$dk" rendre --steps 3
ends 2 'did you mean "darkroom schedulers"' "$dk" shedulers
ends 2 'darkroom render rendr' "$dk" rendr 'a red house'
ends 2 'did you mean "darkroom models"' "$dk" modles
ends 2 'did you mean "darkroom info"' "$dk" ifno
ends 2 'did you mean "render"' "$dk" help rendre
ends 2 'not an option of darkroom models' "$dk" models --steps 3
ends 2 'not an option of darkroom render' "$dk" cat --plot x.png
ends 2 'needs a value' "$dk" cat --steps
ends 2 'found the option --steps' "$dk" cat --negative --steps 5
ends 2 'takes none' "$dk" cat --force=yes
ends 2 'the prompt is missing' "$dk" render
ends 2 'found a prompt twice' "$dk" cat --prompt dog
ends 2 'expected none' "$dk" models in a studio
ends 2 'found 0 names' "$dk" info
ends 2 'expected one' "$dk" schedulers show --steps 4
ends 2 'the text is missing' "$dk" tokenize
ends 2 'expected bash, zsh or fish' "$dk" completions tcsh

# Numbers are strict and the range is named.
for value in 0 -1 1.5 20x 0x10 '' ' 20' 99999999999999999999 nan; do
    ends 2 'steps: found .*expected a whole number from 1 to' "$dk" cat --steps "$value"
done
for value in -1 1001 inf nan 0x1p2 7,5 7.5x . ''; do
    ends 2 'guidance: found .*expected a number from 0 to 1000' "$dk" cat --guidance "$value"
done
for value in -2 18446744073709551616 7.0 seven ''; do
    ends 2 'seed: found .*18446744073709551615, or random' "$dk" cat --seed "$value"
done
for value in 64 64x 64x64x64 0x64 64x-64 64x65537 x 64x64px 64*64 999999999999x64; do
    case $value in 64) continue ;; esac
    ends 2 'size: found .*expected WIDTHxHEIGHT' "$dk" cat --size "$value"
done
for value in 0 G 1.5X 1GG -1G 1e30; do
    ends 2 'max-memory: found .*expected a size' "$dk" cat --max-memory "$value"
done
ends 2 'did you mean "trailing"' "$dk" cat --spacing trailling
ends 2 'expected one of cpu|nv' "$dk" cat --rng gpu
ends 2 'expected a whole number from 1 to' "$dk" cat --count 0
ends 2 'expected a whole number from 0 to 1024' "$dk" cat --threads 1025

# What the model or the library refuses is found before the first step too.
ends 2 'nearest that work are 56 and 64' "$dk" cat --size 61x64
ends 2 '268 million pixels' "$dk" cat --size 16384x16384
ends 2 'steps' "$dk" cat --steps 100000
ends 2 'scheduler' "$dk" cat --scheduler eulr
ends 1 'no/such/model' "$dk" cat -m no/such/model
ends 1 'no model of that name' "$dk" cat -m nosuchmodel
ends 2 'the name is empty' "$dk" info ''
ends 2 'the name is empty' "$dk" convert '' x.gguf
ends 2 'the name is empty' "$dk" cat -m ''
ends 1 'missing.png: .*No such file' "$dk" --from missing.png
check 'nothing was written' test -z "$(ls)"

# Output that cannot be written is found before rendering: no progress is shown.
mkdir folder
ends 1 'no such folder "missing"' "$dk" cat -o missing/x.png
check 'no step was made' sh -c "! grep -q denoise '$err'"
ends 1 'device or pipe' "$dk" cat -o /dev/null --force
check '/dev/null is still a device' test -c /dev/null
ends 1 'file name of 304 bytes' "$dk" cat -o "$(printf '%0300d' 0).png"
ends 2 'darkroom writes PNG' "$dk" cat -o x.jpg
ends 2 'is not supported' "$dk" cat -o -
ends 2 'did you mean {prompt}' "$dk" cat -o '{promt}.png'
ends 2 'expected {name}' "$dk" cat -o 'x{seed.png'
ends 2 'expected {name}' "$dk" cat -o 'x{seed:}.png'
ends 2 'expected {name}' "$dk" cat -o 'x{seed:99999}.png'
ends 2 'comes out empty' "$dk" '///' -o '{prompt}'
mkdir locked && chmod 555 locked
if [ "$(id -u)" != 0 ]; then
    ends 1 'cannot create' "$dk" cat -o locked/x.png
elif setpriv --reuid=65534 --clear-groups "$dk" info emoji >/dev/null 2>&1; then
    ends 1 'cannot create: Permission denied' setpriv --reuid=65534 --clear-groups "$dk" cat -o locked/x.png
else
    echo "cli: root may write anywhere: the check of a read-only folder is skipped"
    skipped=$((skipped + 1))
fi
chmod 755 locked

# Forms of options; --dry-run shows what they came to.
run "$dk" 'a  cat' on a mat --steps=3 --guidance 2.5 --size 32 --seed=18446744073709551615 -n dog --dry-run
prints '^prompt  *a  cat on a mat$'
prints '^size  *32x32$'
prints '^seed  *18446744073709551615$'
prints '^guidance  *2.5$'
prints '^negative  *dog$'
prints '^unet_passes  *6$'
run "$dk" --negative_prompt=fog --cfg-scale 3 --sampler euler --dry-run --json -- --steps
prints '"prompt":"--steps"'
prints '"negative":"fog"'
prints '"guidance":3'
prints '"scheduler":"euler"'
run "$dk" render info --dry-run --seed 5 --seed 6
prints '^prompt  *info$'
prints '^seed  *6$'
run "$dk" tender cats --dry-run
prints '^prompt  *tender cats$'
run "$dk" sheep --dry-run
prints '^prompt  *sheep$'
run "$dk" '' --dry-run --guidance 1 --steps 4
prints '^unet_passes  *4$'
run "$dk" cat -memoji -oodd.png --dry-run --width 64 --height 32
prints '^output  *odd.png$'
prints '^size  *64x32$'
run "$dk" cat --dry-run --seed random
check 'a seed is drawn' grep -q '^seed  *[0-9][0-9]*$' "$out"
check 'a dry run writes nothing' test ! -e odd.png
ends 0 '' "$dk" cat --seed -1 --dry-run

# Names from templates.
name() {
    want=$1
    shift
    run "$dk" "$@" --seed 7 --steps 5 --dry-run --json
    if [ "$(field output)" = "$want" ]; then ok; else bad "name $(field output) in place of $want"; fi
}
name darkroom-7.png cat
name folder/darkroom-7.png cat -o folder
name folder/darkroom-7.png cat -o folder/
name plain cat -o plain
name 001-5-ddim.png cat -o '{index:03}-{steps}-{scheduler}.png'
name a-red-car-a-b-c-7.png ' a red/car: "a|b?c"..' -o '{prompt}-{seed}.png'
name a-red.png 'a red car' -o '{prompt:6}.png'
name '{7}.png' cat -o '{{{seed}}}.png'
name 'emoji-64x64.png' cat --size 64x64 -o '{model}-{size}.png'
name 'x-1.png' cat --count 4 -o x.png
name 'x-01.png' cat --count 40 -o x.png
name 'etc-passwd.png' '../../etc/passwd' -o '{prompt}.png'

# Standard input.
printf 'a cat\r\n' >in && run "$dk" - --dry-run <in && prints '^prompt  *a cat$'
printf '\357\273\277a cat' >in && run "$dk" - --dry-run <in && prints '^prompt  *a cat$'
printf 'a\0cat' >in
ends 2 'byte 2 is NUL' sh -c "'$dk' - --dry-run <in"
printf 'a \377\376 cat' >in
ends 0 '2 bytes not UTF-8 became U+FFFD' sh -c "'$dk' - --dry-run <in"
ends 0 '1 byte not UTF-8 became U+FFFD' "$dk" "caf$(printf '\351')" --dry-run
head -c 2000000 /dev/zero | tr '\0' a >in
ends 2 'more than 1048576 bytes' sh -c "'$dk' - --dry-run <in"
: >in
ends 0 '' sh -c "'$dk' - --dry-run <in"

# Help, version, lists.
ends 0 '' "$dk" --version && prints '^darkroom [0-9]'
ends 0 '' "$dk" --help && prints '--guidance-rescale' && prints 'schedulers show'
ends 0 '' "$dk" help info && prints '^usage: darkroom info'
ends 0 '' "$dk" help schedulers show && prints '--plot'
ends 0 '' "$dk" render --help && prints '--dry-run'
ends 0 '' "$dk" models && prints '^emoji .*(default)'
ends 0 '' "$dk" models --json && prints '"name": "emoji"'
ends 0 '' "$dk" schedulers && prints '^ddim '
ends 0 '' "$dk" schedulers --json && prints '"name": "euler"'
ends 0 '' "$dk" schedulers show ddim --steps 4 --json && prints '"passes":4' && prints '"timesteps":\[' && prints '"sigmas":\['
ends 0 '' "$dk" tokenize 'a photo of a cat' && prints '^2046 .* 2047$'
ends 0 '' "$dk" tokenize 'a cat' --json && prints '"ids":\[2046,'
ends 0 '' "$dk" info emoji && prints '^unet ' && prints '^fingerprint  *[0-9a-f]\{32\}$'
ends 0 '' "$dk" info "$root/models/emoji" --json && prints '"parts":\['
prints '"prediction":"v_prediction","prediction-source":"scheduler config"'
ends 0 '' "$dk" info emoji --size 256x128 && prints '^work memory .* MB at 256x128$'
ends 2 'both sides must be multiples of' "$dk" info emoji --size 256x129
ends 1 'has no text_encoder, no vae; add them, or give them with --text-encoder, --vae' \
    "$dk" info "$root/tests/golden/models/tiny-sd2/unet"
ends 0 'roof.svg' "$dk" bench --steps 1 --repeats 1 --size 32 --threads 1 --plot roof.svg
prints '^denoise  *conv 3x3 ' && prints '^decode  *all '
check 'the roofline has points' grep -q '<svg' roof.svg
ends 0 '' "$dk" bench --steps 1 --repeats 2 --size 32 --json
prints '"phases":\[{.*"phase":"text".*"operation":"linear".*"phase":"denoise".*"phase":"decode"'
ends 2 'not an option of darkroom bench' "$dk" bench --count 3
ends 2 'expected a name that ends in .png or .svg' "$dk" schedulers show ddim --steps 4 --plot x.pdf
for kind in png svg; do
    ends 0 "plot.$kind" "$dk" schedulers show ddim --steps 4 --plot "plot.$kind"
    ends 0 "plot-2.$kind" "$dk" schedulers show ddim --steps 4 --plot "plot.$kind"
done
check 'a PNG' sh -c 'head -c 4 plot.png | grep -q PNG'
check 'an SVG' grep -q '<svg' plot.svg

# The fingerprint is what docs/metadata.md says, worked out here by other means.
fingerprint() {
    printf 'model\0'
    cd "$1" || return
    find . -maxdepth 2 -type f ! -path '*/.*' | sed 's,^\./,,' | grep '\.\(safetensors\|gguf\|ckpt\|pt\|bin\|json\|txt\)$' | sort |
        while read -r file; do
            bytes=$(wc -c <"$file")
            printf '%s\0%d\n' "$file" "$bytes"
            if [ "$bytes" -le 393216 ]; then
                cat "$file"
                continue
            fi
            head -c 65536 "$file"
            i=0
            while [ $i -lt 64 ]; do
                tail -c +$((65536 + (bytes - 135168) / 64 * i + 1)) "$file" | head -c 4096
                i=$((i + 1))
            done
            tail -c 65536 "$file"
        done
}
run "$dk" info emoji
prints "^fingerprint  *$(fingerprint "$root/models/emoji" | sha256sum | cut -c1-32)$"

# info answers any file with a sentence.
for file in /dev/null /dev/zero . in missing; do
    run "$dk" info "$file"
    if [ "$status" -eq 1 ] && [ -s "$err" ]; then ok; else bad "info $file: status $status"; fi
done

# A limit that cannot be kept is told with one that can, by info as by render.
ends 1 'needs a limit of [0-9]*M or more, found 1M' "$dk" cat --dry-run --max-memory 1M
limit=$(sed -n 's/.*needs a limit of \([0-9]*M\).*/\1/p' "$err")
run "$dk" info emoji --max-memory 1M && prints "^limit  .*needs a limit of $limit or more"
run "$dk" info emoji --max-memory 1M --json && prints "\"refusal\":\"128x128: .*$limit"
run "$dk" info emoji --max-memory "$limit" && prints '^limit  *can be kept'
ends 0 '' "$dk" cat --dry-run --max-memory "$limit"
ends 1 "limit of $((${limit%M} - 1))\|limit of $limit" "$dk" cat --dry-run --max-memory $((${limit%M} - 1))M

# What is told of work memory is that of the decoder asked for; of a picture nothing of the kind is told.
run "$dk" info emoji --json --size 512x512
with_vae=$(field work-bytes)
run "$dk" info emoji --json --size 512x512 --decoder tiny
check 'a tiny decoder needs less' test "$(field work-bytes)" -lt "$with_vae"
ends 2 'has no tiny decoder' "$dk" info "$root/tests/golden/models/tiny-sd1" --decoder tiny
ends 2 '^darkroom: --size: is for models' "$dk" info "$root/samples/rocket.png" --size 64x64
ends 2 'leave out one of' "$dk" cat --dry-run --decoder tiny --taesd-preview-only

# A reader that has seen enough is no fault to be told of; the status tells that not all was written.
for command in help --help 'help batch' 'completions fish' schedulers; do
    # shellcheck disable=SC2086
    { "$dk" $command 2>"$err"; echo $? >gone; } | :
    check "$command: quiet" test ! -s "$err"
done
{ sleep 0.2; "$dk" help 2>"$err"; echo $? >gone; } | :
check 'a closed pipe is quiet' test ! -s "$err" -a "$(cat gone)" = 1

# A pipe or device in place of a file does not hold the program for ever.
mkfifo pipe
for option in --from --model --unet --vae --text-encoder --tokenizer; do
    run timeout -k 1 20 "$dk" cat --dry-run $option pipe
    if [ "$status" -eq 1 ]; then ok; else bad "$option pipe: status $status"; fi
done
run timeout -k 1 20 "$dk" cat --dry-run --scheduler ./pipe
if [ "$status" -eq 1 ]; then ok; else bad "--scheduler ./pipe: status $status"; fi
ends 1 'device or pipe' timeout -k 1 20 "$dk" info pipe

# Standard output that cannot be written is a failure.
# What lies in a model and cannot be read is an error, not an absence: here links to nothing.
mkdir -p torn/scheduler
for part in model_index.json unet vae text_encoder; do ln -s "$root/models/emoji/$part" torn/; done
ln -s nowhere torn/tokenizer
ends 1 'torn/tokenizer: is a link to nowhere, which does not exist' "$dk" cat --dry-run -m ./torn
rm torn/tokenizer
ln -s "$root/models/emoji/tokenizer" torn/
ln -s nowhere torn/scheduler/scheduler_config.json
ends 1 'torn/scheduler/scheduler_config.json: is a link to nowhere, which does not exist' "$dk" cat --dry-run -m ./torn
rm torn/scheduler/scheduler_config.json
ends 0 '' "$dk" cat --dry-run -m ./torn

if [ -c /dev/full ]; then
    ends 1 'standard output: cannot write' sh -c "'$dk' --help >/dev/full"
    ends 1 'standard output: cannot write: No space' sh -c "'$dk' --version >/dev/full"
    ends 1 'standard output: cannot write' sh -c "'$dk' schedulers --json >/dev/full"
fi
ends 1 'standard output: cannot write' sh -c "'$dk' --version >&-"
ends 1 'standard output: cannot write' sh -c "'$dk' info emoji --json >&-"
ends 0 '' sh -c "'$dk' schedulers --json 2>&- | head -n 1 >/dev/null"

check 'the man page is of this version' grep -q "\"darkroom $("$dk" --version | cut -d' ' -f2)\"" "$root/docs/darkroom.1"
# The man page and the completions know every option and command.
"$dk" completions options >options.list
check 'the table has options' test "$(wc -l <options.list)" -gt 30
for shell in bash zsh fish; do run "$dk" completions $shell && mv "$out" "completions.$shell"; done
while read -r option; do
    escaped=$(printf '%s' "$option" | sed 's/-/\\\\-/g')
    check "the man page has $option" grep -q -- "$escaped" "$root/docs/darkroom.1"
    check "bash completes $option" grep -q -- "$option " completions.bash
    check "zsh completes $option" grep -q -- "'${option}[=[]" completions.zsh
    check "fish completes $option" grep -q -- "-l ${option#--} " completions.fish
done <options.list
for shell in bash zsh fish; do
    if command -v $shell >/dev/null; then
        check "$shell can read its completions" $shell -n completions.$shell
    else
        echo "cli: no $shell here: its completions are not parsed"
        skipped=$((skipped + 1))
    fi
done
if command -v bash >/dev/null; then
    cat >complete.sh <<'END'
. ./completions.bash
complete_for() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _darkroom; echo "${COMPREPLY[@]}"; }
complete_for darkroom sched
complete_for darkroom cat --spacing t
complete_for darkroom schedulers show --pl
END
    check 'bash completes' test "$(bash complete.sh | tr '\n' ' ')" = 'schedulers trailing --plot '
fi

finish
