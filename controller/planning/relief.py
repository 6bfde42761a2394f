"""Relief of the most loaded links within a cap on moves: fast, for any fabric and any number of flows.

Flows are moved off links whose load is above a goal, the most loaded link first, until the links satisfy the goal. A
flow moves to the path whose most loaded link ends up least loaded. When no path has room for the whole flow, a flow
that may be split moves to several paths. The goal is bisected between the bound and the worst slowdown. The moves that
are left then relieve single jobs. A link keeps its flows when each flow that is tried would load another link beyond
the goal.

In: a problem, and the routes to start from. Out: routes with smaller sorted slowdowns, or None. An attempt without
smaller slowdowns is undone."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from controller.fabric.topology import Dpid
from controller.planning.bounds import Bounds
from controller.planning.efficiency import (
    SLOWDOWN_TOLERANCE,
    Increments,
    Passing,
    first_difference,
    loads_of,
    passing,
)
from controller.planning.plan import Draft, paths_used
from controller.planning.problem import Ints, PlanLimits, Problem, Route, Routes, link_rows, whole
from controller.planning.split_flows.dividing import that_fit
from controller.planning.split_flows.shares import exactly_one
from signalbox.jobs.spec import JobId

_ATTEMPTS = 8
"""Largest number of goals that are tried for all jobs together, and of jobs that are relieved individually."""
_TRIED = 4
"""Number of flows that are tried before a link is left as it is."""
_LESS = 0.02
"""Relative decrease of a job's slowdown that the relief of this single job tries to reach."""
_LEAST_S = 0.2
"""Seconds that a relief may take even when the time limit ends earlier.

Without this time, it could happen that no flow moves although links are overloaded."""
_ROUNDING = 1e-9


def relieve(problem: Problem, bounds: Bounds, start: Routes, limits: PlanLimits) -> Draft | None:
    """Return routes with smaller slowdowns than ``start``; None when no such routes are found.

    ``start``: a route for every flow that has a candidate; the running route when it is valid. At most
    ``limits.max_moves`` flows move; this limit must not be None."""
    state = _Relief(problem, start, limits)
    least, most = bounds.worst, state.worst
    goal = least
    for _ in range(_ATTEMPTS):
        if most <= least * (1 + SLOWDOWN_TOLERANCE):
            break
        if state.attempt(goal, np.flatnonzero(state.load > goal * (1 + _ROUNDING))):
            most = min(most, state.worst)
        else:
            least = goal
        goal = (least + most) / 2
    for job, links in state.fewest_first()[:_ATTEMPTS]:
        state.attempt(max(bounds.job[job], state.slowdown[job] * (1 - _LESS)), links)
    return state.draft()


class _Relief:
    """State of a relief: current loads, slowdowns and routes."""

    def __init__(self, problem: Problem, start: Routes, limits: PlanLimits) -> None:
        self._problem, self._start = problem, start
        self._until = max(limits.until, time.perf_counter() + _LEAST_S)
        self._moves_left = limits.max_moves or 0
        self._rows = rows = passing(problem, start)
        self.load = loads_of(problem, rows)
        """Load of each link."""
        self.slowdown = self._slowdowns(rows)
        """Slowdown of each job under the routes that were last accepted."""
        flows = np.bincount(rows.link, minlength=len(self.load))
        self._each = np.where(flows > 0, self.load / np.maximum(1, flows), np.inf)
        """Load of each link at the start / number of its flows."""
        self._hops = max((len(path) for route in start.values() for path, _ in route), default=1)
        self._increments = Increments(problem, problem.numbers.capacity_bps)
        self._increments.count_rows(rows.flow, rows.link, rows.share)
        order = np.argsort(rows.link, kind="stable")
        self._link, self._flow = rows.link[order], rows.flow[order]
        self._is_fabric = np.zeros(len(self.load), bool)
        self._is_fabric[problem.links.fabric] = True
        self._at: dict[int, Route] = {}
        """Route of each moved flow, by number; the other flows have their routes in ``start``."""
        self._before: dict[int, Route | None] = {}
        """Previous route of each flow that changed in this attempt; None means the flow's route in ``start``."""
        self._come: defaultdict[int, dict[int, None]] = defaultdict(dict)
        """Numbers of the moved flows on each link, as the keys of a dictionary."""
        self._paths: dict[tuple[Dpid, Dpid], Ints] = {}

    @property
    def worst(self) -> float:
        return max(self.slowdown.values(), default=1.0)

    def draft(self) -> Draft | None:
        changed = {self._problem.flows[flow].id: route for flow, route in self._at.items()}
        if not changed:
            return None
        moves = sum(flow in self._problem.in_force and self._start[flow] != route for flow, route in changed.items())
        routes = {**self._start, **changed}
        return Draft(
            "relief", routes, self.slowdown, moves, paths_used(routes) if self._problem.has_equal_subflows else 0
        )

    def attempt(self, goal: float, links: Ints) -> bool:
        """Move flows off ``links`` until each load is at most ``goal``; return whether the slowdowns got smaller.

        Links that cannot reach the goal keep a larger load. An attempt without smaller slowdowns is undone."""
        links = links[self._is_fabric[links]]
        leaving = np.ceil((self.load[links] - goal) / self._each[links])
        if leaving.sum() > self._hops * self._moves_left:
            return False
        self._before.clear()
        left = self._moves_left
        for link in links[np.argsort(-self.load[links], kind="stable")].tolist():
            while self.load[link] > goal * (1 + _ROUNDING) and not self._over() and self._lower(link, goal):
                pass
        found = self._slowdowns(self._passing())
        now, was = (sorted(slowdown.values(), reverse=True) for slowdown in (found, self.slowdown))
        at = first_difference(now, was)
        if self._moves_left >= 0 and at is not None and now[at] < was[at]:
            self.slowdown = found
            return True
        for flow, route in self._before.items():
            self._put(flow, route)
        self._moves_left = left
        return False

    def fewest_first(self) -> list[tuple[JobId, Ints]]:
        """Return jobs with a slowdown above 1, worst first, each with its saturated links.

        Ties are broken by the number of saturated links, fewest first. A link is saturated when its load almost reaches
        the job's slowdown."""
        rows, numbers = self._passing(), self._problem.numbers
        slowdown = np.array([self.slowdown.get(job, 1.0) for job in numbers.job_ids])
        job = numbers.job[rows.flow]
        full = (self.load[rows.link] >= slowdown[job] * (1 - _LESS)) & (slowdown[job] > 1) & self._is_fabric[rows.link]
        links: defaultdict[int, set[int]] = defaultdict(set)
        for of, link in zip(job[full].tolist(), rows.link[full].tolist(), strict=True):
            links[of].add(link)
        order = sorted(links, key=lambda of: (-round(float(slowdown[of]), 3), len(links[of])))
        return [(numbers.job_ids[of], np.array(sorted(links[of]))) for of in order]

    def _slowdowns(self, rows: Passing) -> dict[JobId, float]:
        numbers = self._problem.numbers
        slowdown = np.ones(len(numbers.job_ids))
        loading = numbers.peak_bps[rows.flow] > 0
        np.maximum.at(slowdown, numbers.job[rows.flow[loading]], self.load[rows.link[loading]])
        return {numbers.job_ids[job]: float(slowdown[job]) for job in np.unique(numbers.job[rows.routed]).tolist()}

    def _over(self) -> bool:
        return self._moves_left < 0 or time.perf_counter() > self._until

    def _passing(self) -> Passing:
        """Return one row per link and subflow of the current routes, as ``efficiency.passing`` does."""
        changed = np.zeros(len(self._problem.flows), bool)
        changed[list(self._at)] = True
        stay = ~(changed[self._rows.flow] & self._is_fabric[self._rows.link])
        come = [(flow, link, share) for flow in self._at for links, share in self._subflows(flow) for link in links]
        flow, link, share = zip(*come, strict=True) if come else ((), (), ())
        return Passing(
            self._rows.routed,
            np.append(self._rows.flow[stay], np.array(flow, np.int64)),
            np.append(self._rows.link[stay], np.array(link, np.int64)),
            np.append(self._rows.share[stay], np.array(share, np.float64)),
        )

    # ---- one flow

    def _lower(self, link: int, goal: float) -> bool:
        """Move a flow off the link, wholly or in part; return False when no route was found that keeps to ``goal``."""
        for flow in self._to_leave(link)[:_TRIED]:
            was = self._at.get(flow)
            self._take(flow)
            route = self._that_keeps_to(goal, flow)
            if route is not None:
                self._before.setdefault(flow, was)
                self._moves_left -= was is None and self._problem.flows[flow].id in self._problem.in_force
                self._set(flow, route)
                return True
            self._set(flow, was)
        return False

    def _to_leave(self, link: int) -> list[int]:
        """Return the flows on the link in the order in which they are tried.

        Flows that have moved already come first, then the flows whose most loaded other link has the highest load."""
        first, last = np.searchsorted(self._link, (link, link + 1)).tolist()
        here = [flow for flow in self._flow[first:last].tolist() if flow not in self._at]

        def order(flow: int) -> tuple[bool, float]:
            others = (self.load[of] for links, _ in self._subflows(flow) for of in links if of != link)
            return flow not in self._at, -max(others, default=0.0)

        return sorted([*self._come[link], *here], key=order)

    def _that_keeps_to(self, goal: float, flow: int) -> Route | None:
        """Return a route on which no link exceeds ``goal``, for a flow that is on no link now; else None."""
        ends = self._problem.flows[flow]
        pair, paths = (ends.src_leaf, ends.dst_leaf), self._problem.candidates(ends)
        if pair not in self._paths:
            self._paths[pair] = link_rows(paths, self._problem.link_number)
        links = self._paths[pair]
        worst = (self.load[links] + self._increments.added(flow, links)).max(axis=1)
        best = int(worst.argmin())
        if worst[best] <= goal * (1 + _ROUNDING):
            return whole(paths[best])
        if ends.max_subflows == 1:
            return None
        used, at = np.unique(links, return_inverse=True)
        spare = np.maximum(0.0, goal - self.load[used]) / self._increments.alone(flow, used)
        subflows = that_fit(at.reshape(links.shape), spare, ends.max_subflows)
        return None if subflows is None else exactly_one({paths[of]: share for of, share in subflows})

    def _put(self, flow: int, route: Route | None) -> None:
        """Replace the route of a flow; None means the flow's route in ``start``."""
        self._take(flow)
        self._set(flow, route)

    def _take(self, flow: int) -> None:
        for links, share in self._subflows(flow):
            self._increments.count(flow, links, -share)
            self.load[links] -= self._increments.added(flow, np.array(links), share)
            for link in links:
                self._come[link].pop(flow, None)

    def _set(self, flow: int, route: Route | None) -> None:
        """Add the load of a flow that is on no link now; the route None means the flow's route in ``start``."""
        self._at.pop(flow, None)
        if route is not None:
            self._at[flow] = route
        for links, share in self._subflows(flow):
            self.load[links] += self._increments.added(flow, np.array(links), share)
            self._increments.count(flow, links, share)
            for link in links if route is not None else ():
                self._come[link][flow] = None

    def _subflows(self, flow: int) -> Iterable[tuple[list[int], float]]:
        number = self._problem.link_number
        route = self._at.get(flow) or self._start[self._problem.flows[flow].id]
        return [([number[link] for link in path], share) for path, share in route]
