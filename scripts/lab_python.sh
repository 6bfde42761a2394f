#!/usr/bin/env bash
# Runs Python in its own namespaces of network, mounts and processes, with a private Open vSwitch. Needs root.
#
#   scripts/lab_python.sh -m pytest tests/lab/test_lab.py
#   .venv/bin/python -m pytest tests/lab --dist loadfile --tx '3*popen//python=scripts/lab_python.sh'
#
# The files of Open vSwitch are in memory. Processes, bridges and namespaces that the command leaves behind end with it.
set -euo pipefail

if [[ ${1:-} != --inside ]]; then
    ((EUID == 0)) || {
        echo "lab_python: making namespaces needs root:  sudo $0 ..." >&2
        exit 1
    }
    exec unshare --net --mount --pid --fork --kill-child --mount-proc "$0" --inside "$@"
fi
shift
ip link set lo up
mount -t sysfs sysfs /sys # shows the interfaces of this network
for directory in /run /etc/openvswitch /var/lib/openvswitch /var/log/openvswitch; do
    mkdir -p "$directory"
    mount -t tmpfs tmpfs "$directory"
done
root=$(dirname "$(dirname "$(realpath "$0")")")
exec "$root/scripts/openvswitch.sh" run "$root/.venv/bin/python" "$@"
