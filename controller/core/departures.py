"""Switches whose connection ended: have they gone, or can we only not reach them?

A switch that dies takes its ports down, and its neighbours say so at once. A connection that ends may as well be the
control network's doing, in which case packets still flow; then many end together. So a switch is given up a moment
after its connection ended, unless a large part of the fabric goes in that moment: then nothing is given up, and what
the switches do is adopted when they are back, as after a restart. Pure.
"""

from __future__ import annotations

from controller.fabric.topology import Dpid, Fabric

GRACE_S = 0.1
LATELY_S = 1.0
MANY_FRACTION = 0.25
MANY_AT_LEAST = 3


class Departures:
    """``now`` is monotonic seconds."""

    def __init__(self) -> None:
        self._waiting: dict[Dpid, float] = {}
        self._lately: dict[Dpid, float] = {}

    def left(self, dpid: Dpid, fabric: Fabric, now: float) -> bool:
        """Whether a large part of the ``fabric``, which still has this switch, has left lately. A switch without a
        link is no part of it: whoever may connect could otherwise stop all planning by coming and going."""
        self._waiting[dpid] = now
        self._lately = {dpid: at for dpid, at in self._lately.items() if at > now - LATELY_S}
        if not any(link.dpid == dpid for link in fabric.links):
            return False
        self._lately[dpid] = now
        return len(self._lately) >= max(MANY_AT_LEAST, MANY_FRACTION * len(fabric.switches))

    @property
    def waiting(self) -> bool:
        """Some left and are not given up yet: the picture is about to change."""
        return bool(self._waiting)

    def returned(self, dpid: Dpid) -> None:
        """If before it was given up, nothing is left to do about it."""
        self._waiting.pop(dpid, None)

    def due(self, now: float) -> list[Dpid]:
        """Who is given up now."""
        due = [dpid for dpid, at in self._waiting.items() if at <= now - GRACE_S]
        for dpid in due:
            del self._waiting[dpid]
        return due
