#!/usr/bin/env bash
# Builds wheels, so that pip needs no compiler and no checkout: `make dist` calls this.
#
#   scripts/wheels.sh FOLDER [NAME...]   NAME: signalbox-client, signalbox-controller, signalbox-offline or ryu; all without one
#
# Ours are built from a copy of the sources, with the tools that .venv has. Ryu is on the index without a wheel, and its
# build fails with any recent setuptools; requirements/build-constraints.txt names those that it works with.
# The same sources give the same files.
set -Eeuo pipefail

readonly root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly python=$root/.venv/bin/python
export SOURCE_DATE_EPOCH=315532800 # 1980, the earliest that a zip file can have

die() {
    printf 'wheels: %s\n' "$@" >&2
    exit 1
}

ours() {
    # What is left of other builds would get into the wheel.
    tar -C "$root" --exclude=__pycache__ --exclude=build --exclude='*.egg-info' -cf - \
        pyproject.toml README.md LICENSE client controller offline mininet_topos | tar -C "$work" -xf -
    "$root/.venv/bin/uv" build --quiet --wheel --no-build-isolation --python "$python" --package "$1" -o "$folder" "$work"
}

ryu() {
    awk '/^ryu==/ { on = 1 } on; on && !/\\$/ { exit }' "$root/requirements/lock.txt" >"$work/ryu.txt"
    # pip before 25.3 takes the first of the two for builds, later ones only the second.
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
