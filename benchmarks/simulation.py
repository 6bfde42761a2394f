"""Benchmark ``simulation``: slowdown of training under every scheme, beside the published values (arXiv 2503.05324).

The input is a folder of published workloads. The table has, for each scheme and number of failed spines, the mean
slowdown over the workloads, the slowdown of the worst workload in brackets, and the published mean.

``out/bench/simulation.json`` has a cell for each scheme, workload and number of failed spines. A run replaces the cells
that it computes and keeps all others, so that a long table can be made in parts.
"""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.progress import track

from benchmarks.measures import Row, report
from controller.fabric.topology import Fabric
from controller.planning.bounds import slowdown_bounds
from controller.planning.problem import PlanLimits, Problem
from offline.scenarios.fabrics import leaf_spine, spine_links, without
from offline.scenarios.scenario import problem_of
from offline.scenarios.workloads import WorkloadJob, read_workload, workload_folders
from offline.schemes import SCHEMES
from offline.simulator.options import Options, Replan
from offline.simulator.training import Outcome, Stage, simulate
from signalbox.jobs.spec import Striping

LEAVES, SPINES, HOSTS_PER_LEAF = 64, 32, 32
"""Size of the fabric for which the published workloads are made."""
LINK_BPS = 100e9
FAILED = (0, 1, 4, 8)
"""Numbers of failed spines. The spines with the highest numbers fail before a run begins."""
ITERATIONS = 11
"""Number of iterations of each job, as in the published simulator."""
TIME_LIMIT_S = 60.0
"""Time limit of a plan in seconds. The published integer program had none."""
RESULTS = Path("out/bench/simulation.json")

Cell = dict[str, Any]


class Trial(NamedTuple):
    """Scheme, and how the simulated controller and senders behave."""

    scheme: str
    """Scheme, by its name in ``SCHEMES``."""
    replan: Replan = Replan.PUBLISHED
    lose_sent: bool = False
    max_subflows: int = 1


TRIALS: Mapping[str, Trial] = {
    "ecmp": Trial("ecmp"),
    "annealing": Trial("annealing", lose_sent=True),
    "ilp": Trial("ilp", lose_sent=True),
    "greedy": Trial("greedy"),
    "edge-coloring": Trial("edge-coloring"),
    "planned whole": Trial("planned", Replan.HYSTERESIS),
    "planned split": Trial("planned", Replan.HYSTERESIS, max_subflows=2),
}
"""Trials by name. The first five trials are as published, the other trials as the controller plans."""

PUBLISHED: Mapping[str, Mapping[int, float]] = {
    "ecmp": {0: 4.54, 1: 4.59, 4: 4.91, 8: 4.94},
    "annealing": {0: 3.82, 1: 4.00, 4: 4.36, 8: 4.58},
    "ilp": {0: 1.011, 1: 1.95, 4: 2.07, 8: 2.13},
    "greedy": {0: 1.134, 1: 1.90, 4: 1.90, 8: 1.96},
    "edge-coloring": {0: 1.000, 1: 1.86, 4: 1.93, 8: 1.97},
}
"""Mean slowdown over the nine workloads in the authors' simulator, by scheme and number of failed spines."""


def run(trial: Trial, folder: Path, intact: Fabric, failed: int, iterations: int) -> Cell:
    """Simulate one workload in one trial, and return its cell."""
    fabric = without(intact, spine_links(intact, range(SPINES - failed, SPINES))) if failed else intact
    jobs = read_workload(folder, intact, trial.max_subflows, Striping.PACED)
    problem = problem_of(fabric, jobs)
    started = time.perf_counter()
    outcome = _train(trial, problem, jobs, iterations)
    if outcome.mean_slowdown is None:
        raise RuntimeError("no job could train: the failures leave some pair of hosts without a path")
    return {
        "failed_spines": failed,
        "iterations": iterations,
        "slowdown": outcome.mean_slowdown,
        "job_slowdown": {job.job_id: job.mean_slowdown for job in outcome.jobs},
        "bound": slowdown_bounds(problem).fluid,
        "plans": outcome.plans,
        "adopted": outcome.adopted,
        "moves": outcome.moves,
        "run_s": time.perf_counter() - started,
    }


def _train(trial: Trial, problem: Problem, jobs: Sequence[WorkloadJob], iterations: int) -> Outcome:
    limits = PlanLimits(time_limit_s=TIME_LIMIT_S, ecmp_draws=0)
    options = Options(iterations=iterations, replan=trial.replan, lose_sent=trial.lose_sent)
    plan = SCHEMES[trial.scheme]
    return simulate([Stage(0.0, problem)], jobs, lambda asked: plan(asked, limits), options)


def summary(cells: Sequence[Cell]) -> list[Row]:
    """Return a row for each scheme, with the mean and the worst slowdown over the workloads, and the published mean."""
    rows = []
    for name in TRIALS:
        of = {
            failed: [cell for cell in cells if (cell["scheme"], cell["failed_spines"]) == (name, failed)]
            for failed in FAILED
        }
        if any(of.values()):
            rows.append({"scheme": name, **{f"{n} failed": _figures(name, n, found) for n, found in of.items()}})
    bounds = [{cell["workload"]: cell["bound"] for cell in cells if cell["failed_spines"] == n} for n in FAILED]
    texts = (f"{fmean(of.values()):.3f} ({max(of.values()):.3f})" if of else "" for of in bounds)
    return [*rows, {"scheme": "bound", **{f"{n} failed": text for n, text in zip(FAILED, texts, strict=True)}}]


def by_workload(cells: Sequence[Cell]) -> list[Row]:
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for cell in cells:
        names = ("workload", "failed_spines", "bound")
        row = rows.setdefault((cell["workload"], cell["failed_spines"]), {name: cell[name] for name in names})
        row[cell["scheme"]] = cell["slowdown"]
    return [rows[place] for place in sorted(rows)]


def _figures(name: str, failed: int, cells: Sequence[Cell]) -> str:
    if not cells:
        return ""
    figures = [cell["slowdown"] for cell in cells]
    ours = f"{fmean(figures):.3f} ({max(figures):.3f})"
    published = PUBLISHED.get(name, {}).get(failed)
    return f"{ours}; {published:.3f} {fmean(figures) / published - 1:+.0%}" if published else ours


def _key(cell: Cell) -> tuple[str, str, int]:
    return cell["scheme"], cell["workload"], cell["failed_spines"]


def _kept() -> list[Cell]:
    return json.loads(RESULTS.read_text())["cells"] if RESULTS.exists() else []


def main(
    folder: Annotated[
        Path, typer.Option("--workloads", help="Folder of published workloads.", exists=True, file_okay=False)
    ],
    schemes: Annotated[str, typer.Option(help="Names of schemes, separated by ';'.")] = ";".join(TRIALS),
    failed: Annotated[str, typer.Option(help="Numbers of failed spines.")] = ",".join(map(str, FAILED)),
    iterations: Annotated[int, typer.Option(min=1, help="Number of iterations of every job.")] = ITERATIONS,
) -> None:
    """Train every workload under every scheme, with every number of failed spines."""
    intact = leaf_spine(LEAVES, SPINES, HOSTS_PER_LEAF, LINK_BPS, LINK_BPS)
    places = [
        (name, workload, number)
        for name in schemes.split(";")
        for number in map(int, failed.split(","))
        for workload in workload_folders(folder)
    ]
    made = [
        {"scheme": name, "workload": str(workload.relative_to(folder))}
        | run(TRIALS[name], workload, intact, number, iterations)
        for name, workload, number in track(places, "training", console=Console(stderr=True), transient=True)
    ]
    cells = sorted({_key(cell): cell for cell in (*_kept(), *made)}.values(), key=_key)
    tables = {
        "slowdown, mean of workloads (worst); published mean": summary(cells),
        "slowdown, mean of jobs": by_workload(cells),
    }
    report({"cells": cells}, RESULTS, tables)
