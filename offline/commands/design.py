"""Commands ``signalbox design``: networks for jobs, and placements of jobs in networks (docs/design.md).

The commands read job files, and a file that describes a network of several dimensions. They print tables for people and
JSON for programs. The solver is imported only where it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Context
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table

from offline.commands.design_wiring import wiring
from offline.design.question import COUNTED, Objective, Upper
from offline.scenarios.fabric_options import LEAST_GBPS, MOST_GBPS, FabricKind, FabricOptions, WrongUsage
from signalbox.commands.connecting import PrintingCommand
from signalbox.commands.exit_status import ExitStatus
from signalbox.commands.output import escape, file_to_read, show, waiting
from signalbox.files import STANDARD_INPUT
from signalbox.jobs.spec import MAX_SUBFLOWS
from signalbox.spec_files import placed

if TYPE_CHECKING:
    from controller.public.problems import Fabric
    from offline.design.shape import Shape
    from offline.design.spines import Family

commands = typer.Typer(help="Design networks for jobs, and place jobs in a network.", no_args_is_help=True)

commands.command("wiring", cls=PrintingCommand)(wiring)

SHOWN_GAP = 1e-9
"""Smallest relative gap that is printed; smaller gaps are rounding errors of the solver."""

MOST_SLOWDOWN = 1e6

PROVEN_GAP = 1e-6
"""Largest relative gap at which an answer is called the best."""

NetworkFile = Annotated[
    Path,
    typer.Argument(
        metavar="NETWORK",
        help="File with the dimensions of the network: .yaml, .json or .toml; - for standard input.",
        parser=file_to_read,
    ),
]
JobFiles = Annotated[
    list[Path],
    typer.Argument(metavar="JOBS...", help="Job files; addresses may be left out.", parser=file_to_read),
]


@commands.command("bandwidth", cls=PrintingCommand)
def bandwidth(
    network: NetworkFile,
    jobs: JobFiles,
    objective: Annotated[
        Objective,
        typer.Option(help="Quantity to minimize: time, or time x cost. The latter always uses all of total_gbps."),
    ] = Objective.TIME,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the network with the answer's bandwidths, as JSON.")
    ] = None,
) -> None:
    """Find the bandwidth that each dimension of NETWORK should have for JOBS, with a proof that it is the best."""
    from offline.design.shape import with_rates

    _one_standard_input(network, jobs)
    if export and export.suffix != ".json":
        raise typer.BadParameter(f"'{export}' must end in .json", param_hint="--export")
    with waiting("designing"):
        shape, found = _bandwidth(network, jobs, objective)
    if export:
        export.write_text(with_rates(shape, [each["gbps"] for each in found["dimensions"]]))
    show(found, lambda: _bandwidth_tables(found))


@commands.command("placement", cls=PrintingCommand)
def placement(network: NetworkFile, jobs: JobFiles) -> None:
    """Rank the orders in which a model's parallelism can fill the dimensions of NETWORK, whose bandwidths are known."""
    from offline.design.jobs import designed_jobs
    from offline.design.report import placement_report
    from offline.design.shape import shape_in

    _one_standard_input(network, jobs)
    with waiting("trying all orders"):
        shape, _ = shape_in(network, exists=True)
        found = placement_report(shape, designed_jobs(jobs, shape, every_placement=True))
    show(found, lambda: Group(*map(_placement_table, found["jobs"])))


@commands.command("spines", cls=PrintingCommand)
def spines(
    workload: Annotated[Path, typer.Option(help="Folder of workload files, one per job.", metavar="DIR")],
    fabric: Annotated[FabricKind, typer.Option(help="Kind of fabric that the sizes describe.")] = FabricKind.LEAF_SPINE,
    leaves: Annotated[int | None, typer.Option(min=1, help="Leaf-spine: number of leaves.")] = None,
    spines: Annotated[
        int | None,
        typer.Option(
            min=1, help="Leaf-spine: number of spines of the workload's fabric, and default of --most-spines."
        ),
    ] = None,
    hosts_per_leaf: Annotated[int | None, typer.Option(min=1, help="Leaf-spine: hosts on every leaf.")] = None,
    k: Annotated[int | None, typer.Option("--k", min=2, help="Fat-tree: k of the workload's fabric.")] = None,
    most_spines: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Largest number of spines to try; in a fat-tree, of cores per group.",
            show_default="as --spines, or k/2",
        ),
    ] = None,
    link_gbps: Annotated[
        float, typer.Option(min=LEAST_GBPS, max=MOST_GBPS, help="Rate of every NIC in Gbit/s.")
    ] = 100.0,
    uplink_gbps: Annotated[
        str | None,
        typer.Option(metavar="R,…", help="Rates to try for links between switches, in Gbit/s.", show_default="as NICs"),
    ] = None,
    failures: Annotated[int, typer.Option(min=0, help="Number of failed switches.")] = 1,
    failing: Annotated[
        Upper | None, typer.Option(help="Fat-tree: tier whose switches fail.", show_default="core")
    ] = None,
    max_slowdown: Annotated[
        float,
        typer.Option(
            min=1,
            max=MOST_SLOWDOWN,
            help="Largest slowdown that an all-reduce may have with these failures; 1 for none.",
        ),
    ] = 1.0,
    max_subflows: Annotated[
        int, typer.Option(min=1, max=MAX_SUBFLOWS, help="Largest number of subflows per flow; 1: whole flows.")
    ] = 1,
    export: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Directory to write the fabric (for --graph) and its workload to."),
    ] = None,
) -> None:
    """Find how many spines of a leaf-spine, or cores of a fat-tree, a workload needs while some switches have failed.

    Exit status 3: no number that was tried is enough."""
    from offline.design.spines import exported, spines_report

    sizes = FabricOptions(
        workload=workload,
        fabric=fabric,
        leaves=leaves,
        spines=spines,
        hosts_per_leaf=hosts_per_leaf,
        k=k,
        link_gbps=link_gbps,
    )
    numbered, family, most = _family_of(sizes, failing)
    rates = _rates(uplink_gbps) if uplink_gbps else [link_gbps]
    tried = range(1, (most_spines or most) + 1)
    _refuse_too_many(family, tried, len(rates), failures)
    with waiting("designing"):
        found = spines_report(workload, numbered, family, tried, rates, failures, max_slowdown, max_subflows)
        if export and found["answer"]:
            exported(export, workload, numbered, family, found["answer"])
    show(found, lambda: _spines_tables(found, export))
    if not found["answer"]:
        raise typer.Exit(ExitStatus.PARTLY)


def _family_of(sizes: FabricOptions, failing: Upper | None) -> tuple[Fabric, Family, int]:
    """Return the fabric that gives the workload files their node numbers, its ``Family``, and a number of switches.

    The number counts the spines of a leaf-spine, or the cores per group of a fat-tree."""
    from offline.design.spines import Leaves, Pods
    from offline.scenarios.scenario import build_fabric

    try:
        numbered = build_fabric(sizes)
    except WrongUsage as error:
        raise typer.BadParameter("; ".join(map(str, error.problems))) from None
    if sizes.k:
        return numbered, Pods(sizes.k, sizes.link_gbps, failing or Upper.CORE), sizes.k // 2
    if failing:
        raise typer.BadParameter("does not apply to a leaf-spine", param_hint="--failing")
    leaves, spines, hosts = sizes.leaves or 0, sizes.spines or 0, sizes.hosts_per_leaf or 0
    return numbered, Leaves(leaves, hosts, sizes.link_gbps), spines


def _rates(text: str) -> list[float]:
    try:
        rates = [float(rate) for rate in text.split(",")]
    except ValueError:
        rates = []
    if not rates or not all(LEAST_GBPS <= rate <= MOST_GBPS for rate in rates):
        message = f"'{text}' must be rates from {LEAST_GBPS:g} to {MOST_GBPS:g}, separated by commas"
        raise typer.BadParameter(message, param_hint="--uplink-gbps")
    return rates


def _refuse_too_many(family: Family, tried: range, rates: int, failures: int) -> None:
    """Raise ``typer.BadParameter`` when there are too many cases to try.

    The message has the largest number of failures, or of spines, that can be tried."""
    from offline.design.spines import possible

    if possible(family, tried, rates, failures):
        return
    fewer = next((n for n in range(failures) if not possible(family, tried, rates, n)), failures) - 1
    if fewer >= 0:
        ways = family.count_of_failures(tried[-1], failures)
        message = (
            f"{failures} failures can happen in {ways:,} ways, which are too many to try; give at most {fewer} failures"
        )
        message = f"{message}, a smaller --most-spines, fewer rates or a smaller fabric"
        raise typer.BadParameter(message, param_hint="--failures")
    most = next((n for n in tried if not possible(family, range(1, n + 1), rates, 0)), 1) - 1
    message = f"{tried[-1]:,} spines are too many to try, even without failures; give at most {most:,}"
    raise typer.BadParameter(message, param_hint="--most-spines")


def _one_standard_input(network: Path, jobs: Sequence[Path]) -> None:
    if [network, *jobs].count(STANDARD_INPUT) > 1:
        raise typer.BadParameter("standard input (-) can be given only once")


def _bandwidth(network: Path, files: Sequence[Path], objective: Objective) -> tuple[Shape, dict[str, Any]]:
    from offline.design.bandwidth import fastest
    from offline.design.jobs import designed_jobs, question_of
    from offline.design.report import bandwidth_report
    from offline.design.shape import shape_in
    from offline.design.time_cost import best_product

    shape, place_of = shape_in(network)
    jobs = [job for (job,) in designed_jobs(files, shape)]
    question = question_of(shape, jobs)
    worth_of_total: float | None
    with placed(place_of):
        if objective is Objective.TIME:
            design = fastest(question)
            gap, worth_of_total = design.gap, design.proof.total_s
        else:
            tradeoff = best_product(question)
            design, gap, worth_of_total = tradeoff.design, tradeoff.gap, tradeoff.worth_of_total
    return shape, bandwidth_report(objective, gap, worth_of_total, shape, question, design, jobs)


# ---- tables


def _bandwidth_tables(found: Mapping[str, Any]) -> RenderableType:
    by_time = found["objective"] == Objective.TIME
    unit = "s" if by_time else "s x cost"
    dimensions = Table("dimension", "kind", title="bandwidth of an NPU, each way", title_justify="left")
    for column in ("size", "Gbit/s", "links x Gbit/s", "cost", f"one more Gbit/s saves ({unit})"):
        dimensions.add_column(column, justify="right")
    for each in found["dimensions"]:
        links = f"{each['links']} x {each['link_gbps']:.4g}"
        numbers = (f"{each['gbps']:.4g}", links, f"{each['cost']:.4g}", f"{each['worth']:.3g}")
        dimensions.add_row(escape(each["name"]), each["kind"], str(each["size"]), *numbers)
    jobs = Table("job", "weight", "time (s)", "steps (s, and what they wait for)", title="jobs", title_justify="left")
    for job in found["jobs"]:
        jobs.add_row(escape(job["job_id"]), f"{job['weight']:g}", f"{job['time_s']:.6g}", _steps(job))
    return Group(*_facts(found, unit), dimensions, jobs)


def _facts(found: Mapping[str, Any], unit: str) -> list[str]:
    goal = "time_s" if found["objective"] == Objective.TIME else "time_x_cost"
    proven = f"{_rounded_up(max(found['gap'], SHOWN_GAP)):.0e}"
    says = f"no other bandwidths are better by more than a fraction of {proven}"
    if found["gap"] > PROVEN_GAP:
        says = f"not proven to be the best: other bandwidths may be better by a fraction of {proven}"
    lines = [f"{found[goal]:.6g} {unit}; {says}"]
    for name, what in (("worth_of_total", "Gbit/s of total_gbps"), ("worth_of_budget", "unit of budget")):
        if (worth := found[name]) is not None:
            lines.append(f"one more {what} {'saves' if worth >= 0 else 'adds'} {abs(worth):.3g} {unit}")
    for relation in found["relations"]:
        worth = relation["worth"]
        one_more = f"; one more Gbit/s {'saves' if worth > 0 else 'adds'} {abs(worth):.3g} {unit}" if worth else ""
        lines.append(f"{_sum_of(relation['factors'])} is {round(relation['gbps'], 6) + 0.0:.4g} Gbit/s{one_more}")
    for other in found["others"]:
        factor = other[goal] / found[goal] if found[goal] else 1.0
        outside = "" if other["within_limits"] else ", outside the limits"
        lines.append(f"{other['name']}: {other[goal]:.6g} {unit}, {factor:.4g} times as much{outside}")
    return lines


def _rounded_up(value: float) -> float:
    """Round up to one digit, so that the printed gap is not smaller than the proven gap."""
    return float(Context(prec=1, rounding=ROUND_CEILING).create_decimal(repr(float(value))))


def _sum_of(factors: Mapping[str, float]) -> str:
    """Return a weighted sum of dimensions as text, such as "node - 0.5 x pod"."""
    summands = [
        f"{'-' if factor < 0 else '+'} {'' if abs(factor) == 1 else f'{abs(factor):g} x '}{escape(name)}"
        for name, factor in factors.items()
    ]
    return " ".join(summands).removeprefix("+ ")


def _placement_table(job: Mapping[str, Any]) -> RenderableType:
    table = Table("placement", "time (s)", "steps (s, and what they wait for)", title_justify="left")
    table.title = escape(job["job_id"])
    for way in job["placements"]:
        parts = way["placement"]
        order = "; ".join(f"{part['part']} {_ranks(part['ranks'])}" for part in parts) if parts else "rank r on NPU r"
        table.add_row(escape(order), f"{way['time_s']:.6g}", _steps(way))
    return table


def _spines_tables(found: Mapping[str, Any], export: Path | None) -> RenderableType:
    counted = COUNTED[FabricKind(found["fabric"])]
    place = "leaf" if found["fabric"] == FabricKind.LEAF_SPINE else "pod"
    table = Table(counted.replace("_", " "), title="lower bound of the slowdown, for any routing", title_justify="left")
    for column in (
        "Gbit/s each",
        f"Gbit/s of a {place}",
        "intact",
        f"{found['failures']} failed",
        "iteration if failed",
    ):
        table.add_column(column, justify="right")
    for each in found["choices"]:
        rates = (f"{each['uplink_gbps']:g}", f"{each['capacity_gbps']:g}")
        slowdowns = (f"{each[name]:.4g}" for name in ("intact", "failed", "iteration"))
        table.add_row(str(each[counted]), *rates, *slowdowns)
    return Group(table, _spines_answer(found, counted, export))


def _spines_answer(found: Mapping[str, Any], counted: str, export: Path | None) -> str:
    goal, answer, names = found["max_slowdown"], found["answer"], counted.replace("_", " ")
    if not found["choices"]:
        return f"with {found['failures']} failed, no number of {names} that was tried keeps a path for every flow"
    if not answer:
        return f"no number of {names} that was tried keeps all slowdowns at {goal:g} or less"
    written = f"; written to {export}" if export else ""
    switches = f"{answer[counted]} {names} of {answer['uplink_gbps']:g} Gbit/s"
    failed = f"with {found['failures']} failed, the planner reaches slowdown {answer['planned']:.4g}"
    return f"{switches} are enough for slowdown {goal:g}: {failed}{written}"


def _ranks(ranks: Mapping[str, int]) -> str:
    """Return the number of a part's ranks in each dimension as text, such as "8 in node, 2 in pod"."""
    return ", ".join(f"{count} in {name}" for name, count in ranks.items() if count > 1)


def _steps(job: Mapping[str, Any]) -> str:
    return ", ".join(f"{step['time_s']:.4g} {escape(step['by'])}" for step in job["steps"])
