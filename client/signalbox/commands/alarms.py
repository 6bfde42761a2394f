"""``signalbox alarms``: what is wrong, and that operators know of it."""

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

commands = typer.Typer(help="List alarms, and say that they are known.", no_args_is_help=True)


Kind = Annotated[
    AlarmKind,
    typer.Argument(parser=parser_of(AlarmKind, "kind"), metavar="KIND", help="Alarm kind, as printed by get alarms."),
]
Subject = Annotated[
    str,
    typer.Argument(
        metavar="SUBJECT",
        help="Subject of one alarm, as printed by get alarms; all of the kind without it.",
        autocompletion=completed(alarm_names),
    ),
]
Comment = Annotated[str, typer.Option(help="For others who look at the alarm.")]


@commands.command("list", cls=AskingCommand)
def list_alarms(names: get.Alarms = None) -> None:
    """Say what is wrong now in a sentence each, critical alarms first, those that operators know of last."""
    get.list_alarms(names, printing.all_alarms)


@commands.command(cls=ControllerCommand)
def acknowledge(kind: Kind, subject: Subject = "", comment: Comment = "") -> None:
    """Say that an alarm is known, until it is over: it stays in the list and does not count in the metrics."""
    with connect() as client:
        if not _raised(client, kind, subject):  # else it would hold for the next one
            later = f"alarms silence {kind} --for TIME is also for alarms that are raised later"
            raise InvalidInput.of("", f"{_none_of(kind, subject)}; {later}", NO_SUCH_NAME)
        client.silence_alarms(kind, subject, None, comment)
        _tell_silenced(client, kind, subject)


@commands.command(cls=ControllerCommand)
def silence(
    kind: Kind,
    for_s: Annotated[
        float, typer.Option("--for", parser=duration_s, metavar="TIME", help="For how long: 30m, 2h, 3d.")
    ],
    subject: Subject = "",
    comment: Comment = "",
) -> None:
    """Say that alarms are known, also those that are raised later, for some time."""
    with connect() as client:
        client.silence_alarms(kind, subject, for_s, comment)
        _tell_silenced(client, kind, subject)


@commands.command(cls=ControllerCommand)
def unsilence(kind: Kind, subject: Subject = "") -> None:
    """End a silence, or an acknowledgement."""
    with connect() as client:
        client.end_silence(kind, subject)


def _tell_silenced(client: Client, kind: AlarmKind, subject: str) -> None:
    """A subject with a typing error silences nothing: say which alarms are."""
    found = _raised(client, kind, subject)
    console().print(Group(*printing.alarms(found)) if found else f"Silenced; {escape(_none_of(kind, subject))}.")


def _raised(client: Client, kind: AlarmKind, subject: str) -> list[pb.Alarm]:
    alarms = client.get_status().alarms
    return [alarm for alarm in alarms if word_in(alarm, "kind") == kind and subject in ("", alarm.subject)]


def _none_of(kind: AlarmKind, subject: str) -> str:
    return f"no alarm {kind}{f' of {cut(subject)}' if subject else ''} is raised now"
