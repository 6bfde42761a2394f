"""``signalbox report``: one HTML file for a ticket."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from signalbox.client import Client
from signalbox.commands.connecting import ControllerCommand, connect
from signalbox.commands.output import file_to_read, waiting
from signalbox.whole_file import write

commands = typer.Typer()


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
    from signalbox.report.bundle import of_bundle
    from signalbox.report.page import page

    with waiting("collecting"):
        if bundle:
            text = page(of_bundle(bundle))
        else:
            with connect() as client:
                text = of_client(client)
    write(file, text.encode())


def of_client(client: Client) -> str:
    """Return the report on a running controller as one HTML page."""
    from signalbox.report.gathered import of_controller
    from signalbox.report.page import page

    return page(of_controller(client, time.time()))
