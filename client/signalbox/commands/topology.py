"""``signalbox get topology``: the discovered cabling for Slurm."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from signalbox.commands.connecting import AskingCommand, connect
from signalbox.commands.get import commands
from signalbox.commands.output import document, file_to_read, for_programs, printable
from signalbox.host_addresses import Nics, address_map
from signalbox.slurm_topology import refuse_circuits, topology_conf, tree
from signalbox.v1 import signalbox_pb2 as pb


@commands.command(cls=AskingCommand)
def topology(
    addresses: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File with names and addresses of nodes, as for signalbox jobs keep; other hosts are left out.",
            parser=file_to_read,
        ),
    ] = None,
) -> None:
    """Print the cabling as Slurm's topology.conf: leaves with their nodes, above them one switch per connected part.

    With --json: the same as a list."""
    names = address_map(addresses) if addresses else None
    with connect() as client:
        fabric = client.get_fabric()
    refuse_circuits([link.name for link in fabric.links if link.one_way])
    called = _called(fabric)
    nodes = {dpid: of for dpid, of in _nodes(fabric, names).items() if dpid in called}
    cables = [(link.src.dpid, link.dst.dpid) for link in fabric.links]
    between = [(called[src], called[dst]) for src, dst in cables if {src, dst} <= called.keys()]
    found = tree(between, {called[dpid]: of for dpid, of in nodes.items()})
    if for_programs():
        typer.echo(document({"switches": [switch._asdict() for switch in found]}, indent=2))
    else:
        typer.echo(printable(topology_conf(found)), nl=False)
    _tell(fabric, names, {node for of in nodes.values() for node in of})


def _called(fabric: pb.GetFabricResponse) -> dict[int, str]:
    """Return the names of switches by dpid; a name that several switches have is followed by the dpid."""
    bearers = Counter(switch.name for switch in fabric.switches)
    return {
        switch.dpid: switch.name if bearers[switch.name] == 1 else f"{switch.name}-{switch.dpid}"
        for switch in fabric.switches
    }


def _nodes(fabric: pb.GetFabricResponse, names: Mapping[str, Nics] | None) -> dict[int, list[str]]:
    """Return the nodes of each switch, by dpid. A node is at the switch of its first known address."""
    at = {host.ip: host.at.dpid for host in fabric.hosts}
    known = {ip: (ip,) for ip in at} if names is None else names
    nodes: defaultdict[int, list[str]] = defaultdict(list)
    for name, nics in known.items():
        if place := next((at[ip] for ip in nics if ip in at), None):
            nodes[place].append(name)
    return nodes


def _tell(fabric: pb.GetFabricResponse, names: Mapping[str, Nics] | None, found: set[str]) -> None:
    """Report on stderr the parts and nodes that the output lacks: Slurm gives jobs no nodes that are not in it."""
    down = [part.name for part in fabric.parts_down]
    if down:
        typer.echo(f"left out, because they are down: {printable(', '.join(down))}", err=True)
    if names is not None:
        unnamed = {host.ip for host in fabric.hosts} - {ip for nics in names.values() for ip in nics}
        for what, which in (("without a name", unnamed), ("not found", names.keys() - found)):
            if which:
                typer.echo(f"left out, because they are {what}: {', '.join(sorted(which))}", err=True)
