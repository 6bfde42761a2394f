"""``signalbox alarms``: list alarms, and record that operators know of them."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Group

from signalbox.client import Client
from signalbox.commands import get, printing
from signalbox.commands.connecting import AskingCommand, ControllerCommand, connect
from signalbox.commands.events import duration_s
from signalbox.commands.naming import alarm_names, completed
from signalbox.commands.output import console, escape, parser_of
from signalbox.errors import NO_SUCH_NAME, InvalidInput, cut
from signalbox.mapping import word_in
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.words import AlarmKind

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
    """Print the silenced alarms. A mistyped subject silences nothing, which the output shows."""
    found = _raised(client, kind, subject)
    console().print(Group(*printing.alarms(found)) if found else f"Silenced; {escape(_none_of(kind, subject))}.")


def _raised(client: Client, kind: AlarmKind, subject: str) -> list[pb.Alarm]:
    alarms = client.get_status().alarms
    return [alarm for alarm in alarms if word_in(alarm, "kind") == kind and subject in ("", alarm.subject)]


def _none_of(kind: AlarmKind, subject: str) -> str:
    return f"no alarm {kind}{f' of {cut(subject)}' if subject else ''} is raised now"
