"""Report of ``signalbox design spines`` as plain data, and its answer as files.

The input is a folder of workload files, and the fabric whose node numbers they use. The results are the report
(docs/reference/json-output.md), a graph, and the workload with the host numbers of that graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from controller.public.problems import Fabric, PlanLimits
from offline.design.question import COUNTED
from offline.design.spines import Choice, Family, choices, smallest
from offline.scenarios.graph_file import write_graph
from offline.scenarios.workloads import Numbering, lines_in, read_workload, write_workload


def spines_report(
    workload: Path,
    numbered: Fabric,
    there: Family,
    tried: Iterable[int],
    uplinks_gbps: Sequence[float],
    failures: int,
    goal: float,
    max_subflows: int,
) -> dict[str, Any]:
    """Return the report; ``answer`` is None when no choice is enough. Raises ``InvalidInput``, ``OSError``."""
    jobs = read_workload(workload, numbered, max_subflows)
    found = choices(there, jobs, tried, uplinks_gbps, failures)
    answer = smallest(there, jobs, found, failures, goal, PlanLimits(ecmp_draws=0))
    return {
        "fabric": there.kind.value,
        "failing": there.failing,
        "failures": failures,
        "max_slowdown": goal,
        "choices": [_row(there, each) for each in found],
        "answer": answer and _row(there, answer[0]) | {"planned": answer[1].max_slowdown, "bound": answer[1].bound},
    }


def _row(there: Family, choice: Choice) -> dict[str, Any]:
    row = asdict(choice)
    return {COUNTED[there.kind]: row.pop("count"), **row}


def exported(folder: Path, workload: Path, numbered: Fabric, there: Family, answer: Mapping[str, Any]) -> None:
    """Write ``fabric.json`` and the folder ``workload`` to ``folder``.

    Raises ``InvalidInput`` when the folder holds files of other jobs, and ``OSError``."""
    topology = there.topology(answer[COUNTED[there.kind]], answer["uplink_gbps"])
    lines = lines_in(workload, Numbering(numbered))
    shift = len(topology.switches) - len(numbered.switches)
    shifted = {
        job: [line._replace(src=line.src + shift, dst=line.dst + shift) for line in of_job]
        for job, of_job in lines.items()
    }
    write_workload(folder / "workload", shifted)
    write_graph(folder / "fabric.json", topology)
