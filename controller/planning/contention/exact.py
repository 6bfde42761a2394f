"""The best plan of a few jobs: by enumeration, and by CP-SAT over way x rank x start.

In: a ``Case``, the number of classes, and a circle. Out: choices, what they guarantee, and a lower bound of the
objective. The search is exact for starts that are multiples of 1 / ``slots`` of the circle.

A further job makes no guaranteed time smaller (``fluid``). So the cost of a job beside some others is a lower bound of
its cost beside all. The model has such bounds for all pairs. After each solution, it gets those of larger groups that
the solution violates, until a solution has no more cost than the model says. Every bound on the way is valid.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations, product
from typing import Any, NamedTuple

from controller.planning.contention.fluid import EPSILON, Case, Choice, Choices, Objective, guaranteed_s, iteration_s
from controller.planning.whole_flows.cpsat import cp_model

TOLERANCE = 0.02
"""Largest wait of a member in an iteration, as a fraction of its ideal iteration."""
MOST_TURNS = 4
STRETCHES = (1.02, 1.05, 1.1, 1.2, 1.35, 1.5)
"""Periods of circles, as multiples of one that members can keep without sharing."""
_SCALE = 1_000_000
_PROVEN = 1e-5
"""Largest difference of a cost and its bound at which the cost is proven to be optimal."""
_NEVER = 1_000 * _SCALE
"""Cost of a member whose circle is not kept."""


class Circle(NamedTuple):
    """Circle on which jobs can have slots."""

    period_s: float = 0.0
    turns: tuple[int, ...] = ()
    """Iterations of each job per turn; 0 for a job that stays free. Empty: all jobs stay free."""
    slots: int = 1
    """Number of places where a slot can begin; a multiple of all turns."""

    def start_s(self, place: int) -> float:
        return place * self.period_s / self.slots

    def places(self, number: int) -> range:
        """Return the places where the first slot of a job can begin."""
        turns = self.turns[number] if self.turns else 0
        return range(self.slots // turns if turns else 0)


NO_CIRCLE = Circle()


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


def circles(case: Case, slots: int, stretches: Sequence[float] = (1.0, *STRETCHES)) -> Iterator[Circle]:
    """Yield circles that at least two jobs can keep with short waits, if they do not disturb each other.

    Longer ones follow, for jobs that disturb each other."""
    found = set()
    for job, turns in product(case.jobs, range(1, MOST_TURNS + 1)):
        for stretch in stretches:
            period_s = job.ideal_s * turns * stretch
            counts = [int(period_s / each.ideal_s * (1 + EPSILON)) for each in case.jobs]
            counts = [
                count if count <= MOST_TURNS and period_s / max(1, count) <= each.ideal_s * (stretch + TOLERANCE) else 0
                for each, count in zip(case.jobs, counts, strict=True)
            ]
            if sum(map(bool, counts)) > 1 and math.gcd(*counts) == 1:
                unit = math.lcm(*filter(None, counts))
                found.add((stretch, Circle(period_s, tuple(counts), unit * math.ceil(slots / unit))))
    yield from (circle for _, circle in sorted(found))


def cost_of(case: Case, choices: Choices, circle: Circle, objective: Objective) -> tuple[float, dict[int, float]]:
    """Return the cost of a plan and the iteration time of each job. The cost is infinite if a circle is not kept."""
    took_s = guaranteed_s(case, choices, circle.period_s, TOLERANCE)
    if math.inf in (took_s[number] for number, choice in choices.items() if choice.start_s is not None):
        return math.inf, took_s
    return objective.total([objective.cost(case.jobs[number], s) for number, s in took_s.items()]), took_s


def options(case: Case, number: int, ranks: int, circle: Circle) -> Iterator[Choice]:
    """Yield all choices of a job."""
    turns = circle.turns[number] if circle.turns else 0
    for way, rank in product(range(len(case.jobs[number].ways)), range(ranks)):
        yield Choice(way, rank)
        for place in circle.places(number):
            yield Choice(way, rank, circle.start_s(place), turns)


def enumerated(
    case: Case, objective: Objective, ranks: int, circle: Circle = NO_CIRCLE, below: float = math.inf
) -> Solved:
    """Return the best plan that costs less than ``below``, by enumeration; without choices if there is none.

    A branch ends when the jobs chosen so far, and each of the others beside them, cost as much as the best plan. The
    first member starts at 0, because a turn of all starts together changes nothing."""
    best = Solved({}, circle, {}, below, below)
    costs = Costs(case, objective, circle)
    order = sorted(range(len(case.jobs)), key=lambda number: -len(case.jobs[number].ways))

    def extend(chosen: dict[int, Choice]) -> None:
        nonlocal best
        if len(chosen) == len(order):
            cost, took_s = cost_of(case, chosen, circle, objective)
            if cost < best.cost - EPSILON:
                best = Solved(chosen, circle, took_s, cost, cost)
            return
        anchored = any(choice.start_s is not None for choice in chosen.values())
        later = order[len(chosen) + 1 :]
        ways = [
            (objective.total([costs.of(job, now) for job in now]), now)
            for choice in options(case, order[len(chosen)], ranks, circle)
            if anchored or not choice.start_s
            for now in [{**chosen, order[len(chosen)]: choice}]
        ]
        for least, now in sorted(ways, key=lambda each: each[0]):
            if least >= best.cost - EPSILON:
                return
            others = [
                min(costs.of(other, {**now, other: each}) for each in options(case, other, ranks, circle))
                for other in later
            ]
            if objective.total([least, *others]) < best.cost - EPSILON:
                extend(now)

    extend({})
    return best


class Costs:
    """Cost of each job beside others, with a memory. A member whose circle is not kept has an infinite cost."""

    def __init__(self, case: Case, objective: Objective, circle: Circle) -> None:
        self._case, self._objective, self._circle = case, objective, circle
        self._links = [[peak.keys() for peak in job.peaks] for job in case.jobs]
        self._known: dict[Any, float] = {}

    def of(self, number: int, choices: Choices) -> float:
        own = choices[number]
        links = self._links[number][own.way]
        beside = {job: each for job, each in choices.items() if not links.isdisjoint(self._links[job][each.way])}
        beside[number] = own
        if not self._case.floor:  # only the order of ranks matters
            beside = {
                job: each._replace(rank=(each.rank > own.rank) - (each.rank < own.rank)) for job, each in beside.items()
            }
        key = (number, *sorted(beside.items()))
        if key not in self._known:
            took_s = iteration_s(self._case, beside, number, self._circle.period_s)
            kept = own.start_s is None or took_s < math.inf
            self._known[key] = self._objective.cost(self._case.jobs[number], took_s) if kept else math.inf
        return self._known[key]


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


# ---- the model


@dataclass
class _JobVariables:
    way: Any
    rank: Any
    place: Any
    member: Any
    cost: Any


class _Model:
    def __init__(self, case: Case, objective: Objective, ranks: int, circle: Circle) -> None:
        self._case, self._objective, self._circle = case, objective, circle
        self._cp = cp_model.CpModel()
        self._true = self._cp.new_constant(1)
        self._jobs = [self._variables(number, ranks) for number in range(len(case.jobs))]
        self._literals: dict[Any, Any] = {}
        for pair in permutations(range(len(case.jobs)), 2):
            self._add_pair(*pair, ranks)

    def _variables(self, number: int, ranks: int) -> _JobVariables:
        cp, job, places = self._cp, self._case.jobs[number], self._circle.places(number)
        of = _JobVariables(
            cp.new_int_var(0, len(job.ways) - 1, f"way{number}"),
            cp.new_int_var(0, ranks - 1, f"rank{number}"),
            cp.new_int_var(0, 0 if number == 0 else max(0, len(places) - 1), f"place{number}"),
            cp.new_bool_var(f"member{number}") if places else cp.new_constant(0),
            cp.new_int_var(0, _NEVER, f"cost{number}"),
        )
        cp.add(of.place == 0).only_enforce_if(~of.member) if places else None
        if places:
            cp.add(of.cost >= self._cost(number, {number: self._choice(number, 0, 0, 0)})).only_enforce_if(of.member)
            cp.add(of.cost < _NEVER).only_enforce_if(of.member)
        return of

    def _choice(self, number: int, way: int, rank: int, place: int | None) -> Choice:
        if place is None:
            return Choice(way, rank)
        return Choice(way, rank, self._circle.start_s(place), self._circle.turns[number])

    def _cost(self, number: int, choices: Choices, max_wait: float = math.inf) -> int:
        """Return the cost of a job beside others, rounded down."""
        took_s = iteration_s(self._case, choices, number, self._circle.period_s, max_wait)
        if took_s == math.inf and choices[number].start_s is not None:
            return _NEVER
        return int(self._objective.cost(self._case.jobs[number], took_s) * _SCALE * (1 - EPSILON))

    # ---- conditions, as Boolean variables

    def _ways_like(self, other: int, way: int, number: int, own: int) -> frozenset[int]:
        """Return the ways of ``other`` with at least the demands of ``way`` on the links of the job's way ``own``."""
        job = self._case.jobs[other]
        links = self._case.jobs[number].peaks[own].keys() & job.peaks[way].keys()
        return frozenset(
            each
            for each, phases in enumerate(job.ways)
            if all(
                phase.get(link, 0.0) >= bps
                for phase, least in zip(phases, job.ways[way], strict=True)
                for link, bps in least.items()
                if link in links
            )
        )

    def _way_in(self, number: int, ways: frozenset[int]) -> Any:
        of = self._jobs[number]
        if len(ways) == len(self._case.jobs[number].ways):
            return self._true
        return self._condition(("way", number, ways), of.way, sorted(ways), len(self._case.jobs[number].ways))

    def _rank_relation(self, number: int, other: int, higher: int) -> Any:
        """Return the condition that the other's rank is higher (1), equal (0) or lower (-1).

        Without floors, a job costs others no less in a higher rank; then 0 means at least equal, and -1 is always
        true."""
        if (number, other, "lead") not in self._literals:
            lead = self._cp.new_int_var(-3, 3, "")
            self._cp.add(lead == self._jobs[number].rank - self._jobs[other].rank)
            self._literals[number, other, "lead"] = lead
        lead = self._literals[number, other, "lead"]
        if self._case.floor:
            allowed = [value for value in range(-3, 4) if (value > 0) - (value < 0) == higher]
        else:
            allowed = [value for value in range(-3, 4) if value >= higher or higher < 0]
        return self._condition(("rank", number, other, higher), lead, [value + 3 for value in allowed], 7, 3)

    def _apart(self, number: int, other: int, steps: frozenset[int]) -> Any:
        """Return the condition that the job starts so many places behind the other."""
        if (number, other, "apart") not in self._literals:
            slots = self._circle.slots
            apart = self._cp.new_int_var(0, slots - 1, "")
            self._cp.add_modulo_equality(apart, self._jobs[number].place - self._jobs[other].place + slots, slots)
            self._literals[number, other, "apart"] = apart
        return self._condition(
            ("apart", number, other, steps), self._literals[number, other, "apart"], sorted(steps), self._circle.slots
        )

    def _condition(self, key: Any, variable: Any, values: Sequence[int], count: int, less: int = 0) -> Any:
        if len(values) == count:
            return self._true
        if key not in self._literals:
            inside = cp_model.Domain.from_values([value - less for value in values])
            outside = cp_model.Domain.from_values([value - less for value in range(count) if value not in {*values}])
            holds = self._literals[key] = self._cp.new_bool_var("")
            self._cp.add_linear_expression_in_domain(variable, inside).only_enforce_if(holds)
            self._cp.add_linear_expression_in_domain(variable, outside).only_enforce_if(~holds)
        return self._literals[key]

    # ---- lower bounds of costs

    def _add_pair(self, number: int, other: int, ranks: int) -> None:
        jobs, relations = self._case.jobs, (0, 1, -1)[: 1 if ranks == 1 else 3]
        for own in range(len(jobs[number].ways)):
            seen = set[frozenset[int]]()
            for way in range(len(jobs[other].ways)):
                like = self._ways_like(other, way, number, own)
                shared = jobs[number].peaks[own].keys() & jobs[other].peaks[way].keys()
                if not shared or like in seen:
                    continue
                seen.add(like)
                for higher in relations:
                    ranked = (int(higher > 0), int(higher < 0))
                    self._add_pair_bounds(number, other, (own, way), ranked)

    def _add_pair_bounds(self, number: int, other: int, ways: tuple[int, int], ranked: tuple[int, int]) -> None:
        choice, places = partial(self._choice, number, ways[0], ranked[0]), self._circle.places(number)
        beside = partial(self._choice, other, ways[1], ranked[1])
        self._bound(number, {number: choice(None), other: beside(None)})
        if not places:
            return
        self._bound(number, {number: choice(0), other: beside(None)})
        if self._circle.places(other):
            slots = self._circle.slots
            never = [
                step for step in range(slots) if self._cost(number, {number: choice(step), other: beside(0)}) == _NEVER
            ]
            if never:
                step = never[0]
                self._bound(number, {number: choice(step), other: beside(0)}, {other: frozenset(never)})

    def _bound(
        self, number: int, choices: Choices, apart: dict[int, frozenset[int]] | None = None, exact: bool = False
    ) -> None:
        """Add that the job costs at least as much as it does beside only these others, under their conditions.

        ``apart``: distances to other members with the same cost. ``exact``: whether more jobs may cost less."""
        cost = self._cost(number, choices, TOLERANCE if exact else math.inf)
        if not cost:
            return
        own, of = choices[number], self._jobs[number]
        conditions = [self._way_in(number, frozenset([own.way])), of.member if own.start_s is not None else ~of.member]
        for other, choice in choices.items():
            if other == number:
                continue
            like = frozenset([choice.way]) if exact else self._ways_like(other, choice.way, number, own.way)
            conditions.append(self._way_in(other, like))
            lead = own.rank - choice.rank
            conditions.append(self._rank_relation(number, other, (lead > 0) - (lead < 0)))
            if own.start_s is not None:
                member = self._jobs[other].member
                conditions.append(member if choice.start_s is not None else ~member)
                if choice.start_s is not None:
                    step = round((own.start_s - choice.start_s) / self._circle.period_s * self._circle.slots)
                    steps = (apart or {}).get(other, frozenset([step % self._circle.slots]))
                    conditions.append(self._apart(number, other, steps))
        lower = [other for other, choice in choices.items() if choice.rank > own.rank]
        if self._case.floor:
            for one, two in permutations(lower, 2):
                lead = choices[one].rank - choices[two].rank
                conditions.append(self._rank_relation(one, two, (lead > 0) - (lead < 0)))
        self._cp.add(of.cost >= cost).only_enforce_if([each for each in conditions if each is not self._true])

    # ---- the search

    def solve(self, start: Choices, time_limit_s: float) -> Solved:
        costs, rounds, bound = [of.cost for of in self._jobs], 0, 0.0
        total = self._cp.new_int_var(0, _NEVER, "total")
        if self._objective is Objective.WORST:
            self._cp.add_max_equality(total, costs)
        else:
            self._cp.add(total == sum(costs))
        self._cp.minimize(total)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers, solver.parameters.linearization_level = 1, 0
        until = time.perf_counter() + time_limit_s
        best = self._solved(start)
        while best.cost > bound + _PROVEN:
            if math.isfinite(time_limit_s):
                solver.parameters.max_time_in_seconds = max(0.0, until - time.perf_counter())
            if best.cost < math.inf:
                self._cp.add(total <= math.ceil(best.cost * _SCALE))
            rounds += 1
            status = solver.solve(self._cp)
            bound = max(bound, solver.best_objective_bound / _SCALE)
            if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
                break
            choices = {number: self._read(solver, number) for number in range(len(self._jobs))}
            best = min(best, self._solved(choices), key=lambda each: each.cost)
            if not self._add_violated(solver, choices) or time.perf_counter() > until:
                break
        return replace(best, bound=min(bound, best.cost), rounds=rounds)

    def _solved(self, choices: Choices) -> Solved:
        cost, took_s = cost_of(self._case, choices, self._circle, self._objective)
        return Solved(choices, self._circle, took_s, cost, 0.0)

    def _read(self, solver: Any, number: int) -> Choice:
        of = self._jobs[number]
        place = solver.value(of.place) if solver.value(of.member) else None
        return self._choice(number, solver.value(of.way), solver.value(of.rank), place)

    def _add_violated(self, solver: Any, choices: Choices) -> bool:
        """Add the bounds that the solution violates, and return whether there are any."""
        found = False
        for number, of in enumerate(self._jobs):
            said = solver.value(of.cost)
            if said < (cost := self._cost(number, choices)):
                self._bound(number, self._smallest(number, choices, cost))
                found = True
        if not found:
            for number, choice in choices.items():
                if choice.start_s is not None and self._cost(number, choices, TOLERANCE) == _NEVER:
                    self._bound(number, choices, exact=True)
                    found = True
        return found

    def _smallest(self, number: int, choices: Choices, cost: int) -> Choices:
        """Return the choices without those jobs that do not matter for the cost of the job."""
        kept = dict(choices)
        for other in choices:
            if other != number:
                fewer = {job: choice for job, choice in kept.items() if job != other}
                if self._cost(number, fewer) >= cost:
                    kept = fewer
        return kept
