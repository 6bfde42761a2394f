"""The best plan that a fast search finds for many jobs, and lower bounds.

In: a ``Case`` whose jobs have one way each. Out: ranks and slots, what they guarantee, and a bound. Candidates
include today's plan (all jobs free, one rank), Crux's and CASSINI's. The best one that keeps all promises wins.

A member of a kept circle takes its part of the period, and a free job costs the same wherever members start. So slots
are packed on circles, from short to long ones (``packing``), without regard to costs. Ranks of free jobs come from Crux
and from a coordinate search, the worst job first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, groupby
from typing import Any

import numpy as np

from controller.planning.contention import cassini, crux
from controller.planning.contention.circles import NO_CIRCLE, TOLERANCE, Circle, circles
from controller.planning.contention.exact import Exact, Option
from controller.planning.contention.fluid import EPSILON, Case, Choice, Objective, guaranteed_s, iteration_s
from controller.planning.contention.packing import Packing
from controller.planning.contention.trial import Trial
from controller.planning.problem import Floats

CELLS = 96
"""Number of places on a circle where a slot can begin, at least."""
STEPS_PER_JOB = 30
"""Number of placements of jobs over all packings of a search, per job of the case."""
LEAST_GAIN = 0.005
"""Relative gain of an iteration below which a job gets no slot."""
EXACT_S = 0.2
"""Seconds from the begin of the search in all cases of a plan, within which exact searches end."""
MOST_JOBS, MOST_CIRCLES = 6, 24
"""Largest case that the exact search gets."""
_MOST_SWEEPS = 2
"""Largest number of times that the search gives each job its best rank."""

Slots = tuple[tuple[Circle, Mapping[int, int]], ...]
"""Circles without common jobs, each with the places of its members."""


@dataclass(frozen=True)
class Shared:
    """Ranks and slots for the jobs of a case, with the guaranteed iteration time and the cost of each job."""

    ranks: tuple[int, ...]
    slots: Slots
    iteration_s: tuple[float, ...]
    costs: tuple[float, ...]


def best_routes(objective: Objective, options: Sequence[Sequence[Search]]) -> tuple[int, list[Shared]]:
    """Return the number of the best routes, and the plan of each of their searches.

    Each option has the searches of all components under the same routes; the first has the routes in force. Other
    routes win if trials have smaller mean costs. They may not guarantee more in total than the first routes do without
    slots and classes. The exception are ranks that are worth work."""

    def mean(searches: Sequence[Search], plans: Sequence[Shared]) -> float:
        costs = [search.mean_costs(plan) for search, plan in zip(searches, plans, strict=True)]
        return objective.total([*chain.from_iterable(costs)])

    first, *others = options
    plans = [search.chosen() for search in first]
    if others and (cost := mean(first, plans)) > EPSILON:
        best = min(others, key=lambda searches: mean(searches, [search.quick for search in searches]))
        found = [search.chosen() for search in best]
        most = objective.total([*chain.from_iterable(search.most_costs for search in first)])
        guaranteed = objective.total([*chain.from_iterable(plan.costs for plan in found)])
        admitted = any(search.pays for search in first) or guaranteed <= most * (1 + EPSILON)
        if admitted and mean(best, found) < cost * (1 - LEAST_GAIN):
            return options.index(best), found
    return 0, plans


class Search:
    """Search for a plan.

    ``ranks``: number of classes, at least 1. ``max_wait``: largest wait of a member in an iteration, as a fraction of
    its ideal iteration. A circle keeps its guarantees only if its members wait until their slots begin."""

    def __init__(self, case: Case, objective: Objective, ranks: int, max_wait: float = TOLERANCE) -> None:
        self._case, self._objective, self._ranks = case, objective, ranks
        self._numbers = range(len(case.jobs))
        self._demands = [np.zeros((len(job.phases), len(case.capacity_bps))) for job in case.jobs]
        for job, demand in zip(case.jobs, self._demands, strict=True):
            for phase, of in enumerate(job.ways[0]):
                demand[phase, [*of]] = [bps / case.capacity_bps[link] for link, bps in of.items()]
        self._peaks: Floats = np.array([demand.max(axis=0) for demand in self._demands])
        self._ideal_s = np.array([job.ideal_s for job in case.jobs])
        self._sending_s = np.array([job.sending_s for job in case.jobs])
        jobs = zip(case.jobs, self._demands, strict=True)
        self._bits: Floats = np.array([np.array(job.phases)[:, 1] @ demand for job, demand in jobs])
        """Bits of an iteration of each job on each link / capacity, in seconds."""
        uses = self._peaks > 0
        self._beside = [np.flatnonzero((uses & uses[number]).any(axis=1)).tolist() for number in self._numbers]
        self._circles = [circle for circle in circles(case, CELLS) if circle.max_wait <= max_wait + EPSILON]
        self._exact_bound = 0.0
        self._most_steps = self._steps = STEPS_PER_JOB * len(case.jobs)
        self._known, self._packings = dict[Any, float](), dict[Any, dict[int, int]]()
        together = guaranteed_s(case, dict.fromkeys(self._numbers, Choice()))
        self.promise_s = tuple(together[number] for number in self._numbers)
        """Guaranteed iteration times if all jobs are free and have one rank."""
        self.pays = objective is Objective.WORK and ranks > 1 and case.floor > 0
        """Whether a job may get slower for the good of others, down to its floor."""
        self._most_s = [
            max(promise_s, job.ideal_s + job.sending_s * (1 / case.floor - 1)) if self.pays else promise_s
            for job, promise_s in zip(case.jobs, self.promise_s, strict=True)
        ]
        """Largest iteration time that may be guaranteed to each job."""
        self._tried: list[tuple[Shared, Sequence[float]]] = []
        """Plans that were tried, with the costs of their jobs."""

    # ---- judgement

    def judged(self, ranks: Sequence[int], slots: Slots) -> Shared:
        """Return the plan without the members that do not keep their circles."""
        free = {number: Choice(0, rank) for number, rank in enumerate(ranks)}
        took_s, kept = guaranteed_s(self._case, free), list[tuple[Circle, Mapping[int, int]]]()
        for circle, members in slots:
            left = dict(members)
            while len(left) > 1:
                at = {number: self._member(circle, number, place, ranks) for number, place in left.items()}
                of_members = guaranteed_s(self._case, {**free, **at}, circle.period_s, circle.max_wait)
                late = [number for number in left if of_members[number] == math.inf]
                if not late:
                    took_s |= {number: of_members[number] for number in left}
                    kept.append((circle, left))
                    break
                left = {number: place for number, place in left.items() if number not in late}
        found_s = tuple(took_s[number] for number in self._numbers)
        return Shared(tuple(ranks), tuple(kept), found_s, tuple(map(self._objective.cost, self._case.jobs, found_s)))

    def key(self, costs: Sequence[float]) -> tuple[float, ...]:
        """Return what a plan makes small: all costs from the worst on, or their sum."""
        if self._objective is Objective.WORST:
            return tuple(sorted((round(cost, 9) for cost in costs), reverse=True))
        return (round(self._objective.total(costs), 9),)

    def admits(self, plan: Shared) -> bool:
        return all(s <= most_s * (1 + EPSILON) for s, most_s in zip(plan.iteration_s, self._most_s, strict=True))

    def _member(self, circle: Circle, number: int, place: int, ranks: Sequence[int]) -> Choice:
        return Choice(0, ranks[number], circle.start_s(place), circle.turns[number])

    # ---- candidates

    def best(self) -> Shared:
        """Return the best of all candidates that the promises admit."""
        best = self._free
        for plan in self.candidates():
            if self.admits(plan) and self.key(plan.costs) < self.key(best.costs):
                best = plan
            if not any(self.key(best.costs)):
                break
        return best

    def chosen(self, exact_s: float = EXACT_S) -> Shared:
        """Return the best plan. If ranks are worth work, it is the one of few candidates that loses least in a trial.

        ``exact_s``: time limit of the exact search, which small cases get.

        Guaranteed times assume the worst alignment at every moment, so they undervalue ranks, such as those of Crux."""
        best = self._proven(self.best(), exact_s)
        if not self.pays or not any(self.key(best.costs)):
            return best
        return min((best, self.quick, self._free), key=lambda plan: self._objective.total(self.mean_costs(plan)))

    @cached_property
    def quick(self) -> Shared:
        """Plan without a search: all jobs free, with the ranks of Crux if ranks are worth work."""
        return self._raised(self.of_crux()) if self.pays else self._free

    @cached_property
    def _free(self) -> Shared:
        return self.judged([0 for _ in self._numbers], ())

    def mean_costs(self, plan: Shared) -> Sequence[float]:
        """Return the cost of each job by its mean iteration in a trial."""
        for known, costs in self._tried:
            if known == plan:
                return costs
        at = {number: (circle, place) for circle, places in plan.slots for number, place in places.items()}
        choices = {number: Choice(0, rank) for number, rank in enumerate(plan.ranks)}
        choices |= {n: self._member(circle, n, place, plan.ranks) for n, (circle, place) in at.items()}
        period_s = [at[n][0].period_s if n in at else 0.0 for n in self._numbers]
        iterations = 3 if len(plan.ranks) <= 42 else 2
        took_s = Trial(self._case, self._demands).mean_s(choices, period_s, iterations).tolist()
        self._tried.append((plan, [*map(self._objective.cost, self._case.jobs, took_s)]))
        return self._tried[-1][1]

    @property
    def most_costs(self) -> Sequence[float]:
        """Cost of each job by the largest iteration time that may be guaranteed to it."""
        return [*map(self._objective.cost, self._case.jobs, self._most_s)]

    def _proven(self, plan: Shared, time_limit_s: float) -> Shared:
        """Return the best plan that the exact search of a small case finds, from this plan on, and keep its bound."""
        if (
            time_limit_s <= 0
            or len(plan.ranks) > MOST_JOBS
            or len(self._circles) > MOST_CIRCLES
            or not any(self.key(plan.costs))
        ):
            return plan
        start = {number: Option(0, rank) for number, rank in enumerate(plan.ranks)}
        for circle, places in plan.slots:
            at = self._circles.index(circle) if circle in self._circles else None
            start |= {n: Option(0, plan.ranks[n], at, place) for n, place in places.items() if at is not None}
        exact = Exact(self._case, self._objective, self._ranks, self._circles, self._most_s)
        solved = exact.solve([*start.values()], time_limit_s)
        self._exact_bound = solved.bound
        members = {
            at: {n: option.place for n, option in enumerate(solved.options) if option.circle == at}
            for at in range(len(self._circles))
        }
        slots = tuple((self._circles[at], places) for at, places in members.items() if len(places) > 1)
        found = self.judged([option.rank for option in solved.options], slots)
        return min(plan, found, key=lambda each: self.key(each.costs))

    def spread(self, plan: Shared) -> Shared:
        """Return the plan with slots as far apart as its guarantees allow."""
        slots = list[tuple[Circle, Mapping[int, int]]]()
        for circle, places in plan.slots:
            members = {number: self._case.jobs[number] for number in places}
            others = [number for number in self._numbers if not plan.ranks[number] and number not in places]
            rest = self._demands, self._room(plan.ranks), self._peaks[others].sum(axis=0)
            slots.append((circle, Packing(circle, members, *rest, full=False).spread(places)))
        found = self.judged(plan.ranks, tuple(slots))
        return found if self.admits(found) and self.key(found.costs) <= self.key(plan.costs) else plan

    def _raised(self, ranks: Sequence[int]) -> Shared:
        """Return the plan of these ranks; jobs that would take too long get higher ranks, the worst first."""
        plan, at_once = self.judged(ranks, ()), 1 + len(ranks) // 16
        while not self.admits(plan):
            excess = [s / most_s for s, most_s in zip(plan.iteration_s, self._most_s, strict=True)]
            raised = sorted(np.flatnonzero(plan.ranks).tolist(), key=excess.__getitem__)[-at_once:]
            plan = self.judged([rank - (number in raised) for number, rank in enumerate(plan.ranks)], ())
        return plan

    def candidates(self) -> Iterator[Shared]:
        """Yield plans with packed slots, of Crux and of CASSINI, and plans whose ranks are searched from these."""
        alike = tuple(0 for _ in self._numbers)
        packed = [*self._packed(alike)]
        yield from packed
        yield from self.of_cassini()
        if self._ranks > 1:
            yield self.judged(self.of_crux(), ())
            middle = self.judged([self._ranks // 2 for _ in self._numbers], ())
            irregular = tuple(0 if job.regular else self._ranks - 1 for job in self._case.jobs)
            behind = [] if irregular == alike else [*self._packed(irregular)]
            for plan in (min(packed, key=self.penalised), middle, *sorted(behind, key=self.penalised)[:1]):
                yield self._improved(plan)

    def of_crux(self) -> tuple[int, ...]:
        return tuple(choice.rank for _, choice in sorted(crux.crux(self._case, self._ranks).items()))

    def of_cassini(self) -> Iterator[Shared]:
        """Yield the plans of CASSINI, on each circle that is not stretched."""
        for circle in circles(self._case, CELLS // 2, (1.0,)):
            members = [number for number in self._numbers if circle.turns[number]]
            case = Case(self._case.capacity_bps, tuple(self._case.jobs[number] for number in members))
            turns = [circle.turns[number] for number in members]
            found = cassini.shifts(case, [0 for _ in members], circle.period_s, turns, circle.slots)
            if found:
                yield self.judged([0 for _ in self._numbers], ((circle, {members[n]: at for n, at in found.items()}),))

    def _packed(self, ranks: Sequence[int]) -> Iterator[Shared]:
        """Yield plans with packed slots, with circles of each length as the first.

        A long circle may have room for jobs that a shorter one has to leave out."""
        free = [number for number in self._numbers if self._case.jobs[number].regular and not ranks[number]]
        every = [circle for circle in self._circles if len(self._able(circle, free, ranks)) > 1]
        stretches = [len([*of]) for _, of in groupby(every, lambda circle: circle.max_wait)]
        for first in [0, *np.cumsum(stretches[:-1]).tolist()]:
            left, slots = set(free), list[tuple[Circle, Mapping[int, int]]]()
            for circle in every[first:]:
                members = self._members(circle, sorted(left), ranks)
                if members:
                    slots.append((circle, members))
                    left -= members.keys()
            yield self.judged(ranks, tuple(slots))
            if not any(self._gain(number, self._case.jobs[number].ideal_s) for number in left):
                return

    def _members(self, circle: Circle, free: Sequence[int], ranks: Sequence[int]) -> dict[int, int]:
        able = self._able(circle, free, ranks)
        if len(able) < 2:
            return {}
        key = (circle, tuple(able), tuple(ranks))
        if key not in self._packings:
            self._packings[key] = self._packing(circle, able, ranks)
        places = self._packings[key]
        return places if any(self._gain(number, circle.part_s(number)) for number in places) else {}

    def _packing(self, circle: Circle, able: Sequence[int], ranks: Sequence[int]) -> dict[int, int]:
        """Return the places of members, with short slots at first; they leave the rest of the circle in one piece."""
        others = [number for number in self._numbers if not ranks[number] and number not in able]
        jobs = {number: self._case.jobs[number] for number in able}
        rest = (jobs, self._demands, self._room(ranks), self._peaks[others].sum(axis=0))
        full, best = Packing(circle, *rest), dict[int, int]()
        for packing, least in ((Packing(circle, *rest, full=False), 0), (full, self._most_steps // 2)):
            if self._steps > least and len(best) < len(able):
                places, steps = packing.places()
                self._steps -= steps
                best = max(best, full.kept(places), key=len)
        return best

    def _able(self, circle: Circle, free: Sequence[int], ranks: Sequence[int]) -> list[int]:
        """Return the jobs that may become members: their links have time for the bits of all members."""
        allowed = [n for n in free if circle.turns[n] and circle.part_s(n) <= self.promise_s[n] * (1 + EPSILON)]
        able = np.isin(self._numbers, allowed)
        room, equal, turns = self._room(ranks), np.array(ranks) == 0, np.array(circle.turns)
        most = 1 + np.maximum(0.0, circle.period_s / np.maximum(1, turns) - self._ideal_s) / self._sending_s
        while able.sum() > 1:
            load = (self._peaks * (equal & ~able)[:, None]).sum(axis=0) + self._peaks
            slow = np.where(self._peaks > 0, load / room, 0.0).max(axis=1)
            bits = (self._bits * (turns * able)[:, None]).sum(axis=0)
            crowded = (self._peaks[:, bits > circle.period_s * room * (1 + EPSILON)] > 0).any(axis=1)
            kept = able & (slow <= most * (1 + EPSILON)) & ~crowded
            if (kept == able).all():
                return np.flatnonzero(able).tolist()
            able = kept
        return []

    def _gain(self, number: int, took_s: float) -> bool:
        return took_s < self.promise_s[number] * (1 - LEAST_GAIN)

    def _room(self, ranks: Sequence[int]) -> Floats:
        """Return the fraction of each link that lower ranks leave to the first rank."""
        room: Floats = np.ones(self._peaks.shape[1])
        for rank in {*ranks} - {0}:
            room -= self._case.floor * self._peaks[np.array(ranks) == rank].any(axis=0)
        return room

    # ---- ranks

    def penalised(self, plan: Shared) -> tuple[float, ...]:
        """Return (excess over the largest iteration times, ``key``) of the plan."""
        return self._excess(self._numbers, plan.iteration_s), *self.key(plan.costs)

    def _excess(self, numbers: Sequence[int], took_s: Sequence[float]) -> float:
        parts = [max(0.0, s / self._most_s[n] - 1 - EPSILON) for n, s in zip(numbers, took_s, strict=True)]
        return round(min(sum(parts), 1e6), 9)

    def _improved(self, plan: Shared) -> Shared:
        """Return the plan with other ranks: one free job after the other gets its best rank, worst jobs first."""
        ranks = list(plan.ranks)
        at = {number: (circle, place) for circle, members in plan.slots for number, place in members.items()}

        def judged(number: int) -> tuple[float, ...]:
            near = self._beside[number]
            took_s = [self._took_s(each, ranks, at) for each in near]
            costs = [self._objective.cost(self._case.jobs[n], s) for n, s in zip(near, took_s, strict=True)]
            return self._excess(near, took_s), *self.key(costs)

        order = sorted(self._numbers, key=lambda number: -plan.costs[number])
        for _ in range(_MOST_SWEEPS):
            before = list(ranks)
            for number in [each for each in order if each not in at]:
                tried = []
                for rank in range(self._ranks):
                    ranks[number] = rank
                    tried.append((judged(number), rank != before[number], rank))
                ranks[number] = min(tried)[2]
            if ranks == before:
                break
        return self.judged(ranks, plan.slots)

    def _took_s(self, number: int, ranks: Sequence[int], at: Mapping[int, tuple[Circle, int]]) -> float:
        circle, _ = at.get(number, (NO_CIRCLE, 0))
        choices = {
            other: self._member(circle, other, at[other][1], ranks)
            if other in at and at[other][0] == circle
            else Choice(0, ranks[other])
            for other in self._beside[number]
        }
        key = (number, circle, *choices.values())
        if key not in self._known:
            self._known[key] = iteration_s(self._case, choices, number, circle.period_s, circle.max_wait)
        return self._known[key]

    # ---- bounds

    def bound(self) -> float:
        """Return a lower bound of the total cost, for any ranks, starts on any of the circles, and sharing.

        Each link proves a bound. Any jobs that share links prove a bound too, because further jobs make no time
        smaller. Pairs without common jobs are chosen, the costly ones first."""
        needs = self._bits / self._ideal_s[:, None]
        by_links = max(self._objective.bound(self._case.jobs, column, 1.0) for column in needs.T.tolist())
        pairs = ((one, other) for one in self._numbers for other in self._beside[one] if one < other)
        found = [(self._pair_bound(*pair), *pair) for pair in pairs]
        costs, used = [0.0], set[int]()
        for cost, *pair in sorted(found, reverse=True):
            if used.isdisjoint(pair):
                used.update(pair)
                costs.append(cost)
        return max(by_links, self._objective.total(costs), self._exact_bound)

    def _pair_bound(self, *pair: int) -> float:
        """Return the least total cost of two jobs without other jobs. Slots need time for the jobs' bits."""
        jobs = tuple(self._case.jobs[number] for number in pair)
        case, bits = Case(self._case.capacity_bps, jobs, self._case.floor), self._bits[[*pair]]
        orders = ((0, 0), (0, 1), (1, 0))[: 3 if self._ranks > 1 else 1]
        tried = [guaranteed_s(case, {n: Choice(0, rank) for n, rank in enumerate(ranks)}) for ranks in orders]
        for circle in self._circles:
            turns = np.array([circle.turns[number] for number in pair])
            if turns.all() and (turns @ bits <= circle.period_s * (1 + EPSILON)).all():
                tried.append(dict(enumerate(circle.period_s / turns)))
        return min(self._objective.total([self._objective.cost(jobs[n], s) for n, s in took.items()]) for took in tried)
