"""Packets that ports wanted to hand to the controller beyond their limit, and that their meters dropped.

In: counters of the control table's meters, which are numbered like the ports. Out: totals, and for each port where it
is going on a sentence for operators: a host that floods does so in the open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from controller.fabric.topology import Dpid, Fabric, LinkId, PortRef
from controller.tables.messages import Counters


class _Read(NamedTuple):
    """``packets``: dropped in the ``seconds`` before, None where there is no earlier reading."""

    at: float
    total: int
    packets: int | None
    seconds: float


class PuntDrops:
    def __init__(self) -> None:
        self._read: dict[PortRef, _Read] = {}

    def take(self, message: Counters) -> None:
        for port, total in message.punt_drops.items():
            at = PortRef(message.dpid, port)
            before = self._read.get(at)
            if before is None:
                self._read[at] = _Read(message.at, total, None, 0.0)
            elif message.at > before.at:
                since = total - before.total if total >= before.total else total  # the meter was made anew
                self._read[at] = _Read(message.at, total, since, message.at - before.at)

    def switch_left(self, dpid: Dpid) -> None:
        self._read = {at: read for at, read in self._read.items() if at.dpid != dpid}

    def totals(self, fabric: Fabric) -> Mapping[PortRef, int]:
        """Of every port of the fabric that has lost any, as its switch counts them."""
        return {at: read.total for at, read in self._read.items() if read.total and _exists(fabric, at)}

    def alarms(self, fabric: Fabric) -> Iterator[str]:
        """One sentence per port that lost packets between the latest two readings."""
        for at, read in self._read.items():
            if read.packets and _exists(fabric, at):
                kind = "port" if LinkId(*at) in fabric.links else "host port"
                yield (
                    f"{kind} {fabric.name(at.dpid)}:{at.port} sends more to the controller than its limit: "
                    f"{read.packets} packets dropped in the last {read.seconds:.0f} s"
                )


def _exists(fabric: Fabric, at: PortRef) -> bool:
    switch = fabric.switches.get(at.dpid)
    return switch is not None and at.port in switch.ports
