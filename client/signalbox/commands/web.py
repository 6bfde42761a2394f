"""``signalbox web``: a live page of a controller's fabric, for browsers."""

from __future__ import annotations

from typing import Annotated

import typer

from signalbox.addresses import is_loopback
from signalbox.commands.connecting import ControllerCommand, connect
from signalbox.distributions import needs_extra

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
) -> None:
    """Serve a live page: the fabric with its loads, jobs and their paths, plans, alarms, events. Runs until Ctrl-C."""
    with needs_extra("web", "nicegui", "starlette"):
        from signalbox.web.serving import Listen, serve
    at = Listen.parse(listen)
    connect().close()  # says what is wrong with the address and the credentials
    if not is_loopback(at.host):
        typer.echo(f"warning: the page has no login, and {at.host} is not only for this machine", err=True)
    serve(connect, at, name or (), operate)
