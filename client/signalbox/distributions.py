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
"""Entry point group of commands: each entry takes a ``Typer`` application and adds commands to it."""


def installed() -> dict[str, str]:
    """Return installed versions by distribution: first this distribution, then distributions that add commands."""
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
            warn(f"the commands {each.name!r} of {name} are missing, because they cannot be loaded: {what}")
        else:
            added.add_typer(commands)
    return added


@contextmanager
def needs_extra(extra: str, *modules: str) -> Iterator[None]:
    """Turn the error of a missing module of an optional extra into a ``SignalboxError``.

    The error names the first of ``modules``, and the command that installs the extra. Other errors are raised as they
    are."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in modules:
            raise
        install = f"pip install --find-links dist 'signalbox-client[{extra}]'"
        raise SignalboxError(f"{modules[0]} is not installed: {install}") from None
