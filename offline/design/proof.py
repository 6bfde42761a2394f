"""Lower bounds of the time of every design, from prices: what shows that a design is the best one. Pure arithmetic, so
that no solver has to be believed.

The time of a term is at least any weighted mean of its floor and of gigabits / bandwidth of its dimensions. Limits on
sums are taken into the time at a price of at least 0 per unit that is left over. Then dimensions are independent, and
the least of load / bandwidth + price * bandwidth between two limits is known in closed form (Boyd and Vandenberghe,
"Convex Optimization", 2004, section 5.1: the Lagrange dual).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offline.design.question import Question, Rates

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Proof:
    """``floor``: of each term the share of its weight that rests on its floor. ``shares``: the share that rests on each
    dimension; each row of both together sums up to 1. ``total_s``: the price of a Gbit/s of the total; below 0 only
    where the total is to be used up. ``budget_s``: of a unit of cost. ``relations_s``: of a Gbit/s of each relation;
    above 0 of its most, below 0 of its least. All are in seconds."""

    floor: Floats
    shares: Floats
    total_s: float = 0.0
    budget_s: float = 0.0
    relations_s: tuple[float, ...] = ()

    def mixed(self, other: Proof, share: float) -> Proof:
        """With ``share`` of the other; it holds too."""
        pairs = ((self.floor, other.floor), (self.shares, other.shares))
        floor, shares = ((1 - share) * mine + share * others for mine, others in pairs)
        mine_s, others_s = (np.array((each.total_s, each.budget_s, *each.relations_s)) for each in (self, other))
        total_s, budget_s, *relations_s = ((1 - share) * mine_s + share * others_s).tolist()
        return Proof(floor, shares, total_s, budget_s, tuple(relations_s))

    def loads(self, question: Question) -> Floats:
        """By dimension the gigabits that its bandwidth divides."""
        weights = np.array([term.weight for term in question.terms])
        gigabits = np.array([term.gigabits for term in question.terms])
        return np.asarray(weights @ (self.shares * gigabits))

    def bound_s(self, question: Question, least: Floats, most: Floats) -> float:
        """No bandwidths from ``least`` to ``most`` within all other limits take less time. ``most``: finite."""
        limits = question.limits
        relations = [pair for pair in zip(self.relations_s, limits.relations, strict=True) if pair[0]]
        price = self.total_s + self.budget_s * np.array(limits.cost)
        price += sum(each_s * np.array(relation.factors) for each_s, relation in relations)
        floors = math.fsum(
            term.weight * term.floor_s * share for term, share in zip(question.terms, self.floor, strict=True)
        )
        of_dimensions = [
            _least_of(load, each, low, high)
            for load, each, low, high in zip(self.loads(question), price, least, most, strict=True)
        ]
        at_prices = self.total_s * (limits.total or 0) + self.budget_s * (limits.budget or 0)
        at_prices += sum(each_s * (relation.most if each_s > 0 else relation.least) for each_s, relation in relations)
        return floors + math.fsum(of_dimensions) - at_prices


def _least_of(load: float, price: float, low: float, high: float) -> float:
    """Of load / b + price * b for b from ``low`` to ``high``."""
    best = high if price <= 0 else min(max(math.sqrt(load / price), low), high)
    return (load / best if load else 0.0) + price * best


@dataclass(frozen=True, slots=True)
class Design:
    """``gbps``: within all limits. ``bound_s``: no other bandwidths take less time."""

    gbps: Rates
    time_s: float
    cost: float
    bound_s: float
    proof: Proof

    @property
    def gap(self) -> float:
        return max(0.0, 1 - self.bound_s / self.time_s) if self.time_s else 0.0
