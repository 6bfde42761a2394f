"""Commands that need no controller, no network and no root: ``plan-file`` and ``generate-workload``.

In: workload files and a description of a fabric. Out: tables for people, JSON and CSV for programs; exit status 3 when
something could not be routed and the rest was. docs/reference/json-output.md describes the formats.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from controller.commands.output import AsJson, show, waiting
from controller.commands.scenario import FabricCommand
from controller.errors import SignalboxError
from controller.offline.fabric_options import FabricOptions, Placement

PARTLY_ROUTED = 3
"""Exit status when flows are left without a route."""
MAX_UNROUTED_SHOWN = 10

commands = typer.Typer()

StrategyName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="How to route: planned, or a published scheme: ecmp, greedy, edge-coloring, first-fit, annealing, ilp.",
    ),
]

TimeLimit = Annotated[float, typer.Option(min=0.01, metavar="S", help="Seconds that the solver may take.")]


@commands.command("plan-file", cls=FabricCommand)
def plan_file(
    ctx: typer.Context,
    strategy: StrategyName = "planned",
    time_limit: TimeLimit = 2.0,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", metavar="", help="Same input, same plan, however fast the machine is.")
    ] = False,
    export: Annotated[Path | None, typer.Option(metavar="FILE", help="Write every route as CSV.")] = None,
    as_json: AsJson = False,
) -> None:
    """Plan the routes of a workload on paper, and say how good they are. Exit status 3: some flows have no path."""
    # The solver takes half a second to import, which no other command needs.
    from controller.offline.plan_report import summary, write_csv
    from controller.offline.scenario import scenario
    from controller.planning.plan import NoPlan
    from controller.planning.problem import PlanLimits
    from controller.planning.schemes import SCHEMES

    options: FabricOptions = ctx.obj
    if strategy not in SCHEMES:
        message = f"there is no strategy '{strategy}'; choose {', '.join(SCHEMES)}"
        raise typer.BadParameter(message, param_hint="--strategy")
    with waiting("planning"):
        known = scenario(options)
        problem = known.problem()
        limits = PlanLimits(time_limit_s=time_limit, seed=options.seed, deterministic=deterministic)
        # The garbage collector's first full run looks at all of this: 40 to 60 ms, in the middle of planning.
        gc.freeze()
        plan = SCHEMES[strategy](problem, limits)
    if isinstance(plan, NoPlan):
        raise SignalboxError(f"no plan: {plan.reason}")
    if export:
        write_csv(export, known.names, problem, plan)
    found = summary(strategy, known.names, problem, plan)
    show(found, lambda: _summary(found, export), as_json)
    if found["unrouted"]:
        raise typer.Exit(PARTLY_ROUTED)


@commands.command("generate-workload")
def generate_workload(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the files go; made when it is not there.")],
    leaves: Annotated[int, typer.Option(min=1, help="Leaves of the fabric.")],
    spines: Annotated[int, typer.Option(min=1, help="Spines of the fabric; hosts are numbered after them.")],
    hosts_per_leaf: Annotated[int, typer.Option(min=1, help="Hosts on every leaf.")],
    jobs: Annotated[int, typer.Option(min=1, help="Jobs, each one of three published models.")] = 3,
    ring_size: Annotated[int, typer.Option(min=2, help="Hosts per ring, fewer where that does not fit.")] = 4,
    placement: Annotated[Placement, typer.Option(help="Where the jobs are.")] = Placement.WHOLE_LEAF,
    max_rings: Annotated[
        int | None, typer.Option(min=1, help="Rings per job, for small fabrics.", show_default="as the model has")
    ] = None,
    seed: Annotated[int, typer.Option(help="Names the workload.")] = 1,
) -> None:
    """Write a workload of the published kind for a leaf-spine fabric: the same for the same options."""
    from controller.offline.fabrics import leaf_spine
    from controller.offline.generator import generate
    from controller.offline.workloads import write_workload

    fabric = leaf_spine(leaves, spines, hosts_per_leaf, link_bps=1.0, uplink_bps=1.0)
    workload = generate(fabric, jobs, ring_size, placement, seed, max_rings)
    write_workload(folder, workload)
    flows = {name: len(lines) for name, lines in workload.items()}
    typer.echo(f"{folder}: " + ", ".join(f"{name} ({count} flows)" for name, count in flows.items()))


def _summary(found: Mapping[str, Any], export: Path | None) -> RenderableType:
    proven, jobs, ecmp = found["levels_proven"], found["job_level"], found["ecmp_level"]
    facts = {
        "strategy": found["strategy"],
        "flows": f"{found['flows']:,} in {found['subflows']:,} pieces, at most {found['max_subflows_of_a_flow']} each",
        "worst level": f"{found['max_level']:.4g}, gap {found['gap']:.2%}; best possible without splitting: "
        f"{found['integer_bound']:.4g}, with splitting: {found['bound']:.4g}",
        "certificate": f"{found['certificate']}, {proven} of {len(jobs)} levels proven",
        "ECMP": f"{ecmp['mean']:.3g} on average, 95th percentile {ecmp['p95']:.3g}" if ecmp else "not drawn",
        "planned in": ", ".join(f"{stage} {ms:.1f} ms" for stage, ms in found["plan_ms"].items()),
    }
    if export:
        facts["routes"] = f"written to {export}"
    if found["unrouted"]:
        facts["without a path"] = _some(found["unrouted"])
    grid = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        grid.add_row(name, escape(value))
    levels = Table("job", title_justify="left")
    levels.add_column("level", justify="right")
    levels.add_column("efficiency", justify="right")
    for job, level in sorted(jobs.items(), key=lambda entry: -entry[1]):
        levels.add_row(escape(job), f"{level:.4g}", f"{1 / level:.1%}")
    return Group(grid, levels)


def _some(names: list[str]) -> str:
    rest = len(names) - MAX_UNROUTED_SHOWN
    return "\n".join([*names[:MAX_UNROUTED_SHOWN], *([f"and {rest} more"] if rest > 0 else [])])
