"""Benchmark ``fabric``: how fast the real controller installs, repairs and restores the rules of Open vSwitch bridges.

All times are taken from outside, from captured OpenFlow messages. ``Figures`` defines each figure, and ``TARGETS`` has
the limits for 64 leaves and 32 spines. The benchmark prints a table. It writes ``fabric.json`` and the controller's log
to a folder. The exit status is 1 when a step failed.
"""

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from benchmarks.fabric import openvswitch
from benchmarks.fabric.blueprint import Blueprint, job_spec, workload
from benchmarks.fabric.figures import TARGETS, Figures, rows
from benchmarks.fabric.run import Settings, running
from benchmarks.fabric.steps import measure
from benchmarks.measures import report
from controller.fabric.topology import Fabric
from offline.scenarios.fabric_options import LARGEST_SEED, FabricKind, FabricOptions
from offline.scenarios.scenario import build_fabric
from signalbox.commands.output import waiting


def main(
    kind: Annotated[FabricKind, typer.Option("--fabric", help="Kind of fabric.")] = (FabricKind.LEAF_SPINE),
    leaves: Annotated[int | None, typer.Option(min=2, help="Leaf-spine: number of leaves.")] = None,
    spines: Annotated[int | None, typer.Option(min=1, help="Leaf-spine: number of spines.")] = None,
    hosts_per_leaf: Annotated[
        int | None, typer.Option(min=1, help="Leaf-spine: hosts on every leaf.", show_default="as many as spines")
    ] = None,
    k: Annotated[int | None, typer.Option("--k", min=2, help="Fat-tree: k, the number of pods.")] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--workload", metavar="DIR", help="Workload files, one per job.", show_default="generated ones"),
    ] = None,
    quiet_s: Annotated[
        float, typer.Option(min=1, metavar="S", help="Seconds to look for false link-downs while planning.")
    ] = 120.0,
    idle_s: Annotated[float, typer.Option(min=1, metavar="S", help="Seconds to measure CPU time.")] = 60.0,
    settled_s: Annotated[
        float, typer.Option(min=0, metavar="S", help="Seconds to watch rules after a restart.")
    ] = 25.0,
    cuts: Annotated[
        int, typer.Option(min=1, help="Number of cables to cut, one after the other; fewer on small fabrics.")
    ] = 100,
    seed: Annotated[
        int, typer.Option(min=0, max=LARGEST_SEED, help="Random seed of the workload and the cables to cut.")
    ] = 1,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Directory for the results and the log.")] = Path(
        "out/bench"
    ),
) -> None:
    """Run the controller on a fabric of Open vSwitch bridges (root): discovery, install, repair, restart, cost."""
    if kind is FabricKind.LEAF_SPINE and hosts_per_leaf is None:
        hosts_per_leaf = spines or 1
    network = build_fabric(
        FabricOptions(workload=Path(), fabric=kind, leaves=leaves, spines=spines, hosts_per_leaf=hosts_per_leaf, k=k)
    )
    found = _measured(network, folder, Settings(quiet_s, idle_s, settled_s, cuts, seed), out)
    figures = [{"figure": name, "measured": value, "most": TARGETS.get(name)} for name, value in rows(found)]
    title = ", ".join(f"{name} {value}" for name, value in found.machine.items())
    problems = (f"problem: {problem}" for problem in found.problems)
    report(found.data(), out / "fabric.json", {title: figures}, *problems)
    if found.problems:
        raise typer.Exit(1)


def _measured(network: Fabric, folder: Path | None, settings: Settings, out: Path) -> Figures:
    """Run all steps, and return the figures. The controller's log is copied to ``out`` in any case."""
    jobs = [job_spec(job) for job in workload(network, folder, settings.seed)]
    openvswitch.check()
    openvswitch.remove_leftovers()
    blueprint = Blueprint(network, openvswitch.free_tag())
    with tempfile.TemporaryDirectory(prefix="signalbox-bench-") as name, waiting("") as status, _ends_on_signals():
        files = Path(name)
        try:
            with running(blueprint, jobs, settings, files, status.update) as run:
                measure(run)
        finally:
            out.mkdir(parents=True, exist_ok=True)
            if (files / "controller.log").exists():
                shutil.copy(files / "controller.log", out / "fabric.log")
    return run.figures


@contextmanager
def _ends_on_signals() -> Iterator[None]:
    """Raise ``SystemExit`` on SIGTERM and SIGHUP while the block runs, so that the fabric is removed."""

    def end(number: int, _frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
