"""Measures single plans: the levels a strategy reaches on a setting with a failure, and the time it takes.

In: a ``Case``. Out: a ``Row``, or ``Missing`` when the strategy gave no plan.

Times are the planner's own, from a ``Problem`` to a checked plan: medians of several runs after a first one that is not
counted, as far as the time for a case allows. Every run gets a new problem, so that nothing is reused. ECMP is drawn in
the first run only, and only for ``planned`` and ``ecmp``; the times do not include it.
"""

from __future__ import annotations

import gc
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from statistics import fmean, median

from benchmarks.plan.workloads import FAILURES, Failure, Setting, failed, in_pieces
from controller.planning.plan import NoPlan, Plan
from controller.planning.problem import PlanLimits, Problem
from offline.scenarios.scenario import problem_of
from offline.schemes import SCHEMES

PLANNED = "planned"
"""The strategy that can split, and the one that targets are for."""
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Runs:
    """``most``: timed runs after the first. ``budget_s``: no further one begins after so many seconds; a first run that
    takes longer is the only one."""

    most: int
    budget_s: float


OF_PLANNED = Runs(most=5, budget_s=0.7)
OF_OTHERS = Runs(most=1, budget_s=0.3)
"""For the published schemes, whose times are not compared."""


@dataclass(frozen=True, slots=True)
class Case:
    """``pieces``: of a flow, 1 for whole ones."""

    setting: Setting
    failure: str
    strategy: str
    pieces: int

    @property
    def runs(self) -> Runs:
        return OF_PLANNED if self.strategy == PLANNED else OF_OTHERS

    def __str__(self) -> str:
        way = f"{self.strategy}, up to {self.pieces} pieces" if self.pieces > 1 else self.strategy
        return f"{self.setting.group}, {self.setting.name}; failed: {self.failure}; {way}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """In ms, medians of ``runs``. ``snapshot_ms``: from the fabric and the jobs to the problem, not in ``total_ms``."""

    snapshot_ms: float
    build_ms: float
    solve_ms: float
    check_ms: float
    total_ms: float
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Times):
    """``classes``: of interchangeable flows that cross the fabric; ``variables``: about how many class x path pairs.

    ``closed_form``: the best worst level where it is known without any planner, max(1, ceil(D/S)) for whole flows and
    max(1, D/S) for split ones; None elsewhere. ``subflows``, ``most_subflows``: pieces per routed flow, mean and
    largest. ``bound``, ``fluid_bound``, ``integer_bound``, ``certificate``, ``levels_proven``: see ``Plan``.
    ``ecmp_*``: the worst level under hashing.
    """

    group: str
    workload: str
    failure: str
    failed_spines: int
    strategy: str
    pieces: int
    jobs: int
    flows: int
    classes: int
    variables: int
    level: float
    mean_level: float
    bound: float
    fluid_bound: float
    integer_bound: float
    closed_form: float | None
    certificate: str
    levels_proven: int
    solver: str
    subflows: float
    most_subflows: int
    unrouted: int
    ecmp_mean: float | None
    ecmp_p95: float | None

    @property
    def gap(self) -> float:
        return max(0.0, self.level / self.bound - 1)

    @property
    def proven(self) -> bool:
        """The whole sorted vector of levels."""
        return self.certificate == "optimal"

    @property
    def splits(self) -> bool:
        return self.pieces > 1


@dataclass(frozen=True, slots=True)
class Missing:
    """A case without a plan, and why."""

    group: str
    workload: str
    failure: str
    strategy: str
    pieces: int
    reason: str


@dataclass(frozen=True, slots=True)
class Timed:
    """``problem`` and ``answer``: of the first run."""

    problem: Problem
    answer: Plan | NoPlan
    times: Times


def cases(settings: Sequence[Setting], strategies: Sequence[str], failures: Sequence[str]) -> list[Case]:
    """All strategies keep flows whole; ``planned`` splits them too."""
    return [
        Case(setting, failure, strategy, pieces)
        for setting in settings
        for failure in setting.failures
        if failure in failures
        for strategy in strategies
        for pieces in ((1, FAILURES[failure].pieces) if strategy == PLANNED else (1,))
    ]


def measure(case: Case, limits: PlanLimits) -> Row | Missing:
    setting, failure = case.setting, FAILURES[case.failure]
    if case.strategy not in (PLANNED, "ecmp") or case.pieces > 1:
        limits = replace(limits, ecmp_draws=0)
    fabric = failed(setting, failure)
    jobs = in_pieces(setting.jobs, case.pieces)
    timed = timed_runs(lambda: problem_of(fabric, jobs), SCHEMES[case.strategy], limits, case.runs)
    answer = timed.answer
    if isinstance(answer, NoPlan):
        return Missing(setting.group, setting.name, case.failure, case.strategy, case.pieces, answer.reason)
    levels = answer.sorted_levels
    routed = max(1, len(answer.routes))
    classes, variables = sizes(timed.problem)
    return Row(
        group=setting.group,
        workload=setting.name,
        failure=case.failure,
        failed_spines=failure.spines,
        strategy=case.strategy,
        pieces=case.pieces,
        jobs=len(jobs),
        flows=len(timed.problem.flows),
        classes=classes,
        variables=variables,
        level=answer.max_level,
        mean_level=fmean(levels) if levels else 1.0,
        bound=answer.bound,
        fluid_bound=answer.fluid_bound,
        integer_bound=answer.integer_bound,
        closed_form=closed_form(timed.problem, setting, failure, case.pieces > 1),
        certificate=answer.certificate,
        levels_proven=answer.levels_proven,
        solver=answer.solver,
        subflows=answer.subflows / routed,
        most_subflows=max(map(len, answer.routes.values()), default=0),
        unrouted=len(answer.unrouted),
        ecmp_mean=answer.ecmp.mean if answer.ecmp else None,
        ecmp_p95=answer.ecmp.p95 if answer.ecmp else None,
        **asdict(timed.times),
    )


def timed_runs(
    make: Callable[[], Problem],
    strategy: Callable[[Problem, PlanLimits], Plan | NoPlan],
    limits: PlanLimits,
    runs: Runs,
) -> Timed:
    """Every run gets a problem from ``make``."""
    began = time.perf_counter()
    problem, first, snapshot_ms = _run(make, strategy, limits)
    times = [(snapshot_ms, first)]
    quiet = replace(limits, ecmp_draws=0)
    if time.perf_counter() - began < runs.budget_s:
        times.clear()
    while len(times) < runs.most and (not times or time.perf_counter() - began < runs.budget_s):
        _, answer, snapshot_ms = _run(make, strategy, quiet)
        times.append((snapshot_ms, answer))
    plans = [answer.times for _, answer in times if isinstance(answer, Plan)]
    medians = Times(
        snapshot_ms=median(ms for ms, _ in times),
        build_ms=median([of.build_ms for of in plans] or [0.0]),
        solve_ms=median([of.solve_ms for of in plans] or [0.0]),
        check_ms=median([of.check_ms for of in plans] or [0.0]),
        total_ms=median([of.total_ms for of in plans] or [0.0]),
        runs=len(times),
    )
    return Timed(problem, first, medians)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Excludes all present objects from garbage collection, whose first full run would add 40 to 60 ms to some
    measurement."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def sizes(problem: Problem) -> tuple[int, int]:
    """(classes, class x path pairs), counting a path per link out of the source's leaf."""
    classes = {
        (flow.job_id, flow.demand_bps, flow.src_leaf, flow.dst_leaf, flow.max_subflows)
        for flow in problem.flows
        if flow.src_leaf != flow.dst_leaf
    }
    return len(classes), sum(len(problem.paths.links_from(src)) for _, _, src, _, _ in classes)


def closed_form(problem: Problem, setting: Setting, failure: Failure, split: bool) -> float | None:
    """The best worst level on an even leaf-spine with S spines left whose fullest leaf has D flows out or in
    (docs/explanation/planning.md: pigeonhole and König for whole flows, intervals of a colouring for split ones)."""
    if not setting.even or failure.cables or failure.of_one_job:
        return None
    crossing = [flow for flow in problem.flows if flow.src_leaf != flow.dst_leaf]
    most = max([*Counter(f.src_leaf for f in crossing).values(), *Counter(f.dst_leaf for f in crossing).values()])
    spines = len(problem.paths.links_from(crossing[0].src_leaf))
    return max(1.0, most / spines if split else math.ceil(most / spines - _ROUNDING))


def _run(
    make: Callable[[], Problem], strategy: Callable[[Problem, PlanLimits], Plan | NoPlan], limits: PlanLimits
) -> tuple[Problem, Plan | NoPlan, float]:
    began = time.perf_counter()
    problem = make()
    snapshot_ms = 1000 * (time.perf_counter() - began)
    gc.collect()
    gc.freeze()
    return problem, strategy(problem, limits), snapshot_ms
