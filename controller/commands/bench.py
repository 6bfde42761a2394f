"""``bench``: measurements. ``bench fabric`` is in ``bench_fabric``; ``bench plan`` needs no controller, no network.

In: a folder of published workloads, and how much to measure. Out: tables for people or, with ``--json``, everything
that was measured; in any case ``plan.json`` and pictures in a folder. docs/benchmarks.md describes cases and fields.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from controller.commands.bench_fabric import fabric
from controller.commands.output import AsJson, show
from controller.errors import SignalboxError

if TYPE_CHECKING:
    from controller.offline.bench_results import Results
    from controller.offline.bench_workloads import Setting, Workloads
    from controller.planning.problem import PlanLimits

SAVED_EVERY_S = 10.0
QUICK_STRATEGIES = ("planned", "ecmp", "greedy")
QUICK_FAILURES = ("none", "4-spines", "40-cables")
QUICK_FLOWS = (10_000,)
"""What ``--quick`` leaves of it all."""
MOST_CHANGED = 10
"""Generated workloads whose changes are measured."""

bench = typer.Typer(
    help="Measure planning on paper, and the controller on a fabric of real switches.", no_args_is_help=True
)

Step = tuple[str, Callable[[], None]]

bench.command("fabric")(fabric)


@bench.command("plan")
def plan(
    folder: Annotated[
        Path | None,
        typer.Option("--workloads", metavar="DIR", help="Published workloads: a folder with folders of job files."),
    ] = None,
    strategies: Annotated[str, typer.Option(metavar="NAME,…", help="Which schemes.", show_default="all")] = "",
    failures: Annotated[str, typer.Option(metavar="NAME,…", help="Which failures, by name.", show_default="all")] = "",
    generated: Annotated[bool, typer.Option(help="Also 50 generated workloads, half of them fragmented.")] = True,
    irregular: Annotated[bool, typer.Option(help="Also unequal sizes and rates, parallel cables, a fat-tree.")] = True,
    changes: Annotated[bool, typer.Option(help="Also a cable that fails and a job that leaves.")] = True,
    growth: Annotated[bool, typer.Option(help="Also 1,000 to 100,000 flows on 512 leaves and 128 spines.")] = True,
    quick: Annotated[
        bool, typer.Option("--quick", metavar="", help="A workload of each kind, in less than a minute.")
    ] = False,
    time_limit: Annotated[float, typer.Option(min=0.01, metavar="S", help="Seconds that the solver may take.")] = 2.0,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where results go.")] = Path("out/bench"),
    as_json: AsJson = False,
) -> None:
    """Plan every workload under every scheme and failure: levels beside what is proven, pieces, times, moves."""
    # The solver takes half a second to import, which no other command needs.
    from controller.commands.bench_tables import report
    from controller.offline.bench_growth import FLOWS
    from controller.offline.bench_measure import undisturbed
    from controller.offline.bench_results import Results
    from controller.offline.bench_workloads import FAILURES, GENERATED, few, workloads
    from controller.planning.problem import PlanLimits
    from controller.planning.schemes import SCHEMES

    draw = _plots()
    schemes = _chosen("--strategies", strategies, SCHEMES, QUICK_STRATEGIES if quick else SCHEMES)
    breaks = _chosen("--failures", failures, FAILURES, QUICK_FAILURES if quick else FAILURES)
    found = workloads(folder, GENERATED if generated else 0, irregular)
    found = few(found) if quick else found
    limits = PlanLimits(time_limit_s=time_limit)
    parts = {"generated": generated, "irregular": irregular, "changes": changes, "growth": growth, "quick": quick}
    results = Results({"strategies": schemes, "failures": breaks, **parts, "time_limit_s": time_limit})
    steps = [
        *_plans(results, (*found.published, *found.irregular), schemes, breaks, limits),
        *(_changes(results, found, limits) if changes else ()),
        *(_growth(results, QUICK_FLOWS if quick else FLOWS, limits) if growth else ()),
        *_plans(results, found.generated, schemes, breaks, limits),
    ]
    with undisturbed():
        _run(steps, results, out / "plan.json")
    pictures = draw(out, results.rows, results.growth)
    written = ", ".join(map(str, (out / "plan.json", *pictures)))
    show(results.data(), lambda: report(results, written), as_json)


def _plots() -> Callable[..., list[Path]]:
    """Asked for first: nobody wants to learn after half an hour that there will be no pictures."""
    try:
        from controller.offline.bench_plots import draw
    except ModuleNotFoundError as error:
        raise SignalboxError(
            f"pictures need {error.name}, which is not installed: pip install signalbox[bench]"
        ) from None
    return draw


def _chosen(option: str, text: str, known: Iterable[str], default: Iterable[str]) -> list[str]:
    names = [name.strip() for name in text.split(",")] if text else list(default)
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"there is no '{name}'; choose from {', '.join(known)}", param_hint=option)
    return list(dict.fromkeys(names))


# ---- what is to be done, step by step


def _plans(
    results: Results, settings: Iterable[Setting], schemes: list[str], failures: list[str], limits: PlanLimits
) -> list[Step]:
    from controller.offline.bench_measure import Case, cases, measure

    def step(case: Case) -> Step:
        return str(case), lambda: results.add(measure(case, limits))

    return [step(case) for case in cases(tuple(settings), schemes, failures)]


def _changes(results: Results, found: Workloads, limits: PlanLimits) -> list[Step]:
    from controller.offline.bench_changes import Change, changed, changes_of, small_settings

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


def _growth(results: Results, numbers: Iterable[int], limits: PlanLimits) -> list[Step]:
    from controller.offline.bench_growth import grown

    def step(flows: int, pieces: int) -> Step:
        name = f"{flows:,} flows{', split' if pieces > 1 else ''}"
        return name, lambda: results.growth.append(grown(flows, pieces, limits))

    return [step(flows, pieces) for flows in numbers for pieces in (1, 2)]


def _run(steps: list[Step], results: Results, file: Path) -> None:
    """Saves what there is now and then, and whatever ends it."""
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
            for name, measure in steps:
                progress.update(task, description=escape(name))
                measure()
                progress.advance(task)
                if time.monotonic() - saved > SAVED_EVERY_S:
                    results.save(file)
                    saved = time.monotonic()
        results.finished = True
    finally:
        results.save(file)
