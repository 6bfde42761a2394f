"""The pictures of ``plan``. The only module here that needs matplotlib.

In: rows. Out: ``slow_down`` (slow-down against failed spines, a panel per group of workloads) and ``growth`` (time and
memory against the number of flows), each as PNG and SVG.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.plan.measure import PLANNED, GrowthRow, Row
from benchmarks.plan.results import scheme

_SPINE_GROUPS = ("published", "whole-leaf", "fragmented")
_COLOURS = {
    "ecmp": "#8a8a8a",
    "annealing": "#c9a227",
    "ilp": "#8e5ea2",
    "first-fit": "#b07d62",
    "greedy": "#c8553d",
    "edge-coloring": "#e28f83",
    "planned": "#1b6ca8",
    "planned, split": "#0b7a4b",
}
_INK, _QUIET = "#333333", "#8a8a8a"
_FORMATS = ("png", "svg")


def draw(folder: Path, rows: Sequence[Row], growth: Sequence[GrowthRow]) -> list[Path]:
    """Writes the pictures for which there are rows. Raises ``OSError``."""
    folder.mkdir(parents=True, exist_ok=True)
    found: list[Path] = []
    spines = [row for row in rows if row.closed_form is not None]
    with mpl.rc_context({"font.size": 10, "font.family": "sans-serif", "svg.fonttype": "none"}):
        if spines:
            found += _saved(_slow_down(spines), folder / "slow_down")
        if growth:
            found += _saved(_growth(growth), folder / "growth")
    return found


def _saved(figure: Figure, stem: Path) -> list[Path]:
    files = [stem.with_suffix(f".{kind}") for kind in _FORMATS]
    for file in files:
        figure.savefig(file)
    return files


def _slow_down(rows: Sequence[Row]) -> Figure:
    groups = [group for group in _SPINE_GROUPS if any(row.group == group for row in rows)]
    figure = Figure(figsize=(1.5 + 4.2 * len(groups), 4.6), dpi=150, layout="constrained")
    panels = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    named: dict[str, Artist] = {}
    for axes, group in zip(panels, groups, strict=True):
        _panel(axes, group, [row for row in rows if row.group == group])
        handles, labels = axes.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    panels[0].set_ylabel("slow-down, mean over jobs and workloads")
    figure.legend([*named.values()], [*named], loc="outside lower center", ncols=min(4, len(named)), frameon=False)
    return figure


def _panel(axes: Axes, group: str, rows: Sequence[Row]) -> None:
    """Published schemes are thin and dashed, on top, so that equal lines are both visible."""
    failed = sorted({row.failed_spines for row in rows})
    for name, colour in _COLOURS.items():
        of = [row for row in rows if scheme(row) == name]
        at = [number for number in failed if any(row.failed_spines == number for row in of)]
        means = [fmean(row.mean_level for row in of if row.failed_spines == number) for number in at]
        if not at:
            continue
        line = axes.plot(at, means, color=colour, label=name, linewidth=1.2, linestyle=(0, (4, 3)), zorder=4)[0]
        if name.startswith(PLANNED):
            line.set(linewidth=3.0, linestyle="-", zorder=3, marker="o", markersize=5)
    bounds = [fmean(row.fluid_bound for row in rows if row.failed_spines == number) for number in failed]
    axes.plot(failed, bounds, color=_INK, linestyle=":", linewidth=1.4, label="bound of the slowest job", zorder=5)
    count = len({row.workload for row in rows})
    axes.set_title(f"{group}, {count} workload{'s' * (count > 1)}", loc="left", color=_INK, weight="bold")
    axes.set_xticks(failed)
    axes.set_xlabel("spines failed, of 32")
    axes.set_ylim(bottom=0.9)
    _dress(axes)


def _growth(rows: Sequence[GrowthRow]) -> Figure:
    figure = Figure(figsize=(10.5, 4.4), dpi=150, layout="constrained")
    panels = figure.subplots(1, 2)
    for name, splits in ((PLANNED, False), (f"{PLANNED}, split", True)):
        of = sorted((row for row in rows if (row.pieces > 1) == splits), key=lambda row: row.flows)
        flows = [row.flows for row in of]
        for axes, values in zip(
            panels, ([r.total_ms / 1000 for r in of], [r.peak_mib / 1024 for r in of]), strict=True
        ):
            axes.plot(flows, values, label=name, color=_COLOURS[name], linewidth=2.2, marker="o", markersize=4)
    for axes, title, target in zip(
        panels, ("snapshot in to checked plan out, s", "peak memory of the process, GiB"), (1.5, 2.0), strict=True
    ):
        axes.axhline(target, color=_QUIET, linestyle=":", linewidth=1.2, label="target at 100,000")
        axes.set_title(title, loc="left", color=_INK, weight="bold")
        axes.set_ylim(bottom=0)
        axes.set_xscale("log")
        axes.set_xticks(sorted({row.flows for row in rows}), [f"{n:,}" for n in sorted({r.flows for r in rows})])
        axes.tick_params(axis="x", which="both", rotation=30)
        axes.minorticks_off()
        axes.set_xlabel("flows, on 512 leaves and 128 spines")
        _dress(axes)
    panels[0].legend(frameon=False)
    return figure


def _dress(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6, zorder=0)
