"""A leaf–spine fabric for Mininet, with everything that can be counted made predictable.

Owns the naming, numbering and wiring of the emulated fabric, and how its links and hosts behave. In: sizes and rates.
Out: a Mininet topology that the lab builds, and ``mn`` too, with the system's Python and nothing but this file:

    mn --custom mininet_topos/leaf_spine.py --topo leafspine,4,4,4,5,5 --controller remote \\
       --switch ovs,datapath=user,protocols=OpenFlow13

Leaves, spines, hosts, ports and cables count from 1:

- leaf i is ``leaf<i>``, dpid i; spine j is ``spine<j>``, dpid 0x100 + j.
- host k of leaf i is ``h<i>_<k>``, 10.0.<i>.<k>/16 (each leaf owns 10.0.<i>.0/24; the mask covers the fabric, so there
  is no gateway), MAC 02:00:00:00:<i>:<k>.
- leaf ports: hosts first (port k), then the uplinks, spine by spine and cable by cable. Spine ports: leaf by leaf and
  cable by cable. Port p of a switch is the interface ``<switch>-eth<p>``, MAC 02:01:<dpid>:<p>.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mininet.link import Intf, Link, TCIntf
from mininet.node import Host
from mininet.topo import Topo

SPINE_DPID_BASE = 0x100
MAX_PER_TIER = 254
MAX_INTERFACE_NAME = 15
QUEUE_S = 0.05
BURST_FRAMES = 8
WINDOW_QUEUES = 1.6
FRAME_BYTES = 1514
OFFLOADS = ("tx", "rx", "sg", "tso", "gso", "gro")


class HostSpec(NamedTuple):
    """A host, the leaf it is plugged into, and ``node``, its name in Mininet."""

    name: str
    node: str
    leaf: str
    ip: str
    mac: str


class SwitchSpec(NamedTuple):
    """A switch; ``bridge`` is its name in Mininet and in Open vSwitch."""

    name: str
    bridge: str
    dpid: int


class CableSpec(NamedTuple):
    """Cable ``number`` from ``a`` (a host or a leaf) to ``b`` (its leaf or a spine), with the ports at both ends."""

    a: str
    b: str
    number: int
    a_port: int
    b_port: int
    mbps: float


def shaping(mbps: float) -> str:
    """The tc arguments of a link's egress: exact rate, small burst, a short queue.

    A token bucket counts frames without preamble and checksum, as the ideal goodput does. The burst is what a busy
    machine needs to make up for a late timer. The queue is counted in bytes, so that an acknowledgement does not take
    a full packet's place in it.
    """
    return f"tbf rate {round(mbps * 1000)}kbit burst {BURST_FRAMES * FRAME_BYTES} limit {queue_bytes(mbps)}"


def queue_bytes(mbps: float) -> int:
    """``QUEUE_S`` seconds of a link, at least a burst."""
    return max(round(mbps * 1e6 / 8 * QUEUE_S), BURST_FRAMES * FRAME_BYTES)


class FabricHost(Host):  # type: ignore[misc]
    """A host whose TCP window fits its link, as operators tune theirs.

    Linux grows the receive buffer to megabytes, and a sender that is alone on its path then fills a queue of 50 ms
    until it overflows, again and again. With a buffer of ``WINDOW_QUEUES`` queues, of which about half becomes window,
    a pinned flow loses nothing, and flows that share a link still fill it.
    """

    def config(self, window_mbps: float | None = None, **params: Any) -> dict[str, Any]:
        """``window_mbps``: the rate that the window is for, Mbit/s; None leaves Linux's own."""
        result: dict[str, Any] = super().config(**params)
        if window_mbps is not None:
            buffer = round(WINDOW_QUEUES * queue_bytes(window_mbps))
            self.cmd(f"sysctl -qw net.ipv4.tcp_rmem='4096 {buffer} {buffer}' net.ipv4.tcp_no_metrics_save=1")
        return result


class ShapedIntf(TCIntf):  # type: ignore[misc]
    """One end of a link: shaped egress, no offloads, no IPv6 chatter.

    A ``TCIntf``, because Mininet's own switches configure those once more after Open vSwitch, which clears the
    queueing discipline of every port it adds.
    """

    def config(self, bw: float | None = None, **params: Any) -> dict[str, Any]:
        """``bw`` in Mbit/s, None for unshaped. Offloads are off: the userspace datapath carries neither unfinished
        checksums nor frames larger than the MTU, and a token bucket wants real packets."""
        self.bw = bw
        self.cmd(f"sysctl -qw net.ipv6.conf.{self.name}.disable_ipv6=1")
        result: dict[str, Any] = Intf.config(self, **params)
        self.cmd(f"ethtool -K {self.name} " + " ".join(f"{offload} off" for offload in OFFLOADS))
        self.shape()
        return result

    def shape(self) -> None:
        """Set the egress rate, also over a discipline that is there. Raises ``OSError`` when the kernel cannot."""
        if self.bw is None:
            return
        _, complaint, status = self.node.pexec(f"tc qdisc replace dev {self.name} root {shaping(self.bw)}")
        if status:
            raise OSError(f"cannot shape {self.name}: {complaint.strip()}")


class ShapedLink(Link):  # type: ignore[misc]
    """A cable whose two ends are shaped."""

    def __init__(self, *args: Any, **params: Any) -> None:
        super().__init__(*args, **{**params, "intf": ShapedIntf})


class LeafSpine(Topo):  # type: ignore[misc]
    """Every leaf cabled to every spine; see the module's description for names and numbers.

    ``host_specs``, ``switch_specs`` and ``cable_specs`` describe what was built. Raises ``ValueError`` for sizes that
    cannot be named or addressed.
    """

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
        cables between a leaf and a spine. ``prefix`` is put before every name that is global on the machine, so that
        several labs can live beside each other."""
        self.prefix = prefix
        leaf_specs = [SwitchSpec(f"leaf{i}", f"{prefix}leaf{i}", i) for i in range(1, leaves + 1)]
        spine_specs = [SwitchSpec(f"spine{j}", f"{prefix}spine{j}", SPINE_DPID_BASE + j) for j in range(1, spines + 1)]
        self.switch_specs = (*leaf_specs, *spine_specs)
        self.host_specs = tuple(
            _host(prefix, leaf, k) for leaf in range(1, leaves + 1) for k in range(1, hosts_per_leaf + 1)
        )
        self.cable_specs = (
            *(CableSpec(h.name, h.leaf, 1, 0, int(h.name.split("_")[1]), host_mbps) for h in self.host_specs),
            *(
                CableSpec(
                    f"leaf{i}",
                    f"spine{j}",
                    c,
                    hosts_per_leaf + (j - 1) * cables_per_pair + c,
                    (i - 1) * cables_per_pair + c,
                    fabric_mbps,
                )
                for i in range(1, leaves + 1)
                for j in range(1, spines + 1)
                for c in range(1, cables_per_pair + 1)
            ),
        )
        self._check(leaves, spines, hosts_per_leaf, cables_per_pair)
        self._build_nodes()
        self._build_links()

    def interface(self, name: str, port: int) -> str:
        """The Linux interface of a port of a switch or host."""
        return f"{self.prefix}{name}-eth{port}"

    def _check(self, leaves: int, spines: int, hosts_per_leaf: int, cables_per_pair: int) -> None:
        sizes = {
            "leaves": leaves,
            "spines": spines,
            "hosts_per_leaf": hosts_per_leaf,
            "cables_per_pair": cables_per_pair,
        }
        for what, size in sizes.items():
            if not 1 <= size <= MAX_PER_TIER:
                raise ValueError(f"{what}: {size} is not in 1..{MAX_PER_TIER}")
        for cable in self.cable_specs:
            if cable.mbps <= 0:
                raise ValueError(f"a link of {cable.mbps} Mbit/s carries nothing")
            for interface in (self.interface(cable.a, cable.a_port), self.interface(cable.b, cable.b_port)):
                if len(interface) > MAX_INTERFACE_NAME:
                    raise ValueError(f"interface name {interface} is longer than {MAX_INTERFACE_NAME} characters")

    def _build_nodes(self) -> None:
        for switch in self.switch_specs:
            self.addSwitch(switch.bridge, dpid=f"{switch.dpid:016x}")
        rates = {cable.a: cable.mbps for cable in self.cable_specs}
        for host in self.host_specs:
            self.addHost(host.node, cls=FabricHost, ip=f"{host.ip}/16", window_mbps=rates[host.name])

    def _build_links(self) -> None:
        dpids = {switch.name: switch.dpid for switch in self.switch_specs}
        macs = {host.name: host.mac for host in self.host_specs}
        for cable in self.cable_specs:
            self.addLink(
                f"{self.prefix}{cable.a}",
                f"{self.prefix}{cable.b}",
                port1=cable.a_port,
                port2=cable.b_port,
                addr1=macs.get(cable.a) or _port_mac(dpids[cable.a], cable.a_port),
                addr2=_port_mac(dpids[cable.b], cable.b_port),
                cls=ShapedLink,
                bw=cable.mbps,
            )


def _host(prefix: str, leaf: int, k: int) -> HostSpec:
    name = f"h{leaf}_{k}"
    return HostSpec(name, f"{prefix}{name}", f"leaf{leaf}", f"10.0.{leaf}.{k}", f"02:00:00:00:{leaf:02x}:{k:02x}")


def _port_mac(dpid: int, port: int) -> str:
    digits = f"0201{dpid:04x}{port:04x}"
    return ":".join(digits[i : i + 2] for i in range(0, 12, 2))


topos = {"leafspine": LeafSpine}
