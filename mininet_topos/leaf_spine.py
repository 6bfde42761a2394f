r"""Leaf–spine fabric for Mininet.

The module makes a topology from sizes and rates, for the lab and for ``mn``. With the system's Python, from this
checkout:

    PYTHONPATH=.:client mn --custom mininet_topos/leaf_spine.py --topo leafspine,4,4,4,5,5 --controller remote \
       --switch ovs,datapath=user,protocols=OpenFlow13

Leaf i is ``leaf<i>`` with dpid i, spine j is ``spine<j>`` with dpid 0x100 + j; both count from 1. The first ports of a
leaf lead to its hosts. The rest is in ``offline/scenarios/topologies.py`` and ``fabric_topo.py``.
"""

from mininet_topos.fabric_topo import FabricTopo
from offline.scenarios.topologies import leaf_spine


class LeafSpine(FabricTopo):
    """Topology in which every leaf has cables to every spine."""

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
        """Build the topology. Raises ``InvalidInput``.

        ``host_mbps``, ``fabric_mbps``: rate of each direction of a link in Mbit/s. ``cables_per_pair``: parallel cables
        between a leaf and a spine. ``prefix``: see ``FabricTopo``."""
        rates = host_mbps * 1e6, fabric_mbps * 1e6
        self.assemble(leaf_spine(leaves, spines, hosts_per_leaf, *rates, cables_per_pair), prefix)


topos = {"leafspine": LeafSpine}
