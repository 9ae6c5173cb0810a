#!/bin/sh
# batch-slurm.sh - an array of four tasks under a real Slurm, which is started here: the same folder as one process makes.
# SPDX-License-Identifier: MIT
# Needs munged, slurmctld and slurmd (Debian: slurm-wlm, munge) and root; without them it is skipped.
. tests/shell.inc
PATH=$PATH:/usr/sbin:/sbin
skip() {
    echo "batch-slurm: $1, so nothing was tried"
    skipped=1
    ok
    finish
    exit
}
for program in munged munge slurmctld slurmd sbatch sinfo squeue; do
    command -v $program >/dev/null || skip "there is no $program (Debian: apt-get install slurm-wlm munge)"
done
[ "$(id -u)" = 0 ] || skip 'not root'

place=$(mktemp -d /tmp/dk-slurm-XXXXXX) # a socket's path may have 107 bytes
host=$(hostname -s)
leave() {
    for name in slurmd slurmctld munged; do
        [ -s "$place/$name.pid" ] && kill "$(cat "$place/$name.pid")" 2>/dev/null
    done
    sleep 0.2
    rm -rf "$place"
}
trap leave EXIT
trap 'exit 1' INT TERM HUP
mkdir "$place/state" "$place/spool"
head -c 1024 /dev/urandom >"$place/key"
chmod 700 "$place" && chmod 600 "$place/key"
munged --force --socket="$place/munge" --key-file="$place/key" --pid-file="$place/munged.pid" \
    --log-file="$place/munged.log" --seed-file="$place/seed" >/dev/null 2>&1 || skip 'munged does not start here'
port=$((20000 + $$ % 20000))
cat >"$place/slurm.conf" <<EOF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$place/munge
CredType=cred/munge
SlurmctldPort=$port
SlurmdPort=$((port + 1))
StateSaveLocation=$place/state
SlurmdSpoolDir=$place/spool
SlurmctldPidFile=$place/slurmctld.pid
SlurmdPidFile=$place/slurmd.pid
SlurmctldLogFile=$place/slurmctld.log
SlurmdLogFile=$place/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1
ReturnToService=2
SlurmdParameters=config_overrides
MpiDefault=none
NodeName=$host NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=main Nodes=$host Default=YES MaxTime=INFINITE State=UP
EOF
SLURM_CONF=$place/slurm.conf
export SLURM_CONF
slurmctld -c >"$place/ctld.out" 2>&1 || skip 'slurmctld does not start here'
slurmd -c >"$place/slurmd.out" 2>&1 || skip 'slurmd does not start here'
for _ in $(seq 100); do
    sinfo -h -o %t 2>/dev/null | grep -q idle && break
    sleep 0.1
done
sinfo -h -o %t 2>/dev/null | grep -q idle || {
    tail -n 3 "$place/slurmctld.log" "$place/slurmd.log" "$place/slurmd.out" 2>/dev/null
    skip 'the Slurm node does not come up'
}

seq 12 | sed 's/^/a green thing, number /' >12.txt
options='--steps 1 --size 8x8 --guidance 1'
# shellcheck disable=SC2086
"$dk" batch 12.txt -o plain $options -q >/dev/null
# submit FOLDER OPTIONS...: waits for the array's end.
submit() {
    folder=$1
    shift
    # shellcheck disable=SC2086
    DARKROOM=$dk timeout 120 sbatch --wait --chdir="$work" "$root/samples/slurm/batch-array.sh" 12.txt "$folder" $options "$@" >"$out" 2>&1
}
same_pictures() { diff -r -x manifest.jsonl plain "$1" >differences; }
done_jobs() { grep -o '"job":"[0-9a-f]*","outcome":"done"' "$1/manifest.jsonl" | sort; }

submit array
check 'the array ends well' test $? = 0
check 'the same folder' same_pictures array
check 'each picture once' test -z "$(done_jobs array | uniq -d)"
check 'four shards' test "$(cat darkroom-*_[1-4].log | grep -c 'shard [1-4] of 4, from the Slurm array')" = 4
check 'three pictures each' test "$(cat darkroom-*_[1-4].log | grep -c '3 of 3 done')" = 4
rm -f darkroom-*.log
mkdir claims
cp plain/manifest.jsonl claims/
cp "plain/$(ls plain | sed -n 2p)" claims/ # what is there already is not made again
submit claims --shard none
check 'tasks that share by claims' test $? = 0
check 'the same folder by claims' same_pictures claims
check 'all but one made once more' test "$(done_jobs claims | wc -l)" = $((12 + 11))
[ "$failed" -gt 0 ] && cat darkroom-*.log
finish
