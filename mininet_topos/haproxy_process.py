"""Launcher of a HAProxy in front of the API, for tests and benchmarks.

The process has the configuration that ``signalbox serve --print-haproxy`` prints. It runs as the user who starts it,
since only root can become another user. The kernel kills it when the thread that started it ends.
"""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from controller.config import ApiConfig
from controller.serving import haproxy
from mininet_topos.lab.record import wait_for
from signalbox.addresses import host_and_port

START_S = 30.0
_NO_USERS_PATH = "/usr/sbin"
"""Directory of the program on Debian, which is not in the PATH of every user."""


@contextmanager
def haproxy_before(directory: Path, api: ApiConfig) -> Iterator[subprocess.Popen[bytes]]:
    """Run HAProxy, and yield its process when it listens at its first address."""
    lines = haproxy.configuration(api).splitlines()
    file = directory / "haproxy.cfg"
    file.write_text("\n".join(line for line in lines if not line.startswith(("    user ", "    group "))) + "\n")
    process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", executable(), "-db", "-q", "-f", str(file)])
    first = next(address for address in api.listen if not address.startswith("unix:"))
    try:
        wait_for(lambda: _listens(*host_and_port(first), process), "HAProxy", START_S, 0.02)
        yield process
    finally:
        process.kill()
        process.wait()


def executable() -> str:
    found = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:{_NO_USERS_PATH}")
    if found is None:
        raise FileNotFoundError("haproxy is not installed; scripts/bootstrap.sh installs it")
    return found


def _listens(host: str, port: int, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "HAProxy has ended"
    try:
        socket.create_connection((host, port)).close()
    except OSError:
        return False
    return True
