"""Probes in the hosts of a lab: started once, changed while they run, read at the end.

This module owns the probing processes, one per host. The result is all packets between every two hosts, as one
``Stream`` per pair.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, Self

from mininet_topos.probe.prober import LINGER_S, MIN_FRAME_BYTES
from mininet_topos.probe.report import Pair, Stream, read_streams
from offline.scenarios.topologies import Host

STOP_TIMEOUT_S = 30.0


class Place(Protocol):
    """Place of the hosts, such as a ``Lab``."""

    def popen(self, host: str, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]: ...


class Probing:
    """Probing processes in ``hosts``, which run while the context is entered.

    ``raw``: directory for their reports. ``tos``: type of service in the header of every packet."""

    def __init__(self, lab: Place, hosts: Iterable[Host], raw: Path, tos: int = 0) -> None:
        self._lab = lab
        self._hosts = tuple(hosts)
        self._raw = raw
        self._tos = tos
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._running: set[Pair] = set()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._raw.mkdir(parents=True, exist_ok=True)
        for host in self._hosts:
            options = ["--bind", host.ip, "--tos", str(self._tos), "--out", str(self._report(host))]
            argv = [sys.executable, "-m", "mininet_topos.probe", *options]
            log = self._stack.enter_context((self._raw / f"{host.name}.log").open("w"))
            self._processes[host.ip] = self._lab.popen(
                host.name, argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        for process in self._processes.values():
            assert process.stdout
            process.stdout.readline()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            with process:  # closes its pipes and waits
                process.kill()
        self._stack.close()

    def send(self, pair: Pair, interval_s: float, frame_bytes: int = MIN_FRAME_BYTES) -> None:
        """Send a frame every ``interval_s`` seconds from now on; 0 stops that."""
        stdin = self._processes[pair[0]].stdin
        assert stdin
        stdin.write(f"{pair[1]} {interval_s} {frame_bytes}\n")
        stdin.flush()
        (self._running.add if interval_s else self._running.discard)(pair)

    def finish(self) -> tuple[dict[Pair, Stream], int]:
        """End all probes; return the streams, and how many packets were dropped because a process was late."""
        for pair in tuple(self._running):
            self.send(pair, 0)
        time.sleep(LINGER_S)  # for packets in queues: all must have stopped sending before any stops listening
        for process in self._processes.values():
            assert process.stdin
            process.stdin.close()
        for host in self._hosts:
            if self._processes[host.ip].wait(STOP_TIMEOUT_S):
                raise RuntimeError(f"the probes of {host.name} failed, see {self._raw / host.name}.log")
        return read_streams(self._report(host) for host in self._hosts)

    def _report(self, host: Host) -> Path:
        return self._raw / f"probes-{host.name}.json"
