"""``signalbox rules SWITCH``: every rule that Signalbox holds on a switch, with the job and flow that it serves."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType

from signalbox.commands.connecting import AskingCommand, connect
from signalbox.commands.naming import SWITCH, completed, job_names, switch_names, the
from signalbox.commands.optical import all_switches, is_optical
from signalbox.commands.output import fields, show
from signalbox.commands.printing import counted, word
from signalbox.commands.tables import Column, Fitted
from signalbox.errors import InvalidInput

commands = typer.Typer()

Fields = Mapping[str, Any]


@commands.command(cls=AskingCommand)
def rules(
    switch: Annotated[
        str, typer.Argument(metavar="SWITCH", help="Its name or dpid.", autocompletion=completed(switch_names))
    ],
    job: Annotated[
        str | None,
        typer.Option(metavar="JOB", help="Only rules that serve this job.", autocompletion=completed(job_names)),
    ] = None,
) -> None:
    """List the rules of Signalbox on a switch: flows of the three tables, groups and meters, and what each is for."""
    with connect() as client:
        fabric = fields(client.get_fabric())
        of_switch = the(SWITCH, all_switches(fabric), switch, fabric["parts_down"])
        if is_optical(of_switch):
            name = of_switch["name"]
            text = f"'{switch}' is an optical switch, whose only rules are its circuits: "
            raise InvalidInput.of("", f"{text}signalbox describe switch {name} lists them")
        found = [fields(rule) for rule in client.list_rules(int(of_switch["dpid"]))]
        if job is not None:
            found = [rule for rule in found if job in rule["job_ids"]]
            if not found:
                client.get_job(job)  # an error where there is no such job
    data = {"switch": of_switch["name"], "dpid": of_switch["dpid"], "rules": found}
    show(data, lambda: Group(_table(found), _summary(found, of_switch)))


def _table(found: Sequence[Fields]) -> RenderableType:
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


def _row(rule: Fields) -> Sequence[object]:
    flow = rule["kind"] == "flow"
    return (
        f"{rule['table']}" if flow else f"{rule['kind']} {rule['id']}",
        rule["priority"] if flow else "",
        _purpose(rule),
        ", ".join(rule["job_ids"]),
        _in_fields(rule["match"]) or ("any" if flow else ""),
        _in_fields(rule["actions"]),
        f"{int(rule['cookie']):#x}" if flow else "",
    )


def _in_fields(text: str) -> str:
    """With spaces, at which a line may end: not within a field, nor in what an action has in parentheses."""
    return re.sub(r",(?![^(]*\))", ", ", text)


def _purpose(rule: Fields) -> str:
    purpose = word(rule["purpose"])
    if rule["src"]:
        return f"{purpose} {rule['src']} > {rule['dst']}" + (" (acknowledgements)" if rule["acknowledgements"] else "")
    return f"{purpose} to {rule['towards']}" if rule["towards"] else purpose


def _summary(found: Sequence[Fields], switch: Fields) -> str:
    kinds = Counter(rule["kind"] for rule in found)
    held = ", ".join(f"{count} {kind}{'s' * (count != 1)}" for kind, count in kinds.items()) or "no rules"
    foreign = counted(switch["foreign_rules"], "foreign rule")
    return f"{held}; {foreign} not listed" if switch["foreign_rules"] else held
