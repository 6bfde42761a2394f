"""The best plan of a few jobs, by CP-SAT over way x rank x circle x place.

In: a ``Case``, the number of classes, circles, and the largest time of each job. Out: options of the jobs, and a lower
bound of the objective. The search is exact for slots that begin at the places of these circles.

A job's time depends on what is beside it on each of its links: a *row* has the demands of some jobs on one link. A
further row, a further job, or more demand makes no guaranteed time smaller (``fluid``). So some rows of a plan prove a
lower bound of a job's cost in all plans that have these rows on any links. The model has a Boolean variable per row. It
begins with the rows of pairs. After each solution, it gets the bounds that the solution violates, each with as few rows
and jobs as possible. The search ends when a solution violates none. Every bound on the way is valid.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import combinations, permutations, product
from typing import Any, NamedTuple

from controller.planning.contention.circles import Circle
from controller.planning.contention.fluid import EPSILON, Case, Choice, Objective, iteration_s
from controller.planning.whole_flows.cpsat import cp_model

_RESOLUTION = 1e9
"""Largest total cost in the model."""
_PARAMETERS = {
    "num_workers": 1,
    "linearization_level": 0,
    "cp_model_probing_level": 0,
    "symmetry_level": 0,
    "max_presolve_iterations": 1,
}
"""Parameters of CP-SAT: each round changes little, so a long presolve does not pay."""
_MOST_ROWS = 8
"""Number of different rows of a pair of jobs up to which the model begins with them."""

Demands = tuple[float, ...]
"""Demand of a job on one link in each phase, as fractions of the link's capacity."""
Row = frozenset[tuple[int, Demands]]
"""Demands of some jobs on one link."""


class Option(NamedTuple):
    """Choice of a plan for one job."""

    way: int = 0
    rank: int = 0
    circle: int | None = None
    """Number of its circle; None for a free job."""
    place: int = 0


@dataclass(frozen=True)
class Solved:
    """Best plan found. Costs are in the units of the objective."""

    options: tuple[Option, ...]
    cost: float
    bound: float
    """Lower bound of the cost, over all options that keep the largest times."""
    rounds: int = 0


class _Context(NamedTuple):
    """All that decides the time of a job: the rows of its links, ranks, and places of members of its circle."""

    number: int
    rows: frozenset[Row]
    ranks: tuple[tuple[int, int], ...]
    """Rank of each job in the rows: 0 if it goes before the job, 1 if it is equal, 2 and more if it goes after it."""
    circle: int | None
    apart: tuple[tuple[int, int], ...]
    """Places from the job's slot to that of each other member of its circle."""

    def only(self, rows: Iterable[Row]) -> _Context:
        """Return the context with fewer rows, and without the jobs that are in none of them."""
        kept = frozenset(rows)
        jobs = {self.number, *(job for row in kept for job, _ in row)}
        return self._replace(
            rows=kept,
            ranks=tuple(each for each in self.ranks if each[0] in jobs),
            apart=tuple(each for each in self.apart if each[0] in jobs),
        )

    def smaller(self) -> Iterator[_Context]:
        """Yield contexts without one job, without one row, and without one job of one row."""
        for other, _ in self.ranks:
            if other != self.number:
                yield self.only(frozenset(each for each in row if each[0] != other) for row in self.rows)
        for row in self.rows:
            if len(self.rows) > 1:
                yield self.only(self.rows - {row})
            for each in row:
                if each[0] != self.number:
                    yield self.only({*(self.rows - {row}), row - {each}})


class Costs:
    """Costs of jobs in contexts, with a memory. ``most_s``: largest time of an iteration of each job."""

    def __init__(self, case: Case, objective: Objective, circles: Sequence[Circle], most_s: Sequence[float]) -> None:
        self._case, self._objective, self._circles, self._most_s = case, objective, circles, most_s
        self.on_link = [
            [_on_links(case, number, way) for way in range(len(job.ways))] for number, job in enumerate(case.jobs)
        ]
        """Demands by job, way and link."""
        self._known: dict[_Context, float] = {}

    def of(self, context: _Context) -> float:
        """Return the cost of the job; infinite if it takes too long or its circle is not kept."""
        if context not in self._known:
            self._known[context] = self._computed(context)
        return self._known[context]

    def least(self, context: _Context) -> float:
        """Return the least cost in plans that have the rows on any links, also if several rows are on one link."""
        return min(self.of(context.only(map(_merged, parts))) for parts in _partitions([*context.rows]))

    def _computed(self, context: _Context) -> float:
        circle = None if context.circle is None else self._circles[context.circle]
        apart, rank = dict(context.apart), dict(context.ranks)
        ids = {job: at for at, job in enumerate(rank)}
        jobs = []
        for job in rank:
            way = tuple(
                {
                    at: of[job][phase]
                    for at, row in enumerate(context.rows)
                    if job in (of := dict(row)) and of[job][phase]
                }
                for phase in range(len(self._case.jobs[job].phases))
            )
            jobs.append(replace(self._case.jobs[job], ways=(way,)))
        choices = {
            at: Choice(0, rank[job], circle.start_s(apart[job]), circle.turns[job])
            if circle and job in apart
            else Choice(0, rank[job])
            for job, at in ids.items()
        }
        case = Case((1.0,) * len(context.rows), tuple(jobs), self._case.floor)
        own = self._case.jobs[context.number]
        took_s = iteration_s(case, choices, ids[context.number], circle.period_s if circle else 0.0)
        kept = took_s <= self._most_s[context.number] * (1 + EPSILON) and (took_s < math.inf or not circle)
        return self._objective.cost(own, took_s) if kept else math.inf

    def context(self, number: int, options: Mapping[int, Option]) -> _Context:
        """Return the context of a job in a plan."""
        own = options[number]
        rows = []
        for link, demands in self.on_link[number][own.way].items():
            others = (
                (job, self.on_link[job][option.way].get(link)) for job, option in options.items() if job != number
            )
            rows.append(frozenset([(number, demands), *((job, of) for job, of in others if of)]))
        kept = frozenset(row for row in rows if not any(row < more for more in rows))
        lower = sorted({option.rank for option in options.values() if option.rank > own.rank})
        ranks = {
            job: 2 + lower.index(option.rank) if option.rank > own.rank else int(option.rank == own.rank)
            for job, option in options.items()
        }
        if not self._case.floor:  # jobs that go after the job do not matter
            kept = frozenset(frozenset(each for each in row if ranks[each[0]] < 2) for row in kept)
            kept = frozenset(row for row in kept if not any(row < more for more in kept))
        apart = tuple(
            (job, (option.place - own.place) % len(self._circles[own.circle].places(job)))
            for job, option in options.items()
            if own.circle is not None and option.circle == own.circle
        )
        return _Context(number, kept, tuple(sorted(ranks.items())), own.circle, apart).only(kept)

    def total(self, options: Sequence[Option]) -> float:
        plan = dict(enumerate(options))
        return self._objective.total([self.of(self.context(number, plan)) for number in plan])


def _on_links(case: Case, number: int, way: int) -> dict[int, Demands]:
    phases = case.jobs[number].ways[way]
    return {
        link: tuple(of.get(link, 0.0) / case.capacity_bps[link] for of in phases)
        for link in case.jobs[number].peaks[way]
    }


def _partitions(rows: list[Row]) -> Iterator[list[list[Row]]]:
    if not rows:
        yield []
        return
    first, *rest = rows
    for parts in _partitions(rest):
        yield [[first], *parts]
        for at, part in enumerate(parts):
            yield [*parts[:at], [first, *part], *parts[at + 1 :]]


def _merged(rows: Sequence[Row]) -> Row:
    found: dict[int, Demands] = {}
    for job, demands in (each for row in rows for each in row):
        found[job] = tuple(map(max, demands, found.get(job, demands)))
    return frozenset(found.items())


# ---- the model


class _Job(NamedTuple):
    """Variables of one job."""

    way: Any
    rank: Any
    circle: Any
    """Number of its circle; the number of circles for a free job."""
    place: Any
    cost: Any


class Exact:
    """Model of all plans of a case. ``ranks``: number of classes. ``most_s``: largest time of each job's iterations."""

    def __init__(
        self, case: Case, objective: Objective, ranks: int, circles: Sequence[Circle], most_s: Sequence[float]
    ) -> None:
        self._case, self._objective, self._ranks, self._circles = case, objective, ranks, circles
        self.costs = Costs(case, objective, circles, most_s)
        self._numbers = range(len(case.jobs))
        worst = [objective.cost(job, most) for job, most in zip(case.jobs, most_s, strict=True)]
        self._scale = _RESOLUTION / max(sum(worst), EPSILON)
        self._never = 2 * int(_RESOLUTION)
        """Cost of a job whose time is too long."""
        self._cp = cp_model.CpModel()
        self._conditions: dict[Any, Any] = {}
        self._rows: dict[Row, Any] = {}
        self._apart: dict[tuple[int, int, int], Any] = {}
        self._jobs = [self._variables(number) for number in self._numbers]
        for number in self._numbers:
            for way in range(len(case.jobs[number].ways)):
                self._bound(self.costs.context(number, {number: Option(way)}))
                for at, circle in enumerate(circles):
                    if circle.places(number):
                        self._bound(self.costs.context(number, {number: Option(way, 0, at)}))
        for number, other in permutations(self._numbers, 2):
            rows = {*self._pair_rows(number, other)}
            for row, rank in product(rows if len(rows) <= _MOST_ROWS else (), self._places_in_line()):
                self._bound(_Context(number, frozenset([row]), tuple(sorted([(number, 1), (other, rank)])), None, ()))

    def _places_in_line(self) -> Sequence[int]:
        """Return the ranks of another job in a context that matter."""
        return range(3 if self._case.floor else 2) if self._ranks > 1 else (1,)

    def _pair_rows(self, number: int, other: int) -> Iterator[Row]:
        on_link = self.costs.on_link
        for own, beside in product(on_link[number], on_link[other]):
            for link in own.keys() & beside.keys():
                yield frozenset([(number, own[link]), (other, beside[link])])

    def _variables(self, number: int) -> _Job:
        """Return the variables of a job. A turn of all starts changes nothing, so the first job can start only at 0."""
        cp = self._cp
        places = {at: len(circle.places(number)) for at, circle in enumerate(self._circles) if circle.places(number)}
        of = _Job(
            cp.new_int_var(0, len(self._case.jobs[number].ways) - 1, ""),
            cp.new_int_var(0, self._ranks - 1, ""),
            cp.new_int_var_from_domain(cp_model.Domain.from_values([*places, len(self._circles)]), ""),
            cp.new_int_var(0, max(places.values(), default=1) - 1 if number else 0, ""),
            cp.new_int_var(0, self._never, ""),
        )
        if number:
            for at, count in (*places.items(), (len(self._circles), 1)):
                on = self._condition(("circle", number), of.circle, {at}, {*places, len(self._circles)})
                cp.add(of.place < count).only_enforce_if([] if on is None else [on])
        return of

    # ---- lower bounds of costs

    def _bound(self, context: _Context, beside: Mapping[int, Option] | None = None) -> None:
        """Add that the job costs at least as much as in this context.

        ``beside``: plan of the context, if the bound is only for ways like those of the plan."""
        cost = self._cost(self.costs.of(context) if beside else self.costs.least(context))
        number, ranks, apart = context.number, dict(context.ranks), dict(context.apart)
        if not cost:
            return
        if beside:
            conditions = [self._way_in(job, self._ways_like(job, number, beside)) for job in ranks]
        else:
            conditions = [self._row(row) for row in context.rows]
        conditions.append(self._on_circle(number, context.circle))
        for other in ranks.keys() - {number}:
            conditions.append(self._ordered(number, other, max(-1, 1 - ranks[other])))
            if context.circle is not None:
                conditions.append(self._on_circle(other, context.circle, other in apart))
        for one, two in combinations([job for job, rank in ranks.items() if rank > 1], 2):
            conditions.append(self._ordered(one, two, (ranks[one] > ranks[two]) - (ranks[one] < ranks[two])))
        *fixed, last = [other for other in apart if other != number] or [number]
        if context.circle is not None:
            conditions += [self._placed(number, other, context.circle, {apart[other]}) for other in fixed]
        if context.circle is not None and last != number:
            every = self._circles[context.circle].places(last)
            places = {place for place in every if self._like(context, last, place, cost)}
            conditions.append(self._placed(number, last, context.circle, places))
        holding = [each for each in conditions if each is not None]
        if cost >= self._never:
            self._cp.add_bool_or([~each for each in holding])
        else:
            self._cp.add(self._jobs[number].cost >= cost).only_enforce_if(holding)

    def _cost(self, cost: float) -> int:
        """Return a cost in the units of the model, rounded down."""
        return self._never if cost == math.inf else int(cost * self._scale * (1 - EPSILON))

    def _like(self, context: _Context, member: int, place: int, cost: int) -> bool:
        """Return whether the job costs at least as much if the other member's slot is at this place."""
        apart = tuple((job, place if job == member else at) for job, at in context.apart)
        return self._cost(self.costs.of(context._replace(apart=apart))) >= cost

    def _ways_like(self, job: int, number: int, plan: Mapping[int, Option]) -> set[int]:
        """Return the ways of a job with at least the demands of its way in the plan, on the links of job ``number``."""
        on_link, way = self.costs.on_link, plan[job].way
        links = on_link[number][plan[number].way]
        least = {link: of for link, of in on_link[job][way].items() if link in links}
        if job == number:
            return {way}
        return {
            at for at, of in enumerate(on_link[job]) if all(_covers(of.get(link), each) for link, each in least.items())
        }

    def _row(self, row: Row) -> Any:
        """Return a Boolean variable that is true if some link has at least these demands; None if it always has."""
        on_link = self.costs.on_link
        links = sorted({link for job, _ in row for of in on_link[job] for link in of})
        ways = [
            [{at for at, of in enumerate(on_link[job]) if _covers(of.get(link), least)} for job, least in row]
            for link in links
        ]
        ways = [each for each in ways if all(each)]
        if len(row) == 1:
            return self._way_in(next(iter(row))[0], set().union(*(of for each in ways for of in each)))
        if row not in self._rows:
            holds = self._rows[row] = self._cp.new_bool_var("")
            for each in ways:
                conditions = [self._way_in(job, of) for (job, _), of in zip(row, each, strict=True)]
                self._cp.add_bool_or([holds, *(~condition for condition in conditions if condition is not None)])
        return self._rows[row]

    def _way_in(self, number: int, ways: Set[int]) -> Any:
        every = set(range(len(self._case.jobs[number].ways)))
        return self._condition(("way", number), self._jobs[number].way, ways, every)

    def _on_circle(self, number: int, circle: int | None, is_on: bool = True) -> Any:
        every = {at for at, of in enumerate(self._circles) if of.places(number)} | {len(self._circles)}
        on = {len(self._circles) if circle is None else circle}
        return self._condition(("circle", number), self._jobs[number].circle, on if is_on else every - on, every)

    def _ordered(self, number: int, other: int, order: int) -> Any:
        """Return the condition that the other job goes first (1), has an equal rank (0), or goes last (-1)."""
        every = set(range(1 - self._ranks, self._ranks))
        leads = {lead for lead in every if (lead > 0) - (lead < 0) == order}
        return self._condition(("rank", number, other), self._jobs[number].rank - self._jobs[other].rank, leads, every)

    def _placed(self, number: int, other: int, circle: int, places: Set[int]) -> Any:
        """Return the condition that the other member's slot is at one of these places, counted from the job's slot."""
        every, key = self._circles[circle].places(other), (number, other, circle)
        if key not in self._apart:
            apart = self._apart[key] = self._cp.new_int_var(0, len(every) - 1, "")
            turns = self._cp.new_int_var(-1, 1 + len(self._circles[circle].places(number)) // len(every), "")
            self._cp.add(apart == self._jobs[other].place - self._jobs[number].place + len(every) * turns)
        return self._condition(("apart", *key), self._apart[key], places, {*every})

    def _condition(self, name: tuple[Any, ...], expression: Any, values: Set[int], every: Set[int]) -> Any:
        """Return a Boolean variable that says whether the expression has one of the values; None if it always does."""
        key = (*name, frozenset(values))
        if values == every:
            return None
        if key not in self._conditions:
            holds = self._conditions[key] = self._cp.new_bool_var("")
            for condition, inside in ((holds, values), (~holds, every - values)):
                domain = cp_model.Domain.from_values(sorted(inside))
                self._cp.add_linear_expression_in_domain(expression, domain).only_enforce_if(condition)
        return self._conditions[key]

    def _fewest(self, context: _Context, cost: int) -> _Context:
        """Return a context with as few rows and jobs as possible in which the job still costs at least this."""
        while smaller := next((each for each in context.smaller() if self._cost(self.costs.of(each)) >= cost), None):
            context = smaller
        return context

    # ---- the search

    def solve(self, start: Sequence[Option], time_limit_s: float = math.inf) -> Solved:
        """Return the best plan that is found, and the bound that is proven when the time ends.

        If the objective is the worst slowdown, the next slowdowns are made small too, from the worst on."""
        until_s = time.perf_counter() + time_limit_s
        best, rounds, bound = tuple(start), 0, 0.0
        solver = cp_model.CpSolver()
        for name, value in _PARAMETERS.items():
            setattr(solver.parameters, name, value)
        for stage in range(len(best) if self._objective is Objective.WORST else 1):
            total, done = self._total(stage), False
            self._cp.minimize(total)
            while not done and (left_s := until_s - time.perf_counter()) > 0:
                if math.isfinite(left_s):
                    solver.parameters.max_time_in_seconds = left_s
                self._cp.add(total <= self._costs_of(best)[stage])
                rounds += 1
                status = solver.solve(self._cp)
                if not stage:
                    bound = max(bound, solver.best_objective_bound / self._scale)
                if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
                    break
                found = tuple(self._read(solver, number) for number in self._numbers)
                done = not self._bound_violated(solver, found) and status == cp_model.OPTIMAL
                best = min(best, found, key=self._costs_of)
            if not done:
                break
        cost = self.costs.total(best)
        return Solved(best, cost, min(bound, cost), rounds)

    def _costs_of(self, options: Sequence[Option]) -> list[int]:
        """Return the values of a plan that the stages make small."""
        plan = dict(enumerate(options))
        costs = [self._cost(self.costs.of(self.costs.context(number, plan))) for number in plan]
        return sorted(costs, reverse=True) if self._objective is Objective.WORST else [sum(costs)]

    def _total(self, stage: int) -> Any:
        """Return the expression that a stage makes small: the sum of all costs, or the largest cost but ``stage``."""
        costs = [of.cost for of in self._jobs]
        if self._objective is not Objective.WORST:
            return sum(costs)
        total = self._cp.new_int_var(0, self._never, "")
        larger = [self._cp.new_bool_var("") for _ in costs]
        self._cp.add(sum(larger) <= stage)
        for cost, each in zip(costs, larger, strict=True):
            self._cp.add(total >= cost).only_enforce_if(~each)
        return total

    def _read(self, solver: Any, number: int) -> Option:
        of = self._jobs[number]
        way, rank, circle, place = (solver.value(each) for each in of[:4])
        return Option(way, rank, circle, place) if circle < len(self._circles) else Option(way, rank)

    def _bound_violated(self, solver: Any, options: Sequence[Option]) -> bool:
        """Add the bounds that the solution violates, each with as few rows and jobs as possible.

        Return whether there are any."""
        plan, found = dict(enumerate(options)), False
        for number, of in enumerate(self._jobs):
            context = self.costs.context(number, plan)
            cost, seen = self._cost(self.costs.of(context)), solver.value(of.cost)
            if seen >= cost:
                continue
            found = True
            self._bound(context := self._fewest(context, cost))
            if self._cost(self.costs.least(context)) <= seen:  # on fewer links, the rows cost less
                self._bound(context, plan)
        return found


def _covers(demands: Demands | None, least: Demands) -> bool:
    return demands is not None and all(of >= need * (1 - EPSILON) for of, need in zip(demands, least, strict=True))
