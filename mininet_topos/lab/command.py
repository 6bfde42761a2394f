"""``signalbox lab``: an emulated fabric that runs until Ctrl-C; it needs root, Open vSwitch and Mininet.

With optical switches, the command also writes their configuration for the controller. Mininet is a package of the
system: it is imported when the command runs, so that all other commands work without it.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mininet_topos import ending
from offline.scenarios.topologies import circuits_config
from signalbox.errors import InvalidInput, SignalboxError

if TYPE_CHECKING:
    from mininet_topos.fabric_topo import FabricTopo
    from mininet_topos.lab.lab import Lab

Sizes = dict[str, int | None]
RATE_MBPS = 5.0


class LabKind(StrEnum):
    """Topologies for ``--fabric``; ``--graph`` replaces it."""

    LEAF_SPINE = "leaf-spine"
    FAT_TREE = "fat-tree"
    DIRECT_CONNECT = "direct-connect"


SIZES = {
    LabKind.LEAF_SPINE: {"leaves", "spines", "hosts", "cables"},
    LabKind.FAT_TREE: {"k"},
    LabKind.DIRECT_CONNECT: {"servers", "interfaces"},
}
"""Names of the size options that each topology has."""


def add_to(app: typer.Typer) -> None:
    """Add the command; this is the entry point of the group ``signalbox.commands``."""
    app.command()(lab)


def lab(
    fabric: Annotated[LabKind, typer.Option(help="Topology.")] = LabKind.LEAF_SPINE,
    leaves: Annotated[int | None, typer.Option(help="Number of leaf switches, 4 by default.")] = None,
    spines: Annotated[int | None, typer.Option(help="Number of spine switches, 4 by default.")] = None,
    hosts: Annotated[int | None, typer.Option(help="Number of hosts per leaf, 4 by default.")] = None,
    cables: Annotated[
        int | None, typer.Option(help="Number of parallel cables per leaf-spine pair, 1 by default.")
    ] = None,
    k: Annotated[
        int | None, typer.Option("--k", help="Number of ports per switch of a fat-tree, 4 by default.")
    ] = None,
    servers: Annotated[
        int | None, typer.Option(help="Number of servers of a direct-connect fabric, 4 by default.")
    ] = None,
    interfaces: Annotated[
        int | None, typer.Option(help="Number of interfaces per server, with an optical switch for each; 2 by default.")
    ] = None,
    graph: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Fabric in networkx node-link JSON. Its fastest NIC gets --host-mbps, all else in proportion.",
        ),
    ] = None,
    host_mbps: Annotated[
        float | None,
        typer.Option(
            help="Rate of a host's link in Mbit/s, 5 by default; direct-connect: that of all its interfaces together."
        ),
    ] = None,
    fabric_mbps: Annotated[
        float, typer.Option(help="Rate of a link between switches, or of an interface, in Mbit/s.")
    ] = RATE_MBPS,
    circuits: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File to write: the optical switches as a section of the controller's configuration.",
        ),
    ] = None,
    prefix: Annotated[str, typer.Option(help="Prefix of all names, so that labs can run in parallel.")] = "",
    controller: Annotated[
        str, typer.Option(help="Address of the controller, in Open vSwitch's syntax.")
    ] = "tcp:127.0.0.1:6653",
    train: Annotated[
        str | None,
        typer.Option(
            metavar="unix:PATH",
            help="Train jobs, with occasional faults, on a leaf-spine or fat-tree; unix:PATH is the socket of the API.",
        ),
    ] = None,
) -> None:
    """Run an emulated fabric until Ctrl-C (root, Open vSwitch and Mininet)."""
    ending.note_signals()  # before the slow imports
    if graph and train:
        raise typer.BadParameter("needs leaves with the same number of hosts; leave out --graph", param_hint="--train")
    optical = fabric is LabKind.DIRECT_CONNECT and graph is None
    if optical and train:
        raise typer.BadParameter("does not work on a direct-connect fabric", param_hint="--train")
    if train and not train.startswith("unix:"):
        message = "must be unix:PATH; the hosts' network namespaces reach no address of this machine"
        raise typer.BadParameter(message, param_hint="--train")
    if circuits and not optical:
        raise typer.BadParameter("needs --fabric direct-connect, which has optical switches", param_hint="--circuits")
    sizes = {"leaves": leaves, "spines": spines, "hosts": hosts, "cables": cables, "k": k}
    sizes |= {"servers": servers, "interfaces": interfaces}
    rates_mbps = host_mbps, fabric_mbps
    made = partial(topology, fabric, sizes, rates_mbps, prefix, graph)
    ending.run(lambda: _until_interrupted(made, controller, train, circuits))


def _until_interrupted(made: Callable[[], FabricTopo], to: str, api: str | None, circuits: Path | None) -> None:
    """Run the lab until a signal arrives.

    ``made`` returns the topology. ``to``: address of the controller. ``api``: address of its API, None without
    training. ``circuits``: see ``lab``. Raises ``InvalidInput``, ``LabError``, ``OSError``, and ``SignalboxError``
    without Mininet."""
    try:
        import mininet  # noqa: F401
    except ImportError:
        raise SignalboxError(
            f"{sys.executable} has no Mininet, which is a package of the system (mininet on Debian); "
            "scripts/bootstrap.sh of a checkout makes an environment that has it"
        ) from None
    from mininet_topos.lab.lab import Lab

    try:
        topo = made()
        if circuits is not None:
            circuits.write_text(circuits_config(topo.fabric))
        with Lab(topo, to) as lab:
            _show(lab)
            try:
                if api is not None:
                    from mininet_topos.demo.endless import train

                    train(lab, api)
                while True:
                    ending.sleep(60)
            except ending.Interrupted as interrupted:
                typer.echo("removing the lab")
                if interrupted.number != signal.SIGINT:
                    raise
    except SignalboxError:
        ending.check()
        raise


def topology(
    kind: LabKind, sizes: Sizes, rates_mbps: tuple[float | None, float], prefix: str, graph: Path | None = None
) -> FabricTopo:
    """Return the topology.

    ``rates_mbps``: rate of the hosts, None for the default, and rate of the fabric. Raises ``InvalidInput`` for wrong
    sizes, and for sizes of another topology."""
    from mininet_topos.direct_connect import DirectConnect
    from mininet_topos.fat_tree import FatTree
    from mininet_topos.graph import Graph
    from mininet_topos.leaf_spine import LeafSpine

    host_mbps, fabric_mbps = rates_mbps
    given = {name: size for name, size in sizes.items() if size is not None}
    if graph is not None:
        if given:
            raise InvalidInput.of("--graph", f"is a whole fabric: leave out {', '.join(sorted(given))}")
        return Graph(graph, RATE_MBPS if host_mbps is None else host_mbps, prefix)
    if foreign := given.keys() - SIZES[kind]:
        raise InvalidInput.of("--fabric", f"a {kind} has no {', '.join(sorted(foreign))}")
    if kind is LabKind.DIRECT_CONNECT:
        return DirectConnect(given.get("servers", 4), given.get("interfaces", 2), fabric_mbps, host_mbps, prefix)
    rates = RATE_MBPS if host_mbps is None else host_mbps, fabric_mbps
    if kind is LabKind.FAT_TREE:
        return FatTree(given.get("k", 4), *rates, prefix)
    leaves, spines, hosts = (given.get(name, 4) for name in ("leaves", "spines", "hosts"))
    return LeafSpine(leaves, spines, hosts, *rates, given.get("cables", 1), prefix)


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
