"""``signalbox lab``: an emulated fabric, up until Ctrl-C.

In: the topology's sizes, and the controller's address. Root, Open vSwitch and Mininet are needed. Mininet is a package
of the system: it is imported when the command runs, so that all others work without it.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from controller.scenarios.fabric_options import FabricKind
from mininet_topos import ending
from signalbox.errors import InvalidInput, SignalboxError

if TYPE_CHECKING:
    from mininet_topos.fabric_topo import FabricTopo
    from mininet_topos.lab.lab import Lab

Sizes = dict[str, int | None]


def add_to(app: typer.Typer) -> None:
    """The entry point of the group ``signalbox.commands``."""
    app.command()(lab)


def lab(
    fabric: Annotated[FabricKind, typer.Option(help="The topology.")] = FabricKind.LEAF_SPINE,
    leaves: Annotated[int | None, typer.Option(help="Leaf switches, 4 by default.")] = None,
    spines: Annotated[int | None, typer.Option(help="Spine switches, 4 by default.")] = None,
    hosts: Annotated[int | None, typer.Option(help="Hosts per leaf, 4 by default.")] = None,
    cables: Annotated[int | None, typer.Option(help="Parallel cables per leaf-spine pair, 1 by default.")] = None,
    k: Annotated[int | None, typer.Option("--k", help="Ports of a fat-tree's switches, 4 by default.")] = None,
    graph: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Any fabric: networkx node-link JSON. Its fastest NIC gets --host-mbps, all else as much less.",
        ),
    ] = None,
    host_mbps: Annotated[float, typer.Option(help="Rate of a host's link, Mbit/s.")] = 5,
    fabric_mbps: Annotated[float, typer.Option(help="Rate of a link between switches, Mbit/s.")] = 5,
    prefix: Annotated[str, typer.Option(help="Put before all names, so that labs can run in parallel.")] = "",
    controller: Annotated[str, typer.Option(help="The controller, in Open vSwitch's syntax.")] = "tcp:127.0.0.1:6653",
    train: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Train on it, with a fault now and then; the address of the controller's API."
        ),
    ] = None,
) -> None:
    """Run an emulated fabric until Ctrl-C (root, Open vSwitch and Mininet)."""
    ending.note_signals()  # before anything is imported that takes time
    if graph and train:
        raise typer.BadParameter("needs leaves with the same number of hosts; leave out --graph", param_hint="--train")
    sizes = {"leaves": leaves, "spines": spines, "hosts": hosts, "cables": cables, "k": k}
    rates_mbps = host_mbps, fabric_mbps
    made = partial(topology, fabric, sizes, rates_mbps, prefix, graph)
    ending.run(lambda: _until_interrupted(made, controller, train))


def _until_interrupted(made: Callable[[], FabricTopo], to: str, api: str | None) -> None:
    """``made``: the topology. ``to``: the controller; ``api``: its API, None without training. Raises ``InvalidInput``,
    ``LabError``, and ``SignalboxError`` without Mininet."""
    try:
        import mininet  # noqa: F401
    except ImportError:
        raise SignalboxError(
            f"{sys.executable} has no Mininet, which is a package of the system (mininet on Debian); "
            "scripts/bootstrap.sh of a checkout makes an environment that has it"
        ) from None
    from mininet_topos.lab.lab import Lab

    try:
        with Lab(made(), to) as lab:
            _show(lab)
            try:
                if api is not None:
                    from mininet_topos.demo.endless import train

                    train(lab, api)
                while True:
                    ending.sleep(60)
            except ending.Interrupted as interrupted:
                typer.echo("taking the lab down")
                if interrupted.number != signal.SIGINT:
                    raise
    except SignalboxError:
        ending.check()
        raise


def topology(
    kind: FabricKind, sizes: Sizes, rates_mbps: tuple[float, float], prefix: str, graph: Path | None = None
) -> FabricTopo:
    """Raises ``InvalidInput`` for wrong sizes, and for sizes of another topology."""
    from mininet_topos.fat_tree import FatTree
    from mininet_topos.graph import Graph
    from mininet_topos.leaf_spine import LeafSpine

    given = {name: size for name, size in sizes.items() if size is not None}
    if graph is not None:
        if given:
            raise InvalidInput.of("--graph", f"is a whole fabric: leave out {', '.join(sorted(given))}")
        return Graph(graph, rates_mbps[0], prefix)
    foreign = given.keys() & ({"k"} if kind is FabricKind.LEAF_SPINE else {"leaves", "spines", "hosts", "cables"})
    if foreign:
        raise InvalidInput.of("--fabric", f"a {kind} has no {', '.join(sorted(foreign))}")
    if kind is FabricKind.FAT_TREE:
        return FatTree(given.get("k", 4), *rates_mbps, prefix)
    leaves, spines, hosts = (given.get(name, 4) for name in ("leaves", "spines", "hosts"))
    return LeafSpine(leaves, spines, hosts, *rates_mbps, given.get("cables", 1), prefix)


def _show(lab: Lab) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("host", "address", "MAC", "plugged into")
    for host in lab.hosts:
        table.add_row(host.name, host.ip, host.mac, f"{host.leaf} port {host.port}")
    console = Console()
    console.print(table)
    console.print(
        f"{lab.datapath} datapath, controller {lab.controller}, {len(lab.switches)} switches. Ctrl-C ends it."
    )
