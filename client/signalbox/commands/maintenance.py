"""``signalbox drain`` and ``undrain``: take parts of the fabric out of use without losing a packet."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Group

from signalbox.client import Client
from signalbox.commands import printing
from signalbox.commands.connecting import AskingCommand, connect
from signalbox.commands.naming import completed, drained_names, part_names
from signalbox.commands.output import escape, show, waiting
from signalbox.errors import InvalidInput, SignalboxError
from signalbox.live.shown import optional
from signalbox.mapping import word_in
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.words import Mode

LOOK_AGAIN_S = 0.5

COST_S = 5.0
"""Seconds to wait for the predicted cost of a drain; after this time the drain begins without it."""
PLAN_COST_WITHIN_S = 2.0
"""Seconds that the controller may use for the plan in the prediction of a drain's cost."""

commands = typer.Typer()

Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME",
        help="Switches (spine2), cables (leaf1:3), or all cables between two switches (leaf1:spine2).",
        show_default=False,
        autocompletion=completed(part_names),
    ),
]


@commands.command(cls=AskingCommand)
def drain(
    names: Names = None,
    wait: Annotated[bool, typer.Option("--wait", metavar="", help="Wait until the parts can be pulled.")] = False,
    timeout: Annotated[float, typer.Option(min=1, metavar="S", help="Longest wait in seconds.")] = 120.0,
) -> None:
    """Take switches or cables out of use: predict the cost, then let the controller move their flows away.

    Without names: show drained parts, and which of them can be pulled."""
    with connect() as client:
        cost = _cost(client, names) if names else None
        found = [*(client.drain(names) if names else client.get_status()).drains]
        if wait:
            with waiting("waiting until nothing is sent over the parts"):
                found = _safe(client, {part.name for part in found}, time.monotonic() + timeout)
    if cost is None:
        show({"drains": found}, lambda: printing.drains(found))
    else:
        show({"drains": found, "cost": cost}, lambda: Group(printing.drains(found), _in_words(cost)))


@commands.command(cls=AskingCommand)
def undrain(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME", help="Parts to use again, named as for drain.", autocompletion=completed(drained_names)
        ),
    ],
) -> None:
    """Use drained switches or cables again."""
    with connect() as client:
        found = [*client.undrain(names).drains]
    show({"drains": found}, lambda: printing.drains(found))


def _cost(client: Client, names: Sequence[str]) -> dict[str, Any]:
    """Return the predicted effect of a drain on the slowdown of the worst job.

    ``slowdown`` is the slowdown now, ``slowdown_drained`` after the drain; under ECMP both are means over hash draws.
    Unknown values are None, and ``not_known`` has the reason. Raises ``InvalidInput`` for a name that no part has."""
    cost: dict[str, Any] = {"mode": None, "slowdown": None, "slowdown_drained": None, "not_known": ""}
    try:
        cost["mode"] = mode = word_in(client.get_status(), "mode")
        with waiting("computing the cost of the drain"):
            found = client.what_if(within_s=PLAN_COST_WITHIN_S, names=names, wait_s=COST_S)
    except InvalidInput:
        raise
    except SignalboxError as error:  # if the error also forbids the drain, the drain raises it again
        return {**cost, "not_known": str(error)}
    if [word_in(case, "kind") for case in (*found.outcomes, *found.unfelt)] != ["parts"]:
        return {**cost, "not_known": "this version of the controller does not compute costs"}
    now, then = found.now, found.outcomes[0] if found.outcomes else None
    if mode == Mode.PLANNED:
        slowdowns = now.slowdown, optional(then, "slowdown") if then else now.slowdown
    else:
        hashed = (then or now).ecmp_slowdown if (then or now).HasField("ecmp_slowdown") else None
        slowdowns = now.ecmp_slowdown.mean, hashed and hashed.mean
    late = f"not computed within {PLAN_COST_WITHIN_S:g} s" if slowdowns[1] is None else ""
    return {**cost, "slowdown": slowdowns[0], "slowdown_drained": slowdowns[1], "not_known": late}


def _in_words(cost: Mapping[str, Any]) -> str:
    if cost["slowdown_drained"] is None:
        return escape(f"The cost is not known: {cost['not_known']}")
    how = "" if cost["mode"] == Mode.PLANNED else " on average under ECMP"
    return f"Worst job: slowdown {cost['slowdown']:.2f} -> {cost['slowdown_drained']:.2f}{how}"


def _safe(client: Client, names: set[str], until: float) -> list[pb.DrainedPart]:
    """Wait until all named parts can be pulled, and return them.

    Raises ``SignalboxError`` after the monotonic time ``until``, or when a part is not drained any more."""
    while True:
        found = [part for part in client.get_status().drains if part.name in names]
        if again := names - {part.name for part in found}:
            raise SignalboxError(f"not safe to pull, because no longer drained: {', '.join(sorted(again))}")
        left = [part for part in found if part.state != pb.DRAIN_STATE_SAFE]
        if not left:
            return found
        if time.monotonic() > until:
            raise SignalboxError(f"not safe to pull yet: {', '.join(map(printing.drained, left))}")
        time.sleep(LOOK_AGAIN_S)
