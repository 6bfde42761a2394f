"""Tables of the page, and how they are filled."""

from __future__ import annotations

from collections.abc import Iterable

from nicegui import ui

from signalbox.live.rows import Rows


def table(what: str, columns: Iterable[str]) -> ui.table:
    """Return a small table that scrolls. ``what``: name of its rows, which an empty table shows, and its CSS class."""
    shown = [{"name": name, "label": name, "field": name, "align": "left"} for name in columns]
    made = ui.table(columns=shown, rows=[], row_key="number")
    made.props(f'dense flat wrap-cells hide-pagination :rows-per-page-options=[0] no-data-label="no {what}"')
    return made.classes(f"w-full max-h-80 {what}")


def fill(filled: ui.table, rows: Rows, chosen: str = "") -> None:
    """Fill a table if the rows differ from the browser's. ``chosen``: name of a row to mark."""
    names = [column["name"] for column in filled.columns]
    numbered = [
        {"number": number, "chosen": row[0] == chosen, **dict(zip(names, row, strict=True))}
        for number, row in enumerate(rows)
    ]
    if filled.rows != numbered:
        filled.rows = numbered
