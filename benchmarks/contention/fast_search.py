"""Plans for jobs on an oversubscribed fabric: time, slowdowns beside those of baselines, and bounds."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from itertools import chain, product
from statistics import fmean
from typing import Any

from benchmarks.contention.oversubscribed import MIXES, oversubscribed
from benchmarks.measures import Row
from controller.planning.contention.case import cases_of, sharing
from controller.planning.contention.fluid import Objective
from controller.planning.contention.large import Search
from controller.planning.plan import answered
from controller.planning.planner import plan
from controller.planning.problem import PlanLimits, SharingRules
from signalbox.words import SharingObjective

MOST_MS = {16: 200.0, 64: 2000.0}
"""Largest CPU time of a search in milliseconds, by number of jobs."""
SAME = 1e-6
_LIMITS = PlanLimits(time_limit_s=1.0, ecmp_draws=0)


def on_fabric(seed: int, jobs: int, mix: str, objective: SharingObjective, classes: int) -> dict[str, Any]:
    """Return the figures of one case: values of the objective, and the CPU time from a plan to slots and classes."""
    problem, timings = oversubscribed(seed, jobs, mix=mix)
    routes, rules = answered(plan(problem, _LIMITS)).routes, SharingRules(classes, objective=objective)
    began = time.process_time()
    found = sharing(problem, routes, timings, rules)
    took_ms = 1000 * (time.process_time() - began)
    figures = {"jobs": jobs, "mix": mix, "objective": objective.value, "classes": classes, "seed": seed, "ms": took_ms}
    if found is None:
        return figures
    searches = [
        Search(case, Objective(objective), max(1, classes), rules.max_stretch)
        for case in cases_of(problem, routes, timings, rules.floor)
    ]
    unit = sum(timing.weight for timing in timings.values()) if objective is SharingObjective.WEIGHTED else 1.0

    def value(plans: Sequence[Sequence[float]]) -> float:
        costs = Objective(objective).total([*chain.from_iterable(plans)])
        return costs / unit + (objective is not SharingObjective.GPU_SECONDS)

    today = [search.judged([0] * len(search.promise_s), ()) for search in searches]
    cassini = [
        min((*search.of_cassini(), now), key=search.penalised) for search, now in zip(searches, today, strict=True)
    ]
    figures |= {"ours": found.value, "bound": found.searched, "today": value([each.costs for each in today])}
    figures |= {"cassini": value([each.costs for each in cassini])}
    if classes > 1:
        figures |= {"crux": value([search.judged(search.of_crux(), ()).costs for search in searches])}
    mean = [now_s / found.promise_s[job] for job, now_s in found.guaranteed_s.items()]
    return {**figures, "iteration / today": fmean(mean), "members": sum(len(circle.slots) for circle in found.circles)}


def cases(seeds: Sequence[int]) -> list[dict[str, Any]]:
    kinds = product(MOST_MS, MIXES, ((SharingObjective.WORST, 0), (SharingObjective.GPU_SECONDS, 2)), seeds)
    return [on_fabric(seed, jobs, mix, objective, classes) for jobs, mix, (objective, classes), seed in kinds]


def table(found: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return one row per kind of case, with means over its seeds."""
    rows: list[Row] = []
    for kind in dict.fromkeys((each["jobs"], each["mix"], each["objective"]) for each in found):
        cells = [each for each in found if (each["jobs"], each["mix"], each["objective"]) == kind and "ours" in each]
        names = ("today", "cassini", "crux", "ours", "bound", "iteration / today", "members")
        means = {name: fmean(each[name] for each in cells) for name in names if cells and name in cells[0]}
        times = {"longest ms": max((each["ms"] for each in cells), default=0.0)}
        rows.append(dict(zip(("jobs", "mix", "objective"), kind, strict=True)) | means | times)
    return rows


def broken(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the cases in which a baseline is better, the bound is above, or the search takes too long.

    Values are guaranteed ones. GPU-seconds are chosen by their mean (``fabric``), so baselines may guarantee more."""
    wrong = []
    for each in found:
        of_worst = each["objective"] == SharingObjective.WORST
        least = min([each.get(name, math.inf) for name in ("today", "cassini") if of_worst], default=math.inf)
        value = each.get("ours", 0.0)
        late = each["ms"] > MOST_MS[each["jobs"]]
        if late or value > least + SAME or each.get("bound", 0.0) > value + SAME:
            wrong.append(f"{each['jobs']} jobs, {each['mix']}, {each['objective']}, seed {each['seed']}")
    return wrong
