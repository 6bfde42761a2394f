"""What all commands share: tables for people, JSON for programs, a spinner on a terminal, the controller's address."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from rich import markup
from rich.console import Console, RenderableType
from rich.status import Status

from controller.api.mapping import is_duration, seconds, word_of

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
    """The message for tables and programs, in the order of the API and with every field; docs/reference/json-output.md
    has the rules."""
    return {key: value(message, name) for name, key, value in _fields(message.DESCRIPTOR)}


Value = Callable[[Message, str], Any]


@functools.cache
def _fields(kind: Descriptor) -> tuple[tuple[str, str, Value], ...]:
    """Per field its name in the API and here, and how its value is read; absent values are None."""
    return tuple(
        (field.name, f"{field.name}_s" if is_duration(field) else field.name, _value(field)) for field in kind.fields
    )


def _value(field: FieldDescriptor) -> Value:
    convert = _convert(field)
    if field.is_repeated:
        return lambda message, name: [convert(item) for item in getattr(message, name)]
    if field.has_presence:
        return lambda message, name: convert(getattr(message, name)) if message.HasField(name) else None
    return lambda message, name: convert(getattr(message, name))


def _convert(field: FieldDescriptor) -> Callable[[Any], Any]:
    if is_duration(field):
        return seconds
    if field.message_type is not None:
        return _rfc3339 if field.message_type.full_name == Timestamp.DESCRIPTOR.full_name else fields
    if field.enum_type is not None:
        return functools.partial(word_of, field.enum_type)
    return str if field.cpp_type in _SIXTY_FOUR_BITS else lambda value: value


_SIXTY_FOUR_BITS = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)
"""Many programs that read JSON keep 53 bits of a number."""


def _rfc3339(time: Timestamp) -> str:
    return time.ToJsonString()


def show(data: object, table: Callable[[], RenderableType], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(data, indent=2))
    else:
        console().print(table())


def printable(text: str) -> str:
    """Without what a terminal obeys: names come from whoever registered a job."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def escape(text: str) -> str:
    """For a table."""
    return markup.escape(printable(text))


def waiting(what: str) -> Status:
    """A spinner on a terminal, nothing elsewhere."""
    return Console(stderr=True).status(what)


def console() -> Console:
    return Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS)


def proven_over(levels_listed: int, candidates: int, stretch: int = 0) -> str:
    """What levels are proven over, to follow their number. ``levels_listed``: how many are proven over so many
    ``candidates`` per pair of switches; 0 where these show no more than is known of all. ``stretch``: links that paths
    may have more than the shortest."""
    every = f"over all loop-free paths of up to {stretch} more links than the shortest" if stretch else ""
    every = every or "over all shortest paths"
    listed = f", {levels_listed} over {candidates} candidate paths per pair of switches at most" if candidates else ""
    return every + listed
