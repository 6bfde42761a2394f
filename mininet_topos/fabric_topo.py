"""What every emulated fabric shares: how its links and hosts behave, and how its parts become a Mininet topology.

Owns the shaping of links, the tuning of hosts and the description of what is built. In: switches, hosts and cables with
all their names and numbers, from ``leaf_spine`` or ``fat_tree``. Out: nodes and links for Mininet.

Host k of leaf i is ``h<i>_<k>``, 10.0.<i>.<k>/16 (each leaf owns 10.0.<i>.0/24; the mask covers the fabric, so there is
no gateway), MAC 02:00:00:00:<i>:<k>. Port p of a switch is the interface ``<switch>-eth<p>``, MAC 02:01:<dpid>:<p>.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from mininet.link import Intf, Link, TCIntf
from mininet.node import Host
from mininet.topo import Topo

MAX_PER_TIER = 254
MAX_INTERFACE_NAME = 15
QUEUE_S = 0.05
BURST_FRAMES = 8
WINDOW_QUEUES = 1.6
FRAME_BYTES = 1514
OFFLOADS = ("tx", "rx", "sg", "tso", "gso", "gro")


class HostSpec(NamedTuple):
    """A host, the leaf (in three tiers: the edge switch) it is plugged into, and ``node``, its name in Mininet."""

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
    """Cable ``number`` from ``a`` to ``b``, which is one tier further up, with the ports at both ends."""

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


class FabricTopo(Topo):  # type: ignore[misc]
    """A fabric whose parts are described one by one.

    ``host_specs``, ``switch_specs`` and ``cable_specs`` describe what was built; ``prefix`` stands before every name
    that is global on the machine, so that several labs can live beside each other.
    """

    prefix: str
    switch_specs: tuple[SwitchSpec, ...]
    host_specs: tuple[HostSpec, ...]
    cable_specs: tuple[CableSpec, ...]

    def interface(self, name: str, port: int) -> str:
        """The Linux interface of a port of a switch or host."""
        return f"{self.prefix}{name}-eth{port}"

    def _assemble(self, prefix: str, dpids: dict[str, int], hosts: Iterable[str], cables: Iterable[CableSpec]) -> None:
        """Make it of switches (their dpids by name), the names of hosts (``h<leaf>_<k>``, cabled to their leaf) and
        cables. Raises ``ValueError`` for links without a rate and for names that Linux cannot take."""
        self.prefix = prefix
        self.switch_specs = tuple(SwitchSpec(name, f"{prefix}{name}", dpid) for name, dpid in dpids.items())
        self.cable_specs = tuple(cables)
        leaf_of = {cable.a: cable.b for cable in self.cable_specs}
        self.host_specs = tuple(_host(prefix, name, leaf_of[name]) for name in hosts)
        self._check()
        self._build_nodes()
        self._build_links()

    def _check(self) -> None:
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


def check_sizes(**sizes: int) -> None:
    """Raises ``ValueError`` for a number of switches, hosts or cables that cannot be addressed."""
    for what, size in sizes.items():
        if not 1 <= size <= MAX_PER_TIER:
            raise ValueError(f"{what}: {size} is not in 1..{MAX_PER_TIER}")


def host_cables(leaves: Iterable[str], hosts_per_leaf: int, mbps: float) -> list[CableSpec]:
    """Hosts on ports 1, 2, ... of every leaf; the leaves are numbered from 1 in their order."""
    return [
        CableSpec(f"h{i}_{k}", leaf, 1, 0, k, mbps)
        for i, leaf in enumerate(leaves, 1)
        for k in range(1, hosts_per_leaf + 1)
    ]


def _host(prefix: str, name: str, leaf: str) -> HostSpec:
    i, k = map(int, name.removeprefix("h").split("_"))
    return HostSpec(name, f"{prefix}{name}", leaf, f"10.0.{i}.{k}", f"02:00:00:00:{i:02x}:{k:02x}")


def _port_mac(dpid: int, port: int) -> str:
    digits = f"0201{dpid:04x}{port:04x}"
    return ":".join(digits[i : i + 2] for i in range(0, 12, 2))
