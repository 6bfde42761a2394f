"""What jobs get of a planned level when their senders deal bytes in each way (``Dealing``), in the simulator.

In: a folder of published workloads. Out: per number of pieces, dealing and failure the planned levels beside the
slow-downs of training with this one plan; ``out/bench/dealing.json`` has every cell. A run replaces the cells that it
computes and keeps the others, so that a long table can be made in parts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.measures import report
from benchmarks.simulation import HOSTS_PER_LEAF, LEAVES, LINK_BPS, SPINES
from controller.fabric.topology import Fabric
from controller.planning.plan import answered, paths_used
from controller.planning.planner import plan
from controller.planning.problem import PlanLimits
from offline.scenarios.fabrics import leaf_spine, spine_links, without, without_random_links
from offline.scenarios.scenario import problem_of
from offline.scenarios.workloads import read_workload, workload_folders
from offline.simulator.options import Options, Replan
from offline.simulator.training import Stage, simulate
from signalbox.commands.output import AsJson
from signalbox.errors import InvalidInput
from signalbox.jobs.spec import Dealing

PIECES = "2,4,8"
FAILED = "1 spine,4 spines,8 spines,5 cables"
RESULTS = Path("out/bench/dealing.json")

Cell = dict[str, Any]


def run(folder: Path, intact: Fabric, failed: str, pieces: int, dealing: Dealing, iterations: int) -> Cell:
    """One workload, with one plan for all jobs from the start to the end."""
    jobs = read_workload(folder, intact, pieces, dealing)
    problem = problem_of(_broken(intact, failed), jobs)
    began = time.perf_counter()
    planned = answered(plan(problem, PlanLimits(ecmp_draws=0)))
    planned_s = time.perf_counter() - began
    options = Options(iterations=iterations, replan=Replan.NEVER)
    outcome = simulate([Stage(0.0, problem)], jobs, lambda _: planned, options)
    return {
        "failed": failed,
        "pieces": pieces,
        "dealing": dealing.value,
        "level": planned.max_level,
        "levels_proven": planned.levels_proven,
        "paths_per_flow": paths_used(planned.routes) / len({flow.joined for flow in planned.routes}),
        "plan_s": planned_s,
        "slow_down": outcome.mean_slow_down,
        "over_level": max(
            slow_down / planned.job_level[job.job_id] for job in outcome.jobs for slow_down in job.slow_downs
        ),
        "worst": max(slow_down for job in outcome.jobs for slow_down in job.slow_downs),
    }


def _broken(intact: Fabric, failed: str) -> Fabric:
    """Raises ``InvalidInput``."""
    count, _, what = failed.strip().partition(" ")
    if not count.isdigit() or what.rstrip("s") not in ("spine", "cable"):
        raise InvalidInput.of("--failed", f"'{failed}' is neither '4 spines' nor '5 cables' or the like")
    number = int(count)
    if what.startswith("cable"):
        return without_random_links(intact, number, 1)
    return without(intact, spine_links(intact, range(SPINES - number, SPINES)))


def summary(cells: Sequence[Cell]) -> Table:
    """Of all workloads in a cell: the largest planned level, the mean slow-down with the worst iteration of a job in
    brackets, the largest ratio of an iteration's slow-down to the level that was planned for the job, and the mean
    number of paths of a flow."""
    table = Table("failed", "pieces", "dealing", title="planned level and slow-down", title_justify="left")
    for column in ("workloads", "planned", "slow-down (worst)", "over its level", "paths per flow", "planned in s"):
        table.add_column(column, justify="right")
    for key in sorted({_place(cell) for cell in cells}):
        of = [cell for cell in cells if _place(cell) == key]
        slow_down = f"{fmean(cell['slow_down'] for cell in of):.3f} ({max(cell['worst'] for cell in of):.3f})"
        over = f"{max(cell['over_level'] for cell in of) - 1:.1%}"
        level = f"{max(cell['level'] for cell in of):.3f}"
        paths = f"{fmean(cell['paths_per_flow'] for cell in of):.2f}"
        plan_s = f"{max(cell['plan_s'] for cell in of):.2f}"
        table.add_row(*map(str, key), str(len(of)), level, slow_down, over, paths, plan_s)
    return table


def _place(cell: Cell) -> tuple[str, int, str]:
    return cell["failed"], cell["pieces"], cell["dealing"]


def _key(cell: Cell) -> tuple[str, ...]:
    return (*map(str, _place(cell)), cell["workload"])


def _kept() -> list[Cell]:
    return json.loads(RESULTS.read_text())["cells"] if RESULTS.exists() else []


def main(
    folder: Annotated[
        Path, typer.Option("--workloads", help="A folder of published workloads.", exists=True, file_okay=False)
    ],
    pieces: Annotated[str, typer.Option(help="Numbers of pieces.")] = PIECES,
    dealings: Annotated[str, typer.Option(help="How senders deal.")] = ",".join(Dealing),
    failed: Annotated[str, typer.Option(help="What has failed; spines are the highest-numbered.")] = FAILED,
    only: Annotated[str, typer.Option(help="Workloads whose path contains this.")] = "",
    iterations: Annotated[int, typer.Option(min=1, help="Of every job.")] = 3,
    as_json: AsJson = False,
) -> None:
    """Train every workload under one plan, with every dealing, number of pieces and failure."""
    intact = leaf_spine(LEAVES, SPINES, HOSTS_PER_LEAF, LINK_BPS, LINK_BPS)
    places = [
        (workload, what.strip(), number, Dealing(dealing))
        for what in failed.split(",")
        for number in map(int, pieces.split(","))
        for dealing in dealings.split(",")
        for workload in workload_folders(folder)
        if only in str(workload.relative_to(folder))
    ]
    made = [
        {"workload": str(place[0].relative_to(folder))} | run(place[0], intact, *place[1:], iterations)
        for place in track(places, "training", console=Console(stderr=True), transient=True)
    ]
    cells = sorted({_key(cell): cell for cell in (*_kept(), *made)}.values(), key=_key)
    report({"cells": cells}, RESULTS, lambda: summary(cells), as_json)
