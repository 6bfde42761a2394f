"""How all commands speak: tables for people, JSON for programs, a spinner on a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console, RenderableType
from rich.status import Status

PIPE_COLUMNS = 160
"""Width of tables when nobody says how wide the terminal is."""

AsJson = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON for programs instead of a table.")]


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
