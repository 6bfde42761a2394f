#!/bin/bash
# TaskProlog, on the nodes: passes the job's id to the job's programs. A program that joins by itself announces more than
# the job's nodes. The program takes the job over from `signalbox jobs keep`, which then leaves the job alone.
here=${BASH_SOURCE[0]%/*}
trap 'exit 0' EXIT

echo "export SIGNALBOX_JOB=slurm-${SLURM_HET_JOB_ID:-$SLURM_JOB_ID}"
echo 'export SIGNALBOX_TAKE_OVER=1'
address= # the job's environment may contain one
[[ -r $here/settings.sh ]] && . "$here/settings.sh"
[[ -z $address ]] || echo "export SIGNALBOX_ADDRESS=$address"
