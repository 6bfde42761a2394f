#!/bin/sh
# What mpirun uses in place of ssh: HOST is a network namespace, which gets a host name of its own.
#   enter.sh HOST COMMAND…
host=$1
shift
exec ip netns exec "$host" unshare --uts sh -c "hostname '$host'; $*"
