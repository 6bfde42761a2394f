"""Benchmark ``joining``: iteration times of real jobs in a scenario, with ECMP and with planned routes.

    sudo scripts/openvswitch.sh run .venv/bin/python -m benchmarks joining [SCENARIO] [--seed N]… [--mode M]…

The jobs share the 16 hosts of a fabric of 4 leaves and 4 spines. All links have 5 Mbit/s. A scenario runs in modes:

- ``flat``: all hosts are on one switch. The other modes are compared with ``flat``, because it shows the speed of
  library and machine without a fabric.
- ``ecmp``: switches hash the flows to paths.
- ``planned``: the controller plans the flows of the jobs, which are announced or join by themselves.

Rows are appended to a file, so that a long run can be made in parts. Runs that already have rows are skipped. The exit
status is 1 when a target is missed, or an iteration gave a wrong result.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from benchmarks.joining.mixes import Mode
from benchmarks.joining.scenarios import churn, elephants, kinds, mixed, patterns, swap
from benchmarks.joining.scenarios.rows import Found, Row, Run, Target, read_rows
from benchmarks.joining.scenarios.stage import Stage, stage
from benchmarks.measures import report
from mininet_topos.joining.jobs import LibraryJob

Play = Callable[[Stage, int, float], Iterator[tuple[LibraryJob, Mapping[str, Any]]]]
"""Function that runs the jobs, given a stage, a seed and seconds. Yields each job with its values for ``Row.more``."""


class Scenario(NamedTuple):
    """Scenario: how it is run and judged. ``seconds``: length of a run, if none is given."""

    play: Play
    judge: Callable[[Sequence[Row]], Found]
    seconds: float


SCENARIOS: Mapping[str, Scenario] = {
    "mixes": Scenario(partial(mixed.play, library="gloo"), mixed.judge, mixed.SECONDS),
    "mixes-mpi": Scenario(partial(mixed.play, library="open-mpi"), mixed.judge, mixed.SECONDS),
    "churn": Scenario(churn.play, churn.judge, churn.SECONDS),
    "elephants": Scenario(elephants.play, elephants.judge, elephants.SECONDS),
    "kinds": Scenario(kinds.play, kinds.judge, kinds.SECONDS),
    "patterns": Scenario(patterns.play, patterns.judge, patterns.SECONDS),
    "swap": Scenario(swap.play, swap.judge, swap.SECONDS),
}


def run(
    name: str,
    seeds: Sequence[int],
    modes: Collection[Mode],
    repeat: int,
    seconds: float | None,
    out: Path,
) -> None:
    """Make the requested runs that have no rows yet, and judge all requested runs.

    Exits with status 1 when a target is missed, or an iteration gave a wrong result."""
    scenario = SCENARIOS[name]
    length = seconds or scenario.seconds
    out.mkdir(parents=True, exist_ok=True)
    file = out / f"{name}.jsonl"
    done = {row.run for row in read_rows(file)}
    wanted = [Run(name, s, r, length, mode) for r in range(repeat) for s in seeds for mode in Mode if mode in modes]
    for each in wanted:
        if each not in done:
            rows = list(rows_of(each, scenario, out))
            with file.open("a") as lines:
                lines.writelines(json.dumps(asdict(row)) + "\n" for row in rows)
            typer.echo(f"{name}, seed {each.seed}, repeat {each.repeat}, {each.mode}: load {rows[-1].load}", err=True)
    rows = [row for row in read_rows(file) if row.run in wanted]
    found = scenario.judge(rows)
    wrong = sum(row.wrong for row in rows)
    result: dict[str, Any] = {
        "tables": found.tables,
        "targets": [target_line(target) for target in found.targets],
        "wrong": wrong,
    }
    report(result, out / f"{name}.json", {**found.tables, "Targets": result["targets"]})
    if wrong or not all(target.met for target in found.targets):
        raise typer.Exit(1)


def rows_of(of: Run, scenario: Scenario, out: Path) -> Iterator[Row]:
    """Make one run on a new fabric, and yield a row for each job."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"signalbox-{of.scenario}-")))
        on = stack.enter_context(stage(Mode(of.mode), scratch))
        played = list(scenario.play(on, of.seed, of.seconds))
        if on.planned:
            keep(on, out / "raw" / f"{of.scenario}-{of.seed}-{of.repeat}")
        load = round(os.getloadavg()[0], 1)
        for job, more in played:
            iterations = on.iterations_of(job.job_id)
            yield Row(
                **of._asdict(),
                job=job.job_id,
                collective=job.collective,
                ranks=len(job.hosts),
                iterations=[(begin, took) for begin, took, _ in iterations],
                wrong=sum(not ok for *_, ok in iterations),
                load=load,
                more=more,
            )


def keep(on: Stage, folder: Path) -> None:
    """Save the records of a planned run: the ``Look``s and the controller's log."""
    if folder.exists():
        shutil.rmtree(folder)
    on.keep(folder / "looks.jsonl")
    shutil.copy(on.folder / "controller.log", folder)


def target_line(target: Target) -> dict[str, Any]:
    figure = "-" if target.figure is None else f"{target.figure:.2f}"
    limit = f"{round(target.limit, 3):g}"
    return {"target": target.name, "at most": limit, "figure": figure, "": "" if target.met else "missed"}


def main(
    scenario: Annotated[str, typer.Argument(help=f"Scenario: {', '.join(SCENARIOS)}.")] = "mixes",
    seed: Annotated[list[int] | None, typer.Option(help="Random seed; 0 by default.")] = None,
    mode: Annotated[list[Mode] | None, typer.Option(help="Mode to run; all by default.")] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Number of repetitions of a scenario.")] = 1,
    seconds: Annotated[float | None, typer.Option(min=1, help="Length of a scenario in each mode.")] = None,
    out: Annotated[Path, typer.Option(help="Directory for the results.")] = Path("out/bench/joining"),
) -> None:
    """Run real Gloo or Open MPI jobs on the emulated fabric: flat switch, ECMP, planned."""
    if scenario not in SCENARIOS:
        raise typer.BadParameter(f"there is no scenario {scenario!r}; there are: {', '.join(SCENARIOS)}")
    run(scenario, seed or [0], set(mode or Mode), repeat, seconds, out)
