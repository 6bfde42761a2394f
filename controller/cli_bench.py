"""``bench``: measurements that need no controller and no network.

``bench plan``. In: a folder of published workloads, and how much to measure. Out: tables for people or, with
``--json``, everything that was measured; in any case ``plan.json`` and pictures in a folder. docs/benchmarks.md
describes cases and fields.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from controller.cli_output import AsJson, show
from controller.errors import SignalboxError

if TYPE_CHECKING:
    from controller.offline.bench_changes import ChangeRow
    from controller.offline.bench_growth import GrowthRow
    from controller.offline.bench_results import Line, Results
    from controller.offline.bench_targets import Target
    from controller.offline.bench_workloads import Setting, Workloads
    from controller.planning.problem import PlanLimits

SAVED_EVERY_S = 10.0
QUICK_FAILURES = ("none", "4-spines", "40-cables")
QUICK_FLOWS = 10_000
"""What ``--quick`` leaves of failures, and the most flows of its growth."""
SLOW = "ilp"
"""The strategy that ``--quick`` leaves out."""

bench = typer.Typer(help="Measure planning, without a network.", no_args_is_help=True)

Step = tuple[str, Callable[[], None]]


@bench.callback()
def _group() -> None:
    """A group, however few commands it has."""


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
    from controller.offline.bench_measure import undisturbed
    from controller.offline.bench_results import Results
    from controller.offline.bench_workloads import FAILURES, few, workloads
    from controller.planning.problem import PlanLimits
    from controller.planning.strategies import STRATEGIES

    draw = _plots()
    of_quick = [name for name in STRATEGIES if name != SLOW]
    schemes = _chosen("--strategies", strategies, STRATEGIES, of_quick if quick else STRATEGIES)
    breaks = _chosen("--failures", failures, FAILURES, QUICK_FAILURES if quick else FAILURES)
    found = workloads(folder)
    found = few(found) if quick else found
    results = Results({"strategies": schemes, "failures": breaks, "quick": quick, "time_limit_s": time_limit})
    limits = PlanLimits(time_limit_s=time_limit)
    steps = [*_plans(results, found.published, schemes, breaks, limits)]
    if irregular:
        steps += _plans(results, found.irregular, schemes, breaks, limits)
    if changes:
        steps += _changes(results, found, limits)
    if growth:
        steps += _growth(results, QUICK_FLOWS if quick else None, limits)
    if generated:
        steps += _plans(results, found.generated, schemes, breaks, limits)
    with undisturbed():
        _run(steps, results, out / "plan.json")
    pictures = draw(out, results.rows, results.growth)
    written = ", ".join(map(str, (out / "plan.json", *pictures)))
    show(results.data(), lambda: _report(results, written), as_json)


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

    settings = (*small_settings(), *(found.published or found.generated))
    return [
        step(setting, change, split)
        for setting in settings
        for change in changes_of(setting)
        for split in (False, True)
    ]


def _growth(results: Results, most: int | None, limits: PlanLimits) -> list[Step]:
    from controller.offline.bench_growth import FLOWS, grown

    def step(flows: int, pieces: int) -> Step:
        name = f"{flows:,} flows{', split' if pieces > 1 else ''}"
        return name, lambda: results.growth.append(grown(flows, pieces, limits))

    return [step(flows, pieces) for flows in FLOWS if most is None or flows <= most for pieces in (1, 2)]


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


# ---- tables


def _report(results: Results, written: str) -> RenderableType:
    from controller.offline.bench_results import lines
    from controller.offline.bench_targets import targets

    tables: list[RenderableType] = []
    if results.rows:
        tables.append(_plan_table(lines(results.rows, results.missing)))
    if results.changes:
        tables.append(_change_table(results.changes))
    if results.growth:
        tables.append(_growth_table(results.growth))
    tables.append(_target_table(targets(results.rows, results.changes, results.growth)))
    return Group(*tables, f"written: {escape(written)}")


def _plan_table(lines: Iterable[Line]) -> Table:
    table = Table("group", "failed", "scheme", title="worst levels, means of workloads", title_justify="left")
    numbers = (
        "workloads",
        "proven",
        "level",
        "worst",
        "mean of jobs",
        "bound",
        "pieces",
        "least",
        "most",
        "ms",
        "longest",
    )
    for column in numbers:
        table.add_column(column, justify="right")
    before = None
    for line in lines:
        if before not in (None, (line.group, line.failure)):
            table.add_section()
        before = (line.group, line.failure)
        count = f"{line.workloads}, {line.missing} without" if line.missing else str(line.workloads)
        levels = (line.level, line.worst_level, line.mean_level, line.bound, line.pieces, line.least)
        table.add_row(
            line.group,
            line.failure,
            line.scheme,
            count,
            str(line.proven),
            *(f"{number:.3f}" for number in levels),
            str(line.most_pieces),
            f"{line.total_ms:.1f}",
            f"{line.worst_ms:.0f}",
        )
    return table


def _change_table(rows: Iterable[ChangeRow]) -> Table:
    table = Table("workload", "change", title="changes of a running network", title_justify="left")
    numbers = (
        "flows",
        "pieces",
        "displaced",
        "repair",
        "ms",
        "level",
        "bound",
        "proven",
        "moves",
        "fewest",
        "ms",
        "from scratch",
    )
    for column in numbers:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            escape(f"{row.group} {row.workload}"),
            row.change,
            str(row.flows),
            str(row.pieces),
            str(row.displaced),
            f"{row.repair_level:.3f}",
            f"{row.repair_ms:.1f}",
            f"{row.level:.3f}",
            f"{row.bound:.3f}",
            f"{row.levels_proven} of {row.jobs}",
            str(row.moves),
            "proven" if row.fewest else "",
            f"{row.total_ms:.1f}",
            f"{row.scratch_level:.3f}, {row.scratch_moves} moves",
        )
    return table


def _growth_table(rows: Iterable[GrowthRow]) -> Table:
    table = Table(title="growth, 512 leaves and 128 spines", title_justify="left")
    numbers = (
        "flows",
        "pieces",
        "level",
        "bound",
        "certificate",
        "snapshot ms",
        "build",
        "solve",
        "check",
        "total ms",
        "peak MiB",
    )
    for column in numbers:
        table.add_column(column, justify="right")
    for row in rows:
        times = (row.snapshot_ms, row.build_ms, row.solve_ms, row.check_ms, row.total_ms, row.peak_mib)
        table.add_row(
            f"{row.flows:,}",
            f"{row.subflows:.3f}",
            f"{row.level:.4f}",
            f"{row.bound:.4f}",
            row.certificate,
            *(f"{number:.0f}" for number in times),
        )
    return table


def _target_table(found: Iterable[Target]) -> Table:
    table = Table("target", title="targets", title_justify="left")
    for column in ("cases", "met", "worst"):
        table.add_column(column, justify="right")
    for target in found:
        table.add_row(escape(target.name), str(target.cases), str(target.met), target.worst)
    return table
