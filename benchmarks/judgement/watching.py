"""Replay of the polls of one job to the controller's judgement, in virtual time.

The input is ``Polls``. The result has the time and finding of each contradiction of the announcement.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.judgement.windows import Polls
from controller.demand.job_demand import Difference, JobDemand
from controller.demand.measured_demand import MeasuredDemand
from controller.demand.watched_job import FEWEST_BYTES
from controller.fabric.counter_samples import Counted
from controller.fabric.topology import Dpid
from controller.jobs.messages import RegisterJob
from controller.jobs.registry import JobRegistry
from signalbox.jobs.spec import JobId

MAX_RULES = 4032


@dataclass(frozen=True)
class Watched:
    """Course of the judgement. ``first_counters_at``: time of the first poll that shows traffic of the job."""

    first_counters_at: float | None
    contradicted_at: tuple[tuple[float, Difference], ...]
    """Time and finding of each new contradiction."""
    last: JobDemand


def watch(polls: Polls, until_contradicted: bool = False) -> Watched:
    """Replay the polls to the controller's judgement, ``MeasuredDemand``.

    Rules that the judgement requests count from the next poll on. ``until_contradicted``: whether to stop at the first
    contradiction."""
    demand = MeasuredDemand(polls.interval_s, MAX_RULES)
    registry = JobRegistry(1)
    registry.register(RegisterJob(polls.spec), 0.0)
    demand.follow(registry.jobs, 0.0)
    driver, job_id = _Driver(polls, demand), JobId(polls.spec.job_id)
    contradictions: list[tuple[float, Difference]] = []
    first, contradicted, report = None, False, 0
    for number, now in enumerate(polls.now.tolist()):
        while report < len(polls.reports) and polls.reports[report].at <= now:
            demand.reported(job_id, polls.reports[report].iterations, polls.reports[report].at)
            report += 1
        most = driver.poll(number, now)
        first = now if first is None and most > FEWEST_BYTES else first
        of_job = demand.demands[job_id]
        if of_job.contradicted and not contradicted and of_job.difference:
            contradictions.append((now, of_job.difference))
            if until_contradicted:
                break
        contradicted = of_job.contradicted
    return Watched(first, tuple(contradictions), demand.demands[job_id])


class _Driver:
    def __init__(self, polls: Polls, demand: MeasuredDemand) -> None:
        self._polls, self._demand = polls, demand
        self._place = {pair: number for number, pair in enumerate(polls.pairs)}
        self._base: dict[int, tuple[float, float]] = {}
        self._known: JobDemand | None = None
        self._asked: list[tuple[Dpid, int, tuple[Counted, ...], list[int], np.ndarray]] = []
        self._ask(0)

    def poll(self, number: int, now: float) -> float:
        """Pass the counters of this poll to the controller; return the largest payload in bytes of a pair so far."""
        polls = self._polls
        counts = np.stack((polls.bytes[number], polls.packets[number]), axis=1)
        for dpid, first, what, places, base in self._asked:
            at = float(polls.at[number, first])
            if at == at:
                self._demand.counters.count(dpid, at, what, counts[places] - base)
        self._demand.update(frozenset(), now)
        self._ask(number)
        return float((counts[:, 0] - 66 * counts[:, 1]).max())

    def _ask(self, number: int) -> None:
        """Install the rules that the judgement requests; new rules count from poll ``number`` on."""
        of_job = self._demand.demands[JobId(self._polls.spec.job_id)]
        if of_job is self._known or (
            self._known and of_job.counted == self._known.counted and of_job.pairs == self._known.pairs
        ):
            return
        self._known = of_job
        wanted = of_job.pairs | {(dst, src) for src, dst in of_job.pairs} | of_job.counted
        places = sorted(self._place[pair] for pair in wanted)
        at_first = not self._base
        for place in places:
            counted = self._polls.bytes[number, place], self._polls.packets[number, place]
            self._base.setdefault(place, (0.0, 0.0) if at_first else counted)
        self._base = {place: self._base[place] for place in places}
        self._asked = []
        for switch in np.unique(self._polls.switch).tolist():
            own = [place for place in places if self._polls.switch[place] == switch]
            what = tuple(Counted(*self._polls.pairs[place]) for place in own)
            base = np.array([self._base[place] for place in own]).reshape(-1, 2)
            self._asked.append((Dpid(switch + 1), own[0] if own else 0, what, own, base))
