"""``signalbox drain`` and ``undrain``: work on the fabric without a lost packet."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from controller.api.client import DEFAULT_ADDRESS, Client
from controller.commands import printing
from controller.commands.connecting import ControllerCommand, connect
from controller.commands.output import Address, AsJson, fields, show, waiting
from controller.errors import SignalboxError

LOOK_AGAIN_S = 0.5

commands = typer.Typer()

Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME]...",
        help="Switches (spine2), cables (leaf1:3), or all cables between two switches (leaf1:spine2).",
        show_default=False,
    ),
]


@commands.command(cls=ControllerCommand)
def drain(
    names: Names = None,
    wait: Annotated[bool, typer.Option("--wait", metavar="", help="Return when they can be pulled.")] = False,
    timeout: Annotated[float, typer.Option(min=1, metavar="S", help="Seconds to wait at most.")] = 120.0,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Take switches or cables out of use: their flows move away. Without names: show what is drained, and what of it
    can be pulled."""
    with connect(address) as client:
        found = fields(client.drain(names) if names else client.get_status())["drains"]
        if wait:
            with waiting("waiting until nothing is sent over them"):
                found = _safe(client, {part["name"] for part in found}, time.monotonic() + timeout)
    show({"drains": found}, lambda: printing.drains(found), as_json)


@commands.command(cls=ControllerCommand)
def undrain(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="As for drain.")],
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Use drained switches or cables again."""
    with connect(address) as client:
        found = fields(client.undrain(names))["drains"]
    show({"drains": found}, lambda: printing.drains(found), as_json)


def _safe(client: Client, names: set[str], until: float) -> list[dict[str, object]]:
    """These, once they can be pulled. Raises ``SignalboxError`` when that takes too long, or one is used again."""
    while True:
        found = [part for part in fields(client.get_status())["drains"] if part["name"] in names]
        if again := names - {part["name"] for part in found}:
            raise SignalboxError(f"not safe to pull: {', '.join(sorted(again))} is not drained any more")
        left = [part for part in found if part["state"] != "safe"]
        if not left:
            return found
        if time.monotonic() > until:
            raise SignalboxError(f"not safe to pull yet: {', '.join(map(printing.drained, left))}")
        time.sleep(LOOK_AGAIN_S)
