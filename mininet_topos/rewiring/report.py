"""Results of rewiring: measured and modelled times of one job side by side, targets, tables and pictures.

In: ``Row``s. Out: ``Target``s, a table for a terminal, and Markdown. The picture of wirings has servers on a circle,
and circuits as arrows in the colour of their optical switch.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch
from rich.table import Table

from controller.circuits.wiring.circuits import Wiring
from mininet_topos.demo.report import Target

TOLERANCE = 0.10
CHOSEN, RANDOM, SWITCH = "chosen wiring", "random wiring", "one switch of the same cost"


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds of an iteration of one job on one fabric.

    ``rings``: number of rings of an all-reduce. ``modelled_s``: None where the model gives no single value."""

    fabric: str
    parallelization: str
    rings: int
    modelled_s: float | None
    measured_s: float
    iterations_s: tuple[float, ...]

    @property
    def ratio(self) -> float | None:
        return self.measured_s / self.modelled_s if self.modelled_s else None

    @property
    def is_as_modelled(self) -> bool | None:
        return None if self.ratio is None else abs(self.ratio - 1) <= TOLERANCE

    def data(self) -> dict[str, Any]:
        return {**asdict(self), "measured_to_modelled": self.ratio}


def as_modelled(row: Row, name: str = "") -> Target:
    """Return the target that the measured time of a row is close to its modelled time.

    ``name``: text before the name of the fabric."""
    figure = "-" if row.ratio is None else f"{row.ratio:.3f}"
    goal = f"{1 - TOLERANCE:.2f} to {1 + TOLERANCE:.2f}"
    return Target(f"{name}{row.fabric}: measured / modelled", figure, goal, row.is_as_modelled)


def is_faster(chosen: Row, other: Row) -> Target:
    factor = other.measured_s / chosen.measured_s
    return Target(f"{other.fabric} / {chosen.fabric}", f"{factor:.2f}", "> 1", factor > 1)


def table(title: str, rows: Sequence[Row]) -> Table:
    found = Table(title=title, title_justify="left")
    for name in HEADINGS[:-1]:
        found.add_column(name, justify="left" if name in ("fabric", "parallelization") else "right")
    for row in rows:
        found.add_row(*_cells(rows[0], row)[:-1])
    return found


def markdown(title: str, rows: Sequence[Row], targets: Sequence[Target], lines: Sequence[str]) -> str:
    """Return the report in Markdown. ``lines``: paragraphs above the tables."""
    marks = {True: "met", False: "missed", None: "not measured"}
    judged = [(target.name, target.figure, target.target, marks[target.met]) for target in targets]
    parts = [f"# {title}", *lines, _markdown(HEADINGS, [_cells(rows[0], row) for row in rows])]
    return "\n\n".join([*parts, _markdown(("figure", "measured", "target", ""), judged)]) + "\n"


HEADINGS = (
    "fabric",
    "parallelization",
    "rings",
    "modelled (s)",
    "measured (s)",
    "ratio",
    "measured / first row",
    "iterations (s)",
)


def _cells(first: Row, row: Row) -> tuple[str, ...]:
    return (
        row.fabric,
        row.parallelization or "as given",
        str(row.rings or "-"),
        "-" if row.modelled_s is None else f"{row.modelled_s:.2f}",
        f"{row.measured_s:.2f}",
        "-" if row.ratio is None else f"{row.ratio:.3f}",
        f"{row.measured_s / first.measured_s:.2f}",
        " ".join(f"{each:.2f}" for each in row.iterations_s),
    )


def _markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


COLOURS = ("#1b6ca8", "#c8553d", "#4f9d69", "#8e5ea2", "#b8860b", "#5f6b6d", "#d16ba5", "#2a9d8f")
"""Colours of optical switches; they repeat."""
INK = "#333333"
_SERVER, _SPACE = 0.085, 11.0
"""Radius of a server in units of the axes; gap in points between an arrow and the middle of a server."""


class Panel(NamedTuple):
    """Wiring in the picture. ``below``: a line with the figures."""

    title: str
    below: str
    wiring: Wiring


def draw(path: Path, panels: Sequence[Panel]) -> None:
    """Write the picture to ``path``."""
    with mpl.rc_context({"font.size": 10, "font.family": "sans-serif"}):
        layout = ConstrainedLayoutEngine(h_pad=0.15)
        figure = Figure(figsize=(5.4 * len(panels), 6.2), dpi=150, layout=layout)
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            _panel(axes, panel)
        figure.legend(handles=_keys(panels), loc="outside lower center", ncols=8, frameon=False)
        figure.savefig(path)


def places(servers: int) -> list[tuple[float, float]]:
    """Return the coordinates (x, y) of each server on the unit circle, clockwise from the top."""
    turns = (2 * math.pi * server / servers for server in range(servers))
    return [(math.sin(turn), math.cos(turn)) for turn in turns]


def _panel(axes: Axes, panel: Panel) -> None:
    at = places(panel.wiring.servers)
    beside = Counter[tuple[int, int]]()
    for circuit in panel.wiring.circuits:
        src, dst = circuit.src.server, circuit.dst.server
        # Circuits between the same servers, and those of the opposite direction, are drawn beside each other.
        bend = 0.06 + 0.07 * beside[src, dst]
        beside[src, dst] += 1
        style: dict[str, Any] = {
            "connectionstyle": f"arc3,rad={bend}",
            "arrowstyle": "-|>,head_length=4,head_width=2.2",
            "color": COLOURS[circuit.switch % len(COLOURS)],
            "linewidth": 1.1,
            "alpha": 0.85,
            "shrinkA": _SPACE,
            "shrinkB": _SPACE,
        }
        axes.add_patch(FancyArrowPatch(at[src], at[dst], **style))
    for server, (x, y) in enumerate(at):
        axes.add_patch(mpl.patches.Circle((x, y), _SERVER, facecolor="white", edgecolor=INK, linewidth=1.2, zorder=3))
        axes.text(x, y, str(server + 1), ha="center", va="center", color=INK, zorder=4)
    axes.set_xlim(-1.2, 1.2)
    axes.set_ylim(-1.2, 1.2)
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.set_title(panel.title, color=INK, weight="bold")
    axes.text(0, -1.17, panel.below, ha="center", va="top", color=INK)


def _keys(panels: Sequence[Panel]) -> list[Line2D]:
    most = max(panel.wiring.interfaces for panel in panels)
    return [
        Line2D([], [], color=COLOURS[k % len(COLOURS)], label=f"optical switch {k + 1}", linewidth=1.6)
        for k in range(most)
    ]
