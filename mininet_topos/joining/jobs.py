"""Real jobs in the hosts of a lab: start, begin, logs and stop. The processes end with ``stop`` or with the lab."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mininet_topos.joining.forked_ranks import ForkedRank, ForkedRanks
from mininet_topos.joining.launch import ENVIRONMENT, TUNED, gloo_rank, gloo_words, mpirun
from mininet_topos.joining.rank import go, log_path, ready_path, stop
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import LabError, wait_for
from mininet_topos.trainer.log import Iteration, RankLog, read_rank_log
from offline.scenarios.topologies import Host

Library = Literal["gloo", "open-mpi"]
SUBNET = "10.0.0.0/16"
"""Subnet of a lab's hosts."""

START_S = 120.0
STOP_S = 10.0
END_S = 60.0
POLL_S = 0.1
LOG_TAIL = 5000


@dataclass(frozen=True, slots=True)
class LibraryJob:
    """Job of a communication library. ``hosts``: hosts of the ranks, in rank order.

    ``variant``: choice of Open MPI's algorithms, see ``launch.TUNED``."""

    job_id: str
    library: Library
    collective: str
    hosts: tuple[Host, ...]
    elements: int
    variant: str = "default"

    @property
    def peers(self) -> tuple[str, ...]:
        return tuple(host.ip for host in self.hosts)


@dataclass
class RunningJobs:
    """Jobs of communication libraries that run in the hosts of a lab.

    ``folder``: directory of the ranks' logs and outputs. ``iterations``: number of iterations; without it jobs run
    until ``ask_to_end``. ``before_mpirun``: command that starts mpirun. ``forks``: process that starts ranks of Gloo at
    once. ``gloo_options``: additional options of ``gloo_rank``."""

    lab: Lab
    jobs: Sequence[LibraryJob]
    folder: Path
    iterations: int | None = None
    before_mpirun: Sequence[str] = ()
    forks: ForkedRanks | None = None
    gloo_options: Sequence[str] = ()
    _processes: dict[str, subprocess.Popen[Any] | ForkedRank] = field(default_factory=dict)
    _sessions: list[Path] = field(default_factory=list)
    """Session directories of Open MPI, one per mpirun, below the usual directory: paths of sockets in them must be
    short."""

    def start(self) -> None:
        """Start every rank of Gloo, and return when all wait for ``begin``, with which ranks of MPI start."""
        self.launch()
        gloo = [job for job in self.jobs if job.library == "gloo"]
        awaited = [ready_path(self._control(job), rank) for job in gloo for rank in range(len(job.hosts))]
        self._wait(lambda: all(path.exists() for path in awaited), "the ranks to start", START_S)

    def launch(self) -> None:
        """Start every rank of Gloo, and return at once. After ``begin`` they train as soon as they are ready."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for job in self.jobs:
            if job.library == "gloo":
                words = [*self._words(job), *self.gloo_options]
                for rank, host in enumerate(job.hosts):
                    self._start_gloo(f"{job.job_id}-rank{rank}", host, rank, words)

    def _start_gloo(self, name: str, host: Host, rank: int, words: Sequence[str]) -> None:
        interface = self.lab.topo.interface(host.name, 0)
        if self.forks is None:
            self._start(name, host, gloo_rank(rank, interface, words))
            return
        output = self.folder / f"{name}.log"
        own = gloo_words(rank, interface, words)
        self._processes[name] = self.forks.start(name, self.lab.namespace(host), own, output)

    def _words(self, job: LibraryJob) -> list[str]:
        options = {
            "--job": job.job_id,
            "--peers": ",".join(job.peers),
            "--collective": job.collective,
            "--elements": job.elements,
            "--out": self.folder,
            "--control": self._control(job),
            **({"--iterations": self.iterations} if self.iterations else {}),
        }
        return [str(word) for pair in options.items() for word in pair]

    def _start(self, name: str, host: Host, argv: Sequence[str]) -> None:
        with (self.folder / f"{name}.log").open("w") as output:
            # Not Lab.popen: from inside a host's mount namespace mpirun would not see the other hosts' namespaces.
            self._processes[name] = subprocess.Popen(
                ["ip", "netns", "exec", self.lab.namespace(host), *argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | ENVIRONMENT,
                start_new_session=True,
            )

    def _control(self, job: LibraryJob) -> Path:
        return self.folder / "control" / job.job_id

    def check(self) -> None:
        """Raise ``LabError`` when a process has failed, with the end of the process's output."""
        for name, process in self._processes.items():
            if process.poll():
                said = (self.folder / f"{name}.log").read_text(errors="replace")[-LOG_TAIL:]
                raise LabError(f"{name} ended with status {process.returncode}: {said}")

    def begin(self) -> None:
        """Let all jobs connect and train."""
        for job in self.jobs:
            go(self._control(job))
            if job.library == "open-mpi":
                names = [self.lab.namespace(host) for host in job.hosts]
                self._sessions.append(session := Path(tempfile.mkdtemp(prefix="signalbox-mpirun-")))
                argv = [*self.before_mpirun, *mpirun(names, SUBNET, session, self._words(job), TUNED[job.variant])]
                self._start(f"{job.job_id}-mpirun", job.hosts[0], argv)

    def wait_for_iterations(self, count: int) -> None:
        """Return when each job has finished ``count`` iterations."""
        self._wait(lambda: all(len(self.iterations_of(job)) >= count for job in self.jobs), "iterations", START_S)

    def ask_to_end(self) -> None:
        """Request each job to stop after the iteration that it starts next; return at once."""
        for job in self.jobs:
            stop(self._control(job))

    @property
    def running(self) -> bool:
        """True while a process still runs. Raises ``LabError`` when a process has failed."""
        self.check()
        return any(process.poll() is None for process in self._processes.values())

    def logs(self, job: LibraryJob) -> list[RankLog]:
        """Return the logs of the ranks that have one, in rank order."""
        logs = (_read(log_path(self.folder, job.job_id, rank)) for rank in range(len(job.hosts)))
        return [log for log in logs if log]

    def iterations_of(self, job: LibraryJob) -> Sequence[Iteration]:
        """Return the iterations that rank 0 has finished."""
        log = _read(log_path(self.folder, job.job_id, 0))
        return log.iterations if log else ()

    def wait(self, deadline_s: float = END_S) -> None:
        """Return when all processes have ended by themselves."""
        self._wait(lambda: not self.running, "the ranks to end", deadline_s)
        self._remove_sessions()

    def stop(self) -> None:
        """End all processes at once. mpirun ends the ranks that it has started."""
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)
            process.kill()
            process.wait()
        self._remove_sessions()

    def _remove_sessions(self) -> None:
        while self._sessions:
            shutil.rmtree(self._sessions.pop(), ignore_errors=True)

    def _wait(self, condition: Any, what: str, deadline_s: float) -> None:
        def holds() -> bool:
            self.check()
            return bool(condition())

        wait_for(holds, what, deadline_s, POLL_S)


def _read(path: Path) -> RankLog | None:
    """Return the log; None when it does not exist, or its first line is not complete yet."""
    if not path.exists() or "\n" not in path.read_text():
        return None
    return read_rank_log(path)
