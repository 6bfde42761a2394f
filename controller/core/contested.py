"""Switches that somebody else claims: another controller that became their master, another switch with their dpid.

Owns what operators are told of it. In: the southbound's messages, time. Out: alarms. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from controller.fabric.messages import ConnectionRefused, MastershipLost, SwitchLeft
from controller.fabric.topology import Dpid, Fabric

RECENT_S = 30.0
"""A switch that is refused comes back every few seconds."""


class Contested:
    """``now`` is monotonic seconds."""

    def __init__(self) -> None:
        self._taken: dict[Dpid, str] = {}
        self._refused: dict[Dpid, tuple[str, float]] = {}

    def left(self, message: SwitchLeft | MastershipLost) -> None:
        """Its connection ended, or another controller took it."""
        self.is_over(message.dpid)
        if isinstance(message, MastershipLost):
            self._taken[message.dpid] = message.name

    def refused(self, message: ConnectionRefused, now: float) -> None:
        if message.reason == "duplicate_dpid" and message.dpid is not None:
            self._refused[message.dpid] = message.peer.rpartition(":")[0], now

    def is_over(self, dpid: Dpid) -> None:
        """The switch is ours again, or nobody's business of ours."""
        self._taken.pop(dpid, None)

    def tick(self, now: float) -> None:
        self._refused = {dpid: seen for dpid, seen in self._refused.items() if now < seen[1] + RECENT_S}

    def alarms(self, fabric: Fabric) -> Iterator[str]:
        for name in self._taken.values():
            yield f"another controller has become the master of {name}; it is left alone until it connects again"
        for dpid, (peer, _) in self._refused.items():
            yield f"a second switch, at {peer}, has the dpid of {fabric.name(dpid)} ({dpid:#x}); it is refused"
