"""An emulated fabric from the command line, up until Ctrl-C.

    python -m mininet_topos.lab --leaves 4 --spines 4 --hosts 4
    python -m mininet_topos.lab --fabric fat-tree --k 4

In: the topology's sizes, and the controller's address. Root is needed.
"""

from __future__ import annotations

import signal
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from controller.scenarios.fabric_options import FabricKind
from mininet_topos import ending
from mininet_topos.fabric_topo import FabricTopo
from mininet_topos.fat_tree import FatTree
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import LabError
from mininet_topos.leaf_spine import LeafSpine
from signalbox.errors import FieldProblem, InvalidInput


def _show(lab: Lab, console: Console) -> None:
    table = Table("host", "address", "MAC", "plugged into")
    for host in lab.hosts:
        table.add_row(host.name, host.ip, host.mac, f"{host.leaf} port {host.port}")
    console.print(table)
    console.print(
        f"{lab.datapath} datapath, controller {lab.controller}, {len(lab.switches)} switches. Ctrl-C ends it."
    )


def _topo(kind: FabricKind, sizes: dict[str, int | None], rates_mbps: tuple[float, float], prefix: str) -> FabricTopo:
    """Raises ``InvalidInput`` for wrong sizes, and for sizes of the other topology."""
    given = {name: size for name, size in sizes.items() if size is not None}
    foreign = given.keys() & ({"k"} if kind is FabricKind.LEAF_SPINE else {"leaves", "spines", "hosts", "cables"})
    if foreign:
        raise InvalidInput((FieldProblem("--fabric", f"a {kind} has no {', '.join(sorted(foreign))}"),))
    if kind is FabricKind.FAT_TREE:
        return FatTree(given.get("k", 4), *rates_mbps, prefix)
    leaves, spines, hosts = (given.get(name, 4) for name in ("leaves", "spines", "hosts"))
    return LeafSpine(leaves, spines, hosts, *rates_mbps, given.get("cables", 1), prefix)


def main(
    fabric: Annotated[FabricKind, typer.Option(help="The topology.")] = FabricKind.LEAF_SPINE,
    leaves: Annotated[int | None, typer.Option(help="Leaf switches, 4 by default.")] = None,
    spines: Annotated[int | None, typer.Option(help="Spine switches, 4 by default.")] = None,
    hosts: Annotated[int | None, typer.Option(help="Hosts per leaf, 4 by default.")] = None,
    cables: Annotated[int | None, typer.Option(help="Parallel cables per leaf-spine pair, 1 by default.")] = None,
    k: Annotated[int | None, typer.Option("--k", help="Ports of a fat-tree's switches, 4 by default.")] = None,
    host_mbps: Annotated[float, typer.Option(help="Rate of a host's link, Mbit/s.")] = 5,
    fabric_mbps: Annotated[float, typer.Option(help="Rate of a link between switches, Mbit/s.")] = 5,
    prefix: Annotated[str, typer.Option(help="Put before all names, so that labs can run in parallel.")] = "",
    controller: Annotated[str, typer.Option(help="The controller, in Open vSwitch's syntax.")] = "tcp:127.0.0.1:6653",
) -> None:
    """Run an emulated fabric until Ctrl-C."""
    console = Console()
    try:
        sizes = {"leaves": leaves, "spines": spines, "hosts": hosts, "cables": cables, "k": k}
        with Lab(_topo(fabric, sizes, (host_mbps, fabric_mbps), prefix), controller) as lab:
            _show(lab, console)
            try:
                while True:
                    ending.sleep(60)
            except ending.Interrupted as interrupted:
                console.print("taking the lab down")
                if interrupted.number != signal.SIGINT:
                    raise
    except (LabError, InvalidInput) as error:
        ending.check()
        console.print(f"[red]{error}[/red]")
        raise typer.Exit(1) from None
