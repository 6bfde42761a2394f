#!/bin/sh
# Replacement of ssh for mpirun: the node of rank R is named nR and is the R-th of the network namespaces.
#   enter.sh NAMESPACE,NAMESPACE,… nR COMMAND…
# The names of namespaces cannot be those of nodes, because Open MPI accepts no underscores there.
node=$2
namespace=$(printf %s "$1" | cut -d , -f $((${node#n} + 1)))
shift 2
# Ranks of MPI poll without pause; the switches, on the same processors, go first.
exec ip netns exec "$namespace" nice -n 19 unshare --uts sh -c "hostname '$node'; $*"
