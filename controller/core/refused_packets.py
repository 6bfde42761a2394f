"""Packets that were not believed: how many, where from, why, and which of it is recent enough to be an alarm.

In: what the southbound refused since it last told. Out: totals since the start. A port that no switch described is
counted as port 0, so that a hostile switch cannot fill the memory with names. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from controller.fabric.messages import PacketRefusal, PacketsRefused, RefusedPacket
from controller.fabric.topology import Fabric, PortNo, PortRef

RECENT_S = 60.0
NO_PORT = PortNo(0)

WORDS: dict[PacketRefusal, str] = {
    "malformed": "sends LLDP that looks like ours and is not whole",
    "forged": "sends LLDP that looks like ours and is not: a host that invents links, or another controller's fabric",
    "replayed": "sends LLDP that was used before, or kept: a host that repeats what it heard, or a switch far behind",
    "reflected": "sends LLDP back into the port it left: a loop, or a host that repeats what it heard",
}
"""What an operator is told. The other reasons are no alarm: LLDP of hosts and of ports that go down is everyday."""


class RefusedPackets:
    """``total``: since the start."""

    def __init__(self) -> None:
        self.total: Counter[RefusedPacket] = Counter()
        self._last: dict[RefusedPacket, float] = {}

    def count(self, message: PacketsRefused, fabric: Fabric, now: float) -> None:
        for (at, reason), number in message.counts.items():
            switch = fabric.switches.get(at.dpid)
            if switch is not None:
                known = at if at.port in switch.ports else PortRef(at.dpid, NO_PORT)
                self.total[RefusedPacket(known, reason)] += number
                self._last[RefusedPacket(known, reason)] = now

    def forget_old(self, now: float) -> None:
        """What is not recent any more is no alarm."""
        if self._last:
            self._last = {packet: at for packet, at in self._last.items() if now < at + RECENT_S}

    def alarms(self, fabric: Fabric) -> Iterator[str]:
        """Of switches that are connected."""
        for at, reason in sorted(self._last):
            if reason in WORDS and at.dpid in fabric.switches:
                yield f"{fabric.name(at.dpid)}:{at.port} {WORDS[reason]}; it is ignored"
