#!/usr/bin/env bash
# Builds wheels, so that pip needs no compiler and no checkout: `make dist` calls this.
#
#   scripts/wheels.sh FOLDER [NAME...]   NAME: signalbox-client, signalbox-controller, signalbox-offline or ryu; all without one
#
# Wheels of Signalbox are built from a copy of the sources, with the tools in .venv. The package index has no wheel of
# Ryu, and Ryu's build fails with recent setuptools; requirements/build-constraints.txt names the versions that work.
# The same sources give the same files.
set -Eeuo pipefail

readonly root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly python=$root/.venv/bin/python
export SOURCE_DATE_EPOCH=315532800 # 1980, the earliest time that a zip file can store

die() {
    printf 'wheels: %s\n' "$@" >&2
    exit 1
}

ours() {
    # Files that other builds left behind would get into the wheel.
    tar -C "$root" --exclude=__pycache__ --exclude=build --exclude='*.egg-info' -cf - \
        pyproject.toml README.md LICENSE client controller offline mininet_topos | tar -C "$work" -xf -
    "$root/.venv/bin/uv" build --quiet --wheel --no-build-isolation --python "$python" --package "$1" -o "$folder" "$work"
}

ryu() {
    awk '/^ryu==/ { on = 1 } on; on && !/\\$/ { exit }' "$root/requirements/lock.txt" >"$work/ryu.txt"
    # For builds, pip before 25.3 reads PIP_CONSTRAINT, and later versions read only PIP_BUILD_CONSTRAINT.
    PIP_CONSTRAINT=$root/requirements/build-constraints.txt PIP_BUILD_CONSTRAINT=$root/requirements/build-constraints.txt \
        "$python" -m pip --quiet --disable-pip-version-check wheel --no-cache-dir --no-deps --require-hashes \
        -r "$work/ryu.txt" -w "$folder"
}

[[ $# -gt 0 && $1 != -* ]] || die "usage: scripts/wheels.sh FOLDER [NAME...]"
[[ -x $python ]] || die "there is no .venv; run scripts/bootstrap.sh"
mkdir -p "$1"
folder=$(cd "$1" && pwd)
shift
[[ $# -gt 0 ]] || set -- signalbox-client signalbox-controller signalbox-offline ryu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for name; do
    case $name in
        signalbox-client | signalbox-controller | signalbox-offline) ours "$name" ;;
        ryu) ryu ;;
        *) die "no wheel of $name is built here" ;;
    esac
done
