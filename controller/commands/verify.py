"""``signalbox verify``: checks a plan with its proofs, without a solver."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from signalbox.commands.exit_status import ExitStatus
from signalbox.errors import SignalboxError
from signalbox.files import STANDARD_INPUT, called

commands = typer.Typer()


@commands.command("verify")
def verify_command(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="File that plan-file --proof or plan --proof has written; - for standard input."
        ),
    ],
) -> None:
    """Check a plan and its proofs, without a solver.

    Prints how many slowdowns are proven, which may be none. Exit status 1: a claim in the file does not follow, and
    stderr names it. Exit status 4: only a search proves some of the slowdowns."""
    from controller.planning.verify import read, verify

    try:
        text, unchecked = verify(read(sys.stdin.fileno() if file == STANDARD_INPUT else file))
    except ValueError as error:
        raise SignalboxError(f"{called(file)}: {error}") from None
    typer.echo(text)
    if unchecked:
        raise typer.Exit(ExitStatus.NOT_CHECKABLE)
