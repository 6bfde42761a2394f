#!/usr/bin/env bash
# Prepares this checkout: system packages that are missing, and the Python environment in .venv.
#
#   scripts/bootstrap.sh           install what is missing; does nothing when nothing changed since the last time
#   scripts/bootstrap.sh --check   only say what is missing; exit status 1 when something is
#   scripts/bootstrap.sh --libraries   also Open MPI, Slurm, iperf3, mptcpize, Chromium, docker-compose, debootstrap, and PyTorch in .venv-torch unless SIGNALBOX_TORCH names
#                                      an environment that has it, for real jobs on the emulated fabric
#
# Root is needed only to install missing system packages with apt (Debian 12; Ubuntu is supported but untested).
# Python packages come from requirements/lock.txt, every file checked against its hash.
set -Eeuo pipefail

readonly root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly venv=$root/.venv
readonly stamp=$venv/signalbox-setup
readonly torch_venv=$root/.venv-torch
readonly torch_cache=${XDG_CACHE_HOME:-${HOME:-$root/out}/.cache}/signalbox
readonly mininet_package=/usr/lib/python3/dist-packages/mininet
PATH=$PATH:/usr/sbin:/sbin # Debian's folders of ovs-vswitchd and ethtool, which are missing in a plain user's PATH

say() { printf 'bootstrap: %s\n' "$*"; }

die() {
    printf 'bootstrap: %s\n' "$@" >&2
    exit 1
}

has() { command -v "$1" >/dev/null; }

# The first Python that is new enough; 3.11 is the version everything is tested with.
find_python() {
    local name
    for name in python3.11 python3 python3.12 python3.13; do
        if has "$name" && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s\n' "$name"
            return
        fi
    done
}

# Debian splits venv and ensurepip off into a package of their own.
lacks_venv() { ! "$1" -c 'import ensurepip, venv' 2>/dev/null; }

missing_packages() {
    local python
    has make || echo make
    { has ovs-vswitchd && has ovs-vsctl && has ovs-ofctl; } || echo openvswitch-switch
    { has mnexec && [[ -d $mininet_package ]]; } || echo mininet
    { has ip && has tc; } || echo iproute2
    has ethtool || echo ethtool
    has ping || echo iputils-ping
    has ps || echo procps
    { has haproxy || [[ -x /usr/sbin/haproxy ]]; } || echo haproxy
    { has prometheus && has promtool; } || echo prometheus
    { has etcd && has etcdctl; } || echo etcd-server etcd-client
    { has spin && has gcc; } || echo spin gcc libc6-dev
    { has prometheus-alertmanager && has amtool; } || echo prometheus-alertmanager
    [[ -x $venv/bin/python ]] && return
    python=$(find_python)
    if [[ -z $python ]]; then
        echo python3 python3-venv
    elif lacks_venv "$python"; then
        echo "$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
    fi
}

missing_library_packages() {
    has mpirun || echo openmpi-bin
    has iperf3 || echo iperf3
    has mptcpize || echo mptcpize
    has slurmctld || echo slurmctld
    has slurmd || echo slurmd
    has sbatch || echo slurm-client
    has munged || echo munge
    has chromium || echo chromium
    has chromedriver || echo chromium-driver
    has docker-compose || echo docker-compose
    has debootstrap || echo debootstrap
    /usr/bin/python3 -c 'import mpi4py' 2>/dev/null || echo python3-mpi4py
    /usr/bin/python3 -c 'import numpy' 2>/dev/null || echo python3-numpy
}

distribution() { (. /etc/os-release 2>/dev/null && printf '%s' "${ID:-unknown} ${VERSION_ID:-}") || printf unknown; }

install_packages() {
    local system server
    system=$(distribution)
    case $system in
        "debian 12") ;;
        debian* | ubuntu*) say "$system is untested; Debian 12 is what this is tested on" ;;
        *) die "this system ($system) has no apt packages that are known to work." \
            "Install the equivalents of: $*" "and run this again; it then needs no root." ;;
    esac
    ((EUID == 0)) || die "these system packages are missing: $*" \
        "Installing them needs root:  sudo apt-get install --no-install-recommends $*" \
        "or run this script as root once. Without them present, nothing else here needs root."
    say "installing as root, with apt: $*"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get -q update && apt-get -q install -y --no-install-recommends "$@"; } >"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        die "apt could not install: $*" "Its last lines are above."
    }
    # Debian's packages start servers that listen on every address; only the binaries are wanted here.
    for server in haproxy prometheus prometheus-alertmanager slurmctld slurmd munge; do
        if [[ " $* " == *" $server "* && -d /run/systemd/system ]]; then
            systemctl disable --now "$server" >>"$log" 2>&1 || say "could not stop the $server service; see systemctl"
        fi
    done
}

fingerprint() {
    (cd "$root" && printf '%s\n' "$root" && sha256sum scripts/bootstrap.sh pyproject.toml {client,offline}/pyproject.toml client/VERSION requirements/*.txt) | sha256sum
}

up_to_date() { [[ -x $venv/bin/python && -e $stamp && $(<"$stamp") == "$(fingerprint)" ]]; }

create_venv() {
    local python
    "$venv/bin/python" -c '' 2>/dev/null && return
    python=$(find_python)
    [[ -n $python ]] || die "no Python 3.11 or newer is on PATH." "Install one and run this again."
    say "creating .venv with $("$python" --version)"
    "$python" -m venv --clear "$venv"
}

install_python_packages() {
    cd "$root"
    create_venv
    say "installing the locked Python packages into .venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/uv.txt
    export VIRTUAL_ENV=$venv
    "$venv/bin/uv" pip sync --quiet --compile-bytecode --require-hashes --build-constraints requirements/build-constraints.txt \
        requirements/lock.txt
    "$venv/bin/uv" pip install --quiet --no-deps --no-build-isolation -e client -e . -e offline
    # Mininet alone: the rest of the system's packages must not leak into a locked environment.
    ln -sfn "$mininet_package" "$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/mininet"
    fingerprint >"$stamp"
}

# All checkouts of this machine with the same lock and Python share one environment; .venv-torch is a link to it. The
# environment is complete when it has the stamp. pip installs PyTorch, because its builds are not on the usual index, and
# pip's own settings name other indexes. An import compiles the few files that are used, and shows that the installation
# works.
install_torch() {
    local python made
    python=$("$venv/bin/python" -c 'import platform, sys; print(sys.base_prefix, sys.version, platform.machine())')
    made=$torch_cache/torch-$({ cat "$root/requirements/torch.txt" && echo "$python"; } | sha256sum | cut -c -16)
    mkdir -p "$torch_cache"
    exec 8>"$torch_cache/lock"
    flock 8
    if [[ ! -e $made/signalbox-setup ]]; then
        say "installing PyTorch into $made"
        "$venv/bin/python" -m venv --clear --without-pip "$made"
        "$venv/bin/python" -m pip --python "$made/bin/python" install --quiet --disable-pip-version-check --no-deps \
            --no-compile --require-hashes -r "$root/requirements/torch.txt" || die "pip could not install PyTorch; what it said is above." \
            "The build without CUDA is for Python 3.11 on x86-64 and is not on the usual index: name PyTorch's own with" \
            "PIP_EXTRA_INDEX_URL, a folder that has the file with PIP_FIND_LINKS, or an environment that has it with SIGNALBOX_TORCH." \
            "SIGNALBOX_LIBRARIES=no make test  skips the tests that need PyTorch or Open MPI."
        env -u PYTHONDONTWRITEBYTECODE "$made/bin/python" -c 'import torch.distributed'
        touch "$made/signalbox-setup"
    fi
    [[ -L $torch_venv ]] || rm -rf "$torch_venv"
    ln -sfn "$made" "$torch_venv"
    exec 8>&-
}

# Git calls it with the message of each commit. A hook that is there already stays.
install_commit_hook() {
    local hook
    hook=$(git -C "$root" rev-parse --git-path hooks/commit-msg 2>/dev/null) || return 0 # not a checkout
    [[ $hook == /* ]] || hook=$root/$hook
    [[ ! -e $hook ]] || return 0
    mkdir -p "${hook%/*}"
    # shellcheck disable=SC2016 # the hook expands it
    printf '%s\n' '#!/bin/sh' 'check=$(git rev-parse --show-toplevel)/scripts/plain_english.py' \
        '[ ! -x "$check" ] || exec "$check" --message "$1"' >"$hook"
    chmod +x "$hook"
}

check() {
    local missing
    missing=$(missing_packages | xargs)
    [[ -z $missing ]] || say "missing system packages (installing them needs root): $missing"
    up_to_date || say ".venv is missing or out of date (needs no root)"
    [[ -z $missing ]] && up_to_date && say "everything is in place"
}

main() {
    local missing libraries=
    if [[ $# -eq 1 && $1 == --check ]]; then
        check
        return
    fi
    [[ $# -eq 1 && $1 == --libraries ]] && libraries=yes && shift
    [[ $# -eq 0 ]] || die "usage: scripts/bootstrap.sh [--check | --libraries]"
    exec 9<"${BASH_SOURCE[0]}" # two makes at once: the second waits and finds everything done
    flock 9
    missing=$({
        missing_packages
        [[ -z $libraries ]] || missing_library_packages
    } | xargs)
    if [[ -n $missing ]]; then
        log=$(mktemp)
        trap 'rm -f "$log"' EXIT
        # shellcheck disable=SC2086 # a list of words
        install_packages $missing
    fi
    trap 'die "the Python environment could not be made; what failed is above."' ERR
    if ! up_to_date; then
        install_python_packages
        install_commit_hook
        say "ready: .venv/bin/signalbox"
    fi
    [[ -z $libraries || -n ${SIGNALBOX_TORCH:-} ]] || install_torch
}

[[ ${BASH_SOURCE[0]} != "$0" ]] || main "$@" # tests source this file to call single functions
