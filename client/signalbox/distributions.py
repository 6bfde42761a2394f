"""Installed distributions of Signalbox, and the commands that they add to those of the client.

The functions import ``importlib.metadata`` themselves: its import takes a moment that most commands can save."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from signalbox.errors import SignalboxError

CLIENT = "signalbox-client"
"""Name of the distribution with this package."""

CONTROLLER = "signalbox-controller"
"""Name of the distribution with the controller and the commands that need it."""

OFFLINE = "signalbox-offline"
"""Name of the distribution with the commands that need no fabric, and with the emulated fabric."""

COMMANDS = "signalbox.commands"
"""Entry point group of commands: each entry takes a ``Typer`` application and adds commands to it."""


def installed() -> dict[str, str]:
    """Return the installed versions by name: this distribution first, then those that add commands."""
    from importlib.metadata import entry_points, version

    others = {each.dist.name: each.dist.version for each in entry_points(group=COMMANDS) if each.dist}
    return {CLIENT: version(CLIENT)} | dict(sorted(others.items()))


def added_commands(warn: Callable[[str], None]) -> typer.Typer:
    """Return the commands of other distributions.

    An entry point that raises an error is left out, because all other commands work without it; ``warn`` receives one
    line about it."""
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
    """Import modules of an optional extra in this context; ``modules`` begins with its name on the package index.

    Raises ``SignalboxError`` with the command that installs the extra when one of the modules is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in modules:
            raise
        install = f"pip install --find-links dist 'signalbox-client[{extra}]'"
        raise SignalboxError(f"{modules[0]} is not installed: {install}") from None
