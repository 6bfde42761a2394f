"""When a drained part of the fabric can be pulled: no route uses it, the switches have confirmed that, and their
counters show that nothing is sent over it but probes.

In: what is drained, the flows on it, counters of links. Out: a ``DrainStatus`` each. Pure; ``now`` is monotonic
seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from controller.fabric.drains import Drain
from controller.fabric.link_load import LinkLoad
from controller.fabric.parts import PartKey
from controller.fabric.topology import LinkId
from controller.status import DrainState, DrainStatus

BYTES_PER_PROBE = 200
"""A probe has fewer; LLDP that switches send themselves is not more often."""


class Draining:
    """``probe_interval_s``: between two probes over a link."""

    def __init__(self, load: LinkLoad, probe_interval_s: float) -> None:
        self._load = load
        self._probe_interval_s = probe_interval_s
        self._empty_at: dict[str, float] = {}

    def follow(
        self,
        parts: Mapping[str, Collection[LinkId]],
        flows: Mapping[LinkId, int],
        waiting: frozenset[LinkId],
        confirmed: bool,
        now: float,
    ) -> None:
        """``parts``: the links of each. ``flows``: on drained links. ``waiting``: links that flows may still be planned
        on. ``confirmed``: the switches hold what they should. A part that was empty once is, until flows use it."""
        self._empty_at = {name: at for name, at in self._empty_at.items() if name in parts}
        for name, links in parts.items():
            if not flows.keys().isdisjoint(links) or not waiting.isdisjoint(links):
                self._empty_at.pop(name, None)
            elif confirmed:
                self._empty_at.setdefault(name, now)

    def forget(self) -> None:
        """It is not known any more which routes run."""
        self._empty_at = {}

    def statuses(
        self,
        parts: Mapping[str, Drain],
        links: Mapping[str, Collection[LinkId]],
        flows: Mapping[LinkId, int],
        down: Collection[PartKey],
    ) -> Mapping[str, DrainStatus]:
        """Of each part, by name. ``down``: parts of the fabric that are known not to be there."""
        return {name: self._status(drain, links[name], flows, drain.key in down) for name, drain in parts.items()}

    def _status(
        self, drain: Drain, links: Collection[LinkId], flows: Mapping[LinkId, int], is_down: bool
    ) -> DrainStatus:
        left, empty_at = sum(flows.get(link, 0) for link in links), self._empty_at.get(drain.name)
        if left:
            return DrainStatus(drain.name, drain.since, "moving", left, len(links))
        if empty_at is None or not (links or is_down):
            return DrainStatus(drain.name, drain.since, "confirming", 0, len(links))
        if not links:
            return DrainStatus(drain.name, drain.since, "safe", 0, 0)
        counted = self._load.counted_since(links, empty_at)
        if counted is None:
            return DrainStatus(drain.name, drain.since, "measuring", 0, len(links))
        seconds, most_bytes = counted
        probes = BYTES_PER_PROBE * (seconds / self._probe_interval_s + 2)
        state: DrainState = "carrying" if most_bytes > probes else "safe"
        return DrainStatus(drain.name, drain.since, state, 0, len(links), 8 * most_bytes / seconds)
