"""``signalbox rules SWITCH``: every rule of Signalbox on a switch, with the job and flow that it serves."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Group, RenderableType

from signalbox.commands.connecting import SWITCH, AskingCommand, completed, connect, job_names, switch_names, the
from signalbox.commands.optical import all_switches
from signalbox.commands.output import Column, Fitted, show
from signalbox.errors import InvalidInput
from signalbox.live.shown import counted, word
from signalbox.mapping import word_in
from signalbox.v1 import signalbox_pb2 as pb

commands = typer.Typer()


@commands.command(cls=AskingCommand)
def rules(
    switch: Annotated[
        str,
        typer.Argument(metavar="SWITCH", help="Name or dpid of the switch.", autocompletion=completed(switch_names)),
    ],
    job: Annotated[
        str | None,
        typer.Option(
            metavar="JOB", help="Job whose rules are listed; default: all rules.", autocompletion=completed(job_names)
        ),
    ] = None,
) -> None:
    """List the rules of Signalbox on a switch: flows of the three tables, groups and meters, with their purposes.

    Matches and actions are written as ovs-ofctl writes them."""
    with connect() as client:
        fabric = client.get_fabric()
        of_switch = the(SWITCH, all_switches(fabric), switch, fabric.parts_down)
        if isinstance(of_switch, pb.OpticalSwitch):
            text = f"'{switch}' is an optical switch, whose only rules are its circuits: "
            raise InvalidInput.of("", f"{text}signalbox describe switch {of_switch.name} lists them")
        found = client.list_rules(of_switch.dpid)
        if job is not None:
            found = tuple(rule for rule in found if job in rule.job_ids)
            if not found:
                client.get_job(job)  # raises an error when the job does not exist
    data = {"switch": of_switch.name, "dpid": str(of_switch.dpid), "rules": found}
    show(data, lambda: Group(_table(found), _summary(found, of_switch)))


def _table(found: Sequence[pb.SwitchRule]) -> RenderableType:
    columns = (
        Column("table"),
        Column("priority", 3, number=True),
        Column("for", wraps=True),
        Column("job", 1),
        Column("match", 2, wraps=True),
        Column("actions", 4, wraps=True),
        Column("cookie", 5),
    )
    return Fitted(columns, map(_row, found))


def _row(rule: pb.SwitchRule) -> Sequence[object]:
    kind = word_in(rule, "kind")
    flow = kind == "flow"
    return (
        f"{rule.table}" if flow else f"{kind} {rule.id}",
        rule.priority if flow else "",
        _purpose(rule),
        ", ".join(rule.job_ids),
        _in_fields(rule.match) or ("any" if flow else ""),
        _in_fields(rule.actions),
        f"{rule.cookie:#x}" if flow else "",
    )


def _in_fields(text: str) -> str:
    """Return the text with a space after each comma outside of parentheses, so that a table can wrap it there."""
    return re.sub(r",(?![^(]*\))", ", ", text)


def _purpose(rule: pb.SwitchRule) -> str:
    purpose = word(word_in(rule, "purpose"))
    if rule.src:
        return f"{purpose} {rule.src} > {rule.dst}" + (" (acknowledgements)" if rule.acknowledgements else "")
    return f"{purpose} to {rule.towards}" if rule.towards else purpose


def _summary(found: Sequence[pb.SwitchRule], switch: pb.Switch) -> str:
    kinds = Counter(word_in(rule, "kind") for rule in found)
    held = ", ".join(counted(count, kind) for kind, count in kinds.items()) or "no rules"
    return f"{held}; {counted(switch.foreign_rules, 'foreign rule')} not listed" if switch.foreign_rules else held
