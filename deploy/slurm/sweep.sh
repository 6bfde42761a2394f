#!/bin/bash
# Removes the files of jobs that Slurm no longer knows. Such files remain when slurmctld was killed during a job's epilog or
# lost its state. prolog-slurmctld.sh starts this script in the background and does not wait for it. The script queries
# slurmctld at most every ten minutes.
here=${BASH_SOURCE[0]%/*}
. "$here/settings.sh" && [[ -d $jobs ]] && cd "$jobs" || exit # with wrong settings, do nothing in another folder
shopt -s nullglob

[[ $1 == --now || -z $(find .swept -mmin -10 2>/dev/null) ]] || exit 0
touch .swept
files=(slurm-*.yaml) # listed before the query, so that the files of jobs that start meanwhile stay
((${#files[@]})) || exit 0
known=$(timeout 30 squeue --all --noheader --states=all --format=%A) || exit
for file in "${files[@]}"; do
    number=${file#slurm-}
    [[ $'\n'$known$'\n' == *$'\n'"${number%.yaml}"$'\n'* ]] || rm -f "$file"
done
