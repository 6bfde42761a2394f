"""How planning time and memory grow with the number of flows, for ``bench plan``: 512 leaves, 128 spines.

In: how many flows. Out: a ``GrowthRow``. Every one is measured in a process of its own, because a process never gives
back what it took at most. Flows are rings over random hosts, a job per 1,000: no two flows are alike.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from controller.errors import SignalboxError
from controller.offline.bench_measure import Runs, timed_runs, undisturbed
from controller.offline.bench_workloads import LINK_BPS, SEED
from controller.offline.fabrics import leaf_spine
from controller.offline.generator import jobs_of, random_flows
from controller.offline.options import problem_of
from controller.planning.plan import NoPlan
from controller.planning.planner import plan
from controller.planning.problem import PlanLimits

LEAVES, SPINES, HOSTS_PER_LEAF = 512, 128, 196
FLOWS = (1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
_FLOWS_PER_JOB = 1_000
_RUNS = Runs(most=3, budget_s=20.0)


@dataclass(frozen=True, slots=True)
class GrowthRow:
    """``peak_mib``: the most memory that the process had, with the fabric and all libraries. Times as in ``Row``."""

    flows: int
    jobs: int
    pieces: int
    level: float
    bound: float
    certificate: str
    levels_proven: int
    subflows: float
    snapshot_ms: float
    build_ms: float
    solve_ms: float
    check_ms: float
    total_ms: float
    runs: int
    peak_mib: float


def grown(flows: int, pieces: int, limits: PlanLimits) -> GrowthRow:
    """Measures in a process of its own. Raises ``SignalboxError`` when there is no plan."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(measure_here, flows, pieces, limits).result()


def measure_here(flows: int, pieces: int, limits: PlanLimits) -> GrowthRow:
    """Measures in this process."""
    fabric = leaf_spine(LEAVES, SPINES, HOSTS_PER_LEAF, LINK_BPS, LINK_BPS)
    count = max(1, flows // _FLOWS_PER_JOB)
    jobs = jobs_of(random_flows(fabric, flows, count, SEED), fabric, pieces)
    with undisturbed():
        timed = timed_runs(lambda: problem_of(fabric, jobs), plan, limits, _RUNS)
    answer = timed.answer
    if isinstance(answer, NoPlan):
        raise SignalboxError(f"no plan for {flows} flows: {answer.reason}")
    return GrowthRow(
        flows=flows,
        jobs=count,
        pieces=pieces,
        level=answer.max_level,
        bound=answer.bound,
        certificate=answer.certificate,
        levels_proven=answer.levels_proven,
        subflows=answer.subflows / flows,
        snapshot_ms=timed.snapshot_ms,
        build_ms=timed.build_ms,
        solve_ms=timed.solve_ms,
        check_ms=timed.check_ms,
        total_ms=timed.total_ms,
        runs=timed.runs,
        peak_mib=peak_mib(),
    )


def peak_mib() -> float:
    """Of this process. Not ``ru_maxrss``, which a process inherits from the one that started it."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    kib = next(line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(kib) / 1024
