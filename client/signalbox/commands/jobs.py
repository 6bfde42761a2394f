"""``signalbox jobs``: announce, change, list, watch and remove jobs of a running controller.

``signalbox jobs keep`` is a daemon that keeps the jobs registered that the job spec files in a folder describe.
Launchers such as Slurm's hooks only write and remove the files, so launchers never wait for a controller.
"""

from __future__ import annotations

import functools
import logging
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group

from signalbox.client import Client
from signalbox.commands import get, printing_jobs
from signalbox.commands.connecting import (
    AskingCommand,
    ControllerCommand,
    PrintingCommand,
    completed,
    connect,
    given_connection,
    job_names,
    watched,
)
from signalbox.commands.lease_files import LeaseFiles
from signalbox.commands.output import FORM, Form, console, document, file_to_read, for_programs, show
from signalbox.errors import AlreadyExists, InvalidInput, NotFound, SignalboxError, WrongLeaseToken
from signalbox.jobs.spec import JobSpec
from signalbox.keeping import Keeper
from signalbox.kept_folder import KeptFolder
from signalbox.spec_files import JobInPlace, jobs_in
from signalbox.v1 import signalbox_pb2 as pb

LONG_LEASE_S = 3600.0
"""Lease duration in seconds below which ``register`` notes that the lease may end before the job does."""

commands = typer.Typer(help="Announce, change, check, list, watch and remove jobs.", no_args_is_help=True)

SpecFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="File with one job spec or several: .yaml, .json or .toml; - for standard input.",
        parser=file_to_read,
    ),
]
SpecFiles = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help="Files with one job spec or several each, in YAML, JSON or TOML; - for standard input.",
        parser=file_to_read,
    ),
]
JobIdArgument = Annotated[
    str, typer.Argument(metavar="JOB", help="Id of the job.", autocompletion=completed(job_names))
]


commands.command("list", cls=AskingCommand)(get.jobs)


@commands.command("show", cls=AskingCommand)
def show_job(job: JobIdArgument) -> None:
    """Show one job: state, lease, efficiency, and announced and counted bytes of its 20 busiest pairs."""
    with connect() as client:
        found = client.get_job(job)
    show(found, lambda: printing_jobs.job(found))


@commands.command("register", cls=AskingCommand)
def register_job(
    file: SpecFile,
    take_over: Annotated[
        bool, typer.Option("--take-over", metavar="", help="End another registration that has the job's id.")
    ] = False,
) -> None:
    """Announce the jobs that FILE describes, each for the time of its lease.

    To renew the leases, register the same file again. signalbox run --spec FILE renews them while a command runs, and
    signalbox jobs keep while the file exists. The first job that is refused ends the command; stderr names the jobs
    that were registered before it."""

    def register(spec: JobSpec) -> pb.Job:
        with _take_over_named():
            registered = client.register_job(spec, lease_token=leases.kept(spec.job_id), take_over=take_over)
        leases.keep(spec.job_id, registered.lease_token)
        return registered.job

    jobs, leases = jobs_in(file), _lease_files()
    with connect() as client:
        _show_each(jobs, register)
    lease_s = min(job.spec.lease_s for job in jobs)
    if not for_programs() and lease_s < LONG_LEASE_S:
        typer.echo(f"note: registered for {lease_s:g} s unless renewed (see signalbox jobs register --help)", err=True)


@commands.command("update", cls=AskingCommand, epilog="Example: signalbox jobs update one.yaml other.yaml")
def update_jobs(
    files: SpecFiles,
    revision: Annotated[
        int | None,
        typer.Option(
            "--revision",
            metavar="NUMBER",
            min=1,
            help="Change the job only if it still has this revision, as signalbox jobs show prints it.",
        ),
    ] = None,
) -> None:
    """Change registered jobs to match the files, all jobs or none; jobs may exchange hosts.

    Flows that the job keeps also keep their routes until the next plan."""
    jobs, leases = list(chain.from_iterable(map(jobs_in, files))), _lease_files()
    if revision and len(jobs) > 1:
        raise typer.BadParameter(
            f"a revision applies to one job, but the files describe {len(jobs)} jobs; give a file with one job",
            param_hint="--revision",
        )
    specs = [job.spec for job in jobs]
    tokens = {spec.job_id: leases.kept(spec.job_id) for spec in specs}
    with connect() as client, _needs_token():
        if len(jobs) == 1:
            with jobs[0].errors_placed():
                token = tokens[specs[0].job_id]
                found = [client.update_job(specs[0], lease_token=token, revision=revision or 0)]
        else:
            with _placed_among(jobs):
                found = [*client.update_jobs(specs, lease_tokens=tokens)]
    _show_all(found)


@commands.command("check", cls=PrintingCommand, epilog="Example: signalbox jobs check examples/language.json")
def check_job(file: SpecFile) -> None:
    """Check the jobs that FILE describes: print what they would announce, or all errors. Needs no controller.

    The tables have ranks, hosts, groups, virtual links, bytes per iteration, the largest sender, and each phase. With
    -o json or yaml: prints the specs without short forms, ready to be registered."""
    jobs, tables = jobs_in(file), []
    for job in jobs:
        with job.errors_placed():
            tables.append(printing_jobs.checked(job.spec))
    if not for_programs():
        console().print(Group(*tables))
        return
    found = _unless_several([job.spec.model_dump(mode="json", exclude_defaults=True) for job in jobs])
    if FORM.get() is Form.YAML:
        from signalbox.yaml_text import dump  # its import takes a moment, which only this form needs

        typer.echo(dump(found), nl=False)
    else:
        typer.echo(document(found, indent=2))


@commands.command("renew", cls=AskingCommand)
def renew_lease(job: JobIdArgument) -> None:
    """Renew the lease of a job that this user registered on this machine."""
    with connect() as client, _needs_token():
        left_s = client.renew_lease(job, _lease_files().kept(job))
    show({"job_id": job, "lease_left_s": left_s}, lambda: f"{left_s:g} s left")


@commands.command("deregister", cls=ControllerCommand)
def deregister_job(
    job: JobIdArgument,
    force: Annotated[bool, typer.Option("--force", metavar="", help="End the job without its lease token.")] = False,
) -> None:
    """Remove a job and release its routes; its traffic falls back to ECMP."""
    leases = _lease_files()
    advice = f"--force ends a job without its token{_elsewhere(leases, job)}"
    with connect() as client, _advice(WrongLeaseToken, advice):
        # With the uid, a repeated call cannot end a registration that has begun since.
        uid = client.get_job(job).uid if force else ""
        client.deregister_job(job, leases.kept(job), force, uid)
    leases.forget(job)


@commands.command("watch", cls=AskingCommand)
def watch_routes(job: JobIdArgument) -> None:
    """Print the job's routes now and at each change until it ends; with --json one object per line."""
    with connect() as client:
        for response in watched(functools.partial(client.watch_routes, job)):
            if for_programs():
                typer.echo(document(response))
            else:
                console().print(printing_jobs.routes(response))


def _lease_files() -> LeaseFiles:
    return LeaseFiles(given_connection()[0])


def _show_each(jobs: Sequence[JobInPlace], call: Callable[[JobSpec], pb.Job]) -> None:
    """Call the controller for each job in turn, and print the results.

    If a call fails, print the ids of the jobs that were registered before it, and raise its error."""
    found: list[pb.Job] = []
    try:
        for job in jobs:
            with job.errors_placed():
                found.append(call(job.spec))
    except SignalboxError:
        if found:
            typer.echo(f"registered: {', '.join(job.spec.job_id for job in found)}; the others are not", err=True)
        raise
    _show_all(found)


def _show_all(found: Sequence[pb.Job]) -> None:
    show(_unless_several(found), lambda: Group(*map(printing_jobs.registered, found)))


@contextmanager
def _placed_among(jobs: Sequence[JobInPlace]) -> Iterator[None]:
    def named(text: str) -> str:
        return re.sub(r"\bjobs\[(\d+)\]", lambda found: jobs[int(found[1])].place_of(""), text)

    def placed(text: str) -> str:
        found = re.match(r"jobs\[(\d+)\][.:]? ?(.*)", text)
        if not found:
            return named(text)
        return ": ".join(filter(None, (jobs[int(found[1])].place_of(found[2]), named(found[2]))))

    try:
        yield
    except InvalidInput as error:
        problems = tuple(
            replace(problem, path=placed(problem.path), message=named(problem.message)) for problem in error.problems
        )
        raise InvalidInput(problems) from None
    except SignalboxError as error:
        error.args = (placed(str(error)),)
        raise


def _unless_several(found: Sequence[object]) -> object:
    return found[0] if len(found) == 1 else found


@contextmanager
def _needs_token() -> Iterator[None]:
    """Add an explanation to errors about a wrong or missing lease token that are raised in the ``with`` block.

    The error then also names the file from which the token is read, and the command that makes a new token."""
    try:
        yield
    except WrongLeaseToken as error:
        job, leases = error.about.get("jobId", ""), _lease_files()
        where = f"{leases.path_of(job)}{_elsewhere(leases, job)}"
        text = f"{error}; the token is read from {where}; signalbox jobs register --take-over FILE makes a new one"
        raise WrongLeaseToken(text, error.about) from None


def _elsewhere(leases: LeaseFiles, job: str) -> str:
    """Return the end of an error: other addresses at which a job with this id was registered; empty if none."""
    found = leases.elsewhere(job)
    return f"; a job with this id was registered with --address {' and '.join(found)}" if found else ""


@contextmanager
def _take_over_named() -> Iterator[None]:
    try:
        yield
    except AlreadyExists as error:
        job = error.about.get("jobId", "")
        if error.about.get("heldBy") == "caller":
            text = "is registered with another spec; signalbox jobs update changes it"
        elif error.about.get("heldBy") == "other":
            text = "belongs to another registration, whose lease token is not stored here"
        else:
            raise
        raise AlreadyExists(f"job '{job}' {text}; --take-over ends it and registers again", error.about) from None


@contextmanager
def _advice(kind: type[SignalboxError], what: str) -> Iterator[None]:
    try:
        yield
    except kind as error:
        raise kind(f"{error}; {what}") from None


LOOK_S = 0.5
CALL_S = 5.0
"""Time-out of one call in seconds. A call that took longer is repeated; the repetition has no second effect."""

log = logging.getLogger("signalbox")

Addresses = Annotated[
    Path | None,
    typer.Option(
        "--addresses",
        metavar="FILE",
        help="File with addresses of the hosts that job specs name, in YAML or JSON: 'n[1-4]: 10.0.1.1-4'.",
        parser=file_to_read,
    ),
]


@commands.command("keep", cls=ControllerCommand, epilog="Example: signalbox jobs keep /var/lib/signalbox/jobs")
def keep_jobs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of job spec files.")],
    addresses: Addresses = None,
) -> None:
    """Keep the jobs of the files in DIR registered; deregister a job when its file is removed.

    Launchers write and remove the files, and need not wait for a controller. A changed file updates its jobs. A wrong
    file changes nothing: stderr says why, and the file is read again when it changes, and every 10 s.

    Ends at SIGTERM or Ctrl-C and leaves the jobs registered; the next start continues with them."""
    folder = folder.absolute()
    address, credentials = given_connection()
    leases = LeaseFiles(address, folder)

    def connect() -> Client:
        return Client(address, CALL_S, credentials)

    connect().close()  # unusable credentials end the command now
    with _logging(), _until_asked_to_end() as over, ExitStack() as at_end:
        keeper = Keeper(connect, leases)
        at_end.callback(keeper.close)
        kept = KeptFolder(folder, keeper, addresses)
        kept.look()
        log.info("keeping the jobs of %s registered at %s", folder, address)
        if not kept.problems:
            _release(leases.job_ids() - kept.jobs, leases, connect)
        while not over.wait(LOOK_S):
            kept.look()


def _release(job_ids: set[str], leases: LeaseFiles, connect: Callable[[], Client]) -> None:
    """Deregister jobs that an earlier process has registered and whose files were removed since.

    If the controller does not answer, the leases of these jobs run out."""
    try:
        with connect() as client:
            for job_id in sorted(job_ids):
                with suppress(NotFound, WrongLeaseToken):
                    client.deregister_job(job_id, leases.kept(job_id))
                leases.forget(job_id)
                log.info("job '%s' is deregistered", job_id)
    except (SignalboxError, OSError) as error:
        log.warning("cannot deregister jobs whose files were removed earlier; their leases will run out: %s", error)


@contextmanager
def _logging() -> Iterator[None]:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


@contextmanager
def _until_asked_to_end() -> Iterator[threading.Event]:
    over = threading.Event()
    signals = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda *_: over.set()) for number in signals]
    try:
        yield over
    finally:
        for number, action in zip(signals, before, strict=True):
            signal.signal(number, action)
