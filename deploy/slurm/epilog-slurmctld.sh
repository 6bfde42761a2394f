#!/bin/bash
# EpilogSlurmctld: removes the file of prolog-slurmctld.sh, so that the job is deregistered. Slurm runs it however a job ends,
# and when it is requeued. It always exits with 0, after at most 0.9 s.
here=${BASH_SOURCE[0]%/*}
trap 'exit 0' EXIT

release() {
    if ((SLURM_HET_JOB_OFFSET == 0)); then
        rm -f "$jobs/slurm-$SLURM_JOB_ID.yaml" "$jobs/.slurm-$SLURM_JOB_ID"{,.lock,+*}
    else # the job ends with its first component
        rm -f "$jobs/.slurm-$SLURM_HET_JOB_ID+$SLURM_HET_JOB_OFFSET"
    fi
}

read -r -t 0.9 < <(exec 2>/dev/null && . "$here/settings.sh" && [[ -d $jobs ]] && release)
