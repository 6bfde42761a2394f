"""Transition from one routing towards another, some moves at a time and never through a worse routing.

In: a problem, the routes to start from, the routes to reach, and a cap on moves. Out: the routes after the chosen
moves, or the smallest group of moves that must be made at once.

CP-SAT solves a 0-1 programme: flow f takes its new route when x_f = 1, so the load of every link is linear in x. A job
is above t when the load of a link that it uses is above t; which links the job uses depends on x too. For a job with
several phases (``efficiency``), the slowdown of each phase is a variable, and the job is above t when the sum of share
x slowdown is.

The sorted slowdowns must not become lexicographically greater. For that, one of two conditions must hold:

- For each slowdown t that a job had before the moves, no more jobs are above t than before.
- The first condition holds for the largest slowdowns, down to some t, and fewer jobs are at or above t than before.
  This t is the *tie-break*.

To keep the model small, only the ``_MOST_TIE_BREAKS`` largest slowdowns can be the tie-break. If none of them is the
tie-break, no job with a smaller slowdown may get slower.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from controller.fabric.topology import LinkId
from controller.planning.efficiency import (
    SLOWDOWN_TOLERANCE,
    Passing,
    cell_slowdowns,
    job_loads,
    job_slowdowns,
    of_iterations,
    passing,
    peaks_of,
)
from controller.planning.problem import Flow, FlowId, PlanLimits, Problem, Route, Routes
from controller.planning.whole_flows.cpsat import cp_model, solver_within
from signalbox.jobs.spec import JobId

_MOST_TIE_BREAKS = 4
_MOST_ROWS = 400
"""Largest product of the number of slowdowns that can be tie-breaks and the number of jobs.

One slowdown can be a tie-break even with more jobs."""
_MOST_MOVES, _MOVES_PER_S = 4_000, 2_000
"""Largest number of moves in one model: in total, and per second of the remaining time.

Building a larger model takes longer than a cycle should."""
_STRICT = 2 * SLOWDOWN_TOLERANCE
"""Relative decrease that is large enough for all comparisons of plans to recognise it.

The comparisons treat slowdowns that differ by less than ``SLOWDOWN_TOLERANCE`` as equal."""
_MOST_UNITS, _MOST_LOAD = 10_000_000, 1 << 42
"""Largest number of load units per link capacity, and largest load in units, as the solver has 64-bit integers."""
_WHOLE = 1 << 20
"""Integer that stands for the share 1 of a phase."""


class Group(NamedTuple):
    """Flows whose moves towards the goal routes give smaller slowdowns when made together."""

    flows: tuple[FlowId, ...]
    smallest: bool
    """Whether it is proven that no smaller group of moves towards the goal routes gives smaller slowdowns."""


class Stuck(NamedTuple):
    """Result of ``step`` when no moves within the cap are found."""

    final: bool
    """Whether it is proven that no moves within the cap exist, so that more time would not help."""


def step(
    problem: Problem, start: Routes, goal: Routes, most: int, free: Collection[FlowId], limits: PlanLimits
) -> Routes | Stuck:
    """Return the routes after the moves towards ``goal`` that give the smallest sorted slowdowns.

    Only decreases at the tie-breaks (see the module) count as smaller slowdowns. Of several equally good sets of moves,
    the largest one is made. ``most``: number of flows that may move, not counting the flows in ``free``."""
    if limits.left_s <= 0:
        return Stuck(final=False)
    model = _Model(problem, start, goal, limits)
    model.limit(most, free)
    model.maximise_gain()
    solver, status = _solved(model, limits)
    chosen = model.chosen(solver) if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else []
    if not chosen:
        return Stuck(status == cp_model.OPTIMAL and model.complete)
    return {**start, **{flow: goal[flow] for flow in chosen}}


def smallest_group(problem: Problem, start: Routes, goal: Routes, limits: PlanLimits) -> Group:
    """Return the smallest group of moves that gives smaller slowdowns than ``start`` has.

    When no group is found in time, return all moves: they lead to ``goal``, which has smaller slowdowns."""
    every = Group(tuple(flow.id for flow in _changing(problem, start, goal)), smallest=False)
    if limits.left_s <= 0:
        return every
    model = _Model(problem, start, goal, limits)
    model.minimise_moves()
    solver, status = _solved(model, limits)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return every
    return Group(
        tuple(model.chosen(solver)), status == cp_model.OPTIMAL and model.complete and model.sees_all_slowdowns
    )


def _solved(model: _Model, limits: PlanLimits) -> tuple[cp_model.CpSolver, cp_model.CpSolverStatus]:
    """Solve the model without presolve, which would take several times as long as the search."""
    solver = solver_within(limits, limits.time_limit_s)
    solver.parameters.cp_model_presolve = False
    return solver, solver.solve(model.cp)


@dataclass(slots=True)
class _Phase:
    before: float = 0.0
    """Load of the phase when no move is made."""
    changes: list[tuple[Any, float]] = field(default_factory=list)
    """Moves (variables), each with the load that it adds."""
    always: bool = False
    when: list[Any] = field(default_factory=list)
    """Conditions; the phase uses the link when any of them is true. Ignored when ``always`` is set."""
    load: Any = 0
    """Load in units, as an expression."""

    @property
    def uses(self) -> list[list[Any]]:
        """Conditions, at least one of which holds when the phase uses the link."""
        return [[]] if self.always else [[use] for use in self.when]


@dataclass(slots=True)
class _User:
    """Use of one link by one job."""

    phases: defaultdict[int, _Phase] = field(default_factory=lambda: defaultdict(_Phase))
    peak: Any = 0
    """Load of the largest phase in units, as an expression."""

    @property
    def most(self) -> float:
        return sum(phase.before + sum(abs(load) for _, load in phase.changes) for phase in self.phases.values())

    @property
    def uses(self) -> list[list[Any]]:
        """Conditions, at least one of which holds when the job uses the link."""
        phases = self.phases.values()
        return [[]] if any(phase.always for phase in phases) else [use for phase in phases for use in phase.uses]


class _Link:
    """Load of a link in units; ``most`` is its upper bound, ``rounding`` the limit of its rounding error."""

    def __init__(self, cp: cp_model.CpModel, users: Mapping[JobId, _User], units: float) -> None:
        self.users = users
        self._units = units
        self.load: Any = 0
        self.most = self.rounding = 0
        for user in users.values():
            self._add(cp, user)

    def _add(self, cp: cp_model.CpModel, user: _User) -> None:
        most, terms = 0, 1
        for phase in user.phases.values():
            changes = [(move, round(self._units * load)) for move, load in phase.changes]
            before = round(self._units * phase.before)
            phase.load = before + sum(units * move for move, units in changes)
            most = max(most, before + sum(max(0, units) for _, units in changes))
            terms = max(terms, 1 + len(changes))
        self.most += most
        self.rounding += terms
        loads = [phase.load for phase in user.phases.values()]
        if len(loads) == 1:
            user.peak = loads[0]
        elif loads:
            user.peak = cp.new_int_var(0, most, "")
            for load in loads:
                cp.add(user.peak >= load)
        self.load += user.peak


class _Model:
    def __init__(self, problem: Problem, start: Routes, goal: Routes, limits: PlanLimits) -> None:
        self.cp = cp_model.CpModel()
        self._problem = problem
        self._start = start
        changing = _changing(problem, start, goal)
        most = int(min(_MOST_MOVES, max(1.0, _MOVES_PER_S * limits.left_s)))
        self.complete = len(changing) <= most
        """Whether ``moves`` has every flow whose route changes."""
        if not self.complete:
            changing = _most_loaded_first(problem, start, changing)[:most]
        self.moves: dict[FlowId, Any] = {flow.id: self.cp.new_bool_var("") for flow in changing}
        self._slowdowns = job_slowdowns(problem, start)
        self._links = self._changing_links(goal)
        self._unchanged, self._phases = self._without_moves()
        self._links_of: defaultdict[JobId, list[_Link]] = defaultdict(list)
        for link in self._links.values():
            for job in link.users:
                self._links_of[job].append(link)
        self._above_of: dict[float, dict[JobId, Any]] = {}
        self._weighted: dict[JobId, tuple[Any, int, int]] = {}
        self.sees_all_slowdowns = True
        """Whether every slowdown that can decrease can be the tie-break."""
        self._tie_breaks = self._require_not_worse()

    def limit(self, most: int, free: Collection[FlowId]) -> None:
        self.cp.add(sum(move for flow, move in self.moves.items() if flow not in free) <= most)

    def maximise_gain(self) -> None:
        weight = len(self.moves) + 1
        gain = sum(weight * rank * tie_break for rank, tie_break in enumerate(reversed(self._tie_breaks), start=1))
        self.cp.maximize(gain + sum(self.moves.values()))

    def minimise_moves(self) -> None:
        self.cp.add_bool_or(self._tie_breaks)
        self.cp.minimize(sum(self.moves.values()))

    def chosen(self, solver: cp_model.CpSolver) -> list[FlowId]:
        return [flow for flow, move in self.moves.items() if solver.boolean_value(move)]

    # ---- loads

    def _changing_links(self, goal: Routes) -> dict[LinkId, _Link]:
        moving = [flow for flow in self._problem.flows if flow.id in self.moves]
        passed = dict.fromkeys(
            link
            for flow in moving
            for route in (self._start[flow.id], goal[flow.id])
            for path, _ in route
            for link in path
        )
        users: dict[LinkId, defaultdict[JobId, _User]] = {link: defaultdict(_User) for link in passed}
        for flow in self._problem.flows:
            for link, before, after in _shares(self._start.get(flow.id, ()), goal.get(flow.id, ())):
                if link in users:
                    self._use(users[link][flow.job_id], flow, link, before, after)
        loads = [sum(user.most for user in of_link.values()) for of_link in users.values()]
        self._units = min(_MOST_UNITS, _MOST_LOAD / max([1.0, *loads, *self._slowdowns.values()]))
        return {link: _Link(self.cp, of_link, self._units) for link, of_link in users.items()}

    def _use(self, user: _User, flow: Flow, link: LinkId, before: float, after: float) -> None:
        move = self.moves.get(flow.id)
        capacity_bps = self._problem.capacity_bps[link]
        for number, bps in flow.demand_bps:
            phase = user.phases[number]
            phase.before += before * bps / capacity_bps
            if move is not None:
                phase.changes.append((move, (after - before) * bps / capacity_bps))
            if move is None or (before and after):
                phase.always |= move is not None or before > 0
            else:
                phase.when.append(move if after else move.negated())

    def _without_moves(self) -> tuple[Mapping[JobId, float], Mapping[JobId, Mapping[int, tuple[float, float]]]]:
        """Return lower bounds of slowdowns from links and NICs that no move changes.

        They are per job; for jobs with several phases, each phase has its share and its lower bound."""
        problem, rows = self._problem, passing(self._problem, self._start)
        changing = [problem.link_number[link] for link in self._links]
        kept = ~np.isin(rows.link, changing)
        rows = Passing(rows.routed, rows.flow[kept], rows.link[kept], rows.share[kept])
        share, numbers = problem.phase_share, problem.numbers
        if share is None:
            return peaks_of(problem, rows), {}
        of_cells = np.maximum(1.0, cell_slowdowns(problem, rows)[0])
        phases: defaultdict[JobId, dict[int, tuple[float, float]]] = defaultdict(dict)
        for job, *of_phase in zip(
            numbers.cell_job.tolist(), numbers.cell_phase.tolist(), share.tolist(), of_cells.tolist(), strict=True
        ):
            phases[numbers.job_ids[job]][of_phase[0]] = of_phase[1], of_phase[2]
        least = of_iterations(problem, of_cells, share).tolist()
        several = {job: of_job for job, of_job in phases.items() if len(of_job) > 1}
        return dict(zip(numbers.job_ids, least, strict=True)), several

    # ---- slowdowns

    def _require_not_worse(self) -> list[Any]:
        """Require that the slowdowns do not get worse; return the tie-breaks, from the largest slowdown on."""
        slowdowns = sorted(self._slowdowns.values(), reverse=True)
        distinct = _distinct(slowdowns)
        most = max(1, min(_MOST_TIE_BREAKS, _MOST_ROWS // max(1, len(slowdowns))))
        self.sees_all_slowdowns = all(slowdown <= 1 + _STRICT for slowdown in distinct[most:])
        tie_breaks: list[Any] = []
        last = 1.0
        for slowdown in distinct[:most]:
            above = [job for job in slowdowns if job > slowdown * (1 + SLOWDOWN_TOLERANCE)]
            earlier = [tie_break.negated() for tie_break in tie_breaks]
            self.cp.add(sum(self._above(slowdown).values()) <= len(above)).only_enforce_if(earlier)
            last = slowdown
            if slowdown > 1 + _STRICT:
                at_least = sum(job >= slowdown * (1 - SLOWDOWN_TOLERANCE) for job in slowdowns)
                tie_breaks.append(self.cp.new_bool_var(""))
                fewer = sum(self._above(slowdown * (1 - _STRICT)).values()) <= at_least - 1
                self.cp.add(fewer).only_enforce_if(tie_breaks[-1])
        none = [tie_break.negated() for tie_break in tie_breaks]
        for job, slowdown in self._slowdowns.items():
            if slowdown < last * (1 - SLOWDOWN_TOLERANCE):
                self._keep_below(slowdown, job, none)
        return tie_breaks

    def _above(self, slowdown: float) -> Mapping[JobId, Any]:
        """Return, for every job that can be above the slowdown, the variable that says whether the job is above it."""
        if slowdown not in self._above_of:
            self._above_of[slowdown] = found = {}
            for job in self._slowdowns:
                above = self.cp.new_bool_var("")
                if self._unchanged.get(job, 1.0) > slowdown * (1 + SLOWDOWN_TOLERANCE / 2):
                    self.cp.add(above == 1)
                    found[job] = above
                elif self._keep_below(slowdown, job, [above.negated()]):
                    found[job] = above
        return self._above_of[slowdown]

    def _keep_below(self, slowdown: float, job: JobId, conditions: Sequence[Any]) -> bool:
        """Keep the job's slowdown within ``slowdown`` if all ``conditions`` hold; return whether it can be higher."""
        if job in self._phases:
            total, most, rounding = self._over_phases(job)
            limit = _WHOLE * (round(self._units * slowdown * (1 + SLOWDOWN_TOLERANCE / 4)) + rounding)
            if most > limit:
                self.cp.add(total <= limit).only_enforce_if(conditions)
            return most > limit
        constrained = False
        for link in self._links_of[job]:
            limit = round(self._units * slowdown) + link.rounding
            if link.most <= limit:
                continue
            constrained = True
            for use in link.users[job].uses:
                self.cp.add(link.load <= limit).only_enforce_if([*conditions, *use])
        return constrained

    def _over_phases(self, job: JobId) -> tuple[Any, int, int]:
        """Return ``_WHOLE`` x the slowdown of a job with several phases in units, its largest value, and its rounding.

        The slowdown is an expression. The rounding is that of the slowdown of a phase."""
        if job not in self._weighted:
            total: Any = 0
            most, rounding = 0, 1
            for number, (share, unchanged) in self._phases[job].items():
                links = [link for link in self._links_of[job] if number in link.users[job].phases]
                least = round(self._units * unchanged)
                highest = max([least, *(link.most for link in links)])
                slowdown = self.cp.new_int_var(least, highest, "")
                for link in links:
                    user = link.users[job]
                    phase, rounding = user.phases[number], max(rounding, link.rounding)
                    for use in phase.uses:
                        self.cp.add(link.load - user.peak + phase.load <= slowdown).only_enforce_if(use)
                total += round(_WHOLE * share) * slowdown
                most += round(_WHOLE * share) * highest
            self._weighted[job] = total, most, rounding
        return self._weighted[job]


def _changing(problem: Problem, start: Routes, goal: Routes) -> list[Flow]:
    both = (flow for flow in problem.flows if flow.id in start and flow.id in goal)
    return [flow for flow in both if start[flow.id] != goal[flow.id]]


def _most_loaded_first(problem: Problem, start: Routes, flows: Sequence[Flow]) -> list[Flow]:
    """Return the flows ordered by the load of the most loaded link that they leave, largest first."""
    load = {link: sum(of_jobs.values()) for link, of_jobs in job_loads(problem, start).items()}

    def fullest(flow: Flow) -> float:
        return max((load.get(link, 0.0) for path, _ in start[flow.id] for link in path), default=0.0)

    return sorted(flows, key=fullest, reverse=True)


def _shares(before: Route, after: Route) -> list[tuple[LinkId, float, float]]:
    shares: defaultdict[LinkId, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for side, route in enumerate((before, after)):
        for path, share in route:
            for link in path:
                shares[link][side] += share
    return [(link, first, second) for link, (first, second) in shares.items()]


def _distinct(slowdowns: Sequence[float]) -> list[float]:
    """Return the distinct slowdowns, descending; slowdowns that differ by less than the tolerance count as equal."""
    found: list[float] = []
    for slowdown in slowdowns:
        if not found or slowdown < found[-1] * (1 - SLOWDOWN_TOLERANCE):
            found.append(slowdown)
    return found
