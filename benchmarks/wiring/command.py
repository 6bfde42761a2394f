"""Benchmark ``wiring``: hops and search time of the finder's wirings, and the comparisons in TopoOpt's publication."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from benchmarks.measures import report
from benchmarks.wiring import paper, sizes

RESULTS = Path("out/bench/wiring.json")
INTERFACES = (4, 8)
"""Numbers of interfaces per server, for one job on all servers."""

Row = dict[str, Any]


def main() -> None:
    """Find wirings of many sizes, and compare wirings with switches as the publication of TopoOpt does."""
    all_sizes = [(servers, interfaces) for servers in sizes.SERVERS for interfaces in sizes.INTERFACES]
    console = Console(stderr=True)
    found: Row = {
        "sizes": [sizes.row(*size) for size in track(all_sizes, "finding", console=console, transient=True)],
        "dedicated": [row for interfaces in INTERFACES for row in paper.dedicated(interfaces)],
        "shared": [*paper.shared()],
    }
    titles = {
        "sizes": "the finder",
        "dedicated": f"one job on {paper.SERVERS} servers",
        "shared": f"{paper.SHARED_JOBS} jobs on {paper.SHARED_SERVERS} servers",
    }
    report(found, RESULTS, {title: found[name] for name, title in titles.items()})
