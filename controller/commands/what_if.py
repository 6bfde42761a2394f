"""Commands that look further than the present: ``what-if`` for failures, ``explain`` for one job.

In: workload files and a description of a fabric, planned here; or, without them, the running controller, which is
asked about its own network. Out: a few sentences and tables for people, JSON for programs; exit status 3 when some
flows have no path. docs/offline.md describes the fields.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from controller.api.client import DEFAULT_ADDRESS, Client
from controller.commands.offline import PARTLY_ROUTED
from controller.commands.output import Address, AsJson, fields, show, waiting
from controller.commands.scenario import OptionalFabricCommand
from controller.errors import SignalboxError
from controller.jobs.spec import JobId
from controller.offline.fabric_options import FabricOptions
from controller.planning.questions.single_failures import Kind

if TYPE_CHECKING:
    from controller.offline.scenario import Scenario
    from controller.planning.plan import Plan
    from controller.planning.problem import PlanLimits
    from controller.planning.questions.what_if import Progress as OnProgress

MOST_NAMES = 3
"""Jobs or failures that a cell names before it only says how many there are."""
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
_COLUMNS_MEAN = (
    "alike: failures with these levels. ECMP: mean level of the worst job when all is hashed; at once: with only the "
    "flows off the failure re-routed; plan: when others may move too. bound: no routing of whole flows, or of split "
    "ones, does better."
)

TIME_LIMIT_S = 2.0

TimeLimit = Annotated[
    float | None,
    typer.Option(
        min=0.01, metavar="S", help="Seconds that the solver may take for one plan.", show_default=f"{TIME_LIMIT_S:g}"
    ),
]

commands = typer.Typer()


@commands.command("what-if", cls=OptionalFabricCommand)
def what_if(
    ctx: typer.Context,
    fail: Annotated[
        str, typer.Option(metavar="KIND,…", help="What fails: spines, cables, bundles (of parallel cables).")
    ] = "spines,cables,bundles",
    top: Annotated[
        int, typer.Option(min=0, metavar="N", help="Cases to tell, the worst first; 0 for all.")
    ] = MOST_ROWS,
    time_limit: TimeLimit = None,
    within: Annotated[
        float, typer.Option(min=0.1, metavar="S", help="Seconds for all cases; those left are only bounded.")
    ] = 60.0,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Fail every spine and every cable in turn, on paper: hashing, the plan, its bound, who is cut off; worst first."""
    options: FabricOptions | None = ctx.obj
    kinds = _kinds(fail)
    if options is None:
        _only_on_paper(time_limit=time_limit)
        with waiting("the controller is planning"), Client(address) as client:
            found = fields(client.what_if(kinds, top, within))
    else:
        found = _what_if_on_paper(options, kinds, top, time_limit or TIME_LIMIT_S, within)
    show(found, lambda: _survey(found), as_json)
    if found["now"]["unrouted"]:
        raise typer.Exit(PARTLY_ROUTED)


@commands.command("explain", cls=OptionalFabricCommand)
def explain(
    ctx: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's id; on paper its file's name without .txt.")],
    strategy: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose routes to explain.", show_default="planned")
    ] = None,
    time_limit: TimeLimit = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Say whether the network slows a job: which link, shared with whom, and what routing can still gain."""
    options: FabricOptions | None = ctx.obj
    if options is None:
        _only_on_paper(strategy=strategy, time_limit=time_limit)
        with waiting("the controller is planning"), Client(address) as client:
            found = fields(client.explain(job))
    else:
        found = _explain_on_paper(options, job, strategy or "planned", time_limit or TIME_LIMIT_S)
    show(found, lambda: _explanation(found), as_json)
    if found["flows_without_a_path"]:
        raise typer.Exit(PARTLY_ROUTED)


def _only_on_paper(**given: object) -> None:
    for name, value in given.items():
        if value is not None:
            message = "needs a --workload; the running controller has its own"
            raise typer.BadParameter(message, param_hint=f"--{name.replace('_', '-')}")


# ---- on paper


def _what_if_on_paper(
    options: FabricOptions, kinds: Collection[Kind], top: int, time_limit: float, within: float
) -> dict[str, Any]:
    # The solver takes half a second to import, which no other command needs.
    from controller.planning.problem import PlanLimits
    from controller.planning.questions import single_failures, what_if_words
    from controller.planning.questions.what_if import SurveyLimits
    from controller.planning.questions.what_if import what_if as survey

    limits = SurveyLimits(top or None, within, PlanLimits(time_limit_s=time_limit, seed=options.seed))
    with waiting("planning"):
        known, plan = _planned(options, "planned", PlanLimits(seed=options.seed, ecmp_draws=0))
        problem = known.problem(plan.routes)
        failures = single_failures.single_failures(known.fabric, kinds, known.intact)
        cases = single_failures.cases(problem, known.fabric, failures)
    with _progress() as progress:
        found = survey(problem, cases, limits, progress)
    return what_if_words.fields(found, known.names.flow)


def _explain_on_paper(options: FabricOptions, job: str, strategy: str, time_limit: float) -> dict[str, Any]:
    from controller.planning.problem import PlanLimits
    from controller.planning.questions import explain_words
    from controller.planning.questions.explain import explain as explanation

    limits = PlanLimits(time_limit_s=time_limit, seed=options.seed)
    with waiting("planning"):
        known, plan = _planned(options, strategy, limits)
        found = explanation(known.problem(plan.routes), JobId(job), known.fabric, limits, intact=known.intact)
    return explain_words.fields(found, known.names)


def _planned(options: FabricOptions, strategy: str, limits: PlanLimits) -> tuple[Scenario, Plan]:
    from controller.offline.scenario import scenario
    from controller.planning.plan import NoPlan
    from controller.planning.schemes import SCHEMES

    if strategy not in SCHEMES:
        message = f"there is no strategy '{strategy}'; choose {', '.join(SCHEMES)}"
        raise typer.BadParameter(message, param_hint="--strategy")
    known = scenario(options)
    plan = SCHEMES[strategy](known.problem(), limits)
    if isinstance(plan, NoPlan):
        raise SignalboxError(f"no plan: {plan.reason}")
    return known, plan


def _kinds(text: str) -> set[Kind]:
    named = {f"{kind.value}s": kind for kind in Kind}
    items = [item.strip() for item in text.split(",")]
    wrong = [item for item in items if item not in named]
    if wrong:
        message = f"there is no kind '{wrong[0]}'; choose {', '.join(named)}, separated by commas"
        raise typer.BadParameter(message, param_hint="--fail")
    return {named[item] for item in items}


@contextmanager
def _progress() -> Iterator[OnProgress]:
    """A bar on a terminal, nothing elsewhere."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("failures", total=None)
        yield lambda stage, done, of: bar.update(task, description=stage, completed=done, total=of)


# ---- tables


def _survey(found: Mapping[str, Any]) -> RenderableType:
    table = Table(box=SIMPLE_HEAD, caption=_COLUMNS_MEAN, caption_justify="left", padding=(0, 1, 0, 0))
    table.add_column("failure", no_wrap=True)
    for column in _COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for outcome in found["outcomes"]:
        table.add_row(
            escape(outcome["example"]),
            f"{len(outcome['failures']):,}",
            f"{outcome['ecmp_level']['mean']:.2f}" if "ecmp_level" in outcome else "-",
            f"{outcome['repaired_level']:.2f}" if "repaired_level" in outcome else "-",
            f"{outcome['level']:.2f}" if "level" in outcome else "-",
            f"{outcome['integer_bound']:.2f}",
            f"{outcome['bound']:.2f}",
            f"{len(outcome['lost']):,}",
            _range(outcome["rerouted_fewest"], outcome["rerouted_most"]),
            f"{outcome['moved']:,}" if "level" in outcome else "-",
        )
    left = found["cases"] - len(found["outcomes"])
    rest = f"{left:,} more cases are no worse; --top 0 tells all." if left else ""
    return Group(
        "\n".join(map(escape, found["answer"])), *([table] if table.row_count else []), *([rest] if rest else [])
    )


def _range(fewest: int, most: int) -> str:
    return f"{fewest:,}" if fewest == most else f"{fewest:,}-{most:,}"


def _explanation(found: Mapping[str, Any]) -> RenderableType:
    facts = Table.grid(padding=(0, 2))
    for name, value in _facts(found).items():
        facts.add_row(name, escape(value))
    links = Table("fullest links of the job")
    links.add_column("load", justify="right")
    links.add_column("flows and load of each job")
    for link in found["fullest_links"]:
        shares = [f"{share['job_id']} {share['flows']} ({share['load']:.2f})" for share in link["jobs"]]
        more = [f"{len(shares) - MOST_NAMES} more jobs"] if len(shares) > MOST_NAMES else []
        name = f"{link['link']} (NIC)" if link["nic"] else link["link"]
        links.add_row(escape(name), f"{link['load']:.2f}", escape(", ".join([*shares[:MOST_NAMES], *more])))
    return Group("\n".join(map(escape, found["answer"])), "", facts, links)


def _facts(found: Mapping[str, Any]) -> dict[str, str]:
    flows = [f"{found['flows']:,}"]
    for count, what in (("inside_a_leaf", "inside a leaf"), ("hashed", "hashed"), ("without_a_path", "without a path")):
        flows += [f"{found[f'flows_{count}']:,} {what}"] * (found[f"flows_{count}"] > 0)
    facts = {
        "flows": ", ".join(flows),
        "level now": f"{found['level']:.4g}; its NICs alone {found['nic_level']:.4g}; "
        f"no routes at all below {found['least_level']:.4g}",
    }
    for name, what in (("best", "planned"), ("split", "planned with split flows")):
        if option := found.get(name):
            facts[what] = (
                f"{option['level']:.4g}; worst job {option['worst_level']:.4g}, bound {option['worst_bound']:.4g} "
                f"({option['certificate']})"
            )
    return facts
