"""The ``signalbox`` command, and ``signalbox serve``. The other commands are in ``commands``.

In: arguments. Out: tables for people or, with ``--json``, the API's messages as JSON (field names as in the proto file,
defaults included); errors as one line each on stderr, with an exit status that says what kind of error it is.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from controller import config
from controller.commands import (
    alarms,
    analysis,
    bundle,
    describe,
    events,
    get,
    jobs,
    maintenance,
    network,
    offline,
    rules,
    state,
    token,
    verify,
    watch,
)
from controller.commands.bash_completion import for_bash
from controller.commands.exit_status import ExitStatus, exit_status
from controller.commands.output import file_to_read
from controller.commands.usage import Commands
from controller.errors import InvalidInput, SignalboxError
from controller.serving import exposure, preflight
from controller.standard_input import STANDARD_INPUT

MAX_PROBLEMS = 16
"""Lines for what is wrong with one file; the API has the same limit."""

app = typer.Typer(
    cls=Commands,
    help="Signalbox routes the traffic of distributed training: every large flow gets its own path.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(jobs.commands, name="jobs")
app.add_typer(network.commands)
app.add_typer(maintenance.commands)
app.add_typer(events.commands)
app.add_typer(watch.commands, name="watch")
app.add_typer(alarms.commands, name="alarms")
app.add_typer(get.commands, name="get")
app.add_typer(describe.commands, name="describe")
app.add_typer(rules.commands)
app.add_typer(bundle.commands)
app.add_typer(offline.commands)
app.add_typer(verify.commands)
app.add_typer(analysis.commands)
app.add_typer(token.commands)
app.add_typer(state.commands, name="state")


def main() -> None:
    """The entry point of the ``signalbox`` command."""
    try:
        with for_bash(os.environ):
            app(prog_name="signalbox")
    except InvalidInput as error:
        _fail(*map(str, error.problems), status=exit_status(error))
    except SignalboxError as error:
        _fail(str(error), status=exit_status(error))
    except UnicodeEncodeError as error:  # an argument that is no text
        _fail(f"{error.object[error.start : error.end]!r} cannot be written as {error.encoding}")
    except OSError as error:
        what = error.strerror or str(error)
        _fail(f"{error.filename}: {what}" if error.filename else what)


def _fail(*problems: str, status: ExitStatus = ExitStatus.ERROR) -> None:
    more = [f"and {len(problems) - MAX_PROBLEMS} more"] if len(problems) > MAX_PROBLEMS else []
    for problem in (*problems[:MAX_PROBLEMS], *more):
        typer.echo(f"error: {problem}", err=True)
    sys.exit(status)


# ---- the controller


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"signalbox {version('signalbox')}")
        raise typer.Exit


@app.callback()
def signalbox(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", metavar="", help="Print the version and exit.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """What all commands share."""


@app.command()
def serve(
    config_file: Annotated[
        Path | None,
        typer.Option(
            "--config",
            help="A TOML file; without it the defaults are used. With --check - is standard input.",
            metavar="FILE",
            parser=file_to_read,
        ),
    ] = None,
    check: Annotated[bool, typer.Option("--check", metavar="", help="Check the configuration and exit.")] = False,
    standby: Annotated[
        bool,
        typer.Option("--standby", metavar="", help="Wait while another controller uses state_dir, then take over."),
    ] = False,
) -> None:
    """Run the controller until it is stopped (Ctrl-C or SIGTERM).

    SIGHUP has it read certificates, tokens, the log level, limits and settings of planning again.
    """
    if config_file == STANDARD_INPUT and not check:
        raise typer.BadParameter(
            "standard input is for --check: a controller reads its file again", param_hint="--config"
        )
    settings = config.load(config_file)
    preflight.check(settings)
    if check or standby:
        preflight.check_saved(settings)
    if check:
        preflight.check_dates(settings)
        typer.echo("the configuration is valid")
        for line in exposure.who_may(settings):
            typer.echo(line)
        for doubt in preflight.doubts(settings):
            typer.echo(f"warning: {doubt}")
        return
    # Ryu and the solver take a second to import, which no other command needs.
    from controller.serving.serve import serve as run

    raise typer.Exit(run(settings, standby, config_file=config_file))
