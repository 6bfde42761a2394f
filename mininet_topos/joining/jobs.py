"""Real jobs in the hosts of a lab: start, rounds, logs and stop. The processes end with ``stop`` or with the lab."""

import json
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
from mininet_topos.joining.rank import carried_path, go, log_path, ready_path, stop
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import LabError, wait_for
from mininet_topos.trainer.log import Iteration, RankLog, read_rank_log
from offline.scenarios.topologies import Host

Library = Literal["gloo", "open-mpi"]
SUBNET = "10.0.0.0/16"
"""Subnet of a lab's hosts."""

START_S = 120.0
ROUND_S = 120.0
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

    ``folder``: directory of the ranks' logs and outputs. ``iterations``: number per round; without it a round lasts
    until ``end_round``. ``rounds``: number of rounds. ``before_mpirun``: command that starts mpirun. ``forks``: process
    that starts ranks of Gloo at once. ``gloo_options``: additional options of ``gloo_rank``."""

    lab: Lab
    jobs: Sequence[LibraryJob]
    folder: Path
    iterations: int | None = None
    rounds: int = 1
    before_mpirun: Sequence[str] = ()
    forks: ForkedRanks | None = None
    gloo_options: Sequence[str] = ()
    _processes: dict[str, subprocess.Popen[Any] | ForkedRank] = field(default_factory=dict)
    _sessions: list[Path] = field(default_factory=list)
    """Session directories of Open MPI, one per mpirun, below the usual directory: paths of sockets in them must be
    short."""

    def start(self) -> None:
        """Start every rank of Gloo, and return when all wait for the first round.

        Ranks of MPI start with each round."""
        self.launch()
        gloo = [job for job in self.jobs if job.library == "gloo"]
        awaited = [ready_path(self._control(job), rank) for job in gloo for rank in range(len(job.hosts))]
        self._wait(lambda: all(path.exists() for path in awaited), "the ranks to start", START_S)

    def launch(self) -> None:
        """Start every rank of Gloo, and return at once. If a round was begun earlier, it starts when they are ready."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for job in self.jobs:
            if job.library == "gloo":
                words = [*self._words(job), "--rounds", str(self.rounds), *self.gloo_options]
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

    def begin_round(self, number: int = 0) -> None:
        """Begin a round: all jobs connect anew and train."""
        for job in self.jobs:
            go(self._control(job), number)
            if job.library == "open-mpi":
                names = [self.lab.namespace(host) for host in job.hosts]
                words = [*self._words(job), "--round", str(number)]
                self._sessions.append(session := Path(tempfile.mkdtemp(prefix="signalbox-mpirun-")))
                argv = [*self.before_mpirun, *mpirun(names, SUBNET, session, words, TUNED[job.variant])]
                self._start(f"{job.job_id}-mpirun{number}", job.hosts[0], argv)

    def wait_for_iterations(self, count: int, number: int = 0, deadline_s: float = START_S) -> None:
        """Return when each job has finished ``count`` iterations of the round."""
        self._wait(
            lambda: all(len(self.iterations_of(job, number)) >= count for job in self.jobs), "iterations", deadline_s
        )

    def end_round(self, number: int = 0) -> None:
        """Request each job to stop after the iteration that it starts next, and wait until every rank has stopped."""
        self.ask_to_end(number)
        self.wait_for_end(number)

    def ask_to_end(self, number: int = 0) -> None:
        """Request each job to stop after the iteration that it starts next; return at once."""
        for job in self.jobs:
            stop(self._control(job), number)

    @property
    def running(self) -> bool:
        """True while a process still runs. Raises ``LabError`` when a process has failed."""
        self.check()
        return any(process.poll() is None for process in self._processes.values())

    def wait_for_end(self, number: int = 0, deadline_s: float = ROUND_S) -> None:
        """Return when every rank has ended the round."""

        def ended() -> bool:
            logs = [log for job in self.jobs for log in self._logs(job, number)]
            return all(log and log.ended for log in logs)

        self._wait(ended, f"round {number} to end", deadline_s)

    def logs(self, job: LibraryJob, number: int = 0) -> list[RankLog]:
        """Return the logs of the ranks that have one, in rank order."""
        return [log for log in self._logs(job, number) if log]

    def iterations_of(self, job: LibraryJob, number: int = 0) -> Sequence[Iteration]:
        """Return the iterations that rank 0 has finished in the round."""
        log = _read(log_path(self.folder, job.job_id, 0, number))
        return log.iterations if log else ()

    def carried(self, job: LibraryJob, number: int = 0) -> dict[tuple[str, str], float]:
        """Return the bytes of one iteration by sending and receiving address, from the counters of the ranks' sockets.

        The round must have ended."""
        return {
            (src, dst): count
            for rank, dst in enumerate(job.peers)
            for src, count in json.loads(carried_path(self.folder, job.job_id, rank, number).read_text()).items()
        }

    def wait(self, deadline_s: float = END_S) -> None:
        """Return when all processes have ended by themselves after the last round."""
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

    def _logs(self, job: LibraryJob, number: int) -> list[RankLog | None]:
        return [_read(log_path(self.folder, job.job_id, rank, number)) for rank in range(len(job.hosts))]


def _read(path: Path) -> RankLog | None:
    """Return the log; None when it does not exist, or its first line is not complete yet."""
    if not path.exists() or "\n" not in path.read_text():
        return None
    return read_rank_log(path)
