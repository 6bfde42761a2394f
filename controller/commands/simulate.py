"""``simulate``: trains a workload on paper, under one or more routing strategies.

In: workload files, a description of a fabric, and what the controller does in the middle of it. Out: a table of
slow-downs or, with ``--json``, every iteration of every job; exit status 3 when a job had to stop for want of a path.
docs/explanation/simulator.md describes the model, docs/reference/json-output.md the fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from controller.commands.output import AsJson, show, waiting
from controller.commands.scenario import FabricCommand
from controller.offline.fabric_options import FabricOptions
from controller.simulator.options import Options, Replan, Sharing

PARTLY_TRAINED = 3
"""Exit status when a job had to stop."""

commands = typer.Typer()

_DEFAULTS = Options()
_FAILURES = "Failures"


@commands.command("simulate", cls=FabricCommand)
def simulate_command(
    ctx: typer.Context,
    strategy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME,…", help="How to route; several give a row each.", show_default="planned"),
    ] = None,
    iterations: Annotated[int, typer.Option(min=1, help="Of every job.")] = _DEFAULTS.iterations,
    random_starts: Annotated[
        float | None,
        typer.Option(min=0, max=1e6, metavar="S", help="Draw start times from 0 to this.", show_default="the files'"),
    ] = _DEFAULTS.random_starts_s,
    replan: Annotated[
        Replan,
        typer.Option(
            help="published: at every start and end of an all-reduce, for who sends then; hysteresis: as the "
            "controller does, only for a gain; never: once, for all jobs."
        ),
    ] = _DEFAULTS.replan,
    sharing: Annotated[
        Sharing,
        typer.Option(
            help="Of full links. paced: flows alike, their pieces in step; weighted: flows by demand; "
            "equal: all pieces alike."
        ),
    ] = _DEFAULTS.sharing,
    lose_sent: Annotated[
        bool,
        typer.Option(
            "--lose-sent", metavar="", help="A rerouted flow resends part of its step, as in the published simulator."
        ),
    ] = _DEFAULTS.lose_sent,
    fail_at: Annotated[
        float, typer.Option(min=0, metavar="S", help="When the failures happen.", rich_help_panel=_FAILURES)
    ] = 0.0,
    repair_at: Annotated[
        float | None, typer.Option(min=0, metavar="S", help="When they are over.", rich_help_panel=_FAILURES)
    ] = None,
    time_limit: Annotated[float, typer.Option(min=0.01, metavar="S", help="Seconds that one plan may take.")] = 2.0,
    as_json: AsJson = False,
) -> None:
    """Train a workload on paper: all-reduce times and slow-downs of every job. Exit status 3: a job had no path."""
    options: FabricOptions = ctx.obj
    how = Options(
        iterations=iterations,
        random_starts_s=random_starts,
        replan=replan,
        sharing=sharing,
        lose_sent=lose_sent,
        seed=options.seed,
    )
    if repair_at is not None and repair_at <= fail_at:
        raise typer.BadParameter(f"must be after --fail-at ({fail_at:g})", param_hint="--repair-at")
    found = _trained(options, strategy or ["planned"], how, time_limit, (fail_at, repair_at))
    show(found, lambda: _table(found), as_json)
    if any(job["cut_off"] for strategy in found["strategies"] for job in strategy["jobs"]):
        raise typer.Exit(PARTLY_TRAINED)


def _trained(
    options: FabricOptions, names: list[str], how: Options, time_limit_s: float, failed_s: tuple[float, float | None]
) -> dict[str, Any]:
    """The report. ``failed_s``: when the failures begin and end."""
    # The solver takes half a second to import, which no other command needs.
    from controller.offline.scenario import problem_of, scenario
    from controller.planning.bounds import level_bounds
    from controller.planning.problem import PlanLimits
    from controller.planning.schemes import SCHEMES
    from controller.simulator.training import Outcome, Stage, report, simulate

    names = _known_names(names, SCHEMES)
    known = scenario(options)
    failed, intact = known.problem(), problem_of(known.intact, known.jobs)
    fail_s, repair_s = failed_s
    stages = [Stage(0.0, intact), Stage(fail_s, failed)] if fail_s else [Stage(0.0, failed)]
    if repair_s is not None:
        stages.append(Stage(repair_s, intact))
    limits = PlanLimits(time_limit_s=time_limit_s, ecmp_draws=0, seed=options.seed)

    def outcome_of(name: str) -> Outcome:
        with waiting(f"training under {name}"):
            return simulate(stages, known.jobs, lambda problem: SCHEMES[name](problem, limits), how)

    bound = level_bounds(failed).fluid
    return report(how, bound, [(name, outcome_of(name)) for name in names])


def _known_names(given: list[str], known: Mapping[str, object]) -> list[str]:
    names = [name.strip() for text in given for name in text.split(",")]
    for name in names:
        if name not in known:
            message = f"there is no strategy '{name}'; choose {', '.join(known)}"
            raise typer.BadParameter(message, param_hint="--strategy")
    return list(dict.fromkeys(names))


def _table(found: Mapping[str, Any]) -> RenderableType:
    table = Table("strategy", "job")
    for column in ("iterations", "ideal s", "mean s", "slow-down", "best", "worst", "plans", "moves"):
        table.add_column(column, justify="right")
    for strategy in found["strategies"]:
        for job in strategy["jobs"]:
            table.add_row(escape(strategy["strategy"]), escape(job["job"]), *_times(job))
        counts = map(str, (strategy["plans"], strategy["moves"]))
        table.add_row("", "mean of jobs", "", "", "", _number(strategy["mean_slow_down"]), "", "", *counts)
        table.add_section()
    bound = f"With the failures and all jobs at once, however routed, the slowest is at {found['bound']:.4g} or above."
    return Group(table, bound)


def _times(job: Mapping[str, Any]) -> list[str]:
    times = [iteration["all_reduce_s"] for iteration in job["iterations"]]
    count = f"{len(times)}, cut off" if job["cut_off"] else str(len(times))
    if not times:
        return [count, f"{job['ideal_s']:.3f}"]
    slow = [iteration["slow_down"] for iteration in job["iterations"]]
    mean_s = sum(times) / len(times)
    numbers = (job["mean_slow_down"], min(slow), max(slow))
    return [count, f"{job['ideal_s']:.3f}", f"{mean_s:.3f}", *map(_number, numbers)]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
