#!/bin/sh
# Replacement of ssh for mpirun: the node of rank R is named nR and is the R-th of the network namespaces.
#   enter.sh NAMESPACE,NAMESPACE,… nR COMMAND…
# Nodes are not named after their namespaces, because Open MPI accepts no underscores in the names of nodes.
node=$2
namespace=$(printf %s "$1" | cut -d , -f $((${node#n} + 1)))
shift 2
# Ranks of MPI poll without pause. Niceness 19 gives the switches on the same processors priority.
exec ip netns exec "$namespace" nice -n 19 unshare --uts sh -c "hostname '$node'; $*"
