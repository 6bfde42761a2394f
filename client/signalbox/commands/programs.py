"""``signalbox kubernetes``, ``report``, ``top`` and ``web``: commands that import their packages only when called."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from signalbox.addresses import is_loopback
from signalbox.client import Client
from signalbox.commands.connecting import ControllerCommand, connect, given_connection
from signalbox.commands.lease_files import LeaseFiles
from signalbox.commands.output import file_to_read, waiting
from signalbox.distributions import needs_extra
from signalbox.errors import SignalboxError
from signalbox.files import write
from signalbox.keeping import Keeper
from signalbox.live.following import MOST_BYTES

commands = typer.Typer()


@commands.command("kubernetes", cls=ControllerCommand, epilog="Example: signalbox kubernetes --namespace ml")
def keep_annotated_jobs(
    namespaces: Annotated[
        list[str] | None,
        typer.Option("--namespace", metavar="NAME", help="Namespace to follow, default: all; may be repeated."),
    ] = None,
) -> None:
    """Keep the annotated jobs of a Kubernetes cluster registered: JobSet, MPIJob, PyTorchJob and Job.

    When this command ends, the jobs stay registered until their leases run out or the command runs again."""
    with needs_extra("kubernetes", "kopf", "aiohttp"):
        from signalbox.kubernetes.operator import run
    address, credentials = given_connection()
    open_client = partial(Client, address, credentials=credentials)  # also for threads, which have another context
    open_client().close()  # reports wrong addresses and credentials
    run(lambda on_end: Keeper(open_client, LeaseFiles(address), on_end), namespaces or ())


@commands.command(cls=ControllerCommand, epilog="Example: signalbox report report.html --from ticket.tar.gz")
def report(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="File to write, such as report.html; - for standard output.")
    ],
    bundle: Annotated[
        Path | None,
        typer.Option(
            "--from",
            parser=file_to_read,
            metavar="BUNDLE",
            help="Support bundle to report on, instead of a controller.",
        ),
    ] = None,
) -> None:
    """Write one HTML file for a ticket: health, slow jobs and why, fabric, jobs, plan, alarms, history."""
    from signalbox.report.gathered import of_bundle
    from signalbox.report.page import page

    with waiting("collecting"):
        if bundle:
            text = page(of_bundle(bundle))
        else:
            with connect() as client:
                text = of_client(client)
    write(file, text.encode())


def of_client(client: Client) -> str:
    """Return a report on a running controller as one HTML page."""
    from signalbox.report.gathered import of_controller
    from signalbox.report.page import page

    return page(of_controller(client, time.time()))


@commands.command("top", cls=ControllerCommand, epilog="Example: signalbox top --address 192.0.2.10:50051")
def top() -> None:
    """Show jobs, the busiest links, alarms and events in the terminal, as they change; q ends it, ? lists the keys.

    Needs signalbox-client[top]."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM", "dumb") in ("", "dumb"):
        raise SignalboxError("top needs a terminal; signalbox events --watch and signalbox status print without one")
    with needs_extra("top", "textual"):
        from signalbox.top.app import Top, ended_by_signals, signals_kept
    with signals_kept():
        connect().close()  # says what is wrong with the address and the credentials
        app = Top(lambda: connect(MOST_BYTES))
        with ended_by_signals(app.end, sys.stdin.fileno()):
            app.run()


@commands.command("web", cls=ControllerCommand, epilog="Example: signalbox web --address 192.0.2.10:50051")
def web(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address of the page for browsers; it has no login.")
    ] = "127.0.0.1:8080",
    name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Another host name at which browsers find the page, such as that of a reverse proxy; may be repeated.",
        ),
    ] = None,
    operate: Annotated[
        bool,
        typer.Option(
            "--operate", metavar="", help="Let viewers of the page drain parts, with the credentials of this command."
        ),
    ] = False,
) -> None:
    """Serve a live page with fabric, loads, jobs and their paths, plans, alarms and events, until Ctrl-C.

    Needs signalbox-client[web]."""
    with needs_extra("web", "nicegui", "starlette"):
        from signalbox.web.serving import Listen, serve
    at = Listen.parse(listen)
    connect().close()  # reports wrong addresses and credentials
    if not is_loopback(at.host):
        typer.echo(f"warning: the page has no login, and {at.host} is reachable from other machines", err=True)
    serve(lambda: connect(MOST_BYTES), at, name or (), operate)
