"""Picture of wirings: servers on a circle, circuits as arrows in the colour of their optical switch.

The input is wirings with their titles, the result a PNG file.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch

from controller.circuits.wiring.circuits import Wiring

COLOURS = ("#1b6ca8", "#c8553d", "#4f9d69", "#8e5ea2", "#b8860b", "#5f6b6d", "#d16ba5", "#2a9d8f")
"""Colours of optical switches; they repeat."""
INK, GREY = "#333333", "#8a8a8a"
_SERVER, _SPACE = 0.085, 11.0
"""Radius of a server; points between an arrow and the middle of a server."""


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
