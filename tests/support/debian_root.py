"""A Debian in a folder, made by debootstrap, and commands run in it: a stand-in for a container or a machine.

Its packages are of the release that this machine has. Commands that build get the configuration of apt and pip of this
machine, with its certificates, folders and variables, so that they reach the same servers. All mounts are made in a
mount namespace of the command, so they end with the command. The kernel is that of this machine. The network is also
that of this machine, unless the caller enters another namespace first. Needs root."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

APT_SETTINGS = ("/etc/apt", "/usr/share/keyrings", "/etc/resolv.conf", "/etc/hosts")
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
OWN_AUTHORITIES = "/usr/local/share/ca-certificates"
PLAIN_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
}
_ENTER = """\
root=$1 folder=$2 writing=$3; shift 3
mount --bind "$root" "$root"; mount -o remount,bind,$writing "$root"
while [ "$1" != -- ]; do
    [ -e "$root$3" ] || mkdir -p "$root$3" # in a tmpfs that was mounted before
    mount $1 "$2" "$root$3"
    shift 3
done
shift
cd "$root"
pivot_root . . # not chroot: what enters this mount namespace later, as Mininet's programs do, is in this root as well
umount -l .
exec /usr/bin/env -C "$folder" "$@"
"""


@dataclass(frozen=True)
class Mount:
    """Mount of a path of this machine, or of a ``tmpfs``, at ``target`` in the root.

    ``options``: options of mount(8)."""

    source: str
    target: str
    options: str = "--bind"


OF_THIS_MACHINE = tuple(Mount(path, path, "--rbind") for path in ("/dev", "/proc", "/sys"))


@dataclass(frozen=True)
class DebianRoot:
    folder: Path

    def argv(
        self,
        *command: str,
        mounts: Sequence[Mount] = (),
        environment: Mapping[str, str] = PLAIN_ENVIRONMENT,
        cwd: str = "/",
        kernel: Sequence[Mount] = OF_THIS_MACHINE,
        read_only: bool = False,
    ) -> list[str]:
        """Return the command line that runs ``command`` in the root with these mounts and only this environment.

        The process keeps its id. ``kernel``: kernel file systems to mount. ``read_only``: whether the root is
        read-only; mounts are not affected."""
        words: list[str] = []
        for mount in (*kernel, *mounts):
            self._target(mount)
            words += (mount.options, mount.source, mount.target)
        settings = [f"{name}={value}" for name, value in environment.items()]
        writing = "ro" if read_only else "rw"
        enter = ["unshare", "--mount", "sh", "-ec", _ENTER, "sh", str(self.folder), cwd, writing, *words, "--"]
        return [*enter, "-i", *settings, *command]

    def build(self, *command: str, cwd: str = "/", environment: Mapping[str, str] | None = None) -> None:
        """Run a command that may install packages; raise ``AssertionError`` with its output when it fails."""
        _copy_authorities(self.folder)
        done = subprocess.run(
            self.argv(
                *command,
                cwd=cwd,
                mounts=[Mount(path, path) for path in _settings()],
                environment=PLAIN_ENVIRONMENT | _client_variables() | dict(environment or {}),
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout[-6000:]}"

    def install(self, *packages: str) -> None:
        self.build("apt-get", "-q", "update")
        self.build("apt-get", "-q", "install", "-y", "--no-install-recommends", *packages)

    def copy(self, folder: Path) -> Self:
        subprocess.run(["cp", "--archive", "--reflink=auto", str(self.folder), str(folder)], check=True)
        return replace(self, folder=folder)

    def remove(self) -> None:
        """Delete the folder; mounts exist only while a command runs."""
        shutil.rmtree(self.folder)

    def _target(self, mount: Mount) -> None:
        """Create the mount point when it does not exist."""
        target = self.folder / mount.target.lstrip("/")
        if target.is_symlink() or target.exists():
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        if Path(mount.source).is_dir() or mount.source == "tmpfs":
            target.mkdir()
        else:
            target.touch()


def debootstrap(folder: Path, include: Sequence[str] = ()) -> DebianRoot:
    """Make the smallest Debian of the release of this machine, plus these packages, from the mirror of apt.

    As in container images, installed packages start no servers."""
    release = platform.freedesktop_os_release()["VERSION_CODENAME"]
    said = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages", f"Codename: {release}"],
        check=True,
        capture_output=True,
        text=True,
    )
    wanted = [f"--include={','.join(include)}"] if include else []
    done = subprocess.run(
        ["debootstrap", "--variant=minbase", *wanted, release, str(folder), said.stdout.split()[0]],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    policy = folder / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    return DebianRoot(folder)


def _settings() -> list[str]:
    """Return the configuration files and folders of apt and pip, and the paths that the configuration of pip names."""
    pip = [sys.executable, "-m", "pip", "config"]
    files = subprocess.run([*pip, "debug"], check=True, capture_output=True, text=True).stdout
    values = subprocess.run([*pip, "list"], check=True, capture_output=True, text=True).stdout
    found = [
        line.strip().removesuffix(", exists: True") for line in files.splitlines() if line.endswith("exists: True")
    ]
    for word in values.replace("'", " ").replace("=", " ").split():
        path = word.removeprefix("file://").removesuffix("/simple")
        if path.startswith("/") and path != BUNDLE:
            found.append(path)
    return [path for path in dict.fromkeys([*APT_SETTINGS, *found]) if os.path.exists(path)]


def _client_variables() -> dict[str, str]:
    """Return the environment variables that set proxies, package indexes and certificates for clients."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("PIP_", "UV_")) or name.lower().endswith("_proxy") or "CERT" in name or "CA_BUNDLE" in name
    }


def _copy_authorities(folder: Path) -> None:
    """Copy the certificate authorities into the root.

    They are not mounted, because the package ca-certificates rebuilds the bundle from its own authorities and the local
    ones."""
    bundle, own = (folder / name.lstrip("/") for name in (BUNDLE, OWN_AUTHORITIES))
    if Path(BUNDLE).exists() and not bundle.exists():
        bundle.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(BUNDLE, bundle)
    if Path(OWN_AUTHORITIES).is_dir() and not own.exists():
        shutil.copytree(OWN_AUTHORITIES, own)
