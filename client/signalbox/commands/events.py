"""``signalbox events``: what has happened, including before a restart of the controller."""

from __future__ import annotations

import re
import time
from collections.abc import Generator
from datetime import datetime
from typing import Annotated, Any

import typer

from signalbox.commands.connecting import AskingCommand, connect
from signalbox.commands.output import document, for_programs, parser_of, printable
from signalbox.commands.watch import watched
from signalbox.live.happened import event_line
from signalbox.live.shown import moment
from signalbox.mapping import seconds_since_1970
from signalbox.words import EventKind

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

commands = typer.Typer()


def duration_s(text: str) -> float:
    """Return a duration such as ``10m`` in seconds."""
    if found := re.fullmatch(r"(\d+)([smhd])", text):
        return int(found[1]) * _UNITS[found[2]]
    raise typer.BadParameter(f"'{text}' is not a duration such as 90s, 10m, 2h or 3d")


def _since(text: str) -> float:
    """Return a point in time, in seconds since 1970, from a duration before now or an ISO 8601 time."""
    if re.fullmatch(r"\d+[smhd]", text):
        return time.time() - duration_s(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        message = (
            f"'{text}' is neither a time before now (90s, 10m, 2h, 3d) nor a date (2026-11-23T14:00, or with +00:00)"
        )
        raise typer.BadParameter(message) from None
    return moment.timestamp()


@commands.command(cls=AskingCommand)
def events(
    since: Annotated[
        float | None,
        typer.Option(parser=_since, metavar="AGO|TIME", help="First time: 90s, 10m, 2h, 3d ago, or a time."),
    ] = None,
    kind: Annotated[
        list[EventKind] | None,
        typer.Option(
            parser=parser_of(EventKind, "kind"), metavar="KIND", help="Kind of events to print; may be repeated."
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", metavar="", help="Continue with new events until Ctrl-C.")] = False,
) -> None:
    """Print events, oldest first: switches, links, jobs, plans, drains, alarms."""
    kinds = kind or []
    with connect() as client:
        if not watch:
            for event in client.list_events(since, kinds):
                _print(event)
            return
        after = 0.0 if since is None else since

        def messages(token: str) -> Generator[Any, None, None]:
            return client.watch_events(token, None if token else after, kinds)

        for message in watched(messages):
            for event in message.events:
                _print(event)


def _print(event: Any) -> None:
    if for_programs():
        typer.echo(document(event))
        return
    at = moment(seconds_since_1970(event.event_time), "%Y-%m-%d %H:%M:%SZ")
    typer.echo(printable(f"{at}  {event_line(event)}"))
