"""Demo: training jobs on an emulated fabric, under ECMP and planned, with a cable cut and unannounced traffic.

    sudo .venv/bin/python -m mininet_topos.demo --out out/demo

The demo starts 4 leaves x 4 spines x 4 hosts with links of 5 Mbit/s and a controller, and runs the ``phases``. It
writes ``report.json``, ``iterations.png``, ``report.html`` (as ``signalbox report`` does) and the raw timestamps. Exit
status 0 means that all phases ran; the table and the report say whether the targets were met.
"""

import json
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from mininet_topos import ending
from mininet_topos.controller_process import ControllerProcess, Settings
from mininet_topos.demo.parts import DemoError
from mininet_topos.demo.phases import HOSTS_PER_LEAF, LEAVES, RATE_BPS, REPORT, SPINES, Demo
from mininet_topos.demo.plot import draw
from mininet_topos.demo.report import Moments, Observed, Target, build_report, reaction, targets
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import LabError
from mininet_topos.leaf_spine import LeafSpine
from mininet_topos.trainer.log import read_rank_logs
from signalbox.errors import SignalboxError

SETTINGS: Settings = {
    "fabric": {"link_bps": RATE_BPS, "host_link_bps": RATE_BPS},
    "planning": {"mode": "ecmp"},
}
"""Settings of the controller: ECMP until the demo sets another mode."""


def write_results(out: Path, moments: Moments, seen: Observed) -> list[Target]:
    """Write ``report.json``, ``iterations.png`` and ``moments.json``, and return the targets."""
    logs = read_rank_logs(out / "raw")
    report = build_report(logs, moments, seen)
    judged = targets(report)
    report["targets"] = [target._asdict() for target in judged]
    (out / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    routes = [
        {"at": change.at, "job": change.job_id, "paths": {f"{a}>{b}": path for (a, b), path in change.paths.items()}}
        for change in seen.routes
    ]
    raw = {"moments": asdict(moments), "routes": routes}
    (out / "raw" / "moments.json").write_text(json.dumps(raw, indent=1) + "\n")
    reacted = reaction(seen.routes, moments.unannounced, moments.end)
    draw(out / "iterations.png", logs, moments, seen.ideal_iteration_s, "-".join(seen.cable), reacted)
    return judged


def show_targets(console: Console, judged: Sequence[Target]) -> None:
    table = Table("figure", "measured", "target", "", title="Results")
    marks = {True: "[green]met[/green]", False: "[red]missed[/red]", None: "[yellow]not measured[/yellow]"}
    for target in judged:
        table.add_row(target.name, target.figure, target.target, marks[target.met])
    console.print(table)
    if any(target.met is False for target in judged):
        console.print("Other programs that run meanwhile lengthen iterations: run it again when two cores are idle.")


def _clear(out: Path) -> None:
    """Remove the results of an earlier run. Call it once the lab is claimed: until then another demo may be writing."""
    for old in (*out.glob("raw/*"), out / "report.json", out / "iterations.png", out / REPORT):
        old.unlink(missing_ok=True)


def run(out: Annotated[Path, typer.Option(help="Directory for the results.")] = Path("out/demo")) -> None:
    """Compare planned routing with ECMP under real training traffic."""
    console = Console()
    (out / "raw").mkdir(parents=True, exist_ok=True)
    try:
        with ExitStack() as parts:
            scratch = Path(parts.enter_context(tempfile.TemporaryDirectory(prefix="signalbox-demo-")))
            controller = ControllerProcess(scratch, settings=SETTINGS)
            controller.log.touch()
            parts.callback(shutil.copy, controller.log, out)
            client = parts.enter_context(controller.running())
            mbps = RATE_BPS / 1e6
            leaf_spine = LeafSpine(LEAVES, SPINES, HOSTS_PER_LEAF, mbps, mbps)
            lab = parts.enter_context(Lab(leaf_spine, controller.target))
            _clear(out)
            moments, seen = Demo(lab, client, controller.address, scratch, out, console).run()
    except (DemoError, LabError, SignalboxError) as error:
        ending.check()
        console.print(f"[red]the demo failed:[/red] {error}")
        raise typer.Exit(1) from None
    show_targets(console, write_results(out, moments, seen))
    console.print(f"{out / 'report.json'}, {out / 'iterations.png'}, raw timestamps in {out / 'raw'}")
    console.print(f"The fabric, its jobs and what happened, for a browser: {out / REPORT}", soft_wrap=True)
