"""Number of spines that the published evaluation's fabric needs for its own workloads when one spine may fail.

The input is the folder of the workloads of arXiv 2503.05324. For each workload, number of subflows and goal the result
is the fewest spines for which the planner's routes reach the goal.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.simulation import HOSTS_PER_LEAF, LEAVES, SPINES
from controller.planning.problem import PlanLimits
from offline.design.spines import Leaves, choices, smallest
from offline.scenarios.workloads import read_workload, workload_folders

LINK_GBPS = 100.0
TRIED = range(16, 37)
MAX_SUBFLOWS = (1, 2)
GOALS = (1.0, 1.05)
FAILURES = 1


def rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the answers for each workload and number of subflows.

    - ``bound_at_published``: lower bound of the slowdown with the published number of spines, one of them failed.
    - ``goals``: by goal, the number of spines and the slowdown that the planner reaches; None when no number in
      ``TRIED`` suffices."""
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
