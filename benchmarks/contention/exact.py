"""The best plan of a few jobs, by CP-SAT over way x rank x start.

In: a ``Case``, the number of classes, and a circle. Out: choices, what they guarantee, and a lower bound of the
objective. The search is exact for starts that are multiples of 1 / ``slots`` of the circle.

A further job makes no guaranteed time smaller (``fluid``). So the cost of a job beside some other jobs is a lower bound
of its cost beside all jobs. The model has such bounds for all pairs. After each solution, the model gets the bounds of
larger groups that the solution violates. The search ends when a solution has no more cost than the model says. Every
bound on the way is valid.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import combinations, permutations, product
from typing import Any, NamedTuple

from controller.planning.contention.circles import NO_CIRCLE, Circle
from controller.planning.contention.fluid import (
    EPSILON,
    Case,
    Choice,
    Choices,
    Objective,
    TimedJob,
    guaranteed_s,
    iteration_s,
)
from controller.planning.whole_flows.cpsat import cp_model

_SCALE = 1_000_000
_PROVEN = 1e-5
"""Largest difference of a cost and its bound at which the cost is proven to be optimal."""
_PARAMETERS = {
    "num_workers": 1,
    "linearization_level": 0,
    "cp_model_probing_level": 0,
    "symmetry_level": 0,
    "max_presolve_iterations": 1,
}
"""Parameters of CP-SAT: each round changes little, so a long presolve does not pay."""
_FEW_ROUNDS = 5
"""Round before which the model gets bounds of all triples; most small cases end sooner."""
_LEADS = range(-3, 4)
"""Differences of two ranks."""
_NEVER = 1_000 * _SCALE
"""Cost of a member whose circle is not kept."""


@dataclass(frozen=True)
class Solved:
    """Best plan found. Costs are in the units of the objective."""

    choices: Choices
    circle: Circle
    iteration_s: dict[int, float]
    cost: float
    bound: float
    """Lower bound of the cost, over all ways, ranks and starts on this circle."""
    rounds: int = 0


class Costs:
    """Cost of each job of a plan, with a memory."""

    def __init__(self, case: Case, objective: Objective, circle: Circle) -> None:
        self._case, self._objective, self._circle = case, objective, circle
        self._links = [[peak.keys() for peak in job.peaks] for job in case.jobs]
        self._known: dict[Any, float] = {}
        self._like: dict[tuple[int, int, int], list[int]] = {}

    def of(self, number: int, choices: Choices, max_wait: float = math.inf) -> float:
        """Return the cost of a job beside other jobs; infinite for a member whose circle is not kept."""
        own = choices[number]
        links = self._links[number][own.way]
        beside = {
            job: each._replace(way=self.ways_beside(number, own.way, job)[each.way])
            for job, each in choices.items()
            if not links.isdisjoint(self._links[job][each.way])
        }
        beside[number] = own
        if not self._case.floor:  # only the order of ranks matters
            beside = {job: each._replace(rank=1 - _order(own, each)) for job, each in beside.items()}
        key = (number, max_wait, *sorted(beside.items()))
        if key not in self._known:
            took_s = iteration_s(self._case, beside, number, self._circle.period_s, max_wait)
            kept = own.start_s is None or took_s < math.inf
            self._known[key] = self._objective.cost(self._case.jobs[number], took_s) if kept else math.inf
        return self._known[key]

    def ways_beside(self, number: int, own: int, other: int) -> Sequence[int]:
        """Return for each way of ``other`` its first way with equal demands on the links of the job's way ``own``."""
        key = (number, own, other)
        if key not in self._like:
            ways, links = self._case.jobs[other].ways, self._links[number][own]
            on_links = [tuple(tuple(phase.get(link, 0.0) for link in links) for phase in each) for each in ways]
            self._like[key] = [on_links.index(on) for on in on_links]
        return self._like[key]

    def total(self, choices: Choices, waits: bool = True) -> float:
        """Return the cost of all jobs. ``waits``: whether a circle with longer waits than allowed is not kept."""
        max_wait = self._circle.max_wait if waits else math.inf
        return self._objective.total([self.of(number, choices, max_wait) for number in choices])

    def solved(self, choices: Choices, bound: float = 0.0, rounds: int = 0) -> Solved:
        took_s = guaranteed_s(self._case, choices, self._circle.period_s, self._circle.max_wait)
        cost = self.total(choices)
        return Solved(choices, self._circle, took_s, cost, min(bound, cost), rounds)


def _order(one: Choice, other: Choice) -> int:
    """Return 1 if ``other`` goes first, 0 for equal ranks, and -1 if ``other`` goes last."""
    return (one.rank > other.rank) - (one.rank < other.rank)


def solve(
    case: Case,
    objective: Objective,
    ranks: int,
    circle: Circle = NO_CIRCLE,
    start: Choices | None = None,
    time_limit_s: float = math.inf,
) -> Solved:
    """Return the best plan that CP-SAT finds, and the bound that it has proven when its time ends.

    ``start``: plan to start from; by default, all jobs take their first ways, are free, and have one rank."""
    return _Model(case, objective, ranks, circle).solve(
        start or dict.fromkeys(range(len(case.jobs)), Choice()), time_limit_s
    )


# ---- measures of plans


def utilization(case: Case, iteration_s: Mapping[int, float]) -> float:
    """Return the work per second of all jobs / the work per second while all compute without a pause."""
    jobs = [(case.jobs[number], took_s) for number, took_s in iteration_s.items()]
    return sum(job.work / took_s for job, took_s in jobs) / sum(job.work / job.compute_s for job, _ in jobs)


def price_bound(case: Case, prices: Mapping[int, float], objective: Objective) -> float:
    """Return a lower bound of the objective, for any ways, ranks, starts and sharing.

    In the long run, the bits of all iterations fit through the links: the sum over jobs of
    need x ideal time / iteration time is at most the sum of price x capacity. The need of a job is that of its cheapest
    way. ``prices``: any price from 0 up for each link."""
    room = sum(price * case.capacity_bps[link] for link, price in prices.items())

    def need(job: TimedJob, way: int) -> float:
        return sum(prices.get(link, 0.0) * bps for link, bps in job.average_bps(way).items())

    needs = [min(need(job, way) for way in range(len(job.ways))) for job in case.jobs]
    return objective.bound(case.jobs, needs, room)


# ---- the model


class _Job(NamedTuple):
    """Variables of one job."""

    way: Any
    rank: Any
    place: Any
    member: Any
    cost: Any


class _Model:
    def __init__(self, case: Case, objective: Objective, ranks: int, circle: Circle) -> None:
        self._case, self._objective, self._circle = case, objective, circle
        self._costs, self._ranks = Costs(case, objective, circle), ranks
        self._cp = cp_model.CpModel()
        self._conditions: dict[Any, Any] = {}
        self._apart: dict[tuple[int, int], Any] = {}
        numbers = range(len(case.jobs))
        self._jobs = [self._variables(number, ranks) for number in numbers]
        for number in numbers:
            for alone in map(Choice, range(len(case.jobs[number].ways))):
                self._bound(number, {number: alone})
                if circle.places(number):
                    self._bound(number, {number: self._member(alone, number, 0)})
        for number, other in permutations(numbers, 2):
            for way, other_way, order in product(
                range(len(case.jobs[number].ways)), range(len(case.jobs[other].ways)), (0, 1, -1)
            ):
                if ranks > 1 or not order:
                    self._bound_pair(number, other, Choice(way, int(order > 0)), Choice(other_way, int(order < 0)))

    def _variables(self, number: int, ranks: int) -> _Job:
        """Return the variables of a job. A turn of all starts changes nothing, so the first job can start only at 0."""
        cp, places = self._cp, len(self._circle.places(number)) if number else 1
        of = _Job(
            cp.new_int_var(0, len(self._case.jobs[number].ways) - 1, ""),
            cp.new_int_var(0, ranks - 1, ""),
            cp.new_int_var(0, max(0, places - 1), ""),
            cp.new_bool_var("") if self._circle.places(number) else cp.new_constant(0),
            cp.new_int_var(0, _NEVER, ""),
        )
        cp.add(of.place == 0).only_enforce_if(~of.member)
        if self._circle.places(number):
            cp.add(of.cost < _NEVER).only_enforce_if(of.member)
        return of

    def _member(self, choice: Choice, number: int, place: int) -> Choice:
        return choice._replace(start_s=self._circle.start_s(place), turns=self._circle.turns[number])

    def _cost(self, number: int, choices: Choices, max_wait: float = math.inf) -> int:
        """Return the cost of a job beside other jobs, rounded down."""
        cost = self._costs.of(number, choices, max_wait)
        return _NEVER if cost == math.inf else int(cost * _SCALE * (1 - EPSILON))

    # ---- lower bounds of costs

    def _bound_pair(self, number: int, other: int, own: Choice, beside: Choice) -> None:
        """Add the costs of a job beside one other job, whether the two are free or members."""
        self._bound(number, {number: own, other: beside})
        if self._circle.places(number):
            placed = self._member(own, number, 0)
            self._bound(number, {number: placed, other: beside})
            if self._circle.places(other):
                for place in range(self._circle.slots):
                    self._bound(number, {number: placed, other: self._member(beside, other, place)})

    def _bound_triples(self) -> None:
        """Add the costs of each free job beside two other jobs, where two cost it more than one."""
        numbers = range(len(self._jobs))
        for number, one, two in permutations(numbers, 3):
            if one > two:
                continue
            for own in range(len(self._case.jobs[number].ways)):
                ways = [sorted({*self._costs.ways_beside(number, own, other)}) for other in (one, two)]
                for way, other_way, rank, other_rank in product(*ways, (0, 1), (0, 1)):
                    choices = {number: Choice(own, 1), one: Choice(way, rank), two: Choice(other_way, other_rank)}
                    pairs = ({number: choices[number], other: choices[other]} for other in (one, two))
                    if self._cost(number, choices) > max(self._cost(number, pair) for pair in pairs):
                        self._bound(number, choices)

    def _bound(self, number: int, choices: Choices, max_wait: float = math.inf) -> None:
        """Add that the job costs at least as much as beside only the jobs in ``choices``.

        The bound holds for all choices that cost it no less. With ``max_wait`` it holds for exactly these choices,
        because other jobs can also make waits shorter."""
        cost, own, of, exact = (
            self._cost(number, choices, max_wait),
            choices[number],
            self._jobs[number],
            max_wait < math.inf,
        )
        if not cost:
            return
        conditions = [self._way_in(number, {own.way}), ~of.member if own.start_s is None else of.member]
        for other, choice in choices.items():
            if other == number:
                continue
            ways = {choice.way} if exact else self._ways_like(other, choice.way, number, own.way)
            conditions += [self._way_in(other, ways), self._ordered(number, other, _order(own, choice))]
            if own.start_s is not None:
                member = self._jobs[other].member
                conditions.append(~member if choice.start_s is None else member)
                if choice.start_s is not None:
                    conditions.append(self._placed(number, other, own.start_s - choice.start_s))
        if self._case.floor:
            lower = [other for other, choice in choices.items() if _order(own, choice) < 0]
            for one, two in combinations(lower, 2):
                conditions.append(self._ordered(one, two, _order(choices[one], choices[two])))
        self._cp.add(of.cost >= cost).only_enforce_if([each for each in conditions if each is not None])

    def _ways_like(self, other: int, way: int, number: int, own: int) -> set[int]:
        """Return the ways of ``other`` with at least the demands of ``way`` on the links of the job's way ``own``."""
        job, links = self._case.jobs[other], self._case.jobs[number].peaks[own].keys()
        least = [{link: bps for link, bps in phase.items() if link in links} for phase in job.ways[way]]
        return {
            each
            for each, phases in enumerate(job.ways)
            if all(
                phase.get(link, 0.0) >= bps for phase, of in zip(phases, least, strict=True) for link, bps in of.items()
            )
        }

    def _way_in(self, number: int, ways: Set[int]) -> Any:
        return self._condition(("way", number), self._jobs[number].way, ways, range(len(self._case.jobs[number].ways)))

    def _ordered(self, number: int, other: int, order: int) -> Any:
        """Return the condition that the other job goes first (1), has an equal rank (0), or goes last (-1)."""
        leads = {lead for lead in _LEADS if (lead > 0) - (lead < 0) == order}
        return self._condition(("rank", number, other), self._jobs[number].rank - self._jobs[other].rank, leads, _LEADS)

    def _placed(self, number: int, other: int, apart_s: float) -> Any:
        """Return the condition that the job starts ``apart_s`` after the other job on the circle."""
        slots = self._circle.slots
        if (number, other) not in self._apart:
            apart = self._apart[number, other] = self._cp.new_int_var(0, slots - 1, "")
            self._cp.add_modulo_equality(apart, self._jobs[number].place - self._jobs[other].place + slots, slots)
        places = {round(apart_s / self._circle.period_s * slots) % slots}
        return self._condition(("apart", number, other), self._apart[number, other], places, range(slots))

    def _condition(self, name: tuple[Any, ...], expression: Any, values: Set[int], every: range) -> Any:
        """Return a Boolean variable that says whether the expression has one of the values; None if it always does."""
        key = (*name, frozenset(values))
        if len(values) == len(every):
            return None
        if key not in self._conditions:
            holds = self._conditions[key] = self._cp.new_bool_var("")
            for condition, inside in ((holds, values), (~holds, {*every} - values)):
                domain = cp_model.Domain.from_values(sorted(inside))
                self._cp.add_linear_expression_in_domain(expression, domain).only_enforce_if(condition)
        return self._conditions[key]

    # ---- the search

    def solve(self, start: Choices, time_limit_s: float) -> Solved:
        costs, rounds, bound = [of.cost for of in self._jobs], 0, 0.0
        total = self._cp.new_int_var(0, _NEVER, "")
        if self._objective is Objective.WORST:
            self._cp.add_max_equality(total, costs)
        else:
            self._cp.add(total == sum(costs))
        self._cp.minimize(total)
        solver = cp_model.CpSolver()
        for name, value in _PARAMETERS.items():
            setattr(solver.parameters, name, value)
        until = time.perf_counter() + time_limit_s
        best = self._costs.solved(start)
        while best.cost > bound + _PROVEN and (left_s := until - time.perf_counter()) > 0:
            if math.isfinite(left_s):
                solver.parameters.max_time_in_seconds = left_s
            if best.cost < math.inf:
                self._cp.add(total <= math.ceil(best.cost * _SCALE))
            rounds += 1
            if rounds == _FEW_ROUNDS and self._ranks > 1:
                self._bound_triples()
            if solver.solve(self._cp) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
                break
            bound = max(bound, solver.best_objective_bound / _SCALE)
            choices = {number: self._read(solver, number) for number in range(len(self._jobs))}
            best = min(best, self._costs.solved(choices), key=lambda each: each.cost)
            if not self._bound_violated(solver, choices):
                break
        return replace(best, bound=min(bound, best.cost), rounds=rounds)

    def _read(self, solver: Any, number: int) -> Choice:
        of = self._jobs[number]
        choice = Choice(solver.value(of.way), solver.value(of.rank))
        return self._member(choice, number, solver.value(of.place)) if solver.value(of.member) else choice

    def _bound_violated(self, solver: Any, choices: Choices) -> bool:
        """Add the bounds that the solution violates, each for as few jobs as possible. Return whether there are any."""
        found = False
        for number, of in enumerate(self._jobs):
            if solver.value(of.cost) >= (cost := self._cost(number, choices)):
                continue
            kept, found = dict(choices), True
            for other in choices.keys() - {number}:
                fewer = {job: choice for job, choice in kept.items() if job != other}
                kept = fewer if self._cost(number, fewer) >= cost else kept
            self._bound(number, kept)
        for number, choice in choices.items() if not found else ():
            if choice.start_s is not None and self._cost(number, choices, self._circle.max_wait) == _NEVER:
                self._bound(number, choices, self._circle.max_wait)
                found = True
        return found
