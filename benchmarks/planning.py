"""``make bench``: medians of planning and rule computation on leaf-spine fabrics, without root or network.

In: leaf-spine fabrics with random rings over all hosts, and published workloads when a folder is named. Out: tables for
people and ``out/bench/planning.json``; ``--json`` prints that instead. Limits are the controller's defaults. All links
and NICs have one rate, as in the publications.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.rules import Row, install_and_cut
from controller.config import Config
from controller.fabric.topology import Fabric
from controller.jobs.workload import WorkloadJob
from controller.offline.fabrics import leaf_spine
from controller.offline.generator import jobs_of, random_flows
from controller.offline.workloads import read_workload, workload_folders
from controller.planning.plan import Plan
from controller.planning.planner import plan
from controller.planning.problem import PlanLimits
from controller.planning.snapshot import take_snapshot

RUNS = 3
SEED = 1
LINK_BPS = 100e9
PIPE_COLUMNS = 160
RESULTS = Path("out/bench/planning.json")


class Size(NamedTuple):
    """Of a leaf-spine."""

    leaves: int
    spines: int
    hosts_per_leaf: int

    def __str__(self) -> str:
        return "x".join(map(str, self))


PUBLISHED = Size(64, 32, 32)
"""The fabric that the published workloads are made for (arXiv 2503.05324)."""
SIZES = (Size(4, 4, 4), Size(16, 8, 8), PUBLISHED)


@dataclass(frozen=True, slots=True)
class Case:
    """``rules``: the rules of its plan are measured too."""

    name: str
    fabric: Fabric
    jobs: Sequence[WorkloadJob]
    rules: bool = False


def cases(folder: Path | None) -> Iterator[Case]:
    """The generated cases, then the published ones of ``folder``."""
    for size in SIZES:
        yield random_case(size, 1)
        yield random_case(size, 3, rules=size.leaves > 4)
    if folder:
        fabric = leaf_spine(*PUBLISHED, LINK_BPS, LINK_BPS)
        for below in workload_folders(folder):
            yield Case(str(below.relative_to(folder)), fabric, read_workload(below, fabric))


def random_case(size: Size, jobs: int, rules: bool = False) -> Case:
    """Every host sends to a random other one, each job in one ring."""
    fabric = leaf_spine(*size, LINK_BPS, LINK_BPS)
    flows = random_flows(fabric, len(fabric.hosts), jobs, SEED)
    return Case(f"{size}, {jobs} job{'s' * (jobs > 1)}", fabric, jobs_of(flows, fabric), rules)


def measure_planning(case: Case) -> tuple[Row, Plan]:
    """A plan from scratch, nothing is pinned before. Its figures are those of the last run, the times of the run with
    the median total. Raises ``RuntimeError`` when there is no plan."""
    config = Config().planning
    limits = PlanLimits(time_limit_s=config.time_limit_s, max_moves=config.max_moves, ecmp_draws=config.ecmp_draws)
    snapshots_ms, plans = [], []
    for _ in range(RUNS):
        started = time.perf_counter()
        problem = take_snapshot(1, case.fabric, case.jobs, {}, {}, config.max_paths)
        snapshots_ms.append(1000 * (time.perf_counter() - started))
        answer = plan(problem, limits)
        if not isinstance(answer, Plan):
            raise RuntimeError(f"{case.name}: {answer.reason}")
        plans.append(answer)
    last = plans[-1]
    times = sorted((p.times for p in plans), key=lambda t: t.total_ms)[RUNS // 2]
    return {
        "flows": len(problem.flows),
        "snapshot_ms": median(snapshots_ms),
        **asdict(times),
        "plan_ms": times.total_ms,
        "level": last.max_level,
        "bound": last.bound,
        "certificate": last.certificate,
        "ecmp_mean": last.ecmp.mean if last.ecmp else 0.0,
        "ecmp_p95": last.ecmp.p95 if last.ecmp else 0.0,
    }, last


def measure_rules(case: Case, routed: Plan) -> list[Row]:
    """The times are medians; the counts are the same in every run."""
    runs = zip(*(install_and_cut(case.fabric, case.jobs, routed.routes) for _ in range(RUNS)), strict=True)
    return [
        {key: median(r[key] for r in rows) if key.endswith("_ms") else value for key, value in rows[0].items()}
        for rows in runs
    ]


def _table(title: str, rows: Sequence[Row]) -> Table:
    table = Table(title=title, title_justify="left")
    for column, value in rows[0].items():
        table.add_column(column.replace("_", " "), justify="left" if isinstance(value, str) else "right")
    for row in rows:
        table.add_row(*(f"{v:.2f}" if isinstance(v, float) else str(v) for v in row.values()))
    return table


def main(
    folder: Annotated[
        Path | None,
        typer.Option("--workloads", help="Published workloads: a folder of job files.", exists=True, file_okay=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of tables.")] = False,
) -> None:
    """Measure planning and rule computation."""
    planning: list[Row] = []
    rules: list[Row] = []
    for case in track(list(cases(folder)), "measuring", console=Console(stderr=True), transient=True):
        measured, routed = measure_planning(case)
        planning.append({"case": case.name, **measured})
        if case.rules:
            rules += [{"case": case.name, **change} for change in measure_rules(case, routed)]
    report = json.dumps({"runs": RUNS, "planning": planning, "rules": rules}, indent=2)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(report + "\n")
    if as_json:
        typer.echo(report)
    else:
        console = Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS)
        console.print(_table("planning", planning), _table("rules", rules), f"written to {RESULTS}")


if __name__ == "__main__":
    typer.run(main)
