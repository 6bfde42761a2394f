"""What ``signalbox.join`` costs a training program: CPU time, memory, threads, and polls of its sockets; that of
the process which calls the controller; and a program whose controller is away.

In: nothing; needs network namespaces (root, or user namespaces). Out: a table, and ``out/bench/join.json``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from benchmarks.measures import report
from mininet_topos.controller_process import ControllerProcess
from signalbox.commands.output import AsJson

CONNECTIONS = (8, 64, 512)
AWAY = {"refuses": "127.0.0.1:1", "silent": "silent"}
RESULTS = Path("out/bench/join.json")


def main(
    seconds: Annotated[float, typer.Option(help="Of training per number of connections.")] = 30.0,
    away_s: Annotated[float, typer.Option(help="How long a controller is away that is measured; 0: none is.")] = 120.0,
    as_json: AsJson = False,
) -> None:
    """Measure what joining costs a training program."""
    with tempfile.TemporaryDirectory() as folder, ControllerProcess(Path(folder)).running():
        rows = [_program(f"unix:{folder}/api.sock", count, seconds) for count in CONNECTIONS]
    without = {name: _program(address, 0, away_s) for name, address in AWAY.items() if away_s}
    report({"joined": rows, "away": without}, RESULTS, lambda: _table(rows, without), as_json)


def _program(address: str, connections: int, seconds: float) -> dict[str, Any]:
    words = ["unshare", "-rn", sys.executable, "-m", "benchmarks.joined_training", address]
    said = subprocess.run([*words, str(connections), str(seconds)], check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def _table(rows: list[dict[str, Any]], without: dict[str, dict[str, Any]]) -> Table:
    table = Table("connections", "iteration", "other threads", "calls", "step", "poll", "memory", "threads")
    for row in rows:
        table.add_row(
            str(row["connections"]),
            f"{row['iteration_s'] * 1e3:.1f} ms",
            f"{row['others_cpu']:.2%}",
            f"{row['calls_cpu']:.2%}",
            f"{row['step_s'] * 1e6:.1f} us",
            f"{row['poll_s'] * 1e3:.2f} ms",
            f"{row['memory_bytes'] / 1e6:.1f} MB",
            str(row["threads"]),
        )
    for name, found in without.items():
        table.add_row(f"the controller {name}", "", f"{found['cpu']:.3%}", f"{found['calls_cpu']:.3%}")
    return table
