"""``signalbox jobs keep``: a daemon that keeps the jobs registered that the files of a folder describe.

Launchers such as Slurm's hooks write and remove the files, so they never wait for a controller."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from signalbox.client import Client
from signalbox.commands.connecting import ControllerCommand, given_connection
from signalbox.commands.jobs import commands
from signalbox.commands.lease_files import LeaseFiles
from signalbox.commands.output import file_to_read
from signalbox.errors import NotFound, SignalboxError, WrongLeaseToken
from signalbox.keeping import Keeper
from signalbox.kept_folder import KeptFolder

LOOK_S = 0.5
CALL_S = 5.0
"""Time-out of one call in seconds. A call that was too slow is repeated, and takes effect once."""

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
    """Keep the jobs registered whose files are in DIR; release a job when its file is removed.

    Launchers write and remove the files, and need not wait for a controller. A changed file updates its jobs. A wrong
    file changes nothing: stderr says why, and it is read again when it changes, and every 10 s.

    Ends at SIGTERM or Ctrl-C without releasing the jobs; the next start continues with them."""
    folder = folder.absolute()
    address, credentials = given_connection()
    leases = LeaseFiles(address, folder)

    def connect() -> Client:
        return Client(address, CALL_S, credentials)

    connect().close()  # unusable credentials end the command now
    with _logging(), _until_asked_to_end() as over, ExitStack() as at_end:
        keeper = Keeper(connect, leases)
        at_end.callback(keeper.close, release=False)
        kept = KeptFolder(folder, keeper, addresses)
        kept.look()
        log.info("%s: jobs are kept registered at %s", folder, address)
        if not kept.problems:
            _release(leases.job_ids() - kept.jobs, leases, connect)
        while not over.wait(LOOK_S):
            kept.look()


def _release(job_ids: set[str], leases: LeaseFiles, connect: Callable[[], Client]) -> None:
    """Release jobs of an earlier process whose files have been removed. Without an answer their leases run out."""
    try:
        with connect() as client:
            for job_id in sorted(job_ids):
                with suppress(NotFound, WrongLeaseToken):
                    client.deregister_job(job_id, leases.kept(job_id))
                leases.forget(job_id)
                log.info("job '%s' is released", job_id)
    except (SignalboxError, OSError) as error:
        log.warning(
            "jobs whose files were removed while this command was not running end when their leases run out: %s", error
        )


@contextmanager
def _logging() -> Iterator[None]:
    """Print the client's log lines to stderr."""
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
    """Yield an event that SIGTERM and Ctrl-C set."""
    over = threading.Event()
    signals = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda *_: over.set()) for number in signals]
    try:
        yield over
    finally:
        for number, action in zip(signals, before, strict=True):
            signal.signal(number, action)
