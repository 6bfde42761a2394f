"""Which links have just been lost, whether routes use lost links, and how long the last repair took. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from controller.fabric.topology import Link, LinkId


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
