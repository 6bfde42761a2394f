"""A leaf–spine fabric for Mininet, with everything that can be counted made predictable.

Owns its naming, numbering and wiring. In: sizes and rates. Out: a Mininet topology that the lab builds, and ``mn`` too,
with the system's Python, from this checkout:

    PYTHONPATH=. mn --custom mininet_topos/leaf_spine.py --topo leafspine,4,4,4,5,5 --controller remote \\
       --switch ovs,datapath=user,protocols=OpenFlow13

Leaves, spines, hosts, ports and cables count from 1:

- leaf i is ``leaf<i>``, dpid i; spine j is ``spine<j>``, dpid 0x100 + j. Hosts and interfaces: see ``fabric_topo``.
- leaf ports: hosts first (port k), then the uplinks, spine by spine and cable by cable. Spine ports: leaf by leaf and
  cable by cable.
"""

from __future__ import annotations

from mininet_topos.fabric_topo import CableSpec, FabricTopo, check_sizes, host_cables

SPINE_DPID_BASE = 0x100


class LeafSpine(FabricTopo):
    """Every leaf cabled to every spine; see the module's description for names and numbers. Raises ``ValueError`` for
    sizes that cannot be named or addressed."""

    def build(
        self,
        leaves: int = 4,
        spines: int = 4,
        hosts_per_leaf: int = 4,
        host_mbps: float = 5,
        fabric_mbps: float = 5,
        cables_per_pair: int = 1,
        prefix: str = "",
    ) -> None:
        """``host_mbps``, ``fabric_mbps``: rate of each direction of a link in Mbit/s. ``cables_per_pair``: parallel
        cables between a leaf and a spine. ``prefix``: see ``FabricTopo``."""
        check_sizes(leaves=leaves, spines=spines, hosts_per_leaf=hosts_per_leaf, cables_per_pair=cables_per_pair)
        leaf_dpids = {f"leaf{i}": i for i in range(1, leaves + 1)}
        spine_dpids = {f"spine{j}": SPINE_DPID_BASE + j for j in range(1, spines + 1)}
        to_hosts = host_cables(leaf_dpids, hosts_per_leaf, host_mbps)
        uplinks = [
            CableSpec(
                leaf,
                spine,
                c,
                hosts_per_leaf + j * cables_per_pair + c,
                i * cables_per_pair + c,
                fabric_mbps,
            )
            for i, leaf in enumerate(leaf_dpids)
            for j, spine in enumerate(spine_dpids)
            for c in range(1, cables_per_pair + 1)
        ]
        hosts = [cable.a for cable in to_hosts]
        self._assemble(prefix, {**leaf_dpids, **spine_dpids}, hosts, [*to_hosts, *uplinks])


topos = {"leafspine": LeafSpine}
