"""Packets and connections that were refused, switches that flood, and switches that another controller took.

In: the southbound's messages, time. Out: totals since the start, and when each was refused last. A port
that its switch did not describe is counted as port 0, so that a hostile switch cannot fill the memory. Pure.
"""

from __future__ import annotations

from collections import Counter

from controller.fabric.messages import (
    ConnectionRefused,
    MastershipLost,
    PacketsRefused,
    RefusalReason,
    RefusedPacket,
    SwitchFloods,
    SwitchLeft,
)
from controller.fabric.topology import Dpid, Fabric, PortNo, PortRef

PACKETS_RECENT_S = 60.0
DUPLICATES_RECENT_S = 30.0
FLOODS_RECENT_S = 30.0
CONNECTIONS_RECENT_S = 60.0
"""A switch that is refused connects again every few seconds."""
NO_PORT = PortNo(0)


class Refusals:
    """``connections`` and ``packets``: since the start. ``last_packets``: when each was refused last. ``taken``: the
    names of switches that have another master. ``duplicates``: the address of a second switch with a known dpid, and
    when it tried last. ``floods``: when a switch sent too much last. ``last_connections``: of each other reason, the
    address of the first that was refused since a time without any, and when the last was. ``now`` is monotonic
    seconds."""

    def __init__(self) -> None:
        self.connections: Counter[RefusalReason] = Counter()
        self.packets: Counter[RefusedPacket] = Counter()
        self.last_connections: dict[RefusalReason, tuple[str, float]] = {}
        self.last_packets: dict[RefusedPacket, float] = {}
        self.taken: dict[Dpid, str] = {}
        self.duplicates: dict[Dpid, tuple[str, float]] = {}
        self.floods: dict[Dpid, float] = {}

    def count_packets(self, message: PacketsRefused, fabric: Fabric, now: float) -> None:
        """Of switches that are connected."""
        for (at, reason), number in message.counts.items():
            switch = fabric.switches.get(at.dpid)
            if switch is not None:
                refused = RefusedPacket(at if at.port in switch.ports else PortRef(at.dpid, NO_PORT), reason)
                self.packets[refused] += number
                self.last_packets[refused] = now

    def count_connection(self, message: ConnectionRefused, now: float) -> None:
        self.connections[message.reason] += 1
        peer = message.peer.rpartition(":")[0]
        if message.reason == "duplicate_dpid" and message.dpid is not None:
            self.duplicates[message.dpid] = peer, now
        else:
            first, last_at = self.last_connections.get(message.reason, (peer, now))
            self.last_connections[message.reason] = first if now < last_at + CONNECTIONS_RECENT_S else peer, now

    def count_flood(self, message: SwitchFloods, now: float) -> None:
        self.floods[message.dpid] = now

    def switch_left(self, message: SwitchLeft | MastershipLost) -> None:
        """Its connection ended, or another controller took it."""
        self.floods.pop(message.dpid, None)
        self.taken.pop(message.dpid, None)
        if isinstance(message, MastershipLost):
            self.taken[message.dpid] = message.name

    def switch_connected(self, dpid: Dpid) -> None:
        """This controller is its master again."""
        self.taken.pop(dpid, None)
