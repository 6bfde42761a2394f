"""Lower bounds of the time of every design, from prices: the proof that a design is best. Pure.

The proof is arithmetic alone, so no solver has to be trusted. The time of a term is the largest of its floor and of
gigabits / bandwidth in each of its dimensions. The time of a term is therefore at least any weighted mean of these
values. For each limit on a sum, price * (sum - limit) is added to the time; the price of an upper limit is at least 0.
This makes dimensions independent, and the least value of load / bandwidth + price * bandwidth between two limits has a
closed form. The bound is the Lagrange dual (Boyd and Vandenberghe, "Convex Optimization", 2004, section 5.1).
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
    """Dual variables that prove a lower bound of the time."""

    floor: Floats
    """Share of the floor in the weighted mean that bounds the time of a term; by term."""
    shares: Floats
    """Share of each dimension in the weighted mean that bounds the time of a term; by term and dimension.

    The shares of a term, including its share in ``floor``, sum to 1."""
    total_s: float = 0.0
    """Price of the total in seconds per Gbit/s; below 0 only where the whole total must be used."""
    budget_s: float = 0.0
    """Price of the budget in seconds per unit of cost."""
    relations_s: tuple[float, ...] = ()
    """Price of each relation in seconds per Gbit/s: above 0 for its upper limit, below 0 for its lower limit."""

    def mixed(self, other: Proof, share: float) -> Proof:
        """Return the weighted mean of both proofs, with the weight ``share`` for ``other``; the mean is a proof too."""
        pairs = ((self.floor, other.floor), (self.shares, other.shares))
        floor, shares = ((1 - share) * mine + share * others for mine, others in pairs)
        mine_s, others_s = (np.array((each.total_s, each.budget_s, *each.relations_s)) for each in (self, other))
        total_s, budget_s, *relations_s = ((1 - share) * mine_s + share * others_s).tolist()
        return Proof(floor, shares, total_s, budget_s, tuple(relations_s))

    def loads(self, question: Question) -> Floats:
        """Return the load of each dimension: the sum over the terms of weight * share * gigabits."""
        weights = np.array([term.weight for term in question.terms])
        gigabits = np.array([term.gigabits for term in question.terms])
        return np.asarray(weights @ (self.shares * gigabits))

    def bound_s(self, question: Question, least: Floats, most: Floats) -> float:
        """Return a lower bound of the time for all bandwidths from ``least`` to ``most`` within the other limits.

        ``most`` must be finite."""
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
    """Return the least of load / b + price * b for b from ``low`` to ``high``; the best b is sqrt(load / price)."""
    best = high if price <= 0 else min(max(math.sqrt(load / price), low), high)
    return (load / best if load else 0.0) + price * best


@dataclass(frozen=True, slots=True)
class Design:
    """Bandwidths, with the communication time and the cost that follow, and the proof of a lower bound of the time."""

    gbps: Rates
    """Bandwidth of each dimension, within all limits."""
    time_s: float
    cost: float
    bound_s: float
    """Lower bound in seconds: no bandwidths within the limits have a smaller time."""
    proof: Proof

    @property
    def gap(self) -> float:
        return max(0.0, 1 - self.bound_s / self.time_s) if self.time_s else 0.0
