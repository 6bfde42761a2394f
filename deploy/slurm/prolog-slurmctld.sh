#!/bin/bash
# PrologSlurmctld: writes a file that announces the job's nodes, which `signalbox jobs keep` registers. It always exits with 0,
# after at most 0.9 s; work that takes longer continues in the background. It contacts no controller. Jobs on one node need no
# file.
here=${BASH_SOURCE[0]%/*}
trap 'exit 0' EXIT

announce() {
    local name=slurm-${SLURM_HET_JOB_ID:-$SLURM_JOB_ID} nodes=\"$SLURM_JOB_NODELIST\"
    if [[ $SLURM_HET_JOB_ID ]]; then # one job with the nodes of all components, which start in turn or at once
        exec 9>"$jobs/.$name.lock" && flock -w 0.5 9
        echo "$nodes" >"$jobs/.$name+$SLURM_HET_JOB_OFFSET"
        nodes=$(paste -sd, <(cat "$jobs/.$name"+*))
    fi
    [[ $nodes == *[][,]* ]] || return
    # The file has a name that readers ignore until it is complete. The lease outlives a reboot of this machine.
    printf 'job_id: %s\nendpoints: [%s]\nlease_s: 600\n' "$name" "$nodes" >"$jobs/.$name" &&
        mv -f "$jobs/.$name" "$jobs/$name.yaml" || rm -f "$jobs/.$name"
}

# `read` waits until the end of the work closes the pipe, or until the time is over. The work must not inherit Slurm's own pipe.
read -r -t 0.9 < <(exec 2>/dev/null && . "$here/settings.sh" && [[ -d $jobs ]] && announce)

# With -m, bash puts sweep.sh into a separate process group at once: slurmctld kills the group of this script when the script
# ends.
set -m
"$here/sweep.sh" </dev/null &>/dev/null &
