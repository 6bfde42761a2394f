"""Tabu search: routes of whole flows on any fabric, which get better until the time is over.

In: a problem, routes to start from, lower bounds of the slowdowns. Out: routes with smaller sorted slowdowns.

The search lowers one slowdown after the other, the worst first. For each attempt every job has a *limit* for the loads
of the links that it uses. The limit of a link is the smallest limit of the jobs on it, and the *excess* is the load
beyond the limit of the link. In each step, one flow leaves an overloaded link. The search chooses the flow and path
that leave the smallest total excess, even if the excess grows. For some steps the flow may not move back (Glover, "Tabu
search, part I", 1989). An attempt ends when no link has an excess, or after some steps without progress.

A round makes attempts for the worst slowdown and then for the other slowdowns. First attempts aim at small
slowdowns, later attempts at larger ones. Later rounds allow more steps without progress. Rounds do not depend on the
time limit, so a longer limit continues the same search.

All moves of a step are evaluated at once as arrays. Jobs with several phases load a link with their largest phase, so
the sums per phase are kept.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np

from controller.planning.bounds import Bounds
from controller.planning.efficiency import SLOWDOWN_TOLERANCE
from controller.planning.greedy import PathChoices, PathTable
from controller.planning.next_hops import NextHops
from controller.planning.problem import Floats, FlowId, Ints, PlanLimits, Problem, Route, Routes, whole

_ROUNDING = 1e-9
_STEPS_OF_CHOICE, _STEPS_OF_TWO = 10, 0.01
"""Largest number of steps for n choices: ``_STEPS_OF_CHOICE`` * n + ``_STEPS_OF_TWO`` * n ** 2.

A choice is a flow with one of the first links of its paths. More steps rarely help."""
_STEPS_PER_S = 4_000
"""Number of steps that count as a second when the time limit is ignored."""
_PATIENCE, _PATIENCE_PART = 500, 1 / 8
"""Number of steps without a smaller excess after which an attempt of the first round ends.

In a small problem, the number is ``_PATIENCE_PART`` of the largest number of steps."""
_MOST_PATIENCE = 8_000
_OTHERS = 1 / 3
"""Number of steps for the other slowdowns of a round, as a part of the steps for the worst slowdown."""
_LEAST_GAIN = 1e-3
"""Smallest relative decrease of a slowdown at which an attempt aims."""
_NEAREST = 0.2
"""Part of the distance to the bound. When an attempt that aims at a smaller part fails, no smaller part is tried."""
_MOST_MOVED = 48
"""Largest number of flows for which the moves off a link are evaluated in one step; more flows are sampled at
random."""
_TENURE = 10
"""Smallest number of steps for which a flow may not return to a path; the largest number is twice as large."""
_MOST_SUMS = 20_000_000
"""Largest number of sums (job, link, phase); a larger problem is not searched."""
_CHECKED = 16
"""Number of steps after which the time is checked."""


def improved(
    problem: Problem,
    bounds: Bounds,
    least: Sequence[float],
    start: Routes,
    limits: PlanLimits,
    steps: float = math.inf,
) -> dict[FlowId, Route] | None:
    """Return routes with smaller sorted slowdowns than ``start``; None when none are found.

    ``least``: lower bounds of the sorted slowdowns. ``start``: a whole route for every flow that has a candidate. Moves
    do not count. ``steps``: largest number of steps. Problems with very many links and jobs are not searched."""
    numbers = problem.numbers
    routed = [flow for flow in numbers.crossing.tolist() if problem.flows[flow].id in start]
    phases = np.bincount(numbers.cell_job, minlength=len(numbers.job_ids))
    links = len(problem.paths.far_end)
    if not routed or links * max(len(phases), int(phases.max() * (phases > 1).sum())) > _MOST_SUMS:
        return None
    choices = PathChoices(problem, NextHops(problem, routed))
    search = TabuSearch(problem, bounds, start, limits, choices)
    return search.routes() if search.listed and search.descend(least, steps) else None


def useful_steps(problem: Problem, limits: PlanLimits) -> int:
    """Return the number of steps after which a search ends."""
    numbers = problem.numbers
    links = np.array([len(problem.paths.links_from(leaf)) for leaf in numbers.leaves], np.int64)
    choices = int(links[numbers.src[numbers.crossing]].sum())
    if limits.deterministic:
        return int(min(_STEPS_OF_CHOICE * choices, limits.time_limit_s * _STEPS_PER_S))
    return int(_STEPS_OF_CHOICE * choices + _STEPS_OF_TWO * choices**2)


class TabuSearch:
    """Subflows, their paths, and the loads of all links.

    Links have the numbers of ``NextHops``, jobs their position in ``Numbers.job_ids``."""

    def __init__(
        self,
        problem: Problem,
        bounds: Bounds,
        start: Routes,
        limits: PlanLimits,
        choices: PathChoices,
    ) -> None:
        next_hops, numbers = choices.next_hops, problem.numbers
        self._problem, self._start, self._limits, self._next_hops = problem, start, limits, next_hops
        self._random = random.Random(limits.seed)
        self._noise = np.random.default_rng(limits.seed)
        self._step = 0
        self._table = table = PathTable(problem, choices)
        self._pair, self._paths, self._row = table.pair, table.paths, table.row
        ordered = np.sort(self._paths.reshape(len(self._paths), -1))
        self._meets = bool(((np.diff(ordered) == 0) & (ordered[:, 1:] < next_hops.nothing)).any())
        """Whether two paths of a pair share a link."""
        self._job = numbers.job[next_hops.flows]
        self._at = table.columns(start)[1]
        self._bps: Floats = np.ascontiguousarray(table.bps.T)
        links = next_hops.nothing + 1
        self._per_bps: Floats = 1 / next_hops.capacity_bps
        self._sums: Floats = np.zeros((len(self._bps), (1 + int(self._row.max())) * links))
        """Bit/s by phase and key, for the jobs with several phases. A key is row * number of links + link.

        Each of these jobs has a row, counted from 1. Jobs with one phase share row 0, which stays empty."""
        self._sums[1:, :links] = -np.inf
        self._first_key: Ints = self._row * links
        self._users: Ints = np.zeros((len(numbers.job_ids), links), np.int64)
        self._floor: Floats = np.array([bounds.job.get(job, 1.0) for job in numbers.job_ids])
        self._last_step: float = useful_steps(problem, limits)
        self._patience = min(_PATIENCE, 1 + int(_PATIENCE_PART * self._last_step))
        self._until: Ints = np.zeros((len(self._pair), self._paths.shape[1]), np.int64)
        self.listed = bool((self._at >= 0).all())
        """Whether ``PathChoices.options`` has all paths of the start. If not, there is no search."""
        self.lay()

    def lay(self) -> None:
        """Compute all loads from the paths of the flows."""
        links, count = self._paths[self._pair, self._at], len(self._per_bps)
        alone = self._row == 0
        self._users[:] = 0
        np.add.at(self._users, (self._job[:, None], links), 1)
        keys = (self._first_key[:, None] + links)[~alone].ravel()
        for sums, bps in zip(self._sums, self._bps, strict=True):
            of_flow = np.repeat(bps[~alone], links.shape[1])
            sums[count:] = np.bincount(keys, of_flow, len(sums))[count:]
        bps = np.bincount(links[alone].ravel(), np.repeat(self._bps[0, alone], links.shape[1]), count)
        self._peak: Floats = self._sums.max(axis=0)
        self._load: Floats = (self._peak.reshape(-1, count).sum(axis=0) + bps) * self._per_bps
        self._on: list[set[int]] = [set() for _ in self._per_bps]
        for flow, path in enumerate(links.tolist()):
            for link in path:
                self._on[link].add(flow)

    def slowdowns(self) -> Floats:
        """Return the slowdown of each job."""
        fabric = np.where(self._users > 0, self._load, 0.0).max(axis=1)
        slowdowns: Floats = np.maximum(self._floor, fabric)
        return slowdowns

    # ---- one slowdown after the other

    def descend(self, least: Sequence[float], steps: float = math.inf) -> bool:
        """Lower the slowdowns until they reach their bounds or the time is over; return whether any got smaller."""
        begin, patience = self.slowdowns(), self._patience
        worst = max(least[0], float(self._floor.max()))
        self._last_step = min(self._last_step, steps)
        while not self._over() and not self._reached(least):
            first = self._step
            self._lower_worst(worst, patience)
            self._lower_others(least, patience // 3, max(patience, _OTHERS * (self._step - first)))
            if self._step == first:
                break
            patience = min(2 * patience, _MOST_PATIENCE)
        if self._limits.left_s <= 0:
            self._limits.allows("tabu search", 0.0)
        return bool((self.slowdowns() < begin * (1 - SLOWDOWN_TOLERANCE)).any())

    def _over(self) -> bool:
        return self._step >= self._last_step or self._limits.left_s <= 0

    def _reached(self, least: Sequence[float]) -> bool:
        worst_first = np.sort(self.slowdowns())[::-1][: len(least)]
        return bool((worst_first <= np.array(least) * (1 + SLOWDOWN_TOLERANCE)).all())

    def _lower_worst(self, least: float, patience: int) -> None:
        """Lower the worst slowdown towards ``least``: first by half of the distance, then by less."""
        part, worst = 0.5, float(self.slowdowns().max())
        while worst > least * (1 + SLOWDOWN_TOLERANCE) and not self._over():
            decrease = max(part * (worst - least), _LEAST_GAIN * worst)
            self._reach(np.full(len(self._floor), max(least, worst - decrease)), patience, worst)
            now = float(self.slowdowns().max())
            if now < worst * (1 - SLOWDOWN_TOLERANCE):
                worst, part = now, min(1.0, 2 * part)
            elif decrease <= _LEAST_GAIN * worst or part < _NEAREST:
                break
            else:
                part /= 3

    def _lower_others(self, least: Sequence[float], patience: int, steps: float) -> None:
        """Lower the slowdowns of one job after the other, the worst first, in at most ``steps`` steps."""
        last, self._last_step = self._last_step, min(self._last_step, self._step + steps)
        slowdowns = self.slowdowns()
        above = slowdowns > self._floor * (1 + SLOWDOWN_TOLERANCE)
        for job in np.argsort(-slowdowns, kind="stable").tolist():
            if self._over() or self._reached(least):
                break
            if above[job]:
                self._lower_job(job, float(self._floor[job]), patience)
        self._last_step = last

    def _lower_job(self, job: int, floor: float, patience: int) -> None:
        """Lower the slowdown of one job towards ``floor``; only faster jobs may get slower, up to its slowdown."""
        part = 1.0
        while not self._over():
            now = self.slowdowns()
            own = float(now[job])
            decrease = max(part * (own - floor), _LEAST_GAIN * own)
            goal = max(floor, own - decrease)
            if own <= floor * (1 + SLOWDOWN_TOLERANCE):
                break
            limit = np.where(now >= own * (1 - SLOWDOWN_TOLERANCE), now, np.maximum(now, goal))
            limit[job] = goal
            if self._reach(limit, patience):
                continue
            if decrease <= _LEAST_GAIN * own or part < _NEAREST:
                break
            part /= 3

    # ---- one attempt

    def _reach(self, limit: Floats, patience: int, worst: float = 0.0) -> bool:
        """Search for paths on which no link exceeds the limits of its jobs; return whether they were found.

        If not, flows take the paths with the smallest largest load that the search met, if this load is below
        ``worst``. If it is not, flows return to their earlier paths."""
        best = self._at.copy()
        self.aim(limit)
        fewest, since = np.inf, self._step
        while True:
            hot = np.flatnonzero(self.excess > _ROUNDING)
            if not len(hot):
                self.lay()
                return True
            total = float(self.excess[hot].sum())
            if total < fewest - _ROUNDING:
                fewest, since = total, self._step
            if (largest := float(self._load[hot].max())) < worst - _ROUNDING:
                worst, best = largest, self._at.copy()
            if self._step - since > patience or (self._step % _CHECKED == 0 and self._over()):
                self._at = best
                self.lay()
                return False
            self._step += 1
            self._improve(int(hot[self._random.randrange(len(hot))]), total, fewest)

    def aim(self, limit: Floats) -> None:
        """Set the limit of every job."""
        self._limit = limit
        self._alike = bool(limit.min() >= limit.max())
        self._ceiling: Floats = (
            np.full(len(self._load), limit[0])
            if self._alike
            else np.where(self._users > 0, limit[:, None], np.inf).min(axis=0)
        )
        self._ceiling[-1] = np.inf
        self.excess: Floats = np.maximum(0.0, self._load - self._ceiling)

    def _improve(self, link: int, total: float, fewest: float) -> None:
        """Move the flow of this link whose best move leaves the smallest excess."""
        on = list(self._on[link])
        flows = np.array(on if len(on) <= _MOST_MOVED else self._random.sample(on, _MOST_MOVED))
        change = self.changes(flows)
        change += _ROUNDING * self._noise.random(change.shape)
        barred = (self._until[flows] > self._step) & (total + change >= fewest - _ROUNDING)
        allowed = np.where(barred, np.inf, change)
        best = int(allowed.argmin())
        if not np.isfinite(allowed.flat[best]):
            return
        row, path = divmod(best, change.shape[1])
        self.move(int(flows[row]), path)

    def changes(self, flows: Ints) -> Floats:
        """Return the change of the total excess when a flow takes a path, for each flow and path; shape (flows, paths).

        The change is infinite for the path that the flow has already."""
        pair, job, key, place = self._pair[flows], self._job[flows], self._first_key[flows], np.arange(len(flows))
        bps = self._bps[:, flows]
        new, at = self._paths[pair], self._at[flows]
        old = new[place, at]
        keys = key[:, None] + old
        less = self._peak[keys] - (self._sums.take(keys, axis=1) - bps[:, :, None]).max(axis=0)
        left = self._load[old] - less * self._per_bps[old]
        saved = self.excess[old] - np.maximum(0.0, left - self._limit_without_flow(job, old))
        keys = key[:, None, None] + new
        more = (self._sums.take(keys, axis=1) + bps[:, :, None, None]).max(axis=0) - self._peak.take(keys)
        ceiling = self._limit[0] if self._alike else np.minimum(self._ceiling[new], self._limit[job][:, None, None])
        added = self._load.take(new) + more * self._per_bps.take(new) - ceiling
        added = np.maximum(0.0, added) - self.excess.take(new)
        if self._meets:
            same = new[:, :, :, None] == old[:, None, None, :]
            added = np.where(same.any(axis=3), (same * saved[:, None, None, :]).sum(axis=3), added)
        change: Floats = added.sum(axis=2) - saved.sum(axis=1)[:, None]
        change[self._table.missing[pair]] = np.inf
        change[place, at] = np.inf
        return change

    def _limit_without_flow(self, job: Ints, links: Ints) -> Floats:
        """Return the limit of each link, shape (jobs, hops), if one flow of the row's job left it."""
        ceiling: Floats = self._ceiling[links]
        if self._alike:
            return ceiling
        for index in np.argwhere(self._users[job[:, None], links] == 1).tolist():
            of, link = int(job[index[0]]), int(links[index[0], index[1]])
            users = self._users[:, link] > 0
            users[of] = False
            ceiling[index[0], index[1]] = self._limit[users].min(initial=np.inf)
        return ceiling

    def move(self, flow: int, path: int) -> None:
        old, new = self._paths[self._pair[flow], [self._at[flow], path]]
        self._until[flow, self._at[flow]] = self._step + self._random.randint(_TENURE, 2 * _TENURE)
        self._at[flow] = path
        self._change(flow, old, -1)
        self._change(flow, new, 1)

    def _change(self, flow: int, links: Ints, sign: int) -> None:
        job, bps, first = self._job[flow], sign * self._bps[:, flow], int(self._first_key[flow])
        for link in links.tolist():
            if link == len(self._load) - 1:
                continue
            more = bps[0]
            if first:
                key = first + link
                self._sums[:, key] += bps
                peak = self._sums[:, key].max()
                more = peak - self._peak[key]
                self._peak[key] = peak
            self._load[link] += more * self._per_bps[link]
            self._users[job, link] += sign
            if sign > 0:
                self._on[link].add(flow)
            else:
                self._on[link].discard(flow)
            if not self._alike:
                self._ceiling[link] = self._limit[self._users[:, link] > 0].min(initial=np.inf)
            self.excess[link] = max(0.0, self._load[link] - self._ceiling[link])

    # ---- routes

    def routes(self) -> dict[FlowId, Route]:
        """Return the route of every flow. Flows within one leaf keep the route of the start."""
        routes = dict(self._start)
        for flow, links in zip(self._next_hops.flows.tolist(), self._paths[self._pair, self._at], strict=True):
            routes[self._problem.flows[flow].id] = whole(self._next_hops.path(links))
        return routes
