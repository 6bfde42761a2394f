"""The processes of a run: the controller, the observer, and what the kernel says of the controller's cost.

Every one of them ends with us, also when we are killed: the kernel sends it SIGKILL (``setpriv --pdeathsig``).
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

from benchmarks.fabric.observed import Observed
from benchmarks.fabric.snooper import RECORD
from controller.errors import SignalboxError

START_S = 30.0
STOP_S = 20.0
ORPHANS_S = 5.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_CHUNK = 1 << 22


def start(module: str, *argv: str, **options: Any) -> subprocess.Popen[bytes]:
    """``python -m module`` in a session of its own. Call it from a thread that lives as long as the process shall."""
    words = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", module, *argv]
    return subprocess.Popen(words, start_new_session=True, **options)


class Usage(NamedTuple):
    """Of a process and its children: resident memory now and at most (of each at its own time), CPU time so far."""

    rss_bytes: int
    peak_bytes: int
    cpu_s: float
    processes: int


class ControllerProcess:
    """``signalbox serve`` with its files in ``folder``; it can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"unix:{self._folder / 'api.sock'}"

    @property
    def log(self) -> Path:
        return self._folder / "controller.log"

    def start(self) -> float:
        """Returns when it was started, in monotonic seconds."""
        started = time.monotonic()
        with self.log.open("ab") as log:
            config = str(self._folder / "signalbox.toml")
            self._process = start("controller", "serve", "--config", config, stderr=log, stdin=subprocess.DEVNULL)
        return started

    def kill(self) -> None:
        """Its children have a moment to notice; they do not outlive it here whether they do or not."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.kill()
        process.wait(STOP_S)
        ends = time.monotonic() + ORPHANS_S
        with suppress(ProcessLookupError):
            while time.monotonic() < ends:
                os.killpg(process.pid, 0)
                time.sleep(0.05)
            os.killpg(process.pid, signal.SIGKILL)

    def check(self) -> None:
        """Raises ``SignalboxError`` with its last words when it has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            last = "\n".join(self.log.read_text(errors="replace").splitlines()[-8:])
            raise SignalboxError(f"the controller ended with status {self._process.returncode}; its log ends:\n{last}")

    def usage(self) -> Usage:
        if self._process is None:
            return Usage(0, 0, 0.0, 0)
        found = [usage(pid) for pid in (self._process.pid, *children(self._process.pid))]
        known = [of for of in found if of is not None]
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
