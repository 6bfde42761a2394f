"""Optimal routing by OR-Tools CP-SAT, on classes of interchangeable flows.

In: a ``Problem`` and its closed-form bounds. Out: paths and the proven bounds; None when the solver found nothing in
its time.

Flows of one job with the same demands between the same leaves differ only in their NICs, which every routing loads
alike. So the variables are integers n[class, path], the number of flows of a class on a path. The model first minimises
the worst slowdown, then the number of jobs with it, then the next slowdown, and so on. Then it minimises the moved
flows, and last the total load. Slowdowns closer than ``SLOWDOWN_TOLERANCE`` count as equal.

All models of the planner import ``cp_model`` from this module. OR-Tools imports pandas for methods that are not used
here. Pandas would cost a controller 45 MB and a second at every start, so an empty module replaces it while
``cp_model`` is imported.
"""

from __future__ import annotations

import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from controller.fabric.topology import LinkId, Path
from controller.planning.bounds import Bounds, common_unit
from controller.planning.efficiency import SLOWDOWN_TOLERANCE
from controller.planning.plan import Drafts, draft
from controller.planning.problem import Flow, FlowId, PlanLimits, Problem, Route, Routes, whole
from signalbox.jobs.spec import JobId

_PANDAS = ModuleType("pandas")
vars(_PANDAS).update(dict.fromkeys(("Index", "Series", "DataFrame"), type("Nothing", (), {})))
try:
    sys.modules.setdefault(_PANDAS.__name__, _PANDAS)
    from ortools.sat.python import cp_model as cp_model
finally:
    if sys.modules[_PANDAS.__name__] is _PANDAS:
        del sys.modules[_PANDAS.__name__]

_FINEST = 1e-7
"""Unit of loads that have no common unit.

Loads are rounded down to it, so that a bound of the model is a bound of the problem."""
_MAX_LOAD = 100_000.0
"""Largest load of a single flow; larger loads are reduced to it, so that sums of 10^5 flows fit into 64 bits."""
_MOST_SIZES = 64
"""Number of different loads above which no common unit of the loads is computed."""
_ENDLESS = 1 << 62
_ROUNDING = 1e-9
_SLOWDOWNS_SHARE = 0.7
"""Share of the time for minimising slowdowns; the rest is for saving moves."""
_SEARCH_SHARE = 0.3
"""Share of a stage's time for the search without linear relaxation."""


@dataclass(frozen=True, slots=True)
class _Class:
    flows: tuple[Flow, ...]
    paths: tuple[Path, ...]

    @property
    def job_id(self) -> JobId:
        return self.flows[0].job_id

    @property
    def demand_bps(self) -> tuple[tuple[int, float], ...]:
        return self.flows[0].demand_bps


def solve(
    problem: Problem,
    limits: PlanLimits,
    bounds: Bounds,
    start: Routes,
    max_moves: int | None,
    known: Sequence[float] = (),
) -> Drafts | None:
    """Return the best routing found and the proven bounds; None when no routing was found in time.

    ``start``: routing to start from. ``max_moves``: number of flows that may leave a current path that still exists.
    With a number, ``proven`` holds only for routings within this number of moves. ``known``: lower bounds of the
    sorted slowdowns, like ``proven``. When ``start`` reaches them, nothing is left to find. Raises nothing for a
    valid problem."""
    model = _RoutingModel(problem, bounds, start, max_moves)
    search = StagedSearch(model.cp, limits)
    known = tuple(known) or bounds.vector
    found = model.optimise(search, known)
    if found is None:
        return None
    routes, proven = found
    drafts = [draft(problem, "cpsat", routes)]
    pairs = {(flow.src_leaf, flow.dst_leaf) for flow in problem.flows}
    cut = any(problem.paths.cut(*pair) for pair in pairs)
    return Drafts(drafts, known, proven) if cut else Drafts(drafts, proven)


class _RoutingModel:
    """CP-SAT model: variables n[class, path], link loads as expressions, and the stages of the objective."""

    def __init__(self, problem: Problem, bounds: Bounds, start: Routes, max_moves: int | None) -> None:
        self.cp = cp_model.CpModel()
        self._problem = problem
        self._bounds = bounds
        self._classes = _classes(problem, start)
        self._fixed = {f.id: whole(()) for f in problem.flows if f.src_leaf == f.dst_leaf}
        self._count = [
            [self.cp.new_int_var(0, len(c.flows), f"n{i},{p}") for p in range(len(c.paths))]
            for i, c in enumerate(self._classes)
        ]
        for c, counts in zip(self._classes, self._count, strict=True):
            self.cp.add(sum(counts) == len(c.flows))
        self._limit_moves(max_moves)
        self._weigh_links()
        self._start = start
        self._slowdowns = self._begin(start, max_moves)
        self._begun = _ENDLESS not in self._slowdowns

    # ---- the model

    def _begin(self, start: Routes, max_moves: int | None) -> list[int]:
        """Use ``start`` as a hint; return its slowdowns in units, worst first; ``_ENDLESS`` if it breaks limits."""
        values = [0] * sum(map(len, self._count))
        routed = kept = 0
        for c, counts in zip(self._classes, self._count, strict=True):
            routes = Counter(start.get(flow.id) for flow in c.flows)
            kept += sum(flow.current is not None and start.get(flow.id) == flow.current for flow in c.flows)
            for path, count in zip(c.paths, counts, strict=True):
                values[count.index] = routes[whole(path)]
                routed += routes[whole(path)]
                self.cp.add_hint(count, routes[whole(path)])
        complete = routed == sum(len(c.flows) for c in self._classes)
        if complete and (max_moves is None or kept >= self._pinned - max_moves):
            return self._sorted_slowdowns(values)
        return [_ENDLESS] * len(self._bounds.job)

    def _limit_moves(self, max_moves: int | None) -> None:
        """Limit the number of pinned flows that leave their paths.

        A variable per class and path counts the pinned flows that stay: at most those pinned to the path, and at most
        those on the path in the new routing."""
        self._kept = []
        self._pinned = 0
        for c, counts in zip(self._classes, self._count, strict=True):
            for path, count in zip(c.paths, counts, strict=True):
                here = sum(flow.current == whole(path) for flow in c.flows)
                if here:
                    kept = self.cp.new_int_var(0, here, "kept")
                    self.cp.add(kept <= count)
                    self._kept.append(kept)
                    self._pinned += here
        if max_moves is not None:
            self.cp.add(sum(self._kept) >= self._pinned - max_moves)

    def _weigh_links(self) -> None:
        """Find the links whose load can exceed 1, and set up the terms of their loads in units."""
        through: defaultdict[LinkId, list[tuple[int, int]]] = defaultdict(list)
        for i, c in enumerate(self._classes):
            for p, path in enumerate(c.paths):
                for link in path:
                    through[link].append((i, p))
        most: defaultdict[LinkId, float] = defaultdict(float)
        for link, those in through.items():
            for c in {i: self._classes[i] for i, _ in those}.values():
                most[link] += len(c.flows) * sum(self._load(bps, link) for _, bps in c.demand_bps)
        contested = [link for link in through if most[link] > 1]
        self._unit = self._find_unit({link: through[link] for link in contested})
        self._one = int((1 + _ROUNDING) / self._unit)
        self._terms = {
            link: [
                (i, p, phase, self._weight(bps, link))
                for i, p in through[link]
                for phase, bps in self._classes[i].demand_bps
            ]
            for link in contested
        }
        self._most = {link: int(most[link] / self._unit) + 1 for link in contested}
        self._job_loads = {link: self._loads_of_jobs(terms) for link, terms in self._terms.items()}

    def _find_unit(self, contested: Mapping[LinkId, Iterable[tuple[int, int]]]) -> float:
        """Return the unit of which all loads of flows, and all of the jobs' lower bounds above 1, are multiples.

        Without a common unit, return a unit so small that rounding to it does not matter."""
        demands = {
            (bps, self._problem.capacity_bps[link])
            for link, those in contested.items()
            for i, _ in those
            for _, bps in self._classes[i].demand_bps
        }
        loads = {bps / capacity for bps, capacity in demands}
        loads |= {floor for floor in self._bounds.job.values() if floor > 1}
        return (common_unit(tuple(sorted(loads))) if 0 < len(loads) <= _MOST_SIZES else 0.0) or _FINEST

    def _load(self, bps: float, link: LinkId) -> float:
        return min(_MAX_LOAD, bps / self._problem.capacity_bps[link])

    def _weight(self, bps: float, link: LinkId) -> int:
        return int(self._load(bps, link) / self._unit * (1 + _ROUNDING))

    def _loads_of_jobs(self, terms: Iterable[tuple[int, int, int, int]]) -> dict[JobId, Any]:
        """Return the load of each job on one link, given the terms of the link.

        With one phase it is a sum of terms; with several phases, a variable that is at least the sum of each phase."""
        phases: defaultdict[JobId, defaultdict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))
        most: defaultdict[JobId, int] = defaultdict(int)
        for i, p, phase, weight in terms:
            c = self._classes[i]
            phases[c.job_id][phase].append(weight * self._count[i][p])
            most[c.job_id] += weight * len(c.flows)
        loads: dict[JobId, Any] = {}
        for job, sums in phases.items():
            if len(sums) == 1:
                loads[job] = sum(next(iter(sums.values())))
                continue
            loads[job] = self.cp.new_int_var(0, most[job], "peak")
            for of in sums.values():
                self.cp.add(loads[job] >= sum(of))
        return loads

    # ---- the stages

    def optimise(self, search: StagedSearch, known: Sequence[float]) -> tuple[Routes, tuple[float, ...]] | None:
        """Return routes and lower bounds of the sorted slowdowns; each holds if the slowdowns before it are optimal."""
        proven = self._minimise_slowdowns(search, known)
        self._minimise_moves(search)
        if search.values:
            return self._read(search), proven
        return (self._start, proven) if self._begun else None

    def _minimise_slowdowns(self, search: StagedSearch, known: Sequence[float]) -> tuple[float, ...]:
        """Minimise the sorted slowdowns one after the other, and return their proven lower bounds.

        Afterwards the model admits only routings with the slowdowns that were reached. ``known``: lower bounds to begin
        with. Each of them holds only for routings that reach the entries before it. When an entry is not reached, the
        jobs' own bounds replace the entries after it, until the search proves more."""
        own = sorted(self._bounds.job.values(), reverse=True)
        proven = list(known)
        slowdown_of: dict[JobId, cp_model.IntVar] = {}
        above: dict[JobId, cp_model.IntVar] = {}
        entry = 0
        while entry < len(own):
            highest = self._highest(slowdown_of, above, proven[entry])
            if not self._reached(proven, entry, entry + 1):
                status = search.minimise(highest, _SLOWDOWNS_SHARE)
                bound = max(proven[entry], search.bound * self._unit)
                self._note(search)
                if not self._reached(proven, entry, entry + 1):
                    proven[entry:] = [bound, *own[entry + 1 :]]
                if status != cp_model.OPTIMAL:
                    break
            top = self._slowdowns[entry]
            slow = sum(slowdown > _below(top) for slowdown in self._slowdowns)
            self.cp.add(highest <= _up_to(top))
            if top <= self._one or (slow == len(own) and self._reached(proven, entry, slow)):
                break
            slowdown_of = slowdown_of or self._job_slowdowns(_up_to(top))
            above = self._jobs_above(slowdown_of, above, _below(top))
            if not self._reached(proven, entry, slow):
                status = search.minimise(sum(above.values()), _SLOWDOWNS_SHARE)
                self._note(search)
                slow = sum(slowdown > _below(top) for slowdown in self._slowdowns)
                if status != cp_model.OPTIMAL:
                    self.cp.add(sum(above.values()) <= slow)
                    break
                if not self._reached(proven, entry, slow):
                    proven[entry:] = [*[top * self._unit] * (slow - entry), *own[slow:]]
            self.cp.add(sum(above.values()) <= slow)
            entry = slow
        return tuple(proven)

    def _note(self, search: StagedSearch) -> None:
        if search.values:
            self._slowdowns = self._sorted_slowdowns(search.values)

    def _reached(self, proven: Sequence[float], begin: int, end: int) -> bool:
        """Return whether the best routing so far reaches the entries from ``begin`` to ``end`` of ``proven``."""
        entries = zip(self._slowdowns[begin:end], proven[begin:end], strict=True)
        return all(slowdown <= _up_to(self._in_units(bound)) for slowdown, bound in entries)

    def _sorted_slowdowns(self, values: Sequence[int]) -> list[int]:
        slowdown = {job: max(self._one, self._in_units(floor)) for job, floor in self._bounds.job.items()}
        for terms in self._terms.values():
            sums: defaultdict[JobId, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
            for i, p, phase, weight in terms:
                count = values[self._count[i][p].index]
                if count:
                    sums[self._classes[i].job_id][phase] += weight * count
            load = sum(max(of.values()) for of in sums.values())
            for job in sums:
                slowdown[job] = max(slowdown[job], load)
        return sorted(slowdown.values(), reverse=True)

    def _highest(
        self, slowdown_of: Mapping[JobId, cp_model.IntVar], above: Mapping[JobId, cp_model.IntVar], bound: float
    ) -> cp_model.IntVar:
        """Return a variable that is at least the slowdown of every job whose flag in ``above`` is false.

        An empty ``above`` means all jobs. ``bound``: lower bound of the variable, as a slowdown."""
        least = self._in_units(bound)
        highest = self.cp.new_int_var(least, max(least, *self._most.values(), self._one), "highest")
        if not above:
            for loads in self._job_loads.values():
                self.cp.add(sum(loads.values()) <= highest)
        for job, flag in above.items():
            self.cp.add(slowdown_of[job] <= highest).only_enforce_if(~flag)
        return highest

    def _job_slowdowns(self, worst: int) -> dict[JobId, cp_model.IntVar]:
        """Return for each job a variable that is at least the load of every contested link that it uses."""
        slowdowns = {
            job: self.cp.new_int_var(min(worst, max(self._one, self._in_units(floor))), worst, f"slowdown {job}")
            for job, floor in self._bounds.job.items()
        }
        load = {}
        for link, loads in self._job_loads.items():
            load[link] = self.cp.new_int_var(0, min(worst, self._most[link]), "load")
            self.cp.add(load[link] >= sum(loads.values()))
        uses: dict[tuple[JobId, LinkId], cp_model.IntVar] = {}
        for c, counts in zip(self._classes, self._count, strict=True):
            through: defaultdict[LinkId, list[cp_model.IntVar]] = defaultdict(list)
            for path, count in zip(c.paths, counts, strict=True):
                for link in path:
                    if link in load:
                        through[link].append(count)
            for link, those in through.items():
                key = (c.job_id, link)
                if key not in uses:
                    uses[key] = self.cp.new_bool_var("uses")
                    self.cp.add(load[link] <= slowdowns[c.job_id]).only_enforce_if(uses[key])
                self.cp.add(sum(those) <= len(c.flows) * uses[key])
        return slowdowns

    def _jobs_above(
        self, slowdowns: Mapping[JobId, cp_model.IntVar], before: Mapping[JobId, cp_model.IntVar], slowdown: int
    ) -> dict[JobId, cp_model.IntVar]:
        """Return for each job a variable: whether it may be above ``slowdown``, or was above the previous one."""
        flags = {job: self.cp.new_bool_var(f"{job} above {slowdown}") for job in slowdowns}
        for job, flag in flags.items():
            self.cp.add(slowdowns[job] <= slowdown).only_enforce_if(~flag)
            if job in before:
                self.cp.add_implication(before[job], flag)
        return flags

    def _minimise_moves(self, search: StagedSearch) -> None:
        if self._kept:
            if search.minimise(self._pinned - sum(self._kept)) is None:
                return
            self.cp.add(sum(self._kept) >= sum(search.value(kept) for kept in self._kept))
        costs = self._total_load()
        if costs or not (search.values or self._begun):
            search.minimise(sum(costs))

    def _total_load(self) -> list[Any]:
        """Return the terms of the total load (demand / link capacity); none when all routings have the same load."""
        terms = []
        for c, counts in zip(self._classes, self._count, strict=True):
            peak = max((bps for _, bps in c.demand_bps), default=0.0)
            costs = [sum(int(self._load(peak, link) / _FINEST) for link in path) for path in c.paths]
            if max(costs) > min(costs):
                terms += [cost * count for cost, count in zip(costs, counts, strict=True)]
        return terms

    def _in_units(self, slowdown: float) -> int:
        return int(slowdown / self._unit * (1 + _ROUNDING))

    def _read(self, search: StagedSearch) -> dict[FlowId, Route]:
        """Return the route of each flow under the search's best solution; flows keep their current path if possible."""
        routes: dict[FlowId, Route] = dict(self._fixed)
        for c, counts in zip(self._classes, self._count, strict=True):
            room = {whole(path): search.value(count) for path, count in zip(c.paths, counts, strict=True)}
            others = []
            for flow in c.flows:
                if flow.current is not None and room.get(flow.current, 0):
                    room[flow.current] -= 1
                    routes[flow.id] = flow.current
                else:
                    others.append(flow)
            free = (route for route, count in room.items() for _ in range(count))
            routes.update({flow.id: route for flow, route in zip(others, free, strict=True)})
        return routes


def _classes(problem: Problem, start: Routes) -> tuple[_Class, ...]:
    """Return the classes of crossing flows (same job, demands and leaves) with their candidates and start paths."""
    members: defaultdict[tuple[object, ...], list[Flow]] = defaultdict(list)
    for flow in problem.flows:
        if flow.src_leaf != flow.dst_leaf and problem.candidates(flow):
            members[flow.job_id, flow.demand_bps, flow.src_leaf, flow.dst_leaf].append(flow)
    classes = []
    for flows in members.values():
        of_start = (path for flow in flows for path, _ in start.get(flow.id, ()))
        paths = dict.fromkeys((*problem.candidates(flows[0]), *of_start))
        classes.append(_Class(tuple(flows), tuple(paths)))
    return tuple(classes)


def _up_to(slowdown: int) -> int:
    """Return the largest value that counts as equal to ``slowdown``, with a margin for rounding errors."""
    return slowdown + int(slowdown * SLOWDOWN_TOLERANCE / 2)


def _below(slowdown: int) -> int:
    """Return the largest value that counts as smaller than ``slowdown``."""
    return slowdown - max(1, math.ceil(slowdown * SLOWDOWN_TOLERANCE))


# ---- searches


def solver_within(limits: PlanLimits, budget_s: float) -> cp_model.CpSolver:
    """Return a solver with a budget in CP-SAT's deterministic time, which advances by about one per second."""
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = 1
    parameters.random_seed = limits.seed
    parameters.catch_sigint_signal = False
    parameters.max_deterministic_time = budget_s
    if math.isfinite(limits.until):
        parameters.max_time_in_seconds = max(0.0, limits.left_s)
    return solver


class StagedSearch:
    """Search in stages over one model, each with its own objective, under one budget of deterministic time.

    The model may grow between the stages."""

    def __init__(self, cp: cp_model.CpModel, limits: PlanLimits) -> None:
        self._cp = cp
        self._limits = limits
        self._left_s = limits.time_limit_s
        self.values: Sequence[int] = ()
        """Value of each variable, by index, in the best solution so far; empty before the first solution."""
        self.bound = -math.inf
        """Proven bound of the latest objective."""
        self._reached = math.inf

    def minimise(self, objective: Any, share: float = 1.0) -> cp_model.CpSolverStatus | None:
        """Minimise an objective. Return OPTIMAL or FEASIBLE when a solution of the present model is found, else None.

        ``share``: share of the whole budget that may be used up when this stage ends.
        The first attempt has no linear relaxation, because without a relaxation the search finds routings ten times
        faster. Proofs need the relaxation."""
        self._cp.minimize(objective)
        self.bound, self._reached = -math.inf, math.inf
        found = None
        for linearization, part in ((0, _SEARCH_SHARE), (1, 1.0)):
            budget_s = part * (self._left_s - (1 - share) * self._limits.time_limit_s)
            if budget_s <= 0 or self._limits.left_s <= 0 or found == cp_model.OPTIMAL:
                break
            found = self._attempt(linearization, budget_s) or found
        return found

    def value(self, variable: cp_model.IntVar) -> int:
        return self.values[variable.index]

    def _attempt(self, linearization: int, budget_s: float) -> cp_model.CpSolverStatus | None:
        solver = solver_within(self._limits, budget_s)
        solver.parameters.linearization_level = linearization
        status = solver.solve(self._cp)
        self._left_s -= solver.response_proto.deterministic_time
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.UNKNOWN):
            self.bound = max(self.bound, solver.best_objective_bound)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        if solver.objective_value > self._reached:
            return None
        self._reached = solver.objective_value
        self.values = list(solver.response_proto.solution)
        self._cp.clear_hints()  # type: ignore[no-untyped-call]
        for index, value in enumerate(self.values):
            self._cp.add_hint(self._cp.get_int_var_from_proto_index(index), value)
        return status
