"""``signalbox serve``, and the entry point that adds all commands of the controller to those of its client."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Annotated

import typer

from controller import config
from controller.commands import bundle, state, token, verify
from controller.serving import exposure, haproxy, preflight
from controller.store.store import StateAway
from signalbox.commands.output import file_to_read
from signalbox.files import STANDARD_INPUT


def add_to(app: typer.Typer) -> None:
    """Add the commands; this is the entry point of the group ``signalbox.commands``."""
    app.command()(serve)
    for group in (bundle, verify, token):
        app.add_typer(group.commands)
    app.add_typer(state.commands, name="state")


def serve(
    config_file: Annotated[
        Path | None,
        typer.Option(
            "--config",
            help="TOML file; without it the defaults apply. With --check, - is standard input.",
            metavar="FILE",
            parser=file_to_read,
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", metavar="", help="Check configuration and saved jobs, print who can reach each port, and exit."
        ),
    ] = False,
    standby: Annotated[
        bool,
        typer.Option("--standby", metavar="", help="Wait while another controller uses the state, then take over."),
    ] = False,
    print_haproxy: Annotated[
        bool,
        typer.Option(
            "--print-haproxy", metavar="", help="Print HAProxy's configuration for api.proxy_socket and exit."
        ),
    ] = False,
) -> None:
    """Run the controller until it is stopped (Ctrl-C or SIGTERM).

    On SIGHUP it reads certificates, tokens, the log level, limits and planning settings again."""
    if config_file == STANDARD_INPUT and not (check or print_haproxy):
        raise typer.BadParameter(
            "standard input works with --check only, because a controller reads its file again at SIGHUP",
            param_hint="--config",
        )
    settings = config.load(config_file)
    if print_haproxy:
        typer.echo(haproxy.configuration(settings.api), nl=False)
        return
    preflight.check(settings, standby)
    if check or standby:
        # A controller that stands by waits for an etcd that does not answer, and checks the jobs then.
        with nullcontext() if check else suppress(StateAway):
            preflight.check_saved(settings)
    if check:
        preflight.check_dates(settings)
        typer.echo("the configuration is valid")
        for line in exposure.who_may(settings):
            typer.echo(line)
        for doubt in preflight.doubts(settings):
            typer.echo(f"warning: {doubt}")
        return
    # Ryu and the solver take a second to import, and no other command needs them.
    from controller.serving.serve import serve as run

    raise typer.Exit(run(settings, standby, config_file=config_file))
