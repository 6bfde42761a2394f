"""``signalbox top``: jobs, busiest links, alarms and events of a controller, live in a terminal."""

from __future__ import annotations

import os
import sys

import typer

from signalbox.commands.connecting import ControllerCommand, connect
from signalbox.distributions import needs_extra
from signalbox.errors import SignalboxError
from signalbox.live.following import MOST_BYTES

commands = typer.Typer()


@commands.command("top", cls=ControllerCommand, epilog="Example: signalbox top --address 192.0.2.10:50051")
def top() -> None:
    """Show jobs, the busiest links, alarms and events in the terminal, as they change; q ends it, ? lists the keys.

    Needs signalbox-client[top]."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM", "dumb") in ("", "dumb"):
        raise SignalboxError("top needs a terminal; signalbox watch and signalbox status print without one")
    with needs_extra("top", "textual"):
        from signalbox.top.app import Top
        from signalbox.top.ending import ended_by_signals, signals_kept
    with signals_kept():
        connect().close()  # says what is wrong with the address and the credentials
        app = Top(lambda: connect(MOST_BYTES))
        with ended_by_signals(app.end, sys.stdin.fileno()):
            app.run()
