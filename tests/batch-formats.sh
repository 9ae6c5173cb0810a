#!/bin/sh
# batch-formats.sh - files of prompts become jobs, or sentences with file and line; nothing is rendered here.
# SPDX-License-Identifier: MIT
. tests/shell.inc

# jobs FILE OPTIONS...: the plan, one object a job; job N KEY: a value of the Nth.
jobs() { run "$dk" batch "$@" -o folder --dry-run --json; }
job() { sed -n "${1}s/.*\"$2\":\(\"\([^\"\\\\]\|\\\\.\)*\"\|[^,}]*\)[,}].*/\1/p" "$out"; }
is() { # is N KEY VALUE
    found=$(job "$1" "$2")
    if [ "$found" = "$3" ]; then ok; else bad "job $1, $2: found $found, expected $3"; fi
}
count() { if [ "$(wc -l <"$out")" -eq "$1" ]; then ok; else bad "$(wc -l <"$out") jobs in place of $1"; cat "$err"; fi; }

# Lines of text. An apostrophe is a letter (the report InvokeAI#37), so are quotes of the prompt.
printf '%s\n' "it's a cat" '' '  ' '# no job' '  // none' 'a dog --seed 3' "the \"old\" man's boat --steps 2" \
    'a--b c -- d - e' 'a cat --negative ugly, blurry fur --steps 5 --size 32x16' 'x --negative "a --steps 9"' \
    "x --negative 'tis the dog's bowl --no-prompt-syntax" 'x --steps=7' "x --negative 'two words' end" >lines.txt
jobs lines.txt
count 9
is 1 prompt "\"it's a cat\""
is 1 line 1
is 2 prompt '"a dog"' && is 2 seed 3 && is 2 line 6
is 3 prompt "\"the \\\"old\\\" man's boat\"" && is 3 steps 2
is 4 prompt '"a--b c -- d - e"'
is 5 negative '"ugly, blurry fur"' && is 5 steps 5 && is 5 size '"32x16"'
is 6 negative '"a --steps 9"'
is 7 negative "\"'tis the dog's bowl\"" && is 7 no-prompt-syntax true
is 8 steps 7
is 9 negative '"two words end"'

# Byte order mark, CRLF, no last line feed, a very long line, bytes that are not UTF-8.
printf '\357\273\277a cat\r\na dog --steps 4\r\nlast' >dos.txt
jobs dos.txt --steps 2
count 3
is 1 prompt '"a cat"' && is 1 steps 2 && is 2 steps 4 && is 3 prompt '"last"'
{ awk 'BEGIN { for (i = 0; i < 1500; i++) printf "a cat " }'; printf -- '--steps 6\nnext\n'; } >long.txt
jobs long.txt
count 2
is 1 steps 6
check 'all of the long prompt' test "$(job 1 prompt | wc -c)" -gt 8990
awk 'BEGIN { for (i = 0; i < 100000; i++) printf "# no job, only a long line " ; print ""; print "a cat" }' >comment.txt
jobs comment.txt
count 1
printf 'a \377 b\nc\n' >bytes.txt
jobs bytes.txt
is 1 prompt '"a � b"'
check 'told with its line' grep -q 'bytes.txt:1: 1 byte not UTF-8' "$err"
printf 'Un petit chaton très mignon\nTwitter’s 😀\nかわいい\n' >unicode.txt
jobs unicode.txt
is 1 prompt '"Un petit chaton très mignon"' && is 2 prompt '"Twitter’s 😀"' && is 3 prompt '"かわいい"'

# A1111's lines: quotes go, words up to the next option belong to the prompt, its tags mean what they say there.
printf '%s\n' '--prompt "photo of sunset"' '--prompt photo of sunset --steps 9' \
    '--prompt "a \"b\" \(c\)" --negative_prompt no such --cfg_scale 3.5 --width 32 --height 24 --seed -1' \
    '--prompt x --sampler_name "DPM++ 2M Karras" --n_iter 2 --batch_size 2 --restore_faces false --tiling False' \
    '--steps 3 --prompt it'"'"'s --do_not_save_grid true --subseed -1 --subseed_strength 0 --prompt_for_display y' >a1111.txt
jobs a1111.txt
count 8
is 1 prompt '"photo of sunset"' && is 2 prompt '"photo of sunset"' && is 2 steps 9
is 3 prompt '"a \"b\" \\(c\\)"' && is 3 negative '"no such"' && is 3 guidance 3.5 && is 3 size '"32x24"'
is 4 scheduler '"DPM++ 2M"' && is 4 sigmas '"karras"'
is 8 prompt "\"it's\"" && is 8 steps 3
check 'its count makes seeds that follow' test $(($(job 4 seed) + 3)) -eq "$(job 7 seed)"

# JSON Lines.
printf '%s\n' '{"prompt": "a cat", "negative_prompt": "dog", "cfg_scale": 2.5, "seed": 18446744073709551}' '' \
    '{"prompt": "b", "seeds": [1, 2], "matrix": {"steps": [3, 4]}}' '{"prompt": "", "steps": null, "size": "32x32"}' >jobs.any
jobs jobs.any --steps 5
count 6
is 1 negative '"dog"' && is 1 guidance 2.5 && is 1 seed 18446744073709551
is 2 steps 3 && is 2 seed 1 && is 3 seed 2 && is 4 steps 4
is 6 prompt '""' && is 6 size '"32x32"'

# CSV and TSV: quotes, line feeds within them, empty fields, fields left out, other separators.
printf 'prompt,seed,negative_prompt\r\n"a ""red"", round\r\nball",5,\r\nit'"'"'s,,ugly\r\nx\r\n' >jobs.csv
jobs jobs.csv
count 3
is 1 prompt '"a \"red\", round\nball"' && is 1 seed 5 && is 1 negative null && is 1 line 2
is 2 negative '"ugly"' && is 2 line 4 && is 3 line 5
printf 'seed\tprompt\n5\ta "b", c\n' >tabs
jobs tabs
is 1 prompt '"a \"b\", c"' && is 1 seed 5
printf 'prompt;steps\na, b;4\n' >semi
jobs semi
is 1 prompt '"a, b"' && is 1 steps 4
printf 'prompt\na, b\n' >one.csv
ends 2 'one.csv:2: found 2 fields' "$dk" batch one.csv -o folder
printf 'prompt, of a kind\n{red|blue}\n' >text
jobs text --no-dynamic
count 2
is 1 prompt '"prompt, of a kind"'
jobs jobs.any --format text --no-dynamic
is 1 line 1

# What is wrong is told with file and line before anything is rendered; the other lines run with --keep-going.
wrong() { # wrong SENTENCE LINE
    printf 'good\n%s\n' "$2" >wrong.txt
    ends 2 "^darkroom: wrong.txt:2: .*$1" "$dk" batch wrong.txt -o folder --steps 1 --size 8x8
    check "nothing is there after $2" test ! -e folder
}
wrong '--steps: found "x"' 'a --steps x'
wrong '--steps: needs a value, found the end' 'a --steps'
wrong '--steps: needs a value, found the option --seed' 'a --steps --seed 3'
wrong 'unknown option; did you mean --steps' 'a --stpes 4'
wrong 'found "boat" behind' 'a --steps 2 boat'
wrong 'never closes' 'a --negative "b'
wrong 'there is no prompt' '--steps 3'
wrong 'found a prompt twice' 'a --prompt b'
wrong 'is for the command line' 'a --shard 1/2'
wrong 'one batch uses one model' '--prompt a --sd_model b'
wrong 'is not supported' '--prompt a --tiling true'
wrong 'is not supported' '--prompt a --subseed 7'
wrong 'one folder' '--prompt a --outpath_samples /tmp'
wrong 'size' 'a --size 33x33'
wrong 'is a plugin' 'a --scheduler ./evil.so'
wrong 'is a plugin' 'a --matrix scheduler=ddim,./evil.so'
wrong 'leads out of the folder' 'a --name ../x.png'
wrong 'leads out of the folder' 'a --name /x.png'
wrong 'did you mean {seed}' 'a --name {sed}.png'
wrong 'PNG' 'a --name x.jpg'
wrong '--count too' 'a --seeds 1,2 --count 2'
wrong '--seeds: found' 'a --seeds 1,x'
wrong 'numbers that rise' 'a --seeds 5..2'
wrong 'expected OPTION=A,B' 'a --matrix steps'
wrong 'no setting of a picture' 'a --matrix force=1,2'
wrong 'value is empty' 'a --matrix steps=1,,2'
wrong '--steps: found "x"' 'a --matrix steps=1,x'
printf '{"prompt":"a"}\n{"prompt":"b","prompt":"c"}\n["x"]\n{"prompt":"a","steps":[1]}\n{"prompt":"a","stps":1}\n{"prompt"\n{"prompt":5}\n' >bad.jsonl
ends 2 'bad.jsonl:2: .*duplicate' "$dk" batch bad.jsonl -o folder
for line in 2 3 4 5 6; do check "line $line is told" grep -q "bad.jsonl:$line:" "$err"; done
check 'how many' grep -q '5 lines are wrong; nothing was rendered' "$err"
printf 'prompt,stps\na,1\n' >bad.csv
ends 2 'bad.csv:1: column 2, "stps": unknown setting; did you mean steps' "$dk" batch bad.csv -o folder
printf 'prompt,seed\na,1,2\nb,2\n"c,3\n' >bad.csv
ends 2 'bad.csv:2: found 3 fields' "$dk" batch bad.csv -o folder
check 'the open quote' grep -q 'bad.csv:4: a quote opens here' "$err"
printf 'seed,steps\n1,2\n' >bad.csv
ends 2 'no column "prompt"' "$dk" batch bad.csv -o folder
printf 'a\0b\nc\n' >nul.txt
ends 2 'nul.txt:1: holds a NUL byte' "$dk" batch nul.txt -o folder
printf '\377\376a\0\n\0' >utf16.txt
ends 1 'is UTF-16' "$dk" batch utf16.txt -o folder
: >empty.txt
ends 1 'holds no prompt' "$dk" batch empty.txt -o folder
ends 1 'no-such.txt: cannot read: No such file' "$dk" batch no-such.txt -o folder
ends 1 'is a folder' "$dk" batch / -o folder
ends 2 'no folder was given' "$dk" batch lines.txt
ends 2 'found 2 words' "$dk" batch lines.txt dos.txt -o folder
printf 'good\nbad --steps x\ngood too\n' >mixed.txt
ends 3 'mixed.txt:2: ' "$dk" batch mixed.txt -o folder --dry-run --keep-going
check 'the others are planned' test "$(wc -l <"$out")" -eq 2

# Seeds: without one they follow from the text; equal lines differ; a second plan is the same.
printf 'a cat\na cat\na dog\na cat --seed 5\na cat --seed random\n' >seeds.txt
jobs seeds.txt
cp "$out" first
jobs seeds.txt && same first "$out"
check 'all seeds differ' test "$(sed 's/.*"seed":\([0-9]*\).*/\1/' first | sort -u | wc -l)" -eq 5
check 'all identities differ' test "$(sed 's/.*"job":"\([0-9a-f]*\)".*/\1/' first | sort -u | wc -l)" -eq 5
jobs seeds.txt --seed 7
is 1 seed 7 && is 2 seed 7 && is 4 seed 5
check 'equal jobs are two' test "$(job 1 job)" != "$(job 2 job)"
jobs seeds.txt --seed 7 --iterate-seed
is 1 seed 7 && is 2 seed 8 && is 3 seed 9
jobs seeds.txt --seeds 9,3..5
count 20
is 1 seed 9 && is 2 seed 3 && is 4 seed 5
printf 'new line first\n' | cat - seeds.txt >moved.txt
jobs moved.txt
check 'a line above changes no identity' test "$(sed 's/.*"job":"\([0-9a-f]*\)".*/\1/' first | sort)" = \
    "$(sed -n '2,$s/.*"job":"\([0-9a-f]*\)".*/\1/p' "$out" | sort)"
jobs seeds.txt --no-metadata --threads 1
check 'nor do threads' test "$(job 1 job)" = "\"$(sed -n '1s/.*"job":"\([0-9a-f]*\)".*/\1/p' first)\""

# Matrix: the first axis outermost, the seed the same along it.
printf 'a cat\n' >one.txt
jobs one.txt --matrix steps=4,8,20 --matrix scheduler=ddim,lcm
count 6
is 1 steps 4 && is 1 scheduler '"ddim"' && is 2 scheduler '"lcm"' && is 2 steps 4 && is 6 steps 20
check 'one seed' test "$(sed 's/.*"seed":\([0-9]*\).*/\1/' "$out" | sort -u | wc -l)" -eq 1
jobs one.txt --matrix steps=1..3 --matrix 'timesteps=999,500;800,1' --steps 2 || true
jobs one.txt --matrix 'prompt=x, y; z'
is 1 prompt '"x, y"' && is 2 prompt '"z"'

# Dynamic prompts: chosen by the seed, the template kept, every combination on demand.
mkdir wild
printf 'cat\ndog\nfox\n' >wild/animals.txt
printf 'a {red|blue|green} __animals__, {2$$and $$x|y|z}\n' >dynamic.txt
jobs dynamic.txt --wildcards wild --seeds 1..30
count 30
cp "$out" first
jobs dynamic.txt --wildcards wild --seeds 1..30 && same first "$out"
check 'many prompts' test "$(sed 's/.*"prompt":"\([^"]*\)".*/\1/' first | sort -u | wc -l)" -gt 10
check 'the template is kept' grep -qF '"template":"a {red|blue|green} __animals__, {2$$and $$x|y|z}"' first
check 'no brace is left' sh -c "! sed 's/.*\"prompt\":\"\([^\"]*\)\".*/\1/' first | grep -q '[{}_]'"
printf 'a {red|blue} {cat|dog}\n' >dynamic.txt
jobs dynamic.txt --combinatorial
count 4
is 1 prompt '"a red cat"' && is 4 prompt '"a blue dog"'
jobs dynamic.txt --combinatorial --seeds 1,2
count 8
jobs dynamic.txt --no-dynamic
is 1 prompt '"a {red|blue} {cat|dog}"'
printf 'a {red|blue\nb __nothing__\n' >dynamic.txt
ends 2 'name one with --wildcards' "$dk" batch dynamic.txt -o folder
ends 2 'dynamic.txt:1:' "$dk" batch dynamic.txt -o folder --wildcards wild
check 'both lines' grep -q 'dynamic.txt:2:' "$err"

# Names: every setting, safe, unique, not ours to clash with.
printf '%s\n' 'a/b\c:d*?"<>|e' 'CON --name {prompt}' 'contact --name {prompt}' 'Contact --name {prompt}' ' --prompt "" --name {prompt}' \
    'x --name same' 'x --name SAME.png' 'x --name deep/{scheduler}/{steps:03}.png' 'a --name {{a}}' >names.txt
jobs names.txt --seed 1
is 1 file '"00001-1-a-b-c-d-e.png"'
is 2 file '"picture-CON.png"' && is 3 file '"picture-contact.png"' && is 4 file '"picture-Contact-2.png"'
is 5 file '"picture.png"' && is 6 file '"same.png"' && is 7 file '"SAME-2.png"'
is 8 file '"deep/ddim/008.png"' && is 9 file '"{a}.png"'
awk 'BEGIN { for (i = 0; i < 300; i++) printf "猫" ; print "" }' >cats.txt
jobs cats.txt
check 'a long name is cut between characters' test "$(job 1 file | wc -c)" -lt 180
mkdir '{x}'
run "$dk" batch one.txt -o '{x}' --dry-run
check 'braces of the folder stay' test "$status" -eq 0

# Shards, from the option or from where the process runs.
seq 10 | sed 's/^/cat /' >ten.txt
jobs ten.txt --shard 2/4 && count 3 && is 1 prompt '"cat 2"' && is 3 prompt '"cat 10"'
run env SLURM_ARRAY_TASK_ID=7 SLURM_ARRAY_TASK_MIN=5 SLURM_ARRAY_TASK_MAX=9 SLURM_ARRAY_TASK_STEP=2 SLURM_ARRAY_TASK_COUNT=3 \
    "$dk" batch ten.txt -o folder --dry-run --json
count 3 && is 1 prompt '"cat 2"'
run env OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "$dk" batch ten.txt -o folder --dry-run --json && count 5
run env PMI_RANK=0 PMI_SIZE=5 "$dk" batch ten.txt -o folder --dry-run --json && count 2
run env PMI_RANK=0 PMI_SIZE=5 "$dk" batch ten.txt -o folder --dry-run --json --shard none && count 10
run env PARALLEL_SEQ=2 PARALLEL_JOBSLOT=2 "$dk" batch ten.txt -o folder --dry-run --json && count 10
ends 2 'no even steps' env SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=9 SLURM_ARRAY_TASK_COUNT=3 \
    "$dk" batch ten.txt -o folder
for shard in 0/4 5/4 x 1/ /2 1/0 -1/4; do ends 2 'shard: found' "$dk" batch ten.txt -o folder --shard=$shard; done
check 'no folder was made' test ! -e folder

finish
