"""Ranks of Gloo that start within a tenth of a second: forks of one process that has imported PyTorch.

An import takes 2 s of processor time. If jobs started during a measurement, their imports would slow the switches.

``ForkedRanks`` starts the process, which reads one JSON object per line. For each object it forks, and the child enters
the host's network namespace and runs ``gloo_rank``. The exit status of each child is written to a file. All processes
end with ``ForkedRanks.stop``, or with the program that has started them.
"""

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mininet_topos.joining.launch import TORCH_ENVIRONMENT, torch_python
from mininet_topos.lab.record import LabError

NO_NAMES = {"RES_OPTIONS": "timeout:1 attempts:1"}
"""Resolver options that end name look-ups early: PyTorch looks up the names of all peers, which no server here knows
(resolv.conf(5))."""
NETNS = Path("/run/netns")
CLONE_NEWNET = 0x40000000
POLL_S = 0.05


class ForkedRank:
    """Process of a forked rank, with the methods of ``subprocess.Popen`` that ``RunningJobs`` calls."""

    def __init__(self, pid: int, status: Path) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        if self.returncode is None and self._status.exists():
            self.returncode = int(self._status.read_text())
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        ends = time.monotonic() + (timeout or 60.0)
        while (status := self.poll()) is None:
            if time.monotonic() > ends:
                raise subprocess.TimeoutExpired(f"rank {self.pid}", timeout or 60.0)
            time.sleep(POLL_S)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkedRanks:
    """Process that forks ranks, ready when the constructor returns. Raises ``LabError``.

    ``folder``: directory for the exit statuses of the ranks."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._server = subprocess.Popen(
            [str(torch_python()), "-m", "mininet_topos.joining.forked_ranks"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | TORCH_ENVIRONMENT | NO_NAMES,
            start_new_session=True,
        )
        self._answer()

    def start(self, name: str, namespace: str, words: Sequence[str], output: Path) -> ForkedRank:
        """Start a rank. ``words``: options of ``gloo_rank``. ``output``: file for the rank's output."""
        status = self._folder / f"{name}.status"
        wanted = {"namespace": namespace, "words": list(words), "output": str(output), "status": str(status)}
        assert self._server.stdin
        self._server.stdin.write(json.dumps(wanted) + "\n")
        self._server.stdin.flush()
        return ForkedRank(int(self._answer()), status)

    def _answer(self) -> str:
        assert self._server.stdout
        line = self._server.stdout.readline()
        if not line:
            raise LabError(f"the process that forks ranks has ended with status {self._server.wait()}")
        return line

    def stop(self) -> None:
        """End all ranks at once."""
        assert self._server.stdin
        assert self._server.stdout
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()


# ---- process


def _serve() -> None:
    """Fork ranks until the input ends. Lines arrive complete, because the writer waits for each answer."""
    from mininet_topos.joining import gloo_rank

    gloo_rank.prepare()
    children: dict[int, Path] = {}
    _say("ready")
    while True:
        readable, _, _ = select.select([sys.stdin], [], [], POLL_S)
        if readable:
            line = sys.stdin.readline()
            if not line:
                break
            wanted = json.loads(line)
            if (pid := os.fork()) == 0:
                _become(wanted)
            children[pid] = Path(wanted["status"])
            _say(str(pid))
        _note_ended(children)
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _note_ended(children: dict[int, Path]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        draft = (path := children.pop(pid)).with_suffix(".new")
        draft.write_text(str(os.waitstatus_to_exitcode(status)))
        draft.replace(path)


def _become(wanted: dict[str, Any]) -> None:
    """Become the requested rank, run it, and end the process."""
    from mininet_topos.joining import gloo_rank

    status = 1
    try:
        os.setsid()
        log = os.open(wanted["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        null = os.open(os.devnull, os.O_RDONLY)
        for file, number in ((null, 0), (log, 1), (log, 2)):
            os.dup2(file, number)
        libc = ctypes.CDLL(None, use_errno=True)
        with (NETNS / wanted["namespace"]).open() as file_of_namespace:
            if libc.setns(file_of_namespace.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"setns {wanted['namespace']}")
        status = gloo_rank.main(wanted["words"])
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve()
