"""Results of rewiring: measured and modelled times of one job side by side, targets, tables. Pure.

The input is ``Row``s. The results are ``Target``s, a table for a terminal, and Markdown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

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
    """Return the target that the measured time is near the modelled one.

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
    "of first",
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
