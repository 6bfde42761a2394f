"""Range of each bandwidth within all limits together, or the reason why no bandwidths satisfy them. Pure.

SciPy, an optional dependency, is imported only where a linear programme is solved.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from offline.design.proof import Floats
from offline.design.question import Limits, Question
from signalbox.errors import FieldProblem, InvalidInput

_INFEASIBLE = 2
_ROUNDING = 1e-9


def box(question: Question, exactly: bool = False) -> tuple[Floats, Floats]:
    """Return the smallest and the largest value that each bandwidth can have under all limits; both are finite.

    The largest value of a dimension in which nothing is sent is its minimum. Raises ``InvalidInput`` when no bandwidths
    satisfy all limits, or when a bandwidth has no upper limit."""
    limits = question.limits
    least, most, cost = (np.array(each, float) for each in (limits.least, limits.most, limits.cost))
    if limits.total is not None:
        most = np.minimum(most, limits.total - (least.sum() - least))
    most = np.where(question.loaded, most, np.minimum(most, least))
    InvalidInput.refuse(_beyond_sums(question, least, most, exactly))
    if limits.budget is not None:
        left = limits.budget - (cost @ least - cost * least)
        most = np.minimum(most, np.divide(left, cost, out=np.full_like(cost, math.inf), where=cost > 0))
    if limits.relations:
        InvalidInput.refuse(_unloaded(question))
        most = _upper_limits(limits, least, most, exactly)
    InvalidInput.refuse(_impossible(question, most))
    return least, np.maximum(most, least)


def _beyond_sums(question: Question, least: Floats, most: Floats, exactly: bool) -> Iterator[FieldProblem]:
    """Yield the contradictions between total, budget and the limits of single bandwidths.

    The total or the budget may be less than the smallest bandwidths need, or the total more than all bandwidths can use
    up. ``most``: upper limits of the bandwidths, not reduced by the budget."""
    limits, needed = question.limits, float(least.sum())
    if limits.total is not None and needed > limits.total:
        message = f"must be at least the sum of the least bandwidths, {needed:.10g} (given: {limits.total:.10g})"
        yield FieldProblem("total_gbps", message)
        return
    if exactly and limits.total is not None and most.sum() < limits.total * (1 - 1e-12):
        message = f"must be at most the sum of the largest bandwidths, {most.sum():.10g} (given: {limits.total:.10g})"
        yield FieldProblem("total_gbps", message)
        return
    if limits.budget is None:
        return
    all_of_it = exactly and not limits.relations
    price = limits.cost_of((cheapest(question, least, most) if all_of_it else least).tolist())
    if price > limits.budget * (1 + 1e-12):
        what = "cost of all total_gbps" if all_of_it else "cost of the least bandwidths"
        message = f"must be at least the {what}, {price:.10g} (given: {limits.budget:.10g})"
        yield FieldProblem("budget", message)


def _impossible(question: Question, most: Floats) -> Iterator[FieldProblem]:
    for d, name in enumerate(question.names):
        if not math.isfinite(most[d]):
            message = f"'{name}' has no limit: give total_gbps, max_gbps, or a budget and cost_per_gbps"
            yield FieldProblem(f"dimensions[{d}]", message)
        elif question.loaded[d] and most[d] <= 0:
            yield FieldProblem(f"dimensions[{d}]", f"the limits leave no bandwidth for '{name}', in which jobs send")


def cheapest(question: Question, least: Floats, most: Floats) -> Floats:
    """Return the cheapest bandwidths that use up the total: the cheapest dimensions get their maximum first."""
    if question.limits.relations:
        return np.asarray(_extreme(question.limits, np.array(question.limits.cost), least, most, True).x)
    found, left = least.copy(), (question.limits.total or 0.0) - float(least.sum())
    for _, d in sorted(zip(question.limits.cost, range(len(least)), strict=True)):
        more = min(left, float(most[d] - least[d]))
        found[d], left = found[d] + more, left - more
    return found


def cheapest_more(question: Question) -> float | None:
    """Return the additional cost of one more Gbit/s in the total, for the cheapest bandwidths that use up the total.

    Returns None when the total cannot grow, because it is already the most that the dimensions may have."""
    limits = replace(question.limits, budget=None)
    least = np.array(limits.least)
    most = np.where(question.loaded, limits.most, least)  # not limited by the present total
    answer = _extreme(limits, np.array(limits.cost), least, most, True)
    return float(answer.eqlin.marginals[-1]) if answer.status == 0 else None  # the total's row is the last one


# ---- with relations between dimensions


def _unloaded(question: Question) -> list[FieldProblem]:
    """Return a problem for each dimension that is in a relation although no job sends in this dimension.

    A dimension without traffic gets only its minimum bandwidth."""
    return [
        FieldProblem(f"relations[{r}]", f"no job sends in '{name}', so this dimension cannot be in a relation")
        for r, relation in enumerate(question.limits.relations)
        for name, factor, loaded in zip(question.names, relation.factors, question.loaded, strict=True)
        if factor and not loaded
    ]


def _upper_limits(limits: Limits, least: Floats, most: Floats, exactly: bool) -> Floats:
    """Return the upper limit of each bandwidth, computed by a linear programme where ``most`` is infinite.

    The computed limits are rounded up slightly. Raises ``InvalidInput`` when the relations contradict the other
    limits."""
    if _extreme(limits, np.zeros_like(most), least, most, exactly).status == _INFEASIBLE:
        raise InvalidInput.of("relations", "leave no bandwidths within the other limits")
    found = most.copy()
    for d in np.flatnonzero(np.isinf(most)):
        goal = np.zeros_like(most)
        goal[d] = -1.0
        answer = _extreme(limits, goal, least, most, exactly)
        found[d] = answer.x[d] * (1 + _ROUNDING) if answer.status == 0 else math.inf
    return found


def _extreme(limits: Limits, goal: Floats, least: Floats, most: Floats, exactly: bool) -> Any:
    """Return SciPy's ``linprog`` result for the bandwidths within all limits that minimize ``goal`` @ bandwidths."""
    from scipy.optimize import linprog

    sums = [(relation.factors, relation.least, relation.most) for relation in limits.relations]
    if limits.total is not None:
        sums.append(((1.0,) * len(goal), limits.total if exactly else -math.inf, limits.total))
    if limits.budget is not None:
        sums.append((limits.cost, -math.inf, limits.budget))
    equal = [(factors, high) for factors, low, high in sums if low == high]
    upper = [(factors, high) for factors, low, high in sums if low < high < math.inf]
    upper += [(tuple(-factor for factor in factors), -low) for factors, low, high in sums if -math.inf < low < high]
    rows = {
        f"{name}_{kind}": [row[part] for row in some] or None
        for kind, some in (("eq", equal), ("ub", upper))
        for part, name in enumerate("Ab")
    }
    return linprog(goal, **rows, bounds=np.stack((least, most), axis=1))
