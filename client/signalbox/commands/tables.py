"""Tables that fit: where the terminal is too narrow, the least important columns are left out, and no name is cut.

In: columns with their ranks, rows of texts. Out: what rich prints, with a line that names what was left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

from signalbox.commands.output import escape, printable

BETWEEN = 2
"""Cells between two columns."""
WRAPPED = 20
"""Cells that a column needs at least whose texts may go on in the next line, unless a word is longer."""


class Column(NamedTuple):
    """``rank``: 0 for one that is always there; of the others those with the highest are left out first. ``number``:
    to the right. ``wraps``: its texts may go on in the next line."""

    name: str
    rank: int = 0
    number: bool = False
    wraps: bool = False


class Fitted:
    """A table as wide as the terminal at most."""

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
        """Which columns to show, by their places."""
        shown = list(range(len(self._columns)))
        by_rank = sorted((at for at in shown if self._columns[at].rank), key=lambda at: self._columns[at].rank)
        while by_rank and self._width(shown) > width:
            shown.remove(by_rank.pop())
        return shown

    def _width(self, shown: Sequence[int]) -> int:
        """What these columns need at least."""
        return sum(map(self._needs, shown)) + BETWEEN * (len(shown) - 1)

    def _widths(self, shown: Sequence[int], width: int) -> Mapping[int, int]:
        """Of the columns that may go on in the next line: what they need, and alike of what is left."""
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
    """A name and a value per line."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in found.items():
        table.add_row(f"[bold]{name}[/]", escape(str(value)))
    return table
