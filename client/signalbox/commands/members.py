"""``signalbox members``: the controllers that share a state in etcd."""

from __future__ import annotations

import typer

from signalbox.commands.connecting import AskingCommand, connect
from signalbox.commands.output import show
from signalbox.commands.tables import Column, Fitted
from signalbox.live.shown import when
from signalbox.mapping import word_in

commands = typer.Typer()


@commands.command(cls=AskingCommand)
def members() -> None:
    """List the controllers that share a state in etcd: which one is active, and which ones stand by."""
    with connect() as client:
        found = client.list_members()
    columns = (Column("name"), Column("role"), Column("version", 2), Column("since", 1), Column("address", 3))
    rows = [(one.name, word_in(one, "role"), one.version, when(one.start_time), one.address or "-") for one in found]
    show({"members": found}, lambda: Fitted(columns, rows) if rows else "The state of this controller is not in etcd.")
