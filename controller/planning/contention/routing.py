"""Routes on which jobs disturb each other less, given their times.

In: a problem, and the times of its jobs. Out: routes in which each flow stays whole.

The planner balances the demands of all jobs, as if they sent all the time. But jobs also compute, and a job is as slow
as its slowest flow. So a job should share its links with few other jobs, and with jobs that send little. The *delay* of
a job on a link is what all jobs send there beyond the link's capacity while the job sends, as a fraction of the
capacity. Other jobs count with their averages. A job's cost grows with its largest delay. Jobs take the paths that add
least to the costs of all jobs, one job after the other, by falling intensity. Then one to three jobs take new paths,
and keep them if the sum of the costs does not grow; this is repeated.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from controller.planning.contention.fluid import EPSILON, Objective, TimedJob
from controller.planning.problem import Floats, Flow, FlowId, Ints, Problem, Route, Routes, whole
from signalbox.jobs.spec import JobId

PLACEMENTS_PER_JOB = 30
"""Number of placements of groups of flows in a search, per job."""
_MOST_MOVED = 3
"""Largest number of jobs that take new paths at once."""
_POWER = 4
"""Exponent of costs for the worst slowdown: the sum of powers is small if the largest cost is."""
_BEHIND = 0.2
"""Delay by a job that will probably have a lower class, compared with a job of the same class."""


def searched_routes(problem: Problem, jobs: Sequence[TimedJob], objective: Objective, ranks: int) -> Routes | None:
    """Return the routes of the search; None if there are too many groups of flows, or detours. ``jobs``: ``Router``."""
    if problem.paths.stretch:
        return None
    router = Router(problem, jobs, objective, ranks)
    return router.searched() if router.groups <= PLACEMENTS_PER_JOB * len(jobs) else None


def least_congested(problem: Problem, jobs: Sequence[TimedJob]) -> Routes:
    """Return the routes of Crux: jobs with higher intensities first, each flow on its least congested path."""
    return Router(problem, jobs, Objective.WORST, 1).least_congested()


class _Group(NamedTuple):
    """Flows of a job between two leaves with equal demands."""

    flows: Sequence[Flow]
    paths: Ints
    """Columns of the links of each candidate path; shape (paths, hops)."""
    while_sending: Floats
    """Bits of one flow on each of these links / what the link carries while the job sends."""
    average: Floats
    """Bits of one flow on each of these links / what the link carries in an ideal iteration."""
    at_once: int
    """Number of flows that can be placed at once: all paths if they have no common links, else one."""


Picks = list[Ints]
"""Path of each flow of each group of a job."""


class Router:
    """Search for routes. ``jobs``: all jobs of the problem; their ways do not matter.

    The candidate paths of a flow must have the same number of links."""

    def __init__(self, problem: Problem, jobs: Sequence[TimedJob], objective: Objective, ranks: int) -> None:
        self._problem, self._jobs, self._chance = problem, jobs, np.random.default_rng(1)
        capacity, number = problem.numbers.capacity_bps, problem.link_number
        crossing = [flow for flow in problem.flows if flow.src_leaf != flow.dst_leaf]
        of_job: dict[JobId, defaultdict[object, list[Flow]]] = {job.id: defaultdict(list) for job in jobs}
        for flow in crossing:
            of_job[flow.job_id][flow.src_leaf, flow.dst_leaf, flow.demand_bps].append(flow)
        pairs = {(flow.src_leaf, flow.dst_leaf): flow for flow in crossing}
        links = {
            pair: [[number[link] for link in path] for path in problem.candidates(of)] for pair, of in pairs.items()
        }
        used = np.unique([link for paths in links.values() for path in paths for link in path]).astype(np.int64)
        columns = {pair: np.searchsorted(used, np.array(paths, np.int64)) for pair, paths in links.items() if paths}
        apart = {pair: len(np.unique(paths)) == paths.size for pair, paths in columns.items()}
        self._groups = list[list[_Group]]()
        for job in jobs:
            self._groups.append([])
            for flows in of_job[job.id].values():
                pair = flows[0].src_leaf, flows[0].dst_leaf
                if pair in columns:
                    paths = columns[pair]
                    demands = zip(flows[0].demand_bps, job.phases, strict=False)
                    sending = sum(bps * of.ideal_s for (_, bps), of in demands)
                    part = sending / capacity[used[paths]] / job.sending_s
                    most = len(paths) if apart[pair] else 1
                    group = _Group(flows, paths, part, part * job.sending_s / job.ideal_s, most)
                    self._groups[-1].append(group)
        self._own: Floats = np.zeros((len(jobs), len(used)))
        self._average = np.zeros_like(self._own)
        self._load = np.zeros_like(self._own)
        """Delay of each job on each link if the job uses the link; shape (jobs, links)."""
        self._delay = np.zeros(len(jobs))
        duty = np.array([job.sending_s / job.ideal_s for job in jobs])
        self._intensity = np.array([job.work * (job.weight > 0) / job.sending_s for job in jobs])
        self._causes = np.ones((len(jobs), len(jobs)))
        """Part of its average load that a job (column) causes as a delay of another job (row)."""
        if objective is Objective.WORK and ranks > 1:
            self._causes[self._intensity[:, None] > self._intensity] = _BEHIND
        np.fill_diagonal(self._causes, 0.0)
        self._power = _POWER if objective is Objective.WORST else 1
        each = {
            Objective.WORST: [float(job.weight > 0) for job in jobs],
            Objective.WORK: [job.work * (job.weight > 0) / job.ideal_s for job in jobs],
            Objective.WEIGHTED: [job.weight for job in jobs],
        }
        self._price: Floats = np.array(each[objective]) * duty**self._power
        self._picks: list[Picks] = [[] for _ in jobs]
        order = sorted(range(len(jobs)), key=lambda job: -self._intensity[job])
        self._order = [job for job in order if self._groups[job]]

    @property
    def groups(self) -> int:
        return sum(map(len, self._groups))

    def cost(self) -> float:
        return float(self._price @ self._delay**self._power)

    def searched(self) -> Routes:
        """Return the routes of the search."""
        for job in self._order:
            self._put(job, self._best(job))
        left = PLACEMENTS_PER_JOB * len(self._jobs) - self.groups
        while left > 0 and len(self._order) > 1:
            count = self._chance.integers(1, min(_MOST_MOVED, len(self._order)), endpoint=True)
            moved = self._chance.choice(self._order, count, replace=False).tolist()
            before, cost = [self._picks[job] for job in moved], self.cost()
            for job in moved:
                self._take(job)
            for job in moved:
                self._put(job, self._best(job))
                left -= len(self._groups[job])
            if self.cost() > cost * (1 + EPSILON):
                for job in moved:
                    self._take(job)
                for job, picks in zip(moved, before, strict=True):
                    self._put(job, picks)
        return self._routes()

    def least_congested(self) -> Routes:
        load = np.zeros(self._own.shape[1])
        for job in self._order:
            self._picks[job] = []
            for group in self._groups[job]:
                found = []
                for _ in group.flows:
                    found.append(int(load[group.paths].max(axis=1).argmin()))
                    load[group.paths[found[-1]]] += group.average[found[-1]]
                self._picks[job].append(np.array(found))
        return self._routes()

    def _routes(self) -> Routes:
        """Return the routes of all flows. Of equal flows, as many as possible keep their current routes."""
        found: dict[FlowId, Route] = {}
        for flow in self._problem.flows:
            if flow.src_leaf == flow.dst_leaf and (paths := self._problem.candidates(flow)):
                found[flow.id] = whole(paths[0])
        for groups, picks in zip(self._groups, self._picks, strict=True):
            for group, at in zip(groups, picks, strict=True):
                paths = self._problem.candidates(group.flows[0])
                left, moving = Counter(whole(paths[path]) for path in at.tolist()), list[FlowId]()
                for flow in group.flows:
                    if flow.current is not None and left[flow.current] > 0:
                        found[flow.id] = flow.current
                        left[flow.current] -= 1
                    else:
                        moving.append(flow.id)
                found |= zip(moving, left.elements(), strict=True)
        return found

    # ---- placing

    def _best(self, job: int) -> Picks:
        """Return the paths that add least to the costs of all jobs; the job must not have paths."""
        own, average = np.zeros(self._own.shape[1]), np.zeros(self._own.shape[1])
        delay, total, picks = 0.0, 1e-6 * self._price.sum() * self._average.sum(axis=0), list[Ints]()
        price, power = self._price[job], self._power
        for group in self._groups[job]:
            found, left, columns = list[Ints](), len(group.flows), group.paths
            while left:
                after = (self._load[job] + own)[columns] + group.while_sending
                delays = np.maximum(delay, (after - 1).max(axis=1))
                added = price * (delays**power - delay**power) + self._harm(
                    job, columns, average[columns] + group.average
                )
                ties = total[columns].sum(axis=1)
                order = np.lexsort((self._chance.random(len(columns)), (added + ties).round(12)))
                taken = order[: min(left, group.at_once)]
                for path in taken.tolist():
                    own[columns[path]] += group.while_sending[path]
                    average[columns[path]] += group.average[path]
                delay = float(delays[taken].max())
                found.append(taken)
                left -= len(taken)
            picks.append(np.concatenate(found))
        return picks

    def _harm(self, job: int, columns: Ints, average: Floats) -> Floats:
        """Return what these average loads of a job add to the costs of the other jobs; per path."""
        others = np.flatnonzero(self._own[:, columns.ravel()].any(axis=1))
        if not len(others):
            return np.zeros(len(columns))
        rows = others[:, None, None]
        after = self._load[rows, columns] + self._causes[others, job][:, None, None] * average - 1
        after = np.where(self._own[rows, columns] > 0, after, 0.0).max(axis=2)
        now = self._delay[others][:, None]
        added: Floats = self._price[others] @ (np.maximum(after, now) ** self._power - now**self._power)
        return added

    def _put(self, job: int, picks: Picks) -> None:
        self._picks[job] = picks
        for group, at in zip(self._groups[job], picks, strict=True):
            np.add.at(self._own[job], group.paths[at], group.while_sending[at])
            np.add.at(self._average[job], group.paths[at], group.average[at])
        self._update(job, 1)

    def _take(self, job: int) -> None:
        used = self._update(job, -1)
        self._own[job, used] = self._average[job, used] = self._delay[job] = 0.0

    def _update(self, job: int, sign: int) -> Ints:
        """Add a job's loads to the delays of all jobs, or take them away; return the links that it uses."""
        used = np.flatnonzero(self._own[job])
        self._load[:, used] += sign * self._causes[:, job][:, None] * self._average[job, used]
        self._load[job, used] += sign * self._own[job, used]
        near = np.flatnonzero(self._own[:, used].any(axis=1))
        uses = np.where(self._own[near] > 0, self._load[near] - 1, 0.0)
        self._delay[near] = np.maximum(0.0, uses.max(axis=1))
        return used
