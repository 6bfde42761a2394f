"""What is asked of a design: terms of time, limits of bandwidths, and the time and cost of any bandwidths. Pure.

A bandwidth is that of one NPU in one dimension, in one direction, in Gbit/s. docs/design.md has the model.
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
    """What is made small. ``time-cost``: with all of the total."""

    TIME = "time"
    TIME_COST = "time-cost"


class Upper(StrEnum):
    """Switches of a fat-tree that may fail."""

    CORE = "core"
    AGGREGATION = "aggregation"


COUNTED = {FabricKind.LEAF_SPINE: "spines", FabricKind.FAT_TREE: "cores_per_group"}
"""What is chosen of each kind of fabric."""

KEPT = 1e-8
"""Limits of sums hold up to this part."""

Rates = tuple[float, ...]
"""Gbit/s by dimension."""


class Term(NamedTuple):
    """Steps that take ``weight`` times the longer of ``floor_s`` seconds and, of all dimensions, ``gigabits`` divided
    by the bandwidth."""

    weight: float
    gigabits: tuple[float, ...]
    floor_s: float = 0.0


class Relation(NamedTuple):
    """The sum over the dimensions of ``factors`` times bandwidth is from ``least`` to ``most``, in Gbit/s."""

    factors: tuple[float, ...]
    least: float = -math.inf
    most: float = math.inf

    def value(self, gbps: Sequence[float]) -> float:
        return math.fsum(factor * rate for factor, rate in zip(self.factors, gbps, strict=True))

    def excess(self, gbps: Sequence[float]) -> float:
        """By what part of its largest summand it is not kept."""
        value, largest = self.value(gbps), max(abs(f * rate) for f, rate in zip(self.factors, gbps, strict=True))
        return max(value - self.most, self.least - value, 0.0) / (largest or 1.0)

    def slack(self, gbps: Sequence[float], upper: bool) -> float:
        """How far it is from its most, or else from its least, as a part of its largest summand."""
        largest = max(abs(f * rate) for f, rate in zip(self.factors, gbps, strict=True))
        value = self.value(gbps)
        return (self.most - value if upper else value - self.least) / (largest or 1.0)


@dataclass(frozen=True, slots=True)
class Limits:
    """Of each dimension the ``least`` and ``most`` Gbit/s (``inf`` for none), and ``cost``: of the network, per Gbit/s
    that each NPU has there. Of all together ``total``, in Gbit/s, and ``budget``, in units of cost; None for none. And
    ``relations`` between dimensions."""

    least: Rates
    most: Rates
    cost: tuple[float, ...]
    total: float | None = None
    budget: float | None = None
    relations: tuple[Relation, ...] = ()

    def cost_of(self, gbps: Sequence[float]) -> float:
        return math.fsum(cost * rate for cost, rate in zip(self.cost, gbps, strict=True))

    def allow(self, gbps: Sequence[float]) -> bool:
        """Up to rounding."""
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
    """``names``: of the dimensions."""

    names: tuple[str, ...]
    terms: tuple[Term, ...]
    limits: Limits

    @property
    def loaded(self) -> tuple[bool, ...]:
        """By dimension, whether anything is sent in it."""
        return _loaded(self.terms)

    def time_s(self, gbps: Sequence[float]) -> float:
        """The weighted sum of all terms."""
        return math.fsum(term.weight * term_s(term, gbps) for term in self.terms)


@lru_cache(maxsize=4)  # asked for once per programme, and time x cost solves many
def _loaded(terms: tuple[Term, ...]) -> tuple[bool, ...]:
    return tuple(map(any, zip(*(term.gigabits for term in terms), strict=True)))


def term_s(term: Term, gbps: Sequence[float]) -> float:
    """Without its weight."""
    sending = (amount / rate if rate else math.inf for amount, rate in zip(term.gigabits, gbps, strict=True) if amount)
    return max(term.floor_s, *sending, 0.0)
