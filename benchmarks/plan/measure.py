"""Measurement of single plans (``measure``), and of changes of a running network (``changed``).

``measure`` plans a ``Case`` and returns a ``Row`` with the slowdowns and the time. Times are the planner's own, from a
``Problem`` to a checked plan. They are medians of as many runs as the time budget of a case allows. The first run does
not count, unless it is the only one. Every run gets a new problem, so that nothing can be reused.

In ``changed`` a cable fails or a job leaves, drawn by a seed. The ``ChangeRow`` has the repair, the plan that starts
from the repaired routes, and a plan from scratch for comparison. The plan's moves are the *fewest* if there are none,
or if every routing with one move less is proven to have worse slowdowns. The solver searches for such a routing when
flows are whole.
"""

import gc
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Literal

from benchmarks.plan.workloads import FAILURES, LINK_BPS, SEED, Failure, Setting, failed, with_subflows
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
from offline.scenarios.workloads import WorkloadJob
from signalbox.errors import SignalboxError

_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Runs:
    """Limits of the number of runs of a case."""

    most: int
    """Number of timed runs after the first, at most."""
    budget_s: float
    """Seconds after which no further run begins. If the first run takes longer, it is the only one."""


RUNS = Runs(most=5, budget_s=0.7)


@dataclass(frozen=True, slots=True)
class Case:
    """Case to measure. ``max_subflows``: number of subflows that a flow may have, 1 for whole flows."""

    setting: Setting
    failure: str
    max_subflows: int

    def __str__(self) -> str:
        way = f"up to {self.max_subflows} subflows" if self.max_subflows > 1 else "whole flows"
        return f"{self.setting.group}, {self.setting.name}; failed: {self.failure}; {way}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Times in ms, each the median of ``runs`` runs."""

    build_ms: float
    solve_ms: float
    check_ms: float
    total_ms: float
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Times):
    """Result of one case. Fields without a docstring are those of ``Plan``."""

    group: str
    workload: str
    failure: str
    max_subflows: int
    flows: int
    variables: int
    """Number of variables: pairs of a class and a path, where each link out of the source's leaf counts as one path."""
    slowdown: float
    mean_slowdown: float
    bound: float
    closed_form: float | None
    """Smallest possible worst slowdown, where a formula is known (function ``closed_form``); None elsewhere."""
    certificate: str
    solver: str
    subflows: float
    """Mean number of subflows of the routed flows."""
    most_subflows: int
    """Largest number of subflows of any routed flow."""

    @property
    def proven(self) -> bool:
        """Whether all slowdowns, as a sorted vector, are proven to be the smallest possible."""
        return self.certificate == "optimal"

    @property
    def splits(self) -> bool:
        return self.max_subflows > 1


@dataclass(frozen=True, slots=True)
class Timed:
    """Result of several runs. ``problem`` and ``answer`` are those of the first run."""

    problem: Problem
    answer: Plan | NoPlan
    times: Times


def cases(settings: Sequence[Setting], failures: Sequence[str]) -> list[Case]:
    """Return the cases, each with whole flows and with split flows."""
    return [
        Case(setting, failure, max_subflows)
        for setting in settings
        for failure in setting.failures
        if failure in failures
        for max_subflows in (1, FAILURES[failure].max_subflows)
    ]


def measure(case: Case, limits: PlanLimits) -> Row:
    """Return the measurements of one case. Raises ``SignalboxError`` when there is no plan."""
    setting, failure = case.setting, FAILURES[case.failure]
    fabric = failed(setting, failure)
    jobs = with_subflows(setting.jobs, case.max_subflows)
    timed = timed_runs(lambda: problem_of(fabric, jobs), plan, limits, RUNS)
    answer = _found(timed.answer)
    slowdowns = answer.sorted_slowdowns
    routed = max(1, len(answer.routes))
    return Row(
        group=setting.group,
        workload=setting.name,
        failure=case.failure,
        max_subflows=case.max_subflows,
        flows=len(timed.problem.flows),
        variables=variables(timed.problem),
        slowdown=answer.max_slowdown,
        mean_slowdown=fmean(slowdowns) if slowdowns else 1.0,
        bound=answer.bound,
        closed_form=closed_form(timed.problem, setting, failure, case.max_subflows > 1),
        certificate=answer.certificate,
        solver=answer.solver,
        subflows=answer.subflows / routed,
        most_subflows=max(map(len, answer.routes.values()), default=0),
        **asdict(timed.times),
    )


def timed_runs(
    make: Callable[[], Problem],
    scheme: Callable[[Problem, PlanLimits], Plan | NoPlan],
    limits: PlanLimits,
    runs: Runs,
) -> Timed:
    """Run a planner several times, each time on a new problem made by ``make``."""
    began = time.perf_counter()
    problem, first = _run(make, scheme, limits)
    answers = [first]
    if time.perf_counter() - began < runs.budget_s:
        answers.clear()
    while len(answers) < runs.most and (not answers or time.perf_counter() - began < runs.budget_s):
        answers.append(_run(make, scheme, limits)[1])
    plans = [answer.times for answer in answers if isinstance(answer, Plan)]
    medians = Times(
        build_ms=median([of.build_ms for of in plans] or [0.0]),
        solve_ms=median([of.solve_ms for of in plans] or [0.0]),
        check_ms=median([of.check_ms for of in plans] or [0.0]),
        total_ms=median([of.total_ms for of in plans] or [0.0]),
        runs=len(answers),
    )
    return Timed(problem, first, medians)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Exclude all existing objects from garbage collection while the block runs.

    Otherwise the first full collection would add 40 to 60 ms to a measurement."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def variables(problem: Problem) -> int:
    """Return the number of variables, as in ``Row``."""
    classes = {
        (flow.job_id, flow.demand_bps, flow.src_leaf, flow.dst_leaf, flow.max_subflows)
        for flow in problem.flows
        if flow.src_leaf != flow.dst_leaf
    }
    return sum(len(problem.paths.links_from(src)) for _, _, src, _, _ in classes)


def closed_form(problem: Problem, setting: Setting, failure: Failure, split: bool) -> float | None:
    """Return the smallest possible worst slowdown on an even leaf-spine; None for other settings.

    If S spines are left, and the fullest leaf sends or receives D flows, it is max(1, ceil(D/S)) for whole flows and
    max(1, D/S) for split flows. No routing is better by the pigeonhole principle. ``controller.planning.closed_forms``
    has routings that are as good: by König's theorem for whole flows, by interval cutting for split flows."""
    if not setting.even or failure.cables or failure.of_one_job:
        return None
    crossing = [flow for flow in problem.flows if flow.src_leaf != flow.dst_leaf]
    most = max([*Counter(f.src_leaf for f in crossing).values(), *Counter(f.dst_leaf for f in crossing).values()])
    spines = len(problem.paths.links_from(crossing[0].src_leaf))
    return max(1.0, most / spines if split else math.ceil(most / spines - _ROUNDING))


def _run(
    make: Callable[[], Problem], scheme: Callable[[Problem, PlanLimits], Plan | NoPlan], limits: PlanLimits
) -> tuple[Problem, Plan | NoPlan]:
    problem = make()
    gc.collect()
    gc.freeze()
    return problem, scheme(problem, limits)


Change = Literal["cable fails", "job leaves"]
MAX_SUBFLOWS: Mapping[Change, int] = {"cable fails": 8, "job leaves": 2}
"""Number of subflows that split flows may have, by change."""
_MOST_VARIABLES = 5_000
"""Number of variables up to which the solver tries to prove the fewest moves."""
_SMALL = 4
_SMALL_SEEDS = 3


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """Cost of one change for a running network. Times are medians in ms."""

    group: str
    workload: str
    change: Change
    max_subflows: int
    displaced: int
    """Number of flows that lost their path. Their new paths do not count as moves."""
    repair_slowdown: float
    """Worst slowdown after the repair, which gives other paths only to the displaced flows."""
    repair_ms: float
    slowdown: float
    bound: float
    certificate: str
    moves: int
    """Number of flows that the plan moves from their path after the repair."""
    fewest: bool
    """Whether ``moves`` is proven to be the fewest for the plan's slowdowns."""
    total_ms: float
    scratch_slowdown: float
    """Worst slowdown of a plan made without the present routes."""
    scratch_moves: int
    """Number of flows that a plan made without the present routes would move."""


def small_settings() -> list[Setting]:
    """Return settings so small that fewest moves can be proven: the demo's fabric, and one with twice the leaves."""
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
    """Measure one change. ``split``: whether flows may have ``MAX_SUBFLOWS`` subflows.

    Raises ``SignalboxError`` when there is no plan before or after the change."""
    max_subflows = MAX_SUBFLOWS[change] if split else 1
    jobs = with_subflows(setting.jobs, max_subflows)
    before = _plan(problem_of(setting.fabric, jobs), limits)
    fabric, left = _after(setting, jobs, before.routes, change)
    stayed = {pair for job in left for pair in job.pairs}
    routes = {flow: route for flow, route in before.routes.items() if flow.pair in stayed}
    repaired = timed_runs(lambda: problem_of(fabric, left, routes), lambda problem, _: repair(problem), limits, RUNS)
    patched = _found(repaired.answer)
    timed = timed_runs(lambda: problem_of(fabric, left, patched.routes), plan, limits, RUNS)
    answer = _found(timed.answer)
    scratch = _plan(problem_of(fabric, left), limits)
    return ChangeRow(
        group=setting.group,
        workload=setting.name,
        change=change,
        max_subflows=max_subflows,
        displaced=sum(not repaired.problem.is_in_force(flow) for flow in repaired.problem.flows),
        repair_slowdown=patched.max_slowdown,
        repair_ms=repaired.times.total_ms,
        slowdown=answer.max_slowdown,
        bound=answer.bound,
        certificate=answer.certificate,
        moves=answer.moves,
        fewest=is_fewest(timed.problem, answer, limits),
        total_ms=timed.times.total_ms,
        scratch_slowdown=scratch.max_slowdown,
        scratch_moves=sum(scratch.routes[flow] != route for flow, route in patched.routes.items()),
    )


def changes_of(setting: Setting) -> Sequence[Change]:
    """Return the changes that are possible. A job can leave only if another one stays."""
    return ("cable fails", "job leaves") if len(setting.jobs) > 1 else ("cable fails",)


def is_fewest(problem: Problem, answer: Plan, limits: PlanLimits) -> bool:
    """Return whether the plan's moves are proven to be the fewest for its slowdowns (see the module)."""
    if not answer.moves:
        return True
    if any(flow.max_subflows > 1 for flow in problem.flows) or variables(problem) > _MOST_VARIABLES:
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
    """Return three jobs that fill nearly all hosts."""
    rings = len(fabric.hosts) // (3 * 2)
    return jobs_of(generate(fabric, jobs=3, ring_size=2, placement=placement, seed=seed, max_rings=rings), fabric)
