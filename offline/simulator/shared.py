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

from controller.public.contention import Case, Phase, TimedJob
from controller.public.problems import Flow, FlowId, LinkId, Problem, Route, Routes, ideal_time_s, whole
from offline.scenarios.variation import Variation
from offline.scenarios.workloads import WorkloadJob
from offline.simulator.baselines import alone, today
from offline.simulator.contention import Figures, SharedPlan, simulated
from signalbox.jobs.spec import JobId

TODAY, HASHED = 0, 1
"""Ways of each job: with the planned routes, and with those of ECMP."""


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


def least_congested(problem: Problem, jobs: Sequence[TimedJob]) -> Routes:
    """Return the routes of Crux: jobs with higher intensities first, each flow on its least congested path."""
    load: defaultdict[LinkId, float] = defaultdict(float)
    flows: defaultdict[JobId, list[Flow]] = defaultdict(list)
    for flow in problem.flows:
        flows[flow.job_id].append(flow)
    routes: dict[FlowId, Route] = {}
    for job in sorted(jobs, key=lambda each: -each.work / each.sending_s):
        for flow in flows[job.id]:
            bits = sum(bps * of.ideal_s for (_, bps), of in zip(flow.demand_bps, job.phases, strict=False))
            paths = problem.candidates(flow)
            if paths:
                path = min(paths, key=lambda links: max((load[link] for link in links), default=0.0))
                routes[flow.id] = whole(path)
                for link in path:
                    load[link] += bits / job.ideal_s / problem.capacity_bps[link]
    return routes


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
