"""Training hosts, and leaves that count the hosts' bytes, for tests of measured demands."""

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from controller.demand.job_demand import JobDemand
from controller.demand.measured_demand import MeasuredDemand
from controller.fabric.counter_samples import Counted
from controller.fabric.topology import Dpid
from controller.jobs.messages import RegisterJob, UpdateJob
from controller.jobs.registry import JobRegistry
from signalbox.jobs.reports import Connected, IterationTime
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.jobs.subflows import Pair
from tests.support.job_specs import job_spec, sends

INTERVAL_S = 2.0
SEGMENT, HEADERS = 1448, 66
ADDRESSES = [f"10.0.{number}.1" for number in range(1, 9)]
PLACE = {ip: number for number, ip in enumerate(ADDRESSES)}
M = 480_000
Traffic = Mapping[Pair, float]
"""Payload bytes per iteration, by pair of source and destination."""


def ring(ips: list[str], step: int = 1) -> dict[Pair, float]:
    n = len(ips)
    return {(ip, ips[(i + step) % n]): 2 * (n - 1) / n * M for i, ip in enumerate(ips)}


def collective(algorithm: str = "ring_all_reduce", size: int = M) -> list[dict[str, Any]]:
    """Return the ``collectives`` of a job spec: a single one, over all hosts of the job."""
    return [sends(algorithm, size)]


def spec(ips: list[str], collectives: list[dict[str, Any]] | None = None, job_id: str = "job", **more: Any) -> JobSpec:
    return job_spec(job_id, ips, *(collective() if collectives is None else collectives), **more)


class Cluster:
    """Hosts that train, each at its own leaf; the rules installed on a leaf count the bytes of its host.

    A rule is in place one polling interval after the request.
    ``bursts``: fraction of the iteration time during which the iteration's bytes are sent.
    ``lag_s``: seconds between counter updates of a leaf; different leaves update at different times.
    ``apart_s``: seconds between the polls of two leaves."""

    def __init__(
        self,
        *specs: JobSpec,
        reports: bool = True,
        max_rules: int = 4032,
        bursts: float = 1.0,
        lag_s: float = 0.0,
        apart_s: float = 0.0,
    ) -> None:
        self.registry = JobRegistry(100)
        self.now = 1000.0
        self.demand = MeasuredDemand(INTERVAL_S, max_rules)
        self.begin(*specs)
        self.reports = reports
        self.bursts = bursts
        self.suspicious: frozenset[str] = frozenset()
        self.away: set[str] = set()
        self.without_path: set[JobId] = set()
        self.lag_s = lag_s
        self.apart_s = apart_s
        self.sent: dict[Pair, list[float]] = {}
        self.known: dict[Pair, tuple[float, ...]] = {}
        self.polled: dict[Pair, float] = {}
        self.rules: dict[Pair, tuple[float, float]] = {}
        self.iteration_s = 1.3
        self.progress = 0.0
        self.done = 0
        self.random = random.Random(1)
        self.job = JobId("job")

    def connect(self, src: str, dst: str, port: int = 1000) -> None:
        """Report for the job that the host ``src`` has this connection and no other."""
        reported = frozenset({Connected(src, port, dst, 2000)})
        self.registry.report_connections(self.job, src, reported, self.registry.jobs[self.job].uid)
        self.demand.follow(self.registry.jobs, self.now)

    def update(self, **change: Any) -> None:
        job = self.registry.jobs[self.job]
        self.registry.update([UpdateJob(JobSpec.parse({**job.spec.model_dump(), **change}), owner=job.uid)])
        self.demand.follow(self.registry.jobs, self.now)

    def begin(self, *specs: JobSpec, tenant: str = "") -> None:
        for one in specs:
            self.registry.register(RegisterJob(one, tenant=tenant), self.now)
        self.demand.follow(self.registry.jobs, self.now)

    def end(self, job_id: str) -> None:
        self.registry.deregister(JobId(job_id), None, self.now, force=True)
        self.demand.follow(self.registry.jobs, self.now)

    def train(self, seconds: float, traffic: Traffic, loss: float = 0.0, pause: bool = False) -> JobDemand:
        """Let the job send ``traffic`` for some seconds, and return the demand that was measured.

        The bytes are counted and the demand is updated every ``INTERVAL_S``. Two packets share an acknowledgement;
        with ``loss`` each packet has its own acknowledgement, with SACK blocks. With ``pause`` nothing is sent."""
        end = self.now + seconds
        while self.now < end - 1e-9:
            self.now += 0.1
            if not pause:
                self._send(0.1, traffic, loss)
            self._refresh()
            is_due = self._is_due(0.0)
            for number, ip in enumerate(ADDRESSES):
                if (self._is_due(number * self.apart_s) if self.apart_s else is_due) and ip not in self.away:
                    self._read(ip)
            if is_due:
                self._poll()
        return self.of_job

    def _send(self, seconds: float, traffic: Traffic, loss: float) -> None:
        before = self.progress
        self.progress += seconds / self.iteration_s
        first, last = before % 1, before % 1 + seconds / self.iteration_s
        share = sum(max(0.0, min(last, base + self.bursts) - max(first, base)) / self.bursts for base in (0.0, 1.0))
        for (src, dst), size in traffic.items() if share else ():
            segments = share * size / SEGMENT * (1 + loss)
            self._count((src, dst), segments * (SEGMENT + HEADERS), segments)
            acks = segments * (1.0 if loss else 0.5)
            self._count((dst, src), acks * (HEADERS + (28 if loss else 0)), acks)
        if int(self.progress) > int(before):
            self.done += 1
            if self.reports:
                report = [IterationTime(self.done, self.iteration_s, self.iteration_s * self.bursts, self.now)]
                for job_id in self.registry.jobs:
                    self.demand.reported(job_id, report, self.now)

    def _count(self, pair: Pair, bytes_: float, packets: float) -> None:
        total = self.sent.setdefault(pair, [0.0, 0.0])
        total[0] += bytes_
        total[1] += packets

    def _refresh(self) -> None:
        steps = max(1, round(10 * self.lag_s))
        now = round(10 * self.now)
        updating = {ip for ip, place in PLACE.items() if (now + place) % steps == 0}
        for pair, total in self.sent.items():
            if pair[0] in updating:
                self.known[pair] = total[0], total[1]

    def _is_due(self, after_s: float) -> bool:
        intervals = (self.now - after_s) / INTERVAL_S
        return abs(intervals - round(intervals)) < 1e-6

    def _read(self, ip: str) -> None:
        readings = []
        for pair, start in self.rules.items():
            if pair[0] == ip:
                now = self.known.get(pair, (0.0, 0.0))
                readings.append((Counted(*pair), max(0, int(now[0] - start[0])), max(0, int(now[1] - start[1]))))
        counts = np.array([reading[1:] for reading in readings], np.float64).reshape(-1, 2)
        what = tuple(reading[0] for reading in readings)
        self.demand.counters.count(Dpid(PLACE[ip] + 1), self.now, what, counts)

    def _poll(self) -> None:
        """Update the demand and install the rules that it requests, which count from now on."""
        self.demand.update(self.suspicious | self._uncounted(), self.now, self.without_path)
        wanted: set[Pair] = set()
        for one in self.demand.demands.values():
            wanted |= one.pairs | {(dst, src) for src, dst in one.pairs} | one.counted
        self.rules = {
            pair: self.rules.get(pair) or tuple(self.sent.get(pair, (0.0, 0.0)))  # type: ignore[misc]
            for pair in wanted
        }

    def _uncounted(self) -> frozenset[str]:
        """Return the addresses that have sent many bytes, counted by no rule, since the last poll."""
        before, self.polled = self.polled, {pair: total[0] for pair, total in self.sent.items()}
        unknown = self.polled.keys() - self.rules.keys()
        return frozenset(pair[0] for pair in unknown if self.polled[pair] - before.get(pair, 0.0) > 0.1 * M)

    @property
    def of_job(self) -> JobDemand:
        return self.demand.demands[self.job]

    def until(self, true: Callable[[JobDemand], bool], traffic: Traffic, within_s: float) -> float:
        """Train until the condition is true, and return the seconds that it took."""
        since = self.now
        while not true(self.of_job):
            assert self.now - since < within_s, self.of_job
            self.train(INTERVAL_S, traffic)
        return self.now - since


def bytes_error(demand: JobDemand, traffic: Traffic) -> float:
    measured = demand.measurement
    assert measured is not None
    assert measured.iteration_s is not None
    counted = dict(zip(measured.pairs, 0.125 * measured.bps * measured.iteration_s, strict=True))
    return max(float(abs(counted[pair] / size - 1)) for pair, size in traffic.items())


def shares(demand: JobDemand) -> dict[Pair, float]:
    total = sum(link.bytes for link in demand.virtual_links)
    amounts: dict[Pair, float] = {}
    for link in demand.virtual_links:
        pair = link.src_ip, link.dst_ip
        amounts[pair] = amounts.get(pair, 0.0) + link.bytes / total
    return amounts


def alike(found: Mapping[Pair, float], traffic: Traffic, within: float = 0.05) -> bool:
    total = sum(traffic.values())
    return found.keys() == traffic.keys() and all(
        abs(found[pair] - size / total) <= within * size / total for pair, size in traffic.items()
    )


FOUR = ADDRESSES[:4]
RIGHT = ring(FOUR)
REVERSED = ring(FOUR, -1)
BROADCAST: dict[Pair, float] = {(FOUR[0], FOUR[1]): M, (FOUR[0], FOUR[2]): M, (FOUR[1], FOUR[3]): M}
