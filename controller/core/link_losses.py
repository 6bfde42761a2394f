"""What a lost link makes urgent, and until when.

In: the links that there are, those that routes use and that are gone. Out: which links have just been lost, whether
everything that can wait should, how long the last repair took. Pure; owned by the control loop.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from controller.fabric.topology import Link, LinkId

HURRY_S = 0.1
"""How long the full computation waits, at most, for the switches to confirm what takes lost next hops away, and then
for a repair of the routes."""


class LinkLosses:
    """``repair_s``: from the moment that the loss was known until the switches had confirmed the repaired routes, None
    until then. ``unrouted``: links that routes use and that are gone."""

    def __init__(self) -> None:
        self.repair_s: float | None = None
        self.unrouted: frozenset[LinkId] = frozenset()
        self.awaits_repair = False
        self.before: Mapping[LinkId, Link] = {}
        self._links: Mapping[LinkId, Link] = {}
        self._hurried_until = -math.inf
        self._broken_since: float | None = None

    def lost(self, links: Mapping[LinkId, Link]) -> list[LinkId]:
        """The links that have gone since the last call; ``before``: what there was then."""
        self.before, self._links = self._links, links
        return [] if self.before is links else [link for link in self.before if link not in links]

    def hurry(self, now: float, awaits_repair: bool = False) -> None:
        """First aid begins, or its second part, which waits for a repair."""
        self.awaits_repair, self._hurried_until = awaits_repair, now + HURRY_S

    def hurried(self, now: float, busy: bool) -> bool:
        """First aid is under way. ``busy``: switches have not confirmed everything that was sent."""
        if self._hurried_until <= now or not (busy or self.awaits_repair):
            self.awaits_repair, self._hurried_until = False, -math.inf
        return self._hurried_until > now

    def broken(self, unrouted: frozenset[LinkId], now: float) -> bool:
        """Whether more links that routes use are gone than before."""
        more, self.unrouted = unrouted - self.unrouted, unrouted
        if more and self._broken_since is None:
            self.repair_s, self._broken_since = None, now
        return bool(more)

    def confirmed(self, now: float) -> None:
        """The switches do what they should."""
        if not self.unrouted and self._broken_since is not None:
            self.repair_s, self._broken_since = now - self._broken_since, None
