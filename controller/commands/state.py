"""``signalbox state``: lists and drops jobs in a state directory that no controller uses, and raises its epoch.

Operators use the command when a controller refuses to start with the saved jobs, because a limit was lowered or because
another version has other rules. Nothing else in the directory is changed, and its records need not be valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.table import Table

from controller import config
from controller.store.configured import store_of
from controller.store.records import FORMAT, Key, Kind, Unreadable, decode
from controller.store.sqlite_store import SqliteStore
from signalbox.commands.output import AsJson, escape, file_to_read, show
from signalbox.errors import InvalidInput
from signalbox.jobs.collectives import virtual_links

commands = typer.Typer(
    help="List or drop saved jobs, or raise the epoch, while no controller runs.", no_args_is_help=True
)

StateDir = Annotated[
    Path, typer.Option(metavar="DIR", help="Directory of the saved state (state_dir).", exists=True, file_okay=False)
]


@commands.command("list")
def list_saved(state_dir: StateDir, as_json: AsJson = False) -> None:
    """List the saved jobs in the order of registration, each with the problem that this version finds, if any.

    No controller may use the directory meanwhile."""
    with closing(SqliteStore(state_dir)) as store:
        records, revision = store.written()
    measured = {key.key: (key, text) for key, text in records if key.kind is Kind.MEASURED}
    jobs = [_fields((key, text), measured.get(key.key)) for key, text in records if key.kind is Kind.JOB]
    jobs.sort(key=lambda job: (job["register_time"] is None, job["register_time"] or ""))
    show({"revision": revision, "format": FORMAT, "jobs": jobs}, lambda: _table(jobs), as_json)


@commands.command("drop")
def drop_saved(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB", help="Ids of the jobs.")], state_dir: StateDir
) -> None:
    """Forget jobs, all in one commit, while no controller uses the directory.

    Other jobs stay; the pins of these jobs are removed after the controller has run for jobs.orphan_lease_s."""
    with closing(SqliteStore(state_dir)) as store:
        revision = store.drop(jobs)
    typer.echo(f"dropped {', '.join(jobs)}; the state has revision {revision} now")


@commands.command("raise-epoch")
def raise_epoch(
    config_file: Annotated[
        Path,
        typer.Option("--config", metavar="FILE", help="Configuration file of the controller.", parser=file_to_read),
    ],
    above: Annotated[int, typer.Option(metavar="ID", help="Generation id that the log names for the switch.")],
) -> None:
    """Let the next controller become the master of switches that have a generation id from the future.

    Controllers use increasing generation ids. Switches refuse a controller whose id is older than theirs, for example
    when another program has claimed them with a large id. No controller may use the state meanwhile."""
    with closing(store_of(config.load(config_file))) as store:
        store.raise_epoch(above)
    typer.echo(f"the next controller begins above {above}")


def _fields(record: tuple[Key, str], measured: tuple[Key, str] | None) -> dict[str, Any]:
    """Return the fields of a job from its record and from its measured links; unknown fields are None."""
    key, _ = record
    found: dict[str, Any] = dict.fromkeys(("job_id", "tenant", "register_time", "ranks", "virtual_links", "problem"))
    found["job_id"] = key.key
    try:
        saved = decode([record, measured] if measured else [record])
    except Unreadable as error:
        return found | {"problem": str(error).removeprefix(f"{Kind.JOB} {key.key!r}: ")}
    (job,) = saved.jobs.values()
    at = datetime.fromtimestamp(int(job.registered_at), UTC)
    found |= {"tenant": job.tenant, "register_time": at.isoformat().replace("+00:00", "Z")}
    found["ranks"] = len(job.spec.endpoints)
    try:
        links = virtual_links(job.spec)
    except InvalidInput as error:
        return found | {"problem": str(error)}
    (links,) = saved.measured.values() or (links,)
    return found | {"virtual_links": len(links.pairs)}


def _table(jobs: Iterable[Mapping[str, Any]]) -> RenderableType:
    table = Table()
    for name in ("job", "tenant", "registered", "ranks", "virtual links", "problem"):
        table.add_column(name, overflow="fold")
    for job in jobs:
        time = (job["register_time"] or "").replace("T", " ").removesuffix("Z")
        shown = {**job, "register_time": time}.values()
        table.add_row(*("" if value is None else escape(str(value)) for value in shown))
    return table
