"""Crux's worked example, and its parts beside the best plans of small cases.

For each case by Crux's recipe, the planner's exact search chooses ways and classes of all jobs together. Enumeration of
every plan, with code of its own, checks the choice. A part of Crux is compared with the best choice in its place: its
paths with any paths, both with the best classes; its priorities and its classes with the best classes on its own paths.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from statistics import fmean
from typing import Any

from benchmarks.contention.cases import CLASSES, JOBS, WORKED_EXAMPLE, crux_case
from benchmarks.contention.enumeration import Enumeration
from benchmarks.measures import Row, Spread
from controller.planning.contention import crux
from controller.planning.contention.exact import Exact, Option
from controller.planning.contention.fluid import Case, Choice, Choices, Objective, guaranteed_s

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


def run(seed: int) -> dict[str, Any]:
    """Return the figures of one case. Times are CPU seconds."""
    case = crux_case(seed)
    theirs = crux.crux(case, CLASSES)
    times_s = [time.process_time()]
    start = [Option(choice.way, choice.rank) for _, choice in sorted(theirs.items())]
    found = Exact(case, Objective.WORK, CLASSES, (), [math.inf] * JOBS).solve(start)
    times_s.append(time.process_time())
    least, plans = enumerated(case, CLASSES)
    times_s.append(time.process_time())
    ideal, used = _ideal(case), _ideal(case) - least
    ways = [option.way for option in start]
    on_paths = replace(
        case, jobs=tuple(replace(job, ways=(job.ways[way],)) for job, way in zip(case.jobs, ways, strict=True))
    )
    priority = crux.priorities(case, ways)
    order = sorted(range(JOBS), key=lambda number: -priority[number])
    by_priority = {n: Choice(rank=order.index(n)) for n in range(JOBS)}
    on_their_paths = _ideal(case) - enumerated(on_paths, CLASSES)[0]
    return {
        "seed": seed,
        "ways": [len(job.ways) for job in case.jobs],
        "contended": least > SAME or _work(case, theirs) < ideal - SAME,
        "proven": found.cost <= found.bound + SAME,
        "above": found.cost - least,
        "plans": plans,
        "rounds": found.rounds,
        "seconds": times_s[1] - times_s[0],
        "enumeration_seconds": times_s[2] - times_s[1],
        "crux": _work(case, theirs) / used,
        "paths": on_their_paths / used,
        "priorities": _work(on_paths, by_priority) / (ideal - enumerated(on_paths, JOBS)[0]),
        "classes": _work(case, theirs) / on_their_paths,
    }


def enumerated(case: Case, classes: int) -> tuple[float, int]:
    """Return the least work per second that is lost by sharing, and the number of plans among which it is the least."""
    jobs = case.jobs
    ways = [[frozenset(way[0]) for way in job.ways] for job in jobs]
    every = Enumeration([job.compute_s for job in jobs], [job.sending_s for job in jobs], ways)
    return every.least(classes, lambda job, took_s: jobs[job].work / jobs[job].ideal_s - jobs[job].work / took_s)


def utilization(case: Case, iteration_s: Mapping[int, float]) -> float:
    """Return the work per second of all jobs / the work per second while all compute without a pause."""
    jobs = [(case.jobs[number], took_s) for number, took_s in iteration_s.items()]
    return sum(job.work / took_s for job, took_s in jobs) / sum(job.work / job.compute_s for job, _ in jobs)


def _ideal(case: Case) -> float:
    return sum(job.work / job.ideal_s for job in case.jobs)


def _work(case: Case, choices: Choices) -> float:
    """Return the work per second that the choices guarantee."""
    return sum(case.jobs[number].work / took_s for number, took_s in guaranteed_s(case, choices).items())


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
    """Return the figures of the worked example that differ from the published ones, and cases without the optimum."""
    wrong = [name for name, value in EXPECTED.items() if abs(example[name] - value) > SAME]
    return wrong + [f"case {case['seed']}" for case in found if not case["proven"] or abs(case["above"]) > SAME]


def times(found: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return the CPU seconds per case."""
    names = {"exact search": "seconds", "enumeration": "enumeration_seconds"}
    spreads = {name: Spread.of([case[key] for case in found]) for name, key in names.items()}
    return [{"CPU seconds per case": name, **asdict(of)} for name, of in spreads.items() if of]
