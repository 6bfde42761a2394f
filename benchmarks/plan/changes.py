"""Cost of a change for a running network: a cable fails, or a job leaves.

For a setting the result is a ``ChangeRow``. It has the repair, the plan that starts from the repaired routes, and a
plan made from scratch for comparison. A seed selects the job, or the cable among the cables that some flow uses.

*Fewest moves*: a plan without moves has the fewest. If whole flows move, the solver searches for the best routing with
one move less. The moves are proven to be the fewest when that routing provably has worse slowdowns.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.plan.measure import OF_PLANNED, sizes, timed_runs
from benchmarks.plan.workloads import LINK_BPS, SEED, Setting, with_subflows
from controller.fabric.topology import Fabric
from controller.planning.bounds import slowdown_bounds
from controller.planning.efficiency import first_difference
from controller.planning.plan import NoPlan, Plan
from controller.planning.planner import plan, repair
from controller.planning.problem import PlanLimits, Problem, Routes
from controller.planning.whole_flows import cpsat
from offline.scenarios.fabric_options import Placement
from offline.scenarios.fabrics import leaf_spine, without
from offline.scenarios.generator import generate, jobs_of
from offline.scenarios.scenario import problem_of
from offline.scenarios.workload_job import WorkloadJob
from signalbox.errors import SignalboxError

Change = Literal["cable fails", "job leaves"]
MAX_SUBFLOWS: Mapping[Change, int] = {"cable fails": 8, "job leaves": 2}
"""Largest number of subflows of split flows, by change."""
_MOST_VARIABLES = 5_000
"""Largest number of class x path pairs for which the solver tries to prove the fewest moves."""
_SMALL = 4
_SMALL_SEEDS = 3


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """Cost of one change. Times are medians in ms."""

    group: str
    workload: str
    change: Change
    max_subflows: int
    flows: int
    before_slowdown: float
    """Worst slowdown of the plan that was in force."""
    displaced: int
    """Number of flows that lost their path; their new paths do not count as moves."""
    repair_slowdown: float
    """Worst slowdown after the repair, which moves no other flow."""
    repair_ms: float
    slowdown: float
    bound: float
    certificate: str
    slowdowns_proven: int
    jobs: int
    moves: int
    """Moves of the plan after the repair."""
    fewest: bool
    """Whether it is proven that no routing with the same slowdowns moves fewer flows."""
    total_ms: float
    scratch_slowdown: float
    """Worst slowdown of a plan that ignores the running routes."""
    scratch_moves: int
    """Number of flows that would move for that plan."""


def small_settings() -> list[Setting]:
    """Return settings on small fabrics, where fewest moves can be proven: the demo's size, and twice as many leaves."""
    fabrics = {
        f"{leaves}x{_SMALL}x{_SMALL}": leaf_spine(leaves, _SMALL, _SMALL, LINK_BPS, LINK_BPS)
        for leaves in (_SMALL, 2 * _SMALL)
    }
    return [
        Setting(
            "small", f"{name} {placement.value} seed {seed}", fabric, _small_jobs(fabric, placement, seed), ("none",)
        )
        for name, fabric in fabrics.items()
        for placement in Placement
        for seed in range(1, 1 + _SMALL_SEEDS)
    ]


def changed(setting: Setting, change: Change, split: bool, limits: PlanLimits) -> ChangeRow:
    """Measure one change.

    ``split``: whether flows may have up to ``MAX_SUBFLOWS`` subflows. Raises ``SignalboxError`` when there is no
    plan, before or after the change."""
    max_subflows = MAX_SUBFLOWS[change] if split else 1
    jobs = with_subflows(setting.jobs, max_subflows)
    before = _plan(problem_of(setting.fabric, jobs), limits)
    fabric, left = _after(setting, jobs, before.routes, change)
    stayed = {pair for job in left for pair in job.pairs}
    routes = {flow: route for flow, route in before.routes.items() if flow.pair in stayed}
    repaired = timed_runs(
        lambda: problem_of(fabric, left, routes), lambda problem, _: repair(problem), limits, OF_PLANNED
    )
    patched = _found(repaired.answer)
    timed = timed_runs(lambda: problem_of(fabric, left, patched.routes), plan, limits, OF_PLANNED)
    answer = _found(timed.answer)
    scratch = _plan(problem_of(fabric, left), limits)
    return ChangeRow(
        group=setting.group,
        workload=setting.name,
        change=change,
        max_subflows=max_subflows,
        flows=len(timed.problem.flows),
        before_slowdown=before.max_slowdown,
        displaced=sum(not repaired.problem.is_in_force(flow) for flow in repaired.problem.flows),
        repair_slowdown=patched.max_slowdown,
        repair_ms=repaired.times.total_ms,
        slowdown=answer.max_slowdown,
        bound=answer.bound,
        certificate=answer.certificate,
        slowdowns_proven=answer.slowdowns_proven,
        jobs=len(left),
        moves=answer.moves,
        fewest=is_fewest(timed.problem, answer, limits),
        total_ms=timed.times.total_ms,
        scratch_slowdown=scratch.max_slowdown,
        scratch_moves=sum(scratch.routes[flow] != route for flow, route in patched.routes.items()),
    )


def changes_of(setting: Setting) -> Sequence[Change]:
    """Return the changes that apply; a job can leave if another one stays."""
    return ("cable fails", "job leaves") if len(setting.jobs) > 1 else ("cable fails",)


def is_fewest(problem: Problem, answer: Plan, limits: PlanLimits) -> bool:
    """Return whether it is proven that no routing has these slowdowns with fewer moves."""
    if not answer.moves:
        return True
    if any(flow.max_subflows > 1 for flow in problem.flows) or sizes(problem)[1] > _MOST_VARIABLES:
        return False
    bounds = slowdown_bounds(problem)
    running = {flow.id: flow.current for flow in problem.flows if flow.current}
    capped = cpsat.solve(problem, limits, bounds, running, answer.moves - 1)
    if capped is None:
        return False
    slowdowns = answer.sorted_slowdowns
    proven = [*capped.proven, *[1.0] * (len(slowdowns) - len(capped.proven))]
    entry = first_difference(proven, slowdowns)
    return entry is not None and proven[entry] > slowdowns[entry]


def _after(
    setting: Setting, jobs: Sequence[WorkloadJob], routes: Routes, change: Change
) -> tuple[Fabric, Sequence[WorkloadJob]]:
    rng = random.Random(SEED)
    if change == "job leaves":
        gone = rng.choice(jobs)
        return setting.fabric, [job for job in jobs if job is not gone]
    used = sorted({link for route in routes.values() for path, _ in route for link in path})
    return without(setting.fabric, [rng.choice(used)]), jobs


def _plan(problem: Problem, limits: PlanLimits) -> Plan:
    return _found(plan(problem, limits))


def _found(answer: Plan | NoPlan) -> Plan:
    if isinstance(answer, NoPlan):
        raise SignalboxError(f"no plan: {answer.reason}")
    return answer


def _small_jobs(fabric: Fabric, placement: Placement, seed: int) -> tuple[WorkloadJob, ...]:
    """Return three jobs on nearly all hosts."""
    rings = len(fabric.hosts) // (3 * 2)
    return jobs_of(generate(fabric, jobs=3, ring_size=2, placement=placement, seed=seed, max_rings=rings), fabric)
