"""``signalbox run``: run a command, and announce its job while it runs.

The command starts at once, because slow imports happen afterwards, or when an option needs them. Therefore this module
imports no other module of its package, and ``__main__`` imports this module alone."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from signalbox.errors import InvalidInput
from signalbox.job_ids import (
    HOW_TO_NAME_THE_JOB,
    JOB,
    JOB_ID,
    JOB_ID_FORM,
    TAKE_OVER,
    job_id_of_environment,
    takes_over,
)
from signalbox.launching.launch import NOT_EXECUTABLE, NOT_FOUND, Announcement, Child, announces, launch_of, log

if TYPE_CHECKING:
    from signalbox.host_addresses import Nics
    from signalbox.jobs.spec import JobSpec

USAGE = 2

commands = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@commands.command(
    "run",
    context_settings={"allow_interspersed_args": False},
    epilog="Example: signalbox run --job ring --hosts n[1-4] -- torchrun --nnodes 4 train.py",
)
def run(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="Command to run: mpirun, torchrun, srun, or any program.")
    ],
    job: Annotated[
        str | None,
        typer.Option(
            "--job",
            metavar="NAME",
            help="Id of the job; default: SIGNALBOX_JOB, else slurm-NUMBER of Slurm's job, else torchrun's run id.",
        ),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            "--hosts",
            metavar="HOST,...",
            help="Hosts of the job: addresses (10.0.1.1-4) or names (n[1-4]); default: from the launcher.",
        ),
    ] = None,
    addresses: Annotated[
        Path | None,
        typer.Option("--addresses", metavar="FILE", help="File with the addresses of hosts by name, in YAML or JSON."),
    ] = None,
    spec: Annotated[
        Path | None,
        typer.Option(
            "--spec", metavar="FILE", help="File with the job's spec, instead of --hosts; --job may give it another id."
        ),
    ] = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", metavar="", help="End another registration that has the job's id.")
    ] = False,
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            metavar="ADDRESS",
            help="Address of the controller's API: HOST:PORT or unix:PATH; several controllers: HOST:PORT,HOST:PORT. "
            "Default: SIGNALBOX_ADDRESS.",
        ),
    ] = None,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", metavar="", help="Log the announcement and every problem, not only the first problem."
        ),
    ] = False,
) -> None:
    """Run a command, and announce its job while it runs. The command runs even if no controller answers.

    The exit status is that of the command. Options for TLS and tokens come from the environment: SIGNALBOX_TLS_CA and
    so on."""
    with _usage():
        given = _spec_in(spec, job, hosts, addresses) if spec else None
        job_id = given.job_id if given else _job_id(job)
        named = _named(hosts) if hosts else None
        map_of_hosts: Mapping[str, Nics] = {}
        if addresses:
            from signalbox.host_addresses import address_map

            map_of_hosts = address_map(addresses)
    environ = {**os.environ, JOB: job_id, TAKE_OVER: "1", **({"SIGNALBOX_ADDRESS": address} if address else {})}
    if not announces(command, os.environ):
        with _startable(command[0]):
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; the command must not
                signal.signal(number, signal.SIG_DFL)
            os.execvpe(command[0], command, environ)
    _log_to_stderr(verbose)

    def find() -> JobSpec | None:
        return given or _spec_of(job_id, command, os.environ, named, map_of_hosts)

    with _startable(command[0]):
        child = Child(command, environ)
    announcement = Announcement(job_id, find, address, take_over or takes_over(os.environ))
    announcement.begin()
    status = child.wait()
    announcement.end()
    _end(status)


def main() -> None:
    """Run ``signalbox run`` without loading the other commands."""
    commands(prog_name="signalbox run", args=sys.argv[2:])


# ---- before the command starts


def _job_id(job: str | None) -> str:
    found = job or job_id_of_environment(os.environ)
    if found is None:
        raise InvalidInput.of("--job", f"is missing: {HOW_TO_NAME_THE_JOB}")
    if not JOB_ID.fullmatch(found):
        raise InvalidInput.of("--job", f"'{found}' {JOB_ID_FORM}")
    return found


def _spec_in(file: Path, job: str | None, hosts: str | None, addresses: Path | None) -> JobSpec:
    from signalbox.spec_files import jobs_in

    for option, value in (("--hosts", hosts), ("--addresses", addresses)):
        if value:
            raise InvalidInput.of(option, "cannot be combined with --spec, which has the addresses")
    found = jobs_in(file)
    if len(found) > 1:
        raise InvalidInput.of(str(file), f"must have one job, because one command runs one job (given: {len(found)})")
    return found[0].spec if job is None else found[0].spec.model_copy(update={"job_id": _job_id(job)})


def _named(hosts: str) -> tuple[str, ...]:
    from signalbox.host_addresses import hosts_named

    try:
        return tuple(hosts_named(hosts))
    except InvalidInput as error:
        raise error.within("--hosts") from None


@contextmanager
def _usage() -> Iterator[None]:
    try:
        yield
    except InvalidInput as error:
        for problem in error.problems:
            typer.echo(f"error: {problem}", err=True)
        raise typer.Exit(USAGE) from None


@contextmanager
def _startable(program: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        typer.echo(f"error: {program}: {error.strerror or error}", err=True)
        _end(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)


# ---- while the command runs


def _spec_of(
    job_id: str,
    command: list[str],
    environ: Mapping[str, str],
    named: tuple[str, ...] | None,
    map_of_hosts: Mapping[str, Nics],
) -> JobSpec | None:
    """Return the job's spec; None when there is nothing to announce, or when another host announces the job."""
    from signalbox.host_addresses import addresses_of, endpoints_of
    from signalbox.ip_addresses import network_of
    from signalbox.jobs.spec import JobSpec
    from signalbox.launching.launch import is_own

    launch = launch_of(command, environ)
    ranks = named or launch.ranks
    if launch.only_on and not is_own(launch.only_on):
        log.info("job '%s' is not announced by this command, because %s announces it", job_id, launch.only_on)
        return None
    if ranks is None:
        raise InvalidInput.of("", f"the hosts of the job are not known: {launch.why}; name the hosts with --hosts")
    if len(set(ranks)) > 1:
        networks = [network_of(each) for each in launch.interfaces if "/" in each]
        nics = addresses_of(ranks, map_of_hosts, networks)
        if len(set(nics)) > 1:
            return JobSpec.parse({"job_id": job_id, **endpoints_of(nics)})
    log.info("job '%s' is on one host: there is nothing to announce", job_id)
    return None


def _log_to_stderr(verbose: bool) -> None:
    handler = _Lines(logging.INFO if verbose else logging.WARNING, None if verbose else 1)
    handler.setFormatter(logging.Formatter("signalbox: %(message)s"))
    log.addHandler(handler)
    log.setLevel(handler.level)
    log.propagate = False


class _Lines(logging.StreamHandler[Any]):
    """Log handler that prints at most ``most`` lines to stderr; with None there is no limit."""

    def __init__(self, level: int, most: int | None) -> None:
        super().__init__()
        self.setLevel(level)
        self._left = most

    def emit(self, record: logging.LogRecord) -> None:
        if self._left is None or self._left > 0:
            super().emit(record)
            self._left = None if self._left is None else self._left - 1


def _end(status: int) -> NoReturn:
    """Exit at once with this status, without waiting for other threads, which may be in an import or a call."""
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None when it was closed before this program started
        with suppress(OSError):
            stream.flush()
    os._exit(status)
