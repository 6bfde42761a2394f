"""Output of all commands: tables for people, JSON and YAML for programs, and a spinner on a terminal."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from contextvars import ContextVar
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from rich import markup
from rich.console import Console, RenderableType
from rich.status import Status

from signalbox.live.shown import printable as printable
from signalbox.mapping import is_duration, seconds, word_of
from signalbox.standard_input import STANDARD_INPUT

ALL_COLUMNS, ALL_LINES = 10_000, 100
"""Columns and lines of the screen when nothing has to fit: in a pipe, and with ``-o wide``."""


class Form(StrEnum):
    """Form of a command's output. ``wide``: a table with all columns, whatever the terminal's width."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


Word = TypeVar("Word", bound=StrEnum)

FORM: ContextVar[Form] = ContextVar("form", default=Form.TABLE)
"""Form of the running command's output; set when it has the option ``-o``."""

AsJson = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON for programs instead of a table.")]


def parser_of(kinds: type[Word], what: str) -> Callable[[str], Word]:
    """Return a parser of arguments that accepts the words in ``kinds``, with hyphens or underscores.

    ``what``: name that errors use for such a word."""

    def parse(text: str) -> Word:
        try:
            return kinds(text.replace("-", "_"))
        except ValueError:
            raise typer.BadParameter(f"there is no {what} '{text}'; choose {', '.join(kinds)}") from None

    return parse


def file_to_read(text: str) -> Path:
    """Return the path in an argument; ``-`` is standard input.

    Typer's own ``allow_dash`` would look for a file of that name."""
    path = Path(text)
    if path != STANDARD_INPUT and not path.exists():
        raise typer.BadParameter(f"file '{path}' does not exist.")
    if path.is_dir():
        raise typer.BadParameter(f"file '{path}' is a directory.")
    return path


def fields(message: Message) -> dict[str, Any]:
    """Return a message as data for tables and programs, with every field in the order of the API.

    docs/reference/json-output.md has the rules."""
    return {key: value(message, name) for name, key, value in _fields(message.DESCRIPTOR)}


Value = Callable[[Message, str], Any]


@functools.cache
def _fields(kind: Descriptor) -> tuple[tuple[str, str, Value], ...]:
    """Return each field's name in the API, its key in the output, and a function that reads its value.

    The value of an absent field is None."""
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
"""Types written as text in JSON, because many programs keep only 53 bits of a number."""


def _rfc3339(time: Timestamp) -> str:
    try:
        return time.ToJsonString()
    except ValueError:  # outside of the years 1 to 9999
        return str(time.seconds)


def for_programs() -> bool:
    """Return whether the running command prints data for programs."""
    return FORM.get() in (Form.JSON, Form.YAML)


def show(data: object, table: Callable[[], RenderableType], as_json: bool = False) -> None:
    """Print the data for programs with ``as_json`` or when the options request it, else the table."""
    if as_json or for_programs():
        typer.echo(document(data, indent=2))
    else:
        console().print(table())


def document(data: object, indent: int | None = None) -> str:
    """Return plain data, with messages of the API in it, as a document for programs.

    Without ``indent`` it is one of several documents: a line of JSON, or a YAML document that begins with a
    separator."""
    text = json.dumps(data, indent=indent, default=fields)
    if FORM.get() is not Form.YAML:
        return text
    import yaml  # its import takes a moment, which only this form needs

    plain = json.loads(text)
    legible = json.dumps(plain, ensure_ascii=False).isprintable()  # JSON escapes control characters, YAML not all
    text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=legible, explicit_start=indent is None)
    return text.removesuffix("\n")


def escape(text: str) -> str:
    """Return a text with the table library's markup escaped."""
    return markup.escape(printable(text))


def waiting(what: str) -> Status:
    """Return a context that shows a spinner on a terminal, and nothing elsewhere."""
    return Console(stderr=True).status(what)


def console() -> Console:
    """Return a console as wide as the terminal; in a pipe, and with ``-o wide``, as wide as the output."""
    fits = sys.stdout.isatty() and FORM.get() is not Form.WIDE
    # Without a height, a dumb terminal would have 80 columns in any case.
    return Console() if fits else Console(width=ALL_COLUMNS, height=ALL_LINES)
