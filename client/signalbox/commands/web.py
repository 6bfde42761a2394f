"""``signalbox web``: a live page of a controller's fabric, for browsers."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from signalbox.client import DEFAULT_ADDRESS
from signalbox.commands.connecting import ControllerCommand, connect
from signalbox.commands.output import Address
from signalbox.errors import SignalboxError

commands = typer.Typer()


@commands.command("web", cls=ControllerCommand, epilog="Example: signalbox web --address 192.0.2.10:50051")
def web(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where browsers find the page; it has no login.")
    ] = "127.0.0.1:8080",
    name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Also a name of this page, as a reverse proxy passes it on; may be given several times.",
        ),
    ] = None,
    operate: Annotated[
        bool,
        typer.Option("--operate", metavar="", help="Let whoever opens the page drain parts, with these credentials."),
    ] = False,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Serve a live page: the fabric with its loads, jobs and their paths, plans, alarms, events. Runs until Ctrl-C."""
    try:
        from signalbox.web.serving import Listen, serve
    except ModuleNotFoundError as error:
        if error.name not in ("nicegui", "starlette"):
            raise
        raise SignalboxError(
            "nicegui is not installed: pip install --find-links dist 'signalbox-client[web]'"
        ) from None
    at = Listen.parse(listen)
    open_client = partial(connect, address)
    open_client().close()  # says what is wrong with the address and the credentials
    if not at.local:
        typer.echo(f"warning: the page has no login, and {at.host} is not only for this machine", err=True)
    serve(open_client, at, name or (), operate)
