#!/usr/bin/env bash
# Open vSwitch on a machine where no init system runs it.
#
#   scripts/openvswitch.sh run COMMAND...   run the command with Open vSwitch up; stop it again if this started it
#   scripts/openvswitch.sh start | stop     by hand; stop does nothing to daemons that this script did not start
#   scripts/openvswitch.sh status
#
# Daemons that already run are used and left alone. Of several commands at once, the last one to end stops the
# daemons. OVS_RUNDIR, OVS_DBDIR, OVS_SYSCONFDIR and OVS_LOGDIR mean what they mean to ovs-ctl.
#
# SIGINT, SIGTERM and SIGHUP end the command and then the daemons, whenever they arrive: the script itself only notes
# these signals.
set -euo pipefail

readonly ovs_ctl=${OVS_PKGDATADIR:-/usr/share/openvswitch}/scripts/ovs-ctl
readonly rundir=${OVS_RUNDIR:-/var/run/openvswitch}
readonly mark=SIGNALBOX_STARTED_THIS=yes # in the environment of daemons that this script starts, from their first moment
PATH=$PATH:/usr/sbin:/sbin

die() {
    printf 'openvswitch: %s\n' "$@" >&2
    exit 1
}

# Run ovs-ctl in a session of its own, because an interrupted start or stop would leave a daemon. Show its output only
# after a failure: in a container ovs-ctl always warns of missing kernel modules and of limits.
quietly() {
    local output
    output=$(
        trap '' INT TERM HUP
        setsid --wait env --default-signal=INT,TERM,HUP "$mark" "$ovs_ctl" "$@" 8>&- 9>&- 2>&1 </dev/null
    ) || die "ovs-ctl failed: $*" "$output"
}

running() { "$ovs_ctl" status >/dev/null 2>&1; }

# ours DAEMON: whether the daemon runs and was started by this script.
ours() {
    local pid
    pid=$(cat "$rundir/$1.pid" 2>/dev/null) && grep -qzxF "$mark" "/proc/$pid/environ" 2>/dev/null
}

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
}

stop() {
    local others=()
    ours ovs-vswitchd || others+=(--no-ovs-vswitchd)
    ours ovsdb-server || others+=(--no-ovsdb-server)
    ((${#others[@]} < 2)) || return 0
    need_root
    quietly "${others[@]}" stop
}

leave() {
    trap '' INT TERM HUP
    lock
    flock --exclusive --nonblock 8 2>/dev/null && stop # fails if a signal arrived before "run" opened descriptor 8
    return 0
}

# The command keeps the terminal, so Ctrl-C and a closed terminal also reach the command. This script passes on the
# signals that only the script receives. Bash starts a background job with SIGINT ignored. The job resets SIGINT, then
# writes a byte to a pipe; a SIGINT that the script received earlier is passed on after this byte. A signal cannot replace
# the pipe: if it interrupts "wait" while the command ends, bash 5.2 loses the exit status of the command.
noted='' child='' listens='' woken=''

note() {
    noted=$1 woken=yes
    [[ $1 == INT ]] || pass
}

pass() {
    [[ -n $child && -n $noted ]] || return 0
    [[ $noted != INT || -n $listens ]] || return 0
    kill "-${noted/HUP/TERM}" "$child" 2>/dev/null || true
}

run() {
    local status=0 again ready
    trap 'note INT' INT
    trap 'note TERM' TERM
    trap 'note HUP' HUP
    trap leave EXIT
    lock
    exec 8>"$rundir/signalbox-use.lock" && flock --shared 8
    [[ -n $noted ]] || start
    exec 9>&-
    [[ -z $noted ]] || return $((128 + $(kill -l "$noted")))
    exec {ready}<> <(:)
    (
        trap - INT
        printf . >&"$ready"
        exec setpriv --pdeathsig TERM "$@" 8>&- {ready}>&-
    ) <&0 &
    child=$!
    pass
    until read -r -n 1 -t 0.2 -u "$ready" _ || ! kill -0 "$child" 2>/dev/null; do :; done
    exec {ready}>&-
    listens=yes
    pass
    wait "$child" || status=$?
    while [[ -n $woken ]]; do # a signal may have ended "wait" but not the command; 127: the command had ended before
        woken=''
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
        case " $* " in # these programs note signals (mininet_topos/ending.py); until they do, signals are blocked
            *"signalbox lab "* | *" -m mininet_topos.demo "*) set -- env --block-signal=INT,TERM,HUP "$@" ;;
        esac
        if running && ! ours ovs-vswitchd; then # foreign daemons: nothing to start, nothing to stop
            exec "$@"
        fi
        run "$@"
        ;;
    start) lock && start ;;
    stop) lock && stop ;;
    status) exec "$ovs_ctl" status ;;
    *) die "usage: $0 run COMMAND... | start | stop | status" ;;
esac
