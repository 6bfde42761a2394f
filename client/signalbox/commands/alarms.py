"""``signalbox alarms``: list alarms, and record that operators know of them.

``signalbox events``: print past events."""

from __future__ import annotations

import re
import time
from collections.abc import Generator
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Group

from signalbox.client import Client
from signalbox.commands import get, printing
from signalbox.commands.connecting import AskingCommand, ControllerCommand, alarm_names, completed, connect, watched
from signalbox.commands.output import console, document, escape, for_programs, parser_of, printable
from signalbox.errors import NO_SUCH_NAME, InvalidInput, cut
from signalbox.live.rows import event_line
from signalbox.live.shown import moment
from signalbox.mapping import seconds_since_1970, word_in
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.words import AlarmKind, EventKind

commands = typer.Typer(help="List alarms; acknowledge or silence them.", no_args_is_help=True)


Kind = Annotated[
    AlarmKind,
    typer.Argument(parser=parser_of(AlarmKind, "kind"), metavar="KIND", help="Alarm kind, as printed by get alarms."),
]
Subject = Annotated[
    str,
    typer.Argument(
        metavar="SUBJECT",
        help="Subject of one alarm, as printed by get alarms; default: all alarms of the kind.",
        autocompletion=completed(alarm_names),
    ),
]
Comment = Annotated[str, typer.Option(help="Note for other operators.")]


@commands.command("list", cls=AskingCommand)
def list_alarms(names: get.Alarms = None) -> None:
    """List active alarms in a sentence each: critical ones first, acknowledged and silenced ones last."""
    get.list_alarms(names, printing.all_alarms)


@commands.command(cls=ControllerCommand)
def acknowledge(kind: Kind, subject: Subject = "", comment: Comment = "") -> None:
    """Acknowledge an alarm until it is over: it stays in the list but does not count in the metrics."""
    with connect() as client:
        if not _raised(client, kind, subject):  # the acknowledgement would apply to the next alarm
            later = f"alarms silence {kind} --for TIME also covers alarms that are raised later"
            raise InvalidInput.of("", f"{_none_of(kind, subject)}; {later}", NO_SUCH_NAME)
        client.silence_alarms(kind, subject, None, comment)
        _tell_silenced(client, kind, subject)


@commands.command(cls=ControllerCommand)
def silence(
    kind: Kind,
    for_s: Annotated[float, typer.Option("--for", parser=duration_s, metavar="TIME", help="Duration: 30m, 2h, 3d.")],
    subject: Subject = "",
    comment: Comment = "",
) -> None:
    """Silence alarms for some time, including those that are raised later."""
    with connect() as client:
        client.silence_alarms(kind, subject, for_s, comment)
        _tell_silenced(client, kind, subject)


@commands.command(cls=ControllerCommand)
def unsilence(kind: Kind, subject: Subject = "") -> None:
    """End a silence or an acknowledgement."""
    with connect() as client:
        client.end_silence(kind, subject)


def _tell_silenced(client: Client, kind: AlarmKind, subject: str) -> None:
    """Print the silenced alarms.

    If there are none now, say so: the user may have mistyped the subject."""
    found = _raised(client, kind, subject)
    console().print(Group(*printing.alarms(found)) if found else f"Silenced; {escape(_none_of(kind, subject))}.")


def _raised(client: Client, kind: AlarmKind, subject: str) -> list[pb.Alarm]:
    alarms = client.get_status().alarms
    return [alarm for alarm in alarms if word_in(alarm, "kind") == kind and subject in ("", alarm.subject)]


def _none_of(kind: AlarmKind, subject: str) -> str:
    return f"no alarm {kind}{f' of {cut(subject)}' if subject else ''} is raised now"


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

event_commands = typer.Typer()


def duration_s(text: str) -> float:
    """Return a duration such as ``10m`` in seconds."""
    if found := re.fullmatch(r"(\d+)([smhd])", text):
        return int(found[1]) * _UNITS[found[2]]
    raise typer.BadParameter(f"'{text}' is not a duration such as 90s, 10m, 2h or 3d")


def _start_time(text: str) -> float:
    """Return a time in seconds since 1970 for an age such as ``10m``, or for an ISO 8601 time."""
    if re.fullmatch(r"\d+[smhd]", text):
        return time.time() - duration_s(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        message = (
            f"'{text}' is neither an age (90s, 10m, 2h, 3d) nor a time (2026-11-23T14:00, local unless it has +00:00)"
        )
        raise typer.BadParameter(message) from None
    return moment.timestamp()


@event_commands.command(cls=AskingCommand)
def events(
    since: Annotated[
        float | None,
        typer.Option(
            parser=_start_time, metavar="AGO|TIME", help="Start: an age (10m, 2h, 3d) or a time (2026-11-23T14:00)."
        ),
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
