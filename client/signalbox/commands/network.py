"""``signalbox fabric``, ``plan``, ``status``, ``mode`` and ``forget``: state and control of a controller."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live

from signalbox.client import Client, Unreachable
from signalbox.commands import optical, printing
from signalbox.commands.connecting import AskingCommand, connect
from signalbox.commands.naming import completed, down_names
from signalbox.commands.output import console, document, escape, for_programs, parser_of, show, waiting
from signalbox.commands.plan_diff import diff_table, plan_diff
from signalbox.commands.watch import tell_lost
from signalbox.errors import Unavailable
from signalbox.live.shown import word
from signalbox.mapping import seconds, word_in
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.words import Mode

commands = typer.Typer()


@commands.command(cls=AskingCommand)
def fabric() -> None:
    """Show switches, links with capacity, rate and background traffic, hosts, and what is down since when."""
    with connect() as client:
        found = client.get_fabric()
    show(found, lambda: Group(printing.fabric(found), *optical.tables(found.optical_switches)))


class View(StrEnum):
    """View of a plan."""

    DIFF = "diff"


@commands.command(cls=AskingCommand)
def plan(
    view: Annotated[
        View | None,
        typer.Argument(metavar="diff", help="Show the changes of the newest plan to the routes that switches hold."),
    ] = None,
    now: Annotated[bool, typer.Option("--now", metavar="", help="Plan now and wait for the result.")] = False,
    proof: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="File to write with the routes in force and their proofs, for signalbox verify."
        ),
    ] = None,
) -> None:
    """Show the current plan with its certificate and the route of every flow, or with diff what it would change.

    diff compares the newest plan, at most planning.interval_s old, with what the switches hold. Its moves wait because
    the plan gains less than planning.min_gain, a cycle makes only planning.max_moves, or the mode is shadow. --now
    plans anew, says which reason holds, and installs the plan if it gains enough. For a plan whose moves take several
    cycles it prints the slowdowns and the number of moves."""
    if view and (now or proof):
        raise typer.BadParameter("diff cannot be combined with --now or --proof")
    with connect() as client:
        if view is View.DIFF:
            changes = plan_diff(client)
            show(changes, lambda: diff_table(changes) if changes else printing.NO_PLAN)
        elif now:
            with waiting("planning"):
                done = client.replan()
            show(done, lambda: printing.replan(done))
        else:
            found = client.get_plan()
            show(found, lambda: printing.plan(found))
        if proof:
            with waiting("looking for proofs"):
                document = client.get_plan_proof().document
            proof.write_text(document, encoding="utf-8")


@commands.command(cls=AskingCommand)
def status(
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            metavar="",
            help="Refresh every second; without a terminal as lines, with --json as objects.",
        ),
    ] = False,
) -> None:
    """Show the state of the controller and its network, with alarms."""
    with connect() as client:
        if not watch:
            found = client.get_status()
            show(found, lambda: printing.status(found))
            return
        with suppress(KeyboardInterrupt):
            _watch_status(client)


def _watch_status(client: Client) -> None:
    live = Live(console=console(), auto_refresh=False) if sys.stdout.isatty() and not for_programs() else None
    with live or nullcontext():
        for found in _statuses(client):
            if live:
                live.update(printing.status(found), refresh=True)
            else:
                typer.echo(document(found) if for_programs() else printing.status_line(found))
            time.sleep(1)


def _statuses(client: Client) -> Iterator[pb.GetStatusResponse]:
    """Yield one status after the other; report once per outage, on stderr, that the controller is unreachable."""
    yield client.get_status()
    away = False
    while True:
        try:
            found = client.get_status()
        except (Unreachable, Unavailable) as error:
            if not away:
                tell_lost(error)
            away = True
            time.sleep(1)
        else:
            away = False
            yield found


@commands.command(cls=AskingCommand)
def mode(
    name: Annotated[
        Mode | None,
        typer.Argument(
            metavar="ecmp|planned|shadow",
            parser=parser_of(Mode, "mode"),
            help="Mode to set; default: show it.",
        ),
    ] = None,
) -> None:
    """Show the mode, or set it and wait until the switches have confirmed its rules.

    ecmp: hash all flows. planned: pin the planned flows. shadow: plan and report the gain, but install nothing."""
    with connect() as client:
        if name is None:
            set_now = word_in(client.get_status(), "mode")
            show({"mode": set_now}, lambda: word(set_now))
            return
        with waiting("waiting for the switches to confirm"):
            done = client.set_mode(name)
    show(done, lambda: f"{name}, in {seconds(done.install_time):.2f} s; {printing.pins(done.pins)}")


@commands.command(cls=AskingCommand)
def forget(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME",
            help="Parts that are down: leaf1, leaf1:3 (the cable at that port), 10.0.1.2.",
            autocompletion=completed(down_names),
        ),
    ],
) -> None:
    """Stop expecting switches, cables and hosts that are down.

    A switch is forgotten together with its cables and hosts. With several names: all or none."""
    with connect() as client:
        gone = client.forget_parts(names)
    show(gone, lambda: escape("forgot " + ", ".join(part.name for part in gone)))
