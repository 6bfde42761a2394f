#!/usr/bin/env bash
# Open vSwitch on a machine where no init system runs it.
#
#   scripts/openvswitch.sh run COMMAND...   run the command with Open vSwitch up; stop it again if this started it
#   scripts/openvswitch.sh start | stop     by hand; stop does nothing to daemons that this script did not start
#   scripts/openvswitch.sh status
#
# Daemons that already run are used and left alone. Of several commands at once, the last one to end stops the
# daemons. OVS_RUNDIR, OVS_DBDIR, OVS_SYSCONFDIR and OVS_LOGDIR mean what they mean to ovs-ctl.
set -euo pipefail

readonly ovs_ctl=${OVS_PKGDATADIR:-/usr/share/openvswitch}/scripts/ovs-ctl
readonly rundir=${OVS_RUNDIR:-/var/run/openvswitch}
readonly marker=$rundir/started-by-signalbox
PATH=$PATH:/usr/sbin:/sbin

die() {
    printf 'openvswitch: %s\n' "$@" >&2
    exit 1
}

# ovs-ctl speaks of missing kernel modules and limits whenever it runs in a container: only a failure is worth reading.
quietly() {
    local output
    output=$("$ovs_ctl" "$@" 8>&- 9>&- 2>&1 </dev/null) || die "ovs-ctl $1 failed:" "$output"
}

running() { "$ovs_ctl" status >/dev/null 2>&1; }

# The marker holds the process it is about: daemons that were started since are not ours.
started_by_us() { [[ -e $marker ]] && cmp -s "$marker" "$rundir/ovs-vswitchd.pid"; }

need_root() {
    ((EUID == 0)) || [[ -w $rundir ]] || die "starting and stopping Open vSwitch needs root:  sudo $0 ..."
}

# File descriptor 9 serialises starting and stopping; a shared lock on 8 says "in use".
lock() {
    mkdir -p "$rundir" 2>/dev/null || need_root
    exec 9>"$rundir/signalbox-start.lock" && flock 9
}

start() {
    [[ -x $ovs_ctl ]] || die "Open vSwitch is not installed; run scripts/bootstrap.sh"
    running && return
    need_root
    quietly --system-id=random --no-mlockall --no-record-hostname start
    cp "$rundir/ovs-vswitchd.pid" "$marker"
}

stop() {
    started_by_us || return 0
    need_root
    quietly stop
    rm -f "$marker"
}

enter() {
    lock
    exec 8>"$rundir/signalbox-use.lock" && flock --shared 8
    start
    exec 9>&-
}

leave() {
    lock
    flock --exclusive --nonblock 8 && stop
    return 0
}

# The command keeps the terminal, Ctrl-C reaches it, and SIGTERM to this script is passed on.
run() {
    local child status=0 again interrupted=
    enter
    trap leave EXIT
    trap 'interrupted=yes' INT
    (
        trap - INT # background jobs of a script ignore SIGINT otherwise
        exec "$@" 8>&-
    ) <&0 &
    child=$!
    trap 'interrupted=yes; kill -TERM "$child" 2>/dev/null || true' TERM HUP
    wait "$child" || status=$?
    while [[ -n $interrupted ]]; do # the signal may have ended the wait and not the command; 127: it had ended before
        interrupted=
        again=0
        wait "$child" 2>/dev/null || again=$?
        ((again == 127)) || status=$again
    done
    return "$status"
}

case ${1:-} in
    run)
        shift
        [[ $# -gt 0 ]] || die "run what?  $0 run COMMAND..."
        if running && ! started_by_us; then # foreign daemons: nothing to start, nothing to stop
            exec "$@"
        fi
        run "$@"
        ;;
    start) lock && start ;;
    stop) lock && stop ;;
    status) exec "$ovs_ctl" status ;;
    *) die "usage: $0 run COMMAND... | start | stop | status" ;;
esac
