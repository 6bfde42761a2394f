"""The ``signalbox`` command: run the controller, ask it, steer it.

In: arguments. Out: tables for people or, with ``--json``, the API's messages as JSON (field names as in the proto file,
defaults included); errors as one line each on stderr with exit status 1, wrong usage with 2.
"""

from __future__ import annotations

import json
import sys
import time
import tomllib
from contextlib import nullcontext, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.live import Live

from controller import config
from controller.api.client import DEFAULT_ADDRESS, Client
from controller.commands import analysis, offline, tables
from controller.commands.output import Address, AsJson, console, fields, show, waiting
from controller.config import Strategy
from controller.errors import FieldProblem, InvalidInput, SignalboxError
from controller.jobs.spec import JobSpec
from controller.serving import preflight

app = typer.Typer(
    help="Signalbox routes the traffic of distributed training: every large flow gets its own path.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
jobs = typer.Typer(help="Announce, list, watch and remove jobs.", no_args_is_help=True)
app.add_typer(jobs, name="jobs")
app.add_typer(offline.commands)
app.add_typer(analysis.commands)

JobIdArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")]


def main() -> None:
    """The entry point of the ``signalbox`` command."""
    try:
        app(prog_name="signalbox")
    except InvalidInput as error:
        _fail(*map(str, error.problems))
    except SignalboxError as error:
        _fail(str(error))
    except OSError as error:
        what = error.strerror or str(error)
        _fail(f"{error.filename}: {what}" if error.filename else what)


def _fail(*problems: str) -> None:
    for problem in problems:
        typer.echo(f"error: {problem}", err=True)
    sys.exit(1)


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
        typer.Option("--config", help="A TOML file; without it the defaults are used.", exists=True, dir_okay=False),
    ] = None,
    check: Annotated[bool, typer.Option("--check", metavar="", help="Check the configuration and exit.")] = False,
    standby: Annotated[
        bool,
        typer.Option("--standby", metavar="", help="Wait while another controller uses state_dir, then take over."),
    ] = False,
) -> None:
    """Run the controller until it is stopped (Ctrl-C or SIGTERM)."""
    settings = config.load(config_file)
    preflight.check(settings)
    if check:
        typer.echo("the configuration is valid")
        return
    # Ryu and the solver take a second to import, which no other command needs.
    from controller.serving.serve import serve as run

    raise typer.Exit(run(settings, standby))


# ---- jobs


@jobs.command("list")
def list_jobs(address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """List all jobs with their state and efficiency."""
    with Client(address) as client:
        found = [fields(job) for job in client.list_jobs()]
    show({"jobs": found}, lambda: tables.jobs(found), as_json)


@jobs.command("show")
def show_job(job: JobIdArgument, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Show one job: its collectives, state, lease and efficiency."""
    with Client(address) as client:
        found = fields(client.get_job(job))
    show(found, lambda: tables.job(found), as_json)


@jobs.command("register")
def register_job(
    file: Annotated[
        Path, typer.Argument(help="The job spec: JSON, or TOML when it ends in .toml.", exists=True, dir_okay=False)
    ],
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Announce the job that FILE describes. The same file again renews the job's lease."""
    try:
        spec = JobSpec.parse(_read(file))
        with Client(address) as client:
            found = fields(client.register_job(spec))
    except InvalidInput as error:
        raise error.within(file) from None
    show(found, lambda: tables.registered(found), as_json)


@jobs.command("deregister")
def deregister_job(job: JobIdArgument, address: Address = DEFAULT_ADDRESS) -> None:
    """Forget a job and release its routes; its traffic falls back to ECMP."""
    with Client(address) as client:
        client.deregister_job(job)


@jobs.command("watch")
def watch_routes(job: JobIdArgument, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Print the job's routes now and whenever they change, until it goes (with --json one object per line)."""
    with Client(address) as client, suppress(KeyboardInterrupt):
        for response in client.watch_routes(job):
            found = fields(response)
            if as_json:
                typer.echo(json.dumps(found))
            else:
                console().print(tables.routes(found))


# ---- operators


@app.command()
def fabric(address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Show the switches, links and hosts that were found."""
    with Client(address) as client:
        found = fields(client.get_fabric())
    show(found, lambda: tables.fabric(found), as_json)


@app.command()
def plan(
    now: Annotated[bool, typer.Option("--now", metavar="", help="Plan now, and wait for the result.")] = False,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show the current plan with its certificate, and the route of every flow."""
    with Client(address) as client:
        if now:
            with waiting("planning"):
                found: Any = fields(client.replan())
            show(found, lambda: tables.replan(found), as_json)
        else:
            current = client.get_plan()
            found = fields(current) if current is not None else None
            show(found, lambda: tables.plan(found) if found else "There is no plan yet.", as_json)


@app.command()
def status(
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            metavar="",
            help="Refresh every second; without a terminal one line each, with --json one object.",
        ),
    ] = False,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show how the controller and its network are."""
    with Client(address) as client:
        if not watch:
            found = fields(client.get_status())
            show(found, lambda: tables.status(found), as_json)
            return
        with suppress(KeyboardInterrupt):
            _watch_status(client, as_json)


def _watch_status(client: Client, as_json: bool) -> None:
    live = Live(console=console(), auto_refresh=False) if sys.stdout.isatty() and not as_json else None
    with live or nullcontext():
        while True:
            found = fields(client.get_status())
            if live:
                live.update(tables.status(found), refresh=True)
            else:
                typer.echo(json.dumps(found) if as_json else tables.status_line(found))
            time.sleep(1)


def _strategy(name: str) -> Strategy:
    try:
        return Strategy(name)
    except ValueError:
        raise typer.BadParameter(f"there is no strategy '{name}'; choose {', '.join(Strategy)}") from None


@app.command()
def strategy(
    name: Annotated[
        Strategy | None,
        typer.Argument(metavar="[ecmp|planned|shadow]", parser=_strategy, help="The strategy to set."),
    ] = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show the strategy, or set it and wait until the switches have confirmed its rules.

    ecmp: hash everything. planned: pin what was planned. shadow: plan, report what it would gain, install nothing.
    """
    with Client(address) as client:
        if name is None:
            found = {"strategy": fields(client.get_status())["strategy"]}
            show(found, lambda: tables.word(found["strategy"]), as_json)
            return
        with waiting("waiting for the switches to confirm"):
            done = fields(client.set_strategy(name))
    show(done, lambda: f"{name}, in {done['install_s']:.2f} s; {tables.pins(done['pins'])}", as_json)


# ---- input and output


def _read(file: Path) -> Any:
    try:
        text = file.read_text(encoding="utf-8")
        return tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    except ValueError as error:
        raise InvalidInput((FieldProblem("", str(error)),)) from None
