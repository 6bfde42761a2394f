"""Output of ``plan-file``: a summary for programs, and the route of every flow as CSV.

In: a ``Scenario``, its ``Problem`` and a checked ``Plan`` for it. Out: plain data and text; both are an interface
(docs/reference/json-output.md).
"""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import fmean
from typing import Any

from controller.offline.scenario import Names
from controller.planning.plan import Plan
from controller.planning.problem import Problem

LEVEL_DIGITS = 12
"""Significant digits of levels in the summary: further ones depend on the order of additions."""
CSV_HEADER = ("flow_id", "job", "src_host", "dst_host", "subflow", "share", "path")


def summary(strategy: str, names: Names, problem: Problem, plan: Plan) -> dict[str, Any]:
    """``flows`` counts all flows of the workload, ``subflows`` the pieces of those that are routed. Levels are those of
    the jobs that have a routed flow; they are 1 when nothing is routed. ``ecmp_level`` is None when the plan has no
    draws."""
    levels = {job: _rounded(level) for job, level in plan.job_level.items()}
    flows = {flow.id: flow for flow in problem.flows}
    ecmp = plan.ecmp
    return {
        "strategy": strategy,
        "flows": len(flows),
        "subflows": plan.subflows,
        "max_subflows_of_a_flow": max(map(len, plan.routes.values()), default=0),
        "max_level": _rounded(plan.max_level),
        "bound": _rounded(plan.fluid_bound),
        "integer_bound": _rounded(plan.integer_bound),
        "gap": round(plan.gap, LEVEL_DIGITS),
        "levels_proven": plan.levels_proven,
        "certificate": plan.certificate,
        "plan_ms": {
            "build": plan.times.build_ms,
            "solve": plan.times.solve_ms,
            "check": plan.times.check_ms,
            "total": plan.times.total_ms,
        },
        "job_level": levels,
        "mean_job_level": _rounded(fmean(levels.values())) if levels else 1.0,
        "max_job_level": _rounded(plan.max_level),
        "ecmp_level": {"mean": _rounded(ecmp.mean), "p95": _rounded(ecmp.p95)} if ecmp else None,
        "unrouted": [names.flow(flows[flow_id]) for flow_id in plan.unrouted],
    }


def write_csv(file: Path, names: Names, problem: Problem, plan: Plan) -> None:
    """A row per piece of every routed flow. ``flow_id`` counts all flows of the workload from 0, in the order of the
    files and their lines; ``share`` is written so that reading it gives the same number. Raises ``OSError``."""
    with file.open("w", newline="", encoding="utf-8") as out:
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(CSV_HEADER)
        for number, flow in enumerate(problem.flows):
            ends = (names.host(flow.id.src_ip), names.host(flow.id.dst_ip))
            for piece, (path, share) in enumerate(plan.routes.get(flow.id, ())):
                rows.writerow((number, flow.job_id, *ends, piece, share, names.path(flow.src_leaf, path)))


def _rounded(level: float) -> float:
    return float(f"{level:.{LEVEL_DIGITS}g}")
