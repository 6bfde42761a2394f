"""``signalbox jobs``: announce, change, list, watch and remove jobs of a running controller."""

from __future__ import annotations

import functools
import json
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from signalbox.client import DEFAULT_ADDRESS
from signalbox.commands import printing_jobs
from signalbox.commands.connecting import ControllerCommand, connect
from signalbox.commands.lease_files import forget, keep, kept, path_of
from signalbox.commands.naming import completed, job_names
from signalbox.commands.output import Address, AsJson, console, document, fields, file_to_read, show
from signalbox.commands.watch import watched
from signalbox.errors import AlreadyExists, InvalidInput, SignalboxError, WrongLeaseToken
from signalbox.jobs.spec import JobSpec
from signalbox.standard_input import STANDARD_INPUT, called, read_bytes

commands = typer.Typer(help="Announce, change, list, watch and remove jobs.", no_args_is_help=True)

SpecFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="The job spec: JSON, or TOML when it ends in .toml; - for standard input, where JSON begins with {.",
        parser=file_to_read,
    ),
]
JobIdArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.", autocompletion=completed(job_names))]


@commands.command("list", cls=ControllerCommand)
def list_jobs(address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """List all jobs with their state and efficiency."""
    with connect(address) as client:
        found = [fields(job) for job in client.list_jobs()]
    show({"jobs": found}, lambda: printing_jobs.jobs(found), as_json)


@commands.command("show", cls=ControllerCommand)
def show_job(job: JobIdArgument, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Show one job: its state, what it announced and what is counted, lease and efficiency."""
    with connect(address) as client:
        found = fields(client.get_job(job))
    show(found, lambda: printing_jobs.job(found), as_json)


@commands.command("register", cls=ControllerCommand)
def register_job(
    file: SpecFile,
    take_over: Annotated[
        bool, typer.Option("--take-over", metavar="", help="End the registration that has the job's id now, if any.")
    ] = False,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Announce the job that FILE describes, and keep its lease token. The same file again renews the job's lease."""
    with _spec_in(file) as spec, connect(address) as client, _take_over_named():
        registered = client.register_job(spec, lease_token=kept(address, spec.job_id), take_over=take_over)
        keep(address, spec.job_id, registered.lease_token)
    found = fields(registered.job)
    show(found, lambda: printing_jobs.registered(found), as_json)


@commands.command("update", cls=ControllerCommand)
def update_job(file: SpecFile, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Change a registered job to what FILE describes now. Flows that stay keep their routes until the next plan."""
    with _spec_in(file) as spec, connect(address) as client, _needs_token(address, spec.job_id):
        found = fields(client.update_job(spec, lease_token=kept(address, spec.job_id)))
    show(found, lambda: printing_jobs.registered(found), as_json)


@commands.command("renew", cls=ControllerCommand)
def renew_lease(job: JobIdArgument, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Renew the lease of a job that was registered by this user on this machine."""
    with connect(address) as client, _needs_token(address, job):
        left_s = client.renew_lease(job, kept(address, job))
    show({"job_id": job, "lease_left_s": left_s}, lambda: f"{left_s:g} s left", as_json)


@commands.command("deregister", cls=ControllerCommand)
def deregister_job(
    job: JobIdArgument,
    force: Annotated[
        bool, typer.Option("--force", metavar="", help="Also a job that someone else has registered, or elsewhere.")
    ] = False,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Forget a job and release its routes; its traffic falls back to ECMP."""
    with connect(address) as client, _advice(WrongLeaseToken, "--force does without"):
        # Its uid: a call that is sent again must not end a registration that has begun since.
        uid = client.get_job(job).uid if force else ""
        client.deregister_job(job, kept(address, job), force, uid)
    forget(address, job)


@commands.command("watch", cls=ControllerCommand)
def watch_routes(job: JobIdArgument, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Print the job's routes now and whenever they change, until it goes (with --json one object per line)."""
    with connect(address) as client:
        for response in watched(functools.partial(client.watch_routes, job)):
            found = fields(response)
            if as_json:
                typer.echo(document(found))
            else:
                console().print(printing_jobs.routes(found))


def _needs_token(address: str, job_id: str) -> AbstractContextManager[None]:
    """For commands that nothing but the job's lease token helps."""
    where = path_of(address, job_id)
    return _advice(WrongLeaseToken, f"it is looked for in {where}; signalbox jobs register --take-over FILE makes one")


@contextmanager
def _take_over_named() -> Iterator[None]:
    """What the API calls ``take_over`` and ``request_id`` is an option here."""
    try:
        yield
    except AlreadyExists as error:
        job = error.about.get("jobId", "")
        if error.about.get("heldBy") == "caller":
            text = "is registered with another spec; signalbox jobs update changes it"
        elif error.about.get("heldBy") == "other":
            text = "belongs to another registration, whose lease token is not kept here"
        else:
            raise
        raise AlreadyExists(f"job '{job}' {text}; --take-over ends it and begins anew", error.about) from None


@contextmanager
def _advice(kind: type[SignalboxError], what: str) -> Iterator[None]:
    """Errors of this kind also say what helps."""
    try:
        yield
    except kind as error:
        raise kind(f"{error}; {what}") from None


@contextmanager
def _spec_in(file: Path) -> Iterator[JobSpec]:
    """What is wrong with it is told with the file's name, also by the controller."""
    try:
        yield JobSpec.parse(_read(file))
    except InvalidInput as error:
        raise error.within(called(file)) from None


def _read(file: Path) -> Any:
    toml = file.suffix == ".toml"
    try:
        text = read_bytes(file).decode()
        toml = toml or (file == STANDARD_INPUT and not text.lstrip().startswith("{"))
        return tomllib.loads(text) if toml else json.loads(text, object_pairs_hook=_each_once)
    except OSError as error:
        raise InvalidInput.of("", error.strerror or str(error)) from None
    except (ValueError, RecursionError) as error:
        what = "not JSON (only a file whose name ends in .toml is read as TOML)"
        if toml:
            what = "not TOML (JSON would begin with {)" if file == STANDARD_INPUT else "not TOML"
        raise InvalidInput.of("", f"{what}: {error}") from None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Raises ``ValueError`` for a name that it has twice, of which JSON keeps the last."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise ValueError(f"'{twice}' is there twice in one object")
    return found
