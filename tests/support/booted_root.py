"""A booted Debian in a folder: systemd is process 1 of its own namespaces, where loopback is the only network.

Input: the folder of a ``DebianRoot`` that has ``systemd-sysv``. Units run as on a machine, with their users,
directories, seccomp filters and mounts. The kernel is that of this machine, there are no resource controllers, and only
six device files exist. Needs root and a cgroup2 hierarchy."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from mininet_topos.lab.record import wait_for
from tests.support.debian_root import PLAIN_ENVIRONMENT

_NAMESPACES = ("--mount", "--pid", "--net", "--ipc", "--uts", "--cgroup")
_BOOT = """\
echo $$ > "$2/cgroup.procs"
exec unshare --fork --kill-child {namespaces} sh -ec '
cd "$1"
mount --make-rprivate /
mount --bind . .
cd "$1"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do
    touch dev/$device
    mount --bind /dev/$device dev/$device
done
mkdir dev/shm dev/pts
mount -t tmpfs tmpfs dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ip link set lo up
pivot_root . mnt
umount -l /mnt
exec env -i container=test PATH="$PATH" /lib/systemd/systemd
' sh "$1"
""".format(namespaces=" ".join(_NAMESPACES))
BOOT_S = 120.0


@dataclass(frozen=True)
class Booted:
    """A booted Debian; ``leader`` is the process id of its systemd on this machine."""

    leader: int

    def argv(self, *command: str, namespaces: tuple[str, ...] = _NAMESPACES) -> list[str]:
        settings = [f"{name}={value}" for name, value in PLAIN_ENVIRONMENT.items()]
        return ["nsenter", "--target", str(self.leader), *namespaces, "env", "-i", "-C", "/", *settings, *command]

    def run(self, *command: str, status: int = 0) -> str:
        done = subprocess.run(
            self.argv(*command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False,
        )  # fmt: skip
        assert done.returncode == status, f"{command} ended with {done.returncode}:\n{done.stdout[-6000:]}"
        return done.stdout

    def state(self) -> str:
        return self.run("sh", "-c", "systemctl is-system-running || true").strip()


@contextmanager
def booted(folder: Path) -> Iterator[Booted]:
    """Boot the Debian in the folder for the block; kill all its processes afterwards."""
    cgroup = _cgroup2() / f"signalbox-test-{os.getpid()}"
    cgroup.mkdir()
    try:
        with subprocess.Popen(
            ["sh", "-ec", _BOOT, "sh", str(folder), str(cgroup)], stdin=subprocess.DEVNULL
        ) as process:
            try:
                yield _started(process)
            finally:
                process.kill()
    finally:
        wait_for(lambda: _gone(cgroup), "the end of its processes", BOOT_S, 0.1)


def _started(process: subprocess.Popen[bytes]) -> Booted:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

    def is_up() -> bool:
        assert process.poll() is None, "systemd has ended"
        ids = children.read_text().split()
        with suppress(AssertionError):
            return bool(ids) and Booted(int(ids[0])).state() in ("running", "degraded")
        return False

    wait_for(is_up, "systemd", BOOT_S, 0.5)
    return Booted(int(children.read_text()))


def _cgroup2() -> Path:
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    return Path(next(target for _, target, kind, *_ in mounts if kind == "cgroup2"))


def _gone(cgroup: Path) -> bool:
    """Try to remove the cgroup and return whether it is gone; it cannot be removed before its processes have ended."""
    for folder, _, _ in os.walk(cgroup, topdown=False):
        with suppress(OSError):
            os.rmdir(folder)
    return not cgroup.exists()
