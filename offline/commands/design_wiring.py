"""Command ``signalbox design wiring``, which chooses the circuits of a direct-connect fabric for jobs (docs/wiring.md).

The command reads job files and takes the size of the fabric as options. It prints tables for people and JSON for
programs, and writes files for the planner and the simulator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table

from offline.scenarios.fabric_options import LARGEST_SEED, LEAST_GBPS, MOST_GBPS
from signalbox.commands.exit_status import ExitStatus
from signalbox.commands.output import escape, file_to_read, show, waiting
from signalbox.jobs.spec import MAX_ENDPOINTS

MOST_INTERFACES = 64

JobFiles = Annotated[
    list[Path],
    typer.Argument(metavar="JOBS...", help="Job files; addresses may be left out.", parser=file_to_read),
]


def wiring(
    jobs: JobFiles,
    servers: Annotated[int, typer.Option(min=2, max=MAX_ENDPOINTS, help="Number of servers of the fabric.")],
    interfaces: Annotated[
        int,
        typer.Option(min=1, max=MOST_INTERFACES, help="Number of interfaces of each server, one per optical switch."),
    ],
    gbps: Annotated[float, typer.Option(min=LEAST_GBPS, max=MOST_GBPS, help="Gbit/s of every interface.")],
    alternative_gbps: Annotated[
        float | None,
        typer.Option(
            min=LEAST_GBPS,
            max=MOST_GBPS,
            help="Gbit/s of each server if one switch connects all servers instead.",
            show_default="all interfaces / 3.2, for the same cost",
        ),
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", metavar="", help="Also find the best rings, with proof; up to 24 servers.")
    ] = False,
    time_limit: Annotated[float, typer.Option(min=0.01, metavar="S", help="Seconds that one plan may take.")] = 2.0,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Random seed of the planner.")] = 1,
    export: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the fabric (for --graph), and the jobs as they run on it.")
    ] = None,
) -> None:
    """Find the wiring of a direct-connect fabric for JOBS, and the parallelization in which each job should run.

    Exit status 3: a job is refused because one switch of the same cost is better for it."""
    from controller.public.problems import PlanLimits
    from controller.public.wirings import COST_RATIO, Rates, answers
    from offline.design.parallelizations import offers_in
    from offline.design.wiring_report import exported, wiring_report

    rates = Rates(gbps, interfaces * gbps / COST_RATIO if alternative_gbps is None else alternative_gbps)
    with waiting("wiring"):
        limits = PlanLimits(time_limit_s=time_limit, ecmp_draws=0, seed=seed)
        answer = answers(offers_in(jobs, servers), interfaces, rates, limits)
        found = wiring_report(answer, servers, interfaces, rates, exact)
    wired = any(not each.refused for each in answer)
    partly = exported(export, answer, servers, interfaces, rates) if export and wired else []
    show(found, lambda: _tables(found, export, partly))
    if any(job["refused"] for job in found["jobs"]):
        raise typer.Exit(ExitStatus.PARTLY)


# ---- tables


def _tables(found: Mapping[str, Any], export: Path | None, partly: list[str]) -> RenderableType:
    lines: list[RenderableType] = []
    for job in found["jobs"]:
        lines += [_parallelizations(job), *_verdict(job, found)]
    if export and all(job["refused"] for job in found["jobs"]):
        lines.append(f"nothing is written to {export}, since all jobs are refused")
    elif export:
        lines.append(f"written to {export}")
        if partly:
            lines.append(f"the written workload has only the ring traffic of {escape(', '.join(partly))}")
    return Group(*lines)


def _parallelizations(job: Mapping[str, Any]) -> Table:
    servers = f"servers {job['servers'][0]} to {job['servers'][-1]}"
    table = Table("parallelization", "wiring", title=escape(f"{job['job_id']}, {servers}"), title_justify="left")
    for column in ("diameter", "hops of pairs", "tax", "iteration (s)", "bound (s)", "one switch (s)", "break-even"):
        table.add_column(column, justify="right")
    for each in job["parallelizations"]:
        hops = f"{_number(each['pair_hops'])} (≥ {each['least_pair_hops']:.3g})" if each["pair_hops"] else "–"
        times = (f"{each[name]:.4g}" for name in ("iteration_s", "bound_s", "alternative_s"))
        figures = (
            str(each["diameter"] or "–"),
            hops,
            _number(each["bandwidth_tax"]),
            *times,
            _number(each["break_even"]),
        )
        table.add_row(escape(each["parallelization"]), _wiring(each), *figures)
    return table


def _wiring(each: Mapping[str, Any]) -> str:
    of_rings = sum(each["ring_interfaces"])
    interfaces = f"{of_rings} of rings" if of_rings else "no rings"
    if each["steps"] is None:
        return f"{interfaces}, matchings"
    return f"{interfaces}, steps {' '.join(map(str, each['steps']))}"


def _verdict(job: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    from offline.design.wiring_report import alternative

    best = next(each for each in job["parallelizations"] if each["parallelization"] == job["parallelization"])
    lines = []
    if job["refused"]:
        other = next(
            each for each in job["parallelizations"] if each["parallelization"] == job["alternative_parallelization"]
        )
        planned = best["iteration_s"] / other["alternative_s"]
        lines.append(
            f"refused: {alternative(found)} is better, with parallelization {escape(other['parallelization'])}: "
            f"{other['alternative_s']:.4g} s. The planned iteration on circuits takes {planned:.4g} times as long; "
            f"sending the same bytes takes at least {best['break_even']:.4g} times as long on circuits"
        )
    else:
        other_s = min(each["alternative_s"] for each in job["parallelizations"])
        most = best["most_ratio"]
        limit = "" if most is None else f" while the bytes outside of rings are at most {most:.3g} times those in rings"
        lines.append(
            f"parallelization {escape(job['parallelization'])}: {best['iteration_s']:.4g} s, "
            f"within {best['gap']:.1%} of its lower bound; {alternative(found)}: {other_s:.4g} s. "
            f"Circuits that are all in use are faster than the switch{limit}"
        )
    if exact := job["exact"]:
        proven = "proven" if exact["proven"] else "not proven"
        hops = f"{exact['pair_hops']:.4g} hops, diameter {exact['diameter']}"
        lines.append(f"best steps {' '.join(map(str, exact['steps']))}: {hops} ({proven})")
    return lines


def _number(value: float | None) -> str:
    return "–" if value is None or not math.isfinite(value) else f"{value:.3g}"
