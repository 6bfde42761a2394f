"""Emulated fabrics on which jobs are compared: servers at optical switches, and one switch.

In: sizes, a job, and optionally its wiring. Out: the measurements of the job's ranks. Labs, controllers and training
processes each end with their ``with`` block.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from controller.circuits.wiring.circuits import Wiring
from mininet_topos.controller_process import ControllerProcess, Settings
from mininet_topos.direct_connect import DirectConnect
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import LabError, wait_for
from mininet_topos.lab.running_fabric import WholeTraining, install_static_routes
from mininet_topos.leaf_spine import LeafSpine
from mininet_topos.probe.queues import large_socket_buffers, lengthen_queues
from mininet_topos.rewiring.answers import accept, give
from mininet_topos.rewiring.model import Job, Runs, Size
from mininet_topos.trainer.log import RankLog
from mininet_topos.trainer.whole_job import WIRED
from offline.scenarios.topologies import Host, circuits_config, optical
from signalbox.client import Client
from signalbox.errors import SignalboxError
from signalbox.jobs.spec import JobSpec
from signalbox.mapping import job_spec, word_in

PREFIX = "w"
"""Prefix of the labs' names."""

QUEUE_S = 0.2
"""Seconds of the queue of each link. In an all-to-all several connections share a circuit, each with a window of some
packets. The lab's 50 ms hold eight packets at 2 Mbit/s. After the loss of the last packets of a transfer TCP would take
200 ms and more to recover. Fabrics for training lose no packets."""

CONTROLLER: Settings = {
    "discovery": {"edge_after_s": 1.0},
    "planning": {"time_limit_s": 12.0, "interval_s": 3600.0},
    "counters": {"interval_s": 3600.0, "window_s": 3600.0},
}
"""Settings of the controller. It plans when a job joins, and not again while the job trains. It practically never reads
counters: jobs send the announced bytes, but while their processes start, counters would show fewer."""
FIRST_LEFT_OUT = 1
"""Number of first iterations that do not count, because connections are slow at first."""
READY_S, ITERATION_S, POLL_S = 60.0, 90.0, 0.1
ENDED_S = 30.0


class Trained(NamedTuple):
    """Measurements of a job.

    ``iterations_s``: iterations that count, each the mean over the ranks. ``parallelization``, ``runs``, ``wiring``:
    choices of the controller, on optical switches."""

    iterations_s: tuple[float, ...]
    parallelization: str = ""
    runs: JobSpec | None = None
    wiring: Wiring | None = None

    @property
    def mean_s(self) -> float:
        return fmean(self.iterations_s)


class Change(NamedTuple):
    """Change of circuits that the controller has reported."""

    circuits: int
    ms: float


@dataclass
class Circuits:
    """Lab with optical switches, and its controller."""

    size: Size
    lab: Lab
    controller: ControllerProcess
    client: Client
    folder: Path

    def train(self, job: Job, job_id: str, iterations: int, given: tuple[Wiring, Runs] | None = None) -> Trained:
        """Train a job, and return its measurements.

        ``given``: wiring and the job's execution on it. With None the controller chooses a wiring, even for a job that
        it would otherwise refuse. Raises ``LabError``, and ``SignalboxError`` when a call of the controller fails."""
        wirings = self.folder / WIRINGS
        addresses = [host.ip for host in self.lab.hosts]
        if given is None:
            accept(wirings, job_id)
        else:
            wiring, runs = given
            of_lab = runs.spec.model_copy(update={"job_id": job_id, "endpoints": tuple(addresses)})
            give(wirings, job_id, wiring, runs.parallelization, of_lab, runs.planned_s)
        with running(self.lab, job, job_id, self.folder, self.controller.address) as training:
            wait_for(lambda: self.is_pinned(job_id), f"{job_id} to be wired and pinned", READY_S, POLL_S)
            found = self.client.get_job(job_id).wiring
            times_s = measured(training, time.monotonic(), iterations)
            if training.runs != job_spec(found.runs):
                raise LabError(f"{job_id} does not run as the controller has chosen")
        wait_for(lambda: job_id not in self.job_ids(), f"{job_id} to leave", ENDED_S, POLL_S)
        return Trained(times_s, found.parallelization, job_spec(found.runs), self.wiring_of(found.circuits))

    def changes(self, after_s: float) -> list[Change]:
        found = []
        for event in self.client.list_events(after_s):
            if event.what == "circuits changed":
                told = {each.name: each.value for each in event.details}
                found.append(Change(int(told["count"]), float(told["ms"])))
        return found

    def job_ids(self) -> set[str]:
        return {each.spec.job_id for each in self.client.list_jobs()}

    def wiring_of(self, circuits: Sequence[Any]) -> Wiring:
        """Return the wiring of a job on all servers. ``circuits``: circuits in the API's form."""
        peers: list[list[int | None]] = [[None] * self.size.servers for _ in range(self.size.interfaces)]
        for each in circuits:
            peers[each.src.port - 2][each.src.dpid - 1] = each.dst.dpid - 1
        return Wiring(self.size.servers, tuple(map(tuple, peers)))

    def is_pinned(self, job_id: str) -> bool:
        self.controller.check()
        try:
            found = self.client.get_job(job_id)
        except SignalboxError:  # it is about to be registered
            return False
        return bool(found.wiring.circuits) and word_in(found, "state") == "pinned"


WIRINGS = "wirings"
"""Name of the folder of wirings that the controller uses instead of its own."""


@contextmanager
def circuits(size: Size, folder: Path) -> Iterator[Circuits]:
    """Run a lab with optical switches, and its controller.

    Raises ``LabError``, and ``SignalboxError`` when the controller does not start."""
    (folder / WIRINGS).mkdir(parents=True, exist_ok=True)
    bps = size.mbps * 1e6
    controller = ControllerProcess(
        folder,
        settings={"fabric": {"link_bps": bps, "host_link_bps": size.interfaces * bps}, **CONTROLLER},
        program=("mininet_topos.rewiring.answers", "--wirings", str(folder / WIRINGS)),
        tables=circuits_config(optical(size.servers, size.interfaces, bps), drain_s=QUEUE_S),
    )
    topo = DirectConnect(size.servers, size.interfaces, size.mbps, prefix=PREFIX)
    with large_socket_buffers(), Lab(topo, controller=controller.target) as lab, controller.running() as client:
        lab.wait_connected()
        lengthen_queues(lab, QUEUE_S)
        yield Circuits(size, lab, controller, client, folder)


@contextmanager
def one_switch(size: Size) -> Iterator[Lab]:
    """Run the alternative that costs as much as the optical switches: one switch with a link to each server.

    There is no controller, since there is only one path."""
    topo = LeafSpine(1, 1, size.servers, size.other_mbps, size.other_mbps, prefix=PREFIX)
    with large_socket_buffers(), Lab(topo, controller=None) as lab:
        lengthen_queues(lab, QUEUE_S)
        install_static_routes(lab)
        yield lab


def train_alone(lab: Lab, job: Job, job_id: str, folder: Path, iterations: int) -> Trained:
    """Train a job without a controller, and return its measurements. ``job`` must have no parallelizations."""
    with running(lab, job, job_id, folder) as training:
        return Trained(measured(training, time.monotonic(), iterations))


# ---- training


@dataclass
class Running:
    """Job that trains. ``folder``: directory with the log of rank 0."""

    job_id: str
    training: WholeTraining
    folder: Path

    def done(self) -> Sequence[float]:
        """Return the start of each iteration that rank 0 has finished, in monotonic seconds."""
        log = self.folder / "rank0.jsonl"
        lines = log.read_text().rpartition("\n")[0].splitlines() if log.exists() else []
        return [line["start"] for line in map(json.loads, lines) if "i" in line]

    @property
    def runs(self) -> JobSpec:
        """Spec that all ranks run, with the rings that the controller chose."""
        return JobSpec.parse(json.loads((self.folder / "rendezvous" / WIRED).read_text())["runs"])

    def check(self) -> None:
        """Raise ``LabError`` when a rank has ended."""
        if any(self.training.process(rank).poll() is not None for rank in range(self.training.size)):
            self.training.wait()
            raise LabError(f"{self.job_id}: its ranks ended too soon")


@contextmanager
def running(
    lab: Lab, job: Job, job_id: str, folder: Path, api: str | None = None, hosts: Sequence[Host] = ()
) -> Iterator[Running]:
    """Run the job on hosts of a lab, by default all, until the block ends. Raises ``LabError`` when a rank fails."""
    file = folder / f"{job_id}.job.json"
    addresses = [host.ip for host in hosts or lab.hosts]
    file.write_text(json.dumps({**job, "job_id": job_id, "endpoints": addresses}))
    training = WholeTraining(lab, file, folder / job_id, api=api)
    try:
        yield Running(job_id, training, folder / job_id)
        training.stop()
        training.wait(ITERATION_S)
    except BaseException:
        training.kill()
        raise


def measured(of: Running, since: float, count: int) -> tuple[float, ...]:
    """Measure the next ``count`` iterations that begin after ``since`` (monotonic seconds), without the first.

    Returns their times, each the mean over the ranks. Raises ``LabError`` when a result is wrong or an iteration takes
    too long."""
    needed = FIRST_LEFT_OUT + count

    def counted() -> int:
        of.check()
        return sum(start >= since for start in of.done())

    for number in range(1, needed + 1):
        wait_for(at_least(counted, number), f"iteration {number} of {of.job_id}", READY_S + ITERATION_S, POLL_S)
    return means(of.training.logs(), since)[FIRST_LEFT_OUT:needed]


def at_least(counted: Callable[[], int], number: int) -> Callable[[], bool]:
    return lambda: counted() >= number


def means(logs: Sequence[RankLog], since: float) -> tuple[float, ...]:
    """Return the duration in seconds of each iteration, as the mean over the ranks.

    An iteration counts if all ranks have finished it and rank 0 began it at ``since`` or later. Raises ``LabError``
    when a result is wrong."""
    ended = min(len(log.iterations) for log in logs)
    rows: list[float] = []
    for done in zip(*(log.iterations[:ended] for log in logs), strict=True):
        if not all(each.ok for each in done):
            raise LabError(f"{logs[0].job_id}: a result of iteration {done[0].index} is wrong")
        if done[0].start >= since:
            rows.append(fmean(each.duration_s for each in done))
    return tuple(rows)


def one_way(job: Job, parallelization: str) -> Mapping[str, Any]:
    """Return a job without parallelizations that sends the same as ``job`` in this parallelization.

    A job without parallelizations is returned unchanged."""
    for way in job.get("parallelizations", ()):
        if way["name"] == parallelization:
            return {name: value for name, value in way.items() if name != "name"}
    return job
