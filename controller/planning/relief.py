"""The fullest links relieved within a cap on moves: fast, on any fabric and with any number of flows.

Links above a goal lose flows, the fullest first, until they keep to it. A flow goes to the path whose worst link stays
least full; where no path has room for all of it, to several, if it may be split. The goal is bisected between the bound
and the worst level; with the moves that are left, single jobs are relieved. A link stays as it is where no flow can
leave it without filling another one beyond the goal.

In: a problem, routes to begin from. Out: routes with smaller sorted levels, or those from the beginning: an attempt
that does not give smaller ones is undone.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from controller.fabric.topology import Dpid
from controller.planning.bounds import Bounds
from controller.planning.efficiency import (
    LEVEL_TOLERANCE,
    Increments,
    Passing,
    first_difference,
    loads_of,
    passing,
)
from controller.planning.numbered import link_rows
from controller.planning.plan import Draft, paths_used
from controller.planning.problem import Ints, PlanLimits, Problem, Route, Routes, whole
from controller.planning.split_flows.dividing import that_fit
from controller.planning.split_flows.shares import exactly_one
from signalbox.jobs.spec import JobId

_ATTEMPTS = 8
"""Goals for all jobs together, and as many jobs that are relieved alone."""
_TRIED = 4
"""Flows of a link, until it is left as it is."""
_LESS = 0.02
"""By which the level of a single job is to fall."""
_LEAST_S = 0.2
"""For this there is always time: else nothing might move where links are full."""
_ROUNDING = 1e-9


def relieve(problem: Problem, bounds: Bounds, start: Routes, limits: PlanLimits) -> Draft | None:
    """None when nothing was found. ``start``: a route for every flow that has a candidate, the running one where that
    stands. At most ``limits.max_moves`` flows move, which is not None."""
    state = _Relief(problem, start, limits)
    least, most = bounds.worst, state.worst
    goal = least
    for _ in range(_ATTEMPTS):
        if most <= least * (1 + LEVEL_TOLERANCE):
            break
        if state.attempt(goal, np.flatnonzero(state.load > goal * (1 + _ROUNDING))):
            most = min(most, state.worst)
        else:
            least = goal
        goal = (least + most) / 2
    for job, links in state.fewest_first()[:_ATTEMPTS]:
        state.attempt(max(bounds.job[job], state.level[job] * (1 - _LESS)), links)
    return state.draft()


class _Relief:
    """``load``: per link. ``level``: per job, of the routing last accepted. ``_each``: per link the mean load of a flow
    on it at the start. ``_at``: the flows that have another route than at the start, by number. ``_before``: the routes
    of those that have changed in this attempt, None for that at the start. ``_come``: per link flows of ``_at``."""

    def __init__(self, problem: Problem, start: Routes, limits: PlanLimits) -> None:
        self._problem, self._start = problem, start
        self._until = max(limits.until, time.perf_counter() + _LEAST_S)
        self._moves_left = limits.max_moves or 0
        self._rows = rows = passing(problem, start)
        self.load = loads_of(problem, rows)
        self.level = self._levels(rows)
        flows = np.bincount(rows.link, minlength=len(self.load))
        self._each = np.where(flows > 0, self.load / np.maximum(1, flows), np.inf)
        self._hops = max((len(path) for route in start.values() for path, _ in route), default=1)
        self._increments = Increments(problem, problem.numbers.capacity_bps)
        self._increments.count_rows(rows.flow, rows.link, rows.share)
        order = np.argsort(rows.link, kind="stable")
        self._link, self._flow = rows.link[order], rows.flow[order]
        self._is_fabric = np.zeros(len(self.load), bool)
        self._is_fabric[problem.links.fabric] = True
        self._at: dict[int, Route] = {}
        self._before: dict[int, Route | None] = {}
        self._come: defaultdict[int, dict[int, None]] = defaultdict(dict)
        self._paths: dict[tuple[Dpid, Dpid], Ints] = {}

    @property
    def worst(self) -> float:
        return max(self.level.values(), default=1.0)

    def draft(self) -> Draft | None:
        changed = {self._problem.flows[flow].id: route for flow, route in self._at.items()}
        if not changed:
            return None
        moves = sum(flow in self._problem.standing and self._start[flow] != route for flow, route in changed.items())
        routes = {**self._start, **changed}
        return Draft("relief", routes, self.level, moves, paths_used(routes) if self._problem.in_pieces else 0)

    def attempt(self, goal: float, links: Ints) -> bool:
        """Whether these links keep to the goal now, as far as they can, with smaller sorted levels than before."""
        links = links[self._is_fabric[links]]
        leaving = np.ceil((self.load[links] - goal) / self._each[links])
        if leaving.sum() > self._hops * self._moves_left:
            return False
        self._before.clear()
        left = self._moves_left
        for link in links[np.argsort(-self.load[links], kind="stable")].tolist():
            while self.load[link] > goal * (1 + _ROUNDING) and not self._over() and self._lower(link, goal):
                pass
        found = self._levels(self._passing())
        now, was = (sorted(level.values(), reverse=True) for level in (found, self.level))
        at = first_difference(now, was)
        if self._moves_left >= 0 and at is not None and now[at] < was[at]:
            self.level = found
            return True
        for flow, route in self._before.items():
            self._put(flow, route)
        self._moves_left = left
        return False

    def fewest_first(self) -> list[tuple[JobId, Ints]]:
        """Jobs above level 1, those with the largest levels first, of these those with the fewest links that full."""
        rows, numbers = self._passing(), self._problem.numbers
        level = np.array([self.level.get(job, 1.0) for job in numbers.job_ids])
        job = numbers.job[rows.flow]
        full = (self.load[rows.link] >= level[job] * (1 - _LESS)) & (level[job] > 1) & self._is_fabric[rows.link]
        links: defaultdict[int, set[int]] = defaultdict(set)
        for of, link in zip(job[full].tolist(), rows.link[full].tolist(), strict=True):
            links[of].add(link)
        order = sorted(links, key=lambda of: (-round(float(level[of]), 3), len(links[of])))
        return [(numbers.job_ids[of], np.array(sorted(links[of]))) for of in order]

    def _levels(self, rows: Passing) -> dict[JobId, float]:
        numbers = self._problem.numbers
        level = np.ones(len(numbers.job_ids))
        loading = numbers.peak_bps[rows.flow] > 0
        np.maximum.at(level, numbers.job[rows.flow[loading]], self.load[rows.link[loading]])
        return {numbers.job_ids[job]: float(level[job]) for job in np.unique(numbers.job[rows.routed]).tolist()}

    def _over(self) -> bool:
        return self._moves_left < 0 or time.perf_counter() > self._until

    def _passing(self) -> Passing:
        """Of the routes as they are now."""
        changed = np.zeros(len(self._problem.flows), bool)
        changed[list(self._at)] = True
        stay = ~(changed[self._rows.flow] & self._is_fabric[self._rows.link])
        come = [(flow, link, share) for flow in self._at for links, share in self._pieces(flow) for link in links]
        flow, link, share = zip(*come, strict=True) if come else ((), (), ())
        return Passing(
            self._rows.routed,
            np.append(self._rows.flow[stay], np.array(flow, np.int64)),
            np.append(self._rows.link[stay], np.array(link, np.int64)),
            np.append(self._rows.share[stay], np.array(share, np.float64)),
        )

    # ---- one flow

    def _lower(self, link: int, goal: float) -> bool:
        """Whether a flow has left the link, wholly or in part, and no link that it passes now is beyond the goal."""
        for flow in self._to_leave(link)[:_TRIED]:
            was = self._at.get(flow)
            self._take(flow)
            route = self._that_keeps_to(goal, flow)
            if route is not None:
                self._before.setdefault(flow, was)
                self._moves_left -= was is None and self._problem.flows[flow].id in self._problem.standing
                self._set(flow, route)
                return True
            self._set(flow, was)
        return False

    def _to_leave(self, link: int) -> list[int]:
        """Those that have moved already first, then those that also relieve the fullest other link."""
        first, last = np.searchsorted(self._link, (link, link + 1)).tolist()
        here = [flow for flow in self._flow[first:last].tolist() if flow not in self._at]

        def order(flow: int) -> tuple[bool, float]:
            others = (self.load[of] for links, _ in self._pieces(flow) for of in links if of != link)
            return flow not in self._at, -max(others, default=0.0)

        return sorted([*self._come[link], *here], key=order)

    def _that_keeps_to(self, goal: float, flow: int) -> Route | None:
        """Of a flow that is nowhere now; None when there is none."""
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
        pieces = that_fit(at.reshape(links.shape), spare, ends.max_subflows)
        return None if pieces is None else exactly_one({paths[of]: share for of, share in pieces})

    def _put(self, flow: int, route: Route | None) -> None:
        """Instead of its route; None: that from the start."""
        self._take(flow)
        self._set(flow, route)

    def _take(self, flow: int) -> None:
        for links, share in self._pieces(flow):
            self._increments.count(flow, links, -share)
            self.load[links] -= self._increments.added(flow, np.array(links), share)
            for link in links:
                self._come[link].pop(flow, None)

    def _set(self, flow: int, route: Route | None) -> None:
        """``route``: None for that from the start."""
        self._at.pop(flow, None)
        if route is not None:
            self._at[flow] = route
        for links, share in self._pieces(flow):
            self.load[links] += self._increments.added(flow, np.array(links), share)
            self._increments.count(flow, links, share)
            for link in links if route is not None else ():
                self._come[link][flow] = None

    def _pieces(self, flow: int) -> Iterable[tuple[list[int], float]]:
        number = self._problem.link_number
        route = self._at.get(flow) or self._start[self._problem.flows[flow].id]
        return [([number[link] for link in path], share) for path, share in route]
