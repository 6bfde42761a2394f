"""The observer's process, and the memory and CPU time of processes."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from benchmarks.fabric.observed import Observed
from benchmarks.fabric.snooper import RECORD
from controller.errors import SignalboxError
from mininet_topos.controller_process import STOP_S, start

START_S = 30.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_CHUNK = 1 << 22


class Usage(NamedTuple):
    """Of a process and its children: resident memory now and at most (of each at its own time), CPU time so far."""

    rss_bytes: int
    peak_bytes: int
    cpu_s: float
    processes: int


def tree_usage(process: subprocess.Popen[bytes] | None) -> Usage:
    """Of a process and its descendants; zero without one."""
    if process is None:
        return Usage(0, 0, 0.0, 0)
    known = [of for pid in (process.pid, *children(process.pid)) if (of := usage(pid)) is not None]
    return Usage(
        sum(of.rss_bytes for of in known),
        sum(of.peak_bytes for of in known),
        sum(of.cpu_s for of in known),
        len(known),
    )


def usage(pid: int) -> Usage | None:
    """Of one process alone (proc(5)); None when it is gone."""
    try:
        fields = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
        )
        times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if "VmRSS" not in fields:
        return None
    rss, peak = (int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
    return Usage(rss, peak, (int(times[11]) + int(times[12])) / TICKS_PER_S, 1)


def children(pid: int) -> Iterator[int]:
    """Every descendant that lives."""
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found = [int(child) for child in tasks.read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in found:
            yield child
            yield from children(child)


@dataclass
class Recorder:
    """The observer's process and how far its file was read."""

    file: Path
    _process: subprocess.Popen[bytes]
    _stream: IO[bytes]
    _rest: bytes = b""

    @classmethod
    def start(cls, file: Path, sockets: list[str]) -> Recorder:
        """Returns once it listens to every bridge. Raises ``SignalboxError`` when it cannot."""
        process = start(
            "benchmarks.fabric.snooper",
            str(file),
            *sockets,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        ready, _, _ = select.select([process.stdout], [], [], START_S)
        if not ready or process.stdout.readline().strip() != b"listening":
            process.kill()
            said = process.stderr.read().decode(errors="replace").strip().splitlines()
            raise SignalboxError(f"the observer does not listen: {said[-1] if said else 'it says nothing'}")
        return cls(file, process, file.open("rb"))

    def read(self, into: Observed) -> int:
        """Hands on what was recorded since; how many messages."""
        count = 0
        while data := self._stream.read(_CHUNK):
            data = self._rest + data
            at = 0
            while at + RECORD.size <= len(data):
                now_ns, place, length = RECORD.unpack_from(data, at)
                body = at + RECORD.size
                if body + length > len(data):
                    break
                into.message(now_ns / 1e9, place, data[body : body + length])
                at = body + length
                count += 1
            self._rest = data[at:]
        if self._process.poll() is not None:
            raise SignalboxError(f"the observer ended with status {self._process.returncode}")
        return count

    @property
    def cpu_s(self) -> float:
        """What observing has cost so far."""
        found = usage(self._process.pid)
        return found.cpu_s if found else 0.0

    def stop(self) -> None:
        self._process.communicate(timeout=STOP_S)
        self._stream.close()
