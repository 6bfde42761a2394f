"""Ranks of a PyTorch program on this machine, in the environment of PyTorch.

Input: the words after the interpreter. Output: processes, and their output."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mininet_topos.controller_process import reserve_port
from mininet_topos.joining.launch import TORCH_ENVIRONMENT, missing, torch_python
from tests.support.lab.needs import needs

DEADLINE_S = 180.0


class Ranks:
    """Processes of the ranks; the output of each goes to a file of ``folder``.

    ``controller``: address of the controller.
    ``enter``: words before the command, per rank.
    ``master``: address of rank 0."""

    def __init__(
        self,
        folder: Path,
        count: int,
        words: Sequence[str],
        controller: str,
        enter: Sequence[Sequence[str]] = (),
        master: str = "127.0.0.1",
    ) -> None:
        self.outputs = [folder / f"rank{rank}.log" for rank in range(count)]
        rendezvous = {"MASTER_ADDR": master, "MASTER_PORT": str(reserve_port()), "WORLD_SIZE": str(count)}
        shared = {**os.environ, **TORCH_ENVIRONMENT, **rendezvous, "SIGNALBOX_ADDRESS": controller}
        self.processes = []
        for rank, output in enumerate(self.outputs):
            with output.open("w") as file:
                environment = {**shared, "RANK": str(rank)}
                argv = [*(enter[rank] if enter else ()), str(torch_python()), *words]
                self.processes.append(subprocess.Popen(argv, env=environment, stdout=file, stderr=subprocess.STDOUT))

    def wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            ended = [process.poll() for process in self.processes]
            assert not any(ended), self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.02)

    def wait(self) -> None:
        self.wait_until(lambda: all(process.poll() == 0 for process in self.processes))

    def said(self, rank: int | None = None) -> str:
        return "".join(output.read_text() for r, output in enumerate(self.outputs) if rank in (None, r))

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@contextmanager
def ranks(folder: Path, count: int, words: Sequence[str], controller: str, **more: Any) -> Iterator[Ranks]:
    """Run the ranks while the block runs; see ``Ranks`` for the parameters."""
    needs(missing().get("gloo"))
    running = Ranks(folder, count, words, controller, **more)
    try:
        yield running
    finally:
        running.kill()
