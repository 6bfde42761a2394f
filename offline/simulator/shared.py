"""Plans for jobs that share links, beside each other: from a problem and its routes to simulated figures.

In: a problem, times of its jobs, and several routings. Out: a ``Case`` in which each routing is a way of each job, and
the figures of our plan and of ``baselines`` in the same simulations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from statistics import fmean
from typing import Any

from controller.public.contention import Case, Objective, Phase, TimedJob, least_congested, searched_routes
from controller.public.problems import Problem, Routes, ideal_time_s
from offline.scenarios.variation import Variation
from offline.scenarios.workloads import WorkloadJob
from offline.simulator.baselines import RANKS, alone, baselines, ours, today
from offline.simulator.contention import Figures, SharedPlan, simulated
from signalbox.jobs.spec import JobId

HASHED = 1
"""Way of each job with the routes of ECMP. Way 0 has the planned ones, way 2 those of the published greedy."""
_CRUX = 3
"""Way of each job with the routes of Crux. The ways that follow have the searched routes of each objective."""


def timed(job: WorkloadJob, nic_bps: Mapping[str, float]) -> TimedJob:
    """Return the times of a job, without ways. Its work is its compute time x its hosts."""
    ideal_s = ideal_time_s(job.virtual_links, nic_bps)
    computes_s = (job.compute_s, *(job.pauses_s or (0.0,) * (len(ideal_s) - 1)))
    phases = tuple(Phase(compute_s, s) for compute_s, s in zip(computes_s, ideal_s.values(), strict=True))
    hosts = {ip for pair in job.pairs for ip in pair}
    return TimedJob(job.id, phases, (), work=len(hosts) * (sum(computes_s) or 1.0))


def case_of(problem: Problem, jobs: Sequence[TimedJob], routings: Sequence[Routes], floor: float = 0.1) -> Case:
    """Return the jobs with a way for each routing, over the links of the fabric.

    The phases of a job are those of its flows' demands, in their order."""
    number_of = {link: number for number, link in enumerate(problem.capacity_bps)}
    ways: dict[JobId, list[tuple[dict[int, float], ...]]] = {job.id: [] for job in jobs}
    for routes in routings:
        demand = defaultdict[tuple[JobId, int], defaultdict[int, float]](lambda: defaultdict(float))
        phases = defaultdict[JobId, set[int]](set)
        for flow in problem.flows:
            phases[flow.job_id].update(phase for phase, _ in flow.demand_bps)
            for (phase, bps), (path, share) in product(flow.demand_bps, routes.get(flow.id, ())):
                for link in path:
                    demand[flow.job_id, phase][number_of[link]] += bps * share
        for job in jobs:
            ways[job.id].append(tuple(dict(demand[job.id, phase]) for phase in sorted(phases[job.id])))
    return Case(
        tuple(problem.capacity_bps.values()), tuple(replace(job, ways=tuple(ways[job.id])) for job in jobs), floor
    )


def shared_case(problem: Problem, jobs: Sequence[TimedJob], routings: Sequence[Routes]) -> Case:
    """Return the jobs with the ways above. ``routings``: planned routes, those of ECMP, and of the published greedy."""
    searched = (searched_routes(problem, jobs, objective, RANKS) or routings[0] for objective in Objective)
    return case_of(problem, jobs, [*routings, least_congested(problem, jobs), *searched])


def all_plans(case: Case, objectives: Mapping[str, Objective]) -> dict[str, SharedPlan]:
    """Return the plans of all systems for a ``shared_case``. ``objectives``: of our plans, by name."""
    numbers = {objective: _CRUX + 1 + number for number, objective in enumerate(Objective)}
    mine = {name: ours(case, of, RANKS, (0, _CRUX, numbers[of])) for name, of in objectives.items()}
    known = replace(case, jobs=tuple(replace(job, ways=job.ways[: _CRUX + 1]) for job in case.jobs))
    return {**mine, **baselines(known, [HASHED] * len(case.jobs))}


def compared(
    case: Case, plans: Mapping[str, SharedPlan], iterations: int, jitter: float, seeds: Iterable[int]
) -> dict[str, Figures]:
    """Return the figures of each plan, and of no sharing as ``ideal``: means over simulations with these seeds."""
    vary = [Variation(jitter)] * len(case.jobs)
    runs = {name: (case, plan) for name, plan in plans.items()} | {"ideal": (alone(case), today(case))}

    def figures(on: Case, plan: SharedPlan) -> Figures:
        found = [Figures.of(on, simulated(on, plan, iterations, vary, seed)) for seed in seeds]
        return Figures(*(fmean(each) for each in zip(*found, strict=True)))

    return {name: figures(*run) for name, run in runs.items()}


def report(
    case: Case, plans: Mapping[str, SharedPlan], figures: Mapping[str, Figures], objective: str, jitter: float
) -> dict[str, Any]:
    """Return a comparison as plain data; its fields are an interface (docs/reference/json-output.md)."""
    return {
        "shared": objective,
        "jitter": jitter,
        "plans": [
            {"plan": name, **of._asdict(), "jobs": _jobs(case, plans[name]) if name in plans else []}
            for name, of in figures.items()
        ],
    }


def _jobs(case: Case, plan: SharedPlan) -> list[dict[str, Any]]:
    return [
        {
            "job": case.jobs[number].id,
            "way": choice.way,
            "class": choice.rank + 1,
            "start_s": choice.start_s,
            "period_s": plan.period_s[number] / choice.turns if number in plan.period_s else None,
        }
        for number, choice in sorted(plan.choices.items())
    ]
