"""The distributions of Signalbox that are installed, and the commands that they add to those of this one.

``importlib.metadata`` takes a moment, which most commands do not need: the functions import it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from signalbox.errors import SignalboxError

CLIENT = "signalbox-client"
"""The distribution that this package is in."""

CONTROLLER = "signalbox-controller"
"""The one with the controller, and commands that need it."""

OFFLINE = "signalbox-offline"
"""The one with commands that need no fabric, and with the emulated fabric."""

COMMANDS = "signalbox.commands"
"""Each entry point of this group takes a ``Typer`` application and adds commands to it."""


def installed() -> dict[str, str]:
    """Versions by name: this distribution's first, then those that add commands."""
    from importlib.metadata import entry_points, version

    others = {each.dist.name: each.dist.version for each in entry_points(group=COMMANDS) if each.dist}
    return {CLIENT: version(CLIENT)} | dict(sorted(others.items()))


def added_commands(warn: Callable[[str], None]) -> typer.Typer:
    """The commands of other distributions. ``warn`` is told, in one line, of an entry point that raises something: its
    commands are left out, since all others work without it."""
    from importlib.metadata import entry_points

    added = typer.Typer()
    for each in sorted(entry_points(group=COMMANDS)):
        commands = typer.Typer()
        try:
            each.load()(commands)
        except Exception as error:
            name = f"{each.dist.name} {each.dist.version}" if each.dist else each.value
            what = " ".join(f"{type(error).__name__}: {error}".split())
            warn(f"without the commands {each.name!r} of {name}, which cannot be loaded: {what}")
        else:
            added.add_typer(commands)
    return added


@contextmanager
def needs_extra(extra: str, *modules: str) -> Iterator[None]:
    """Import modules that an extra of this distribution brings, the first of them under its name in an index. Raises
    ``SignalboxError`` with how to install the extra where one is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in modules:
            raise
        install = f"pip install --find-links dist 'signalbox-client[{extra}]'"
        raise SignalboxError(f"{modules[0]} is not installed: {install}") from None
