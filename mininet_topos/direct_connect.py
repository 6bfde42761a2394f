r"""Direct-connect fabric with its optical switches for Mininet.

The module makes a topology from sizes and rates, for the lab and for ``mn``. With the system's Python, from this
checkout:

    PYTHONPATH=.:client mn --custom mininet_topos/direct_connect.py --topo directconnect,12,4,5 --controller remote \
       --switch ovs,datapath=user,protocols=OpenFlow13

Server i is ``server<i>`` with dpid i, optical switch k is ``optical<k>`` with dpid 0x100 + k; both count from 1. Port 1
of a server is its host, port 1 + k its interface k. An optical switch is an ordinary bridge, which forwards nothing
until the controller connects its ports. The rest is in ``offline/scenarios/topologies.py`` and ``fabric_topo.py``.
"""

from mininet_topos.fabric_topo import FabricTopo
from offline.scenarios.topologies import optical


class DirectConnect(FabricTopo):
    """Topology in which every server has a cable to every optical switch."""

    def build(
        self,
        servers: int = 4,
        interfaces: int = 2,
        interface_mbps: float = 5,
        host_mbps: float | None = None,
        prefix: str = "",
    ) -> None:
        """Build the topology. Raises ``InvalidInput``.

        ``interface_mbps``: rate of each direction of an interface in Mbit/s. ``host_mbps``: rate of a host, by default
        the rate of all interfaces of its server together. ``prefix``: see ``FabricTopo``."""
        host_bps = None if host_mbps is None else host_mbps * 1e6
        self.assemble(optical(servers, interfaces, interface_mbps * 1e6, host_bps), prefix)


topos = {"directconnect": DirectConnect}
