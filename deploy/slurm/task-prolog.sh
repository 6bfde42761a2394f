#!/bin/bash
# TaskProlog, on the nodes: tells programs of the job its id. One that joins by itself announces more than its nodes, and
# takes the job over from `signalbox jobs keep`, which leaves it to that program.
here=${BASH_SOURCE[0]%/*}
trap 'exit 0' EXIT

echo "export SIGNALBOX_JOB=slurm-${SLURM_HET_JOB_ID:-$SLURM_JOB_ID}"
echo 'export SIGNALBOX_TAKE_OVER=1'
address= # the environment of the job may have one
[[ -r $here/settings.sh ]] && . "$here/settings.sh"
[[ -z $address ]] || echo "export SIGNALBOX_ADDRESS=$address"
