"""Installed Python distributions of Signalbox, and the commands that they add to the client's commands.

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
"""Entry point group for commands.

An entry is a function that adds commands to the ``Typer`` application given to it."""


def installed() -> dict[str, str]:
    """Return the versions of the installed distributions by name: first this one, then those that add commands."""
    from importlib.metadata import entry_points, version

    others = {each.dist.name: each.dist.version for each in entry_points(group=COMMANDS) if each.dist}
    return {CLIENT: version(CLIENT)} | dict(sorted(others.items()))


def added_commands(warn: Callable[[str], None]) -> typer.Typer:
    """Return the commands that other distributions add.

    Commands that cannot be loaded are left out, so that all other commands still work. ``warn`` receives one line about
    the commands that were left out."""
    from importlib.metadata import entry_points

    added = typer.Typer()
    for each in sorted(entry_points(group=COMMANDS)):
        commands = typer.Typer()
        try:
            each.load()(commands)
        except Exception as error:
            name = f"{each.dist.name} {each.dist.version}" if each.dist else each.value
            what = " ".join(f"{type(error).__name__}: {error}".split())
            warn(f"the commands {each.name!r} of {name} are missing, because they cannot be loaded: {what}")
        else:
            added.add_typer(commands)
    return added


@contextmanager
def needs_extra(extra: str, *modules: str) -> Iterator[None]:
    """Replace an error about a missing module of an optional extra by a ``SignalboxError``.

    The new error names the first of ``modules``, and the command that installs the extra. Other errors stay
    unchanged."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in modules:
            raise
        install = f"pip install --find-links dist 'signalbox-client[{extra}]'"
        raise SignalboxError(f"{modules[0]} is not installed: {install}") from None
