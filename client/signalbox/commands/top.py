"""``signalbox top``: jobs, busiest links, alarms and events of a controller, live in a terminal."""

from __future__ import annotations

import os
import sys
from functools import partial

import typer

from signalbox.client import DEFAULT_ADDRESS
from signalbox.commands.connecting import ControllerCommand, connect
from signalbox.commands.output import Address
from signalbox.errors import SignalboxError

commands = typer.Typer()


@commands.command("top", cls=ControllerCommand, epilog="Example: signalbox top --address 192.0.2.10:50051")
def top(address: Address = DEFAULT_ADDRESS) -> None:
    """Show jobs, the busiest links, alarms and events in the terminal, as they change; q ends it, ? lists the keys."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM", "dumb") in ("", "dumb"):
        raise SignalboxError("top needs a terminal; signalbox watch and signalbox status print without one")
    try:
        from signalbox.top.app import Top
        from signalbox.top.ending import ended_by_signals, signals_kept
    except ModuleNotFoundError as error:
        if error.name != "textual":
            raise
        raise SignalboxError(
            "textual is not installed: pip install --find-links dist 'signalbox-client[top]'"
        ) from None
    with signals_kept():
        connect(address).close()  # says what is wrong with the address and the credentials
        app = Top(partial(connect, address))
        with ended_by_signals(app.end, sys.stdin.fileno()):
            app.run()
