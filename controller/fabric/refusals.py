"""Refused packets and connections, switches that flood, and switches that another controller took over. Pure.

In: messages of the southbound, and the time. Out: totals since the start, and the time of the last refusal of each
kind. The memory is bounded, because a peer may name any ports and dpids. A port that its switch did not describe counts
as port 0. ``PortCounts`` has limits. A switch that disconnects is forgotten.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from controller.fabric.messages import (
    ConnectionRefused,
    GenerationRaised,
    MastershipLost,
    PacketRefusal,
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
MOST_OF_SWITCH = 256
MOST_PORTS = 4096
"""Largest number of ports, of one switch and of all switches together, whose refusals are counted."""
MOST_DUPLICATES = 256
"""Largest number of dpids that several switches have used lately."""


class PortCounts:
    """Number of refusals since the start, and time of the last refusal, by port.

    A further port is ignored while ``MOST_OF_SWITCH`` ports of its switch are counted, or ``MOST_PORTS`` ports of all
    switches. A switch that disconnects is forgotten."""

    def __init__(self) -> None:
        self.totals: Counter[PortRef] = Counter()
        self.last: dict[PortRef, float] = {}
        """Time of the last refusal by port, in the order in which the ports first had a refusal."""
        self._of_switch: Counter[Dpid] = Counter()

    def count(self, at: PortRef, number: int, now: float) -> None:
        if at not in self.totals:
            if len(self.totals) >= MOST_PORTS or self._of_switch[at.dpid] >= MOST_OF_SWITCH:
                return
            self._of_switch[at.dpid] += 1
        self.totals[at] += number
        self.last[at] = now

    def switch_left(self, dpid: Dpid) -> None:
        if self._of_switch.pop(dpid, 0):
            for at in [at for at in self.totals if at.dpid == dpid]:
                del self.totals[at], self.last[at]


class Refusals:
    """Totals and latest times of refusals. ``now`` is monotonic seconds."""

    def __init__(self) -> None:
        self.connections: Counter[RefusalReason] = Counter()
        """Number of refused connections since the start, by reason."""
        self.packets = defaultdict[PacketRefusal, PortCounts](PortCounts)
        """Refused packets by port, for each reason."""
        self.last_connections: dict[RefusalReason, tuple[str, float]] = {}
        """Peer and time of refused connections, by reason; duplicate dpids are in ``duplicates`` instead.

        The time is that of the latest refusal. The peer is the one that was refused first after
        ``CONNECTIONS_RECENT_S`` seconds without refusals for this reason."""
        self.masterships_lost = 0
        """Number of refusals since the start because the switch has another controller as its master."""
        self.other_masters: dict[Dpid, MastershipLost] = {}
        """Latest message about each switch whose master is another controller."""
        self.raised: dict[Dpid, GenerationRaised] = {}
        """Latest message about each switch whose master is this controller, and whose generation id is larger than any
        controller's."""
        self.duplicates: dict[Dpid, tuple[str, float]] = {}
        """Address of a second switch with the same dpid, and the time of its last attempt to connect."""
        self.floods: dict[Dpid, float] = {}
        """Time of the last flood of each switch."""

    def count_packets(self, message: PacketsRefused, fabric: Fabric, now: float) -> None:
        for (at, reason), number in message.counts.items():
            switch = fabric.switches.get(at.dpid)
            if switch is not None:
                self.packets[reason].count(at if at.port in switch.ports else PortRef(at.dpid, NO_PORT), number, now)

    def packet_totals(self) -> dict[RefusedPacket, int]:
        """Return the number of refused packets, by port and reason."""
        return {
            RefusedPacket(at, reason): number
            for reason, of_reason in self.packets.items()
            for at, number in of_reason.totals.items()
        }

    def count_connection(self, message: ConnectionRefused, now: float) -> None:
        self.connections[message.reason] += 1
        peer = message.peer.rpartition(":")[0]
        if message.reason == "duplicate_dpid" and message.dpid is not None:
            self._count_duplicate(message.dpid, peer, now)
        else:
            first, last_at = self.last_connections.get(message.reason, (peer, now))
            self.last_connections[message.reason] = first if now < last_at + CONNECTIONS_RECENT_S else peer, now

    def _count_duplicate(self, dpid: Dpid, peer: str, now: float) -> None:
        """Record a second switch with this dpid; do nothing if ``MOST_DUPLICATES`` other dpids were recorded lately."""
        if dpid not in self.duplicates and len(self.duplicates) >= MOST_DUPLICATES:
            since = now - DUPLICATES_RECENT_S
            self.duplicates = {known: last for known, last in self.duplicates.items() if last[1] > since}
        if dpid in self.duplicates or len(self.duplicates) < MOST_DUPLICATES:
            self.duplicates[dpid] = peer, now

    def count_flood(self, message: SwitchFloods, now: float) -> None:
        self.floods[message.dpid] = now

    def switch_left(self, message: SwitchLeft | MastershipLost) -> None:
        """Forget the floods and packets of a switch that has disconnected, or whose master is another controller now.

        A switch with another master is added to ``other_masters``."""
        for of_reason in self.packets.values():
            of_reason.switch_left(message.dpid)
        self.floods.pop(message.dpid, None)
        self.other_masters.pop(message.dpid, None)
        self.raised.pop(message.dpid, None)
        if isinstance(message, MastershipLost):
            self.other_masters[message.dpid] = message
            self.masterships_lost += 1

    def generation_raised(self, message: GenerationRaised) -> None:
        if message.is_ahead:
            self.raised[message.dpid] = message
        else:
            self.raised.pop(message.dpid, None)

    def switch_connected(self, dpid: Dpid) -> None:
        """Record that this controller is the master of the switch again."""
        self.other_masters.pop(dpid, None)
        self.raised.pop(dpid, None)
