"""``signalbox jobs keep`` as a process, for tests."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mininet_topos.joining.launch import ROOT


class KeepProcess:
    """Process of ``signalbox jobs keep``; ``log`` is the file of its output."""

    def __init__(self, folder: Path, address: str, state: Path, log: Path, *more: object) -> None:
        self.log = log
        words = [sys.executable, "-m", "signalbox", "jobs", "keep", str(folder), *map(str, more)]
        where = {"SIGNALBOX_ADDRESS": address, "XDG_STATE_HOME": str(state), "PYTHONPATH": f"{ROOT / 'client'}:{ROOT}"}
        with log.open("ab") as lines:
            self._process = subprocess.Popen(words, env={**os.environ, **where}, stderr=lines, stdin=subprocess.DEVNULL)

    def end(self, number: int = signal.SIGTERM) -> int:
        self._process.send_signal(number)
        return self._process.wait(60)

    def kill(self) -> None:
        self.end(signal.SIGKILL)

    @property
    def running(self) -> bool:
        return self._process.poll() is None


@contextmanager
def keeping(folder: Path, address: str, state: Path, log: Path, *more: object) -> Iterator[KeepProcess]:
    """Run ``signalbox jobs keep`` while the block runs; ``more``: further options."""
    process = KeepProcess(folder, address, state, log, *more)
    try:
        yield process
    finally:
        if process.running:
            process.kill()
