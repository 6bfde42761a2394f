"""Switches that have left, and links that are lost: which are given up, and how long repairs take. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from controller.fabric.topology import Dpid, Fabric, Link, LinkId

GRACE_S = 0.1
"""From the end of a connection until its switch is given up."""
TOGETHER_S = 1.0
"""Switches that leave within this time leave together."""
MANY_FRACTION = 0.25
MANY_AT_LEAST = 3


class Departures:
    """Switches whose connection has ended and whose links are not given up yet. ``now`` is monotonic seconds."""

    def __init__(self) -> None:
        self._waiting: dict[Dpid, float] = {}
        self._left_at: dict[Dpid, float] = {}

    def left(self, dpid: Dpid, fabric: Fabric, now: float) -> bool:
        """Whether a large part of the ``fabric``, which still has this switch, has left together. A switch without a
        link does not count: one that connects and leaves again and again could otherwise stop all planning."""
        self._waiting[dpid] = now
        self._left_at = {dpid: at for dpid, at in self._left_at.items() if at > now - TOGETHER_S}
        if not any(link.dpid == dpid for link in fabric.links):
            return False
        self._left_at[dpid] = now
        return len(self._left_at) >= max(MANY_AT_LEAST, MANY_FRACTION * len(fabric.switches))

    @property
    def waiting(self) -> bool:
        """Some switches have left and are not given up yet."""
        return bool(self._waiting)

    def returned(self, dpid: Dpid) -> None:
        self._waiting.pop(dpid, None)

    def due(self, now: float) -> list[Dpid]:
        """The switches to give up now."""
        due = [dpid for dpid, at in self._waiting.items() if at <= now - GRACE_S]
        for dpid in due:
            del self._waiting[dpid]
        return due


class LinkLosses:
    """``before``: the links before the last call of ``lost``. ``repair_s``: from the moment that a loss was known until
    the switches had confirmed the repaired routes, None until then. ``now`` is monotonic seconds."""

    def __init__(self) -> None:
        self.before: Mapping[LinkId, Link] = {}
        self.repair_s: float | None = None
        self._links: Mapping[LinkId, Link] = {}
        self._unrouted: frozenset[LinkId] = frozenset()
        self._broken_since: float | None = None

    def lost(self, links: Mapping[LinkId, Link]) -> list[LinkId]:
        """The links that have been lost since the last call."""
        self.before, self._links = self._links, links
        return [] if self.before is links else [link for link in self.before if link not in links]

    def break_more_routes(self, unrouted: frozenset[LinkId], now: float) -> bool:
        """Whether routes use more lost links than at the last call. ``unrouted``: all that they use."""
        more, self._unrouted = unrouted - self._unrouted, unrouted
        if more and self._broken_since is None:
            self.repair_s, self._broken_since = None, now
        return bool(more)

    def all_confirmed(self, now: float) -> None:
        """The switches hold what they should."""
        if not self._unrouted and self._broken_since is not None:
            self.repair_s, self._broken_since = now - self._broken_since, None
