"""Launcher of a controller process for the demo, the lab's tests and the benchmarks; it needs no Mininet.

The process can be killed and restarted; its configuration, state, socket and log are in one folder. When the thread
that started the process ends, even by SIGKILL, the kernel kills the process (``setpriv --pdeathsig``).
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from mininet_topos.lab.record import wait_for
from signalbox.client import Client
from signalbox.errors import SignalboxError

START_S = 60.0
STOP_S = 20.0
CHILDREN_S = 5.0
POLL_S = 0.05

OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
PORTS = 10_000

Settings = Mapping[str, Mapping[str, object]]
"""Part of the controller's configuration: values by section and key."""


def reserve_port() -> int:
    """Return a TCP port for a program that this process starts. Raises ``SignalboxError`` when there is none.

    The port stays bound as long as this process lives, so no other process reserves it. A server that sets
    SO_REUSEADDR, as all do here, can listen on it. The port is outside of ``OUTGOING``, so the kernel gives it to no
    outgoing connection. Otherwise a switch that connects before the controller listens could get this port as its
    source port."""
    first_outgoing = int(OUTGOING.read_text().split()[0])
    for port in random.sample(range(first_outgoing - PORTS, first_outgoing), PORTS):
        with socket.socket() as held, suppress(OSError):
            held.bind(("127.0.0.1", port))
            # Before bind this option would allow a port that another process has reserved.
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.detach()  # stays open until the process ends
            return port
    raise SignalboxError(f"no free port between {first_outgoing - PORTS} and {first_outgoing}")


def start(module: str, *argv: str, inside: Sequence[str] = (), **options: Any) -> subprocess.Popen[bytes]:
    """Start ``python -m module`` in its own session. The kernel kills the process when the calling thread ends.

    ``inside``: command that runs the command after it in another place, such as ``ip netns exec NAME``."""
    words = ["setpriv", "--pdeathsig", "KILL", *inside, sys.executable, "-m", module, *argv]
    return subprocess.Popen(words, start_new_session=True, **options)


@dataclass
class ControllerProcess:
    """Controller in a process of its own.

    ``program``: module to run and its first arguments; it takes the option ``--config`` of ``signalbox serve``.
    ``tables``: additional configuration in TOML. ``store``: where the controller saves its state. ``inside``: see
    ``start``."""

    folder: Path
    openflow_port: int = field(default_factory=reserve_port)
    settings: Settings = field(default_factory=dict)
    program: tuple[str, ...] = ("controller", "serve")
    tables: str = ""
    store: str = "sqlite"
    inside: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None

    @classmethod
    def member(
        cls, folder: Path, endpoint: str, settings: Settings, program: tuple[str, ...] = ("controller", "serve")
    ) -> Self:
        """Return a controller that divides the switches with the others on the etcd at ``endpoint``.

        Makes ``folder``, which gives it its name."""
        folder.mkdir(parents=True)
        members = {"name": folder.name, "api": f"unix:{folder / 'members.sock'}"}
        return cls(folder, settings={**settings, "members": members}, program=program, store=f"etcd://{endpoint}")

    @property
    def address(self) -> str:
        """Address of the API."""
        return f"unix:{self.folder / 'api.sock'}"

    @property
    def target(self) -> str:
        """Address for switches, as Open vSwitch writes it."""
        return f"tcp:127.0.0.1:{self.openflow_port}"

    @property
    def log(self) -> Path:
        return self.folder / "controller.log"

    def start(self, *options: str) -> float:
        """Start the process, and return the time of the start in monotonic seconds.

        ``options``: options of the program."""
        file = self.folder / "signalbox.toml"
        file.write_text(self.config())
        started = time.monotonic()
        with self.log.open("ab") as log:
            argv = (*self.program, "--config", str(file), *options)
            self.process = start(*argv, inside=self.inside, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return started

    def config(self) -> str:
        """Return the configuration in TOML, with files in ``folder`` and a free port for metrics.

        ``settings`` override the values made here."""
        base: Settings = {
            "openflow": {"port": self.openflow_port},
            "api": {"listen": [self.address]},
            "metrics": {"port": 0},
        }
        lines = [f"state_dir = {json.dumps(str(self.folder / 'state'))}", f"store = {json.dumps(self.store)}"]
        for section in {**base, **self.settings}:
            values = {**base.get(section, {}), **self.settings.get(section, {})}
            lines += [f"[{section}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]
        return "\n".join([*lines, self.tables]) + "\n"

    @contextmanager
    def running(self, *options: str) -> Iterator[Client]:
        """Run the controller: yield a client when it is ready for requests and switches, and stop it at the end.

        Raises ``SignalboxError`` when the controller ends before it is ready, or is not ready in time."""
        self.start(*options)
        try:
            with Client(self.address) as client:
                wait_for(lambda: self.ready(client), "the controller", START_S, POLL_S)
                yield client
        finally:
            self.stop()

    def ready(self, client: Client) -> bool:
        """Return whether the controller answers requests and listens for switches.

        Raises ``SignalboxError`` when it has ended by itself."""
        if self.answers(client):
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", self.openflow_port)).close()
                return True
        return False

    def answers(self, client: Client) -> bool:
        """Return whether the controller answers requests. Raises ``SignalboxError`` when it has ended by itself."""
        self.check()
        with suppress(SignalboxError):
            client.get_status()
            return True
        return False

    def check(self) -> None:
        """Raise ``SignalboxError`` with the end of the log when the controller has ended by itself."""
        if self.process is not None and self.process.poll() is not None:
            ended = f"the controller ended with status {self.process.returncode}"
            raise SignalboxError(f"{ended}; its log ends:\n{self.last_lines()}")

    def last_lines(self) -> str:
        """Return the last eight lines of the controller's log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-8:])

    def stop(self) -> int | None:
        """Stop the process with SIGTERM, after ``STOP_S`` seconds with SIGKILL.

        Return its exit status, None when it does not run."""
        if self.process is None:
            return None
        process = self.process
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        self.kill()
        return process.returncode

    def kill(self) -> None:
        """Stop the process with SIGKILL. Its children end by themselves, or are killed after ``CHILDREN_S`` seconds."""
        if self.process is None:
            return
        process, self.process = self.process, None
        process.kill()
        process.wait(STOP_S)
        ends = time.monotonic() + CHILDREN_S
        while _lives(process.pid) and time.monotonic() < ends:
            time.sleep(POLL_S)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _lives(group: int) -> bool:
    """Return whether a process of this process group has not ended.

    A zombie counts as ended, because process 1 may collect it seconds later."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            state, _, its_group = path.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                return True
    return False


def _toml(value: object) -> str:
    """Return a value in TOML, on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_toml(of_key)}" for key, of_key in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)
