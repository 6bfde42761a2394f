#!/bin/sh
# What mpirun uses in place of ssh: rank R's node is called nR and is the R-th of the network namespaces.
#   enter.sh NAMESPACE,NAMESPACE,… nR COMMAND…
# Namespaces are not used as names of nodes, because Open MPI accepts no underscores in those.
node=$2
namespace=$(printf %s "$1" | cut -d , -f $((${node#n} + 1)))
shift 2
# Ranks of MPI poll without pause; the switches, on the same processors, go first.
exec ip netns exec "$namespace" nice -n 19 unshare --uts sh -c "hostname '$node'; $*"
