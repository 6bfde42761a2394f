"""Benchmark ``design``: speed and quality of the offline designs, for two kinds of questions.

- LIBRA's public workloads: the best division of 500 GB/s per NPU among dimensions, compared with an equal division.
- With ``--workloads``, the fabric of the published evaluation (arXiv 2503.05324): the smallest number of spines with
  which the planner still reaches a goal for the slowdown when one spine has failed.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from benchmarks.design.libra import GBPS, TOTAL, LibraCase, cases
from benchmarks.measures import report
from benchmarks.simulation import HOSTS_PER_LEAF, LEAVES, SPINES
from controller.planning.problem import PlanLimits
from offline.design.bandwidth import fastest
from offline.design.question import Objective
from offline.design.spines import Leaves, choices, smallest
from offline.design.time_cost import best_product
from offline.scenarios.workloads import read_workload, workload_folders

LINK_GBPS = 100.0
TRIED = range(16, 37)
MAX_SUBFLOWS = (1, 2)
GOALS = (1.0, 1.05)
FAILURES = 1


def rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield, for each workload and largest number of subflows, how many spines are needed.

    - ``bound_at_published``: lower bound of the slowdown with as many spines as published, one of them failed.
    - ``goals``: for each goal, the smallest number of spines that reaches it, and the planner's slowdown with them;
      None if no number in ``TRIED`` suffices."""
    there = Leaves(LEAVES, HOSTS_PER_LEAF, LINK_GBPS)
    numbered = there.fabric(SPINES, LINK_GBPS)
    for workload in workload_folders(folder):
        for max_subflows in MAX_SUBFLOWS:
            jobs = read_workload(workload, numbered, max_subflows)
            found = choices(there, jobs, TRIED, [LINK_GBPS], FAILURES)
            answers = {goal: smallest(there, jobs, found, FAILURES, goal, PlanLimits(ecmp_draws=0)) for goal in GOALS}
            yield {
                "workload": str(workload.relative_to(folder)),
                "max_subflows": max_subflows,
                "bound_at_published": next(each.failed for each in found if each.count == SPINES),
                "goals": {
                    goal: answer and (answer[0].count, answer[1].max_slowdown) for goal, answer in answers.items()
                },
            }


RESULTS = Path("out/bench/design.json")
TIMES = 5
"""Number of runs of each question; the reported duration is the median."""

Row = dict[str, Any]


def libra_row(case: LibraCase, objective: Objective) -> Row:
    """Return the answer to one of LIBRA's cases.

    ``gbps``: bandwidths in GB/s, LIBRA's unit. ``equal_split``: how many times larger the objective is with equal
    bandwidths. The objective is the communication time, or time x cost. ``ms``, ``cpu_ms``: time to solve the case."""
    question = case.question
    equal = (TOTAL / len(question.names),) * len(question.names)
    if objective is Objective.TIME:
        solved_ms, cpu_ms, design = _timed(lambda: fastest(question))
        gap, better = design.gap, case.communication_s(equal) / case.communication_s(design.gbps)
    else:
        solved_ms, cpu_ms, tradeoff = _timed(lambda: best_product(question))
        design, gap = tradeoff.design, tradeoff.gap
        better = question.time_s(equal) * question.limits.cost_of(equal) / tradeoff.product
    return {
        "workload": case.workload,
        "objective": objective.value,
        "gbps": [rate / GBPS for rate in design.gbps],
        "time_s": design.time_s,
        "cost": design.cost,
        "gap": gap,
        "equal_split": better,
        "ms": solved_ms,
        "cpu_ms": cpu_ms,
    }


def _timed(solve: Callable[[], Any]) -> tuple[float, float, Any]:
    """Return the median wall time and the median CPU time of ``solve`` in milliseconds, and its last result."""
    taken = []
    for _ in range(TIMES):
        began, cpu = time.perf_counter(), time.process_time()
        found = solve()
        taken.append(((time.perf_counter() - began) * 1e3, (time.process_time() - cpu) * 1e3))
    wall, busy = (median(each) for each in zip(*taken, strict=True))
    return wall, busy, found


def main(
    libra: Annotated[
        Path, typer.Option(help="Folder inputs of LIBRA's repository.", exists=True, file_okay=False)
    ] = Path("tests/data/libra/inputs"),
    workloads: Annotated[
        Path | None,
        typer.Option(help="Folder of published workloads; the spines that they need are counted.", exists=True),
    ] = None,
) -> None:
    """Design for LIBRA's workloads, and count the spines that published workloads need."""
    found = {
        "libra": [libra_row(case, objective) for objective in Objective for case in cases(libra)],
        "published": [*rows(workloads)] if workloads else [],
    }
    titles = {"libra": "LIBRA's workloads, 500 GB/s", "published": f"spines, of which {FAILURES} may fail"}
    report(found, RESULTS, {title: found[name] for name, title in titles.items()})
