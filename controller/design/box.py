"""What is left to each bandwidth by all limits together, or why nothing is. Pure."""

from __future__ import annotations

import math

import numpy as np

from controller.design.proof import Floats
from controller.design.question import Question
from signalbox.errors import FieldProblem, InvalidInput


def box(question: Question, exactly: bool = False) -> tuple[Floats, Floats]:
    """The least and most that each bandwidth can be under all limits; both finite. A dimension in which nothing is sent
    gets no more than it must. Raises ``InvalidInput`` when nothing is left, or when a bandwidth has no limit."""
    limits = question.limits
    least, most, cost = (np.array(each, float) for each in (limits.least, limits.most, limits.cost))
    if limits.total is not None:
        most = np.minimum(most, limits.total - (least.sum() - least))
    if limits.budget is not None:
        left = limits.budget - (cost @ least - cost * least)
        most = np.minimum(most, np.divide(left, cost, out=np.full_like(cost, math.inf), where=cost > 0))
    most = np.where(question.loaded, most, np.minimum(most, least))
    InvalidInput.refuse(_impossible(question, least, most, exactly))
    return least, np.maximum(most, least)


def _impossible(question: Question, least: Floats, most: Floats, exactly: bool) -> list[FieldProblem]:
    limits, found = question.limits, []
    if limits.total is not None and least.sum() > limits.total:
        message = f"must be at least what the dimensions need, {least.sum():g} (given: {limits.total:g})"
        found.append(FieldProblem("total_gbps", message))
    if limits.budget is not None and limits.cost_of(limits.least) > limits.budget:
        message = f"must be at least what the least bandwidths cost, {limits.cost_of(limits.least):g}"
        found.append(FieldProblem("budget", f"{message} (given: {limits.budget:g})"))
    if found:
        return found
    for d, name in enumerate(question.names):
        if not math.isfinite(most[d]):
            message = f"'{name}' has no limit: give total_gbps, max_gbps, or a budget and cost_per_gbps"
            found.append(FieldProblem(f"dimensions[{d}]", message))
        elif question.loaded[d] and most[d] <= 0:
            message = f"nothing is left for '{name}', in which jobs send"
            found.append(FieldProblem(f"dimensions[{d}]", message))
    if exactly and limits.total is not None and most.sum() < limits.total * (1 - 1e-12):
        message = f"must be at most what the dimensions may have, {most.sum():g} (given: {limits.total:g})"
        found.append(FieldProblem("total_gbps", message))
    return found


def cheapest(question: Question, least: Floats, most: Floats) -> Floats:
    """The bandwidths that use up the total at the least cost: the cheapest dimensions get the most they may have."""
    found, left = least.copy(), (question.limits.total or 0.0) - float(least.sum())
    for _, d in sorted(zip(question.limits.cost, range(len(least)), strict=True)):
        more = min(left, float(most[d] - least[d]))
        found[d], left = found[d] + more, left - more
    return found
