"""Crux's worked example, and its parts beside the best plans of small cases.

For each case by Crux's recipe, the exact search chooses ways and classes of all jobs together, and enumeration checks
it. A part of Crux is compared with the best choice in its place: its paths with any paths, both with the best classes;
its priorities and its classes with the best classes on its own paths.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from benchmarks.contention.cases import CLASSES, JOBS, WORKED_EXAMPLE, crux_case, one_of_each_pair
from benchmarks.contention.enumeration import enumerated
from benchmarks.contention.exact import Costs, solve, utilization
from benchmarks.measures import Row
from controller.planning.contention import crux
from controller.planning.contention.circles import NO_CIRCLE
from controller.planning.contention.fluid import Case, Choice, Choices, Objective, guaranteed_s

MOST_WAYS = 2_000
"""Largest number of combinations of ways up to which a case is enumerated."""
SAME = 1e-5
"""Largest difference of two costs, in work per second, that count as equal."""
EXPECTED = {"long_first": 0.375, "short_first": 2.5 / 6, "correction": 1.5}
"""Published figures of the worked example; 41.7 % is 5/12."""


def worked_example() -> dict[str, float]:
    used = [
        utilization(WORKED_EXAMPLE, guaranteed_s(WORKED_EXAMPLE, {0: Choice(rank=first), 1: Choice(rank=1 - first)}))
        for first in (0, 1)
    ]
    return dict(zip(EXPECTED, (*used, crux.correction(*WORKED_EXAMPLE.jobs)), strict=True))


def run(seed: int, enumerates: bool) -> dict[str, Any]:
    """Return the figures of one case."""
    case = crux_case(seed)
    theirs = crux.crux(case, CLASSES)
    began = time.perf_counter()
    smaller, start = one_of_each_pair(case, theirs)
    best = solve(smaller, Objective.WORK, CLASSES, start=start)
    took_s = time.perf_counter() - began
    used = utilization(case, best.iteration_s)
    ways = [choice.way for _, choice in sorted(theirs.items())]
    on_paths = replace(
        case, jobs=tuple(replace(job, ways=(job.ways[way],)) for job, way in zip(case.jobs, ways, strict=True))
    )
    priority = crux.priorities(case, ways)
    order = sorted(range(JOBS), key=lambda number: -priority[number])
    figures: dict[str, Any] = {
        "seed": seed,
        "ways": [len(job.ways) for job in case.jobs],
        "contended": best.cost > SAME or _cost(case, theirs) > SAME,
        "utilization": used,
        "bound_met": best.cost <= best.bound + SAME,
        "seconds": took_s,
        "rounds": best.rounds,
        "crux": _used(case, theirs) / used,
        "paths": _best(on_paths, CLASSES) / used,
        "priorities": _used(on_paths, {n: Choice(rank=order.index(n)) for n in range(JOBS)}) / _best(on_paths, JOBS),
        "classes": _used(on_paths, {n: Choice(rank=choice.rank) for n, choice in theirs.items()})
        / _best(on_paths, CLASSES),
    }
    if enumerates and math.prod(len(job.ways) for job in smaller.jobs) <= MOST_WAYS:
        began = time.perf_counter()
        figures["enumerated"] = (
            enumerated(smaller, Objective.WORK, CLASSES, below=_cost(case, theirs) + SAME).cost - best.cost
        )
        figures["enumeration_seconds"] = time.perf_counter() - began
    return figures


def _cost(case: Case, choices: Choices) -> float:
    return Costs(case, Objective.WORK, NO_CIRCLE).total(choices)


def _used(case: Case, choices: Choices) -> float:
    return utilization(case, guaranteed_s(case, choices))


def _best(case: Case, ranks: int) -> float:
    return utilization(case, enumerated(case, Objective.WORK, ranks).iteration_s)


def summary(cases: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return for each part of Crux the mean and the smallest ratio to the best choice in its place."""
    contended = [case for case in cases if case["contended"]]
    rows: list[Row] = []
    for name in ("paths", "priorities", "classes", "crux"):
        ratios = [case[name] for case in contended] or [1.0]
        best = sum(ratio > 1 - SAME for ratio in ratios) / len(ratios)
        rows.append({"part": name, "mean": fmean(ratios), "smallest": min(ratios), "best in": f"{best:.0%}"})
    return rows


def broken(example: Mapping[str, float], found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the figures of the worked example that differ from the published figures, and cases without a proof."""
    wrong = [name for name, value in EXPECTED.items() if abs(example[name] - value) > SAME]
    unproven = [case for case in found if not case["bound_met"] or abs(case.get("enumerated", 0.0)) > SAME]
    return wrong + [f"case {case['seed']}" for case in unproven]


def times(found: Sequence[Mapping[str, Any]]) -> Row:
    seconds = sorted(case["seconds"] for case in found)
    return {"mean": fmean(seconds), "median": seconds[len(seconds) // 2], "longest": seconds[-1]}
