"""Optimal routing by OR-Tools CP-SAT, on classes of interchangeable flows (DESIGN section 6).

Flows of one job with the same demands between the same leaves differ only in their NICs, which every routing loads
alike: so the variables are integers n[class, path], how many flows of a class take a path. Minimised in this order:
the worst level, how many jobs are there, the next level, ... ; then the flows moved; then the total load.

In: a ``Problem`` and its closed-form bounds. Out: paths, and what has been proven on the way; None when the solver
found nothing in its time. Levels closer than ``LEVEL_TOLERANCE`` count as equal here as everywhere.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ortools.sat.python import cp_model

from controller.fabric.topology import LinkId, Path
from controller.jobs.spec import JobId
from controller.planning.bounds import Bounds
from controller.planning.efficiency import LEVEL_TOLERANCE
from controller.planning.problem import Flow, FlowId, PlanLimits, Problem, Route, Routes, whole

_SCALE = 10_000_000
"""Integer units per load of 1. Weights are rounded down, so that a bound of the model is a bound of the problem."""
_MAX_WEIGHT = 100_000 * _SCALE
"""A single flow's load beyond this is not told apart: keeps sums of 10^5 flows within 64 bits."""
_SEARCH_SHARE = 0.3
"""Share of a stage's time for the search without linear relaxation."""
_LEVELS_SHARE = 0.7
"""Share of the time that the levels may take; the rest is for fewer moves."""


@dataclass(frozen=True, slots=True)
class Solution:
    """``proven``: lower bounds of the first entries of the levels sorted from the worst, each valid for routings that
    are optimal in the entries before it."""

    routes: Routes
    proven: tuple[float, ...]


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
    problem: Problem, limits: PlanLimits, bounds: Bounds, start: Routes, max_moves: int | None
) -> Solution | None:
    """``start``: a routing to begin from. ``max_moves``: how many flows may leave a current path that still exists;
    when it is not None, ``proven`` holds among such routings only. Raises nothing that a valid problem can cause."""
    model = _RoutingModel(problem, bounds, start, max_moves)
    search = _Search(model.cp, limits)
    return model.optimise(search)


class _Search:
    """Solves one growing model in stages under one budget of seconds, or of deterministic time.

    ``values`` is the latest solution, ``bound`` what is proven of the latest objective.
    """

    def __init__(self, cp: cp_model.CpModel, limits: PlanLimits) -> None:
        self._cp = cp
        self._limits = limits
        self._left_s = limits.time_limit_s
        self.values: Sequence[int] = ()
        self.bound = -math.inf
        self._reached = math.inf

    def minimise(self, objective: Any, share: float = 1.0) -> cp_model.CpSolverStatus | None:
        """OPTIMAL or FEASIBLE when there is a solution for the model as it is now, None when not. ``share``: of the
        whole budget, how much may be used up when this ends.

        First without a linear relaxation: routings are found ten times faster so. Proofs need the relaxation.
        """
        self._cp.minimize(objective)
        self.bound, self._reached = -math.inf, math.inf
        found = None
        for linearization, part in ((0, _SEARCH_SHARE), (1, 1.0)):
            budget_s = part * (self._left_s - (1 - share) * self._limits.time_limit_s)
            if budget_s <= 0 or found == cp_model.OPTIMAL:
                break
            found = self._attempt(linearization, budget_s) or found
        return found

    def value(self, variable: cp_model.IntVar) -> int:
        return self.values[variable.index]

    def _attempt(self, linearization: int, budget_s: float) -> cp_model.CpSolverStatus | None:
        solver = cp_model.CpSolver()
        parameters = solver.parameters
        parameters.linearization_level = linearization
        parameters.num_workers = 1 if self._limits.deterministic else self._limits.workers
        parameters.random_seed = self._limits.seed
        parameters.catch_sigint_signal = False
        if self._limits.deterministic:
            parameters.max_deterministic_time = budget_s
        else:
            parameters.max_time_in_seconds = budget_s
        started = time.perf_counter()
        status = solver.solve(self._cp)
        elapsed_s = time.perf_counter() - started
        self._left_s -= solver.response_proto.deterministic_time if self._limits.deterministic else elapsed_s
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        self.bound = max(self.bound, solver.best_objective_bound)
        if solver.objective_value > self._reached:
            return None
        self._reached = solver.objective_value
        self.values = list(solver.response_proto.solution)
        self._cp.clear_hints()  # type: ignore[no-untyped-call]
        for index, value in enumerate(self.values):
            self._cp.add_hint(self._cp.get_int_var_from_proto_index(index), value)
        return status


class _RoutingModel:
    """The CP-SAT model: variables n[class, path], link loads as expressions, and the stages of the objective."""

    def __init__(self, problem: Problem, bounds: Bounds, start: Routes, max_moves: int | None) -> None:
        self.cp = cp_model.CpModel()
        self._problem = problem
        self._bounds = bounds
        self._classes = _classes(problem)
        self._fixed = {f.id: whole(()) for f in problem.flows if f.src_leaf == f.dst_leaf}
        self._count = [
            [self.cp.new_int_var(0, len(c.flows), f"n{i},{p}") for p in range(len(c.paths))]
            for i, c in enumerate(self._classes)
        ]
        for c, counts in zip(self._classes, self._count, strict=True):
            self.cp.add(sum(counts) == len(c.flows))
            for path, count in zip(c.paths, counts, strict=True):
                self.cp.add_hint(count, sum(start.get(flow.id) == whole(path) for flow in c.flows))
        self._limit_moves(max_moves)
        self._weigh_links()

    # ---- what the model is made of

    def _limit_moves(self, max_moves: int | None) -> None:
        """kept <= flows that are there now, <= flows that will be: moves are the pinned flows that are not kept."""
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
        """Keeps the links that some routing loads beyond 1, in units of the greatest common divisor of all weights (and
        of what NICs impose): equal flows on equal links become ones."""
        terms: defaultdict[LinkId, list[tuple[int, int, int, int]]] = defaultdict(list)
        most: defaultdict[LinkId, int] = defaultdict(int)
        for i, c in enumerate(self._classes):
            for p, path in enumerate(c.paths):
                for link in path:
                    for phase, bps in c.demand_bps:
                        terms[link].append((i, p, phase, self._weight(bps, link)))
            for link in {link for path in c.paths for link in path}:
                most[link] += len(c.flows) * sum(self._weight(bps, link) for _, bps in c.demand_bps)
        contested = {link: of for link, of in terms.items() if most[link] > _SCALE}
        floors = (int(floor * _SCALE) for floor in self._bounds.job.values() if floor > 1)
        self._unit = math.gcd(*(weight for of in contested.values() for *_, weight in of), *floors) or 1
        self._one = _SCALE // self._unit
        self._most = {link: most[link] // self._unit for link in contested}
        self._job_loads = {link: self._loads_of_jobs(of) for link, of in contested.items()}

    def _weight(self, bps: float, link: LinkId) -> int:
        return min(_MAX_WEIGHT, int(_SCALE * (bps / self._problem.capacity_bps[link])))

    def _loads_of_jobs(self, terms: Iterable[tuple[int, int, int, int]]) -> dict[JobId, Any]:
        """Per job its load on the link: a sum over one phase, or a variable above the sums of several."""
        phases: defaultdict[JobId, defaultdict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))
        most: defaultdict[JobId, int] = defaultdict(int)
        for i, p, phase, weight in terms:
            c = self._classes[i]
            phases[c.job_id][phase].append(weight // self._unit * self._count[i][p])
            most[c.job_id] += weight // self._unit * len(c.flows)
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

    def optimise(self, search: _Search) -> Solution | None:
        proven = self._minimise_levels(search)
        if proven is None:
            return None
        self._minimise_moves(search)
        return Solution(self._read(search), proven) if search.values else None

    def _minimise_levels(self, search: _Search) -> tuple[float, ...] | None:
        """What is proven of the sorted levels; None when no routing was found. Leaves the model constrained to the
        levels reached."""
        jobs = len(self._bounds.job)
        if not self._job_loads:
            return self._bounds.vector
        least = self._in_units(self._bounds.worst)
        worst = self.cp.new_int_var(least, max(least, *self._most.values()), "worst")
        for loads in self._job_loads.values():
            self.cp.add(sum(loads.values()) <= worst)
        status = search.minimise(worst, _LEVELS_SHARE)
        if status is None:
            return None
        proven = [max(self._bounds.worst, search.bound * self._unit / _SCALE)]
        top = search.value(worst)
        self.cp.add(worst <= _up_to(top))
        if top <= self._one:
            return (1.0,) * jobs
        levels = self._job_levels(_up_to(top)) if status == cp_model.OPTIMAL else {}
        at_or_above: dict[JobId, cp_model.IntVar] = {}
        while status == cp_model.OPTIMAL:
            at_or_above = self._jobs_above(levels, at_or_above, _below(top))
            status = search.minimise(sum(at_or_above.values()), _LEVELS_SHARE)
            if status is None:
                break
            reached = sum(search.value(flag) for flag in at_or_above.values())
            self.cp.add(sum(at_or_above.values()) <= reached)
            if status != cp_model.OPTIMAL:
                break
            proven += [top * self._unit / _SCALE] * (reached - len(proven))
            if reached == jobs:
                break
            following = self.cp.new_int_var(self._one, _below(top), "next")
            for job, flag in at_or_above.items():
                self.cp.add(levels[job] <= following).only_enforce_if(~flag)
            status = search.minimise(following, _LEVELS_SHARE)
            if status is None:
                break
            top = search.value(following)
            self.cp.add(following <= _up_to(top))
            proven.append(max(1.0, search.bound * self._unit / _SCALE))
            if top <= self._one:
                proven += [1.0] * (jobs - len(proven))
                break
        return tuple(proven)

    def _job_levels(self, worst: int) -> dict[JobId, cp_model.IntVar]:
        """Per job a variable not below the load of any contested link that it uses."""
        levels = {
            job: self.cp.new_int_var(min(worst, max(self._one, self._in_units(floor))), worst, f"level {job}")
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
                    self.cp.add(load[link] <= levels[c.job_id]).only_enforce_if(uses[key])
                self.cp.add(sum(those) <= len(c.flows) * uses[key])
        return levels

    def _jobs_above(
        self, levels: Mapping[JobId, cp_model.IntVar], before: Mapping[JobId, cp_model.IntVar], level: int
    ) -> dict[JobId, cp_model.IntVar]:
        """Per job whether its level may be above ``level``; those that were above the last one still are."""
        flags = {job: self.cp.new_bool_var(f"{job} above {level}") for job in levels}
        for job, flag in flags.items():
            self.cp.add(levels[job] <= level).only_enforce_if(~flag)
            if job in before:
                self.cp.add_implication(before[job], flag)
        return flags

    def _minimise_moves(self, search: _Search) -> None:
        """Fewest moves, then least total load, at the levels reached."""
        if self._kept:
            if search.minimise(self._pinned - sum(self._kept)) is None:
                return
            self.cp.add(sum(self._kept) >= sum(search.value(kept) for kept in self._kept))
        costs = self._total_load()
        if costs or not search.values:
            search.minimise(sum(costs))

    def _total_load(self) -> list[Any]:
        """Terms of the sum over flows of their largest demand on every link of their path, / capacity; none where the
        routing makes no difference."""
        terms = []
        for c, counts in zip(self._classes, self._count, strict=True):
            peak = max((bps for _, bps in c.demand_bps), default=0.0)
            costs = [sum(self._weight(peak, link) for link in path) for path in c.paths]
            if max(costs) > min(costs):
                terms += [cost * count for cost, count in zip(costs, counts, strict=True)]
        return terms

    def _in_units(self, level: float) -> int:
        return int(level * _SCALE / self._unit * (1 + 1e-9))

    def _read(self, search: _Search) -> dict[FlowId, Route]:
        """One path per flow: those that may stay on their current path do, the others fill up the rest in order."""
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


def _classes(problem: Problem) -> tuple[_Class, ...]:
    """Flows that cross the fabric, by job, demands and pair of leaves; those without a candidate are left out."""
    members: defaultdict[tuple[object, ...], list[Flow]] = defaultdict(list)
    for flow in problem.flows:
        if flow.src_leaf != flow.dst_leaf and problem.candidates(flow):
            members[flow.job_id, flow.demand_bps, flow.src_leaf, flow.dst_leaf].append(flow)
    return tuple(_Class(tuple(flows), problem.candidates(flows[0])) for flows in members.values())


def _up_to(level: int) -> int:
    """The largest level that counts as equal, with room for the rounding of weights and of what was proven."""
    return level + int(level * LEVEL_TOLERANCE / 2)


def _below(level: int) -> int:
    """The largest level that counts as smaller."""
    return level - max(1, math.ceil(level * LEVEL_TOLERANCE))
