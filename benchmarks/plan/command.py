"""Benchmark ``plan``: time and slowdown of plans, against proven bounds.

It needs no network and no root. The input is a folder of published workloads, if given, and options that select cases
(``workloads`` has them). The output is tables; all measurements are written to ``plan.json``, which is replaced as a
whole. For each target the output has the number of cases that meet it, and the worst case.
"""

import json
import os
import platform
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.measures import chosen, report
from benchmarks.plan.measure import (
    Case,
    Change,
    ChangeRow,
    Row,
    cases,
    changed,
    changes_of,
    measure,
    small_settings,
    undisturbed,
)
from benchmarks.plan.workloads import (
    FAILURES,
    GENERATED,
    IRREGULAR,
    ONE_JOB,
    WHOLE_SPINES,
    Setting,
    Workloads,
    few,
    workloads,
)
from controller.planning.problem import PlanLimits


@dataclass(slots=True)
class Results:
    """Measurements of a run. ``asked``: its options. ``finished``: whether all steps were done."""

    asked: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    changes: list[ChangeRow] = field(default_factory=list)
    finished: bool = False

    def data(self) -> dict[str, Any]:
        return {
            "asked": self.asked,
            "machine": {"cpus": os.cpu_count(), "python": platform.python_version()},
            "finished": self.finished,
            "targets": [asdict(target) for target in targets(self.rows, self.changes)],
            "plans": [asdict(row) for row in self.rows],
            "changes": [asdict(row) for row in self.changes],
        }

    def save(self, file: Path) -> None:
        """Write all measurements to the file as JSON, replacing it at once. Raises ``OSError``."""
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_suffix(".part")
        fresh.write_text(json.dumps(self.data(), indent=1) + "\n", encoding="utf-8")
        fresh.replace(file)


# ---- summaries

Line = dict[str, str]
"""Line of a table: text by column."""


def plan_lines(rows: Iterable[Row]) -> list[Line]:
    """Return a line for each group and failure, with whole and with split flows.

    Slowdowns and subflows are means over the workloads. "mean of jobs" is the mean over the workloads of the mean
    slowdown of their jobs."""
    grouped: defaultdict[tuple[str, str, bool], list[Row]] = defaultdict(list)
    for row in rows:
        grouped[row.group, row.failure, row.splits].append(row)
    return [
        {
            "group": group,
            "failed": failure,
            "flows": "split" if splits else "whole",
            "workloads": f"{len(of)}",
            "plans proven": f"{sum(row.proven for row in of)}",
            "slowdown": f"{fmean(row.slowdown for row in of):.3f}",
            "worst slowdown": f"{max(row.slowdown for row in of):.3f}",
            "mean of jobs": f"{fmean(row.mean_slowdown for row in of):.3f}",
            "bound": f"{fmean(row.bound for row in of):.3f}",
            "subflows per flow": f"{fmean(row.subflows for row in of):.3f}",
            "most subflows": f"{max(row.most_subflows for row in of)}",
            "median ms": f"{median(row.total_ms for row in of):.1f}",
            "longest ms": f"{max(row.total_ms for row in of):.0f}",
        }
        for (group, failure, splits), of in grouped.items()
    ]


def change_lines(rows: Iterable[ChangeRow]) -> list[Line]:
    """Return a line for each group, change and number of subflows. Slowdowns and moves are means, times are medians."""
    grouped: defaultdict[tuple[str, str, int], list[ChangeRow]] = defaultdict(list)
    for row in rows:
        grouped[row.group, row.change, row.max_subflows].append(row)
    return [
        {
            "group": group,
            "change": change,
            "flows": f"up to {max_subflows} subflows" if max_subflows > 1 else "whole",
            "workloads": f"{len(of)}",
            "flows that lost their path": f"{fmean(row.displaced for row in of):.1f}",
            "slowdown after the repair": f"{fmean(row.repair_slowdown for row in of):.3f}",
            "repair ms": f"{median(row.repair_ms for row in of):.1f}",
            "slowdown": f"{fmean(row.slowdown for row in of):.3f}",
            "bound": f"{fmean(row.bound for row in of):.3f}",
            "plans proven": f"{sum(row.certificate == 'optimal' for row in of)}",
            "moves": f"{fmean(row.moves for row in of):.1f}",
            "most moves": f"{max(row.moves for row in of)}",
            "moves proven the fewest": f"{sum(row.fewest for row in of)}",
            "median ms": f"{median(row.total_ms for row in of):.1f}",
            "moves of a plan from scratch": f"{fmean(row.scratch_moves for row in of):.1f}",
        }
        for (group, change, max_subflows), of in grouped.items()
    ]


# ---- targets

_ROUNDING = 1e-9
_WITHIN = 1.01
_MOST_FLOWS, _FEWEST_FLOWS = 1_728, 1_152
"""Numbers of flows between which a case has a target for its time."""
_MODEL = 5_000
"""Number of variables (class x path pairs) up to which a case has a target for the time of its proof."""
_CABLES = tuple(name for name, failure in FAILURES.items() if failure.cables)


@dataclass(frozen=True, slots=True)
class Target:
    """Target that ``met`` of ``cases`` rows meet. ``worst``: value of the worst row, in words."""

    name: str
    cases: int
    met: int
    worst: str


@dataclass(frozen=True, slots=True)
class _Rule:
    name: str
    of: Callable[[Row], bool]
    """Function that returns whether the target applies to a row."""
    met: Callable[[Row], bool]
    """Function that returns whether a row meets the target."""
    figure: Callable[[Row], float]
    """Function that returns the value of a row; larger is worse."""
    words: str
    """Format of the value."""


def _off(row: Row) -> float:
    """Return how far a row is from the best: slowdown / closed form or, where there is none, slowdown / bound."""
    return row.slowdown / (row.closed_form or row.bound)


def _fast(row: Row) -> bool:
    spines_fail = row.failure in WHOLE_SPINES and row.group in ("published", "whole-leaf")
    return spines_fail and _FEWEST_FLOWS <= row.flows <= _MOST_FLOWS


def _exact(row: Row) -> bool:
    return row.closed_form is not None and row.slowdown <= row.closed_form * (1 + _ROUNDING)


def _timed(name: str, of: Callable[[Row], bool], ms: float, words: str = "{:.0f} ms", proven: bool = False) -> _Rule:
    """Return the target that planning takes at most ``ms`` and, with ``proven``, that all slowdowns are proven."""
    return _Rule(
        name, of, lambda row: row.total_ms <= ms and (row.proven or not proven), lambda row: row.total_ms, words
    )


_RULES = (
    _Rule(
        "whole flows, whole spines fail: slowdown = max(1, ceil(D/S))",
        lambda row: row.closed_form is not None and not row.splits,
        _exact,
        _off,
        "{:.6g} x the best",
    ),
    _Rule(
        "split flows, whole spines fail: slowdown = max(1, D/S) in at most 2 subflows",
        lambda row: row.closed_form is not None and row.splits,
        lambda row: _exact(row) and row.most_subflows <= 2,
        _off,
        "{:.6g} x the best",
    ),
    _Rule(
        "split flows, cables fail: slowdown <= 1.01 x bound in at most 8 subflows",
        lambda row: row.failure in _CABLES and row.splits and row.group not in IRREGULAR,
        lambda row: row.slowdown <= _WITHIN * row.bound and row.most_subflows <= 8,
        _off,
        "{:.4f} x the bound",
    ),
    _timed(
        "whole flows, failures that hit one job, published: all slowdowns proven within 1 s",
        lambda row: row.failure == ONE_JOB and not row.splits and row.group == "published",
        1000,
        proven=True,
    ),
    *(
        _Rule(
            f"{group}: proven",
            lambda row, group=group: row.group == group,  # type: ignore[misc]
            lambda row: row.proven,
            _off,
            "{:.4f} x the bound",
        )
        for group in IRREGULAR
    ),
    _timed(
        "1,152 to 1,728 whole flows, whole spines fail: planned within 10 ms",
        lambda row: _fast(row) and not row.splits,
        10,
        "{:.1f} ms",
    ),
    _timed(
        "1,152 to 1,728 split flows, whole spines fail: planned within 25 ms",
        lambda row: _fast(row) and row.splits,
        25,
        "{:.1f} ms",
    ),
    _timed(
        "whole flows, cables fail, published: proven within 500 ms",
        lambda row: (
            row.group == "published" and not row.splits and row.failure not in WHOLE_SPINES and row.variables <= _MODEL
        ),
        500,
        proven=True,
    ),
    _timed("fragmented, any failure: planned within 1 s", lambda row: row.group == "fragmented", 1000),
)


def targets(rows: Sequence[Row], changes: Sequence[ChangeRow]) -> list[Target]:
    found = []
    for rule in _RULES:
        if of := [row for row in rows if rule.of(row)]:
            worst = rule.words.format(max(map(rule.figure, of)))
            found.append(Target(rule.name, len(of), sum(map(rule.met, of)), worst))
    return [*found, *(target for target in _of_changes(changes) if target.cases)]


def _of_changes(changes: Sequence[ChangeRow]) -> Iterable[Target]:
    for name, rows in (
        ("small fabrics", [row for row in changes if row.group == "small"]),
        ("large fabrics", [row for row in changes if row.group != "small"]),
    ):
        kept = [row for row in rows if row.max_subflows == 1]
        worst = f"{max([row.moves for row in kept], default=0)} moves"
        proven = sum(row.certificate == "optimal" and row.fewest for row in kept)
        yield Target(
            f"whole flows, a change on {name}: optimal in slowdowns and moves, proven", len(kept), proven, worst
        )


SAVED_EVERY_S = 10.0
QUICK_FAILURES = ("none", "4-spines", "40-cables")
"""Failures that ``--quick`` measures."""
MOST_CHANGED = 10
"""Number of generated workloads whose changes are measured."""

Step = tuple[str, Callable[[], None]]


def main(
    folder: Annotated[
        Path | None,
        typer.Option("--workloads", metavar="DIR", help="Folder of published workloads, with folders of job files."),
    ] = None,
    failures: Annotated[str, typer.Option(metavar="NAME,…", help="Failures to measure.", show_default="all")] = "",
    generated: Annotated[bool, typer.Option(help="Add 50 generated workloads, half of them fragmented.")] = True,
    irregular: Annotated[bool, typer.Option(help="Add unequal sizes and rates, parallel cables, a fat-tree.")] = True,
    changes: Annotated[bool, typer.Option(help="Add a cable that fails and a job that leaves.")] = True,
    quick: Annotated[
        bool, typer.Option("--quick", metavar="", help="Measure a workload of each kind, in less than a minute.")
    ] = False,
    time_limit: Annotated[float, typer.Option(min=0.01, metavar="S", help="Seconds that the solver may take.")] = 2.0,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Directory for the results.")] = Path("out/bench"),
) -> None:
    """Plan every workload under every failure: slowdowns and what is proven, subflows, times, moves."""
    breaks = chosen("--failures", failures or ",".join(QUICK_FAILURES if quick else FAILURES), FAILURES)
    found = workloads(folder, GENERATED if generated else 0, irregular)
    found = few(found) if quick else found
    limits = PlanLimits(time_limit_s=time_limit, ecmp_draws=0)
    parts = {"generated": generated, "irregular": irregular, "changes": changes, "quick": quick}
    results = Results({"failures": breaks, **parts, "time_limit_s": time_limit})
    steps = [
        *_plans(results, (*found.published, *found.irregular), breaks, limits),
        *(_changes(results, found, limits) if changes else ()),
        *_plans(results, found.generated, breaks, limits),
    ]
    with undisturbed():
        _run(steps, results, out / "plan.json")
    report(results.data(), out / "plan.json", tables_of(results))


# ---- the steps


def _plans(results: Results, settings: Iterable[Setting], failures: list[str], limits: PlanLimits) -> list[Step]:
    def step(case: Case) -> Step:
        return str(case), lambda: results.rows.append(measure(case, limits))

    return [step(case) for case in cases(tuple(settings), failures)]


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
    """Run the steps. Save the results every ``SAVED_EVERY_S``, and at the end in any case."""
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


def tables_of(results: Results) -> dict[str, list[dict[str, Any]]]:
    return {
        "worst slowdowns, means over workloads": plan_lines(results.rows),
        "changes of a running network": change_lines(results.changes),
        "targets": [asdict(target) for target in targets(results.rows, results.changes)],
    }
