#!/bin/bash
# EpilogSlurmctld: removes the file that prolog-slurmctld.sh wrote, so that the job is deregistered. Slurm runs this
# script at every end of a job, and when a job is requeued. The script always exits with 0, after at most 0.9 s.
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
