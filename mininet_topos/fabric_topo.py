"""Conversion of a ``Topology`` into a Mininet topology, with shaped links and tuned hosts.

Host k of leaf i is ``h<i>_<k>``, 10.0.<i>.<k>/16, with MAC 02:00:00:00:<i>:<k>. Each leaf owns 10.0.<i>.0/24; the mask
covers the fabric, so there is no gateway. Port p of a switch is the interface ``<switch>-eth<p>``, or ``<switch>-<p>``
where the name would be too long for Linux, with MAC 02:01:<dpid>:<p>.
"""

import select
from typing import Any

from mininet.link import Intf, Link, TCIntf
from mininet.node import Host
from mininet.topo import Topo

from mininet_topos import ending
from offline.scenarios.topologies import Cable, Topology
from signalbox.errors import FieldProblem, InvalidInput

MAX_INTERFACE_NAME = 15
QUEUE_S = 0.05
BURST_FRAMES = 8
WINDOW_QUEUES = 1.6
FRAME_BYTES = 1514
OFFLOADS = ("tx", "rx", "sg", "tso", "gso", "gro")
LOOK_MS = 500


def shaping(mbps: float, queue_s: float = QUEUE_S) -> str:
    """Return the tc arguments for a link's egress: exact rate, small burst, short queue.

    A token bucket counts frames without preamble and checksum, as the ideal goodput does. The burst compensates for
    late timers of a busy machine. The queue is counted in bytes, so that an acknowledgement occupies less of it than a
    full packet."""
    return f"tbf rate {round(mbps * 1000)}kbit burst {BURST_FRAMES * FRAME_BYTES} limit {queue_bytes(mbps, queue_s)}"


def queue_bytes(mbps: float, queue_s: float = QUEUE_S) -> int:
    """Return the size in bytes of a queue that stores ``queue_s`` seconds of a link's traffic, at least one burst."""
    return max(round(mbps * 1e6 / 8 * queue_s), BURST_FRAMES * FRAME_BYTES)


class ShellThatEnds:
    """Mixin for Mininet's nodes that raises ``OSError`` when the node's shell has ended.

    Mininet itself would wait for the shell for ever. List the mixin before Mininet's class. A signal to the process
    group, such as that of a closed terminal, can end a shell in the moment before it leaves the group."""

    def read(self: Any, size: int = 1024) -> str:
        output = select.poll()
        output.register(self.stdout, select.POLLIN)
        while not output.poll(LOOK_MS):
            if self.shell.poll() is not None:
                raise OSError(f"the shell of {self.name} has ended with status {self.shell.returncode}")
        return str(super().read(size))  # type: ignore[misc]


class FabricHost(ShellThatEnds, Host):  # type: ignore[misc]
    """Host with a TCP window that fits its link.

    Linux grows the receive buffer to megabytes. A sender that is alone on its path then overflows a queue of 50 ms
    again and again. The buffer is ``WINDOW_QUEUES`` queues, of which about half becomes window. With it, a pinned flow
    loses no packets, and flows that share a link still fill it."""

    def config(self, window_mbps: float | None = None, **params: Any) -> dict[str, Any]:
        """Configure the host.

        ``window_mbps``: rate in Mbit/s for which the TCP window is sized; None keeps Linux's defaults. It is the
        largest rate of a flow to another switch: the rate of the host's link or of the fastest cable of the host's
        switch, whichever is smaller."""
        ending.check()
        result: dict[str, Any] = super().config(**params)
        if window_mbps is not None:
            buffer = round(WINDOW_QUEUES * queue_bytes(window_mbps))
            self.cmd(f"sysctl -qw net.ipv4.tcp_rmem='4096 {buffer} {buffer}' net.ipv4.tcp_no_metrics_save=1")
        return result


class ShapedIntf(TCIntf):  # type: ignore[misc]
    """End of a link: shaped egress, no offloads, no IPv6.

    It is a ``TCIntf``, because Mininet's own switches configure such interfaces again after Open vSwitch has added the
    port. Adding the port clears its queueing discipline."""

    def config(self, bw: float | None = None, **params: Any) -> dict[str, Any]:
        """Configure the interface. Raises ``OSError`` when tc fails.

        ``bw`` is in Mbit/s, None for unshaped. Offloads are off: the userspace datapath forwards neither unfinished
        checksums nor frames larger than the MTU, and a token bucket must count real packets. A node with
        ``shaped_later`` is not shaped here."""
        ending.check()
        self.bw = bw
        self.cmd(f"sysctl -qw net.ipv6.conf.{self.name}.disable_ipv6=1")
        result: dict[str, Any] = Intf.config(self, **params)
        self.cmd(f"ethtool -K {self.name} " + " ".join(f"{offload} off" for offload in OFFLOADS))
        if self.bw is not None and not getattr(self.node, "shaped_later", False):
            _, message, status = self.node.pexec(f"tc {self.discipline}")
            if status:
                raise OSError(f"cannot shape {self.name}: {message.strip()}")
        return result

    @property
    def discipline(self) -> str:
        """Arguments of tc that set the egress rate ``bw`` and replace any queueing discipline."""
        assert self.bw is not None
        return f"qdisc replace dev {self.name} root {shaping(self.bw)}"


class ShapedLink(Link):  # type: ignore[misc]
    """Cable with two shaped ends."""

    def __init__(self, *args: Any, **params: Any) -> None:
        super().__init__(*args, **{**params, "intf": ShapedIntf})


class FabricTopo(Topo):  # type: ignore[misc]
    """Mininet topology of the switches, cables and hosts in ``fabric``.

    ``prefix`` begins every name that is global on the machine, so that several labs can run at the same time."""

    fabric: Topology
    prefix: str

    def node(self, name: str) -> str:
        """Return the name of a switch or host in Mininet, and of a switch's bridge in Open vSwitch."""
        return f"{self.prefix}{name}"

    def interface(self, name: str, port: int) -> str:
        """Return the Linux interface of a port of a switch or host."""
        usual = f"{self.prefix}{name}-eth{port}"
        return usual if len(usual) <= MAX_INTERFACE_NAME else f"{self.prefix}{name}-{port}"

    def assemble(self, fabric: Topology, prefix: str) -> None:
        """Add all nodes and links.

        Raises ``InvalidInput`` for links without a rate, and for interface names that are too long for Linux."""
        self.fabric = fabric
        self.prefix = prefix
        for switch in fabric.switches:
            self.addSwitch(self.node(switch.name), dpid=f"{switch.dpid:016x}")
        fastest: dict[str, float] = {}
        for cable in fabric.cables:
            for switch_name in (cable.a, cable.b):
                fastest[switch_name] = max(cable.bps, fastest.get(switch_name, 0.0))
        for host in fabric.hosts:
            window_mbps = min(host.bps, fastest.get(host.leaf, host.bps)) / 1e6
            self.addHost(self.node(host.name), cls=FabricHost, ip=f"{host.ip}/16", window_mbps=window_mbps)
        dpids = {switch.name: switch.dpid for switch in fabric.switches}
        for host in fabric.hosts:
            self._add_link(host.cable, host.mac, dpids[host.leaf])
        for cable in fabric.cables:
            self._add_link(cable, _port_mac(dpids[cable.a], cable.a_port), dpids[cable.b])

    def _add_link(self, cable: Cable, a_mac: str, b_dpid: int) -> None:
        if cable.bps <= 0:
            raise _refused("rate", f"must be above 0 Mbit/s (given: {cable.bps / 1e6:g})")
        interfaces = self.interface(cable.a, cable.a_port), self.interface(cable.b, cable.b_port)
        for interface in interfaces:
            if len(interface) > MAX_INTERFACE_NAME:
                raise _refused("prefix", f"interface name {interface} is longer than {MAX_INTERFACE_NAME} characters")
        self.addLink(
            self.node(cable.a),
            self.node(cable.b),
            port1=cable.a_port,
            port2=cable.b_port,
            intfName1=interfaces[0],
            intfName2=interfaces[1],
            addr1=a_mac,
            addr2=_port_mac(b_dpid, cable.b_port),
            cls=ShapedLink,
            bw=cable.bps / 1e6,
        )


def _refused(field: str, message: str) -> InvalidInput:
    return InvalidInput((FieldProblem(field, message),))


def _port_mac(dpid: int, port: int) -> str:
    digits = f"0201{dpid:04x}{port:04x}"
    return ":".join(digits[i : i + 2] for i in range(0, 12, 2))
