"""``signalbox design``: networks for jobs, and jobs for networks, on paper.

In: a file that describes a network of several dimensions, and job files. Out: tables for people, JSON for programs.
docs/design.md has the model; the solver, an optional dependency, is imported where it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table

from controller.design.question import Objective
from signalbox.commands.output import AsJson, escape, file_to_read, show, waiting
from signalbox.errors import SignalboxError
from signalbox.spec_files import placed
from signalbox.standard_input import STANDARD_INPUT

commands = typer.Typer(
    help="Say which network is best for jobs, and which place in it for a job.", no_args_is_help=True
)

NetworkFile = Annotated[
    Path,
    typer.Argument(
        metavar="NETWORK",
        help="The dimensions of the network, in YAML, JSON or TOML; - for standard input.",
        parser=file_to_read,
    ),
]
JobFiles = Annotated[
    list[Path],
    typer.Argument(metavar="JOBS...", help="Job files; addresses may be left out.", parser=file_to_read),
]


@commands.command("bandwidth")
def bandwidth(
    network: NetworkFile,
    jobs: JobFiles,
    objective: Annotated[
        Objective, typer.Option(help="What is made small: time, or time x cost, which uses all of total_gbps.")
    ] = Objective.TIME,
    as_json: AsJson = False,
) -> None:
    """Say how much bandwidth each dimension of NETWORK should have for JOBS, with the proof that no other is better."""
    _one_standard_input(network, jobs)
    with waiting("designing"):
        found = _bandwidth(network, jobs, objective)
    show(found, lambda: _bandwidth_tables(found), as_json)


@commands.command("placement")
def placement(network: NetworkFile, jobs: JobFiles, as_json: AsJson = False) -> None:
    """Say in which order a model's parallelism should fill the dimensions of NETWORK, whose bandwidths are known."""
    from controller.design.jobs import designed_jobs
    from controller.design.report import placement_report
    from controller.design.shape import shape_in

    _one_standard_input(network, jobs)
    shape, _ = shape_in(network, exists=True)
    found = placement_report(shape, designed_jobs(jobs, shape, every_placement=True))
    show(found, lambda: Group(*map(_placement_table, found["jobs"])), as_json)


def _one_standard_input(network: Path, jobs: Sequence[Path]) -> None:
    if [network, *jobs].count(STANDARD_INPUT) > 1:
        raise typer.BadParameter("standard input can be one file only")


def _bandwidth(network: Path, files: Sequence[Path], objective: Objective) -> dict[str, Any]:
    """The report. Raises ``SignalboxError`` without the solver."""
    try:
        import clarabel  # noqa: F401
    except ModuleNotFoundError:
        message = "clarabel is not installed: pip install --find-links dist 'signalbox-controller[design]'"
        raise SignalboxError(message) from None
    from controller.design.bandwidth import fastest
    from controller.design.jobs import designed_jobs, question_of
    from controller.design.report import bandwidth_report
    from controller.design.shape import shape_in
    from controller.design.time_cost import best_product

    shape, place_of = shape_in(network)
    jobs = [job for (job,) in designed_jobs(files, shape)]
    question = question_of(shape, jobs)
    with placed(place_of):
        if objective is Objective.TIME:
            design = fastest(question)
            gap = design.gap
        else:
            tradeoff = best_product(question)
            design, gap = tradeoff.design, tradeoff.gap
    return bandwidth_report(objective, gap, shape, question, design, jobs)


# ---- tables


def _bandwidth_tables(found: Mapping[str, Any]) -> RenderableType:
    by_time = found["objective"] == Objective.TIME
    unit = "s" if by_time else "s x cost"
    dimensions = Table("dimension", "kind", title="bandwidth of an NPU, each way", title_justify="left")
    for column in ("size", "Gbit/s", "links x Gbit/s", "cost", f"next Gbit/s ({unit})"):
        dimensions.add_column(column, justify="right")
    for each in found["dimensions"]:
        links = f"{each['links']} x {each['link_gbps']:.5g}"
        numbers = (f"{each['gbps']:.6g}", links, f"{each['cost']:.5g}", f"{each['worth']:.4g}")
        dimensions.add_row(escape(each["name"]), each["kind"], str(each["size"]), *numbers)
    jobs = Table("job", "weight", "time (s)", "steps (s, and what they wait for)", title="jobs", title_justify="left")
    for job in found["jobs"]:
        jobs.add_row(escape(job["job_id"]), f"{job['weight']:g}", f"{job['time_s']:.6g}", _steps(job))
    return Group(*_facts(found, unit), dimensions, jobs)


def _facts(found: Mapping[str, Any], unit: str) -> list[str]:
    goal = "time_s" if found["objective"] == Objective.TIME else "time_x_cost"
    lines = [f"{found[goal]:.6g} {unit}; none is better by more than {found['gap']:.1e} of it"]
    for name, what in (("worth_of_total", "Gbit/s of total_gbps"), ("worth_of_budget", "unit of budget")):
        if found[name] is not None:
            lines.append(f"the next {what} takes off {found[name]:.4g} {unit}")
    for other in found["others"]:
        factor = other[goal] / found[goal] if found[goal] else 1.0
        lines.append(f"{other['name']}: {other[goal]:.6g} {unit}, {factor:.4g} times as much")
    return lines


def _placement_table(job: Mapping[str, Any]) -> RenderableType:
    table = Table("placement", "time (s)", "steps (s, and what they wait for)", title_justify="left")
    table.title = escape(job["job_id"])
    for way in job["placements"]:
        parts = way["placement"]
        order = "; ".join(f"{part['part']} {_ranks(part['ranks'])}" for part in parts) if parts else "ranks as NPUs"
        table.add_row(escape(order), f"{way['time_s']:.6g}", _steps(way))
    return table


def _ranks(ranks: Mapping[str, int]) -> str:
    """Of a part, such as "8 in node, 2 in pod"."""
    return ", ".join(f"{count} in {name}" for name, count in ranks.items() if count > 1)


def _steps(job: Mapping[str, Any]) -> str:
    return ", ".join(f"{step['time_s']:.4g} {escape(step['by'])}" for step in job["steps"])
