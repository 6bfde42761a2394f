"""The observer's process."""

from __future__ import annotations

import select
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from benchmarks.fabric.observed import Observed
from benchmarks.fabric.snooper import RECORD
from benchmarks.measures import usage
from controller.errors import SignalboxError
from mininet_topos.controller_process import STOP_S, start

START_S = 30.0
_CHUNK = 1 << 22


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
        return usage(self._process).cpu_s

    def stop(self) -> None:
        self._process.communicate(timeout=STOP_S)
        self._stream.close()
