"""The ``signalbox`` command. The package ``commands`` has the commands; other installed distributions can add more.

Added commands (``distributions``) load slowly. They are loaded only when one of them is called, or when all commands
are listed. A command prints tables or, with ``--json``, the messages of the API as JSON, with field names as in the
proto file and default values included. Each error is one line on stderr, and decides the exit status.

When bash completes a command, it first divides words at the characters of ``COMP_WORDBREAKS``: ``leaf1:5`` arrives as
three words, and a completion replaces only the last one. ``for_bash`` joins the words again, corrects the index
``COMP_CWORD``, and shortens each completion to the part that bash replaces. The script of ``--show-completion bash``
sets ``COMP_WORDS`` (one per line) and ``COMP_CWORD``.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, redirect_stdout
from functools import cache
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from typer.core import TyperGroup
from typer.main import get_command, get_group

from signalbox.commands import (
    alarms,
    analysis,
    describe,
    get,
    jobs,
    network,
    programs,
    rules,
    run,
    traces,  # noqa: F401  adds a command to jobs
)
from signalbox.commands.exit_status import ExitStatus, exit_status
from signalbox.distributions import CONTROLLER, OFFLINE, added_commands, installed
from signalbox.errors import MAX_PROBLEMS, InvalidInput, SignalboxError, legible, value_problem

PANELS = {
    "Jobs": ("jobs", "run", "kubernetes"),
    "Look": (
        "status",
        "top",
        "web",
        "report",
        "events",
        "get",
        "describe",
        "fabric",
        "plan",
        "rules",
        "explain",
        "what-if",
    ),
    "Operate": ("alarms", "mode", "drain", "undrain", "forget", "members"),
    "The controller": ("serve", "token", "state", "support-bundle", "verify"),
    "Without a fabric": ("design", "generate-workload", "plan-file", "simulate", "lab"),
}

BROUGHT_BY = {
    name: distribution
    for panel, distribution in (("The controller", CONTROLLER), ("Without a fabric", OFFLINE))
    for name in PANELS[panel]
}
"""Distribution that provides a command, by the command's name, for commands that this distribution lacks."""

PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}

EXTENDED = ("explain", "what-if")
"""Commands that another distribution replaces by more capable versions, once that distribution is installed."""


class Commands(TyperGroup):
    """Group of all commands.

    It rewrites errors about the values of options, because Typer prints pydantic's message without the wrong value."""

    _complete = False

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        _join_lines(self)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = None if cmd_name in EXTENDED else super().get_command(ctx, cmd_name)
        return own or self._with_added(ctx).get(cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the commands' names in the order of the help's panels; names without a panel come last."""
        known = self._with_added(ctx)
        for name, panel in PANEL_OF.items():
            if name in known:
                known[name].rich_help_panel = panel
        return [*(name for name in PANEL_OF if name in known), *(name for name in known if name not in PANEL_OF)]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        other = BROUGHT_BY.get(name)
        if other and other not in installed() and self.get_command(ctx, name) is None:
            ctx.fail(f"No such command '{name}'. It is part of {other}: pip install --find-links dist {other}")
        return super().resolve_command(ctx, args)

    def _with_added(self, ctx: Any) -> Any:
        """Return all commands by name; the first call loads the commands of other distributions.

        No warnings about faulty distributions are printed while a shell completes words."""
        if not self._complete:
            self._complete = True
            quiet = ctx.resilient_parsing
            added = added_commands(lambda what: None if quiet else typer.echo(f"warning: {what}", err=True))
            for name, command in get_group(added).commands.items():
                if name in EXTENDED or name not in self.commands:
                    _join_lines(command)
                    self.commands[name] = command
        return self.commands

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            if isinstance(error.__cause__, ValidationError):
                error.message = value_problem(error.__cause__)
            raise


def _join_lines(command: Any) -> None:
    """Join the lines of each paragraph in the help of a command: Typer would print the docstring's line breaks."""
    for each in getattr(command, "commands", {}).values():
        _join_lines(each)
    command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in (command.help or "").split("\n\n"))


_BREAK = re.compile("[:=]+")


def whole_words(words: list[str], current: int) -> tuple[list[str], int, str]:
    """Join words that bash has divided, such as ``leaf1``, ``:`` and ``5``.

    Returns the joined words, the index of the word to complete, and the beginning of this word. Bash keeps this
    beginning, and a completion replaces only the rest of the word."""
    whole: list[str] = []
    place, kept, glue = current, "", False
    for number, word in enumerate(words):
        is_break = _BREAK.fullmatch(word) is not None
        if whole and (glue or is_break):
            before = whole[-1]
            whole[-1] += word
            if number == current:
                place, kept = len(whole) - 1, before + word if is_break else before
        else:
            whole.append(word)
            if number == current:
                place = len(whole) - 1
        glue = is_break
    return whole, place, kept


@contextmanager
def for_bash(environ: MutableMapping[str, str]) -> Iterator[None]:
    """Translate between bash and the completion of words that runs in the ``with`` block.

    If bash has called the command to complete a word, the variables in ``environ`` get the joined words
    (``whole_words``). Each completion that the block prints is shortened to the part that bash replaces. If bash has
    not called the command, nothing changes."""
    if environ.get("_SIGNALBOX_COMPLETE") != "complete_bash":
        yield
        return
    words, current, kept = whole_words(environ.get("COMP_WORDS", "").split("\n"), int(environ.get("COMP_CWORD", "0")))
    environ["COMP_WORDS"], environ["COMP_CWORD"] = "\n".join(words), str(current)
    found = io.StringIO()
    try:
        with redirect_stdout(found):
            yield
    finally:
        sys.stdout.writelines(f"{line.removeprefix(kept)}\n" for line in found.getvalue().splitlines())


MAX_LINES = 16
"""Largest number of error lines printed at a time. If there are more errors, the last line has their number."""

app = typer.Typer(
    cls=Commands,
    help="Signalbox routes the traffic of distributed training: every large flow gets its own path.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for each in (
    network.commands,
    alarms.event_commands,
    rules.commands,
    analysis.commands,
    programs.commands,
    run.commands,
):
    app.add_typer(each)
for name, group in (("jobs", jobs), ("alarms", alarms), ("get", get), ("describe", describe)):
    app.add_typer(group.commands, name=name)


@cache
def command_tree() -> Any:
    """Return all commands. Building them takes as long as a short command, and a process may run many."""
    return get_command(app)


def main() -> None:
    """Run the ``signalbox`` command. After an error, print it to stderr and exit with the status of its kind."""
    try:
        with for_bash(os.environ):
            command_tree()(prog_name="signalbox")
    except InvalidInput as error:
        _fail(*map(str, error.problems), status=exit_status(error))
    except SignalboxError as error:
        _fail(str(error), status=exit_status(error))
    except UnicodeEncodeError as error:  # an argument that is not valid text
        _fail(f"{error.object[error.start : error.end]!r} cannot be written as {error.encoding}")
    except OSError as error:
        what = error.strerror or str(error)
        _fail(f"{error.filename}: {what}" if error.filename else what)


def _fail(*problems: str, status: ExitStatus = ExitStatus.ERROR) -> None:
    least = "at least " if len(problems) >= MAX_PROBLEMS else ""  # checks stop at this number of problems
    more = [f"and {least}{len(problems) - MAX_LINES} more"] if len(problems) > MAX_LINES else []
    for problem in (*problems[:MAX_LINES], *more):
        typer.echo("error: " + legible(problem, kept="\n"), err=True)
    sys.exit(status)


def _print_versions(wanted: bool) -> None:
    if wanted:
        for name, version in installed().items():
            typer.echo(f"{name} {version}")
        raise typer.Exit


@app.callback()
def signalbox(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", metavar="", help="Print the installed versions.", is_eager=True, callback=_print_versions
        ),
    ] = False,
) -> None:
    """Hold the options that come before the name of a command."""
