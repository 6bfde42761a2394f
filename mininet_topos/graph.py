"""Fabric for Mininet, made from a graph file and the rate of its fastest NIC.

Switches and hosts have the same names and numbers as in the planner (``OFFLINE`` in
``offline/scenarios/topologies.py``).
"""

from dataclasses import replace
from pathlib import Path

from mininet_topos.fabric_topo import FabricTopo
from offline.scenarios.graph_file import graph_topology
from signalbox.errors import InvalidInput


class Graph(FabricTopo):
    """Topology of the switches, cables and hosts in a file."""

    def build(self, path: Path, host_mbps: float = 5, prefix: str = "") -> None:
        """Build the topology. Raises ``InvalidInput`` and ``OSError``.

        ``host_mbps``: rate of the fastest NIC in Mbit/s; all other rates are scaled with it. ``prefix``: see
        ``FabricTopo``."""
        fabric = graph_topology(path)
        if fabric.circuits:
            message = "is a directed graph (circuits); the lab needs an undirected one, or --fabric direct-connect"
            raise InvalidInput.of(str(path), message)
        scale = host_mbps * 1e6 / max((host.bps for host in fabric.hosts), default=1.0)
        cables = tuple(cable._replace(bps=cable.bps * scale) for cable in fabric.cables)
        hosts = tuple(host._replace(bps=host.bps * scale) for host in fabric.hosts)
        self.assemble(replace(fabric, cables=cables, hosts=hosts), prefix)
