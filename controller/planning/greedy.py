"""Fast changes of routes on any fabric: greedy paths for flows without a route, and relief of the most loaded links.

In: a ``Problem``; for relief also the routes to start from. Out: a route per flow; None when relief finds no routes
with smaller sorted slowdowns.

**Greedy** repairs routes and gives searches a start. It follows the greedy of arXiv 2503.05324 (``baselines`` has it as
published), but compares loads instead of numbers of flows. Flows are served in the order of ``largest_set_first``. Each
takes the shortest path whose most loaded link ends up with the smallest load, and stays on its current path in a tie.
On an intact leaf-spine with equal flows the largest load is at most twice the optimum, in any order of flows.

**Relief** is for planning within a cap on moves. It moves flows off links whose load is above a goal, the most loaded
link first. A flow moves to the path whose most loaded link ends up least loaded. If no path has room, a flow that may
be split moves to several paths. Bisection finds the smallest goal that can be reached. The remaining moves reduce the
slowdowns of single jobs.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from controller.fabric.topology import Dpid
from controller.planning.bounds import Bounds
from controller.planning.efficiency import (
    SLOWDOWN_TOLERANCE,
    Passing,
    is_less,
    loads_of,
    passing,
    sorted_slowdowns,
)
from controller.planning.next_hops import NextHops
from controller.planning.plan import Draft, draft
from controller.planning.problem import (
    Bools,
    Floats,
    Flow,
    FlowId,
    Ints,
    PlanLimits,
    Problem,
    Route,
    Routes,
    distinct,
    link_rows,
    run_ranks,
    whole,
)
from controller.planning.split_flows.dividing import exactly_one, that_fit
from signalbox.jobs.spec import JobId

_MOST_PATHS = 512
"""Number of shortest paths of a pair of switches above which only the problem's candidates are used."""
_BLOCK = 512
"""Number of states (see ``NextHops``) whose paths are listed at once, so that the arrays fit into the CPU's cache."""
_ATTEMPTS = 8
"""Largest number of goals that ``relieve`` tries for all jobs together, and largest number of single jobs that it
relieves afterwards."""
_FLOWS_TRIED_PER_LINK = 4
_RELATIVE_DECREASE = 0.02
"""Relative decrease of a job's slowdown that the relief of this job alone tries to reach."""
_MIN_TIME_S = 0.2
"""Seconds that a relief may take even when the time limit ends earlier; with less time, often no flow would move."""
_ROUNDING = 1e-9


def assign(problem: Problem, *, keep_current: bool) -> dict[FlowId, Route]:
    """Assign a whole route to every flow that has a path.

    ``keep_current``: whether flows stay on their current routes where these routes are valid. If False, flows may leave
    their current routes, and the current path only wins ties."""
    routes: dict[FlowId, Route] = {}
    waiting = []
    for number, flow in enumerate(problem.flows):
        if flow.src_leaf == flow.dst_leaf:
            routes[flow.id] = whole(())
        elif keep_current and flow.current is not None and flow.id in problem.in_force:
            routes[flow.id] = flow.current
        else:
            waiting.append(number)
    if not waiting:
        return routes
    next_hops = NextHops(problem, waiting)
    choices = PathChoices(problem, next_hops)
    loads = _Loads(problem, next_hops)
    loads.put_all(problem, routes)
    options = dict(zip(next_hops.flows.tolist(), choices.options, strict=True))
    peaks = problem.numbers.peak_bps.tolist()
    for number in largest_set_first(problem.flows, sorted(options, key=peaks.__getitem__, reverse=True), peaks):
        links = loads.least_loaded(number, options[number])
        loads.put(number, links)
        routes[problem.flows[number].id] = whole(next_hops.path(links))
    return routes


class Increments:
    """Calculator of the load that a flow adds to a link, for searches that place and remove flows one by one.

    A job with several phases loads a link with its largest phase. The load that a flow adds therefore depends on the
    job's other flows on the link. For jobs with several phases this class keeps the sums per phase and link.

    Flows are numbered as in ``Numbers``, links as in ``capacity_bps``."""

    def __init__(self, problem: Problem, capacity_bps: Floats) -> None:
        numbers = problem.numbers
        self._peak_bps: list[float] = numbers.peak_bps.tolist()
        self._per_bps = 1 / capacity_bps
        self._per_bps_of: list[float] = self._per_bps.tolist()
        phases = np.bincount(numbers.cell_job, minlength=len(numbers.job_ids))
        first_cell = (np.cumsum(phases) - phases).tolist()
        self._job: list[int] = numbers.job.tolist()
        self._sums = {job: np.zeros((phases[job], len(capacity_bps))) for job in np.flatnonzero(phases > 1).tolist()}
        self._bps: dict[int, Floats] = {}
        for entry in np.flatnonzero(phases[numbers.cell_job[numbers.entry_cell]] > 1).tolist():
            flow, cell = int(numbers.entry_flow[entry]), int(numbers.entry_cell[entry])
            job = self._job[flow]
            own = self._bps.setdefault(flow, np.zeros(phases[job]))
            own[cell - first_cell[job]] = numbers.entry_bps[entry]

    def count_rows(self, flows: Ints, links: Ints, shares: Floats) -> None:
        """Count ``shares[i]`` of flow ``flows[i]`` on link ``links[i]``, for each i; a flow may occur several times."""
        several = np.zeros(len(self._job), bool)
        several[list(self._bps)] = True
        for row in np.flatnonzero(several[flows]).tolist():
            self.count(int(flows[row]), links[row : row + 1], float(shares[row]))

    def count(self, flow: int, links: Ints | Sequence[int], share: float = 1.0) -> None:
        """Count a share of the flow on each of these links; a negative share is subtracted."""
        if flow in self._bps:
            self._sums[self._job[flow]][:, links] += share * self._bps[flow][:, None]

    def added(self, flow: int, links: Ints, share: float = 1.0) -> Floats:
        """Return the load that a share of the flow, not counted yet, would add to each of these links."""
        if flow not in self._bps:
            return self.alone(flow, links, share)
        sums = self._sums[self._job[flow]][:, links]
        own = share * self._bps[flow].reshape(-1, *[1] * links.ndim)
        added: Floats = ((sums + own).max(axis=0) - sums.max(axis=0)) * self._per_bps[links]
        return added

    def alone(self, flow: int, links: Ints, share: float = 1.0) -> Floats:
        """Return the load of each of these links when only this share of the flow uses it."""
        load: Floats = share * self._peak_bps[flow] * self._per_bps[links]
        return load

    def weight(self, flow: int, link: int) -> float:
        """Return the load that the link would lose without the flow, which must have been counted."""
        if flow not in self._bps:
            return self._peak_bps[flow] * self._per_bps_of[link]
        sums = self._sums[self._job[flow]][:, link]
        return float(sums.max() - (sums - self._bps[flow]).max()) * self._per_bps_of[link]


class _Loads:
    """Loads of all links, numbered as in ``NextHops``."""

    def __init__(self, problem: Problem, next_hops: NextHops) -> None:
        self._flows = problem.flows
        self._number = next_hops.number
        self._load = np.zeros(len(next_hops.capacity_bps))
        self._increments = Increments(problem, next_hops.capacity_bps)

    def put_all(self, problem: Problem, routes: Routes) -> None:
        """Add the loads of all routes. No flow may have been added before."""
        rows = passing(problem, routes)
        place = np.array([problem.link_number[link] for link in self._number], np.int64)
        number = np.full(len(problem.capacity_bps), -1)
        number[place] = np.arange(len(place))
        self._load[: len(place)] = loads_of(problem, rows)[place]
        inside = number[rows.link] >= 0
        self._increments.count_rows(rows.flow[inside], number[rows.link[inside]], rows.share[inside])

    def put(self, flow: int, links: Ints, share: float = 1.0) -> None:
        self._load[links] += self._increments.added(flow, links, share)
        self._increments.count(flow, links, share)

    def least_loaded(self, flow: int, options: Ints) -> Ints:
        """Return the links of the path whose most loaded link ends up with the smallest load.

        The current path wins ties, else the first path. ``options``: links of each path; shape (hops, paths)."""
        worst = self._load[options[0]] + self._increments.added(flow, options[0])
        for links in options[1:]:
            np.maximum(worst, self._load[links] + self._increments.added(flow, links), out=worst)
        best = int(worst.argmin())
        current = self._flows[flow].current
        if current is not None and len(current) == 1:
            links = [self._number.get(link, -1) for link in current[0].path]
            for path in np.flatnonzero(worst == worst[best]).tolist():
                if options[: len(links), path].tolist() == links:
                    best = path
        return options[:, best]


def largest_set_first(flows: Sequence[Flow], numbers: Iterable[int], weights: Sequence[float]) -> list[int]:
    """Return the flows ordered by their sets: the flows out of or into one leaf, the set with the largest weight first.

    Within a set the flows keep their order. Among sets of equal weight, flows out of leaves precede flows into leaves.
    Sets of equal weight and direction are in the order of their leaves' dpids."""
    sets: defaultdict[tuple[bool, Dpid], list[int]] = defaultdict(list)
    for number in numbers:
        sets[False, flows[number].src_leaf].append(number)
        sets[True, flows[number].dst_leaf].append(number)
    order = sorted(sets, key=lambda key: (-sum(weights[number] for number in sets[key]), key))
    return list(dict.fromkeys(number for key in order for number in sets[key]))


# ---- all paths as arrays


class PathChoices:
    """Shortest paths of all flows, computed at once.

    ``CandidatePaths.between`` finds the same paths pair by pair; this class is seven times as fast on 64 x 32 switches.

    - ``flows``: the flows that have a path through the fabric.
    - ``options``: per flow its paths as link numbers of ``next_hops``, shape (hops, paths). Shorter paths are padded
      with ``next_hops.nothing``, a number that no link has. Paths cycle through the first switch's next hops, from the
      lowest on. The first k paths therefore have as many different first links as k paths can have.
    - ``peak_bps``: per flow its largest demand in any phase, for schemes that do not distinguish phases.
    - ``complete``: whether ``options`` has every path that flows may take."""

    def __init__(self, problem: Problem, next_hops: NextHops) -> None:
        self.next_hops = next_hops
        self.flows: Sequence[Flow] = [problem.flows[number] for number in next_hops.flows.tolist()]
        self.peak_bps: Sequence[float] = problem.numbers.peak_bps[next_hops.flows].tolist()
        states, first, pair = np.unique(next_hops.state, return_index=True, return_inverse=True)
        few: bool = _path_counts(next_hops)[states].max(initial=0) <= _MOST_PATHS
        self.complete = few and not problem.paths.stretch
        if not few:
            of_pair = _candidate_paths(problem, next_hops, [self.flows[flow] for flow in first.tolist()])
        else:
            blocks = [states[begin : begin + _BLOCK] for begin in range(0, len(states), _BLOCK)]
            of_pair = [paths for block in blocks for paths in _all_paths(next_hops, block)]
        self.options: Sequence[Ints] = [of_pair[number] for number in pair.tolist()]

    def no_links(self) -> Ints:
        """Return a path of padding (``nothing``) for every flow; shape (hops, flows)."""
        return np.full((self.next_hops.longest, len(self.flows)), self.next_hops.nothing)


class PathTable:
    """Paths of the flows of ``PathChoices`` in one array, and their demands. Links have the numbers of ``NextHops``.

    - ``pair``: per flow its row in ``paths``.
    - ``paths``: links of each path, padded with ``nothing``; shape (pairs, paths, hops).
    - ``missing``: True for an entry of ``paths`` beyond the last path of its pair; shape (pairs, paths).
    - ``row``: per flow the number of its job among the jobs with several phases, from 1 on; 0 for a job with one phase.
    - ``bps``: demand of each flow in each phase of its job; shape (flows, phases)."""

    def __init__(self, problem: Problem, choices: PathChoices) -> None:
        self._problem, self._next_hops = problem, choices.next_hops
        tables = {id(paths): paths for paths in choices.options}
        number = {key: index for index, key in enumerate(tables)}
        self.pair = np.array([number[id(paths)] for paths in choices.options], np.int64)
        most = max(paths.shape[1] for paths in tables.values())
        self.paths: Ints = np.full((len(tables), most, self._next_hops.longest), self._next_hops.nothing)
        self.missing: Bools = np.ones((len(tables), most), bool)
        for index, paths in enumerate(tables.values()):
            self.paths[index, : paths.shape[1]] = paths.T
            self.missing[index, : paths.shape[1]] = False
        numbers, flows = problem.numbers, self._next_hops.flows
        phases = np.bincount(numbers.cell_job, minlength=len(numbers.job_ids))
        first_cell = np.cumsum(phases) - phases
        self.row: Ints = np.where(phases > 1, np.cumsum(phases > 1), 0)[numbers.job[flows]]
        self.bps: Floats = np.zeros((len(flows), int(phases.max())))
        flow, entry = numbers.entries_of(flows)
        cell = numbers.entry_cell[entry]
        self.bps[flow, cell - first_cell[numbers.cell_job[cell]]] = numbers.entry_bps[entry]

    def columns(self, routes: Routes) -> tuple[Ints, Ints, Floats]:
        """Return flow, path and share of each subflow of the routes; the path is -1 if it is not listed."""
        number, nothing, hops = self._next_hops.number, self._next_hops.nothing, self._next_hops.longest
        flows, links, shares = [], [], []
        for index, flow in enumerate(self._next_hops.flows.tolist()):
            for path, share in routes[self._problem.flows[flow].id]:
                flows.append(index)
                links.append([number[link] for link in path] + [nothing] * (hops - len(path)))
                shares.append(share)
        at = np.array(flows, np.int64)
        same = (self.paths[self.pair[at]] == np.array(links)[:, None]).all(axis=2)
        return at, np.where(same.any(axis=1), same.argmax(axis=1), -1), np.array(shares)


def _path_counts(next_hops: NextHops) -> Floats:
    counts = np.zeros(len(next_hops.size))
    counts[-1] = 1
    for _ in range(next_hops.longest):
        counts = np.add.reduceat(counts[next_hops.after], next_hops.start)
    return counts


def _all_paths(next_hops: NextHops, states: Ints) -> list[Ints]:
    """Return the paths from each state; each array has the shape (hops, paths)."""
    owner, here = np.arange(len(states)), states
    links = np.zeros((0, len(states)), np.int64)
    for _ in range(next_hops.longest):
        size = next_hops.size[here]
        path = np.repeat(np.arange(len(here)), size)
        position = np.arange(len(path)) + np.repeat(next_hops.start[here] - (np.cumsum(size) - size), size)
        links = np.concatenate([links[:, path], next_hops.link[position][None]])
        owner, here = owner[path], next_hops.after[position]
    if next_hops.longest and (ranks := run_ranks(owner * (next_hops.nothing + 1) + links[0])).any():
        links = links[:, np.lexsort((ranks, owner))]
    ends = np.cumsum(np.bincount(owner, minlength=len(states))).tolist()
    return [links[:, begin:end] for begin, end in pairwise([0, *ends])]


def _candidate_paths(problem: Problem, next_hops: NextHops, flows: Sequence[Flow]) -> list[Ints]:
    found = []
    for flow in flows:
        paths = problem.candidates(flow)
        links = np.full((next_hops.longest, len(paths)), next_hops.nothing)
        for column, path in enumerate(paths):
            links[: len(path), column] = [next_hops.number[link] for link in path]
        found.append(links)
    return found


# ---- relief


def relieve(problem: Problem, bounds: Bounds, start: Routes, limits: PlanLimits) -> Draft | None:
    """Return routes with smaller slowdowns than ``start``; None when no such routes are found.

    ``start`` must have a route for every flow that has a candidate path. A flow whose running route is valid must have
    its running route in ``start``. At most ``limits.max_moves`` flows move; this limit must not be None."""
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
        state.attempt(max(bounds.job[job], state.slowdown[job] * (1 - _RELATIVE_DECREASE)), links)
    return state.draft()


class _Relief:
    def __init__(self, problem: Problem, start: Routes, limits: PlanLimits) -> None:
        self._problem, self._start = problem, start
        self._until = max(limits.until, time.perf_counter() + _MIN_TIME_S)
        self._moves_left = limits.max_moves or 0
        self._rows = rows = passing(problem, start)
        self.load = loads_of(problem, rows)
        self.slowdown = self._slowdowns(rows)
        """Slowdown of each job under the routes that were last accepted."""
        flows = np.bincount(rows.link, minlength=len(self.load))
        self._each = np.where(flows > 0, self.load / np.maximum(1, flows), np.inf)
        """Mean load per flow on each link at the start."""
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
        self._moved_to: defaultdict[int, dict[int, None]] = defaultdict(dict)
        """Indices of the moved flows on each link, as the keys of a dictionary."""
        self._paths: dict[tuple[Dpid, Dpid], Ints] = {}

    @property
    def worst(self) -> float:
        return max(self.slowdown.values(), default=1.0)

    def draft(self) -> Draft | None:
        changed = {self._problem.flows[flow].id: route for flow, route in self._at.items()}
        if not changed:
            return None
        return draft(self._problem, "relief", {**self._start, **changed})

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
            while self.load[link] > goal * (1 + _ROUNDING) and not self._over() and self._move_a_flow_off(link, goal):
                pass
        found = self._slowdowns(self._passing())
        if self._moves_left >= 0 and is_less(sorted_slowdowns(found), sorted_slowdowns(self.slowdown)):
            self.slowdown = found
            return True
        for flow, route in self._before.items():
            self._remove_load(flow)
            self._add_load(flow, route)
        self._moves_left = left
        return False

    def fewest_first(self) -> list[tuple[JobId, Ints]]:
        """Return jobs with a slowdown above 1, worst first, and their almost saturated links; few links win ties."""
        rows, numbers = self._passing(), self._problem.numbers
        slowdown = np.array([self.slowdown.get(job, 1.0) for job in numbers.job_ids])
        job = numbers.job[rows.flow]
        full = (
            (self.load[rows.link] >= slowdown[job] * (1 - _RELATIVE_DECREASE))
            & (slowdown[job] > 1)
            & self._is_fabric[rows.link]
        )
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
        return {numbers.job_ids[job]: float(slowdown[job]) for job in distinct(numbers.job[rows.routed])[0].tolist()}

    def _over(self) -> bool:
        return self._moves_left < 0 or time.perf_counter() > self._until

    def _passing(self) -> Passing:
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

    def _move_a_flow_off(self, link: int, goal: float) -> bool:
        """Move a flow off the link, wholly or in part; return False when no route was found that keeps to ``goal``."""
        for flow in self._flows_to_move(link)[:_FLOWS_TRIED_PER_LINK]:
            was = self._at.get(flow)
            self._remove_load(flow)
            route = self._route_within(goal, flow)
            if route is not None:
                self._before.setdefault(flow, was)
                self._moves_left -= was is None and self._problem.flows[flow].id in self._problem.in_force
                self._add_load(flow, route)
                return True
            self._add_load(flow, was)
        return False

    def _flows_to_move(self, link: int) -> list[int]:
        first, last = np.searchsorted(self._link, (link, link + 1)).tolist()
        here = [flow for flow in self._flow[first:last].tolist() if flow not in self._at]

        def order(flow: int) -> tuple[bool, float]:
            others = (self.load[of] for links, _ in self._subflows(flow) for of in links if of != link)
            return flow not in self._at, -max(others, default=0.0)

        return sorted([*self._moved_to[link], *here], key=order)

    def _route_within(self, goal: float, flow: int) -> Route | None:
        """Return a route with no link beyond ``goal``, else None. Remove the flow's own load from its links first."""
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

    def _remove_load(self, flow: int) -> None:
        for links, share in self._subflows(flow):
            self._increments.count(flow, links, -share)
            self.load[links] -= self._increments.added(flow, np.array(links), share)
            for link in links:
                self._moved_to[link].pop(flow, None)

    def _add_load(self, flow: int, route: Route | None) -> None:
        """Add the load of a flow that is counted on no link; the route None means the flow's route in ``start``."""
        self._at.pop(flow, None)
        if route is not None:
            self._at[flow] = route
        for links, share in self._subflows(flow):
            self.load[links] += self._increments.added(flow, np.array(links), share)
            self._increments.count(flow, links, share)
            for link in links if route is not None else ():
                self._moved_to[link][flow] = None

    def _subflows(self, flow: int) -> Iterable[tuple[list[int], float]]:
        number = self._problem.link_number
        route = self._at.get(flow) or self._start[self._problem.flows[flow].id]
        return [([number[link] for link in path], share) for path, share in route]
