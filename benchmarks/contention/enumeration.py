"""The best plan of a few jobs by enumeration, to check the exact search. Both use the same model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from operator import itemgetter

from benchmarks.contention.exact import Costs, Solved
from controller.planning.contention.circles import NO_CIRCLE, Circle
from controller.planning.contention.fluid import EPSILON, Case, Choice, Choices, Objective


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
    """Return the best plan that costs less than ``below``, by enumeration; without choices if no plan does.

    A branch ends when the jobs chosen so far, and each other job beside them, cost as much as the best plan. The first
    member starts at 0, because a turn of all starts together changes nothing."""
    costs = Costs(case, objective, circle)
    best: Choices = {}
    order = sorted(range(len(case.jobs)), key=lambda number: -len(case.jobs[number].ways))

    def extend(chosen: dict[int, Choice]) -> None:
        nonlocal best, below
        if len(chosen) == len(order):
            cost = costs.total(chosen)
            if cost < below - EPSILON:
                best, below = chosen, cost
            return
        anchored = any(choice.start_s is not None for choice in chosen.values())
        number, *later = order[len(chosen) :]
        branches = [
            {**chosen, number: choice}
            for choice in options(case, number, ranks, circle)
            if anchored or not choice.start_s
        ]
        for least, now in sorted(((costs.total(now, waits=False), now) for now in branches), key=itemgetter(0)):
            if least >= below - EPSILON:
                return
            others = [
                min(costs.of(other, {**now, other: each}) for each in options(case, other, ranks, circle))
                for other in later
            ]
            if objective.total([least, *others]) < below - EPSILON:
                extend(now)

    extend({})
    return replace(costs.solved(best), cost=below, bound=below)
