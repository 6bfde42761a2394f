#!/bin/bash
# PrologSlurmctld: writes a file that announces the job's nodes, which `signalbox jobs keep` registers. Always exits 0,
# after 0.9 s at most: what takes longer goes on without it. It talks to no controller. Jobs on one node have no file.
here=${BASH_SOURCE[0]%/*}
trap 'exit 0' EXIT

announce() {
    ((SLURM_HET_JOB_OFFSET == 0)) || return # the first component of a heterogeneous job announces the nodes of all
    local nodes=${SLURM_HET_JOB_NODELIST:-$SLURM_JOB_NODELIST} name=slurm-$SLURM_JOB_ID
    [[ $nodes == *[][,]* ]] || return
    # Under a name that is left alone until it is whole. The lease outlives a reboot of this machine.
    printf 'job_id: %s\nhosts: "%s"\nlease_s: 600\n' "$name" "$nodes" >"$jobs/.$name" &&
        mv -f "$jobs/.$name" "$jobs/$name.yaml" || rm -f "$jobs/.$name"
}

# Its end closes the pipe; `read` waits for that, or until the time is over. Slurm's own pipe it must not have.
read -r -t 0.9 < <(exec 2>/dev/null && . "$here/settings.sh" && announce)
setsid --fork "$here/sweep.sh" </dev/null &>/dev/null
