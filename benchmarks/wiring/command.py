"""Benchmark ``wiring``: the wirings of the finder by size, and the settings of TopoOpt's publication."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.progress import track

from benchmarks.measures import report, table_of
from benchmarks.wiring import paper, sizes
from signalbox.commands.output import AsJson

RESULTS = Path("out/bench/wiring.json")
INTERFACES = (4, 8)
"""Interfaces per server of the dedicated cluster."""

Row = dict[str, Any]


def summary(found: Row) -> Group:
    tables = [table_of("the finder", [*map(_size, found["sizes"])])]
    if found["dedicated"]:
        tables.append(table_of("one job on 128 servers", [*map(_shown, found["dedicated"])]))
    if found["shared"]:
        tables.append(table_of("27 jobs on 432 servers", [*map(_shown, found["shared"])]))
    return Group(*tables)


def _size(row: Row) -> Row:
    searched = (row["searched_diameter"], round(row["searched_mean_hops"], 9))
    return {
        "n": row["servers"],
        "d": row["interfaces"],
        "steps": " ".join(map(str, row["steps"])),
        "diameter": row["diameter"],
        "mean hops": f"{row['mean_hops']:.3f}",
        "as searched": "yes" if searched == (row["diameter"], round(row["mean_hops"], 9)) else "no",
        "near-geometric": f"{row['geometric_diameter']}, {row['geometric_mean_hops']:.3f}",
        "best rings": _optional(row["best_of_rings"]),
        "best steps": _optional(row["best_of_all"]),
        "no wiring below": f"{row['least_mean_hops']:.3f}",
        "ms (processor)": f"{row['ms']:.0f} ({row['cpu_ms']:.0f})",
        "sparse": f"{row['sparse_ms']:.0f} ({row['sparse_cpu_ms']:.0f})",
    }


def _shown(row: Row) -> Row:
    return {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in row.items()}


def _optional(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def main(
    only_sizes: Annotated[
        bool, typer.Option("--only-sizes", help="Leave out the settings of the publication.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Find wirings of many sizes, and compare wirings with switches as the publication of TopoOpt does."""
    all_sizes = [(servers, interfaces) for servers in sizes.SERVERS for interfaces in sizes.INTERFACES]
    console = Console(stderr=True)
    found: Row = {
        "sizes": [sizes.row(*size) for size in track(all_sizes, "finding", console=console, transient=True)],
        "dedicated": [],
        "shared": [],
    }
    if not only_sizes:
        found["dedicated"] = [row for interfaces in INTERFACES for row in paper.dedicated(interfaces)]
        found["shared"] = [*paper.shared()]
    report(found, RESULTS, lambda: summary(found), as_json)
