"""Tables that fit the terminal: the least important columns are left out, and no name is cut.

A last line names the columns that were left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

from signalbox.commands.output import escape, printable

BETWEEN = 2
"""Width between two columns, in cells."""
WRAPPED = 20
"""Smallest width, in cells, of a column whose texts may wrap, unless a word is longer."""


class Column(NamedTuple):
    """Column of a table.

    - ``rank``: 0 for a column that is always shown; other columns are left out if needed, the highest rank first
    - ``number``: whether it is right-aligned
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
            yield f"{self._title}: nothing yet" if self._title else "nothing yet"
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
        """Return the positions of the columns to show; the highest ranks are left out until the table fits."""
        shown = list(range(len(self._columns)))
        by_rank = sorted((at for at in shown if self._columns[at].rank), key=lambda at: self._columns[at].rank)
        while by_rank and self._width(shown) > width:
            shown.remove(by_rank.pop())
        return shown

    def _width(self, shown: Sequence[int]) -> int:
        """Return the smallest width, in cells, of a table with the columns in ``shown``."""
        return sum(map(self._needs, shown)) + BETWEEN * (len(shown) - 1)

    def _widths(self, shown: Sequence[int], width: int) -> Mapping[int, int]:
        """Return the widths of columns that may wrap: the needed width, and an equal share of the remaining width."""
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
