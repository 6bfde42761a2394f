"""What the process says in the terminal: where the page is, once it is there, and whether the controller answers."""

from __future__ import annotations

import typer


class Terminal:
    """``url``: of the page."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._listens = False
        self._lost = ""

    def tell(self, listens: bool, lost: str | None) -> None:
        """What has changed. ``listens``: browsers can connect. ``lost``: as ``State`` has it."""
        if listens and not self._listens:
            self._listens = True
            typer.echo(f"The page is at {self._url} until Ctrl-C.", err=True)
        if lost is not None and bool(lost) != bool(self._lost):
            typer.echo(f"warning: {lost}" if lost else "The controller answers again.", err=True)
            self._lost = lost
