"""Benchmark ``plan``: times of planning, and slowdowns compared with proven bounds and published schemes.

It needs no network and no root. The input is a folder of published workloads, and options that select cases. The
output is tables or, with ``--json``, all measurements; ``plan.json`` is always written. Module ``workloads`` has the
cases.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.measures import Row, report
from benchmarks.plan.changes import Change, changed, changes_of, small_settings
from benchmarks.plan.measure import Case, cases, measure, undisturbed
from benchmarks.plan.results import Results, change_lines, plan_lines, targets
from benchmarks.plan.workloads import FAILURES, GENERATED, Setting, Workloads, few, workloads
from controller.planning.problem import PlanLimits
from offline.schemes import SCHEMES
from signalbox.commands.output import AsJson

SAVED_EVERY_S = 10.0
QUICK_SCHEMES = ("planned", "ecmp", "greedy")
QUICK_FAILURES = ("none", "4-spines", "40-cables")
"""Failures that ``--quick`` measures; ``QUICK_SCHEMES`` are its schemes."""
MOST_CHANGED = 10
"""Number of generated workloads whose changes are measured."""

Step = tuple[str, Callable[[], None]]


def main(
    folder: Annotated[
        Path | None,
        typer.Option("--workloads", metavar="DIR", help="Folder of published workloads, with folders of job files."),
    ] = None,
    schemes: Annotated[str, typer.Option(metavar="NAME,…", help="Schemes to measure.", show_default="all")] = "",
    failures: Annotated[str, typer.Option(metavar="NAME,…", help="Failures to measure.", show_default="all")] = "",
    generated: Annotated[bool, typer.Option(help="Add 50 generated workloads, half of them fragmented.")] = True,
    irregular: Annotated[bool, typer.Option(help="Add unequal sizes and rates, parallel cables, a fat-tree.")] = True,
    changes: Annotated[bool, typer.Option(help="Add a cable that fails and a job that leaves.")] = True,
    quick: Annotated[
        bool, typer.Option("--quick", metavar="", help="Measure a workload of each kind, in less than a minute.")
    ] = False,
    time_limit: Annotated[float, typer.Option(min=0.01, metavar="S", help="Seconds that the solver may take.")] = 2.0,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Directory for the results.")] = Path("out/bench"),
    as_json: AsJson = False,
) -> None:
    """Plan every workload under every scheme and failure: slowdowns and what is proven, subflows, times, moves."""
    measured = _chosen("--schemes", schemes, SCHEMES, QUICK_SCHEMES if quick else SCHEMES)
    breaks = _chosen("--failures", failures, FAILURES, QUICK_FAILURES if quick else FAILURES)
    found = workloads(folder, GENERATED if generated else 0, irregular)
    found = few(found) if quick else found
    limits = PlanLimits(time_limit_s=time_limit)
    parts = {"generated": generated, "irregular": irregular, "changes": changes, "quick": quick}
    results = Results({"schemes": measured, "failures": breaks, **parts, "time_limit_s": time_limit})
    steps = [
        *_plans(results, (*found.published, *found.irregular), measured, breaks, limits),
        *(_changes(results, found, limits) if changes else ()),
        *_plans(results, found.generated, measured, breaks, limits),
    ]
    with undisturbed():
        _run(steps, results, out / "plan.json")
    report(results.data(), None, as_json, tables_of(results), f"written: {out / 'plan.json'}")


def _chosen(option: str, text: str, known: Iterable[str], default: Iterable[str]) -> list[str]:
    names = [name.strip() for name in text.split(",")] if text else list(default)
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"there is no '{name}'; choose from {', '.join(known)}", param_hint=option)
    return list(dict.fromkeys(names))


# ---- the steps


def _plans(
    results: Results, settings: Iterable[Setting], schemes: list[str], failures: list[str], limits: PlanLimits
) -> list[Step]:
    def step(case: Case) -> Step:
        return str(case), lambda: results.add(measure(case, limits))

    return [step(case) for case in cases(tuple(settings), schemes, failures)]


def _changes(results: Results, found: Workloads, limits: PlanLimits) -> list[Step]:
    def step(setting: Setting, change: Change, split: bool) -> Step:
        name = f"{setting.group}, {setting.name}; a {change}{', split' if split else ''}"
        return name, lambda: results.changes.append(changed(setting, change, split, limits))

    settings = (*small_settings(), *found.published, *found.generated[:MOST_CHANGED])
    return [
        step(setting, change, split)
        for setting in settings
        for change in changes_of(setting)
        for split in (False, True)
    ]


def _run(steps: list[Step], results: Results, file: Path) -> None:
    """Run the steps, and save the results every ``SAVED_EVERY_S`` and at the end, even after an exception."""
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    saved = time.monotonic()
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("", total=len(steps))
            for name, step in steps:
                progress.update(task, description=escape(name))
                step()
                progress.advance(task)
                if time.monotonic() - saved > SAVED_EVERY_S:
                    results.save(file)
                    saved = time.monotonic()
        results.finished = True
    finally:
        results.save(file)


def tables_of(results: Results) -> dict[str, Sequence[Row]]:
    """Return the tables of plans, changes and targets."""
    return {
        "worst slowdowns, means over workloads": plan_lines(results.rows, results.missing),
        "changes of a running network": change_lines(results.changes),
        "targets": [asdict(target) for target in targets(results.rows, results.changes)],
    }
