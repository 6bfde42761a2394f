"""Demo of rewiring: a recommender on a random wiring, on a wiring that the controller chooses, and on one switch.

    sudo .venv/bin/python -m mininet_topos.rewiring --out out/demo-rewiring

There are twelve servers with four interfaces each, on four emulated optical switches, and a controller that sets the
switches. The same job joins twice: first with a random wiring from the demo, then with the wiring that the controller
chooses. Then the job runs on one switch that costs as much as the optical switches. The demo writes ``report.json``,
``report.md`` and ``wirings.png``. The exit status is 1 when a target is missed, or when a part fails.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from controller.circuits.wiring.circuits import Wiring
from controller.circuits.wiring.evaluation import Answer, Way
from mininet_topos import ending
from mininet_topos.demo.command import show_targets
from mininet_topos.demo.report import Target
from mininet_topos.lab.record import LabError
from mininet_topos.rewiring.fabrics import Change, Trained, circuits, one_switch, one_way, train_alone
from mininet_topos.rewiring.model import (
    Job,
    Runs,
    Size,
    evaluated,
    on_wiring,
    planned_s,
    random_wiring,
    recommender,
    scaled,
    ways_of,
)
from mininet_topos.rewiring.report import (
    CHOSEN,
    RANDOM,
    SWITCH,
    Panel,
    Row,
    as_modelled,
    draw,
    is_faster,
    markdown,
    table,
)
from signalbox.errors import SignalboxError

SERVERS, INTERFACES = 12, 4
MBPS = 2.5
DIVISOR = 500.0
"""Divisor of the job's bytes, for interfaces of 1 Mbit/s."""
SEED = 1
TITLE = "A recommender on optical switches"


class Demo:
    """Demo of rewiring. ``scratch``: directory for temporary files."""

    def __init__(self, size: Size, iterations: int, scratch: Path, console: Console) -> None:
        self._size, self._iterations, self._scratch, self._console = size, iterations, scratch, console
        self.job: Job = scaled(recommender(), DIVISOR / size.mbps)
        addresses = [f"10.0.{number}.1" for number in range(1, size.servers + 1)]
        self._ways: dict[str, Way] = {way.name: way for way in ways_of(self.job, addresses)}
        self._answer: Answer = evaluated(tuple(self._ways.values()), size)

    def run(self) -> tuple[list[Row], list[Panel], list[Change]]:
        """Run all parts. Raises ``SignalboxError``."""
        best, other = self._answer.best, self._answer.other
        wiring = random_wiring(self._size.servers, self._size.interfaces, SEED)
        runs = on_wiring(self._ways[best.name], best.found.orders, wiring, self._size)
        began = time.time()
        with circuits(self._size, self._scratch) as fabric:
            self._say(f"{len(fabric.lab.switches)} bridges are up, {self._size.mbps:g} Mbit/s for each interface")
            self._say(f"the recommender joins and gets a random wiring; modelled {runs.planned_s:.2f} s per iteration")
            before = fabric.train(self.job, "recommender-random", self._iterations, (wiring, runs))
            self._say(f"  measured {before.mean_s:.2f} s; it leaves")
            self._say("it joins again, and the controller chooses")
            after = fabric.train(self.job, "recommender", self._iterations)
            rows = [self._chosen(after), self._row(RANDOM, runs, before)]
            self._say(
                f"  parallelization {after.parallelization}, "
                f"measured {after.mean_s:.2f} s, modelled {rows[0].modelled_s:.2f} s"
            )
            changes = fabric.changes(began)
        for change in changes:
            self._say(f"  {change.circuits} circuits were changed in {change.ms:g} ms")
        with one_switch(self._size) as lab:
            self._say(
                f"one switch with {self._size.other_mbps:.3g} Mbit/s for each server; parallelization {other.name}"
            )
            found = train_alone(lab, one_way(self.job, other.name), "switch", self._scratch, self._iterations)
            self._say(f"  measured {found.mean_s:.2f} s, modelled {other.other_s:.2f} s")
        rows.append(self._row(SWITCH, Runs(other.name, other.spec, 1, other.other_s), found))
        assert after.wiring
        return (
            rows,
            [_panel("before: random", wiring, rows[1]), _panel("after: chosen", after.wiring, rows[0])],
            changes,
        )

    def _chosen(self, after: Trained) -> Row:
        """Return the row of the job with the parallelization, spec and wiring that the controller chose."""
        assert after.runs
        assert after.wiring
        modelled_s = planned_s(self._ways[after.parallelization], after.runs, after.wiring, self._size)
        rings = sum("ring" in group.name for group in after.runs.groups)
        return self._row(CHOSEN, Runs(after.parallelization, after.runs, rings, modelled_s), after)

    def _row(self, fabric: str, runs: Runs, found: Trained) -> Row:
        return Row(fabric, runs.parallelization, runs.rings, runs.planned_s, found.mean_s, found.iterations_s)

    def _say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, highlight=False)


def targets(rows: Sequence[Row]) -> list[Target]:
    chosen, *others = rows
    return [*map(as_modelled, rows), *(is_faster(chosen, other) for other in others)]


def write_results(
    out: Path, size: Size, rows: Sequence[Row], panels: Sequence[Panel], changes: Sequence[Change]
) -> None:
    judged = targets(rows)
    data = {
        "servers": size.servers,
        "interfaces": size.interfaces,
        "mbps": size.mbps,
        "rows": [row.data() for row in rows],
        "circuit_changes": [change._asdict() for change in changes],
        "targets": [target._asdict() for target in judged],
    }
    (out / "report.json").write_text(json.dumps(data, indent=2) + "\n")
    changed = ", ".join(f"{change.circuits} in {change.ms:g} ms" for change in changes)
    lines = [
        f"{size.servers} servers with {size.interfaces} interfaces of {size.mbps:g} Mbit/s each, on emulated optical "
        f"switches; one switch of the same cost has {size.other_mbps:.3g} Mbit/s for each server.",
        f"Circuits changed: {changed or 'none'}.",
        "![Both wirings](wirings.png)",
    ]
    (out / "report.md").write_text(markdown(TITLE, rows, judged, lines))
    draw(out / "wirings.png", panels)


def _panel(title: str, wiring: Wiring, row: Row) -> Panel:
    below = f"{row.measured_s:.2f} s per iteration, modelled {row.modelled_s:.2f} s"
    return Panel(title, below, wiring)


def run(
    out: Annotated[Path, typer.Option(help="Directory for the results.")] = Path("out/demo-rewiring"),
    mbps: Annotated[float, typer.Option(min=0.5, max=100, help="Rate of an interface in Mbit/s.")] = MBPS,
    iterations: Annotated[int, typer.Option(min=2, help="Measured iterations on each fabric.")] = 3,
) -> None:
    """Show how much faster a job runs on circuits that the controller chooses for it."""
    console = Console()
    out.mkdir(parents=True, exist_ok=True)
    for name in ("report.json", "report.md", "wirings.png", "controller.log"):
        (out / name).unlink(missing_ok=True)
    size = Size(SERVERS, INTERFACES, mbps)
    try:
        with ExitStack() as parts:
            scratch = Path(parts.enter_context(tempfile.TemporaryDirectory(prefix="signalbox-rewiring-")))
            (log := scratch / "controller.log").touch()
            parts.callback(shutil.copy, log, out)
            rows, panels, changes = Demo(size, iterations, scratch, console).run()
    except (LabError, SignalboxError) as error:
        ending.check()
        console.print(f"[red]the demo failed:[/red] {error}")
        raise typer.Exit(1) from None
    write_results(out, size, rows, panels, changes)
    console.print(table("Iterations", rows))
    judged = targets(rows)
    show_targets(console, judged)
    console.print(f"{out / 'report.md'}, {out / 'wirings.png'}, {out / 'report.json'}", soft_wrap=True)
    if any(target.met is False for target in judged):
        raise typer.Exit(1)
