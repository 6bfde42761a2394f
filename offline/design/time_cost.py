"""Bandwidths of a given total with the least time x cost, and a lower bound of time x cost for all bandwidths.

In: a ``Question`` whose limits have a total, all of which is used. Out: a ``Tradeoff``. Time is convex in the
bandwidths, but its product with cost is not. The search is therefore over the cost c.

Let phi(c) be the least time at a cost of at most c; one programme of ``bandwidth`` computes it. phi is convex and
decreasing, and the prices of each solution give a line below phi. So the product c * line(c) is a lower bound of time x
cost. Between two costs the product is concave, so its minimum is at an end or where two lines cross. The next programme
is solved at the cost of this minimum, until no cost can improve time x cost by more than ``_PRECISION``.

A geometric programme is no alternative: it needs terms without floors and only upper limits, and cannot require that
the total is used up. With floors and only upper limits, time x cost is least with almost no bandwidth, that is, without
any network.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

from offline.design.bandwidth import fastest
from offline.design.box import box, cheapest, cheapest_more
from offline.design.proof import Design, Floats, Proof
from offline.design.question import Question
from signalbox.errors import FieldProblem, InvalidInput

_PRECISION = 1e-7
"""Relative gap between product and bound at which the search ends."""
_MOST_PROGRAMMES = 200
"""Largest number of programmes that are solved for one question."""


@dataclass(frozen=True, slots=True)
class Tradeoff:
    """Answer with the least time x cost."""

    design: Design
    """Design with the least time x cost that was found; no design of the same cost is faster."""
    bound: float
    """Lower bound of time x cost for all bandwidths within the limits."""
    worth_of_total: float | None
    """Decrease of the product time x cost per Gbit/s added to ``total_gbps``, to first order; None if it is unknown."""

    @property
    def product(self) -> float:
        return self.design.time_s * self.design.cost

    @property
    def gap(self) -> float:
        return max(0.0, 1 - self.bound / self.product) if self.product else 0.0


class _Line(NamedTuple):
    """Lower bound of the least time by cost: ``at_s`` + ``slope`` * (cost - ``cost``), proven by ``proof``."""

    cost: float
    at_s: float
    proof: Proof

    @property
    def slope(self) -> float:
        return -self.proof.budget_s

    def product(self, cost: float) -> float:
        return cost * (self.at_s + self.slope * (cost - self.cost))


def best_product(question: Question) -> Tradeoff:
    """Return the bandwidths with the least time x cost. Raises ``InvalidInput``."""
    limits = question.limits
    if limits.total is None:
        message = "is needed for time x cost: without it the smallest network is the best one"
        raise InvalidInput.of("total_gbps", message)
    InvalidInput.refuse(
        FieldProblem(f"dimensions[{d}].cost_per_gbps", f"is needed for time x cost: jobs send in dimension '{name}'")
        for d, (name, loaded) in enumerate(zip(question.names, question.loaded, strict=True))
        if loaded and not limits.cost[d]
    )
    if not any(question.loaded):
        raise InvalidInput.of("", "time x cost needs at least one job that sends something")
    least, most = box(question, exactly=True)
    best = fastest(question, exactly=True)
    least_cost = limits.cost_of(cheapest(question, least, most).tolist())
    lines = [_line(best, question, least, most)]
    for _ in range(_MOST_PROGRAMMES):
        bound, cost = min(_costs_to_try(least_cost, lines), default=(math.inf, 0.0))
        if bound >= best.time_s * best.cost * (1 - _PRECISION):
            break
        there = replace(question, limits=replace(limits, budget=cost))
        design = fastest(there, exactly=True, near=best.gbps)
        best = min(best, design, key=lambda each: each.time_s * each.cost)
        lines = sorted((*lines, _line(design, there, least, most)), key=itemgetter(0))
    bound = min((*_costs_to_try(least_cost, lines), *((line.product(line.cost), 0.0) for line in lines)))[0]
    best = replace(best, proof=_proof_at(best, lines))
    return Tradeoff(best, bound, _worth_of_total(question, best))


def _worth_of_total(question: Question, best: Design) -> float | None:
    """Return by how much time x cost falls per Gbit/s added to ``total_gbps``, or None if it is unknown.

    While the cost stays the same, this is the cost times the seconds that one Gbit/s saves. If the design already has
    the least possible cost, one more Gbit/s also raises the cost, by the amount that ``cheapest_more`` returns."""
    at_same_cost, more_s = best.cost * best.proof.total_s, best.time_s - best.cost * best.proof.budget_s
    if more_s <= best.time_s * _PRECISION:
        return at_same_cost
    more_cost = cheapest_more(question)
    return None if more_cost is None else at_same_cost - more_s * more_cost


def _proof_at(best: Design, lines: Sequence[_Line]) -> Proof:
    """Return the proof in which the price of the budget is time / cost: at this price, time x cost is stationary.

    Each line has a proof with its own price of the budget. If time / cost is between the prices of two neighbouring
    lines, the result is a mixture of their proofs. If time / cost is above the prices of all lines, the result is the
    first proof; if it is below all prices, the last proof."""
    price = best.time_s / best.cost
    for one, other in pairwise(line.proof for line in lines):
        if one.budget_s >= price > other.budget_s:
            return one.mixed(other, (one.budget_s - price) / (one.budget_s - other.budget_s))
    return (lines[0] if lines[0].proof.budget_s < price else lines[-1]).proof


def _line(design: Design, question: Question, least: Floats, most: Floats) -> _Line:
    """Return the line that the design's proof gives.

    ``least`` and ``most`` are limits of the bandwidths at every cost, so the line is a bound for every cost."""
    cost = question.limits.budget or design.cost
    return _Line(cost, design.proof.bound_s(question, least, most), design.proof)


def _costs_to_try(least_cost: float, lines: list[_Line]) -> Iterator[tuple[float, float]]:
    """Yield for each pair of neighbouring known costs the bound of time x cost, and the next cost to try."""
    first = lines[0]
    if first.cost > least_cost * (1 + _PRECISION):
        yield first.product(least_cost), math.sqrt(least_cost * first.cost)
    for one, other in pairwise(lines):
        if other.cost > one.cost * (1 + _PRECISION) and other.slope > one.slope:
            at = (one.at_s - one.slope * one.cost - other.at_s + other.slope * other.cost) / (other.slope - one.slope)
            at = min(max(at, one.cost), other.cost)
            yield one.product(at), at
