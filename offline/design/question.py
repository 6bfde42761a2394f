"""Question of a design: terms of time, limits of bandwidths, and time and cost for given bandwidths. Pure.

A bandwidth is the rate of one NPU in one dimension and one direction, in Gbit/s (docs/design.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from offline.scenarios.fabric_options import FabricKind


class Objective(StrEnum):
    """Quantity to minimize. With ``TIME_COST`` the bandwidths use up the total."""

    TIME = "time"
    TIME_COST = "time-cost"


class Upper(StrEnum):
    """Tier of a fat-tree whose switches may fail."""

    CORE = "core"
    AGGREGATION = "aggregation"


COUNTED = {FabricKind.LEAF_SPINE: "spines", FabricKind.FAT_TREE: "cores_per_group"}
"""Name that reports give to the number of top-tier switches, by kind of fabric."""

KEPT = 1e-8
"""Relative excess over the limit of a sum that still counts as within the limit."""

Rates = tuple[float, ...]
"""Bandwidth of each dimension in Gbit/s."""


class Term(NamedTuple):
    """Term of the time: ``weight`` * the maximum of ``floor_s`` and, over all dimensions, gigabits / bandwidth."""

    weight: float
    gigabits: tuple[float, ...]
    floor_s: float = 0.0


class Relation(NamedTuple):
    """Limit of a weighted sum of bandwidths: from ``least`` to ``most``, in Gbit/s."""

    factors: tuple[float, ...]
    least: float = -math.inf
    most: float = math.inf

    def value(self, gbps: Sequence[float]) -> float:
        return math.fsum(factor * rate for factor, rate in zip(self.factors, gbps, strict=True))

    def excess(self, gbps: Sequence[float]) -> float:
        """Return the violation of the limit, relative to the largest term of the sum."""
        value, largest = self.value(gbps), max(abs(f * rate) for f, rate in zip(self.factors, gbps, strict=True))
        return max(value - self.most, self.least - value, 0.0) / (largest or 1.0)

    def slack(self, gbps: Sequence[float], upper: bool) -> float:
        """Return the distance to the upper (or lower) limit, relative to the largest term of the sum."""
        largest = max(abs(f * rate) for f, rate in zip(self.factors, gbps, strict=True))
        value = self.value(gbps)
        return (self.most - value if upper else value - self.least) / (largest or 1.0)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the bandwidths of a design."""

    least: Rates
    """Smallest allowed bandwidth of each dimension in Gbit/s."""
    most: Rates
    """Largest allowed bandwidth of each dimension in Gbit/s; ``inf`` for no limit."""
    cost: tuple[float, ...]
    """Cost of the network by dimension, per Gbit/s that each NPU has there."""
    total: float | None = None
    """Largest allowed sum of one NPU's bandwidths over all dimensions, in Gbit/s; None for no limit."""
    budget: float | None = None
    """Largest allowed cost of the network; None for no limit."""
    relations: tuple[Relation, ...] = ()

    def cost_of(self, gbps: Sequence[float]) -> float:
        return math.fsum(cost * rate for cost, rate in zip(self.cost, gbps, strict=True))

    def allow(self, gbps: Sequence[float]) -> bool:
        """Return whether the bandwidths keep all limits, up to rounding (``KEPT``)."""
        over = [least - rate * (1 + KEPT) for least, rate in zip(self.least, gbps, strict=True)]
        over += [rate - most * (1 + KEPT) for rate, most in zip(gbps, self.most, strict=True)]
        over += [relation.excess(gbps) - KEPT for relation in self.relations]
        if self.total is not None:
            over.append(math.fsum(gbps) - self.total * (1 + KEPT))
        if self.budget is not None:
            over.append(self.cost_of(gbps) - self.budget * (1 + KEPT))
        return max(over) <= 0


@dataclass(frozen=True, slots=True)
class Question:
    """Names of the dimensions, terms of the time, and limits of the bandwidths."""

    names: tuple[str, ...]
    terms: tuple[Term, ...]
    limits: Limits

    @property
    def loaded(self) -> tuple[bool, ...]:
        """True for each dimension in which some term sends."""
        return _loaded(self.terms)

    def time_s(self, gbps: Sequence[float]) -> float:
        """Return the weighted sum of the times of all terms."""
        return math.fsum(term.weight * term_s(term, gbps) for term in self.terms)


@lru_cache(maxsize=4)  # each programme calls it, and time x cost solves many programmes of the same terms
def _loaded(terms: tuple[Term, ...]) -> tuple[bool, ...]:
    return tuple(map(any, zip(*(term.gigabits for term in terms), strict=True)))


def term_s(term: Term, gbps: Sequence[float]) -> float:
    """Return the time of a term in seconds, without its weight."""
    sending = (amount / rate if rate else math.inf for amount, rate in zip(term.gigabits, gbps, strict=True) if amount)
    return max(term.floor_s, *sending, 0.0)
