"""Picture of a demo as a PNG file: iteration times of every job against time, with its phases and events."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mininet_topos.demo.report import Moments
from mininet_topos.trainer.log import RankLog

JOB_COLOURS = ("#1b6ca8", "#c8553d", "#4f9d69", "#8e5ea2")
INK = "#333333"
GREY = "#8a8a8a"
SHADE = "#f3f4f6"


def draw(
    path: Path, logs: Sequence[RankLog], moments: Moments, ideal_s: float, cable: str, reacted: float | None
) -> None:
    """Write the picture to ``path``."""
    with mpl.rc_context({"font.size": 10, "font.family": "sans-serif"}):
        figure = Figure(figsize=(12, 5.2), dpi=150, layout="constrained")
        axes = figure.add_subplot()
        highest = _jobs(axes, logs, moments)
        axes.axhline(
            ideal_s, color=INK, linestyle=(0, (5, 3)), linewidth=1.1, label=f"ideal, {ideal_s:.2f} s", zorder=1
        )
        top = 1.28 * max(highest, ideal_s)
        _phases(axes, moments, top)
        _moments(axes, moments, cable, reacted, top)
        _dress(axes, moments, top)
        figure.savefig(path)


def job_series(logs: Sequence[RankLog], job_id: str) -> tuple[list[float], list[float]]:
    """Return the end and the duration of every iteration of a job, each a mean over its ranks."""
    by_index: dict[int, list[tuple[float, float]]] = {}
    for log in logs:
        if log.job_id == job_id:
            for i in log.iterations:
                by_index.setdefault(i.index, []).append((i.end, i.duration_s))
    rows = [by_index[index] for index in sorted(by_index)]
    return [fmean(end for end, _ in row) for row in rows], [fmean(took for _, took in row) for row in rows]


def _jobs(axes: Axes, logs: Sequence[RankLog], moments: Moments) -> float:
    highest = 0.0
    for colour, job_id in zip(JOB_COLOURS, sorted({log.job_id for log in logs}), strict=False):
        ends, durations = job_series(logs, job_id)
        shown = [
            (end - moments.training, took)
            for end, took in zip(ends, durations, strict=True)
            if moments.training <= end <= moments.end
        ]
        style: dict[str, Any] = {"linewidth": 1.3, "marker": "o", "markersize": 3.2, "markeredgewidth": 0, "zorder": 3}
        axes.plot([at for at, _ in shown], [took for _, took in shown], color=colour, label=job_id, **style)
        highest = max([highest, *(took for _, took in shown)])
    return highest


def _phases(axes: Axes, moments: Moments, top: float) -> None:
    """Draw bands with the names of the phases."""
    marks = (moments.training, moments.planning, moments.cut, moments.replug, moments.unannounced, moments.end)
    names = ("ECMP", "planned", "cable cut", "plugged in again", "unannounced traffic")
    for number, (name, start, end) in enumerate(zip(names, marks, marks[1:], strict=False)):
        left, right = start - moments.training, end - moments.training
        if number % 2 == 0:
            axes.axvspan(left, right, color=SHADE, zorder=0, linewidth=0)
        axes.text((left + right) / 2, 0.975 * top, name, ha="center", va="top", color=INK, weight="bold")


def _moments(axes: Axes, moments: Moments, cable: str, reacted: float | None, top: float) -> None:
    events = [
        (moments.planned, "pins installed"),
        (moments.cut, f"{cable} cut"),
        (moments.replug, "cable back"),
        (moments.unannounced, "traffic starts"),
    ]
    if reacted is not None:
        events.append((reacted, "re-planned"))
    for at, name in events:
        left = at - moments.training
        axes.axvline(left, ymax=0.91, color=GREY, linewidth=0.9, zorder=2)
        style: dict[str, Any] = {"textcoords": "offset points", "rotation": 90, "va": "top", "fontsize": 8.5}
        axes.annotate(name, (left, 0.9 * top), (4, 0), color=GREY, **style)


def _dress(axes: Axes, moments: Moments, top: float) -> None:
    axes.set_xlim(0, moments.end - moments.training)
    axes.set_ylim(0, top)
    axes.set_xlabel("seconds since all jobs train")
    axes.set_ylabel("iteration time, s")
    axes.set_title("Iteration times of ring all-reduce jobs", loc="left", color=INK, weight="bold")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6, zorder=0)
    axes.legend(loc="lower left", ncols=5, frameon=False)
