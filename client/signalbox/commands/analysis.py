"""``signalbox what-if`` and ``signalbox explain``: let the controller analyse failures, or the speed of one job.

The commands print sentences and tables, or JSON (docs/reference/json-output.md). They exit with status 3 when some
flows have no path. The offline distribution replaces these commands by commands that also analyse workload files.
"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from signalbox.commands.connecting import AskingCommand, completed, connect, job_names, part_names
from signalbox.commands.exit_status import ExitStatus
from signalbox.commands.output import Column, Fitted, escape, facts, show, waiting
from signalbox.live.shown import counted, optional, word
from signalbox.mapping import word_in
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.words import FailureKind

MOST_NAMES = 3
"""Largest number of jobs named in a cell of a table; further jobs are only counted."""
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
    "alike: number of failures with the same slowdowns. The next five columns are slowdowns of the worst job. ECMP: "
    "mean if switches hash all flows. at once: only the affected flows have new routes. plan: a new plan has moved "
    "other flows too. whole bound, split bound: lower bounds of all routes, for whole flows and for split flows. The "
    "last three columns are numbers of flows. cut off: without a path. re-routed: affected. moved too: other flows."
)


Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME",
        help="Parts of the fabric that fail together, named as for drain; default: each part fails alone.",
        show_default=False,
        autocompletion=completed(part_names),
    ),
]
Fail = Annotated[
    str | None,
    typer.Option(
        metavar="KIND,…",
        help="Kinds of failures: spines, cables, bundles (of parallel cables).",
        show_default="spines,cables,bundles",
    ),
]
Top = Annotated[int, typer.Option(min=0, metavar="N", help="Number of cases to print, worst first; 0 for all.")]
Within = Annotated[
    float,
    typer.Option(
        min=0.1, metavar="S", help="Time limit for all cases, in seconds; cases not planned by then get only bounds."
    ),
]
WITHIN_S = 60.0

commands = typer.Typer()


@commands.command("what-if", cls=AskingCommand)
def what_if(
    names: Names = None,
    fail: Fail = None,
    top: Top = MOST_ROWS,
    within: Within = WITHIN_S,
) -> None:
    """Predict how much each failure of a single spine or cable slows the jobs, with ECMP and planned paths.

    Worst first. With names: predict one failure, or drain, of all named parts together. Exit status 3: flows have no
    path."""
    if names and fail:
        raise typer.BadParameter("cannot be combined with --fail", param_hint="NAME")
    show_failures(asked_what_if(names, fail, top, within))


@commands.command("explain", cls=AskingCommand)
def explain(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's id.", autocompletion=completed(job_names))],
) -> None:
    """Explain whether the network slows a job: its busiest links, who shares them, and what better routes gain."""
    show_job(asked_to_explain(job))


def asked_what_if(names: list[str] | None, fail: str | None, top: int, within: float) -> pb.WhatIfResponse:
    kinds = kinds_named(fail) if fail else ()
    with waiting("the controller is planning"), connect() as client:
        return client.what_if(kinds, top, within, names or ())


def asked_to_explain(job: str) -> pb.ExplainResponse:
    with waiting("the controller is planning"), connect() as client:
        return client.explain(job)


def show_failures(found: pb.WhatIfResponse) -> None:
    """Print the answer; exit with ``PARTLY`` when some flows have no path even before a failure."""
    show(found, lambda: _failures(found))
    if found.now.unrouted:
        raise typer.Exit(ExitStatus.PARTLY)


def show_job(found: pb.ExplainResponse) -> None:
    """Print the answer; exit with ``PARTLY`` when some flows of the job have no path."""
    show(found, lambda: _job(found))
    if found.flows_without_a_path:
        raise typer.Exit(ExitStatus.PARTLY)


def kinds_named(text: str) -> frozenset[FailureKind]:
    named = {f"{kind.value}s": kind for kind in FailureKind if kind is not FailureKind.PARTS}
    items = [item.strip() for item in text.split(",")]
    wrong = [item for item in items if item not in named]
    if wrong:
        message = f"there is no kind '{wrong[0]}'; choose {', '.join(named)}, separated by commas"
        raise typer.BadParameter(message, param_hint="--fail")
    return frozenset(named[item] for item in items)


# ---- tables


def _failures(found: pb.WhatIfResponse) -> RenderableType:
    table = Table(box=SIMPLE_HEAD, caption=_CAPTION, caption_justify="left", padding=(0, 1, 0, 0))
    table.add_column("failure", no_wrap=True)
    for column in _COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for outcome in found.outcomes:
        table.add_row(
            escape(outcome.example),
            f"{len(outcome.failures):,}",
            f"{outcome.ecmp_slowdown.mean:.2f}" if outcome.HasField("ecmp_slowdown") else "-",
            _slowdown(outcome, "repaired_slowdown"),
            _slowdown(outcome, "slowdown"),
            f"{outcome.integer_bound:.2f}",
            f"{outcome.bound:.2f}",
            f"{len(outcome.lost):,}",
            _range(outcome.rerouted_fewest, outcome.rerouted_most),
            f"{outcome.moved:,}" if outcome.HasField("slowdown") else "-",
        )
    left = found.cases - len(found.outcomes)
    rest = [f"{left:,} more cases have equal or smaller slowdowns; --top 0 prints all."] if left else []
    return Group("\n".join(map(escape, found.answer)), *([table] if table.row_count else []), *rest)


def _slowdown(outcome: pb.FailureOutcome, field: str) -> str:
    return "-" if (found := optional(outcome, field)) is None else f"{found:.2f}"


def _range(fewest: int, most: int) -> str:
    return f"{fewest:,}" if fewest == most else f"{fewest:,}-{most:,}"


def _job(found: pb.ExplainResponse) -> RenderableType:
    columns = Column("link"), Column("load", number=True), Column("flows and load of each job", wraps=True)
    links = Fitted(columns, map(_full_link, found.fullest_links), title="fullest links of the job")
    return Group("\n".join(map(escape, found.answer)), "", facts(_facts(found)), links)


def _full_link(link: pb.BusyLink) -> tuple[str, str, str]:
    shares = [f"{share.job_id} {share.flows} ({share.load:.2f})" for share in link.jobs]
    more = [counted(len(shares) - MOST_NAMES, "more job")] if len(shares) > MOST_NAMES else []
    name = f"{link.link} (NIC)" if link.nic else link.link
    return name, f"{link.load:.2f}", ", ".join([*shares[:MOST_NAMES], *more])


def _facts(found: pb.ExplainResponse) -> dict[str, str]:
    counts = {
        "inside a leaf": found.flows_inside_a_leaf,
        "hashed": found.flows_hashed,
        "without a path": found.flows_without_a_path,
    }
    flows = [f"{found.flows:,}", *(f"{count:,} {what}" for what, count in counts.items() if count)]
    hashed = f"; with hashed flows {found.hashed_slowdown:.4g} on average" if found.HasField("hashed_slowdown") else ""
    known = {
        "flows": ", ".join(flows),
        "slowdown now": f"{found.slowdown:.4g}; {found.nic_slowdown:.4g} from NICs alone; "
        f"lowest possible {found.least_slowdown:.4g}{hashed}",
    }
    for field, what in (("best", "planned"), ("split", "planned with split flows")):
        if (option := optional(found, field)) is not None:
            known[what] = (
                f"{option.slowdown:.4g}; worst job {option.worst_slowdown:.4g}, bound {option.worst_bound:.4g} "
                f"({word(word_in(option, 'certificate'))})"
            )
    return known
