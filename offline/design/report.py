"""Designs and placements as plain data for programs (docs/reference/json-output.md). Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from offline.design.jobs import DesignedJob, best_first
from offline.design.proof import Design
from offline.design.question import Objective, Question
from offline.design.shape import COMPUTE, Shape

Report = dict[str, Any]


def bandwidth_report(
    objective: Objective,
    gap: float,
    worth_of_total: float | None,
    shape: Shape,
    question: Question,
    design: Design,
    jobs: Iterable[DesignedJob],
) -> Report:
    """Return the report of a design of bandwidths.

    - ``gap``: relative gap of the objective to its bound.
    - ``worth_of_total``: decrease of the objective per Gbit/s that is added to ``total_gbps``.

    Each worth in the report is a decrease of the objective per Gbit/s; for the budget, per unit of cost."""
    worth = _worth(objective, question, design)
    by_time = objective is Objective.TIME
    return {
        "objective": objective.value,
        "time_s": design.time_s,
        "cost": design.cost,
        "time_x_cost": design.time_s * design.cost,
        "gap": gap,
        "dimensions": [
            {
                "name": dimension.name,
                "kind": dimension.kind.value,
                "size": dimension.size,
                "gbps": rate,
                "links": dimension.links,
                "link_gbps": rate / dimension.links,
                "cost": rate * dimension.cost_per_gbps * shape.npus,
                "worth": each,
            }
            for dimension, rate, each in zip(shape.dimensions, design.gbps, worth, strict=True)
        ],
        "worth_of_total": None if shape.total_gbps is None else worth_of_total,
        "worth_of_budget": design.proof.budget_s if by_time and question.limits.budget else None,
        "relations": [
            each.model_dump() | {"gbps": relation.value(design.gbps), "worth": price if by_time else None}
            for each, relation, price in zip(
                shape.relations, question.limits.relations, design.proof.relations_s, strict=True
            )
        ],
        "others": [_other(name, gbps, question) for name, gbps in _compared_designs(shape)],
        "jobs": [job_report(job, shape, design.gbps) for job in jobs],
    }


def placement_report(shape: Shape, jobs: Iterable[Sequence[DesignedJob]]) -> Report:
    """Return the report of all placements of each job. The network's bandwidths must be known."""
    rates = shape.rates
    assert rates is not None
    return {
        "jobs": [
            {"job_id": ways[0].job_id, "placements": [job_report(way, shape, rates) for way in best_first(ways, rates)]}
            for ways in jobs
        ]
    }


def job_report(job: DesignedJob, shape: Shape, gbps: Sequence[float]) -> Report:
    """Return the report of one job. ``by`` names the dimension that bounds a step, or is "compute"."""
    times = job.step_times_s(gbps)
    return {
        "job_id": job.job_id,
        "weight": job.weight,
        "time_s": math.fsum(times),
        "placement": _placement(job, shape),
        "steps": [
            {"phase": step.phase, "time_s": time_s, "by": _longest(step.gigabits, step.floor_s, shape, gbps)}
            for step, time_s in zip(job.steps, times, strict=True)
        ],
    }


def _placement(job: DesignedJob, shape: Shape) -> list[Report] | None:
    """Return the number of ranks in each dimension, for each part of a model that has several ranks.

    The parts are in the order in which they fill the dimensions. Return None for a job without a model."""
    if job.placed is None:
        return None
    return [
        {"part": part.value, "ranks": dict(zip(shape.names, job.placed.spans[part], strict=True))}
        for part in job.placed.order
    ]


def _longest(gigabits: Sequence[float], floor_s: float, shape: Shape, gbps: Sequence[float]) -> str:
    times = {name: amount / rate for name, amount, rate in zip(shape.names, gigabits, gbps, strict=True) if amount}
    times[COMPUTE] = floor_s
    return max(times, key=lambda name: times[name])


def _worth(objective: Objective, question: Question, design: Design) -> list[float]:
    """Return the decrease of the objective per Gbit/s that is added to each dimension, to first order."""
    time_s = [
        load / rate**2 if load else 0.0
        for load, rate in zip(design.proof.loads(question).tolist(), design.gbps, strict=True)
    ]
    if objective is Objective.TIME:
        return time_s
    costs = question.limits.cost
    return [design.cost * each - design.time_s * cost for each, cost in zip(time_s, costs, strict=True)]


def _compared_designs(shape: Shape) -> Iterable[tuple[str, tuple[float, ...]]]:
    if shape.total_gbps is not None:
        yield "equal split", (shape.total_gbps / len(shape.dimensions),) * len(shape.dimensions)
    if shape.rates is not None:
        yield "as it is", shape.rates


def _other(name: str, gbps: Sequence[float], question: Question) -> Report:
    time_s, cost = question.time_s(gbps), question.limits.cost_of(gbps)
    times = {"time_s": time_s, "cost": cost, "time_x_cost": time_s * cost}
    return {"name": name, "gbps": list(gbps), "within_limits": question.limits.allow(gbps), **times}
