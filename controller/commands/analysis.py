"""``signalbox what-if`` and ``signalbox explain``: analyses of single failures and of one job.

In: workload files and a description of a fabric, analysed here; or, without them, the running controller, which
analyses its own network. Out: a few sentences and tables for people, JSON for programs; exit status 3 when some flows
have no path. docs/reference/json-output.md describes the fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from controller.commands.scenario import OptionalFabricCommand, scheme_named
from controller.planning.analysis.requests import AnalyseFailures, AnalyseJob, Network
from controller.scenarios.fabric_options import FabricOptions
from signalbox.client import DEFAULT_ADDRESS
from signalbox.commands.connecting import ControllerCommand, connect
from signalbox.commands.exit_status import ExitStatus
from signalbox.commands.naming import completed, job_names, part_names
from signalbox.commands.output import Address, AsJson, escape, fields, show, waiting
from signalbox.commands.tables import Column, Fitted, facts
from signalbox.jobs.spec import JobId
from signalbox.words import FailureKind

if TYPE_CHECKING:
    from controller.planning.analysis.failures import Progress as OnProgress

MOST_NAMES = 3
"""Jobs that a cell names before it only says how many there are."""
MOST_ROWS = 20
_COLUMNS = (
    "alike",
    "ECMP",
    "at\nonce",
    "plan",
    "whole\nbound",
    "split\nbound",
    "cut\noff",
    "re-\nrouted",
    "moved\ntoo",
)
_CAPTION = (
    "alike: failures with these levels. ECMP: mean level of the worst job when all flows are hashed; at once: when "
    "only the affected flows are re-routed; plan: when others may move too. bound: lowest possible level with whole "
    "flows, with split flows."
)

TIME_LIMIT_S = 2.0

TimeLimit = Annotated[
    float | None,
    typer.Option(
        min=0.01, metavar="S", help="Seconds that the solver may take for one plan.", show_default=f"{TIME_LIMIT_S:g}"
    ),
]

commands = typer.Typer()


class _AskOrPlan(ControllerCommand, OptionalFabricCommand):
    """Takes the options of both kinds of command."""


@commands.command("what-if", cls=_AskOrPlan)
def what_if(
    ctx: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Parts of the controller's fabric that fail all at once, as for drain, in place of each in turn.",
            show_default=False,
            autocompletion=completed(part_names),
        ),
    ] = None,
    fail: Annotated[
        str | None,
        typer.Option(
            metavar="KIND,…",
            help="What fails: spines, cables, bundles (of parallel cables).",
            show_default="spines,cables,bundles",
        ),
    ] = None,
    top: Annotated[
        int, typer.Option(min=0, metavar="N", help="Cases to print, the worst first; 0 for all.")
    ] = MOST_ROWS,
    time_limit: TimeLimit = None,
    within: Annotated[
        float, typer.Option(min=0.1, metavar="S", help="Seconds for all cases; of those left only bounds are computed.")
    ] = 60.0,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Compute the effect of each single failure of a spine or cable on ECMP, the plan and its bound; worst first. With
    names: of a failure, or a drain, of all that they name."""
    options: FabricOptions | None = ctx.obj
    kinds = _kinds(fail) if fail else frozenset(FailureKind)
    if names and (fail or options):
        other = "--fail" if fail else "--workload, whose failures --fail-spines and --fail-links name"
        raise typer.BadParameter(f"names are not for {other}", param_hint="NAME")
    if options is None:
        _only_offline(time_limit=time_limit)
        with waiting("the controller is planning"), connect(address) as client:
            found = fields(client.what_if(kinds if fail else (), top, within, names or ()))
    else:
        # The solver takes half a second to import, which no other command needs.
        from controller.api.convert_analysis import what_if_message
        from controller.planning.analysis.failures import analyse_failures

        request = AnalyseFailures(_network(options, "planned", time_limit), kinds, top or None, within)
        with _progress() as progress:
            found = fields(what_if_message(analyse_failures(request, progress)))
    show(found, lambda: _failures(found), as_json)
    if found["now"]["unrouted"]:
        raise typer.Exit(ExitStatus.PARTLY)


@commands.command("explain", cls=_AskOrPlan)
def explain(
    ctx: typer.Context,
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB",
            help="The job's id; offline its file's name without .txt.",
            autocompletion=completed(job_names),
        ),
    ],
    strategy: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose routes to explain.", show_default="planned")
    ] = None,
    time_limit: TimeLimit = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Say whether the network slows a job: which link, shared with which jobs, and what routing can still gain."""
    options: FabricOptions | None = ctx.obj
    if options is None:
        _only_offline(strategy=strategy, time_limit=time_limit)
        with waiting("the controller is planning"), connect(address) as client:
            found = fields(client.explain(job))
    else:
        from controller.api.convert_analysis import explain_message
        from controller.planning.analysis.job import analyse_job

        network = _network(options, strategy or "planned", time_limit)
        with waiting("planning"):
            found = fields(explain_message(analyse_job(AnalyseJob(network, JobId(job), efficiency_measured=None))))
    show(found, lambda: _job(found), as_json)
    if found["flows_without_a_path"]:
        raise typer.Exit(ExitStatus.PARTLY)


def _only_offline(**given: object) -> None:
    for name, value in given.items():
        if value is not None:
            message = "needs a --workload; the running controller has its own"
            raise typer.BadParameter(message, param_hint=f"--{name.replace('_', '-')}")


def _network(options: FabricOptions, strategy: str, time_limit: float | None) -> Network:
    """The network of the options, with the strategy's routes in force."""
    from controller.config import PlanningConfig
    from controller.planning.plan import answered
    from controller.planning.problem import PlanLimits
    from controller.scenarios.scenario import scenario

    scheme = scheme_named(strategy)
    max_moves = PlanningConfig().max_moves
    limits = PlanLimits(time_limit_s=time_limit or TIME_LIMIT_S, max_moves=max_moves, seed=options.seed)
    with waiting("planning"):
        known = scenario(options)
        plan = answered(scheme(known.problem(), replace(limits, ecmp_draws=0)))
        return Network(known.problem(plan.routes), known.fabric, known.intact, limits, known.names)


def _kinds(text: str) -> frozenset[FailureKind]:
    named = {f"{kind.value}s": kind for kind in FailureKind if kind is not FailureKind.PARTS}
    items = [item.strip() for item in text.split(",")]
    wrong = [item for item in items if item not in named]
    if wrong:
        message = f"there is no kind '{wrong[0]}'; choose {', '.join(named)}, separated by commas"
        raise typer.BadParameter(message, param_hint="--fail")
    return frozenset(named[item] for item in items)


@contextmanager
def _progress() -> Iterator[OnProgress]:
    """A bar on a terminal, nothing elsewhere."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("failures", total=None)
        yield lambda stage, done, of: bar.update(task, description=stage, completed=done, total=of)


# ---- tables


def _failures(found: Mapping[str, Any]) -> RenderableType:
    table = Table(box=SIMPLE_HEAD, caption=_CAPTION, caption_justify="left", padding=(0, 1, 0, 0))
    table.add_column("failure", no_wrap=True)
    for column in _COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for outcome in found["outcomes"]:
        table.add_row(
            escape(outcome["example"]),
            f"{len(outcome['failures']):,}",
            _level((outcome["ecmp_level"] or {}).get("mean")),
            _level(outcome["repaired_level"]),
            _level(outcome["level"]),
            _level(outcome["integer_bound"]),
            _level(outcome["bound"]),
            f"{len(outcome['lost']):,}",
            _range(outcome["rerouted_fewest"], outcome["rerouted_most"]),
            "-" if outcome["level"] is None else f"{outcome['moved']:,}",
        )
    left = found["cases"] - len(found["outcomes"])
    rest = [f"{left:,} more cases are no worse; --top 0 prints all."] if left else []
    return Group("\n".join(map(escape, found["answer"])), *([table] if table.row_count else []), *rest)


def _level(level: float | None) -> str:
    return "-" if level is None else f"{level:.2f}"


def _range(fewest: int, most: int) -> str:
    return f"{fewest:,}" if fewest == most else f"{fewest:,}-{most:,}"


def _job(found: Mapping[str, Any]) -> RenderableType:
    columns = Column("link"), Column("load", number=True), Column("flows and load of each job", wraps=True)
    links = Fitted(columns, map(_full_link, found["fullest_links"]), title="fullest links of the job")
    return Group("\n".join(map(escape, found["answer"])), "", facts(_facts(found)), links)


def _full_link(link: Mapping[str, Any]) -> tuple[str, str, str]:
    shares = [f"{share['job_id']} {share['flows']} ({share['load']:.2f})" for share in link["jobs"]]
    more = [f"{len(shares) - MOST_NAMES} more jobs"] if len(shares) > MOST_NAMES else []
    name = f"{link['link']} (NIC)" if link["nic"] else link["link"]
    return name, f"{link['load']:.2f}", ", ".join([*shares[:MOST_NAMES], *more])


def _facts(found: Mapping[str, Any]) -> dict[str, str]:
    flows = [f"{found['flows']:,}"]
    for count, what in (("inside_a_leaf", "inside a leaf"), ("hashed", "hashed"), ("without_a_path", "without a path")):
        flows += [f"{found[f'flows_{count}']:,} {what}"] * (found[f"flows_{count}"] > 0)
    known = {
        "flows": ", ".join(flows),
        "level now": f"{found['level']:.4g}; its NICs alone {found['nic_level']:.4g}; "
        f"lowest possible {found['least_level']:.4g}",
    }
    for name, what in (("best", "planned"), ("split", "planned with split flows")):
        if option := found[name]:
            known[what] = (
                f"{option['level']:.4g}; worst job {option['worst_level']:.4g}, bound {option['worst_bound']:.4g} "
                f"({option['certificate']})"
            )
    return known
