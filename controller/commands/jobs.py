"""``signalbox jobs``: announce, list, watch and remove jobs of a running controller."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from controller.api.client import DEFAULT_ADDRESS
from controller.commands import printing
from controller.commands.connecting import ControllerCommand, connect
from controller.commands.output import Address, AsJson, console, fields, show
from controller.errors import InvalidInput
from controller.jobs.spec import JobSpec

commands = typer.Typer(help="Announce, list, watch and remove jobs.", no_args_is_help=True)

JobIdArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")]


@commands.command("list", cls=ControllerCommand)
def list_jobs(address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """List all jobs with their state and efficiency."""
    with connect(address) as client:
        found = [fields(job) for job in client.list_jobs()]
    show({"jobs": found}, lambda: printing.jobs(found), as_json)


@commands.command("show", cls=ControllerCommand)
def show_job(job: JobIdArgument, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Show one job: its state, what it announced and what is counted, lease and efficiency."""
    with connect(address) as client:
        found = fields(client.get_job(job))
    show(found, lambda: printing.job(found), as_json)


@commands.command("register", cls=ControllerCommand)
def register_job(
    file: Annotated[
        Path, typer.Argument(help="The job spec: JSON, or TOML when it ends in .toml.", exists=True, dir_okay=False)
    ],
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Announce the job that FILE describes. The same file again renews the job's lease."""
    try:
        spec = JobSpec.parse(_read(file))
        with connect(address) as client:
            found = fields(client.register_job(spec))
    except InvalidInput as error:
        raise error.within(file) from None
    show(found, lambda: printing.registered(found), as_json)


@commands.command("deregister", cls=ControllerCommand)
def deregister_job(job: JobIdArgument, address: Address = DEFAULT_ADDRESS) -> None:
    """Forget a job and release its routes; its traffic falls back to ECMP."""
    with connect(address) as client:
        client.deregister_job(job)


@commands.command("watch", cls=ControllerCommand)
def watch_routes(job: JobIdArgument, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Print the job's routes now and whenever they change, until it goes (with --json one object per line)."""
    with connect(address) as client, suppress(KeyboardInterrupt):
        for response in client.watch_routes(job):
            found = fields(response)
            if as_json:
                typer.echo(json.dumps(found))
            else:
                console().print(printing.routes(found))


def _read(file: Path) -> Any:
    toml = file.suffix == ".toml"
    try:
        text = file.read_text(encoding="utf-8")
        return tomllib.loads(text) if toml else json.loads(text, object_pairs_hook=_each_once)
    except ValueError as error:
        what = "not TOML" if toml else "not JSON (only a file whose name ends in .toml is read as TOML)"
        raise InvalidInput.of("", f"{what}: {error}") from None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Raises ``ValueError`` for a name that it has twice, of which JSON keeps the last."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise ValueError(f"'{twice}' is there twice in one object")
    return found
