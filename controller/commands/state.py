"""``signalbox state``: the jobs in a state directory that no controller uses, and how to forget some of them.

For jobs with which a controller refuses to start: a lowered limit, or rules of another version. Nothing else in the
directory is changed, and nothing in it has to be acceptable.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from controller.commands.output import console
from controller.jobs.collectives import check, link_count
from controller.jobs.records import FORMAT, Key, Kind, Unreadable, decode
from controller.jobs.store import StateStore

commands = typer.Typer(help="Look at saved jobs, and drop some, while no controller runs.", no_args_is_help=True)

StateDir = Annotated[
    Path, typer.Option(metavar="DIR", help="The controller's state_dir.", exists=True, file_okay=False)
]


@commands.command("list")
def list_saved(state_dir: StateDir) -> None:
    """List the saved jobs, in the order in which they were registered, and what this version finds wrong with each."""
    with closing(StateStore(state_dir)) as store:
        records, _, version = store.written()
    table = Table()
    for name in ("job", "tenant", "registered", "ranks", "virtual links", "problem"):
        table.add_column(name, overflow="fold")
    for key, text in records:
        if key.kind is Kind.JOB:
            table.add_row(*map(escape, (key.key, *_row(key, text, version))))
    console().print(table)


@commands.command("drop")
def drop_saved(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Ids of the jobs.")], state_dir: StateDir
) -> None:
    """Forget jobs. Other jobs stay; the pins of these go when the controller has run for jobs.orphan_lease_s."""
    with closing(StateStore(state_dir)) as store:
        revision = store.drop(jobs)
    typer.echo(f"dropped {', '.join(jobs)}; the state has revision {revision} now")


def _row(key: Key, text: str, version: int) -> Iterator[str]:
    """What is after the id."""
    try:
        (job,) = decode([(key, text)], version).jobs.values()
    except Unreadable as error:
        yield from ("", "", "", "", str(error).removeprefix(f"{Kind.JOB} {key.key!r}: "))
        return
    known = version == FORMAT  # before, owners and times were not saved
    yield job.tenant
    yield f"{datetime.fromtimestamp(job.registered_at, UTC):%Y-%m-%d %H:%M:%S}" if known else ""
    yield str(len(job.spec.endpoints))
    yield str(link_count(job.spec))
    yield "; ".join(map(str, check(job.spec)))
