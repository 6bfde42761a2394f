#!/bin/bash
# Removes the files of jobs that Slurm does not know any more: slurmctld was killed while it ran their epilog, or has lost
# its state. prolog-slurmctld.sh starts it in the background and does not wait; it asks slurmctld every ten minutes at most.
here=${BASH_SOURCE[0]%/*}
. "$here/settings.sh" && [[ -d $jobs ]] && cd "$jobs" || exit # where settings are wrong: not in any other folder
shopt -s nullglob

[[ $1 == --now || -z $(find .swept -mmin -10 2>/dev/null) ]] || exit 0
touch .swept
files=(slurm-*.yaml) # before Slurm is asked: a job that starts meanwhile is left alone
((${#files[@]})) || exit 0
known=$(timeout 30 squeue --all --noheader --states=all --format=%A) || exit
for file in "${files[@]}"; do
    number=${file#slurm-}
    [[ $'\n'$known$'\n' == *$'\n'"${number%.yaml}"$'\n'* ]] || rm -f "$file"
done
