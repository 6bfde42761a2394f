"""The ``signalbox`` command.

The package ``commands`` contains the commands; other installed Python distributions can add more (``distributions``).

A command prints tables or, with ``--json``, the messages of the API as JSON, with field names as in the proto file and
default values included. Each error is one line on stderr; the exit status says what kind of error it is."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

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
    watch,
)
from signalbox.commands.exit_status import ExitStatus, exit_status
from signalbox.commands.usage import Commands, for_bash
from signalbox.distributions import installed
from signalbox.errors import MAX_PROBLEMS, InvalidInput, SignalboxError, legible

MAX_LINES = 16
"""Largest number of lines printed about one wrong file; the API has the same limit."""

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
for name, group in (("jobs", jobs), ("watch", watch), ("alarms", alarms), ("get", get), ("describe", describe)):
    app.add_typer(group.commands, name=name)


def main() -> None:
    """Run the ``signalbox`` command; print errors to stderr and exit with the status of their kind."""
    try:
        with for_bash(os.environ):
            app(prog_name="signalbox")
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
    """Hold the options of ``signalbox`` itself."""
