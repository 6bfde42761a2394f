#!/bin/bash
# PrologSlurmctld: writes a file that announces the job's nodes, which `signalbox jobs keep` registers. Always exits 0,
# after 0.9 s at most: what takes longer goes on without it. It talks to no controller. Jobs on one node have no file.
here=${BASH_SOURCE[0]%/*}
trap 'exit 0' EXIT

announce() {
    local name=slurm-${SLURM_HET_JOB_ID:-$SLURM_JOB_ID} nodes=\"$SLURM_JOB_NODELIST\"
    if [[ $SLURM_HET_JOB_ID ]]; then # one job with the nodes of all components, which start one after the other or at once
        exec 9>"$jobs/.$name.lock" && flock -w 0.5 9
        echo "$nodes" >"$jobs/.$name+$SLURM_HET_JOB_OFFSET"
        nodes=$(paste -sd, <(cat "$jobs/.$name"+*))
    fi
    [[ $nodes == *[][,]* ]] || return
    # Under a name that is left alone until it is whole. The lease outlives a reboot of this machine.
    printf 'job_id: %s\nendpoints: [%s]\nlease_s: 600\n' "$name" "$nodes" >"$jobs/.$name" &&
        mv -f "$jobs/.$name" "$jobs/$name.yaml" || rm -f "$jobs/.$name"
}

# Its end closes the pipe; `read` waits for that, or until the time is over. Slurm's own pipe it must not have.
read -r -t 0.9 < <(exec 2>/dev/null && . "$here/settings.sh" && [[ -d $jobs ]] && announce)

# With -m, bash gives it a process group of its own before this script goes on: slurmctld kills that of the script at its end.
set -m
"$here/sweep.sh" </dev/null &>/dev/null &
