"""The programs that the demo runs: a controller of its own, the training jobs, and a listener to the routes.

Owns their processes and threads; every part ends with its ``with`` block, however that ends.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from controller.api.client import Client
from controller.errors import SignalboxError
from controller.offline.topologies import Host
from mininet_topos.demo.report import RouteChange
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import wait_for

POLL_S = 0.1
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
JOB_LEASE_S = 15.0


class DemoError(Exception):
    """A part of the demo did not do its work; the message says which and where to read more."""


def free_port() -> int:
    """A TCP port that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def controller_config(directory: Path, openflow_port: int, rate_bps: float) -> str:
    """A configuration in TOML: everything in ``directory`` or on loopback, ECMP until told otherwise."""
    return f"""\
state_dir = {json.dumps(str(directory / "state"))}

[openflow]
host = "127.0.0.1"
port = {openflow_port}

[api]
listen = [{json.dumps(f"unix:{directory}/api")}]

[metrics]
port = 0

[fabric]
link_bps = {rate_bps}
host_link_bps = {rate_bps}

[planning]
strategy = "ecmp"
"""


@contextmanager
def running_controller(
    directory: Path,
    openflow_port: int,
    rate_bps: float,
    log: Path,
    program: Sequence[str] = ("controller", "serve"),
    planning: str = "",
) -> Iterator[Client]:
    """A controller with its state and its Unix socket in ``directory``. ``program``: the module, and what comes before
    its ``--config``; ``planning``: more lines for that section. Raises ``DemoError`` when it is mute."""
    config = directory / "signalbox.toml"
    config.write_text(controller_config(directory, openflow_port, rate_bps) + planning)
    with log.open("w") as output:
        argv = [sys.executable, "-m", *program, "--config", str(config)]
        process = subprocess.Popen(argv, stdout=output, stderr=subprocess.STDOUT)
        try:
            with Client(f"unix:{directory}/api") as client:
                wait_for(lambda: _answers(client, process, log), f"the controller, see {log}", START_TIMEOUT_S, POLL_S)
                yield client
        finally:
            _end(process)


def _answers(client: Client, process: subprocess.Popen[Any], log: Path) -> bool:
    if process.poll() is not None:
        raise DemoError(f"the controller ended with status {process.returncode}, see {log}")
    try:
        client.get_status()
    except SignalboxError:
        return False
    return True


def _end(process: subprocess.Popen[Any]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@dataclass
class _Rank:
    """A trainer's process and what was read of its file so far."""

    process: subprocess.Popen[Any]
    log: Path
    offset: int = 0
    iterations: int = 0
    latest_s: float | None = None

    def read_on(self) -> None:
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
    """One ring: ``hosts`` in ring order. ``max_subflows``: connections to the next one."""

    job_id: str
    hosts: tuple[Host, ...]
    max_subflows: int = 1


@dataclass
class Training:
    """All jobs of the demo, one process per rank. ``raw``: directory of the ranks' files."""

    lab: Lab
    jobs: Sequence[TrainingJob]
    elements: int
    api: str
    rendezvous: Path
    raw: Path
    _ranks: dict[str, list[_Rank]] = field(default_factory=dict)

    def start(self) -> None:
        """Start every rank and return when each has finished an iteration."""
        for job in self.jobs:
            self._ranks[job.job_id] = [self._start_rank(job, rank) for rank in range(len(job.hosts))]
        wait_for(self._all_train, "every rank to finish an iteration", START_TIMEOUT_S, POLL_S)

    def _start_rank(self, job: TrainingJob, rank: int) -> _Rank:
        log = self.raw / f"{job.job_id}-rank{rank}.jsonl"
        options = {
            "--job": job.job_id,
            "--rank": rank,
            "--peers": ",".join(host.ip for host in job.hosts),
            "--elements": self.elements,
            "--api": self.api,
            "--lease-s": JOB_LEASE_S,
            "--max-subflows": job.max_subflows,
            "--rendezvous": self.rendezvous / job.job_id,
            "--out": log,
        }
        argv = [
            sys.executable,
            "-m",
            "mininet_topos.trainer",
            *(str(word) for pair in options.items() for word in pair),
        ]
        with log.with_suffix(".log").open("w") as output:
            process = self.lab.popen(job.hosts[rank].name, argv, stdout=output, stderr=subprocess.STDOUT)
        return _Rank(process, log)

    def _all_train(self) -> bool:
        self.read_on()
        return all(rank.iterations for ranks in self._ranks.values() for rank in ranks)

    def read_on(self) -> None:
        """Take in what the ranks have written. Raises ``DemoError`` when one has ended."""
        for rank in (rank for ranks in self._ranks.values() for rank in ranks):
            if rank.process.poll() is not None:
                raise DemoError(f"{rank.log.stem} ended with status {rank.process.returncode}, see {rank.log.stem}.log")
            rank.read_on()

    def latest(self) -> dict[str, tuple[int, float]]:
        """Per job: iterations done and the seconds of the latest, as rank 0 saw it."""
        return {job_id: (ranks[0].iterations, ranks[0].latest_s or 0.0) for job_id, ranks in self._ranks.items()}

    def rank_process(self, job_id: str, rank: int) -> subprocess.Popen[Any]:
        return self._ranks[job_id][rank].process

    def stop(self) -> None:
        """Stop all jobs at an agreed iteration each. Raises ``DemoError`` when a rank does not end well."""
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
    """Listens to the routes of some jobs. ``changes``: everything heard so far, in order of arrival."""

    def __init__(self, address: str, job_ids: Sequence[str]) -> None:
        self.changes: list[RouteChange] = []
        self._client = Client(address)
        self._closing = threading.Event()
        self._threads = [threading.Thread(target=self._watch, args=(job_id,), daemon=True) for job_id in job_ids]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._client.close()

    def _watch(self, job_id: str) -> None:
        while not self._closing.is_set():
            try:
                self._listen(job_id)
            except SignalboxError:
                pass  # the job is not registered yet, or the controller is away: ask again
            except Exception:
                if not self._closing.is_set():  # a closed channel ends its streams with errors of its own
                    raise
            self._closing.wait(POLL_S)

    def _listen(self, job_id: str) -> None:
        for heard in self._client.watch_routes(job_id):
            paths = {(r.src, r.dst): tuple(r.switches) if r.pinned else () for r in heard.routes}
            latest = self.in_force().get(job_id)
            if latest is None or latest.paths != paths:
                self.changes.append(RouteChange(time.monotonic(), job_id, paths))

    def in_force(self) -> dict[str, RouteChange]:
        """The latest change per job."""
        return {change.job_id: change for change in tuple(self.changes)}
