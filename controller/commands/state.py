"""``signalbox state``: repairs or moves the saved state while no controller uses it.

The state is in a directory or etcd. If a controller refuses to start with some jobs, because a limit was lowered or its
version has stricter checks, operators drop these jobs. All other records stay unchanged, even invalid ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.table import Table

from controller import config
from controller.jobs.messages import SavedState
from controller.observability import logs
from controller.store.configured import store_of
from controller.store.exported import Exported, parsed, text_of
from controller.store.records import FORMAT, Key, Kind, Unreadable, changes, decode
from controller.store.store import Store
from signalbox import files
from signalbox.commands.connecting import PrintingCommand
from signalbox.commands.output import escape, file_to_read, show
from signalbox.errors import InvalidInput
from signalbox.files import STANDARD_INPUT, called, read_bytes
from signalbox.jobs.collectives import virtual_links

commands = typer.Typer(
    help="List or drop saved jobs, raise the epoch, or move the state, while no controller runs.", no_args_is_help=True
)

MOST_BYTES = 1 << 30
"""Largest size in bytes of an exported state."""

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Configuration file of the controller.", parser=file_to_read),
]
StateDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Directory of the saved state (state_dir), instead of --config.",
        exists=True,
        file_okay=False,
    ),
]


@commands.command("list", cls=PrintingCommand)
def list_saved(config_file: ConfigFile = None, state_dir: StateDir = None) -> None:
    """List the saved jobs in the order of registration, each with the problem that this version finds, if any.

    No controller may use the state meanwhile."""
    with closing(_store(config_file, state_dir)) as store:
        records, revision = store.written()
    measured = {key.key: (key, text) for key, text in records if key.kind is Kind.MEASURED}
    jobs = [_fields((key, text), measured.get(key.key)) for key, text in records if key.kind is Kind.JOB]
    jobs.sort(key=lambda job: (job["register_time"] is None, job["register_time"] or "", job["job_id"]))
    show({"revision": revision, "format": FORMAT, "jobs": jobs}, lambda: _table(jobs))


@commands.command("drop")
def drop_saved(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB", help="Ids of the jobs.")],
    config_file: ConfigFile = None,
    state_dir: StateDir = None,
) -> None:
    """Forget jobs, all in one commit, while no controller uses the state.

    Other jobs stay. The next controller keeps the pins of the dropped jobs for jobs.orphan_lease_s seconds after its
    start."""
    with closing(_store(config_file, state_dir)) as store:
        revision = store.drop(jobs)
    typer.echo(f"dropped {', '.join(jobs)}; the state has revision {revision} now")


@commands.command("raise-epoch")
def raise_epoch(
    above: Annotated[int, typer.Option(metavar="ID", help="Generation id that the log names for the switch.")],
    config_file: ConfigFile = None,
    state_dir: StateDir = None,
) -> None:
    """Raise the generation ids of later controllers above the id that a switch requires.

    A switch refuses a controller whose id is below the largest id that the switch has seen. Another program may have
    used that id. Each controller uses larger ids than the one before. No controller may use the state meanwhile."""
    with closing(_store(config_file, state_dir)) as store:
        store.raise_epoch(above)
    typer.echo(f"the next controller uses generation ids above {above}")


@commands.command("export")
def export_saved(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write; - for standard output.")],
    config_file: ConfigFile = None,
    state_dir: StateDir = None,
) -> None:
    """Write the saved state to a file, which can be imported into another store or kept as a backup.

    Only its owner can read the file, because it has the secret of lease tokens. A controller may run meanwhile; its
    later changes are not in the file."""
    with closing(_store(config_file, state_dir)) as store:
        saved = store.look()
        if not saved.revision:
            raise InvalidInput.of("state", f"nothing is saved in {store.where}")
        is_idle = False
        with suppress(InvalidInput):  # such as a full etcd, which can still be read
            is_idle = store.claim()
        if is_idle:
            saved = store.look()
        secret = store.secret(in_use=bool(saved.jobs) or not is_idle)
        owner, where = store.owner(), store.where
    assert secret is not None
    files.write(file, text_of(Exported(saved, secret, saved.revision)))
    typer.echo(f"exported {_size(saved)} from {where}", err=file == STANDARD_INPUT)
    if not is_idle:
        typer.echo(f"warning: a controller may use the state (owner {owner}); later changes are not exported", err=True)


@commands.command("import")
def import_saved(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Exported state; - for standard input.", parser=file_to_read)
    ],
    config_file: ConfigFile = None,
    state_dir: StateDir = None,
    replaces: Annotated[
        bool, typer.Option("--replace", metavar="", help="Replace the state that is saved there, if there is one.")
    ] = False,
) -> None:
    """Read an exported state into a store that no controller uses, completely or not at all.

    The owners of the jobs keep their lease tokens. Later controllers use larger generation ids than those of both
    states."""
    try:
        exported = parsed(read_bytes(file, MOST_BYTES))
    except ValueError as error:
        raise InvalidInput.of(called(file), f"cannot be imported: {error}. Nothing was changed") from None
    with closing(_store(config_file, state_dir)) as store:
        if not store.claim():
            what = f"another controller uses {store.where} (owner {store.owner()})"
            raise InvalidInput.of("state", f"{what}; stop it, and any controller that stands by")
        before = store.load()
        if not replaces and _records(before):
            what = f"has {_size(before)} already. Nothing was changed. Export them, and import with --replace"
            raise InvalidInput.of("state", f"{store.where} {what}")
        store.replace(exported.state, exported.secret, exported.epoch)
        instead = f" in place of {_size(before)}" if _records(before) else ""
        after = f"the next controller uses generation ids above {exported.epoch}"
        typer.echo(f"imported {_size(exported.state)} into {store.where}{instead}; {after}")


def _store(config_file: Path | None, state_dir: Path | None) -> Store:
    """Return the store that one of the two options names. Raises ``InvalidInput``."""
    if (config_file is None) == (state_dir is None):
        raise typer.BadParameter("give one of --config and --state-dir", param_hint="--config")
    logs.configure(level="warning")
    settings = config.load(config_file) if config_file else config.Config(state_dir=state_dir)
    directory = settings.state_dir if settings.saved_in == "state_dir" else None
    if directory and directory.exists() and os.geteuid() == 0 and (problem := files.of_another_user(directory)):
        raise InvalidInput.of("state_dir", f"{directory} {problem}")  # which could not read the files of root
    return store_of(settings)


def _records(saved: SavedState) -> int:
    return len(changes(SavedState(), saved))


def _size(saved: SavedState) -> str:
    jobs, others = len(saved.jobs), _records(replace(saved, jobs={}))
    return f"{jobs} job{'s' * (jobs != 1)} and {others} other record{'s' * (others != 1)}"


def _fields(record: tuple[Key, str], measured: tuple[Key, str] | None) -> dict[str, Any]:
    """Return the fields of a job from its record and its measured links. The value of an unknown field is None."""
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
