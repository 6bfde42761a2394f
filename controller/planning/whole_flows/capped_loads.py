"""Link loads under a ceiling per job, updated flow by flow: the state of the local search.

The *ceiling* of a job is the slowdown that it must not exceed: no link that it uses may have a larger load. The ceiling
of a link is the smallest ceiling of the jobs on it. A flow counts as moved when it is not on its *pinned* path.

In: a ``Problem``. Out: for a flow, the excess load that each of its paths would have; for an overloaded link, the
effect of the removal of each of its flows. Flows are whole. Flows, links and jobs have the numbers of ``Numbers``; a
path is a tuple of links."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from controller.fabric.topology import Dpid
from controller.planning.efficiency import Increments
from controller.planning.problem import Floats, Ints, Problem, link_rows

Links = tuple[int, ...]

ROUNDING = 1e-7
"""Load of a link beyond its ceiling that still counts as within the ceiling."""


class CappedLoads:
    """Loads and ceilings of links, and paths of flows.

    - ``load``, ``ceiling``: per link; the ceiling of a link without flows is infinite.
    - ``off_pin``: per link the number of its flows that are not on their pinned path.
    - ``at``: per flow its path, None while it has no path.
    - ``pinned``: per flow its pinned path, None for a flow that is not pinned.
    - ``moves``: number of flows that are not on their pinned path.
    - ``job``, ``peak_bps``: per flow its job and its largest demand."""

    def __init__(self, problem: Problem) -> None:
        numbers = problem.numbers
        links = len(numbers.capacity_bps)
        self.load = np.zeros(links)
        self.ceiling = np.full(links, np.inf)
        self.off_pin = np.zeros(links, np.int64)
        self.at: list[Links | None] = [None] * len(problem.flows)
        self.pinned: list[Links | None] = [None] * len(problem.flows)
        self.moves = 0
        self.job: list[int] = numbers.job.tolist()
        self._problem = problem
        self._limit = [np.inf] * len(numbers.job_ids)
        self.peak_bps: list[float] = numbers.peak_bps.tolist()
        self._increments = Increments(problem, numbers.capacity_bps)
        self._flows_on: list[dict[int, None]] = [{} for _ in range(links)]
        self._jobs_on: list[dict[int, int]] = [{} for _ in range(links)]
        self._paths: dict[tuple[Dpid, Dpid], Ints] = {}

    def pin(self, flow: int, path: Links) -> None:
        """Set the pinned path of a flow that has neither a pinned path nor a path yet."""
        self.pinned[flow] = path
        self.moves += 1

    def limit(self, limits: Sequence[float]) -> None:
        """Set the ceiling of every job."""
        self._limit = list(limits)
        for link, jobs in enumerate(self._jobs_on):
            if jobs:
                self.ceiling[link] = self._least(jobs)

    def paths(self, flow: int) -> Ints:
        """Return the candidate paths of the flow in the problem's order, one row of link numbers per path."""
        ends = self._problem.flows[flow]
        pair = (ends.src_leaf, ends.dst_leaf)
        if pair not in self._paths:
            self._paths[pair] = link_rows(self._problem.candidates(ends), self._problem.link_number)
        return self._paths[pair]

    def put(self, flow: int, path: Links) -> None:
        """Put a flow that has no path yet on ``path``."""
        job = self.job[flow]
        limit = self._limit[job]
        off_pin = path != self.pinned[flow]
        self.moves -= not off_pin
        self._increments.count(flow, path)
        for link in path:
            self.load[link] += self._increments.weight(flow, link)
            self._flows_on[link][flow] = None
            jobs = self._jobs_on[link]
            jobs[job] = jobs.get(job, 0) + 1
            if limit < self.ceiling[link]:
                self.ceiling[link] = limit
            self.off_pin[link] += off_pin
        self.at[flow] = path

    def take(self, flow: int) -> None:
        """Remove the flow from its path."""
        path = self.at[flow] or ()
        job = self.job[flow]
        off_pin = path != self.pinned[flow]
        self.moves += not off_pin
        for link in path:
            self.load[link] -= self._increments.weight(flow, link)
            del self._flows_on[link][flow]
            self.off_pin[link] -= off_pin
            jobs = self._jobs_on[link]
            jobs[job] -= 1
            if not jobs[job]:
                del jobs[job]
                self.ceiling[link] = self._least(jobs)
        self._increments.count(flow, path, -1)
        self.at[flow] = None

    def excess(self, flow: int, paths: Ints) -> Floats:
        """Return, for each link of these paths, the load beyond the link's ceiling if the flow used the link.

        The ceiling of the flow's job then counts too. The excess is infinite when the flow alone exceeds the ceiling of
        its job."""
        limit = self._limit[self.job[flow]]
        added = self._increments.added(flow, paths)
        beyond: Floats = self.load[paths] + added - np.minimum(self.ceiling[paths], limit)
        beyond[beyond < ROUNDING] = 0.0
        beyond[self._increments.alone(flow, paths) > limit + ROUNDING] = np.inf
        return beyond

    def slowdowns(self) -> list[float]:
        """Return for each job the largest load of a link that it uses, at least 1; NICs do not count."""
        slowdowns = [1.0] * len(self._limit)
        for jobs, load in zip(self._jobs_on, self.load.tolist(), strict=True):
            for job in jobs:
                slowdowns[job] = max(slowdowns[job], load)
        return slowdowns

    def full(self, link: int) -> bool:
        """Return whether the load of the link exceeds its ceiling."""
        return bool(self.load[link] > self.ceiling[link] + ROUNDING)

    def all_full(self) -> list[int]:
        """Return the links whose load exceeds their ceiling."""
        links: list[int] = np.flatnonzero(self.load > self.ceiling + ROUNDING).tolist()
        return links

    def on(self, link: int) -> Collection[int]:
        """Return the flows on the link, in the order in which they were added."""
        return self._flows_on[link]

    def weight(self, flow: int, link: int) -> float:
        """Return the load that the link loses when the flow leaves it."""
        return self._increments.weight(flow, link)

    def relieves(self, flow: int, link: int) -> bool:
        """Return whether the load of the link would be within its ceiling without the flow."""
        jobs = self._jobs_on[link]
        job = self.job[flow]
        ceiling = self.ceiling[link] if jobs[job] > 1 else self._least(other for other in jobs if other != job)
        return bool(self.load[link] - self._increments.weight(flow, link) <= ceiling + ROUNDING)

    def _least(self, jobs: Iterable[int]) -> float:
        return min([self._limit[job] for job in jobs], default=np.inf)
