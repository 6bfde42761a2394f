"""Commands ``signalbox what-if`` and ``signalbox explain``, for jobs in files and for the running controller.

With ``--workload`` or ``--jobs`` the commands analyse these jobs on a described fabric themselves. Without both they
send a request to the controller, like the client's commands of the same names. ``signalbox/commands/analysis.py``
prints the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from offline.commands.scenario import OptionalFabricCommand, scheme_named
from offline.scenarios.fabric_options import FabricOptions
from signalbox.commands.analysis import (
    MOST_ROWS,
    WITHIN_S,
    Fail,
    Names,
    Top,
    Within,
    asked_to_explain,
    asked_what_if,
    kinds_named,
    show_failures,
    show_job,
)
from signalbox.commands.connecting import AskingCommand, completed, job_names
from signalbox.commands.output import waiting
from signalbox.jobs.spec import JobId
from signalbox.words import FailureKind

if TYPE_CHECKING:
    from controller.public.plans import Network
    from controller.public.plans import Progress as OnProgress

TIME_LIMIT_S = 2.0

TimeLimit = Annotated[
    float | None,
    typer.Option(
        min=0.01, metavar="S", help="Seconds that the solver may take for one plan.", show_default=f"{TIME_LIMIT_S:g}"
    ),
]

commands = typer.Typer()


class _AskOrPlan(AskingCommand, OptionalFabricCommand):
    """Command class that accepts the options of the controller's connection and the options of a fabric."""


@commands.command("what-if", cls=_AskOrPlan)
def what_if(
    ctx: typer.Context,
    names: Names = None,
    fail: Fail = None,
    top: Top = MOST_ROWS,
    time_limit: TimeLimit = None,
    within: Within = WITHIN_S,
) -> None:
    """Compute the slowdown after each single failure of a spine or cable: under ECMP, with the plan, and its bound.

    The worst failure comes first. With NAMEs: compute the effect of one failure, or one drain, of all named components.
    Without --workload and --jobs the running controller answers. Exit status 3: some flows have no path even before a
    failure."""
    options: FabricOptions | None = ctx.obj
    if names and (fail or options):
        other = "--fail" if fail else "--workload or --jobs; name failures with --fail-spines and --fail-links"
        raise typer.BadParameter(f"cannot be combined with {other}", param_hint="NAME")
    if options is None:
        _only_offline(time_limit=time_limit)
        show_failures(asked_what_if(names, fail, top, within))
        return
    # The solver takes half a second to import, so it is imported only where it is needed.
    from controller.public.plans import AnalyseFailures, analyse_failures, what_if_message

    kinds = kinds_named(fail) if fail else frozenset(FailureKind)
    request = AnalyseFailures(_network(options, "planned", time_limit), kinds, top or None, within)
    with _progress_bar() as progress:
        found = what_if_message(analyse_failures(request, progress))
    show_failures(found)


@commands.command("explain", cls=_AskOrPlan)
def explain(
    ctx: typer.Context,
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB",
            help="Id of the job; with --workload the name of the job's file without .txt.",
            autocompletion=completed(job_names),
        ),
    ],
    scheme: Annotated[
        str | None, typer.Option(metavar="NAME", help="Scheme whose routes to explain.", show_default="planned")
    ] = None,
    time_limit: TimeLimit = None,
) -> None:
    """Say whether the network slows a job: which link, shared with which jobs, and what routing can still gain.

    It also says whether counters confirm the announcement, and how many planning cycles better routes need. Without
    --workload and --jobs the running controller answers. Exit status 3: some flows have no path."""
    options: FabricOptions | None = ctx.obj
    if options is None:
        _only_offline(scheme=scheme, time_limit=time_limit)
        show_job(asked_to_explain(job))
        return
    from controller.public.plans import AnalyseJob, PlanningConfig, analyse_job, explain_message

    network = _network(options, scheme or "planned", time_limit)
    with waiting("planning"):
        request = AnalyseJob(network, JobId(job), None, min_gain=PlanningConfig().min_gain)
        found = explain_message(analyse_job(request))
    show_job(found)


def _only_offline(**given: object) -> None:
    for name, value in given.items():
        if value is not None:
            message = "needs --workload or --jobs; without them the running controller answers, with its own settings"
            raise typer.BadParameter(message, param_hint=f"--{name.replace('_', '-')}")


def _network(options: FabricOptions, scheme: str, time_limit: float | None) -> Network:
    """Return the network that the options describe, in which the routes that ``scheme`` plans are in force."""
    from controller.public.plans import Network, PlanningConfig, answered
    from controller.public.problems import PlanLimits
    from offline.scenarios.scenario import scenario

    planner = scheme_named(scheme)
    max_moves = PlanningConfig().max_moves
    limits = PlanLimits(time_limit_s=time_limit or TIME_LIMIT_S, max_moves=max_moves, seed=options.seed)
    with waiting("planning"):
        known = scenario(options)
        plan = answered(planner(known.problem(), replace(limits, ecmp_draws=0)))
        return Network(known.problem(plan.routes), known.fabric, known.intact, limits, known.names)


@contextmanager
def _progress_bar() -> Iterator[OnProgress]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("failures", total=None)
        yield lambda stage, done, of: bar.update(task, description=stage, completed=done, total=of)
