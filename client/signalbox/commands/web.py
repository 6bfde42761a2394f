"""``signalbox web``: a live page of a controller's fabric, for browsers."""

from __future__ import annotations

from typing import Annotated

import typer

from signalbox.addresses import is_loopback
from signalbox.commands.connecting import ControllerCommand, connect
from signalbox.distributions import needs_extra
from signalbox.live.following import MOST_BYTES

commands = typer.Typer()


@commands.command("web", cls=ControllerCommand, epilog="Example: signalbox web --address 192.0.2.10:50051")
def web(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address of the page for browsers; it has no login.")
    ] = "127.0.0.1:8080",
    name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Further host name of the page, as a reverse proxy forwards it; may be repeated.",
        ),
    ] = None,
    operate: Annotated[
        bool,
        typer.Option(
            "--operate", metavar="", help="Let everyone who opens the page drain parts, with these credentials."
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
