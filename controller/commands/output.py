"""What all commands share: tables for people, JSON for programs, a spinner on a terminal, the controller's address."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from rich.console import Console, RenderableType
from rich.status import Status

PIPE_COLUMNS = 160
"""Width of tables when the width of the terminal is not known."""

AsJson = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON for programs instead of a table.")]


Address = Annotated[
    str,
    typer.Option(
        envvar="SIGNALBOX_ADDRESS",
        help="Where the controller's API listens: HOST:PORT or unix:PATH.",
        metavar="ADDRESS",
    ),
]


def fields(message: Message) -> dict[str, Any]:
    """The message's JSON form, with its fields in the order of the API: tables and programs see the same."""
    given = MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    ordered: dict[str, Any] = _ordered(given, message.DESCRIPTOR)
    return ordered


def _ordered(value: Any, message: Any) -> Any:
    """``value`` in the order of the message's fields: those without a value would stand at the end."""
    if isinstance(value, list):
        return [_ordered(item, message) for item in value]
    if not isinstance(value, dict) or message.GetOptions().map_entry:
        return value
    return {
        field.name: _ordered(value[field.name], field.message_type) for field in message.fields if field.name in value
    }


def show(data: object, table: Callable[[], RenderableType], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(data, indent=2))
    else:
        console().print(table())


def waiting(what: str) -> Status:
    """A spinner on a terminal, nothing elsewhere."""
    return Console(stderr=True).status(what)


def console() -> Console:
    return Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS)
