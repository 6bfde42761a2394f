#!/usr/bin/env bash
# Builds the Debian package of the controller, which contains its own Python environment: `make deb` calls this.
#
#   scripts/deb.sh FOLDER
#
# The package is for Debian 12 and is built on Debian 12, because the environment uses the system's Python 3.11. The
# script needs no root. requirements/deb.txt lists the Python packages; every file is checked against its hash. The same
# sources give the same file.
set -Eeuo pipefail

readonly root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly uv=$root/.venv/bin/uv
readonly python=/usr/bin/python3
readonly version=$(<"$root/client/VERSION")
readonly name=signalbox-controller
# Each version has its own folder, so an upgrade removes the files of the running version only when all new files are
# installed.
readonly environment=usr/lib/signalbox/$version
export SOURCE_DATE_EPOCH=315532800 PYTHONHASHSEED=0

die() {
    printf 'deb: %s\n' "$@" >&2
    exit 1
}

install_environment() {
    local site=$tree/$environment/lib/python3.11/site-packages
    local install=("$uv" pip install --quiet --no-config --python "$python" --target "$site" --link-mode copy --no-deps)
    "$root/scripts/wheels.sh" "$work/wheels" signalbox-client signalbox-controller
    "${install[@]}" --require-hashes --build-constraints "$root/requirements/build-constraints.txt" \
        -r "$root/requirements/deb.txt"
    "${install[@]}" --no-index --find-links "$work/wheels" "signalbox-client==$version" "signalbox-controller==$version"
    # Remove uv's additions: commands that would start another Python, and files that contain times.
    rm -rf "$site/bin" "$site/.lock" "$site"/*.dist-info/uv_cache.json
    sed -i '/uv_cache.json/d' "$site"/signalbox_*.dist-info/RECORD
    # Make only those files of a virtual environment for which Python looks.
    mkdir -p "$tree/$environment/bin"
    ln -s ../../../../bin/python3 "$tree/$environment/bin/python"
    printf 'home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11\n' >"$tree/$environment/pyvenv.cfg"
    chmod -R u=rwX,go=rX "$site"
    # Compiled files contain no times of their sources: dpkg installs sources and compiled files together.
    "$python" -W ignore -m compileall -q -s "$tree" -p / --invalidation-mode unchecked-hash "$site"
    printf '#!/%s/bin/python -I\n%s\n' "$environment" \
        "$(printf '%s\n' 'from signalbox.__main__ import main' '' 'if __name__ == "__main__":' '    main()')" \
        >"$tree/$environment/bin/signalbox"
    chmod 755 "$tree/$environment/bin/signalbox"
}

install_files() {
    local deploy=$root/deploy doc=$tree/usr/share/doc/$name
    install -D -m 644 -t "$tree/usr/lib/systemd/system" "$deploy"/systemd/*.service
    install -D -m 644 "$deploy/systemd/sysusers.conf" "$tree/usr/lib/sysusers.d/signalbox.conf"
    install -D -m 644 "$deploy/systemd/tmpfiles.conf" "$tree/usr/lib/tmpfiles.d/signalbox.conf"
    install -D -m 644 "$deploy/debian/signalbox.toml" "$tree/etc/signalbox/signalbox.toml"
    install -D -m 755 -t "$tree/usr/share/$name" "$deploy/members/make-files.sh"
    install -D -m 644 "$deploy/debian/copyright" "$doc/copyright"
    install -D -m 644 "$deploy/debian/lintian-overrides" "$tree/usr/share/lintian/overrides/$name"
    gzip -9n <"$deploy/debian/changelog" >"$doc/changelog.gz"
    mkdir -p "$tree/usr/bin" "$tree/usr/share/bash-completion/completions"
    ln -s "../lib/signalbox/$version/bin/signalbox" "$tree/usr/bin/signalbox"
    "$root/.venv/bin/signalbox" --show-completion bash >"$tree/usr/share/bash-completion/completions/signalbox"
}

install_control() {
    local size
    size=$(du -sk --apparent-size "$tree" | cut -f 1)
    mkdir "$tree/DEBIAN"
    install -m 755 -t "$tree/DEBIAN" "$root"/deploy/debian/{postinst,prerm,postrm}
    sed "s/@VERSION@/$version/; s/@SIZE@/$size/" "$root/deploy/debian/control" >"$tree/DEBIAN/control"
    echo /etc/signalbox/signalbox.toml >"$tree/DEBIAN/conffiles"
    (cd "$tree" && find . -type f ! -path './DEBIAN/*' ! -path './etc/*' -printf '%P\0' | sort -z | xargs -0 md5sum) >"$work/md5sums"
    mv "$work/md5sums" "$tree/DEBIAN/"
}

[[ $# -eq 1 && $1 != -* ]] || die "usage: scripts/deb.sh FOLDER"
[[ -x $uv ]] || die "there is no .venv; run scripts/bootstrap.sh"
[[ $("$python" -c 'import sys; print(*sys.version_info[:2])' 2>&1) == "3 11" ]] || die "$python is not 3.11, as it is on Debian 12"
mkdir -p "$1"
folder=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
umask 022
mkdir "$tree"
install_environment
install_files
install_control
dpkg-deb --root-owner-group --build "$tree" "$folder/${name}_${version}_amd64.deb" >/dev/null
