#!/bin/bash
# EpilogSlurmctld: removes the file of prolog-slurmctld.sh, so that the job is released. Slurm runs it however a job ends,
# also when it is requeued. Always exits 0, after 0.9 s at most.
here=${BASH_SOURCE[0]%/*}
trap 'exit 0' EXIT

release() {
    if ((SLURM_HET_JOB_OFFSET == 0)); then
        rm -f "$jobs/slurm-$SLURM_JOB_ID.yaml" "$jobs/.slurm-$SLURM_JOB_ID"{,.lock,+*}
    else # the first component's end is that of the job
        rm -f "$jobs/.slurm-$SLURM_HET_JOB_ID+$SLURM_HET_JOB_OFFSET"
    fi
}

read -r -t 0.9 < <(exec 2>/dev/null && . "$here/settings.sh" && [[ -d $jobs ]] && release)
