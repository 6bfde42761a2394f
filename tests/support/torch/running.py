"""Ranks of a PyTorch program on this machine, in the environment of PyTorch.

Output: processes, and their output."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mininet_topos.controller_process import reserve_port
from mininet_topos.joining.launch import TORCH_ENVIRONMENT, missing, torch_python
from tests.support.lab.needs import needs

DEADLINE_S = 180.0


class Ranks:
    """Processes of the ranks; the output of each goes to a file of ``folder``.

    ``words``: program and arguments for the Python interpreter, or without ``enter`` the last arguments of
    ``tests.support.torch.forked``.
    ``controller``: address of the controller.
    ``enter``: prefix of each rank's command; each rank is then a separate program.
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
        python = str(torch_python())
        forked = [python, "-m", "tests.support.torch.forked", str(folder), str(count), *words]
        commands = [[*each, python, *words] for each in enter] or [forked]
        for output in self.outputs:
            output.touch()
        self.processes = []
        for rank, command in enumerate(commands):
            with self.outputs[rank].open("a") as file:
                options: dict[str, Any] = {"stdout": file, "stderr": subprocess.STDOUT, "process_group": 0}
                self.processes.append(subprocess.Popen(command, env={**shared, "RANK": str(rank)}, **options))

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
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
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
