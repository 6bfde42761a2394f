"""A fat-tree for Mininet: three tiers, and a choice at two of them.

Owns its naming, numbering and wiring. In: k and rates. Out: a Mininet topology that the lab builds, and ``mn`` too,
with the system's Python, from this checkout:

    PYTHONPATH=. mn --custom mininet_topos/fat_tree.py --topo fattree,4,5,5 --controller remote \\
       --switch ovs,datapath=user,protocols=OpenFlow13

k pods of k/2 edge and k/2 aggregation switches, (k/2)^2 cores, k/2 hosts per edge switch (Al-Fares, Loukissas and
Vahdat, "A scalable, commodity data center network architecture", SIGCOMM 2008, section 3). Everything counts from 1,
pod by pod:

- ``edge<i>`` has dpid i, ``agg<i>`` 0x100 + i, ``core<c>`` 0x200 + c. Pod p has edge and aggregation switches
  (p - 1) k/2 + 1 to p k/2. An edge switch is the leaf of its hosts: see ``fabric_topo``.
- edge ports: hosts, then the pod's aggregation switches. Aggregation ports: the pod's edge switches, then cores: the
  first aggregation switch of every pod has the first k/2 cores, and so on. Core ports: pod by pod.
"""

from __future__ import annotations

from itertools import product

from mininet_topos.fabric_topo import CableSpec, FabricTopo, check_sizes, host_cables

AGGREGATION_DPID_BASE = 0x100
CORE_DPID_BASE = 0x200


class FatTree(FabricTopo):
    """See the module's description for names and numbers. Raises ``ValueError`` for a k that is odd, and for one whose
    switches cannot be named or addressed."""

    def build(self, k: int = 4, host_mbps: float = 5, fabric_mbps: float = 5, prefix: str = "") -> None:
        """``host_mbps``, ``fabric_mbps``: rate of each direction of a link in Mbit/s. ``prefix``: see
        ``FabricTopo``."""
        if k < 2 or k % 2:
            raise ValueError(f"k: {k} is not an even number from 2")
        half, each = k // 2, k * k // 2
        check_sizes(**{"edge switches": each})
        edges = {f"edge{i}": i for i in range(1, each + 1)}
        aggregations = {f"agg{i}": AGGREGATION_DPID_BASE + i for i in range(1, each + 1)}
        cores = {f"core{c}": CORE_DPID_BASE + c for c in range(1, half * half + 1)}
        to_hosts = host_cables(edges, half, host_mbps)
        places = list(product(range(k), range(1, half + 1), range(1, half + 1)))
        to_aggregations = [
            CableSpec(f"edge{pod * half + e}", f"agg{pod * half + a}", 1, half + a, e, fabric_mbps)
            for pod, e, a in places
        ]
        to_cores = [
            CableSpec(f"agg{pod * half + a}", f"core{(a - 1) * half + c}", 1, half + c, pod + 1, fabric_mbps)
            for pod, a, c in places
        ]
        dpids = {**edges, **aggregations, **cores}
        self._assemble(prefix, dpids, [cable.a for cable in to_hosts], [*to_hosts, *to_aggregations, *to_cores])


topos = {"fattree": FatTree}
