r"""Fat-tree for Mininet.

The module makes a topology from k and rates, for the lab and for ``mn``. With the system's Python, from this checkout:

    PYTHONPATH=.:client mn --custom mininet_topos/fat_tree.py --topo fattree,4,5,5 --controller remote \
       --switch ovs,datapath=user,protocols=OpenFlow13

``edge<i>`` has dpid i, ``agg<i>`` 0x100 + i, ``core<i>`` 0x200 + i; all count from 1, pod by pod. The first ports of an
edge switch lead to its hosts. The rest is in ``offline/scenarios/topologies.py`` and ``fabric_topo.py``.
"""

from mininet_topos.fabric_topo import FabricTopo
from offline.scenarios.topologies import fat_tree


class FatTree(FabricTopo):
    """Topology of three tiers of switches with k ports each."""

    def build(self, k: int = 4, host_mbps: float = 5, fabric_mbps: float = 5, prefix: str = "") -> None:
        """Build the topology. Raises ``InvalidInput``.

        ``host_mbps``, ``fabric_mbps``: rate of each direction of a link in Mbit/s. ``prefix``: see ``FabricTopo``."""
        self.assemble(fat_tree(k, host_mbps * 1e6, fabric_mbps * 1e6), prefix)


topos = {"fattree": FatTree}
