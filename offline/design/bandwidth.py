"""Bandwidths with the least time for given terms and limits, with a proof: a second-order cone programme.

In: a ``Question``: the time is a weighted sum of terms, and bandwidths have limits. Out: a ``Design``, or
``InvalidInput`` when no bandwidths are within the limits. The variables are

- the bandwidth b of each dimension,
- u >= 1/b for each dimension in which something is sent, as the cone |(b - u, 2)| <= b + u,
- the time t of each term, with t >= its floor and t >= gigabits * u in each dimension.

The cone is the usual form of a hyperbolic constraint (Lobo, Vandenberghe, Boyd and Lebret, "Applications of
second-order cone programming", Linear Algebra and its Applications 284, 1998, section 2.3). Terms whose gigabits and
floors are proportional are merged into one.

Only this module imports Clarabel, an optional dependency. The solver's own objective is not used: ``Question`` and
``proof`` compute time and bound anew from its solution.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import clarabel
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from offline.design.box import box, cheapest
from offline.design.proof import Design, Floats, Proof
from offline.design.question import KEPT, Limits, Question, Rates, Relation, Term
from signalbox.errors import SignalboxError

Ints = NDArray[np.int64]
Price = Callable[[Floats], float]
"""Function that returns the price of one limit from the dual values of all rows."""

_TOLERANCE = 1e-11
"""Tolerance of the solver for gap and feasibility."""
_PRECISION = 1e-9
"""Relative gap at or below which a design is accepted; above it the programme is scaled and solved again."""
_ENOUGH = 1e-3
"""Largest accepted relative excess of the solver's price of the total over the smallest price that proves the bound.

If the excess is larger, the smallest price is used instead."""
_MOST_SCALINGS = 6
"""Largest number of times that one question is solved; the previous bandwidths scale the variables each time."""
_SMALLEST_UNIT = 1e-3
"""Smallest scale of a variable, relative to the largest bandwidth or to the variable's previous scale."""
_ALIKE_DIGITS = 12
"""Significant digits to which the proportions of two terms must agree for the solver to merge them."""


def fastest(question: Question, exactly: bool = False, near: Rates | None = None) -> Design:
    """Return the bandwidths with the least time.

    - ``exactly``: use the whole total, even where that does not reduce the time.
    - ``near``: bandwidths close to the answer, with which the variables of the programme are scaled.

    Raises ``InvalidInput`` when the limits leave no answer, ``SignalboxError`` when the solver fails."""
    least, most = box(question, exactly)
    if not any(question.loaded):
        nothing = np.zeros((len(question.terms), len(least)))
        return _design(question, least, Proof(np.ones(len(nothing)), nothing), least, most)
    classes = _classes(question.terms)
    units = _initial_guess(classes, most) if near is None else np.maximum(near, most.max() * _SMALLEST_UNIT)
    best: Design | None = None
    for _ in range(_MOST_SCALINGS):
        found = _solve(classes, question.limits, units, exactly)
        gbps = _moved_into_limits(found.gbps, question, least, most, exactly)
        prices = found.total_s, found.budget_s, found.relations_s
        proof = Proof(found.floors[classes.of_term], found.shares[classes.of_term], *prices)
        if question.limits.allow(gbps.tolist()):
            best = _better(best, _design(question, gbps, proof, least, most))
        if best and best.gap <= _PRECISION:
            break
        units = np.maximum(gbps, units * _SMALLEST_UNIT)
    if best is None:
        raise SignalboxError("the solver found no bandwidths within the limits")
    return best if exactly else _least_prices(best, question, least, most)


def _least_prices(design: Design, question: Question, least: Floats, most: Floats) -> Design:
    """Return the design with smaller prices (the dual variables in ``Proof``) if these prices still prove the bound.

    The prices of the solver have rounding errors, or are one of many valid choices. Two kinds of prices are changed.
    The price of a limit that is not reached becomes 0. The price of the total becomes the benefit of one more Gbit/s in
    the dimension where it helps most. The benefit is the decrease of the time minus the other prices of this Gbit/s."""
    limits, gbps, proof = question.limits, np.array(design.gbps), design.proof
    cost, used = np.array(limits.cost), math.fsum(design.gbps)
    budget_s = 0.0 if limits.budget is None or design.cost < limits.budget * (1 - KEPT) else proof.budget_s
    relations_s = tuple(
        each_s if relation.slack(design.gbps, each_s > 0) <= KEPT else 0.0
        for each_s, relation in zip(proof.relations_s, limits.relations, strict=True)
    )
    others = budget_s * cost
    for each_s, relation in zip(relations_s, limits.relations, strict=True):
        others += each_s * np.array(relation.factors)
    helped = (gbps > 0) & (gbps < np.array(limits.most))
    helps = proof.loads(question)[helped] / gbps[helped] ** 2 - others[helped]
    total_s = 0.0
    if limits.total is not None and used >= limits.total * (1 - KEPT):
        enough = max(0.0, *helps.tolist(), 0.0)
        total_s = proof.total_s if enough > proof.total_s * (1 - _ENOUGH) else enough
    found = replace(proof, total_s=total_s, budget_s=budget_s, relations_s=relations_s)
    bound_s = found.bound_s(question, least, most)
    if bound_s < design.bound_s and 1 - bound_s / design.time_s > _PRECISION:
        return design
    return replace(design, bound_s=bound_s, proof=found)


def _initial_guess(classes: _Classes, most: Floats) -> Floats:
    """Return the bandwidths that are best if times of dimensions add up and every Gbit/s costs the same.

    For a fixed total, the sum of load_d / b_d is least when b_d is proportional to sqrt(load_d)."""
    roots = np.sqrt(np.maximum(classes.weight @ classes.gigabits, 0.0))
    largest = float(most[roots > 0].max())
    return np.asarray(np.where(roots > 0, largest * roots / roots.sum(), largest))


def _design(question: Question, gbps: Floats, proof: Proof, least: Floats, most: Floats) -> Design:
    rates = tuple(map(float, gbps))
    bound_s = proof.bound_s(question, least, most)
    return Design(rates, question.time_s(rates), question.limits.cost_of(rates), bound_s, proof)


def _better(one: Design | None, other: Design) -> Design:
    """Return the faster of two designs, with the proof of the higher lower bound."""
    if one is None:
        return other
    fast, proven = min(one, other, key=lambda each: each.time_s), max(one, other, key=lambda each: each.bound_s)
    return replace(fast, bound_s=proven.bound_s, proof=proven.proof)


def _moved_into_limits(gbps: Floats, question: Question, least: Floats, most: Floats, exactly: bool) -> Floats:
    """Return bandwidths within the limits, close to ``gbps``. A solver exceeds the limits by rounding errors.

    If the total is exceeded, each bandwidth is reduced in proportion to its distance from its minimum. If the question
    has relations between dimensions, all bandwidths are scaled by one factor instead, so that their ratios stay."""
    limits, gbps = question.limits, np.clip(gbps, least, most)
    over = float(gbps.sum()) - (limits.total or np.inf)
    if limits.relations and limits.total and (over > 0 or exactly):
        gbps = np.clip(gbps * (limits.total / gbps.sum()), least, most)
    elif over > 0:
        gbps = _towards(least, gbps, over, float((gbps - least).sum()))
    elif exactly:
        gbps = _towards(most, gbps, -over, float((most - gbps).sum()))
    if limits.budget is not None and (over := limits.cost_of(gbps.tolist()) - limits.budget) > 0:
        cheap = cheapest(question, least, most) if exactly else least
        gbps = _towards(cheap, gbps, over, float(np.array(limits.cost) @ (gbps - cheap)))
    return gbps


def _towards(other: Floats, gbps: Floats, some: float, all_of_it: float) -> Floats:
    return gbps + (other - gbps) * min(1.0, some / all_of_it) if all_of_it > 0 else gbps


class _Classes(NamedTuple):
    """Classes of terms whose gigabits and floors are proportional.

    The scale of a term is its largest number of gigabits, or the floor of a term that sends nothing."""

    of_term: list[int]
    gigabits: Floats
    """Gigabits divided by the scale, by class and dimension."""
    floor: Floats
    """Floor in seconds divided by the scale, by class."""
    weight: Floats
    """Weight of each class: the sum over its terms of weight times scale."""


@lru_cache(maxsize=4)  # time x cost solves many programmes of the same terms
def _classes(terms: tuple[Term, ...]) -> _Classes:
    number: dict[tuple[float, ...], int] = {}
    of_term: list[int] = []
    weight: list[float] = []
    for term in terms:
        scale = max(term.gigabits) or term.floor_s or 1.0
        key = tuple(_short(value / scale) for value in (*term.gigabits, term.floor_s))
        of_term.append(number.setdefault(key, len(number)))
        if len(weight) < len(number):
            weight.append(0.0)
        weight[of_term[-1]] += term.weight * scale
    keys = np.array(list(number))
    return _Classes(of_term, keys[:, :-1], keys[:, -1], np.array(weight))


def _short(value: float) -> float:
    return float(f"{value:.{_ALIKE_DIGITS}g}")


class _Solved(NamedTuple):
    """Solution of the programme: bandwidths, and the shares and prices of a ``Proof``."""

    gbps: Floats
    shares: Floats
    """Share of each dimension in the weighted mean that bounds a class's time (``proof``), by class and dimension."""
    floors: Floats
    """Share of the floor in the weighted mean that bounds a class's time, by class."""
    total_s: float
    budget_s: float
    relations_s: tuple[float, ...]


def _solve(classes: _Classes, limits: Limits, units: Floats, exactly: bool) -> _Solved:
    """Solve the programme of these classes. Raises ``SignalboxError`` when the solver fails.

    ``units``: bandwidths close to the solution, in which the variables are measured."""
    sends = classes.gigabits > 0
    sending, dims = np.asarray(sends.any(axis=1)), np.flatnonzero(sends.any(axis=0))
    gigabits = classes.gigabits[sending][:, dims] / units[dims]
    term_s = np.maximum(gigabits.max(axis=1), classes.floor[sending])
    weight = classes.weight[sending] * term_s
    least, cost = np.array(limits.least), np.array(limits.cost)
    # When the whole total must be used, only the cost above that of the cheapest dimension can be chosen.
    common = float(cost[dims].min()) if exactly and limits.budget is not None else 0.0
    total, budget = limits.total, limits.budget
    programme = _Programme(units, least, dims, len(weight))
    total_price = programme.sum(np.ones(len(units)), total, exactly)
    budget_price = programme.sum(cost - common, None if budget is None else budget - common * (total or 0.0))
    relation_prices = [programme.relation(relation) for relation in limits.relations]
    programme.box(np.array(limits.most))
    pairs = programme.times(gigabits / term_s[:, None])
    floors = programme.floors(classes.floor[sending] / term_s)
    found, dual = programme.solve(weight / weight.sum())
    held = np.zeros((len(weight), 1 + len(units)))
    for (term, dim), row in pairs.items():
        held[term, 1 + dims[dim]] = max(dual[row], 0.0)
    for term, row in floors.items():
        held[term, 0] = max(dual[row], 0.0)
    # The solver finds no dual values for a term whose weight is below the solver's precision. One dimension gets the
    # whole share of the term.
    held[~held.any(axis=1), 1 + dims[0]] = 1.0
    shares = np.zeros((len(sending), 1 + len(units)))
    shares[~sending, 0] = 1.0
    shares[sending] = held / held.sum(axis=1, keepdims=True)
    budget_s = max(budget_price(dual), 0.0) * weight.sum()
    total_s = total_price(dual) * weight.sum() - budget_s * common
    relations_s = tuple(price(dual) * float(weight.sum()) for price in relation_prices)
    total_s = total_s if exactly else max(total_s, 0.0)
    return _Solved(found, shares[:, 1:], shares[:, 0], total_s, budget_s, relations_s)


class _Programme:
    """Programme for the solver: rows of ``matrix @ (x, u, t) <= right``, and then the cones.

    The variables are scaled so that all are about 1: a bandwidth is ``least`` + ``step`` * x, and u >= ``units`` /
    bandwidth. Each method adds rows. The method returns the indices of the added rows, or a function that reads the
    price of the added limit from the solution."""

    def __init__(self, units: Floats, least: Floats, dims: Ints, terms: int) -> None:
        self._units, self._least = units, least
        self._step = np.maximum(units - least, units * _SMALLEST_UNIT)
        self._dims, self._u, self._t = dims, len(units), len(units) + len(dims)
        self._count = self._t + terms
        self._rows: list[Floats] = []
        self._right: list[float] = []
        self._equal: list[int] = []

    def sum(self, factors: Floats, limit: float | None, exactly: bool = False) -> Price:
        """Add ``factors`` @ bandwidths <= ``limit``, or == with ``exactly``; return a function that reads its price."""
        if limit is None:
            return lambda _: 0.0
        left = limit - float(factors @ self._least)
        row = np.zeros(self._count)
        row[: self._u] = factors * self._step
        scale = left if left > 0 and (factors >= 0).all() else max(abs(left), float(np.abs(row).max())) or 1.0
        at = self._add(row / scale, left / scale)
        if exactly:
            self._equal.append(at)
        return lambda prices: float(prices[at]) / scale

    def relation(self, relation: Relation) -> Price:
        """Add a relation; return a function that reads its price.

        The price is positive when the upper limit binds, and negative when the lower limit binds."""
        factors, least, most = np.array(relation.factors), relation.least, relation.most
        if least == most:
            return self.sum(factors, most, exactly=True)
        upper = self.sum(factors, most if most < np.inf else None)
        lower = self.sum(-factors, -least if least > -np.inf else None)
        return lambda prices: max(upper(prices), 0.0) - max(lower(prices), 0.0)

    def box(self, most: Floats) -> None:
        """Add the limits of each bandwidth; a dimension in which nothing is sent is fixed at its least bandwidth."""
        for d, room in enumerate((most - self._least) / self._step):
            if d not in self._dims:
                self._add(self._row((d, 1.0)), 0.0)
            elif room < np.inf:
                self._add(self._row((d, 1.0)), room)
            self._add(self._row((d, -1.0)), 0.0)

    def times(self, gigabits: Floats) -> dict[tuple[int, int], int]:
        """Add t >= ``gigabits`` * u for each term and dimension. Returns the row numbers by (term, dimension)."""
        return {
            (k, d): self._add(self._row((self._u + d, gigabits[k, d]), (self._t + k, -1.0)), 0.0)
            for k, d in np.argwhere(gigabits).tolist()
        }

    def floors(self, floors: Floats) -> dict[int, int]:
        """Add t >= floor for each term that has a floor. Returns the row numbers by term."""
        return {k: self._add(self._row((self._t + k, -1.0)), -floors[k]) for k in np.flatnonzero(floors).tolist()}

    def solve(self, weight: Floats) -> tuple[Floats, Floats]:
        """Return the bandwidths and the dual values of all rows, in the order in which the rows were added.

        ``weight``: coefficient of each t in the objective. Raises ``SignalboxError`` when there is no finite
        solution."""
        equal = len(self._equal)
        kinds = [clarabel.ZeroConeT(equal)] if equal else []
        kinds.append(clarabel.NonnegativeConeT(len(self._rows) - equal))
        for u, d in enumerate(self._dims, self._u):  # |(b - u, 2)| <= b + u, with b in units
            for sign in (-1.0, 1.0):
                step, least = self._step[d] / self._units[d], self._least[d] / self._units[d]
                self._add(self._row((d, -step), (u, sign)), least)
            self._add(self._row(), 2.0)
            kinds.append(clarabel.SecondOrderConeT(3))
        goal = np.concatenate((np.zeros(self._t), weight))
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = _TOLERANCE
        nothing = sparse.csc_matrix((self._count, self._count))
        order = [*self._equal, *(at for at in range(len(self._rows)) if at not in self._equal)]
        matrix, right = sparse.csc_matrix(np.array(self._rows)[order]), np.array(self._right)[order]
        answer = clarabel.DefaultSolver(nothing, goal, matrix, right, kinds, settings).solve()
        found, dual = np.array(answer.x[: self._u]), np.empty(len(order))
        dual[order] = answer.z
        if not (np.isfinite(found).all() and np.isfinite(dual).all()):
            raise SignalboxError(f"the solver found no bandwidths: {answer.status}")
        return self._least + self._step * found, dual

    def _row(self, *entries: tuple[int, float]) -> Floats:
        row = np.zeros(self._count)
        for at, factor in entries:
            row[at] = factor
        return row

    def _add(self, row: Floats, right: float) -> int:
        self._rows.append(row)
        self._right.append(right)
        return len(self._rows) - 1
