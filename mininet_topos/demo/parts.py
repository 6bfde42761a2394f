"""Programs of the demo: the training jobs, and a listener to the routes.

This module owns their processes and threads. Every part ends with its ``with`` block, even after an error.
"""

import json
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

from mininet_topos.demo.report import RouteChange
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import wait_for
from offline.scenarios.topologies import Host
from signalbox.client import Client
from signalbox.jobs.spec import Striping
from signalbox.route_following import Route, RouteFollower

POLL_S = 0.1
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
JOB_LEASE_S = 15.0
STALL_S = 60.0


class DemoError(Exception):
    """A part of the demo failed; the message says which part, and which log to read."""


@dataclass
class _Rank:
    """Process of a trainer. ``offset``: number of bytes of its log that were read."""

    process: subprocess.Popen[Any]
    log: Path
    offset: int = 0
    iterations: int = 0
    latest_s: float | None = None

    def read_new_lines(self) -> None:
        if not self.log.exists():
            return
        with self.log.open() as file:
            file.seek(self.offset)
            text = file.read()
        complete = text[: text.rfind("\n") + 1]
        self.offset += len(complete.encode())
        for line in map(json.loads, complete.splitlines()):
            if "i" in line:
                self.iterations = line["i"] + 1
                self.latest_s = line["end"] - line["start"]


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """Ring job; ``hosts`` are in ring order.

    ``max_subflows``: connections to the next host. ``striping``: how bytes are striped over them.
    ``reports_connections``: whether it reports its connections to the controller. ``options``: further options of the
    trainer, by name; they replace those of ``Training``."""

    job_id: str
    hosts: tuple[Host, ...]
    max_subflows: int = 1
    striping: Striping = Striping.BY_SHARE
    reports_connections: bool = False
    options: Mapping[str, object] = field(default_factory=dict)


def rings_and_idle(hosts: Sequence[Host]) -> tuple[list[tuple[Host, ...]], tuple[Host, ...]]:
    """Return rings and idle hosts: a ring of the first host of every leaf, one of the second, and so on.

    The last host of each leaf is idle if the leaves have several hosts."""
    of_leaf: dict[str, list[Host]] = defaultdict(list)
    for host in hosts:
        of_leaf[host.leaf].append(host)
    *rings, last = zip(*of_leaf.values(), strict=True)
    return (rings, last) if rings else ([last], ())


@dataclass
class Training:
    """All jobs of the demo, with one process per rank.

    ``raw``: directory of the ranks' files. ``stall_s``: seconds without received data after which a rank ends.
    ``iterations``: number after which a job ends by itself; None: it runs until it is stopped."""

    lab: Lab
    jobs: Sequence[TrainingJob]
    elements: int
    api: str
    rendezvous: Path
    raw: Path
    stall_s: float = STALL_S
    lease_s: float = JOB_LEASE_S
    iterations: int | None = None
    _ranks: dict[str, list[_Rank]] = field(default_factory=dict)

    def start(self) -> None:
        """Start every rank, and return when each has finished an iteration."""
        self.launch()
        wait_for(self._all_train, "every rank to finish an iteration", START_TIMEOUT_S, POLL_S)

    def launch(self) -> None:
        for job in self.jobs:
            self._ranks[job.job_id] = [self._start_rank(job, rank) for rank in range(len(job.hosts))]

    def statuses(self) -> list[int | None]:
        """Return the exit status of every rank, None for one that runs."""
        return [rank.process.poll() for ranks in self._ranks.values() for rank in ranks]

    def _start_rank(self, job: TrainingJob, rank: int) -> _Rank:
        log = self.raw / f"{job.job_id}-rank{rank}.jsonl"
        options = {
            "--job": job.job_id,
            "--rank": rank,
            "--peers": ",".join(host.ip for host in job.hosts),
            "--elements": self.elements,
            "--api": self.api,
            "--lease-s": self.lease_s,
            "--max-subflows": job.max_subflows,
            "--striping": job.striping,
            "--stall-timeout-s": self.stall_s,
            "--rendezvous": self.rendezvous / job.job_id,
            "--out": log,
            **job.options,
        }
        words = (str(word) for pair in options.items() for word in pair)
        argv = [sys.executable, "-m", "mininet_topos.trainer", *words]
        argv += ["--reports-connections"] * job.reports_connections
        argv += ["--iterations", str(self.iterations)] if self.iterations else []
        with log.with_suffix(".log").open("w") as output:
            process = self.lab.popen(job.hosts[rank].name, argv, stdout=output, stderr=subprocess.STDOUT)
        return _Rank(process, log)

    def _all_train(self) -> bool:
        self.read_new_lines()
        return all(rank.iterations for ranks in self._ranks.values() for rank in ranks)

    def read_new_lines(self) -> None:
        """Read the new lines of the ranks' files. Raises ``DemoError`` when a rank has ended."""
        for rank in (rank for ranks in self._ranks.values() for rank in ranks):
            if rank.process.poll() is not None:
                raise DemoError(f"{rank.log.stem} ended with status {rank.process.returncode}, see {rank.log.stem}.log")
            rank.read_new_lines()

    def latest(self) -> dict[str, tuple[int, float]]:
        """Return for each job the number of finished iterations and the seconds of the latest one, seen by rank 0."""
        return {job_id: (ranks[0].iterations, ranks[0].latest_s or 0.0) for job_id, ranks in self._ranks.items()}

    def rank_process(self, job_id: str, rank: int) -> subprocess.Popen[Any]:
        return self._ranks[job_id][rank].process

    def stop(self) -> None:
        """Stop every job after an iteration that its ranks agree on. Raises ``DemoError`` when a rank fails."""
        for ranks in self._ranks.values():
            ranks[0].process.send_signal(signal.SIGTERM)
        for rank in (rank for ranks in self._ranks.values() for rank in ranks):
            try:
                status = rank.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                raise DemoError(f"{rank.log.stem} did not stop") from None
            if status:
                raise DemoError(f"{rank.log.stem} ended with status {status}, see {rank.log.stem}.log")


class RouteWatch:
    """Listener to the routes of some jobs. ``changes``: all changes so far, in order of arrival."""

    def __init__(self, address: str, job_ids: Sequence[str]) -> None:
        self.changes: list[RouteChange] = []
        self._stack = ExitStack()
        self._followers = [
            RouteFollower(lambda: Client(address), job_id, partial(self._add, job_id), max_pause_s=POLL_S)
            for job_id in job_ids
        ]

    def __enter__(self) -> Self:
        for follower in self._followers:
            self._stack.enter_context(follower)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _add(self, job_id: str, routes: tuple[Route, ...]) -> None:
        paths = {(r.src, r.dst): r.switches if r.pinned else () for r in routes}
        latest = self.in_force().get(job_id)
        if latest is None or latest.paths != paths:
            self.changes.append(RouteChange(time.monotonic(), job_id, paths))

    def in_force(self) -> dict[str, RouteChange]:
        return {change.job_id: change for change in tuple(self.changes)}
