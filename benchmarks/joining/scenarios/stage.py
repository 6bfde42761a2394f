"""Fabric in one mode, on which a scenario begins and ends jobs while the controller is watched.

Jobs are those of Gloo and Open MPI (``RunningJobs``), or whole jobs of the trainer. The stage announces jobs and
reports their iterations, unless they join by themselves. It records the log of each job's rank 0 and, every ``LOOK_S``
seconds, what the API shows (``Look``). All times are seconds after the stage began.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from benchmarks.joining.mixes import Mode
from benchmarks.measures import background
from mininet_topos.demo.phases import HOSTS_PER_LEAF, LEAVES, RATE_BPS, SPINES
from mininet_topos.joining.forked_ranks import ForkedRanks
from mininet_topos.joining.jobs import START_S, LibraryJob, RunningJobs
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import LabError
from mininet_topos.lab.running_fabric import WholeTraining, install_static_routes, running_fabric
from mininet_topos.leaf_spine import LeafSpine
from mininet_topos.trainer.log import Iteration
from signalbox.client import Client
from signalbox.errors import SignalboxError
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobSpec
from signalbox.mapping import seconds, word_in

HOSTS = LEAVES * HOSTS_PER_LEAF
MBPS = RATE_BPS / 1e6
PREFIX = "jn"
TICK_S = 0.1
LOOK_S = 0.5
STOP_S = 60.0
RUN_FOLDER = Path(os.environ.get("OVS_RUNDIR", "/var/run/openvswitch"))

Flow = tuple[str, str, str]
"""Job, source address and destination address."""


@dataclass(frozen=True, slots=True)
class Shown:
    """State of a job that the API shows."""

    source: str
    slowdown: float | None
    measured: float | None
    difference: str
    counted: bool
    """Whether counters have covered a whole window."""


@dataclass(frozen=True, slots=True)
class Look:
    """State of all jobs that the API shows at one time."""

    after_s: float
    jobs: Mapping[str, Shown]
    alarms: Mapping[tuple[str, str], str]
    """Text of each alarm, by (kind, subject)."""
    paths: Mapping[Flow, tuple[str, ...]]
    """Names of the switches on the path of each pinned flow."""


class Program(Protocol):
    """Processes of a job."""

    def iterations(self) -> Sequence[Iteration]: ...
    def ask_to_end(self) -> None: ...
    @property
    def running(self) -> bool: ...
    def stop(self) -> None: ...


class OfLibrary:
    """Job of Gloo or Open MPI."""

    def __init__(self, jobs: RunningJobs) -> None:
        self._jobs = jobs
        jobs.launch()
        jobs.begin()

    def iterations(self) -> Sequence[Iteration]:
        return self._jobs.iterations_of(self._jobs.jobs[0])

    def ask_to_end(self) -> None:
        self._jobs.ask_to_end()

    @property
    def running(self) -> bool:
        return self._jobs.running

    def stop(self) -> None:
        self._jobs.stop()


class OfTrainer:
    """Job of the trainer, with all its ranks."""

    def __init__(self, lab: Lab, spec: JobSpec, folder: Path) -> None:
        folder.mkdir(parents=True)
        file = folder / "job.json"
        file.write_text(json.dumps(spec.model_dump(mode="json")))
        self._training = WholeTraining(lab, file, folder)
        self._log = folder / "rank0.jsonl"

    def iterations(self) -> Sequence[Iteration]:
        begun = self._log.exists() and "\n" in self._log.read_text()
        return self._training.logs()[0].iterations if begun else ()

    def ask_to_end(self) -> None:
        self._training.stop()

    @property
    def running(self) -> bool:
        """Whether a rank still runs. Raises ``LabError`` when one has failed."""
        states = [self._training.process(rank).poll() for rank in range(self._training.size)]
        if any(states):
            self._training.wait(0)
        return None in states

    def stop(self) -> None:
        self._training.kill()


@dataclass
class Live:
    job_id: str
    program: Program
    announced: bool
    """Whether the stage announced the job, and reports its iterations."""
    reported: int = 0
    """Number of iterations of the present program that the stage has reported."""
    next_index: int = 0
    """Index of the next iteration in the reports of this job."""
    asked_to_end: bool = False
    ended: bool = False


@dataclass
class Stage:
    """Running fabric and its jobs."""

    lab: Lab
    mode: Mode
    folder: Path
    forks: ForkedRanks
    client: Client | None = None
    """Client of the controller; None on the flat switch, which has no controller."""
    address: str = ""
    began: float = field(default_factory=time.monotonic)
    jobs: dict[str, Live] = field(default_factory=dict)
    looks: list[Look] = field(default_factory=list)

    @property
    def now_s(self) -> float:
        return time.monotonic() - self.began

    @property
    def planned(self) -> bool:
        return self.mode is Mode.PLANNED

    # ---- jobs

    def begin(self, job: LibraryJob, announced: JobSpec | None = None, join: Sequence[str] | None = None) -> None:
        """Begin a job.

        - ``announced``: spec that the stage registers for it.
        - ``join``: options for a job that joins by itself.

        Both are ignored under ECMP and on the flat switch."""
        options = ["--join", self.address, *join] if join is not None and self.planned else []
        running = RunningJobs(
            self.lab, [job], self.folder / "ranks" / job.job_id, forks=self.forks, gloo_options=options
        )
        self._add(job.job_id, OfLibrary(running), announced)

    def begin_whole(self, spec: JobSpec) -> None:
        """Announce a job of the trainer, and begin it."""
        self._add(spec.job_id, OfTrainer(self.lab, spec, self.folder / "ranks" / spec.job_id), spec)

    def _add(self, job_id: str, program: Program, announced: JobSpec | None) -> None:
        self.jobs[job_id] = Live(job_id, program, announced is not None and self.planned)
        if announced and self.planned:
            assert self.client
            self.client.register_job(announced)

    def ask_to_end(self, job_id: str) -> None:
        """Ask a job to end, and do not wait for it."""
        self.jobs[job_id].asked_to_end = True
        self.jobs[job_id].program.ask_to_end()

    def exchange(self, first: str, second: str) -> None:
        """Exchange the programs of two jobs: from now on each reports the iterations of the other's program."""
        a, b = self.jobs[first], self.jobs[second]
        a.program, b.program = b.program, a.program
        a.reported, b.reported = b.reported, a.reported

    def end_all(self) -> None:
        """Ask all jobs to end, and wait until they have. Raises ``LabError`` after ``STOP_S``."""
        for live in self.jobs.values():
            if not live.asked_to_end:
                self.ask_to_end(live.job_id)
        self._wait_for_all(lambda live: live.ended, "to end", STOP_S)

    def wait_for_training(self) -> None:
        """Wait until each job has finished an iteration. Raises ``LabError`` after ``START_S``."""
        self._wait_for_all(lambda live: bool(live.program.iterations()), "to train", START_S)

    def _wait_for_all(self, condition: Callable[[Live], bool], what: str, deadline_s: float) -> None:
        ends = self.now_s + deadline_s
        while late := [live.job_id for live in self.jobs.values() if not condition(live)]:
            self.tick()
            if self.now_s > ends:
                raise LabError(f"waited {deadline_s:g} s for {', '.join(late)} {what}")

    def iterations_of(self, job_id: str) -> list[tuple[float, float, bool]]:
        """Return the start and the duration of each iteration, and whether its result was right."""
        found = self.jobs[job_id].program.iterations()
        return [(round(i.start - self.began, 4), round(i.duration_s, 4), i.ok) for i in found]

    @contextmanager
    def explained(self, job_id: str) -> Iterator[list[tuple[float, str]]]:
        """Request ``explain`` for the job again and again while the block runs, in a thread of its own.

        Yields a list to which the time and the text of each answer are added."""
        answers: list[tuple[float, str]] = []

        def ask(over: threading.Event) -> None:
            with Client(self.address) as client:
                while not over.wait(LOOK_S):
                    try:
                        answer = client.explain(job_id).answer
                    except SignalboxError:  # the job is not registered yet, or not any more
                        continue
                    answers.append((self.now_s, " ".join(answer)))

        with background(ask):
            yield answers

    # ---- time

    def until(self, at_s: float) -> Iterator[float]:
        while self.now_s < at_s:
            self.tick()
            yield self.now_s

    def wait(self, at_s: float) -> None:
        for _ in self.until(at_s):
            pass

    def tick(self) -> None:
        """Wait ``TICK_S``; then report new iterations, and read the API if it is time.

        Raises ``LabError`` when a rank has failed."""
        time.sleep(TICK_S)
        for live in self.jobs.values():
            if not live.ended:
                live.ended = not live.program.running and live.asked_to_end
                self._report(live)
        if self.client and self.planned and (not self.looks or self.now_s >= self.looks[-1].after_s + LOOK_S):
            self.looks.append(self._look(self.client))

    def _report(self, live: Live) -> None:
        if not live.announced:
            return
        assert self.client
        new = live.program.iterations()[live.reported :]
        if new:
            times = [
                IterationTime(live.next_index + n, i.duration_s, i.communication_s, i.end) for n, i in enumerate(new)
            ]
            self.client.report_iterations(live.job_id, times)
            live.reported += len(new)
            live.next_index += len(new)
        if live.ended:
            self.client.deregister_job(live.job_id)

    def _look(self, client: Client) -> Look:
        after_s = self.now_s
        jobs = {job.spec.job_id: shown(job) for job in client.list_jobs()}
        paths = {
            (route.job_id, route.src, route.dst): tuple(route.held[0].switches)
            for route in client.list_routes()
            if route.held
        }
        alarms = {(word_in(a, "kind"), a.subject): a.text for a in client.get_status().alarms}
        return Look(round(after_s, 2), jobs, alarms, paths)

    def keep(self, file: Path) -> None:
        """Write all ``Look``s to a file, for questions that the rows cannot answer."""
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("w") as lines:
            for look in self.looks:
                words = {
                    **asdict(look),
                    "alarms": [[*of, text] for of, text in look.alarms.items()],
                    "paths": [[*flow, *path] for flow, path in look.paths.items()],
                }
                lines.write(json.dumps(words) + "\n")


def shown(job: Any) -> Shown:
    return Shown(
        source=word_in(job.demand, "source"),
        slowdown=round(job.slowdown, 3) if job.HasField("slowdown") else None,
        measured=round(job.efficiency_measured, 3) if job.HasField("efficiency_measured") else None,
        difference=job.demand.difference,
        counted=job.demand.HasField("window") and seconds(job.demand.window) > 0,
    )


@contextmanager
def switches_first() -> Iterator[None]:
    """Give Open vSwitch priority over all other sessions while the block runs.

    The negative niceness of Open vSwitch counts only within its session (sched(7), "The autogroup feature"). With eight
    other busy sessions, slow switches would slow down the jobs."""
    pid = (RUN_FOLDER / "ovs-vswitchd.pid").read_text().strip()
    autogroup = Path("/proc", pid, "autogroup")
    if not autogroup.exists():
        yield
        return
    before = autogroup.read_text().split()[-1]
    autogroup.write_text("-20")
    try:
        yield
    finally:
        with suppress(OSError):  # the process may have ended meanwhile
            autogroup.write_text(before)


@contextmanager
def stage(mode: Mode, folder: Path, prefix: str = PREFIX) -> Iterator[Stage]:
    """Yield the stage of a mode. At the end, stop all jobs and remove the fabric."""
    with switches_first(), ExitStack() as stack:
        forks = ForkedRanks(folder / "forks")
        stack.callback(forks.stop)
        if mode is Mode.FLAT:
            lab = stack.enter_context(Lab(LeafSpine(1, 1, HOSTS, MBPS, MBPS, prefix=prefix), controller=None))
            install_static_routes(lab)
            found = Stage(lab, mode, folder, forks)
        else:
            topo = LeafSpine(LEAVES, SPINES, HOSTS_PER_LEAF, MBPS, MBPS, prefix=prefix)
            settings = {"planning": {"mode": mode.value}}
            lab, controller, client = stack.enter_context(running_fabric(topo, folder, MBPS, settings))
            found = Stage(lab, mode, folder, forks, client, controller.address)
        try:
            yield found
        finally:
            for live in found.jobs.values():
                live.program.stop()


def moves(looks: Sequence[Look]) -> int:
    """Return how often a flow was pinned to another path than before, even if it was hashed in between."""
    count, latest = 0, dict[Flow, tuple[str, ...]]()
    for look in looks:
        count += sum(latest.get(flow, path) != path for flow, path in look.paths.items())
        latest.update(look.paths)
    return count
