"""Ranks of a whole job on a lab's hosts: a process of ``trainer.whole_job`` for each.

The input is a running lab and a job's file. The result is the log of each rank. This module owns the processes.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import LabError
from mininet_topos.trainer.log import RankLog, read_rank_log
from mininet_topos.trainer.parts import read_job

STOP_TIMEOUT_S = 60.0


class WholeTraining:
    """Training of one job.

    ``job``: file whose endpoints are addresses of the lab's hosts. ``folder``: directory of this training alone, for
    the logs and the files that ranks share. ``api``: address of the controller's API, None for none. ``iterations``:
    number after which it ends by itself. Raises ``InvalidInput`` for a wrong job, ``LabError`` for an address that no
    host has."""

    def __init__(
        self, lab: Lab, job: Path, folder: Path, api: str | None = None, iterations: int | None = None
    ) -> None:
        endpoints = read_job(job).spec.endpoints
        names = {host.ip: host.name for host in lab.hosts}
        if strangers := set(endpoints) - names.keys():
            raise LabError(f"no host of this lab has {', '.join(sorted(strangers))}")
        folder.mkdir(parents=True, exist_ok=True)
        self._logs = [folder / f"rank{rank}.jsonl" for rank in range(len(endpoints))]
        shared = ["--spec", str(job), "--rendezvous", str(folder / "rendezvous")]
        shared += ["--iterations", str(iterations)] if iterations else []
        self._ranks = [
            self._start(lab, names[ip], rank, [*shared, *(["--api", api] if api and rank == 0 else [])])
            for rank, ip in enumerate(endpoints)
        ]

    def _start(self, lab: Lab, host: str, rank: int, options: list[str]) -> subprocess.Popen[Any]:
        log = self._logs[rank]
        argv = [sys.executable, "-m", "mininet_topos.trainer.whole_job", "--rank", str(rank), "--out", str(log)]
        with log.with_suffix(".log").open("w") as output:
            return lab.popen(host, [*argv, *options], stdout=output, stderr=subprocess.STDOUT)

    def process(self, rank: int) -> subprocess.Popen[Any]:
        return self._ranks[rank]

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self._ranks)

    def stop(self) -> None:
        """Request all ranks to end after an iteration; return at once."""
        self._ranks[0].send_signal(signal.SIGTERM)

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Return when all ranks have ended.

        Raises ``LabError`` with the output of a rank that failed, and for one that did not end."""
        for rank, process in enumerate(self._ranks):
            try:
                status = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                raise LabError(f"rank {rank} did not end within {timeout_s:g} s") from None
            if status:
                said = self._logs[rank].with_suffix(".log").read_text().strip()
                raise LabError(f"rank {rank} ended with status {status}: {said}")

    def kill(self) -> None:
        """End all ranks at once."""
        for process in self._ranks:
            process.kill()
        for process in self._ranks:
            process.wait()

    def logs(self) -> list[RankLog]:
        """Return the logs by rank, as far as they are written; every rank must have begun its log."""
        return [read_rank_log(log) for log in self._logs]
