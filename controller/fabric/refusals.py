"""Refused packets and connections, switches that flood, and switches that another controller took over.

In: messages of the southbound, and the time. Out: totals since the start, and the time of the last refusal of each
kind. A port that its switch did not describe is counted as port 0, so that a hostile switch cannot fill the memory.
Pure.
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
"""Seconds for which refused packets, duplicate dpids, floods and refused connections raise an alarm.

A refused switch tries again every few seconds, so its alarm continues until it is accepted or gives up."""
NO_PORT = PortNo(0)


class Refusals:
    """Totals and latest times of refusals. ``now`` is monotonic seconds."""

    def __init__(self) -> None:
        self.connections: Counter[RefusalReason] = Counter()
        """Number of refused connections since the start, by reason."""
        self.packets: Counter[RefusedPacket] = Counter()
        """Number of refused packets since the start, by port and reason."""
        self.last_connections: dict[RefusalReason, tuple[str, float]] = {}
        """Peer and time of the latest refusals, by reason, except duplicate dpids.

        The peer is the first one that was refused after ``CONNECTIONS_RECENT_S`` without refusals. The time is the time
        of the last refusal."""
        self.last_packets: dict[RefusedPacket, float] = {}
        """Time of the last refusal, by port and reason."""
        self.taken: dict[Dpid, str] = {}
        """Names of the switches whose master is another controller."""
        self.duplicates: dict[Dpid, tuple[str, float]] = {}
        """Address of a second switch with the same dpid, and the time of its last attempt to connect."""
        self.floods: dict[Dpid, float] = {}
        """Time of the last flood of each switch."""

    def count_packets(self, message: PacketsRefused, fabric: Fabric, now: float) -> None:
        """Count refused packets of connected switches."""
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
        """Forget the floods of a switch that has disconnected, or that has another controller as its master now.

        ``taken`` has the switch only in the second case."""
        self.floods.pop(message.dpid, None)
        self.taken.pop(message.dpid, None)
        if isinstance(message, MastershipLost):
            self.taken[message.dpid] = message.name

    def switch_connected(self, dpid: Dpid) -> None:
        """Record that this controller is the master of the switch again."""
        self.taken.pop(dpid, None)
