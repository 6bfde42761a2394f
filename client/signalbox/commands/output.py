"""Output of all commands: tables for people, JSON and YAML for programs, and a spinner.

A table is at most as wide as the terminal: its least important columns are left out, but names are never cut. The last
line names the columns that were left out."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import typer
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from rich import markup
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.status import Status
from rich.table import Table

from signalbox.errors import nearest
from signalbox.files import STANDARD_INPUT
from signalbox.live.shown import printable as printable
from signalbox.mapping import is_duration, seconds, word_of

ALL_COLUMNS, ALL_LINES = 10_000, 100
"""Columns and lines of the screen when the output need not fit a terminal: in a pipe, and with ``-o wide``."""


class Form(StrEnum):
    """Form of a command's output. ``wide``: a table with all columns, whatever the terminal's width."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


Word = TypeVar("Word", bound=StrEnum)

FORM: ContextVar[Form] = ContextVar("form", default=Form.TABLE)
"""Form of the running command's output; set only for commands with the option ``-o``."""


def parser_of(kinds: type[Word], what: str) -> Callable[[str], Word]:
    """Return a parser for arguments whose value is a word of ``kinds``, written with hyphens or underscores.

    ``what``: noun for such a word in errors."""

    def parse(text: str) -> Word:
        try:
            return kinds(text.replace("-", "_"))
        except ValueError:
            known = f"choose {', '.join(kinds)}{nearest(text, kinds)}"
            raise typer.BadParameter(f"there is no {what} '{text}'; {known}") from None

    return parse


def file_to_read(text: str) -> Path:
    """Return the path in an argument of the command line; ``-`` is standard input.

    Typer's own option ``allow_dash`` would look for a file named ``-``."""
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
    """Return a triple per field: its name in the API, its key in the output, and a function that reads its value.

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
"""Types of numbers that JSON has as text, because many programs keep only 53 bits of a number."""


def _rfc3339(time: Timestamp) -> str:
    try:
        return time.ToJsonString()
    except ValueError:  # outside of the years 1 to 9999
        return str(time.seconds)


def for_programs() -> bool:
    """Return whether the running command prints data for programs."""
    return FORM.get() in (Form.JSON, Form.YAML)


def show(data: object, table: Callable[[], RenderableType]) -> None:
    """Print the data when the output is for programs, else the table."""
    if for_programs():
        typer.echo(document(data, indent=2))
    else:
        console().print(table())


def document(data: object, indent: int | None = None) -> str:
    """Return data, which may contain messages of the API, as a JSON or YAML document.

    ``indent``: indentation of JSON. If it is None, the output may have several documents, so JSON has a single line,
    and YAML begins with a separator."""
    text = json.dumps(data, indent=indent, default=fields)
    if FORM.get() is not Form.YAML:
        return text
    import yaml  # its import takes a moment, which only this form needs

    plain = json.loads(text)
    legible = json.dumps(plain, ensure_ascii=False).isprintable()  # JSON escapes control characters, YAML not all
    text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=legible, explicit_start=indent is None)
    return text.removesuffix("\n")


def escape(text: str) -> str:
    """Return the text in a form that the table library does not interpret as markup."""
    return markup.escape(printable(text))


def waiting(what: str) -> Status:
    """Return a context that shows a spinner on a terminal, and nothing elsewhere."""
    return Console(stderr=True).status(what)


def console() -> Console:
    """Return a console as wide as the terminal; in a pipe, and with ``-o wide``, as wide as the output."""
    fits = sys.stdout.isatty() and FORM.get() is not Form.WIDE
    # Without a height, a dumb terminal would have 80 columns in any case.
    return Console() if fits else Console(width=ALL_COLUMNS, height=ALL_LINES)


BETWEEN = 2
"""Space between two columns of a table, in characters."""
WRAPPED = 20
"""Smallest width, in characters, of a column whose texts may wrap. A longer word makes the column wider."""


class Column(NamedTuple):
    """Column of a table.

    - ``rank``: 0 for a column that is always shown; the column with the highest rank is left out first
    - ``number``: whether the column is right-aligned
    - ``wraps``: whether its texts may continue in the next line"""

    name: str
    rank: int = 0
    number: bool = False
    wraps: bool = False


class Fitted:
    """A table that is at most as wide as the terminal."""

    def __init__(self, columns: Sequence[Column], rows: Iterable[Sequence[object]], title: str | None = None) -> None:
        self._columns = columns
        self._rows = [[printable(str(cell)) for cell in row] for row in rows]
        self._title = title
        names = [column.name for column in columns]
        self._widest = [max(map(cell_len, cells)) for cells in zip(names, *self._rows, strict=True)]
        self._longest_word = [
            max(cell_len(word) for cell in cells for word in (*cell.split(), ""))
            for cells in zip(names, *self._rows, strict=True)
        ]

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        if not self._rows:
            yield f"{self._title}: none" if self._title else "none"
            return
        shown = self._that_fit(options.max_width)
        fits = self._width(shown) <= options.max_width
        if self._title:
            yield f"\n[bold]{escape(self._title)}[/]"
        table = Table(
            box=SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            padding=(0, BETWEEN - 1, 0, 0),
        )
        widths = self._widths(shown, options.max_width) if fits else {}
        for at in shown:
            column = self._columns[at]
            table.add_column(
                column.name,
                justify="right" if column.number else "left",
                no_wrap=fits and not column.wraps,
                overflow="fold",
                width=widths.get(at),
            )
        for row in self._rows:
            table.add_row(*(escape(row[at]) for at in shown))
        yield table
        if left := [column.name for at, column in enumerate(self._columns) if at not in shown]:
            yield f"[dim]-o wide also shows: {', '.join(left)}[/]"

    def _that_fit(self, width: int) -> list[int]:
        """Return the positions of the columns to show.

        Columns are left out, highest rank first, until the table fits."""
        shown = list(range(len(self._columns)))
        by_rank = sorted((at for at in shown if self._columns[at].rank), key=lambda at: self._columns[at].rank)
        while by_rank and self._width(shown) > width:
            shown.remove(by_rank.pop())
        return shown

    def _width(self, shown: Sequence[int]) -> int:
        return sum(map(self._needs, shown)) + BETWEEN * (len(shown) - 1)

    def _widths(self, shown: Sequence[int], width: int) -> Mapping[int, int]:
        """Return the width of each column that may wrap: the smallest width, and a share of the space that remains."""
        left, found = width - self._width(shown), {}
        wrapped = sorted((at for at in shown if self._columns[at].wraps), key=lambda at: self._widest[at])
        for number, at in enumerate(wrapped):
            more = min(self._widest[at] - self._needs(at), left // (len(wrapped) - number))
            found[at] = self._needs(at) + more
            left -= more
        return found

    def _needs(self, at: int) -> int:
        widest = self._widest[at]
        return min(widest, max(WRAPPED, self._longest_word[at])) if self._columns[at].wraps else widest


def facts(found: Mapping[str, object]) -> Table:
    """Return a table with a name and a value per line."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in found.items():
        table.add_row(f"[bold]{name}[/]", escape(str(value)))
    return table
