"""A question of ``spines`` from files to plain data for programs, and its answer as files.

In: a folder of workload files, whose hosts are numbered after so many spines. Out: the report
(docs/reference/json-output.md); a graph, and the workload with the hosts' numbers in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from controller.design.spines import Leaves, choices, smallest
from controller.planning.problem import PlanLimits
from controller.scenarios.graph_file import write_graph
from controller.scenarios.workloads import Numbering, lines_in, read_workload, write_workload


def spines_report(
    workload: Path,
    there: Leaves,
    files_spines: int,
    tried: Iterable[int],
    uplinks_gbps: Sequence[float],
    failures: int,
    goal: float,
    max_subflows: int,
) -> dict[str, Any]:
    """``answer`` is None when no choice is enough. Raises ``InvalidInput``, ``OSError``."""
    jobs = read_workload(workload, there.fabric(files_spines, there.link_gbps), max_subflows)
    found = choices(there, jobs, tried, uplinks_gbps, failures)
    answer = smallest(there, jobs, found, failures, goal, PlanLimits(ecmp_draws=0))
    return {
        "failures": failures,
        "slow_down": goal,
        "choices": [asdict(each) | {"capacity_gbps": each.capacity_gbps} for each in found],
        "answer": answer and asdict(answer[0]) | {"planned": answer[1].max_level, "bound": answer[1].bound},
    }


def exported(folder: Path, workload: Path, there: Leaves, files_spines: int, answer: Mapping[str, Any]) -> None:
    """``fabric.json`` and the folder ``workload`` in ``folder``. Raises ``OSError``."""
    lines = lines_in(workload, Numbering(there.fabric(files_spines, there.link_gbps)))
    shift = answer["spines"] - files_spines
    shifted = {
        job: [line._replace(src=line.src + shift, dst=line.dst + shift) for line in of_job]
        for job, of_job in lines.items()
    }
    write_workload(folder / "workload", shifted)
    write_graph(folder / "fabric.json", there.topology(answer["spines"], answer["uplink_gbps"]))
