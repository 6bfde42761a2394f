"""Many jobs on a leaf-spine of 64 leaves and 32 spines, 2:1 or 4:1 oversubscribed: ours beside all baselines.

A cell is one fabric with its jobs (``oversubscribed``); it has the figures for every jitter and objective. The mixes of
jobs take turns from seed to seed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise, product
from statistics import fmean, stdev
from typing import Any, NamedTuple

from benchmarks.contention.oversubscribed import MIXES, oversubscribed
from benchmarks.measures import Row
from controller.planning.contention.fluid import Case, Objective, Phase, TimedJob
from controller.planning.plan import answered
from controller.planning.problem import PlanLimits
from offline.schemes import SCHEMES
from offline.simulator.baselines import BASELINES
from offline.simulator.shared import all_plans, compared, shared_case

RATIOS = (2, 4)
JITTERS = (0.0, 0.05, 0.09)
ITERATIONS = 12
RUNS = {8: 2}
"""Number of simulations of each plan, with different starts and compute times, by number of jobs; else 1."""
TIE = 0.005
"""Relative difference up to which two figures are a tie."""
PLANNING_S = 2.0


class Setting(NamedTuple):
    """Fabric and jobs of a cell."""

    ratio: int
    """Oversubscription: hosts of a leaf / its uplinks."""
    jobs: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.ratio}to1-{self.jobs}jobs-{self.mix}-{self.seed}"

    @property
    def mix(self) -> str:
        return [*MIXES][self.seed % len(MIXES)]


def case_in(setting: Setting) -> Case:
    """Return the jobs of a cell with the ways of ``shared_case``."""
    problem, timings = oversubscribed(setting.seed, setting.jobs, setting.ratio, setting.mix)
    jobs = [
        TimedJob(job, tuple(Phase(*of[1:]) for of in timing.phases), (), timing.work, regular=timing.keeps_slots)
        for job, timing in timings.items()
    ]
    limits = PlanLimits(time_limit_s=PLANNING_S, ecmp_draws=0, seed=setting.seed)
    routings = [answered(SCHEMES[name](problem, limits)).routes for name in ("planned", "ecmp", "greedy")]
    return shared_case(problem, jobs, routings)


def cell(setting: Setting) -> dict[str, Any]:
    """Return the figures of all plans by jitter. ``ours`` is one plan for each objective."""
    times_s = [time.process_time()]
    case = case_in(setting)
    times_s.append(time.process_time())
    plans = all_plans(case, {f"ours, {objective}": objective for objective in OBJECTIVES})
    times_s.append(time.process_time())
    figures = {
        f"{jitter:g}": {
            name: found._asdict()
            for name, found in compared(case, plans, ITERATIONS, jitter, range(RUNS.get(setting.jobs, 1))).items()
        }
        for jitter in JITTERS
    }
    times_s.append(time.process_time())
    routing_s, planning_s, simulation_s = (then - now for now, then in pairwise(times_s))
    cpu_s = {"routing": routing_s, "planning": planning_s, "simulation": simulation_s}
    return {**setting._asdict(), "cpu_s": cpu_s, "figures": figures}


OBJECTIVES: Mapping[Objective, Callable[[Mapping[str, float]], float]] = {
    Objective.WORST: lambda figures: figures["worst"],
    Objective.WORK: lambda figures: 1 / figures["gpu_seconds"],
}
"""Figure that each objective makes small."""


def verdicts(found: Mapping[str, Any]) -> Iterator[Row]:
    """Yield for each objective and jitter of a cell our figure, and the figure of the best baseline."""
    for jitter, figures in found["figures"].items():
        for objective, figure in OBJECTIVES.items():
            mine = figure(figures[f"ours, {objective}"])
            best = min((figure(of), name) for name, of in figures.items() if name in BASELINES)
            kept = mine <= best[0] * (1 + TIE)
            yield {"objective": objective, "jitter": jitter, "ours": mine, "best": best[0], "of": best[1], "kept": kept}


def summary(found: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return for each fabric, number of jobs and jitter the mean of each figure over the seeds, with an interval."""
    rows: list[Row] = []
    groups = sorted({(one["ratio"], one["jobs"]) for one in found})
    for (ratio, jobs), jitter in product(groups, map("{:g}".format, JITTERS)):
        same = [one["figures"][jitter] for one in found if (one["ratio"], one["jobs"]) == (ratio, jobs)]
        row: Row = {"fabric": f"{ratio}:1", "jobs": jobs, "jitter": jitter, "seeds": len(same)}
        names = [f"ours, {objective}" for objective in OBJECTIVES] + [*BASELINES]
        rows.append({**row, **{name: interval([of[name]["mean"] for of in same]) for name in names}})
    return rows


def gains(found: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return how many times shorter iterations are with our plan for the worst job than today, over all cells."""
    rows: list[Row] = []
    for ratio, jitter in product(sorted({one["ratio"] for one in found}), map("{:g}".format, JITTERS)):
        same = [one["figures"][jitter] for one in found if one["ratio"] == ratio]
        row: Row = {"fabric": f"{ratio}:1", "jitter": jitter, "cells": len(same)}
        mine = f"ours, {Objective.WORST}"
        of = {name: [each["today"][name] / each[mine][name] for each in same] for name in ("worst", "mean", "tail")}
        rows.append({**row, **{name: interval(values) for name, values in of.items()}})
    return rows


def interval(values: Sequence[float]) -> str:
    """Return the mean of the values with the half width of its 95 % confidence interval."""
    half = 1.96 * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{fmean(values):.3f} ± {half:.3f}"
